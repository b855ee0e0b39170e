"""An index in a folder: segments that are written once and renamed into place, and a list of what was deleted.

    segments/000007/vectors.npy    (n, D) float16          segments/000007/records.jsonl   a line an image, its id in it
    segments/000007/blocks.bin     n blocks of equal size  segments/000007/offsets.npy     where each line begins
    deleted.json                   places that are gone    nearest.faiss                   made anew when these change

A build that is killed loses the segment it was writing and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from goldiclip.inference.stores import Row
from goldiclip.inference.stores.nearest import Nearest


class LocalStore:
    def __init__(self, folder: Path, width: int, block_bytes: int) -> None:
        self.folder, self.width, self.block_bytes = folder, width, block_bytes
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="blocks")
        (folder / "segments").mkdir(parents=True, exist_ok=True)
        for leftover in (folder / "segments").glob("*.partial"):
            shutil.rmtree(leftover)
        self._open()

    def _open(self) -> None:
        """Look at what is there; everything cached below is of this look."""
        for name in ("_places", "_nearest", "_vectors"):
            self.__dict__.pop(name, None)
        self.segments = [_Segment(path, self.block_bytes) for path in sorted((self.folder / "segments").iterdir())]
        self.starts = np.cumsum([0, *(len(segment) for segment in self.segments)])
        path = self.folder / "deleted.json"
        self.deleted: set[int] = set(json.loads(path.read_text())) if path.exists() else set()

    def __len__(self) -> int:
        return int(self.starts[-1]) - len(self.deleted)

    def ids(self) -> set[str]:
        return set(self._places)

    @cached_property
    def _places(self) -> dict[str, int]:
        return {record["id"]: place for place, record in self._every_record()}

    def _every_record(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for start, segment in zip(self.starts, self.segments):
            for row, record in enumerate(segment.every_record()):
                if start + row not in self.deleted:
                    yield int(start) + row, record

    # --- change -----------------------------------------------------------------------------------------------------

    def append(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        last = int(self.segments[-1].path.name) if self.segments else -1
        _write_segment(self.folder / "segments" / f"{last + 1:06d}", rows, self.block_bytes)
        self._open()

    def delete(self, ids: Sequence[str]) -> int:
        """Mark rows as gone; `compact` gives their room back."""
        places = {self._places[id] for id in ids if id in self._places}
        if places:
            _replace(self.folder / "deleted.json", json.dumps(sorted(self.deleted | places)).encode())
            self._open()
        return len(places)

    def compact(self) -> None:
        """Rewrite the segments without what was deleted."""
        live = [place for place, _ in self._every_record()]
        gathered = self.folder / "segments.compacted"
        shutil.rmtree(gathered, ignore_errors=True)
        gathered.mkdir()
        for number, chunk in enumerate(np.array_split(live, max(1, len(live) // 4096))):
            rows = [
                Row(record.pop("id"), self.vector(place), block, record)
                for place, block, record in zip(
                    chunk.tolist(), self.blocks(chunk.tolist()), self.records(chunk.tolist())
                )
            ]
            _write_segment(gathered / f"{number:06d}", rows, self.block_bytes)
        old = self.folder / "segments.old"
        os.replace(self.folder / "segments", old)
        os.replace(gathered, self.folder / "segments")
        (self.folder / "deleted.json").unlink(missing_ok=True)
        shutil.rmtree(old)
        self._open()

    # --- look -------------------------------------------------------------------------------------------------------

    def nearest(
        self, vector: np.ndarray, count: int, where: Mapping[str, str] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        allowed = None
        if where:
            matches = (place for place, record in self._every_record() if _matches(record, where))
            allowed = np.fromiter(matches, dtype=np.int64)
        elif self.deleted:
            allowed = np.setdiff1d(np.arange(self.starts[-1]), np.fromiter(self.deleted, dtype=np.int64))
        return self._nearest.search(vector, count, allowed)

    @cached_property
    def _nearest(self) -> Nearest:
        stamp = "-".join(f"{segment.path.name}.{len(segment)}" for segment in self.segments)
        return Nearest(self._vectors, self.folder / "nearest.faiss", stamp)

    @cached_property
    def _vectors(self) -> list[np.ndarray]:
        return [segment.vectors for segment in self.segments] or [np.zeros((0, self.width), np.float16)]

    def place(self, id: str) -> int:
        if id not in self._places:
            raise KeyError(f"{id!r} is not in the index")
        return self._places[id]

    def vector(self, place: int) -> np.ndarray:
        segment, row = self._find(place)
        return np.asarray(segment.vectors[row])

    def blocks(self, places: Sequence[int]) -> list[bytes]:
        return list(self._pool.map(self._block, places))

    def _block(self, place: int) -> bytes:
        segment, row = self._find(place)
        return segment.block(row)

    def records(self, places: Sequence[int]) -> list[dict[str, Any]]:
        return [segment.record(row) for segment, row in map(self._find, places)]

    def _find(self, place: int) -> tuple[_Segment, int]:
        number = int(np.searchsorted(self.starts, place, side="right")) - 1
        return self.segments[number], place - int(self.starts[number])


class _Segment:
    """One finished segment, its files opened when first asked for."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self.path, self.block_bytes = path, block_bytes

    def __len__(self) -> int:
        return len(self.vectors)

    @cached_property
    def vectors(self) -> np.ndarray:
        return np.load(self.path / "vectors.npy", mmap_mode="r")

    @cached_property
    def offsets(self) -> np.ndarray:
        return np.load(self.path / "offsets.npy")

    @cached_property
    def _blocks(self) -> int:
        return os.open(self.path / "blocks.bin", os.O_RDONLY)

    @cached_property
    def _records(self) -> int:
        return os.open(self.path / "records.jsonl", os.O_RDONLY)

    def block(self, row: int) -> bytes:
        return os.pread(self._blocks, self.block_bytes, row * self.block_bytes)

    def record(self, row: int) -> dict[str, Any]:
        start, stop = int(self.offsets[row]), int(self.offsets[row + 1])
        return json.loads(os.pread(self._records, stop - start, start))

    def every_record(self) -> Iterator[dict[str, Any]]:
        with open(self.path / "records.jsonl", "rb") as lines:
            yield from map(json.loads, lines)

    def __del__(self) -> None:
        for name in ("_blocks", "_records"):
            if name in self.__dict__:
                os.close(self.__dict__[name])


def _write_segment(path: Path, rows: Sequence[Row], block_bytes: int) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.mkdir()
    np.save(partial / "vectors.npy", np.stack([row.vector for row in rows]).astype(np.float16))
    with open(partial / "blocks.bin", "wb") as file:
        for row in rows:
            if len(row.block) != block_bytes:
                raise ValueError(
                    f"{row.id}: a block of {len(row.block)} bytes; this index holds {block_bytes} per image"
                )
            file.write(row.block)
        _flush(file)
    lines = [json.dumps({**row.record, "id": row.id}, ensure_ascii=False).encode() + b"\n" for row in rows]
    np.save(partial / "offsets.npy", np.cumsum([0, *map(len, lines)]))
    with open(partial / "records.jsonl", "wb") as file:
        file.writelines(lines)
        _flush(file)
    os.replace(partial, path)


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _replace(path: Path, data: bytes) -> None:
    partial = path.with_suffix(".partial")
    partial.write_bytes(data)
    os.replace(partial, path)


def _matches(record: Mapping[str, Any], where: Mapping[str, str]) -> bool:
    return all(str(record.get(key)) == value for key, value in where.items())
