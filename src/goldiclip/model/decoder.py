"""The decoder: reads the text tower's tokens, looks at an image's patches, says what comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from goldiclip.model.layers import DecoderBlock, Rows, waits


class Decoder(nn.Module):
    """Causal blocks with cross-attention and a final LayerNorm. It has no token embedding of its own."""

    def __init__(self, width: int, depth: int, heads: int) -> None:
        super().__init__()
        self.checkpointing = False
        self.blocks = nn.ModuleList(DecoderBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(
        self, tokens: Tensor, lengths: Tensor, max_length: int, memory: Tensor, owner: Tensor, most_texts: int = 0
    ) -> Tensor:
        """Hidden (T, D) of packed tokens (T, D); text m looks at the memory (B, L, D) of image owner[m].

        `most_texts` is how many texts an image has at most; 0 counts them, for which a device is waited for.
        """
        _check(len(lengths), owner, len(memory))
        order = owner.argsort(stable=True)  # the texts of an image side by side
        texts = Rows.of(lengths[order], tokens.shape[0], max_length)
        images = _by_image(lengths, owner, len(memory), tokens.shape[0], max_length * most_texts)
        starts = (lengths.cumsum(0) - lengths)[order]
        source = starts[texts.row] + texts.position
        tokens = tokens.index_select(0, source)
        for block in self.blocks:
            if self.checkpointing and self.training:
                tokens = checkpoint(block, tokens, memory, texts, images, use_reentrant=False)
            else:
                tokens = block(tokens, memory, texts, images)
        tokens = self.norm(tokens)
        return torch.zeros_like(tokens).index_copy(0, source, tokens)


def _by_image(lengths: Tensor, owner: Tensor, num_images: int, num_tokens: int, longest: int) -> Rows:
    """The tokens, texts sorted by owner, as one row per image."""
    per_image = lengths.new_zeros(num_images).index_add(0, owner, lengths)
    if not longest or not waits(owner):
        longest = int(per_image.max()) if num_tokens else 0
    return Rows.of(per_image, num_tokens, min(longest, num_tokens))


def _check(num_texts: int, owner: Tensor, num_images: int) -> None:
    if len(owner) != num_texts:
        raise ValueError(f"{num_texts} texts and {len(owner)} owners: each text needs the index of its image")
    if waits(owner) or not len(owner):
        return
    if not 0 <= int(owner.min()) <= int(owner.max()) < num_images:
        raise ValueError(
            f"owners reach from {int(owner.min())} to {int(owner.max())} and there are {num_images} images"
        )


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
