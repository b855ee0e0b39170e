"""Nearest vectors by inner product: faiss where it is installed, plain products otherwise.

Up to a million rows are compared one by one at 8 bits each, exact enough to be called exhaustive; beyond that a graph
(HNSW) over the same 8 bits is walked.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

FLAT_UP_TO = 1_000_000
LINKS = 32
# Below this faiss is not worth its file: a product over everything takes a millisecond.
PLAIN_UP_TO = 4_096


class Nearest:
    """`stamp` names the rows an index on disk was made of: another stamp makes it anew."""

    def __init__(self, vectors: Sequence[np.ndarray], path: Path, stamp: str) -> None:
        self.vectors = vectors
        self.num_rows = sum(map(len, vectors))
        self.index: Any = None
        if self.num_rows > PLAIN_UP_TO and importlib.util.find_spec("faiss"):
            self.index = _read(path, stamp) or _build(vectors, self.num_rows, path, stamp)

    def search(self, vector: np.ndarray, count: int, allowed: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Places and inner products, best first; only places in `allowed`, if given."""
        count = min(count, self.num_rows if allowed is None else len(allowed))
        if count == 0:
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        if self.index is None or (allowed is not None and len(allowed) <= PLAIN_UP_TO):
            return self._plain(vector, count, allowed)
        faiss: Any = importlib.import_module("faiss")
        selector = None if allowed is None else faiss.IDSelectorBatch(allowed)
        if isinstance(self.index, faiss.IndexHNSW):
            parameters = faiss.SearchParametersHNSW(sel=selector, efSearch=max(64, 2 * count))
        else:
            parameters = faiss.SearchParameters(sel=selector)
        scores, places = self.index.search(vector[None].astype(np.float32), count, params=parameters)
        found = places[0] >= 0
        return places[0][found], scores[0][found]

    def _plain(self, vector: np.ndarray, count: int, allowed: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        query = vector.astype(np.float32)
        scores = np.concatenate([part.astype(np.float32) @ query for part in self.vectors])
        places = np.arange(self.num_rows) if allowed is None else allowed
        best = np.argsort(-scores[places], kind="stable")[:count]
        return places[best], scores[places[best]]


def _build(vectors: Sequence[np.ndarray], num_rows: int, path: Path, stamp: str) -> Any:
    faiss: Any = importlib.import_module("faiss")
    width = vectors[0].shape[1]
    if num_rows <= FLAT_UP_TO:
        index = faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    else:
        index = faiss.IndexHNSWSQ(width, faiss.ScalarQuantizer.QT_8bit, LINKS, faiss.METRIC_INNER_PRODUCT)
    stride = max(1, num_rows // 100_000)
    index.train(np.concatenate([part[::stride] for part in vectors]).astype(np.float32))
    for part in vectors:
        for start in range(0, len(part), 65_536):
            index.add(part[start : start + 65_536].astype(np.float32))
    partial = path.with_suffix(".partial")
    faiss.write_index(index, str(partial))
    os.replace(partial, path)
    path.with_suffix(".stamp").write_text(stamp)
    return index


def _read(path: Path, stamp: str) -> Any:
    import faiss

    mark = path.with_suffix(".stamp")
    if not path.exists() or not mark.exists() or mark.read_text() != stamp:
        return None
    return faiss.read_index(str(path))
