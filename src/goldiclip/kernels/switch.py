"""Which of two implementations runs: the fused one where a GPU with Triton has the tensors, else its plain twin."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# What can be fused, each by its own name, so that tests and benchmarks can turn one off.
FUSED = (
    "text_attention",
    "view_attention",
    "gelu",
    "scoring",
    "mean_attention",
    "token_cross_entropy",
    "soft_cross_entropy",
)
HAS_TRITON = importlib.util.find_spec("triton") is not None
# Triton's interpreter runs kernels on a CPU: for tests alone.
INTERPRETS = os.environ.get("TRITON_INTERPRET") == "1"
OLDEST = (8, 0)
_off: set[str] = set()


def fuses(name: str, tensor: Tensor) -> bool:
    """Whether the fused implementation of `name` takes this tensor: on CUDA, in half precision, not switched off."""
    assert name in FUSED, name
    if name in _off or not HAS_TRITON or torch.are_deterministic_algorithms_enabled():
        return False
    return INTERPRETS or (tensor.is_cuda and tensor.dtype in (torch.bfloat16, torch.float16))


def is_too_old(device: torch.device) -> bool:
    """Whether this is a GPU without the half precision that kernels multiply in."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) < OLDEST


def turn_off() -> None:
    """From here on everything runs plain in this process."""
    _off.update(FUSED)


def why_plain(device: torch.device, precision: str) -> str:
    """Why nothing is fused in a run; empty where something is."""
    if device.type != "cuda":
        return f"no kernel is fused on {device.type.upper()}: the plain implementations run, with the same numbers"
    if not HAS_TRITON:
        return "Triton is not installed: the plain implementations run, slower and with the same numbers"
    if is_too_old(device):
        return f"kernels are for GPUs from A100 on, by compute capability {OLDEST}: the plain implementations run"
    return "" if precision == "bf16" else "kernels are fused in bf16 alone (run.precision=bf16)"


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Inside, these run plain; no names means all. What is compiled must be compiled anew to notice."""
    before = set(_off)
    _off.update(names or FUSED)
    try:
        yield
    finally:
        _off.clear()
        _off.update(before)
