"""Shards of samples on disk, read at random and written whole.

A shard is a plain webdataset tar. `Shards` reads any of them by position through an index that is built once;
reading is thread-safe, survives fork and spawn, and keeps a bounded number of files open.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from goldiclip.data.index_file import Head, Stamp, cache_folder, ensure_index, load_index
from goldiclip.data.many import progress
from goldiclip.data.remote import RemoteShards
from goldiclip.data.schema import MAX_IMAGE_BYTES, MAX_RECORD_BYTES, BadSample, parse_record, read_sample
from goldiclip.data.shard_paths import ShardError, expand, is_remote
from goldiclip.data.shard_writer import ShardWriter, write_shard, write_shards
from goldiclip.data.tar_index import COUNTS, IMAGE, RECORD, TEXT, Place, TarIndex
from goldiclip.types import Sample

__all__ = ["BadSample", "ShardError", "ShardWriter", "Shards", "write_shard", "write_shards"]

_LIMIT = (MAX_IMAGE_BYTES, MAX_RECORD_BYTES, MAX_RECORD_BYTES)
_TOO_LARGE = ("image too large", "record too large", "record too large")


class Shards(Sequence[Sample]):
    """All samples of some tars, by position. `shards[i]` raises BadSample where there is nothing to train on."""

    def __init__(
        self,
        patterns: str | Sequence[str],
        cache_gigabytes: float = 50.0,
        *,
        cache: Path | None = None,
        open_shards: int = 16,
    ) -> None:
        self.paths = expand(patterns)
        self._cache = Path(cache) if cache else cache_folder()
        self._remote = RemoteShards(self._cache, cache_gigabytes)
        self._max_open = max(open_shards, 1)
        heads = self._heads()
        self.lengths: NDArray[np.int64] = np.array([head.num_samples for head in heads], dtype=np.int64)
        self.sizes: NDArray[np.int64] = np.array([head.stamp.size for head in heads], dtype=np.int64)
        self._tags = np.array([head.stamp.tag for head in heads], dtype=np.int64)
        self._counts = np.array([[head.counts[name] for name in COUNTS] for head in heads], dtype=np.uint32)
        self._ends = np.cumsum(self.lengths)
        self._reset()
        if not len(self):
            found = ", ".join(f"{count} × {reason}" for reason, count in self.counts.items()) or "empty"
            raise ShardError(f"{self.paths[0]}: no sample in {len(self.paths):,} shards ({found}); look with tar -tf")

    def __len__(self) -> int:
        return int(self._ends[-1])

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        shard, row = self.locate(index)
        return self.read(shard, row)

    def locate(self, index: int) -> tuple[int, int]:
        """The shard and the row in it of a position."""
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"sample {index} of {len(self):,}")
        shard = int(np.searchsorted(self._ends, position, side="right"))
        return shard, position - int(self._ends[shard]) + int(self.lengths[shard])

    def read(self, shard: int, row: int) -> Sample:
        """One sample of one shard."""
        key, image, record = self.entry(shard, row)
        return read_sample(key, image, record, self.paths[shard])

    def entry(self, shard: int, row: int) -> tuple[str, bytes, dict[str, Any]]:
        """Key, image and record as they lie there: an image without captions is an entry, but no sample yet."""
        origin = self.paths[shard]
        try:
            opened = self._open(shard)
            if len(opened.index) != self.lengths[shard]:
                raise BadSample(
                    "shard changed", f"it held {self.lengths[shard]:,} samples, now {len(opened.index):,}", "", origin
                )
            place = opened.index.place(row)
            return _entry(place, opened.members(place, origin), origin)
        except OSError as error:
            raise BadSample("read failed", str(error), f"row {row}", origin) from error

    def keys(self, shard: int) -> Iterator[str]:
        """The keys of one shard, in order."""
        index = self._open(shard).index
        return (index.place(row).key for row in range(len(index)))

    def key(self, shard: int, row: int) -> str:
        """The key of one sample, whatever else may be wrong with it."""
        return self._open(shard).index.place(row).key

    @property
    def counts(self) -> dict[str, int]:
        """What the walks over the tars found odd, by reason."""
        return {name: int(total) for name, total in zip(COUNTS, self._counts.sum(axis=0)) if total}

    def problems(self) -> Iterator[tuple[str, str, int]]:
        """The same by shard: (path, reason, count)."""
        for shard, column in np.argwhere(self._counts):
            yield self.paths[shard], COUNTS[column], int(self._counts[shard, column])

    @property
    def fingerprint(self) -> str:
        """Equal for equal shards in equal order wherever they lie: over each one's name, size and number of samples."""
        digest = hashlib.sha256()
        for path, size, length in zip(self.paths, self.sizes, self.lengths):
            digest.update(f"{os.path.basename(path)}\0{size}\0{length}\n".encode())
        return digest.hexdigest()[:16]

    def __repr__(self) -> str:
        return f"Shards({len(self):,} samples in {len(self.paths):,} shards, {self.paths[0]}, …)"

    # --- open files ---

    def _heads(self) -> list[Head]:
        is_long = len(self.paths) >= 64 or any(map(is_remote, self.paths))
        with ThreadPoolExecutor(max_workers=8) as pool:
            heads = pool.map(self._head, self.paths)
            return list(progress(heads, "reading shard indices", len(self.paths)) if is_long else heads)

    def _head(self, path: str) -> Head:
        try:
            return self._remote.head(path) if is_remote(path) else ensure_index(Path(path), self._cache)[0]
        except FileNotFoundError:
            raise
        except OSError as error:
            said = str(error)
            raise ShardError(said if path in said else f"{path}: cannot be read: {said}") from error

    def _open(self, shard: int) -> OpenShard:
        if self._process != os.getpid():  # after a fork: another thread may have held the lock
            self._reset()
        with self._lock:
            if shard in self._opened:
                self._opened.move_to_end(shard)
                return self._opened[shard]
        opened = self._open_anew(shard)
        with self._lock:
            self._opened[shard] = opened
            while len(self._opened) > self._max_open:
                self._opened.popitem(last=False)  # closed when its last reader lets go
        return opened

    def _open_anew(self, shard: int) -> OpenShard:
        path = self.paths[shard]
        if is_remote(path):
            return OpenShard(*self._remote.open(path, Stamp(int(self.sizes[shard]), int(self._tags[shard]))))
        index = load_index(Path(path), self._cache)
        return OpenShard(os.open(path, os.O_RDONLY | os.O_CLOEXEC), index)

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._opened: OrderedDict[int, OpenShard] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_opened", "_process")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()


