"""Products of a few rows with many stored ones. Bytes are multiplied as bytes by processors that do that natively.

There a row of floats is taken as 16,256 steps to its largest number: two bytes a number, 128·high + low, each of which
meets the stored bytes exactly. What is lost is half a step, some 3e-5 of a row's largest number.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

STEPS = 127 * 128
# Above so many rows, products of floats have enough to do with every number that is converted.
MOST_ROWS = 64


def against_each(rows: Tensor, stored: Tensor) -> Tensor:
    """(B, R, L): rows (R, D) · stored (B, L, D), transposed; in float32 at least."""
    if multiplies_bytes(rows, stored):
        counts, unit = _counted(rows)
        pairs = torch._int_mm(stored.reshape(-1, stored.shape[-1]), counts.T.contiguous())
        return _joined(pairs.view(*stored.shape[:2], -1).transpose(1, 2)) * unit
    floats = _floats(stored)
    # a few rows times many stored ones: a third of the time that stored ones times rows take on a processor
    products = rows.to(floats.dtype) @ floats.transpose(1, 2)
    return products.to(torch.promote_types(products.dtype, torch.float32))


def sums_of_each(weights: Tensor, stored: Tensor) -> Tensor:
    """(B, R, D): weights (B, R, L) · stored (B, L, D)."""
    if multiplies_bytes(weights, stored):
        counts, unit = _counted(weights)
        pairs = [torch._int_mm(count, numbers) for count, numbers in zip(counts, stored)]
        return _joined(torch.stack(pairs)) * unit
    floats = _floats(stored)
    return weights.to(floats.dtype) @ floats


def multiplies_bytes(rows: Tensor, stored: Tensor) -> bool:
    """Whether these products are faster in whole numbers, here."""
    is_stored = stored.dtype == torch.int8 and stored.device.type == "cpu" and rows.dtype == torch.float32
    has_gradient = torch.is_grad_enabled() and rows.requires_grad  # which no whole number has
    return is_stored and not has_gradient and stored.numel() > 0 and rows.shape[-2] <= MOST_ROWS and _has_vnni()


@cache
def _has_vnni() -> bool:
    """AVX-512's products of bytes, for which torch has a kernel; it says so under no public name yet."""
    ask = getattr(torch.cpu, "_is_vnni_supported", None)
    has_operation = torch.backends.mkldnn.is_available() and hasattr(torch, "_int_mm")
    return has_operation and ask is not None and bool(ask())


def _floats(stored: Tensor) -> Tensor:
    """As numbers that every device multiplies."""
    return stored if stored.is_floating_point() and stored.dtype != torch.float16 else stored.float()


def _counted(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(..., 2R, N) int8, high bytes above low ones; and the step of each row (..., R, 1)."""
    unit = rows.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny) / STEPS
    steps = (rows / unit).round()
    high = (steps / 128).round()
    return torch.cat([high, steps - 128 * high], -2).to(torch.int8), unit


def _joined(pairs: Tensor) -> Tensor:
    """(..., 2R, N) int32 products of the two bytes as (..., R, N) floats."""
    high, low = pairs.chunk(2, -2)
    return high.float() * 128 + low.float()
