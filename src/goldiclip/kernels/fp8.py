"""Matrix products of a tower's blocks in 8 bits: twice the rate of bf16, half the bytes kept for the gradient.

    y = x W^T      x and W in e4m3, three bits of fraction      gradients in e5m2, two bits and a wider range

Each tensor has one scale, its largest number's, taken as it is now. Opt-in (`run.fp8`): on CUDA by `torch._scaled_mm`,
elsewhere by the same rounded numbers in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
OLDEST = (8, 9)  # compute capability
MULTIPLE = 16  # of every side of a product that libraries take


def takes(device: torch.device) -> bool:
    """Whether products in 8 bits run there: on a CPU by other means, on GPUs from H100 and RTX 40 on."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= OLDEST


class EightBitLinear(nn.Linear):
    """A linear layer whose three products run in 8 bits under autocast, where sizes allow it; else the plain one."""

    def forward(self, x: Tensor) -> Tensor:
        sides = x.numel() // x.shape[-1], *self.weight.shape
        is_taken = torch.is_autocast_enabled(x.device.type) and all(side and side % MULTIPLE == 0 for side in sides)
        if not is_taken:
            return super().forward(x)
        dtype = torch.get_autocast_dtype(x.device.type)
        product = _Product.apply(x.flatten(0, -2).to(dtype), self.weight).view(*x.shape[:-1], -1)
        return product if self.bias is None else product + self.bias.to(dtype)


def narrow_products(blocks: nn.Module) -> None:
    """Every linear layer in `blocks` becomes an `EightBitLinear`; weights and their names stay."""
    for part in blocks.modules():
        if type(part) is nn.Linear:
            part.__class__ = EightBitLinear


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        (rows, row_scale), (columns, column_scale) = rounded(x, FORWARD), rounded(weight, FORWARD)
        ctx.save_for_backward(rows, row_scale, columns, column_scale)
        ctx.dtypes = x.dtype, weight.dtype
        return product(rows, columns.t(), row_scale, column_scale, x.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor]:
        rows, row_scale, columns, column_scale = ctx.saved_tensors
        error, scale = rounded(upstream[0], BACKWARD)
        of_input = product(error, _turned(columns), scale, column_scale, ctx.dtypes[0])
        of_weight = product(error.t().contiguous(), _turned(rows), scale, row_scale, ctx.dtypes[0])
        return of_input, of_weight.to(ctx.dtypes[1])


def rounded(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x in 8 bits, its largest number at the end of the range, and what to multiply it with to have x again."""
    most = torch.finfo(dtype).max
    scale = most / x.abs().amax().float().clamp(min=1e-12)
    return (x.float() * scale).clamp(-most, most).to(dtype), scale.reciprocal()


def product(left: Tensor, right: Tensor, left_scale: Tensor, right_scale: Tensor, dtype: torch.dtype) -> Tensor:
    """left @ right, `left` laid out by rows and `right` by columns, as the library wants them."""
    if left.is_cuda:
        return torch._scaled_mm(left, right, scale_a=left_scale, scale_b=right_scale, out_dtype=dtype)
    return ((left.float() @ right.float()) * (left_scale * right_scale)).to(dtype)


def _turned(x: Tensor) -> Tensor:
    """The same matrix, laid out by columns."""
    return x.t().contiguous().t()
