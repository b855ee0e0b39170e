"""Machines without a GPU compile every kernel for one, at the paper's widths: what an interpreter cannot tell.

Nothing is launched, so nothing that comes out means anything; `test_fused.py` compares numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from goldiclip.kernels.switch import HAS_TRITON, INTERPRETS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"),
    pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed"),
    pytest.mark.skipif(INTERPRETS or torch.cuda.is_available(), reason="kernels run here"),
]
SHARED_BYTES = {90: 227 * 1024, 80: 163 * 1024}  # of one program, on an H100 and an A100


@pytest.fixture(params=SHARED_BYTES)
def compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """The shared memory of each kernel that is asked for, by name: compiled for a GPU of a capability, never run."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    found: dict[str, int] = {}
    compile_and_run = JITFunction.run

    def compile_alone(self: Any, *args: Any, warmup: bool = False, **options: Any) -> Any:
        kernel = compile_and_run(self, *args, warmup=True, **options)
        found[self.fn.__name__] = max(kernel.metadata.shared, found.get(self.fn.__name__, 0))
        return kernel

    gpu = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", request.param, 32),
        get_current_device=lambda: request.param,
        get_current_stream=lambda device=None: 0,
    )
    monkeypatch.setattr(driver, "_active", gpu)
    monkeypatch.setattr(JITFunction, "run", compile_alone)
    yield found
    assert found
    assert max(found.values()) <= SHARED_BYTES[request.param]


def half(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.bfloat16, requires_grad=True)


@pytest.mark.parametrize(("heads", "length", "causal"), [(8, 77, True), (12, 37, False)], ids=["texts", "views"])
def test_attention_compiles(compiled: dict[str, int], heads: int, length: int, causal: bool) -> None:
    from goldiclip.kernels.attention import short_attention

    offsets = torch.tensor([0, length], dtype=torch.int32)
    short_attention(half(length, 3, heads, 64), offsets, length, causal).sum().backward()
    assert set(compiled) == {"_forward", "_backward"}


@pytest.mark.parametrize("patches", [36, 196])
def test_mean_attention_compiles(compiled: dict[str, int], patches: int) -> None:
    from goldiclip.kernels.mean_attention import mean_attention

    mean_attention(half(8, 512, 64), half(1, patches, 8, 64).transpose(1, 2)).sum().backward()
    assert set(compiled) == {"_forward", "_backward", "_backward_queries"}


@pytest.mark.parametrize("texts", [(64, 512), (2, 8, 512)], ids=["of all", "its own"])
def test_scoring_compiles(compiled: dict[str, int], texts: tuple[int, ...]) -> None:
    from goldiclip.kernels.scores import cosines

    patches = half(2, 196, 512)
    cosines(half(*texts), patches, patches, torch.ones(texts), half(512, 512), half(512), 8).sum().backward()
    assert set(compiled) == {"_forward", "_gather", "_turn", "_backward_patches", "_backward_queries"}


def test_softmax_over_rows_compiles(compiled: dict[str, int]) -> None:
    from goldiclip.kernels import rows

    logits, facts, centre = half(6, 65_536).detach(), torch.zeros(6), torch.zeros(65_536)
    rows.normalisers(logits)
    rows.normalisers(logits, 25.0, centre)
    rows.token_errors_(logits, facts, torch.zeros(6, dtype=torch.int64), facts)
    rows.soft_errors_(logits[None], logits[None, :1], centre, (10.0, 25.0), (facts, facts))
    assert set(compiled) == {"_normalisers", "_token_errors", "_soft_errors"}
