"""Attention inside short sequences laid end to end: captions of some 28 tokens, small views of some 37.

Libraries give every sequence and head a tile of 128 by 128, of which such a text fills a twentieth. Here tiles are as
small as the sequences, queries, keys and values are read where the projection left them, and their gradient is written
as one tensor. Triton; the twin in plain torch is `short_attention_plain`.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

_LOG2E = tl.constexpr(1.4426950408889634)


def short_attention(qkv: Tensor, offsets: Tensor, max_length: int, causal: bool) -> Tensor:
    """(T, H, d) of packed qkv (T, 3, H, d); sequence m is rows offsets[m] to offsets[m+1], none past max_length."""
    return _attention(qkv.contiguous(), offsets, max_length, causal)[0]


def short_attention_plain(qkv: Tensor, offsets: Tensor, max_length: int, causal: bool) -> Tensor:
    """The same, one sequence at a time."""
    ends = offsets.tolist()
    found = []
    for start, end in pairwise(ends):
        query, key, value = qkv[start:end].permute(1, 2, 0, 3)
        found.append(F.scaled_dot_product_attention(query, key, value, is_causal=causal).transpose(0, 1))
    return torch.cat(found)


@triton.jit
def _extent(offsets, above, upto):
    """Where this program's sequence starts and how long it is: 0 if another launch has tiles of its size."""
    start = tl.load(offsets + tl.program_id(0)).to(tl.int64)
    length = tl.load(offsets + tl.program_id(0) + 1).to(tl.int64) - start
    return start, tl.where((length > above) & (length <= upto), length, 0)


