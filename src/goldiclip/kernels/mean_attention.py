"""The mean over many texts of their attention to an image's patches, without any text's attention in memory.

    Ā_l = 1/M Σ_m softmax([q_m·k_l/sqrt(d), 0])_l

One program holds the keys of one image and head and lets all queries pass by; for the queries' gradient it holds some
queries and lets images pass by. What waits for the backward pass is the input. Triton; the twin in plain torch is
`mean_attention_plain` in `goldiclip.model.pooling`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_LOG2E = tl.constexpr(1.4426950408889634)
MOST_PATCHES = 256  # keys that one program holds, of heads up to 64 wide; half as many of 128
PROGRAMS = 2_048  # about as many as keep a large GPU busy to the end


def fits(queries: Tensor, keys: Tensor) -> bool:
    """Shared queries (H, M, d), and few enough patches of a width that Triton takes."""
    width = keys.shape[-1]
    is_held = keys.shape[-2] * max(width, 64) <= 64 * MOST_PATCHES
    return queries.dim() == 3 and is_held and 16 <= width <= 128 and width & (width - 1) == 0


def mean_attention(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, H, L) float32 of queries (H, M, d) and keys (B, H, L, d)."""
    return _mean(queries.contiguous(), keys)


@triton.jit
def _softmax_with_sink(query, key, num_patches, scale, PATCHES: tl.constexpr):
    """Attention weights (M, L) of a tile of queries, the sink's share left out."""
    logits = tl.dot(query, tl.trans(key)) * (scale * _LOG2E)
    logits = tl.where(tl.arange(0, PATCHES)[None, :] < num_patches, logits, -1e30)
    most = tl.maximum(tl.max(logits, 1), 0.0)
    weights = tl.exp2(logits - most[:, None])
    return weights / (tl.sum(weights, 1) + tl.exp2(-most))[:, None]


@triton.jit
def _errors(query, key, upstream, num_patches, scale, PATCHES: tl.constexpr):
    """d/d logits (M, L) of a tile of queries; upstream (L,) is the gradient of the sum over texts."""
    weights = _softmax_with_sink(query, key, num_patches, scale, PATCHES)
    agreed = tl.sum(weights * upstream[None, :], 1)
    return (weights * (upstream[None, :] - agreed[:, None]) * scale).to(query.dtype)


@triton.jit
def _queries_of(queries, head, first, num_texts, D: tl.constexpr, BLOCK: tl.constexpr):
    """A tile of queries, zeros past the last."""
    texts = first + tl.arange(0, BLOCK)
    places = (head * num_texts + texts)[:, None] * D + tl.arange(0, D)[None, :]
    return tl.load(queries + places, mask=(texts < num_texts)[:, None], other=0.0)


@triton.jit
def _keys_of(keys, image, stride_image, stride_head, stride_patch, num_patches, D: tl.constexpr, PATCHES: tl.constexpr):
    patches = tl.arange(0, PATCHES)
    place = image.to(tl.int64) * stride_image + tl.program_id(1) * stride_head
    places = place + patches[:, None] * stride_patch + tl.arange(0, D)[None, :]
    return tl.load(keys + places, mask=(patches < num_patches)[:, None], other=0.0)


