"""Nearest vectors by inner product: faiss where it is installed, plain products otherwise.

Up to 100,000 rows are compared one by one at 8 bits a number, exact enough to be called exhaustive. Beyond that, rows
of half a byte for four numbers (product quantisation, whose tables stay in registers) choose candidates, and the 8 bits
order them: a million rows of 512 take some 5 ms of one core where comparing them all takes 60. Both grow by appending.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# Below this faiss is not worth its file: a product over everything takes a millisecond.
PLAIN_UP_TO = 4_096
FLAT_UP_TO = 100_000
# Rows that codebooks are learned from.
LEARN_FROM = 20_000
CANDIDATES = 20  # for each row wanted, at least 4,096
AT_ONCE = 65_536
# Of the rows, that may be found: below this, comparing those one by one is the quicker way.
MOSTLY = 0.5

# The vectors (n, D) float16 of rows start..stop.
Rows = Callable[[int, int], np.ndarray]


class Nearest:
    """Over rows 0..num_rows; `generation` names what they are part of: another one makes the files anew."""

    def __init__(self, rows: Rows, num_rows: int, folder: Path, generation: str) -> None:
        self.rows, self.num_rows, self.folder, self.generation = rows, num_rows, folder, generation
        self.flat: Any = None
        self.coarse: Any = None
        if num_rows > PLAIN_UP_TO and importlib.util.find_spec("faiss"):
            self._make()
        else:
            self.plain = rows(0, num_rows).astype(np.float32)

    def search(self, vector: np.ndarray, count: int, allowed: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Places and inner products, best first; only places that `allowed` (num_rows,) says, if given."""
        count = min(count, self.num_rows if allowed is None else int(allowed.sum()))
        if count == 0:
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        query = vector.astype(np.float32)
        if self.flat is None:
            return self._plain(query, count, allowed)
        if self.coarse is not None and (found := self._in_two_steps(query, count, allowed)):
            return found
        faiss: Any = importlib.import_module("faiss")
        bits = None if allowed is None else np.packbits(allowed, bitorder="little")
        selector = None if bits is None else faiss.IDSelectorBitmap(bits)
        scores, places = self.flat.search(query[None], count, params=faiss.SearchParameters(sel=selector))
        is_found = places[0] >= 0
        return places[0][is_found], scores[0][is_found]

    def _plain(self, query: np.ndarray, count: int, allowed: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        scores = self.plain @ query
        places = np.arange(self.num_rows) if allowed is None else np.flatnonzero(allowed)
        best = np.argsort(-scores[places], kind="stable")[:count]
        return places[best], scores[places[best]]

    def _in_two_steps(
        self, query: np.ndarray, count: int, allowed: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Where a few rows are not allowed, as after deletions, more are looked for; None where that was not enough."""
        share = 1.0 if allowed is None else float(allowed.mean())
        if share < MOSTLY:
            return None
        faiss: Any = importlib.import_module("faiss")
        wider = min(self.num_rows, count if allowed is None else round(1.5 * count / share) + 8)
        factor = max(CANDIDATES, 4_096 / wider)
        both = faiss.IndexRefine(self.coarse, self.flat)
        scores, places = both.search(query[None], wider, params=faiss.IndexRefineSearchParameters(k_factor=factor))
        if allowed is None:
            return places[0], scores[0]
        is_allowed = np.flatnonzero(allowed[places[0]])[:count]
        return (places[0][is_allowed], scores[0][is_allowed]) if len(is_allowed) == count else None

    # --- files ------------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        """What the files hold and what was appended since; written anew once that is a twentieth."""
        faiss: Any = importlib.import_module("faiss")
        width = self.rows(0, 1).shape[1]
        metric, eight_bits = faiss.METRIC_INNER_PRODUCT, faiss.ScalarQuantizer.QT_8bit
        self.flat = self._read("nearest.flat", lambda: faiss.IndexScalarQuantizer(width, eight_bits, metric))
        if self.num_rows > FLAT_UP_TO and width % 4 == 0:
            self.coarse = self._read("nearest.coarse", lambda: faiss.IndexPQFastScan(width, width // 4, 4, metric))

    def _read(self, name: str, empty: Callable[[], Any]) -> Any:
        faiss: Any = importlib.import_module("faiss")
        path, mark = self.folder / name, self.folder / f"{name}.json"
        is_ours = path.exists() and mark.exists() and json.loads(mark.read_text()) == self.generation
        index = faiss.read_index(str(path)) if is_ours else empty()
        if not is_ours or index.ntotal > self.num_rows:
            index = empty()
            learned = [self.rows(start, start + 1) for start in range(0, self.num_rows, self._stride())]
            index.train(np.concatenate(learned).astype(np.float32))
        there = index.ntotal
        for start in range(there, self.num_rows, AT_ONCE):
            index.add(self.rows(start, min(start + AT_ONCE, self.num_rows)).astype(np.float32))
        if self.num_rows - there > self.num_rows // 20:
            self._write(index, path, mark)
        return index

    def _stride(self) -> int:
        return max(1, self.num_rows // LEARN_FROM)

    def _write(self, index: Any, path: Path, mark: Path) -> None:
        """A folder that may not be written is answered from memory: readers need no more than to read."""
        faiss: Any = importlib.import_module("faiss")
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        try:
            mark.unlink(missing_ok=True)
            faiss.write_index(index, str(partial))
            os.replace(partial, path)
            mark.write_text(json.dumps(self.generation))
        except (OSError, RuntimeError):
            partial.unlink(missing_ok=True)
