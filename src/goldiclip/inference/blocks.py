"""What an index keeps of an image's patches: small enough to store, good enough to re-rank with.

Pooling begins with a LayerNorm on keys and values, so a block keeps each token standardised (mean 0, variance 1): that
changes nothing that pooling sees and makes every token quantise alike. A block has a fixed number of bytes, so image
i's block lies at i times that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from goldiclip.config import ConfigError
from goldiclip.types import ImageFeatures

Precision = Literal["none", "int8", "float16"]

# int8 covers ±CLIP standard deviations; of a standardised token's entries about 1 in 15,000 lies beyond 4.
CLIP = 4.0
STEP = CLIP / 127


@dataclass(frozen=True)
class BlockFormat:
    """How an image's patches lie on disk. `tokens` is at most the tower's own number: fewer are means of neighbours."""

    precision: Precision
    tokens: int
    width: int
    tied: bool  # keys are values: one tensor instead of two
    grid: tuple[int, int]

    @property
    def shape(self) -> tuple[int, int, int]:
        return (1 if self.tied else 2, self.tokens, self.width)

    @property
    def num_bytes(self) -> int:
        size = {"none": 0, "int8": 1, "float16": 2}[self.precision]
        return size * int(np.prod(self.shape))

    def pack(self, features: ImageFeatures) -> list[bytes]:
        """One block per image."""
        if self.precision == "none":
            return [b""] * len(features)
        parts = [features.keys] if self.tied else [features.keys, features.values]
        tokens = torch.stack([standardised(pooled_tokens(part.float(), features.grid, self.grid)) for part in parts], 1)
        if self.precision == "float16":
            packed: Any = tokens.half()
        else:
            packed = (tokens / STEP).round().clamp(-127, 127).to(torch.int8)
        return [block.tobytes() for block in packed.cpu().numpy()]

    @property
    def step(self) -> float:
        """What a stored number of 1 stands for."""
        return STEP if self.precision == "int8" else 1.0

    def stored(self, blocks: np.ndarray, device: torch.device) -> tuple[Tensor, Tensor]:
        """Keys and values (n, L, D) of blocks (n, bytes), as they were stored: standardised, in steps."""
        kind = torch.int8 if self.precision == "int8" else torch.float16
        tokens = torch.from_numpy(blocks).view(kind).view(len(blocks), *self.shape).to(device)
        return tokens[:, 0], tokens[:, -1]

    def unpack(self, blocks: np.ndarray, device: torch.device) -> ImageFeatures:
        """Blocks (n, bytes) as features for maps and scores by tc; they hold no text-agnostic embedding."""
        keys, values = (part.float() * self.step for part in self.stored(blocks, device))
        return ImageFeatures(keys.new_zeros(len(blocks), self.width), keys, values, self.grid)


def block_format(features: ImageFeatures, precision: Precision, tokens: int = 0) -> BlockFormat:
    """The format for features like these; `tokens` below their number pools neighbours (0 keeps them all)."""
    rows, columns = features.grid
    grid = (rows, columns)
    while 0 < tokens < grid[0] * grid[1]:
        if grid[0] % 2 or grid[1] % 2:
            possible = f"{rows}×{columns} patches halve to {grid[0]}×{grid[1]} = {grid[0] * grid[1]} and no further"
            raise ConfigError(f"{tokens} tokens per image: {possible}")
        grid = (grid[0] // 2, grid[1] // 2)
    tied = features.keys is features.values or torch.equal(features.keys, features.values)
    return BlockFormat(precision, grid[0] * grid[1], features.keys.shape[-1], tied, grid)


def pooled_tokens(tokens: Tensor, grid: tuple[int, int], to: tuple[int, int]) -> Tensor:
    """(B, L, D) as means over squares of neighbouring patches."""
    if grid == to:
        return tokens
    image = tokens.unflatten(1, grid).permute(0, 3, 1, 2)
    return F.adaptive_avg_pool2d(image, to).flatten(2).transpose(1, 2)


def standardised(tokens: Tensor) -> Tensor:
    return F.layer_norm(tokens, tokens.shape[-1:])
