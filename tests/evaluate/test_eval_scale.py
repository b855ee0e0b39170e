"""Large sets in little memory, and the benchmark of scoring on a small one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

HERE = Path(__file__).resolve().parent


@pytest.mark.slow
def test_coco_sized_retrieval_stays_within_four_gigabytes() -> None:
    """The whole matrix, and then two stages."""
    done = subprocess.run([sys.executable, str(HERE / "coco_sized.py")], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    whole, two_stage = map(float, done.stdout.split())
    assert whole <= two_stage < 4


@pytest.fixture(scope="module")
def scoring() -> ModuleType:
    """benchmarks/scoring.py as a module."""
    path = HERE.parents[1] / "benchmarks/scoring.py"
    spec = importlib.util.spec_from_file_location("scoring_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_flairs_loop_and_ours_have_the_plain_ranks(scoring: ModuleType) -> None:
    sizes = scoring.Sizes(images=7, texts=30, block=3, width=256, heads=4, patches=9)
    problem = scoring.Problem.make(sizes, torch.device("cpu"))
    with torch.no_grad():
        reference = scoring.plain(problem, 2)
        for found in (scoring.flair_loop(problem), scoring.cosines(problem, scoring.scored(problem, 3, "tc"))):
            torch.testing.assert_close(found, reference, atol=1e-5, rtol=1e-5)
            assert torch.equal(*(scoring.own_ranks(each, problem.owners) for each in (found, reference)))
    ranks = scoring.own_ranks(reference, problem.owners)
    assert (ranks == 0).float().mean() > 0.5  # texts were made from their images: ranks mean something


def test_the_benchmark_runs(scoring: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    measured = scoring.main(images=9, texts=36, block=2, rounds=1, device="cpu")
    assert [one.name for one in measured] == ["plain", "FLAIR's loop", "score tc", "ta"]
    assert [one.images for one in measured] == [9, 8, 9, 9]
    assert all(one.pairs_per_second(36) > 0 for one in measured)
    assert all(one.same_ranks == 1 for one in measured if one.name != "ta")
    assert "M pairs/s" in capsys.readouterr().out


def test_half_precision_is_compared_with_the_same_ranks(scoring: ModuleType) -> None:
    """On a GPU the table has these rows; here they are put together by hand."""
    sizes = scoring.Sizes(images=6, texts=24, block=3)
    plain, _, ours, _ = scoring.variants_for(sizes, torch.device("cpu"), compile=False)
    half = scoring.replace(ours, name="bf16", dtype=torch.bfloat16, seconds=[])
    scoring.measure(scoring.Problem.make(sizes, torch.device("cpu")), [plain, ours, half], rounds=1)
    assert ours.worst < 1e-5 < half.worst < 0.02
    assert half.recall == pytest.approx(plain.recall, abs=0.1)
