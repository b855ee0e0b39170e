"""The model as three plain tensor functions, for formats that know neither packs nor dataclasses."""

from __future__ import annotations

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.layers import SelfAttention, TextBlock
from goldiclip.model.similarity import paired_cosines
from goldiclip.types import Texts


class ImageGraph(nn.Module):
    """images (B, 3, S, S), normalised -> embedding (B, D), keys (B, L, D), values (B, L, D)."""

    def __init__(self, model: GoldiCLIP) -> None:
        super().__init__()
        self.image = model.image

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.image(images)


class TextGraph(nn.Module):
    """ids (M, context), zeros behind the end mark -> embedding (M, D)."""

    def __init__(self, model: GoldiCLIP) -> None:
        super().__init__()
        self.text = model.text

    def forward(self, ids: Tensor) -> Tensor:
        tokens = self.text.token_embedding(ids) + self.text.position_embedding
        for block in (cast(TextBlock, block) for block in self.text.blocks):
            tokens = tokens + _attend(block.attn, block.norm1(tokens))
            tokens = tokens + block.mlp(block.norm2(tokens))
        last = (ids == self.text.vocabulary - 1).to(torch.int64).argmax(-1)
        at_end = tokens.gather(1, last[:, None, None].expand(-1, 1, tokens.shape[-1])).squeeze(1)
        return self.text.projection(self.text.norm(at_end))


def _attend(attention: SelfAttention, tokens: Tensor) -> Tensor:
    query, key, value = attention.qkv(tokens).unflatten(-1, (3, attention.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    return attention.proj(attended.transpose(1, 2).flatten(2))


class PoolingGraph(nn.Module):
    """texts (M, D), keys and values (B, L, D) -> score (B, M): `GoldiCLIP.score` by tc, for as much as memory holds."""

    def __init__(self, model: GoldiCLIP) -> None:
        super().__init__()
        assert model.pooling is not None
        self.pooling, self.scale = model.pooling, model.scale

    def forward(self, texts: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return self.scale(paired_cosines(self.pooling(texts, keys, values), texts))


def padded(texts: Texts, context: int) -> Tensor:
    """(M, context) int64 of a pack, zeros where a text has ended."""
    rows = [F.pad(torch.tensor(row), (0, context - len(row))) for row in texts.rows()]
    return torch.stack(rows)
