"""The mean over many texts of their attention to an image's patches, without any text's attention in memory.

    Ā_l = 1/M Σ_m softmax([q_m·k_l/sqrt(d), 0])_l

One program holds the keys of one image and head and lets all queries pass by; what waits for the backward pass is the
input. Triton; the twin in plain torch is `mean_attention_plain` in `goldiclip.model.pooling`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_LOG2E = tl.constexpr(1.4426950408889634)
MOST_PATCHES = 256  # keys that one program holds


def fits(queries: Tensor, keys: Tensor) -> bool:
    """Shared queries (H, M, d) that need no gradient, and few enough patches of a width that Triton takes."""
    width = keys.shape[-1]
    is_plain = queries.dim() == 3 and not (queries.requires_grad and torch.is_grad_enabled())
    return is_plain and keys.shape[-2] <= MOST_PATCHES and 16 <= width <= 128 and width & (width - 1) == 0


def mean_attention(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, H, L) float32 of queries (H, M, d) and keys (B, H, L, d); gradient for the keys alone."""
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
def _keys_of(keys, stride_image, stride_head, stride_patch, num_patches, D: tl.constexpr, PATCHES: tl.constexpr):
    patches = tl.arange(0, PATCHES)
    place = tl.program_id(0).to(tl.int64) * stride_image + tl.program_id(1) * stride_head
    places = place + patches[:, None] * stride_patch + tl.arange(0, D)[None, :]
    return tl.load(keys + places, mask=(patches < num_patches)[:, None], other=0.0)


@triton.jit
def _forward(
    queries, keys, out, stride_image, stride_head, stride_patch, num_texts, num_patches, scale,
    H: tl.constexpr, D: tl.constexpr, PATCHES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    key = _keys_of(keys, stride_image, stride_head, stride_patch, num_patches, D, PATCHES)
    total = tl.zeros([PATCHES], tl.float32)
    for first in range(0, num_texts, BLOCK):
        texts = first + tl.arange(0, BLOCK)
        there = texts < num_texts
        places = (head * num_texts + texts)[:, None] * D + tl.arange(0, D)[None, :]
        query = tl.load(queries + places, mask=there[:, None], other=0.0)
        weights = _softmax_with_sink(query, key, num_patches, scale, PATCHES)
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
    key = _keys_of(keys, stride_image, stride_head, stride_patch, num_patches, D, PATCHES)
    patches = tl.arange(0, PATCHES)
    place = (tl.program_id(0).to(tl.int64) * H + head) * num_patches
    upstream = tl.load(grad + place + patches, mask=patches < num_patches, other=0.0) / num_texts
    grad_key = tl.zeros([PATCHES, D], tl.float32)
    for first in range(0, num_texts, BLOCK):
        texts = first + tl.arange(0, BLOCK)
        there = texts < num_texts
        places = (head * num_texts + texts)[:, None] * D + tl.arange(0, D)[None, :]
        query = tl.load(queries + places, mask=there[:, None], other=0.0)  # a query of zeros adds nothing
        weights = _softmax_with_sink(query, key, num_patches, scale, PATCHES)
        agreed = tl.sum(weights * upstream[None, :], 1)
        error = weights * (upstream[None, :] - agreed[:, None]) * scale
        # errors are as small as 1/texts: half precision takes them scaled up
        error = (error * num_texts).to(query.dtype)
        grad_key += tl.dot(tl.trans(error), query)
    places = (place + patches[:, None]) * D + tl.arange(0, D)[None, :]
    grad_key = (grad_key / num_texts).to(grad_keys.dtype.element_ty)
    tl.store(grad_keys + places, grad_key, mask=(patches < num_patches)[:, None])


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


@_mean.register_fake
def _(queries: Tensor, keys: Tensor) -> Tensor:
    return torch.empty(keys.shape[:-1], dtype=torch.float32, device=keys.device)


@_mean_backward.register_fake
def _(grad: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    return torch.empty(keys.shape, dtype=keys.dtype, device=keys.device)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _pass_on(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
    return None, _mean_backward(grad, *ctx.saved_tensors)


torch.library.register_autograd("goldiclip::mean_attention", _pass_on, setup_context=_keep)
