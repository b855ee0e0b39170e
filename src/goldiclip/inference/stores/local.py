"""An index in a folder: segments that are written once and renamed into place, and a list of what was deleted.

    current                          the generation that counts; compaction makes the next one beside it
    generation-0/000007/vectors.f16  (n, D) float16        …/records.jsonl   a line an image, its id in it
    generation-0/000007/blocks.bin   n blocks alike        …/offsets.npy     where each line begins
    generation-0/deleted.json        places that are gone  …/replaced.json   places whose pictures are anew in here
    nearest.*                        made anew when these change

A build that is killed loses the segment it was writing and nothing else. One process may write while others read:
they see what was whole when they last looked.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from goldiclip.inference.stores import Row
from goldiclip.inference.stores.nearest import Nearest

SEGMENT_AFTER_COMPACTION = 1_024
FIELDS_KEPT = 16


class LocalStore:
    def __init__(self, folder: Path, width: int, block_bytes: int) -> None:
        self.folder, self.width, self.block_bytes = folder, width, block_bytes
        folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[str, int] | None = None
        self.refresh()

    def refresh(self) -> None:
        """Look at what is there now; everything cached below is of this look."""
        for name in ("_nearest", "_fields", "_is_live"):
            self.__dict__.pop(name, None)
        self._known = None
        current = self.folder / "current"
        self.generation = current.read_text().strip() if current.exists() else "generation-0"
        self.home = self.folder / self.generation
        finished = sorted(path for path in self.home.glob("*") if path.name.isdigit())
        self.segments = [_Segment(path, self.width, self.block_bytes) for path in finished]
        self.starts = np.cumsum([0, *(len(segment) for segment in self.segments)])
        path = self.home / "deleted.json"
        self.deleted = set(_places_in(path)).union(*(_places_in(one.path / "replaced.json") for one in self.segments))

    @property
    def num_places(self) -> int:
        return int(self.starts[-1])

    def __len__(self) -> int:
        return self.num_places - len(self.deleted)

    @property
    def version(self) -> str:
        return f"{self.generation}, {len(self.segments)} segments less {len(self.deleted)}"

    def ids(self) -> set[str]:
        return set(self._places)

    @property
    def _places(self) -> dict[str, int]:
        if self._known is None:
            self._known = {record["id"]: place for place, record in self._every_record()}
        return self._known

    def _every_record(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for start, segment in zip(self.starts, self.segments):
            for row, record in enumerate(segment.every_record()):
                if start + row not in self.deleted:
                    yield int(start) + row, record

    # --- change -----------------------------------------------------------------------------------------------------

    def append(self, rows: Sequence[Row], replaced: Sequence[str] = ()) -> None:
        if not rows:
            return
        with self._writing():
            gone = [self._places[id] for id in replaced if id in self._places]
            first, known = self.num_places, self._known
            last = int(self.segments[-1].path.name) if self.segments else -1
            _write_segment(self.home / f"{last + 1:06d}", rows, self.block_bytes, gone)
            self.refresh()
            if known is not None:
                self._known = {**known, **{row.id: first + number for number, row in enumerate(rows)}}

    def delete(self, ids: Sequence[str]) -> int:
        """Mark rows as gone; `compact` gives their room back."""
        with self._writing():
            places = {self._places[id] for id in ids if id in self._places}
            if places:
                replace_durably(self.home / "deleted.json", json.dumps(sorted(self.deleted | places)).encode())
                self.refresh()
        return len(places)

    def compact(self) -> None:
        """A new generation without what was deleted. The old one stays until the next, for those who still read it."""
        with self._writing():
            number = int(self.generation.rpartition("-")[2]) + 1
            following = self.folder / f"generation-{number}"
            shutil.rmtree(following, ignore_errors=True)
            following.mkdir()
            live = np.flatnonzero(self._live_mask())
            for first in range(0, len(live), SEGMENT_AFTER_COMPACTION):
                places = live[first : first + SEGMENT_AFTER_COMPACTION].tolist()
                kept = zip(self.vectors(places), self.blocks(places), self.records(places))
                rows = [Row(record.pop("id"), vector, block.tobytes(), record) for vector, block, record in kept]
                _write_segment(following / f"{first // SEGMENT_AFTER_COMPACTION:06d}", rows, self.block_bytes)
            replace_durably(self.folder / "current", following.name.encode())
            for old in self.folder.glob("generation-*"):
                if old.name not in (self.generation, following.name):
                    shutil.rmtree(old)
            self.refresh()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One writer at a time, who first sees what the last one left."""
        self.home.mkdir(exist_ok=True)
        with open(self.folder / "lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FileExistsError(f"{self.folder}: another process is changing this index; wait for it") from None
            seen, known = self.version, self._known
            self.refresh()
            if seen == self.version:
                self._known = known
            for leftover in self.home.glob("*.partial"):
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            yield

    # --- look -------------------------------------------------------------------------------------------------------

    def nearest(
        self, vector: np.ndarray, count: int, where: Mapping[str, str] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        allowed = self._is_live
        for key, value in (where or {}).items():
            codes, names = self._field(key)
            matches = codes == names.get(value, -2)
            allowed = matches if allowed is None else allowed & matches
        return self._nearest.search(vector, count, allowed)

    @cached_property
    def _is_live(self) -> np.ndarray | None:
        return self._live_mask() if self.deleted else None

    def _live_mask(self) -> np.ndarray:
        mask = np.ones(self.num_places, dtype=bool)
        mask[list(self.deleted)] = False
        return mask

    @cached_property
    def _fields(self) -> dict[str, tuple[np.ndarray, dict[str, int]]]:
        return {}

    def _field(self, key: str) -> tuple[np.ndarray, dict[str, int]]:
        """What every record says of one key: (places,) numbers, and which number stands for which value."""
        if known := self._fields.get(key):
            return known
        names: dict[str, int] = {}
        codes = np.full(self.num_places, -1, dtype=np.int32)
        for place, record in self._every_record():
            if key in record:
                codes[place] = names.setdefault(str(record[key]), len(names))
        while len(self._fields) >= FIELDS_KEPT:  # whoever asks chooses the keys
            self._fields.popitem()
        self._fields[key] = codes, names
        return codes, names

    @cached_property
    def _nearest(self) -> Nearest:
        return Nearest(self._vectors, self.num_places, self.folder, self.generation)

    def _vectors(self, start: int, stop: int) -> np.ndarray:
        """(stop - start, D) float16, across segments."""
        parts = [np.zeros((0, self.width), np.float16)]
        number = max(0, int(np.searchsorted(self.starts, start, side="right")) - 1)
        while start < stop:
            begin, end = int(self.starts[number]), min(int(self.starts[number + 1]), stop)
            parts.append(self.segments[number].vectors(start - begin, end - begin))
            start, number = end, number + 1
        return np.concatenate(parts)

    def place(self, id: str) -> int:
        if id not in self._places:
            raise KeyError(f"{id!r} is not in the index")
        return self._places[id]

    def vectors(self, places: Sequence[int]) -> np.ndarray:
        found = [self._vectors(place, place + 1) for place in places]
        return np.concatenate(found) if found else self._vectors(0, 0)

    def blocks(self, places: Sequence[int]) -> np.ndarray:
        found = np.empty((len(places), self.block_bytes), dtype=np.uint8)
        for block, place in zip(found, places):
            segment, row = self._find(place)
            segment.read_block(row, block)
        return found

    def records(self, places: Sequence[int]) -> list[dict[str, Any]]:
        return [segment.record(row) for segment, row in map(self._find, places)]

    def _find(self, place: int) -> tuple[_Segment, int]:
        number = int(np.searchsorted(self.starts, place, side="right")) - 1
        return self.segments[number], place - int(self.starts[number])


class _Segment:
    """One finished segment. Files are opened for each read: a million images have a thousand segments."""

    def __init__(self, path: Path, width: int, block_bytes: int) -> None:
        self.path, self.width, self.block_bytes = path, width, block_bytes
        self.num_rows = os.path.getsize(path / "vectors.f16") // (2 * width)

    def __len__(self) -> int:
        return self.num_rows

    def vectors(self, start: int, stop: int) -> np.ndarray:
        count, skip = (stop - start) * self.width, 2 * start * self.width
        flat = np.fromfile(self.path / "vectors.f16", np.float16, count, offset=skip)
        return flat.reshape(-1, self.width)

    @cached_property
    def offsets(self) -> np.ndarray:
        return np.load(self.path / "offsets.npy")

    def read_block(self, row: int, into: np.ndarray) -> None:
        file = os.open(self.path / "blocks.bin", os.O_RDONLY)
        try:
            read = os.preadv(file, [into.data], row * self.block_bytes)
        finally:
            os.close(file)
        if read != self.block_bytes:
            raise OSError(f"{self.path / 'blocks.bin'}: block {row} is cut short; compact or rebuild the index")

    def record(self, row: int) -> dict[str, Any]:
        start, stop = int(self.offsets[row]), int(self.offsets[row + 1])
        with open(self.path / "records.jsonl", "rb") as file:
            return json.loads(os.pread(file.fileno(), stop - start, start))

    def every_record(self) -> Iterator[dict[str, Any]]:
        with open(self.path / "records.jsonl", "rb") as lines:
            yield from map(json.loads, lines)


def _places_in(path: Path) -> list[int]:
    return json.loads(path.read_text()) if path.exists() else []


def _write_segment(path: Path, rows: Sequence[Row], block_bytes: int, replaced: Sequence[int] = ()) -> None:
    partial = path.with_name(path.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    for row in rows:
        if len(row.block) != block_bytes:
            raise ValueError(f"{row.id}: a block of {len(row.block)} bytes; this index holds {block_bytes} per image")
    lines = [json.dumps({**row.record, "id": row.id}).encode() + b"\n" for row in rows]
    np.save(partial / "offsets.npy", np.cumsum([0, *map(len, lines)]))
    if replaced:
        _flushed(partial / "replaced.json", [json.dumps(list(replaced)).encode()])
    _flushed(partial / "records.jsonl", lines)
    _flushed(partial / "blocks.bin", [row.block for row in rows])
    _flushed(partial / "vectors.f16", [np.asarray(row.vector, np.float16).tobytes() for row in rows])
    os.replace(partial, path)


def _flushed(path: Path, parts: Sequence[bytes]) -> None:
    with open(path, "wb") as file:
        file.writelines(parts)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, data: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    _flushed(partial, [data])
    os.replace(partial, path)
