"""Captions by key, on disk: a table of any size, looked up image by image with little memory.

    captions.jsonl   every row's captions, appended as they are read
    index.npy        (hash of the key, offset, size) of each row, sorted by hash in 256 buckets

Building reads the table once and sorts one bucket at a time; looking up maps the index and reads one row.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from goldiclip.config import ConfigError
from goldiclip.prepare.blocks import write_whole
from goldiclip.prepare.tables import Captions

ENTRY = np.dtype([("hash", "<u8"), ("offset", "<u8"), ("size", "<u4")])
BUCKETS = 256
_BUFFERED = 1 << 18
FEWEST_REPEATED = 10


class CaptionStore:
    """What `build_store` left in a folder, open for reading: picklable, and shared by processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.about: dict[str, Any] = json.loads((folder / "about.json").read_text())
        self._open()

    def _open(self) -> None:
        self._index: NDArray[Any] = np.load(self.folder / "index.npy", mmap_mode="r")
        self._starts = np.load(self.folder / "starts.npy")
        self._rows = os.open(self.folder / "captions.jsonl", os.O_RDONLY | os.O_CLOEXEC)
        self._used = np.memmap(self.folder / "used", dtype=np.uint8, mode="r+", shape=(max(len(self._index), 1),))

    def __len__(self) -> int:
        return len(self._index)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["folder"])  # type: ignore[misc]

    def __del__(self) -> None:
        if hasattr(self, "_rows"):
            os.close(self._rows)

    def find(self, key: str) -> list[Captions]:
        """The captions of every row with this key, in the table's order; each is marked as used."""
        wanted = hash_of(key)
        bucket = wanted >> 56
        start, stop = int(self._starts[bucket]), int(self._starts[bucket + 1])
        at = start + int(np.searchsorted(self._index["hash"][start:stop], np.uint64(wanted)))
        found = []
        while at < stop and int(self._index["hash"][at]) == wanted:
            entry = self._index[at]
            name, captions = json.loads(os.pread(self._rows, int(entry["size"]), int(entry["offset"])))
            if name == key:  # and not another key with the same hash
                found.append(captions)
                self._used[at] = 1
            at += 1
        return found

    @property
    def unused(self) -> int:
        """Rows that no image asked for."""
        return len(self) - int(np.count_nonzero(self._used[: len(self)]))


def build_store(
    rows: Iterable[tuple[str, Captions]], folder: Path, fingerprint: str, about: Callable[[], dict[str, Any]]
) -> CaptionStore:
    """Write rows into a folder, or take what was made there from the same before; `about` is kept with it."""
    if _is_whole(folder, fingerprint):
        return CaptionStore(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "about.json").unlink(missing_ok=True)
    buckets = _Buckets(folder)
    repeated = Repeated()
    with open(folder / "captions.jsonl", "wb") as file:
        offset = 0
        for key, captions in rows:
            line = (
                json.dumps([key, captions], ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
                + b"\n"
            )
            file.write(line)
            buckets.add(hash_of(key), offset, len(line))
            repeated.add(captions)
            offset += len(line)
    buckets.sort(folder)
    said = {"fingerprint": fingerprint, "repeated": repeated.share(), **about()}
    write_whole(folder / "about.json", json.dumps(said).encode())
    return CaptionStore(folder)


def _is_whole(folder: Path, fingerprint: str) -> bool:
    try:
        return bool(json.loads((folder / "about.json").read_text())["fingerprint"] == fingerprint)
    except (OSError, ValueError, LookupError):
        return False


def hash_of(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest(), "big")


class _Buckets:
    """Entries by the first byte of their hash, kept in files so that each can be sorted by itself."""

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / f"bucket-{number:03d}" for number in range(BUCKETS)]
        for path in self.paths:
            path.unlink(missing_ok=True)
        self.buffer = np.empty(_BUFFERED, dtype=ENTRY)
        self.filled = 0
        self.total = 0

    def add(self, key: int, offset: int, size: int) -> None:
        self.buffer[self.filled] = (key, offset, size)
        self.filled += 1
        if self.filled == len(self.buffer):
            self._flush()

    def _flush(self) -> None:
        entries = self.buffer[: self.filled]
        bucket = (entries["hash"] >> np.uint64(56)).astype(np.int64)
        for number in np.unique(bucket):
            with open(self.paths[number], "ab") as file:
                file.write(entries[bucket == number].tobytes())
        self.total += self.filled
        self.filled = 0

    def sort(self, folder: Path) -> None:
        self._flush()
        if not self.total:
            raise ConfigError("not one row of the captions has both an image's name and a caption; see --key-column")
        self.buffer = self.buffer[:0]
        index = np.lib.format.open_memmap(folder / "index.npy", mode="w+", dtype=ENTRY, shape=(self.total,))
        starts = np.zeros(BUCKETS + 1, dtype=np.int64)
        for number, path in enumerate(self.paths):
            entries = np.fromfile(path, dtype=ENTRY) if path.exists() else np.empty(0, dtype=ENTRY)
            entries.sort(order=("hash", "offset"))
            starts[number + 1] = starts[number] + len(entries)
            index[starts[number] : starts[number + 1]] = entries
            path.unlink(missing_ok=True)
        index.flush()
        np.save(folder / "starts.npy", starts)
        with open(folder / "used", "wb") as file:
            os.truncate(file.fileno(), max(self.total, 1))


class Repeated:
    """How large a share of rows says one and the same thing: heavy hitters in constant memory (Misra and Gries)."""

    def __init__(self, room: int = 64) -> None:
        self.room = room
        self.counters: Counter[str] = Counter()
        self.rows = 0

    def add(self, captions: Captions) -> None:
        text = next(iter(captions.values()))[0][:200]
        self.rows += 1
        if text in self.counters or len(self.counters) < self.room:
            self.counters[text] += 1
        else:
            self.counters = Counter({name: count - 1 for name, count in self.counters.items() if count > 1})

    def share(self) -> tuple[str, float]:
        """The commonest text, and at least how large its share is."""
        text, count = self.counters.most_common(1)[0] if self.counters else ("", 0)
        return (text, count / self.rows) if count >= FEWEST_REPEATED else ("", 0.0)
