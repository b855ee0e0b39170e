"""An index's text-agnostic vectors at 8 bits, for any other search engine."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from goldiclip.inference.index import Index
from goldiclip.inference.parity import Exported

RECALL_AT = 10
PROBES = 200


def export_vectors(index: Index, folder: Path) -> Exported:
    """vectors.npy (n, D) int8, scale.npy (D,) and ids.json: a vector is its row times the scale.

    `rank_change` is the share of each probe's ten nearest that are others at 8 bits; probes are vectors of the index.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ids = sorted(index.store.ids())
    vectors = index.store.vectors([index.store.place(id) for id in ids]).astype(np.float32)
    scale = np.maximum(np.abs(vectors).max(0), 1e-8) / 127
    whole = np.rint(vectors / scale).astype(np.int8)
    np.save(folder / "vectors.npy", whole)
    np.save(folder / "scale.npy", scale.astype(np.float32))
    (folder / "ids.json").write_text(json.dumps(ids, ensure_ascii=False))
    back = whole.astype(np.float32) * scale
    return Exported(
        name="vectors",
        path=Path("vectors"),
        megabytes=sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        max_error=float(np.abs(back - vectors).max()),
        rank_change=_changed(vectors, back),
    )


def _changed(vectors: np.ndarray, back: np.ndarray) -> float:
    probes = vectors[:: max(1, len(vectors) // PROBES)][:PROBES]
    count = min(RECALL_AT, len(vectors))
    before, after = (np.argsort(-(probes @ rows.T), axis=1, kind="stable")[:, :count] for rows in (vectors, back))
    same = [len(set(one) & set(other)) for one, other in zip(before.tolist(), after.tolist())]
    return 1 - float(np.mean(same)) / count
