"""Cosines of texts with what images say through them, no conditioned embedding ever whole in memory.

    cos_bm = c·t_m / |c||t_m|      c = W_o o + b_o      o = concat_h softmax([q_mh·k_bh/sqrt(d), 0])[:-1] v_bh

Forward, one program takes an image and a tile of texts through all heads and the output projection and keeps two
numbers per pair. Backward, o is made once more for some images at a time: between it and the gradients of queries,
keys and values stand products that a library does best. Triton; the twin in plain torch is `Pooling._cosine_of`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from goldiclip.kernels.products import add_product

_LOG2E = tl.constexpr(1.4426950408889634)
_SMALLEST = tl.constexpr(1e-12)  # the length below which F.normalize leaves a vector short
BLOCK_ELEMENTS = 1 << 26  # of one buffer of the backward pass: 128 MiB in half precision, of which three stand
PATCHES = 64  # of one tile
MOST_OF_WEIGHT = 1 << 16  # numbers of the output projection, one head's share of it, in a program's shared memory
MOST_IMAGES = 1 << 15  # of one launch whose grid counts them second
PROGRAMS = 2_048  # about as many as keep a large GPU busy to the end


def fits(width: int, heads: int) -> bool:
    """Whether embeddings are of a width, and heads of one, that Triton takes."""
    each = width // heads
    is_whole = each & (each - 1) == 0 and width & (width - 1) == 0
    return is_whole and 16 <= each <= 128 and each * width <= MOST_OF_WEIGHT


def cosines(
    queries: Tensor, keys: Tensor, values: Tensor, texts: Tensor, weight: Tensor, bias: Tensor, heads: int
) -> Tensor:
    """(B, M) float32 of queries and texts (M, D), or (B, M, D) of each image's own, with keys and values (B, L, D)."""
    if texts.dim() == 2:
        queries, texts = queries.unsqueeze(0), texts.unsqueeze(0)
    queries, keys, values, texts = (x.contiguous() for x in (queries, keys, values, texts))
    return _cosines(queries, keys, values, texts, weight.to(keys.dtype), bias.to(keys.dtype), heads)[0]


