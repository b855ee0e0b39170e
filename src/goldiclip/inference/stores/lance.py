"""An index as a Lance table: on a local path or in object storage, appended to by many, read by many.

Every read is of one version of the table, so a server answers from what was whole when it opened; `refresh` moves on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from goldiclip.config import ConfigError
from goldiclip.inference.stores import Row

# From here on a vector index is worth its building; below, Lance compares every vector.
INDEX_FROM = 100_000
# How far an index is searched; without one it means nothing.
WIDE = {"nprobes": 32, "refine_factor": 2}


Options = Mapping[str, str] | None  # Lance's own, of the object storage


def create_table(uri: str, width: int, notes: Mapping[str, str], storage_options: Options = None) -> None:
    """An empty table whose schema carries `notes`."""
    import lance

    empty = _table([], width).replace_schema_metadata(dict(notes))
    lance.write_dataset(empty, uri, storage_options=dict(storage_options or {}))


def read_note(uri: str, name: str, storage_options: Options = None) -> str | None:
    """What the table's schema says under a name, "" if nothing; None where there is no table."""
    try:
        import lance
    except ImportError as error:
        raise ConfigError(f"{uri}: a Lance table takes pylance: pip install 'goldiclip[serve]'") from error
    try:
        table = lance.dataset(uri, storage_options=dict(storage_options or {}))
    except ValueError as error:
        if "not found" not in str(error):
            raise
        return None
    return (table.schema.metadata or {}).get(name.encode(), b"").decode()


class LanceStore:
    def __init__(self, uri: str, width: int, block_bytes: int, storage_options: Options = None) -> None:
        self.uri, self.width, self.block_bytes = uri, width, block_bytes
        self.options = dict(storage_options or {})
        self.refresh()

    def refresh(self) -> None:
        import lance

        self.table = lance.dataset(self.uri, storage_options=self.options)

    def __len__(self) -> int:
        return int(self.table.count_rows())

    @property
    def version(self) -> str:
        return str(self.table.version)

    def ids(self) -> set[str]:
        return set(self.table.to_table(columns=["id"]).column("id").to_pylist())

    def append(self, rows: Sequence[Row], replaced: Sequence[str] = ()) -> None:
        import lance

        if replaced:
            merge = self.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge.execute(_table(rows, self.width))
            self.refresh()
        elif rows:
            self.table = lance.write_dataset(
                _table(rows, self.width), self.uri, mode="append", storage_options=self.options
            )

    def delete(self, ids: Sequence[str]) -> int:
        before = len(self)
        quoted = ", ".join(_quoted(id) for id in ids)
        if ids:
            self.table.delete(f"id IN ({quoted})")
        return before - len(self)

    def compact(self) -> None:
        """Join small fragments, drop what was deleted, and index vectors and ids once there are enough of them."""
        self.table.optimize.compact_files()
        self.refresh()
        if len(self) >= INDEX_FROM:
            self.table.create_index("vector", "IVF_HNSW_SQ", metric="dot", replace=True)
            self.table.create_scalar_index("id", "BTREE", replace=True)

    def nearest(
        self, vector: np.ndarray, count: int, where: Mapping[str, str] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        clauses = [
            f"json_get_string(record, {_quoted(key)}) = {_quoted(value)}" for key, value in (where or {}).items()
        ]
        found = self.table.to_table(
            columns=["_distance"],
            with_row_id=True,
            nearest={"column": "vector", "q": vector.astype(np.float16), "k": count, "metric": "dot", **WIDE},
            filter=" AND ".join(clauses) or None,
            prefilter=True,
        )
        return found.column("_rowid").to_numpy(), 1 - found.column("_distance").to_numpy()

    def place(self, id: str) -> int:
        found = self.table.to_table(columns=["id"], filter=f"id = {_quoted(id)}", with_row_id=True)
        if not len(found):
            raise KeyError(f"{id!r} is not in the index")
        return int(found.column("_rowid")[0].as_py())

    def vectors(self, places: Sequence[int]) -> np.ndarray:
        found = [row["vector"] for row in self._rows(places, ["vector"])]
        return np.array(found, dtype=np.float16).reshape(len(found), self.width)

    def blocks(self, places: Sequence[int]) -> np.ndarray:
        found = [np.frombuffer(row["block"], np.uint8) for row in self._rows(places, ["block"])]
        return np.stack(found) if found else np.zeros((0, self.block_bytes), np.uint8)

    def records(self, places: Sequence[int]) -> list[dict[str, Any]]:
        return [{**json.loads(row["record"]), "id": row["id"]} for row in self._rows(places, ["id", "record"])]

    def _rows(self, places: Sequence[int], columns: list[str]) -> list[dict[str, Any]]:
        """The rows at these places, in their order."""
        wanted = [int(place) for place in places]
        if not wanted:
            return []
        chosen = f"_rowid IN ({', '.join(map(str, wanted))})"
        found = self.table.to_table(columns=columns, filter=chosen, with_row_id=True).to_pylist()
        by_place = {row["_rowid"]: row for row in found}
        return [by_place[place] for place in wanted]


def _table(rows: Sequence[Row], width: int) -> Any:
    import pyarrow as pa

    vectors = np.stack([row.vector for row in rows]).astype(np.float16) if rows else np.zeros((0, width), np.float16)
    flat = pa.array(vectors.reshape(-1), type=pa.float16())
    return pa.table(
        {
            "id": pa.array([row.id for row in rows], pa.string()),
            "vector": pa.FixedSizeListArray.from_arrays(flat, width),
            "block": pa.array([row.block for row in rows], pa.binary()),
            "record": pa.array([json.dumps(dict(row.record)) for row in rows], pa.json_()),
        }
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
