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


@pytest.mark.parametrize(("patches", "width"), [(36, 64), (256, 64), (128, 128)])
def test_mean_attention_compiles(compiled: dict[str, int], patches: int, width: int) -> None:
    from goldiclip.kernels.mean_attention import fits, mean_attention

    queries, keys = half(8, 512, width), half(1, patches, 8, width).transpose(1, 2)
    assert fits(queries, keys)
    assert not fits(queries, half(1, 8, 257, width))
    mean_attention(queries, keys).sum().backward()
    assert set(compiled) == {"_forward", "_backward", "_backward_queries"}


@pytest.mark.parametrize(
    ("texts", "heads"), [((64, 512), 8), ((2, 8, 512), 8), ((64, 512), 4), ((64, 1024), 16)], ids=lambda s: str(s)
)
def test_scoring_compiles(compiled: dict[str, int], texts: tuple[int, ...], heads: int) -> None:
    """At the paper's width, for all images' texts and for their own, and at the widest that is taken."""
    from goldiclip.kernels.scores import cosines, fits

    width = texts[-1]
    assert fits(width, heads)
    patches = half(2, 196, width)
    cosines(half(*texts), patches, patches, torch.ones(texts), half(width, width), half(width), heads).sum().backward()
    assert set(compiled) == {"_forward", "_gather", "_turn", "_backward_patches", "_backward_queries"}


@pytest.mark.parametrize(("width", "heads"), [(768, 12), (512, 64), (1024, 8), (512, 2), (2048, 32)])
def test_scoring_leaves_what_does_not_fit(width: int, heads: int) -> None:
    from goldiclip.kernels.scores import fits

    assert not fits(width, heads)


def test_softmax_over_rows_compiles(compiled: dict[str, int]) -> None:
    from goldiclip.kernels import rows

    logits, facts, centre = half(6, 65_536).detach(), torch.zeros(6), torch.zeros(65_536)
    rows.normalisers(logits)
    rows.normalisers(logits, 25.0, centre)
    rows.token_errors_(logits, facts, torch.zeros(6, dtype=torch.int64), facts)
    rows.soft_errors_(logits[None], logits[None, :1], centre, (10.0, 25.0), (facts, facts))
    assert set(compiled) == {"_normalisers", "_token_errors", "_soft_errors"}
