"""GELU with one exponential and one reciprocal, where the library's erf takes some forty instructions.

    gelu(x) = x·Φ(x)        gelu'(x) = Φ(x) + x·φ(x)

Φ comes from φ by a polynomial that is off by 7.5e-8 at most (Abramowitz and Stegun, 26.2.17): far below what half
precision can say, so that between two products the bytes are the limit again. For compiled towers: the compiler makes
one kernel of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_COEFFICIENTS = (1.330274429, -1.821255978, 1.781477937, -0.356563782, 0.319381530)


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        wide = x.float()
        return (wide * _normal(wide)[0]).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        wide = x.float()
        share, density = _normal(wide)
        return (upstream[0].float() * (share + wide * density)).to(x.dtype)


def gelu(x: Tensor) -> Tensor:
    """x·Φ(x)"""
    return _Gelu.apply(x)


def _normal(x: Tensor) -> tuple[Tensor, Tensor]:
    """Φ(x) and φ(x)."""
    density = torch.exp(x * x * -0.5) * 0.3989422804014327
    t = 1 / (1 + 0.2316419 * x.abs())
    first, *others = _COEFFICIENTS
    series = t * first + others[0]
    for coefficient in others[1:]:
        series = series * t + coefficient
    tail = density * series * t
    return torch.where(x >= 0, 1 - tail, tail), density
