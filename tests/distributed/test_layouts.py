"""Numbers do not depend on layout: one process, ranks under DDP and FSDP2, micro-batches, ranks of micro-batches."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest
import torch
from layouts import Told, rank_program, three_steps

pytestmark = [pytest.mark.distributed, pytest.mark.slow]

VARIANTS = ["full", "full+all", "full+muon", "full+silent", "full+deaf", "silc", "flair"]
# What each rank does with its share: whole, or in micro-batches of these sizes.
SPLITS: dict[int, list[tuple[int, ...]]] = {1: [(2, 4), (5, 1), (1, 1, 1, 1, 1, 1)], 2: [(), (1, 2)], 3: [(), (1, 1)]}
LAYOUTS = ("ddp", "fsdp")

FULL = [("full", layout, micro) for layout in LAYOUTS for micro in (0, 1)]
# Both groups run the full recipe in every layout; every other variant meets both layouts, whole or in micro-batches.
CASES = {
    size: [(variant, layout, SPLITS[size][micro], *rest) for variant, layout, micro, *rest in cases]
    for size, cases in {
        2: [
            *FULL,
            *(("full+all", layout, micro) for _, layout, micro in FULL),
            *((variant, layout, micro) for variant in VARIANTS[2:] for layout, micro in (("ddp", 0), ("fsdp", 1))),
            *(("full", layout, micro, torch.float32) for _, layout, micro in FULL),
        ],
        3: [*FULL, ("full+all", "ddp", 0), ("full+all", "fsdp", 1), ("full", "fsdp", 1, torch.float32)],
    }.items()
}


@pytest.fixture(scope="session")
def groups(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[Any, Any]]:
    """Two ranks and three ranks, each group started once and asked for every case."""
    folder = tmp_path_factory.mktemp("ranks")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["layouts"])
    processes = [
        context.Process(target=rank_program, args=(rank, size, str(folder), CASES[size]), daemon=True)
        for size in CASES
        for rank in range(size)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=300)
    failures = [path.read_text() for path in sorted(folder.glob("failed*.txt"))]
    assert not failures, failures[0]
    assert all(process.exitcode == 0 for process in processes), [process.exitcode for process in processes]
    return {size: torch.load(folder / f"{size}.pt", weights_only=False) for size in CASES}


@pytest.fixture(scope="session")
def alone() -> dict[Any, Told]:
    """The same steps in this process, whole."""
    found: dict[Any, Told] = {variant: three_steps(variant) for variant in VARIANTS}
    found["float32"] = three_steps("full", dtype=torch.float32)
    return found


def apart(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> tuple[float, str]:
    """The largest difference, and where it is."""
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    return max(((found[name] - expected[name]).abs().max().item(), name) for name in expected)


def relative(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], floor: float) -> tuple[float, str]:
    """The largest difference as a share of its tensor's norm, or of the least norm that counts."""
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    return max(
        ((found[name] - expected[name]).norm().item() / max(expected[name].norm().item(), floor), name)
        for name in expected
    )


def assert_same_training(found: Told, expected: Told) -> None:
    """float64 throughout: losses, gradients, centres and weights of three steps of the optimiser."""
    for step in range(3):
        for what in ("losses", "gradients", "state"):
            worst, where = apart(getattr(found, what)[step], getattr(expected, what)[step])
            assert worst <= 1e-9, f"step {step}: {what} of {where} differ by {worst:.1e}"


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("micro", SPLITS[1], ids=str)
def test_micro_batches_of_any_split_change_nothing(
    variant: str, micro: tuple[int, ...], alone: dict[Any, Told]
) -> None:
    assert_same_training(three_steps(variant, micro=micro), alone[variant])


@pytest.mark.parametrize(
    ("size", "case"), [(size, case) for size in CASES for case in CASES[size] if len(case) == 3], ids=str
)
def test_ranks_change_nothing(
    size: int, case: tuple[Any, ...], groups: dict[int, dict[Any, Any]], alone: dict[Any, Told]
) -> None:
    assert_same_training(groups[size][case], alone[case[0]])


