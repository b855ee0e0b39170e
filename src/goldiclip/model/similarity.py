"""Cosines, and the one step from a cosine to a logit."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LogitScale(nn.Module):
    """logit = exp(scale) * cosine + bias. A called module with (1,) parameters, so that wrappers keep ranks in step."""

    CEILING = math.log(100)

    def __init__(self, scale: float, bias: float) -> None:
        super().__init__()
        self.start = (scale, bias)
        self.scale = nn.Parameter(torch.empty(1))
        self.bias = nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.scale, self.start[0])
        nn.init.constant_(self.bias, self.start[1])

    def forward(self, cosine: Tensor) -> Tensor:
        return cosine * self.scale.exp() + self.bias

    @torch.no_grad()
    def clamp_(self) -> None:
        """Keep the scale in [0, ln 100]; called after each optimiser step."""
        self.scale.clamp_(0, self.CEILING)


def unit(x: Tensor) -> Tensor:
    """Rows of length 1, in float32 at least: half precision would cost a cosine its third digit."""
    return F.normalize(x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1)


def cosines(images: Tensor, texts: Tensor) -> Tensor:
    """(B, M) of images (B, D) with texts (M, D), or each with its own texts (B, M, D). Never in half precision."""
    with torch.autocast(images.device.type, enabled=False):
        images, texts = unit(images), unit(texts)
        if texts.dim() == 2:
            return images @ texts.T
        return (texts @ images.unsqueeze(-1)).squeeze(-1)


def paired_cosines(left: Tensor, right: Tensor) -> Tensor:
    """Row by row: (..., D) with (..., D), broadcast."""
    return (unit(left) * unit(right)).sum(-1)


def patch_cosines(patches: Tensor, texts: Tensor) -> Tensor:
    """(B, M, L) of patch features (B, L, D) with texts (M, D)."""
    return cosines(patches.flatten(0, 1), texts).unflatten(0, patches.shape[:2]).transpose(1, 2)