@triton.jit
def _rows(source, place, first, count, head, W: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """Rows `first`… of (count, W) that begin at `place`, the columns of one head; zeros past the last."""
    rows = first + tl.arange(0, BLOCK)
    places = place + rows[:, None] * W + head * D + tl.arange(0, D)[None, :]
    return tl.load(source + places, mask=(rows < count)[:, None], other=0.0)


@triton.jit
def _seen(
    query, keys, values, place, num_patches, head, scale,
    W: tl.constexpr, D: tl.constexpr, TEXTS: tl.constexpr, PATCHES: tl.constexpr,
):  # fmt: skip
    """What a head gathers for a tile of queries (TEXTS, D), and the log2 of their normalisers. The sink comes first."""
    most = tl.zeros([TEXTS], tl.float32)
    total = tl.full([TEXTS], 1.0, tl.float32)
    pooled = tl.zeros([TEXTS, D], tl.float32)
    for first in range(0, num_patches, PATCHES):
        key = _rows(keys, place, first, num_patches, head, W, D, PATCHES)
        value = _rows(values, place, first, num_patches, head, W, D, PATCHES)
        logits = tl.dot(query, tl.trans(key)) * (scale * _LOG2E)
        logits = tl.where((first + tl.arange(0, PATCHES) < num_patches)[None, :], logits, -1e30)
        higher = tl.maximum(most, tl.max(logits, 1))
        weights = tl.exp2(logits - higher[:, None])
        shrink = tl.exp2(most - higher)
        total = total * shrink + tl.sum(weights, 1)
        pooled = pooled * shrink[:, None] + tl.dot(weights.to(value.dtype), value)
        most = higher
    return pooled / total[:, None], most + tl.log2(total)


@triton.jit
def _forward(
    queries, keys, values, texts, weight, bias, found, lengths, own, num_texts, num_patches, scale,
    H: tl.constexpr, D: tl.constexpr, TEXTS: tl.constexpr, PATCHES: tl.constexpr,
):  # fmt: skip
    W: tl.constexpr = H * D
    tiles = tl.cdiv(num_texts, TEXTS)
    image, first = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles * TEXTS
    columns = tl.arange(0, W)
    told = tl.zeros([TEXTS, W], tl.float32)
    for head in range(H):
        query = _rows(queries, image * own * W, first, num_texts, head, W, D, TEXTS)
        place = image * num_patches * W
        pooled, _ = _seen(query, keys, values, place, num_patches, head, scale, W, D, TEXTS, PATCHES)
        part = tl.load(weight + columns[None, :] * W + head * D + tl.arange(0, D)[:, None])
        told += tl.dot(pooled.to(query.dtype), part)
    told += tl.load(bias + columns)[None, :].to(tl.float32)
    rows = first + tl.arange(0, TEXTS)
    there = rows < num_texts
    text = tl.load(texts + image * own * W + rows[:, None] * W + columns[None, :], mask=there[:, None], other=0.0)
    text = text.to(tl.float32)
    length = tl.maximum(tl.sqrt(tl.sum(told * told, 1)), _SMALLEST)
    text_length = tl.maximum(tl.sqrt(tl.sum(text * text, 1)), _SMALLEST)
    places = image * num_texts + rows
    tl.store(found + places, tl.sum(told * text, 1) / (length * text_length), mask=there)
    tl.store(lengths + places, length, mask=there)


@triton.jit
def _gather(
    queries, keys, values, pooled, lse, own, num_texts, num_patches, scale,
    H: tl.constexpr, D: tl.constexpr, TEXTS: tl.constexpr, PATCHES: tl.constexpr,
):  # fmt: skip
    """o and its normalisers, of one image, head and tile of texts."""
    W: tl.constexpr = H * D
    image, head, first = tl.program_id(1).to(tl.int64), tl.program_id(2), tl.program_id(0) * TEXTS
    query = _rows(queries, image * own * W, first, num_texts, head, W, D, TEXTS)
    place = image * num_patches * W
    seen, normaliser = _seen(query, keys, values, place, num_patches, head, scale, W, D, TEXTS, PATCHES)
    rows = first + tl.arange(0, TEXTS)
    there = rows < num_texts
    places = (image * num_texts + rows)[:, None] * W + head * D + tl.arange(0, D)[None, :]
    tl.store(pooled + places, seen.to(pooled.dtype.element_ty), mask=there[:, None])
    tl.store(lse + (image * H + head) * num_texts + rows, normaliser, mask=there)


@triton.jit
def _turn(told, texts, towards, along, own, num_texts, W: tl.constexpr):
    """d loss/d c of each pair in the place of its c: towards·t − along·c."""
    image, row = tl.program_id(1).to(tl.int64), tl.program_id(0)
    columns, pair = tl.arange(0, W), image * num_texts + row
    c = tl.load(told + pair * W + columns).to(tl.float32)
    t = tl.load(texts + image * own * W + row * W + columns).to(tl.float32)
    error = tl.load(towards + pair) * t - tl.load(along + pair) * c
    tl.store(told + pair * W + columns, error.to(told.dtype.element_ty))


@triton.jit
def _errors(
    query, key, value, pooled, grad, lse, image, head, first, first_patch, num_texts, num_patches, scale,
    H: tl.constexpr, D: tl.constexpr, TEXTS: tl.constexpr, PATCHES: tl.constexpr,
):  # fmt: skip
    """Of a tile of texts and one of patches: weights, d/d logits (TEXTS, PATCHES), and d/d o (TEXTS, D)."""
    W: tl.constexpr = H * D
    place = image * num_texts * W
    upstream = _rows(grad, place, first, num_texts, head, W, D, TEXTS)
    said = _rows(pooled, place, first, num_texts, head, W, D, TEXTS)
    delta = tl.sum(upstream.to(tl.float32) * said.to(tl.float32), 1)
    rows = first + tl.arange(0, TEXTS)
    normaliser = tl.load(lse + (image * H + head) * num_texts + rows, mask=rows < num_texts, other=0.0)
    weights = tl.exp2(tl.dot(query, tl.trans(key)) * (scale * _LOG2E) - normaliser[:, None])
    there = (rows < num_texts)[:, None] & (first_patch + tl.arange(0, PATCHES) < num_patches)[None, :]
    weights = tl.where(there, weights, 0.0)
    error = weights * (tl.dot(upstream, tl.trans(value)) - delta[:, None]) * scale
    return weights.to(query.dtype), error.to(query.dtype), upstream


@triton.jit
def _backward_patches(
    queries, keys, values, pooled, grad, lse, grad_keys, grad_values, own, num_texts, num_patches, scale,
    H: tl.constexpr, D: tl.constexpr, TEXTS: tl.constexpr, PATCHES: tl.constexpr,
):  # fmt: skip
    """Gradients of one image's keys and values: a tile of its patches lets all texts pass by."""
    W: tl.constexpr = H * D
    first_patch, image, head = tl.program_id(0) * PATCHES, tl.program_id(1).to(tl.int64), tl.program_id(2)
    place = image * num_patches * W
    key = _rows(keys, place, first_patch, num_patches, head, W, D, PATCHES)
    value = _rows(values, place, first_patch, num_patches, head, W, D, PATCHES)
    grad_key = tl.zeros([PATCHES, D], tl.float32)
    grad_value = tl.zeros([PATCHES, D], tl.float32)
    for first in range(0, num_texts, TEXTS):
        query = _rows(queries, image * own * W, first, num_texts, head, W, D, TEXTS)
        weights, error, upstream = _errors(
            query, key, value, pooled, grad, lse, image, head, first, first_patch, num_texts, num_patches, scale,
            H, D, TEXTS, PATCHES,
        )  # fmt: skip
        grad_value += tl.dot(tl.trans(weights), upstream)
        grad_key += tl.dot(tl.trans(error), query)
    rows = first_patch + tl.arange(0, PATCHES)
    places = place + rows[:, None] * W + head * D + tl.arange(0, D)[None, :]
    there = (rows < num_patches)[:, None]
    tl.store(grad_keys + places, grad_key.to(grad_keys.dtype.element_ty), mask=there)
    tl.store(grad_values + places, grad_value.to(grad_values.dtype.element_ty), mask=there)


@triton.jit
def _backward_queries(
    queries, keys, values, pooled, grad, lse, sums, own, num_texts, num_patches, scale, num_images, each,
    H: tl.constexpr, D: tl.constexpr, TEXTS: tl.constexpr, PATCHES: tl.constexpr,
):  # fmt: skip
    """Gradients of a tile of queries, past which `each` images go: sums (parts, M, D), an image a part if `own`."""
    W: tl.constexpr = H * D
    first, head, part = tl.program_id(0) * TEXTS, tl.program_id(1), tl.program_id(2)
    found = tl.zeros([TEXTS, D], tl.float32)
    for i in range(tl.minimum(each, num_images - part * each)):
        image = (part * each + i).to(tl.int64)
        query = _rows(queries, image * own * W, first, num_texts, head, W, D, TEXTS)
        for first_patch in range(0, num_patches, PATCHES):
            key = _rows(keys, image * num_patches * W, first_patch, num_patches, head, W, D, PATCHES)
            value = _rows(values, image * num_patches * W, first_patch, num_patches, head, W, D, PATCHES)
            _, error, _ = _errors(
                query, key, value, pooled, grad, lse, image, head, first, first_patch, num_texts, num_patches, scale,
                H, D, TEXTS, PATCHES,
            )  # fmt: skip
            found += tl.dot(error, key)
    rows = first + tl.arange(0, TEXTS)
    places = (part.to(tl.int64) * num_texts + rows)[:, None] * W + head * D + tl.arange(0, D)[None, :]
    tl.store(sums + places, found, mask=(rows < num_texts)[:, None])


# --- as torch operators -----------------------------------------------------------------------------------------------


def _sizes(queries: Tensor, keys: Tensor, heads: int, texts_at_once: int = 64) -> tuple[tuple[Any, ...], Any]:
    """Run-time sizes and compile-time sizes of a launch; `own` is how far one image's texts are from the next's."""
    num_texts, width = queries.shape[1:]
    own = num_texts if len(queries) > 1 else 0
    each = width // heads
    texts = 16 if num_texts <= 16 else texts_at_once
    return (own, num_texts, keys.shape[1], each**-0.5), (heads, each, texts, PATCHES)


@torch.library.custom_op("goldiclip::cosines", mutates_args=())
def _cosines(
    queries: Tensor, keys: Tensor, values: Tensor, texts: Tensor, weight: Tensor, bias: Tensor, heads: int
) -> tuple[Tensor, Tensor]:
    found = torch.empty(len(keys), queries.shape[1], dtype=torch.float32, device=keys.device)
    lengths = torch.empty_like(found)
    sizes, fixed = _sizes(queries, keys, heads, 64 if queries.shape[-1] <= 512 else 32)
    grid, warps = (triton.cdiv(queries.shape[1], fixed[2]) * len(keys),), 16 if fixed[2] == 64 else 8
    _forward[grid](queries, keys, values, texts, weight, bias, found, lengths, *sizes, *fixed, num_warps=warps)
    return found, lengths


@torch.library.custom_op("goldiclip::cosines_backward", mutates_args=())
def _cosines_backward(
    grad: Tensor, found: Tensor, lengths: Tensor, queries: Tensor, keys: Tensor, values: Tensor, texts: Tensor,
    weight: Tensor, bias: Tensor, heads: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    wide_texts, is_own = texts.float(), len(texts) > 1
    squares = wide_texts.square().sum(-1).clamp(min=_SMALLEST.value**2)
    towards = grad / (lengths * squares.sqrt())
    along = grad * found / lengths.square()
    gathered = torch.zeros(texts.shape, dtype=torch.float32, device=keys.device)  # Σ_b towards·o
    grad_queries, grad_keys, grad_values = torch.zeros_like(gathered), torch.empty_like(keys), torch.empty_like(values)
    grad_weight = torch.zeros(weight.shape, dtype=torch.float32, device=keys.device)
    grad_bias = torch.zeros(bias.shape, dtype=torch.float32, device=keys.device)
    at_once = min(MOST_IMAGES, max(1, BLOCK_ELEMENTS // queries[0].numel()))
    for start in range(0, len(keys), at_once):
        here = slice(start, start + at_once)
        own = here if is_own else slice(None)
        pair = queries[own], keys[here], values[here]
        pooled, lse = _gathered(*pair, heads)
        error = torch.addmm(bias, pooled.flatten(0, 1), weight.T).view_as(pooled)
        _turn[error.shape[1::-1]](
            error, texts[own], towards[here], along[here], len(queries[0]) if is_own else 0, *error.shape[1:]
        )
        flat = error.flatten(0, 1)
        add_product(grad_weight, flat.T, pooled.flatten(0, 1))
        grad_bias += flat.sum(0, dtype=torch.float32)
        seen = torch.einsum("bm,bmw->mw", towards[here].to(pooled.dtype), pooled) if not is_own else None
        gathered[own] += towards[here, :, None] * pooled if seen is None else seen
        upstream = (flat @ weight).view_as(pooled)
        grad_keys[here], grad_values[here] = _of_patches(*pair, pooled, upstream, lse, heads)
        grad_queries[own] += _of_queries(*pair, pooled, upstream, lse, heads)
    whole = (lambda x: x) if is_own else (lambda x: x.sum(0, keepdim=True))
    grad_texts = gathered @ weight.float().T + whole(towards)[..., None] * bias.float()
    grad_texts -= (whole(grad * found) / squares)[..., None] * wide_texts
    narrow = grad_queries.to(queries.dtype), grad_keys, grad_values, grad_texts.to(texts.dtype)
    return *narrow, grad_weight.to(weight.dtype), grad_bias.to(bias.dtype)


def _gathered(queries: Tensor, keys: Tensor, values: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """o (n, M, D) of n images, and the normalisers (n, H, M)."""
    (num_texts, width), num_images = queries.shape[1:], len(keys)
    pooled = keys.new_empty(num_images, num_texts, width)
    lse = torch.empty(num_images, heads, num_texts, dtype=torch.float32, device=keys.device)
    sizes, fixed = _sizes(queries, keys, heads)
    grid = (triton.cdiv(num_texts, fixed[2]), num_images, heads)
    _gather[grid](queries, keys, values, pooled, lse, *sizes, *fixed, num_warps=4)
    return pooled, lse


def _of_patches(
    queries: Tensor, keys: Tensor, values: Tensor, pooled: Tensor, upstream: Tensor, lse: Tensor, heads: int
) -> tuple[Tensor, Tensor]:
    grad_keys, grad_values = torch.empty_like(keys), torch.empty_like(values)
    sizes, fixed = _sizes(queries, keys, heads)
    grid = (triton.cdiv(keys.shape[1], fixed[3]), len(keys), heads)
    tensors = queries, keys, values, pooled, upstream, lse, grad_keys, grad_values
    _backward_patches[grid](*tensors, *sizes, *fixed, num_warps=8)
    return grad_keys, grad_values


def _of_queries(
    queries: Tensor, keys: Tensor, values: Tensor, pooled: Tensor, upstream: Tensor, lse: Tensor, heads: int
) -> Tensor:
    sizes, fixed = _sizes(queries, keys, heads)
    tiles, num_images = triton.cdiv(queries.shape[1], fixed[2]), len(keys)
    each = 1 if len(queries) > 1 else triton.cdiv(num_images, min(num_images, triton.cdiv(PROGRAMS, heads * tiles)))
    shape = triton.cdiv(num_images, each), *queries.shape[1:]
    sums = torch.empty(shape, dtype=torch.float32, device=keys.device)
    tensors = queries, keys, values, pooled, upstream, lse, sums
    _backward_queries[tiles, heads, len(sums)](*tensors, *sizes, num_images, each, *fixed, num_warps=4)
    return sums if len(queries) > 1 else sums.sum(0, keepdim=True)


@_cosines.register_fake
def _(
    queries: Tensor, keys: Tensor, values: Tensor, texts: Tensor, weight: Tensor, bias: Tensor, heads: int
) -> tuple[Tensor, Tensor]:
    shape = keys.shape[0], queries.shape[1]
    return keys.new_empty(shape, dtype=torch.float32), keys.new_empty(shape, dtype=torch.float32)


@_cosines_backward.register_fake
def _(grad: Tensor, found: Tensor, lengths: Tensor, *inputs: Tensor | int) -> tuple[Tensor, ...]:
    return tuple(torch.empty_like(x) for x in inputs if isinstance(x, Tensor))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.heads = inputs
    ctx.save_for_backward(*output, *tensors)
    ctx.mark_non_differentiable(output[1])


def _pass_on(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_cosines_backward(grad.contiguous(), *ctx.saved_tensors, ctx.heads), None


torch.library.register_autograd("goldiclip::cosines", _pass_on, setup_context=_keep)
