"""Which of two implementations runs: the fused one where a GPU with Triton has the tensors, else its plain twin."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

# What can be fused, each by its own name, so that tests and benchmarks can turn one off.
FUSED = ("text_attention", "view_attention", "token_cross_entropy", "soft_cross_entropy", "mean_attention", "scores")
_off: set[str] = set()


def fuses(name: str, tensor: Tensor) -> bool:
    """Whether the fused implementation of `name` takes this tensor: on CUDA, in half precision, not switched off."""
    assert name in FUSED, name
    if name in _off or not _is_in_place(tensor):
        return False
    return has_triton() and not torch.are_deterministic_algorithms_enabled()


def _is_in_place(tensor: Tensor) -> bool:
    if interprets():
        return True
    return tensor.is_cuda and tensor.dtype in (torch.bfloat16, torch.float16)


@cache
def interprets() -> bool:
    """Triton's interpreter runs kernels on a CPU: for tests alone."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def has_triton() -> bool:
    if importlib.util.find_spec("triton") is not None:
        return True
    warnings.warn("Triton is not installed: the plain implementations run instead, slower and as right", stacklevel=2)
    return False


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Inside, these run plain; no names means all."""
    before = set(_off)
    _off.update(names or FUSED)
    try:
        yield
    finally:
        _off.clear()
        _off.update(before)


def turn_off(*names: str) -> None:
    """From now on these run plain: what `run.kernels=plain` says for a whole run."""
    _off.update(names or FUSED)
