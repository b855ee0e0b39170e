"""What runs where: every kernel has a plain twin, and a run says once why it takes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from goldiclip.config import Config
from goldiclip.kernels import switch
from goldiclip.kernels.switch import FUSED, fuses, turn_off, why_plain, without
from goldiclip.learner import Learner
from goldiclip.train import session
from goldiclip.train.launch import Seat

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """A tensor that says it is on an H100."""
    monkeypatch.setattr(switch, "HAS_TRITON", True)
    monkeypatch.setattr(switch, "INTERPRETS", False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    return type("OnGpu", (), {"is_cuda": True, "dtype": torch.bfloat16})()  # type: ignore[return-value]


def test_a_gpu_fuses_everything_that_is_not_switched_off(on_gpu: torch.Tensor) -> None:
    assert all(fuses(name, on_gpu) for name in FUSED)
    with without("scoring"):
        assert [name for name in FUSED if not fuses(name, on_gpu)] == ["scoring"]
        with without():
            assert not any(fuses(name, on_gpu) for name in FUSED)
        assert fuses("gelu", on_gpu)
    assert fuses("scoring", on_gpu)
    on_gpu.dtype = torch.float32
    assert not fuses("scoring", on_gpu)


def test_deterministic_runs_fuse_nothing(on_gpu: torch.Tensor) -> None:
    with session.determinism(True):
        assert not fuses("scoring", on_gpu)


@pytest.mark.parametrize(
    ("device", "precision", "has_triton", "capability", "said"),
    [
        (CPU, "bf16", True, (9, 0), "no kernel is fused on CPU"),
        (GPU, "bf16", False, (9, 0), "Triton is not installed"),
        (GPU, "bf16", True, (7, 5), "from A100 on"),
        (GPU, "fp32", True, (9, 0), "fused in bf16 alone"),
    ],
)
def test_a_run_says_why_it_is_plain(
    device: torch.device, precision: str, has_triton: bool, capability: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "HAS_TRITON", has_triton)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    assert said in why_plain(device, precision)


@pytest.mark.usefixtures("on_gpu")
def test_a_run_that_is_fused_says_nothing() -> None:
    assert not why_plain(GPU, "bf16")


def test_a_run_on_a_cpu_says_once_what_it_does_without(tiny: Config) -> None:
    said: list[str] = []
    voice = type("Heard", (), {"say": staticmethod(said.append)})()
    config = replace(tiny, run=replace(tiny.run, compile=True))
    session.spread(Learner(config), config, Seat(0, 1, CPU), voice)
    assert [line.split(":")[0] for line in said] == [
        "no kernel is fused on CPU",
        "run.compile is for CUDA devices with Triton",
    ]


def test_what_is_turned_off_stays_off(on_gpu: torch.Tensor) -> None:
    with without():  # puts things back as they were
        turn_off()
    assert fuses("scoring", on_gpu)
    before = set(switch._off)
    try:
        turn_off()
        assert not any(fuses(name, on_gpu) for name in FUSED)
    finally:
        switch._off.clear()
        switch._off.update(before)
