"""The decoder: reads the text tower's tokens, looks at an image's patches, says what comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from goldiclip.model.layers import DecoderBlock, Rows


class Decoder(nn.Module):
    """Causal blocks with cross-attention and a final LayerNorm. It has no token embedding of its own."""

    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.checkpointing = False
        self.blocks = nn.ModuleList(DecoderBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor, lengths: Tensor, max_length: int, memory: Tensor, owner: Tensor) -> Tensor:
        """Hidden (T, D) of packed tokens (T, D); text m looks at the memory (B, L, D) of image owner[m]."""
        if len(owner) != len(lengths):
            raise ValueError(f"{len(lengths)} texts and {len(owner)} owners: each text needs the index of its image")
        if not owner.is_cuda and len(owner) and not 0 <= int(owner.min()) <= int(owner.max()) < len(memory):
            raise ValueError(
                f"owners reach from {int(owner.min())} to {int(owner.max())} and there are {len(memory)} images"
            )
        rows = Rows.of(lengths, tokens.shape[0], max_length)
        for block in self.blocks:
            if self.checkpointing and self.training:
                tokens = checkpoint(block, tokens, memory, rows, owner, use_reentrant=False)
            else:
                tokens = block(tokens, memory, rows, owner)
        return self.norm(tokens)


class VocabularyHead(nn.Module):
    """Hidden to token logits, untied and without bias.

    `head(hidden)` gives the logits. `head(hidden, fused=loss, **options)` gives `loss(hidden, weight, **options)`: the
    weight is only whole inside this call when the head is sharded, and a fused loss never holds all the logits.
    """

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocabulary, width))

    def forward(self, hidden: Tensor, fused: Callable[..., Tensor] | None = None, **options: Any) -> Tensor:
        if fused is not None:
            return fused(hidden, self.weight, **options)
        return nn.functional.linear(hidden, self.weight)