@pytest.mark.parametrize(
    ("size", "case"), [(size, case) for size in CASES for case in CASES[size] if len(case) == 4], ids=str
)
def test_single_precision_agrees_to_rounding(
    size: int, case: tuple[Any, ...], groups: dict[int, dict[Any, Any]], alone: dict[Any, Told]
) -> None:
    assert_rounding(groups[size][case], alone["float32"])


def assert_rounding(found: Told, expected: Told) -> None:
    """float32: losses and gradients of three steps of the optimiser.

    A gradient under a thousandth of the largest is what cancellation has left, or zero: the pooling's key bias shifts
    all patches alike, and float32 gives its gradient to 7e-6 of itself in any one layout.
    """
    for step in range(3):
        # teacher_kl is a small difference of two numbers that are compared themselves
        losses = {name: value for name, value in expected.losses[step].items() if value and "teacher_kl" not in name}
        worst, where = relative({name: found.losses[step][name] for name in losses}, losses, floor=1e-6)
        assert worst <= 1e-5, f"step {step}: {where} is off by {worst:.1e} of itself"
        least = 1e-3 * max(tensor.norm().item() for tensor in expected.gradients[step].values())
        worst, where = relative(found.gradients[step], expected.gradients[step], least)
        assert worst <= 1e-5, f"step {step}: the gradient of {where} is off by {worst:.1e} of its norm"


@pytest.mark.parametrize("micro", SPLITS[1], ids=str)
def test_micro_batches_agree_to_rounding_in_single_precision(micro: tuple[int, ...], alone: dict[Any, Told]) -> None:
    assert_rounding(three_steps("full", micro=micro, dtype=torch.float32), alone["float32"])


def test_the_steps_are_not_all_alike(alone: dict[Any, Told]) -> None:
    """What the others compare moves: weights change, centres change, the teacher follows slowly, tasks come and go."""
    told = alone["full"]
    assert [sorted(set(told.losses[step]) & {"cap", "ref", "grd", "vqa"}) for step in range(3)] == [
        ["cap", "grd", "ref", "vqa"],
        ["cap", "grd", "ref"],
        [],
    ]
    first, last = told.state[0], told.state[-1]
    moved = {name for name in first if not torch.equal(first[name], last[name])}
    assert {"prototypes.centres", "prototypes.teacher_weight", "teacher.image.key.weight"} <= moved
    assert {"balance.sigma.vqa", "student.scale.bias", "student.head.weight"} <= moved
    assert not told.gradients[2]["student.head.weight"].any()
    assert told.gradients[2]["balance.sigma.vqa"].item() == 0


@pytest.mark.parametrize("size", [2, 3])
def test_rows_and_gradients_find_their_rank(size: int, groups: dict[int, dict[Any, Any]]) -> None:
    told = groups[size]["exchanges"]
    counts, rank_sum = told["counts"], sum(range(1, size + 1))
    expected = torch.cat([torch.arange(n * 2.0).view(-1, 2) + 10 * rank for rank, n in enumerate(counts)])
    positions = torch.arange(1.0, sum(counts) + 1)
    for rank, mine in enumerate(told["ranks"]):
        own = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
        assert torch.equal(mine["gathered"], expected)
        assert torch.equal(mine["gradient"], (positions[own] * rank_sum)[:, None].expand(-1, 2))
        summed = torch.arange(sum(counts) * 1.0) * size + sum(range(size))
        assert torch.equal(mine["scattered"], summed[own][:, None])
        assert mine["none"].shape == (0, 4)
        assert mine["sum"].tolist() == [rank_sum]
        assert mine["mean"].tolist() == [rank_sum / size]


def test_every_parameter_is_sharded_and_parts_answer_by_themselves(groups: dict[int, dict[Any, Any]]) -> None:
    for told in groups.values():
        assert told["wiring"]["whole parameters"] == []
        assert told["wiring"]["a part called by itself is off by"] <= 1e-12


def test_a_gather_without_gradient_would_train_the_text_tower_wrongly(
    groups: dict[int, dict[Any, Any]], alone: dict[Any, Told]
) -> None:
    expected = alone["full"].gradients[0]["student.text.projection.weight"]
    wiring = groups[2]["wiring"]
    assert (wiring["text gradient with"] - expected).norm() <= 1e-9 * expected.norm()
    assert (wiring["text gradient without"] - expected).norm() > 1e-2 * expected.norm()
