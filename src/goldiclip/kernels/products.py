"""Matrix products shared by the chunked kernels: what dtype they run in, and sums of products that keep float32."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

# Elements of one block of logits: 512 MiB in half precision on a GPU, 64 MiB of float32 elsewhere.
BLOCK_ELEMENTS = {"cuda": 2**28, "cpu": 2**24}


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype of matrix products: autocast's where it is on, else the tensor's own."""
    device = tensor.device.type
    if tensor.is_meta or tensor.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return tensor.dtype
    return torch.get_autocast_dtype(device)


def wide(tensor: Tensor) -> Tensor:
    """At least float32: what softmax, logarithms and sums over a batch are taken in."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """total += left @ right, summed in `total`'s precision also when the factors are narrower."""
    if left.dtype == total.dtype:
        total.addmm_(left, right)
    elif left.is_cuda:
        total += torch.mm(left, right, out_dtype=total.dtype)
    else:
        total += left @ right


def blocks(rows: int, row_elements: int, device: torch.device) -> Iterator[slice]:
    """Slices of `rows`, each with about as many elements as one block may have, at least one row."""
    size = max(1, BLOCK_ELEMENTS.get(device.type, 2**24) // max(1, row_elements))
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))
