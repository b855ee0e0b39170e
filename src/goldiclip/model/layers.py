"""Transformer layers over packed texts, and the one place where attention chooses its backend.

A pack is M texts laid end to end, T tokens in all. On CUDA in half precision attention runs packed
(`torch.nn.attention.varlen`); elsewhere the same numbers come from padded rows: a causal query sees only what is
before it, so what pads a row can reach nothing that is kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goldiclip.kernels.gelu import gelu as fused_gelu
from goldiclip.kernels.products import compute_dtype
from goldiclip.kernels.switch import fuses


def in_stream(tokens: Tensor) -> Tensor:
    """Under autocast the residual stream is in half precision too, as open_clip's is: half the bytes between products.

    Norms still reckon in float32; without autocast nothing changes.
    """
    return tokens.to(compute_dtype(tokens))


# Sequences of at most so many tokens fit one tile of our attention; longer ones are a library's.
MOST_SHORT = 64


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the M texts of a pack lie. Made once per pass and shared by every layer."""

    offsets: Tensor  # (M+1,) int32: where each text starts, and where the last one ends
    row: Tensor  # (T,) int64: each token's text
    position: Tensor  # (T,) int64: each token's place in its text
    max_length: int

    @classmethod
    def of(cls, lengths: Tensor, num_tokens: int, max_length: int) -> Rows:
        """`max_length` and `num_tokens` are Python numbers, so that nothing waits for the device."""
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        row = torch.repeat_interleave(
            torch.arange(len(lengths), device=lengths.device), lengths, output_size=num_tokens
        )
        position = torch.arange(num_tokens, device=lengths.device) - offsets[row]
        return cls(offsets.to(torch.int32), row, position, max_length)

    def __len__(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def slot(self) -> Tensor:
        """(T,) int64: each token's place in the padded (M · max_length) layout."""
        return self.row * self.max_length + self.position

    def pad(self, tokens: Tensor) -> Tensor:
        """(T, ...) as (M, max_length, ...), zeros where a text has ended."""
        padded = tokens.new_zeros(len(self) * self.max_length, *tokens.shape[1:]).index_copy(0, self.slot, tokens)
        return padded.unflatten(0, (len(self), self.max_length))

    def unpad(self, padded: Tensor) -> Tensor:
        """(M, max_length, ...) as (T, ...)."""
        return padded.flatten(0, 1).index_select(0, self.slot)


def waits(tensor: Tensor) -> bool:
    """Whether asking this tensor for a number would make every step wait, or break a compiled graph."""
    return tensor.is_cuda or torch.compiler.is_compiling()


def packed_attention(qkv: Tensor, rows: Rows) -> Tensor:
    """(T, H, d): causal self-attention inside each text, of (T, 3, H, d)."""
    query, key, value = qkv.unbind(1)
    if query.shape[0] == 0:
        return _nothing(query, key, value)
    if fuses("text_attention", qkv) and _has_tiles(qkv):
        from goldiclip.kernels.attention import short_attention

        return short_attention(qkv, rows.offsets, rows.max_length, causal=True)
    if _takes_packed(query):
        return _varlen(query, key, value, rows.offsets, rows.offsets, rows.max_length, rows.max_length, True)
    query, key, value = (rows.pad(part).transpose(1, 2) for part in (query, key, value))
    return rows.unpad(F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2))


def memory_attention(query: Tensor, key: Tensor, value: Tensor, images: Rows) -> Tensor:
    """Tokens (T, H, d) look at the whole memory (B, L, H, d) of their image; `images` says which tokens are whose.

    Looking has no order, so all texts of an image are one row: no image's keys and values are ever repeated.
    """
    if query.shape[0] == 0:
        return _nothing(query, key, value)
    if _takes_packed(query):
        length = key.shape[1]
        ends = torch.arange(len(key) + 1, device=query.device, dtype=torch.int32) * length
        flat = key.flatten(0, 1), value.flatten(0, 1)
        return _varlen(query, *flat, images.offsets, ends, images.max_length, length, False)
    padded = images.pad(query).transpose(1, 2)
    seen = F.scaled_dot_product_attention(padded, key.transpose(1, 2), value.transpose(1, 2))
    return images.unpad(seen.transpose(1, 2))


