"""The quick ways to the nearest vectors find what comparing everything finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from goldiclip.inference.stores import nearest
from goldiclip.inference.stores.nearest import Nearest

pytest.importorskip("faiss", reason="the serve extra is not installed")
ROWS, WIDTH, COUNT = 3_001, 32, 20


def vectors(rows: int = ROWS) -> np.ndarray:
    rng = np.random.default_rng(0)
    found = rng.standard_normal((40, WIDTH))[rng.integers(0, 40, rows)] + 0.7 * rng.standard_normal((rows, WIDTH))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float16)


@pytest.fixture(params=["flat", "coarse"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small enough numbers of rows, so that faiss has to compare all of them, or chooses candidates first."""
    monkeypatch.setattr(nearest, "PLAIN_UP_TO", 100)
    monkeypatch.setattr(nearest, "FLAT_UP_TO", 1_000 if request.param == "coarse" else 10_000)
    return str(request.param)


def over(rows: np.ndarray, folder: Path, generation: str = "0") -> Nearest:
    return Nearest(lambda start, stop: rows[start:stop], len(rows), folder, generation)


def share(found: Nearest, rows: np.ndarray, allowed: np.ndarray | None = None) -> float:
    """Of the truly nearest, what is found; scores are checked on the way."""
    shares = []
    for query in vectors(4_000)[-30:]:
        exact = rows.astype(np.float32) @ query.astype(np.float32)
        exact[[] if allowed is None else ~allowed] = -2
        truth = np.argsort(-exact, kind="stable")[:COUNT]
        places, scores = found.search(query, COUNT, allowed)
        assert len(places) == len(set(places.tolist())) == COUNT
        assert (np.diff(scores) <= 0).all()
        np.testing.assert_allclose(scores, exact[places], atol=0.02)
        shares.append(len(set(places.tolist()) & set(truth.tolist())) / COUNT)
    return float(np.mean(shares))


def test_the_nearest_are_found_among_those_that_are_allowed(kind: str, tmp_path: Path) -> None:
    rows = vectors()
    found = over(rows, tmp_path)
    assert (found.coarse is not None) == (kind == "coarse")
    draw = np.random.default_rng(1).random(ROWS)
    for allowed in (None, draw < 0.98, draw < 0.6, draw < 0.1):
        assert share(found, rows, allowed) > 0.95
    none, one = np.zeros(ROWS, dtype=bool), np.zeros(ROWS, dtype=bool)
    one[17] = True
    assert [len(found.search(rows[0], COUNT, allowed)[0]) for allowed in (none, one)] == [0, 1]


def test_what_a_query_is_nearest_to_may_all_be_deleted(kind: str, tmp_path: Path) -> None:
    rows = vectors()
    found = over(rows, tmp_path)
    query = vectors(4_000)[-1]
    near = np.argsort(-(rows.astype(np.float32) @ query.astype(np.float32)))[:1_000]
    allowed = np.ones(ROWS, dtype=bool)
    allowed[near] = False
    places, _ = found.search(query, COUNT, allowed)
    assert len(places) == COUNT
    assert not set(places.tolist()) & set(near.tolist())


def test_what_was_built_is_read_again_and_grows(kind: str, tmp_path: Path) -> None:
    rows = vectors()
    over(rows[:2_000], tmp_path)
    built = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("nearest.*")}
    assert len(built) == (4 if kind == "coarse" else 2)
    over(rows[:2_050], tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("nearest.*")} == built  # too few to be written
    grown = over(rows, tmp_path)
    assert grown.flat.ntotal == ROWS
    assert share(grown, rows) > 0.95
    assert tmp_path.joinpath("nearest.flat").stat().st_mtime_ns > built["nearest.flat"]


def test_another_generation_is_built_anew(kind: str, tmp_path: Path) -> None:
    over(vectors(), tmp_path)
    turned = vectors()[::-1]
    assert share(over(turned, tmp_path, "1"), turned) > 0.95


def test_a_folder_that_cannot_be_written_is_answered_from_memory(kind: str, tmp_path: Path) -> None:
    rows = vectors()
    assert share(over(rows, tmp_path / "nowhere"), rows) > 0.95