@triton.jit
def _tile(start, first, length, part, head, qkv, H: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """Rows `first`… of one sequence: queries (part 0), keys (1) or values (2) of a head."""
    rows = first + tl.arange(0, BLOCK)
    places = ((start + rows)[:, None] * 3 + part) * (H * D) + head * D + tl.arange(0, D)[None, :]
    return tl.load(qkv + places, mask=(rows < length)[:, None], other=0.0)


@triton.jit
def _kept(first_row, first_column, length, BLOCK: tl.constexpr, CAUSAL: tl.constexpr):
    """Which (row, column) pairs of two tiles meet."""
    rows, columns = first_row + tl.arange(0, BLOCK)[:, None], first_column + tl.arange(0, BLOCK)[None, :]
    kept = (rows < length) & (columns < length)
    if CAUSAL:
        kept = kept & (columns <= rows)
    return kept


@triton.jit
def _forward(
    qkv, out, lse, offsets, scale, above, upto,
    H: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    start, length = _extent(offsets, above, upto)
    for first_row in range(0, length, BLOCK):
        query = _tile(start, first_row, length, 0, head, qkv, H, D, BLOCK)
        most = tl.full([BLOCK], -1e30, tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        seen = tl.zeros([BLOCK, D], tl.float32)
        end = length
        if CAUSAL:
            end = tl.minimum(length, first_row + BLOCK)
        for first_column in range(0, end, BLOCK):
            key = _tile(start, first_column, length, 1, head, qkv, H, D, BLOCK)
            value = _tile(start, first_column, length, 2, head, qkv, H, D, BLOCK)
            logits = tl.dot(query, tl.trans(key)) * (scale * _LOG2E)
            logits = tl.where(_kept(first_row, first_column, length, BLOCK, CAUSAL), logits, -1e30)
            higher = tl.maximum(most, tl.max(logits, 1))
            weights = tl.exp2(logits - higher[:, None])
            shrink = tl.exp2(most - higher)
            total = total * shrink + tl.sum(weights, 1)
            seen = seen * shrink[:, None] + tl.dot(weights.to(value.dtype), value)
            most = higher
        rows = first_row + tl.arange(0, BLOCK)
        places = (start + rows) * H + head
        there = rows < length
        tl.store(lse + places, most + tl.log2(total), mask=there)
        seen = seen / total[:, None]
        tl.store(
            out + places[:, None] * D + tl.arange(0, D)[None, :], seen.to(out.dtype.element_ty), mask=there[:, None]
        )


@triton.jit
def _row_facts(start, first, length, head, out, grad, lse, H: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """Of the rows of a tile: the gradient of their output, their log-sum-exp, and Σ output·gradient."""
    rows = first + tl.arange(0, BLOCK)
    there = rows < length
    places = (start + rows) * H + head
    wide = places[:, None] * D + tl.arange(0, D)[None, :]
    upstream = tl.load(grad + wide, mask=there[:, None], other=0.0)
    said = tl.load(out + wide, mask=there[:, None], other=0.0)
    delta = tl.sum(said.to(tl.float32) * upstream.to(tl.float32), 1)
    return upstream, tl.load(lse + places, mask=there, other=0.0), delta


@triton.jit
def _backward(
    qkv, out, lse, offsets, grad, grad_qkv, scale, above, upto,
    H: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    start, length = _extent(offsets, above, upto)
    columns_of_head = tl.arange(0, D)[None, :]
    for first_column in range(0, length, BLOCK):
        key = _tile(start, first_column, length, 1, head, qkv, H, D, BLOCK)
        value = _tile(start, first_column, length, 2, head, qkv, H, D, BLOCK)
        grad_key = tl.zeros([BLOCK, D], tl.float32)
        grad_value = tl.zeros([BLOCK, D], tl.float32)
        begin = first_column * 0
        if CAUSAL:
            begin = first_column
        for first_row in range(begin, length, BLOCK):
            query = _tile(start, first_row, length, 0, head, qkv, H, D, BLOCK)
            upstream, normaliser, delta = _row_facts(start, first_row, length, head, out, grad, lse, H, D, BLOCK)
            logits = tl.dot(query, tl.trans(key)) * (scale * _LOG2E)
            weights = tl.exp2(logits - normaliser[:, None])
            weights = tl.where(_kept(first_row, first_column, length, BLOCK, CAUSAL), weights, 0.0)
            grad_value += tl.dot(tl.trans(weights.to(query.dtype)), upstream)
            error = weights * (tl.dot(upstream, tl.trans(value)) - delta[:, None]) * scale
            error = error.to(query.dtype)
            grad_key += tl.dot(tl.trans(error), query)
            if length <= BLOCK:  # one tile is the whole text: its queries' gradient is at hand
                rows = first_row + tl.arange(0, BLOCK)
                places = (start + rows)[:, None] * (3 * H * D) + head * D + columns_of_head
                grad_query = tl.dot(error, key)
                tl.store(grad_qkv + places, grad_query.to(grad_qkv.dtype.element_ty), mask=(rows < length)[:, None])
        columns = first_column + tl.arange(0, BLOCK)
        there = (columns < length)[:, None]
        places = ((start + columns)[:, None] * 3 + 1) * (H * D) + head * D + columns_of_head
        tl.store(grad_qkv + places, grad_key.to(grad_qkv.dtype.element_ty), mask=there)
        tl.store(grad_qkv + places + H * D, grad_value.to(grad_qkv.dtype.element_ty), mask=there)
    if length > BLOCK:
        for first_row in range(0, length, BLOCK):
            query = _tile(start, first_row, length, 0, head, qkv, H, D, BLOCK)
            upstream, normaliser, delta = _row_facts(start, first_row, length, head, out, grad, lse, H, D, BLOCK)
            grad_query = tl.zeros([BLOCK, D], tl.float32)
            end = length
            if CAUSAL:
                end = tl.minimum(length, first_row + BLOCK)
            for first_column in range(0, end, BLOCK):
                key = _tile(start, first_column, length, 1, head, qkv, H, D, BLOCK)
                value = _tile(start, first_column, length, 2, head, qkv, H, D, BLOCK)
                weights = tl.exp2(tl.dot(query, tl.trans(key)) * (scale * _LOG2E) - normaliser[:, None])
                weights = tl.where(_kept(first_row, first_column, length, BLOCK, CAUSAL), weights, 0.0)
                error = weights * (tl.dot(upstream, tl.trans(value)) - delta[:, None]) * scale
                grad_query += tl.dot(error.to(key.dtype), key)
            rows = first_row + tl.arange(0, BLOCK)
            places = (start + rows)[:, None] * (3 * H * D) + head * D + columns_of_head
            tl.store(grad_qkv + places, grad_query.to(grad_qkv.dtype.element_ty), mask=(rows < length)[:, None])


# --- as torch operators -----------------------------------------------------------------------------------------------


# Warps by tile. Forward, the smallest tile waits least; backward, a text that one tile holds is read once.
WARPS = {16: 1, 32: 1, 64: 4}


def _launches(max_length: int, causal: bool) -> list[tuple[int, int, int]]:
    """Of the backward pass, (tile, above, upto): the lengths it is for. Views are all of one, texts of many."""
    if max_length <= 32:
        return [(32, 0, max_length)]
    return [(32, 0, 32), (64, 32, max_length)] if causal else [(64, 0, max_length)]


@torch.library.custom_op("goldiclip::short_attention", mutates_args=())
def _attention(qkv: Tensor, offsets: Tensor, max_length: int, causal: bool) -> tuple[Tensor, Tensor]:
    num_tokens, _, heads, width = qkv.shape
    out = qkv.new_empty(num_tokens, heads, width)
    lse = qkv.new_empty(num_tokens, heads, dtype=torch.float32)
    sizes = width**-0.5, 0, max_length, heads, width, 16, causal
    _forward[len(offsets) - 1, heads](qkv, out, lse, offsets, *sizes, num_warps=WARPS[16])
    return out, lse


@torch.library.custom_op("goldiclip::short_attention_backward", mutates_args=())
def _attention_backward(
    grad: Tensor, qkv: Tensor, out: Tensor, lse: Tensor, offsets: Tensor, max_length: int, causal: bool
) -> Tensor:
    _, _, heads, width = qkv.shape
    grad, grad_qkv, grid = grad.contiguous(), torch.empty_like(qkv), (len(offsets) - 1, heads)
    for tile, *range_ in _launches(max_length, causal):
        sizes = width**-0.5, *range_, heads, width, tile, causal
        _backward[grid](qkv, out, lse, offsets, grad, grad_qkv, *sizes, num_warps=WARPS[tile])
    return grad_qkv


@_attention.register_fake
def _(qkv: Tensor, offsets: Tensor, max_length: int, causal: bool) -> tuple[Tensor, Tensor]:
    return qkv.new_empty(qkv.shape[0], *qkv.shape[2:]), qkv.new_empty(qkv.shape[0], qkv.shape[2], dtype=torch.float32)


@_attention_backward.register_fake
def _(grad: Tensor, qkv: Tensor, out: Tensor, lse: Tensor, offsets: Tensor, max_length: int, causal: bool) -> Tensor:
    return torch.empty_like(qkv)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    qkv, offsets, ctx.max_length, ctx.causal = inputs
    ctx.save_for_backward(qkv, *output, offsets)
    ctx.mark_non_differentiable(output[1])


def _pass_on(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    qkv, out, lse, offsets = ctx.saved_tensors
    return _attention_backward(grad, qkv, out, lse, offsets, ctx.max_length, ctx.causal), None, None, None


torch.library.register_autograd("goldiclip::short_attention", _pass_on, setup_context=_keep)