def _nothing(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The answer to no query: empty, yet every input gets a gradient (of zero)."""
    return query + 0 * (key.sum() + value.sum())


def _has_tiles(qkv: Tensor) -> bool:
    """Whether heads are of a width that our kernels have tiles for."""
    width = qkv.shape[-1]
    return 16 <= width <= 128 and width & (width - 1) == 0


def view_attention(qkv: Tensor) -> Tensor:
    """(B, N, H, d): self-attention inside each view, of (B, N, 3, H, d)."""
    num_views, length = qkv.shape[:2]
    if length <= MOST_SHORT and num_views and fuses("view_attention", qkv) and _has_tiles(qkv):
        from goldiclip.kernels.attention import short_attention

        offsets = torch.arange(num_views + 1, device=qkv.device, dtype=torch.int32) * length
        return short_attention(qkv.flatten(0, 1), offsets, length, causal=False).unflatten(0, (num_views, length))
    query, key, value = qkv.transpose(1, 3).unbind(2)
    return F.scaled_dot_product_attention(query, key, value).transpose(1, 2)


def _takes_packed(query: Tensor) -> bool:
    half = query.dtype in (torch.bfloat16, torch.float16)
    return query.is_cuda and half and query.shape[-1] % 8 == 0 and query.shape[-1] <= 256


def _varlen(
    query: Tensor, key: Tensor, value: Tensor, ends_q: Tensor, ends_k: Tensor, max_q: int, max_k: int, causal: bool
) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    options: dict[str, Any] = {}
    if causal:  # torch 2.11 and later name it differently
        newer = "window_size" in inspect.signature(varlen_attn).parameters
        options = {"window_size": (-1, 0)} if newer else {"is_causal": True}
    seen = varlen_attn(query, key, value, ends_q, ends_k, max_q, max_k, **options)
    assert isinstance(seen, Tensor)
    return seen


def quick_gelu(x: Tensor) -> Tensor:
    """The activation of OpenAI's CLIP weights."""
    return x * torch.sigmoid(1.702 * x)


def gelu(x: Tensor) -> Tensor:
    """Exact; where a compiler fuses it, by the formula that does not keep a GPU from memory's speed."""
    return fused_gelu(x) if torch.compiler.is_compiling() and fuses("gelu", x) else F.gelu(x)


class Gelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return gelu(x)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"gelu": gelu, "quick_gelu": quick_gelu}


class SelfAttention(nn.Module):
    """Causal multi-head self-attention over packed texts."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor, rows: Rows) -> Tensor:
        qkv = self.qkv(tokens).unflatten(-1, (3, self.heads, -1))
        return self.proj(packed_attention(qkv, rows).flatten(1))


class CrossAttention(nn.Module):
    """Packed texts look at the patches of the image that each belongs to."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, tokens: Tensor, memory: Tensor, images: Rows) -> Tensor:
        query = self.q(tokens).unflatten(-1, (self.heads, -1))
        key, value = self.kv(memory).unflatten(-1, (2, self.heads, -1)).unbind(2)
        return self.proj(memory_attention(query, key, value, images).flatten(1))


class Mlp(nn.Module):
    def __init__(self, width: int, activation: str = "gelu") -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.activation = ACTIVATIONS[activation]
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.fc2(self.activation(self.fc1(tokens)))


class TextBlock(nn.Module):
    """Pre-norm: causal self-attention, then an MLP."""

    def __init__(self, width: int, heads: int, activation: str = "gelu") -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, activation)

    def forward(self, tokens: Tensor, rows: Rows) -> Tensor:
        tokens = tokens + self.attn(self.norm1(tokens), rows)
        return tokens + self.mlp(self.norm2(tokens))


class DecoderBlock(nn.Module):
    """Pre-norm: causal self-attention, cross-attention to an image's patches, then an MLP."""

    def __init__(self, width: int, heads: int, activation: str = "gelu") -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.norm_memory = nn.LayerNorm(width)
        self.cross = CrossAttention(width, heads)
        self.norm3 = nn.LayerNorm(width)
        self.mlp = Mlp(width, activation)

    def forward(self, tokens: Tensor, memory: Tensor, texts: Rows, images: Rows) -> Tensor:
        tokens = tokens + self.attn(self.norm1(tokens), texts)
        tokens = tokens + self.cross(self.norm2(tokens), self.norm_memory(memory), images)
        return tokens + self.mlp(self.norm3(tokens))