@triton.jit
def _forward(
    queries, keys, out, stride_image, stride_head, stride_patch, num_texts, num_patches, scale,
    H: tl.constexpr, D: tl.constexpr, PATCHES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    key = _keys_of(keys, tl.program_id(0), stride_image, stride_head, stride_patch, num_patches, D, PATCHES)
    total = tl.zeros([PATCHES], tl.float32)
    for first in range(0, num_texts, BLOCK):
        query = _queries_of(queries, head, first, num_texts, D, BLOCK)
        weights = _softmax_with_sink(query, key, num_patches, scale, PATCHES)
        there = first + tl.arange(0, BLOCK) < num_texts
        total += tl.sum(tl.where(there[:, None], weights, 0.0), 0)
    patches = tl.arange(0, PATCHES)
    place = (tl.program_id(0).to(tl.int64) * H + head) * num_patches
    tl.store(out + place + patches, total / num_texts, mask=patches < num_patches)


@triton.jit
def _backward(
    queries, keys, grad, grad_keys, stride_image, stride_head, stride_patch, num_texts, num_patches, scale,
    H: tl.constexpr, D: tl.constexpr, PATCHES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    key = _keys_of(keys, tl.program_id(0), stride_image, stride_head, stride_patch, num_patches, D, PATCHES)
    patches = tl.arange(0, PATCHES)
    place = (tl.program_id(0).to(tl.int64) * H + head) * num_patches
    upstream = tl.load(grad + place + patches, mask=patches < num_patches, other=0.0)
    grad_key = tl.zeros([PATCHES, D], tl.float32)
    for first in range(0, num_texts, BLOCK):
        query = _queries_of(queries, head, first, num_texts, D, BLOCK)  # one of zeros adds nothing
        error = _errors(query, key, upstream, num_patches, scale, PATCHES)
        grad_key += tl.dot(tl.trans(error), query)
    places = (place + patches[:, None]) * D + tl.arange(0, D)[None, :]
    grad_key = (grad_key / num_texts).to(grad_keys.dtype.element_ty)
    tl.store(grad_keys + places, grad_key, mask=(patches < num_patches)[:, None])


@triton.jit
def _backward_queries(
    queries, keys, grad, sums, stride_image, stride_head, stride_patch, num_texts, num_patches, scale, num_images,
    each, H: tl.constexpr, D: tl.constexpr, PATCHES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    part, head, first = tl.program_id(0), tl.program_id(1), tl.program_id(2) * BLOCK
    query = _queries_of(queries, head, first, num_texts, D, BLOCK)
    patches = tl.arange(0, PATCHES)
    grad_query = tl.zeros([BLOCK, D], tl.float32)
    for i in range(tl.minimum(each, num_images - part * each)):
        image = part * each + i
        key = _keys_of(keys, image, stride_image, stride_head, stride_patch, num_patches, D, PATCHES)
        place = (image.to(tl.int64) * H + head) * num_patches
        upstream = tl.load(grad + place + patches, mask=patches < num_patches, other=0.0)
        grad_query += tl.dot(_errors(query, key, upstream, num_patches, scale, PATCHES), key)
    texts = first + tl.arange(0, BLOCK)
    places = ((part.to(tl.int64) * H + head) * num_texts + texts)[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(sums + places, grad_query / num_texts, mask=(texts < num_texts)[:, None])


# --- as torch operators -----------------------------------------------------------------------------------------------


def _sizes(queries: Tensor, keys: Tensor) -> tuple[tuple[int, int], tuple[Any, ...], tuple[int, ...], int]:
    """Grid, run-time sizes, compile-time sizes and warps of a launch."""
    images, heads, num_patches, width = keys.shape
    patches = max(16, triton.next_power_of_2(num_patches))
    strides = keys.stride(0), keys.stride(1), keys.stride(2)
    sizes = *strides, queries.shape[1], num_patches, width**-0.5
    block = 64 if patches > 64 else 128
    return (images, heads), sizes, (heads, width, patches, block), 8 if patches > 128 else 4


@torch.library.custom_op("goldiclip::mean_attention", mutates_args=())
def _mean(queries: Tensor, keys: Tensor) -> Tensor:
    keys = keys if keys.stride(-1) == 1 else keys.contiguous()
    grid, sizes, fixed, warps = _sizes(queries, keys)
    out = torch.empty(keys.shape[:-1], dtype=torch.float32, device=keys.device)
    _forward[grid](queries, keys, out, *sizes, *fixed, num_warps=warps)
    return out


@torch.library.custom_op("goldiclip::mean_attention_backward", mutates_args=())
def _mean_backward(grad: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    keys = keys if keys.stride(-1) == 1 else keys.contiguous()
    grid, sizes, fixed, warps = _sizes(queries, keys)
    grad_keys = torch.empty(keys.shape, dtype=keys.dtype, device=keys.device)
    _backward[grid](queries, keys, grad.contiguous(), grad_keys, *sizes, *fixed, num_warps=warps)
    return grad_keys


@torch.library.custom_op("goldiclip::mean_attention_backward_queries", mutates_args=())
def _mean_backward_queries(grad: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    keys = keys if keys.stride(-1) == 1 else keys.contiguous()
    (images, heads), sizes, fixed, warps = _sizes(queries, keys)
    tiles = triton.cdiv(queries.shape[1], fixed[-1])
    parts = min(images, triton.cdiv(PROGRAMS, heads * tiles))
    each = triton.cdiv(images, parts)
    sums = torch.empty(triton.cdiv(images, each), *queries.shape, dtype=torch.float32, device=keys.device)
    grid = (len(sums), heads, tiles)
    _backward_queries[grid](
        queries, keys, grad.contiguous(), sums, *sizes, images, each, *fixed, num_warps=warps
    )  # fmt: skip
    return sums.sum(0).to(queries.dtype)


@_mean.register_fake
def _(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.empty(keys.shape[:-1], dtype=torch.float32, device=keys.device)


@_mean_backward.register_fake
def _(grad: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    return torch.empty(keys.shape, dtype=keys.dtype, device=keys.device)


@_mean_backward_queries.register_fake
def _(grad: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    return torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _pass_on(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    wanted = zip(ctx.needs_input_grad, (_mean_backward_queries, _mean_backward), strict=True)
    of_queries, of_keys = (backward(grad, *ctx.saved_tensors) if needs else None for needs, backward in wanted)
    return of_queries, of_keys


torch.library.register_autograd("goldiclip::mean_attention", _pass_on, setup_context=_keep)