class OpenShard:
    """A descriptor and an index; closes itself when nobody holds it any more."""

    def __init__(self, descriptor: int, index: TarIndex) -> None:
        self.descriptor = descriptor
        self.index = index

    def __del__(self) -> None:
        os.close(self.descriptor)

    def members(self, place: Place, origin: str) -> list[bytes]:
        """Image, record and text of a sample."""
        for size, limit, reason in zip(place.size, _LIMIT, _TOO_LARGE):
            if size > limit:
                raise BadSample(reason, f"{size:,} bytes, at most {limit:,}", place.key, origin)
        parts = [
            os.pread(self.descriptor, size, start) if size else b"" for start, size in zip(place.start, place.size)
        ]
        if [len(part) for part in parts] != list(place.size):
            raise BadSample("shard changed", "it is shorter than when it was indexed", place.key, origin)
        return parts


def _entry(place: Place, parts: list[bytes], origin: str) -> tuple[str, bytes, dict[str, Any]]:
    if not place.has(IMAGE):
        raise BadSample("no image", "no .jpg, .jpeg, .png or .webp under this key", place.key, origin)
    if not parts[IMAGE]:
        raise BadSample("empty image", "zero bytes", place.key, origin)
    record = parse_record(parts[RECORD], place.key, origin) if place.has(RECORD) else {}
    if parts[TEXT] and "captions" not in record and "raw_caption" not in record and "caption" not in record:
        record["caption"] = parts[TEXT].decode("utf-8", "replace")
    return place.key, parts[IMAGE], record
