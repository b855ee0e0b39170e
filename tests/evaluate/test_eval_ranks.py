"""Two ranks and three measure what one process does, to the last bit."""

from __future__ import annotations

import json
import math
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from rank_programs import measure_all, rank_program, write_sets

pytestmark = pytest.mark.distributed
SIZES = (2, 3)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], dict[str, Any]]:
    """What every rank of every group found, and one process alone."""
    folder = tmp_path_factory.mktemp("ranks")
    write_sets(folder / "data")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rank_programs", "open_clip"])
    places = [(rank, size) for size in SIZES for rank in range(size)]
    processes = [context.Process(target=rank_program, args=(*place, str(folder)), daemon=True) for place in places]
    for process in processes:
        process.start()
    alone = measure_all(folder / "data")
    for process in processes:
        process.join(timeout=120)
    failures = [path.read_text() for path in sorted(folder.glob("failed*.txt"))]
    assert not failures, failures[0]
    found = {(rank, size): read(folder / f"rank{rank}of{size}.json") for rank, size in places}
    return {**found, (0, 1): alone}


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


@pytest.mark.parametrize("size", SIZES)
def test_ranks_find_exactly_what_one_process_finds(told: dict[tuple[int, int], dict[str, Any]], size: int) -> None:
    alone = told[0, 1]
    for rank in range(size):
        shared = told[rank, size]
        assert set(shared) == set(alone)
        different = {
            key: (shared[key], alone[key])
            for key in alone
            if shared[key] != alone[key] and not (isinstance(alone[key], float) and math.isnan(alone[key]))
        }
        assert not different


def test_every_family_was_measured(told: dict[tuple[int, int], dict[str, Any]]) -> None:
    names = set(told[0, 1])
    for wanted in (
        "gallery/tc/text_to_image/recall@1",
        "gallery/tc@ta3/image_to_text/recall@5",
        "questions/tc/average/recall@2",
        "labels/ta/top5",
        "masks/sink/mean_iou",
    ):
        assert {wanted, f"{wanted}/low"} <= names


def test_ranks_say_what_any_of_them_could_not_read(told: dict[tuple[int, int], dict[str, Any]]) -> None:
    (said,) = told[0, 1]["said"]
    assert "picture 6" in said
    assert told[0, 2]["said"] == told[2, 3]["said"] == [said]


def test_ranks_stop_together_under_strict(told: dict[tuple[int, int], dict[str, Any]]) -> None:
    """The picture that cannot be read is one rank's; all end with its error and none waits for ever."""
    assert {found["strict"] for found in told.values()} == {told[0, 1]["strict"]}
    assert "000000000003.jpg" in told[0, 1]["strict"]
