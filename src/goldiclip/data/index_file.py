"""A tar's index as a file: beside the shard, or in the cache folder where the shard's own folder cannot be written.

Layout, little-endian: magic, version, the tar's size and modification time (what makes an index stale), number of
samples, bytes of keys, the walk's counts; then the SAMPLE records; then the keys. The head alone gives a length.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from goldiclip.data.tar_index import COUNTS, SAMPLE, TarIndex, index_tar

VERSION = 1
_MAGIC = b"goldidx\n"
_HEAD = struct.Struct(f"<8sIIQqQQ{len(COUNTS)}I")


@dataclass(frozen=True, slots=True)
class Stamp:
    """What identifies a shard's content cheaply: its size and a time or tag that changes with it."""

    size: int
    tag: int

    @classmethod
    def of(cls, status: os.stat_result) -> Stamp:
        return cls(status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an index file: all that a set of shards keeps in memory of each."""

    stamp: Stamp
    num_samples: int
    key_bytes: int
    counts: dict[str, int]

    @classmethod
    def of(cls, index: TarIndex, stamp: Stamp) -> Head:
        return cls(stamp, len(index), len(index.keys), index.counts)

    @property
    def file_bytes(self) -> int:
        return _HEAD.size + self.num_samples * SAMPLE.itemsize + self.key_bytes


def cache_folder() -> Path:
    """Where goldiclip keeps what it can make again: $GOLDICLIP_CACHE, or the user's cache folder."""
    chosen = os.environ.get("GOLDICLIP_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "goldiclip"


def index_paths(shard: Path, cache: Path) -> tuple[Path, Path]:
    """The two places of a local shard's index, in the order they are tried."""
    name = hashlib.sha256(os.fsencode(shard.absolute())).hexdigest()[:32]
    return shard.with_name(shard.name + ".index"), cache / "index" / f"{name}.index"


def ensure_index(shard: Path, cache: Path) -> tuple[Head, Path | None]:
    """A valid index of a local shard, built if there is none; no path when it cannot be kept anywhere."""
    stamp = Stamp.of(shard.stat())
    for path in index_paths(shard, cache):
        head = read_head(path)
        if head is not None and head.stamp == stamp:
            return head, path
    index = build_index(shard)
    for path in index_paths(shard, cache):
        try:
            return write_index(index, stamp, path), path
        except OSError:
            continue
    return Head.of(index, stamp), None


def load_index(shard: Path, cache: Path) -> TarIndex:
    """The index of a local shard, read back or built."""
    head, path = ensure_index(shard, cache)
    index = read_index(path, head.stamp) if path else None
    return index if index is not None else build_index(shard)


def build_index(shard: Path) -> TarIndex:
    """Walk the shard: a gigabyte of it takes well under a second once its pages are cached."""
    descriptor = os.open(shard, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if hasattr(os, "posix_fadvise"):  # headers are far apart: do not read ahead into the images between
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        return index_tar(descriptor, str(shard))
    finally:
        os.close(descriptor)


def read_head(path: Path) -> Head | None:
    """The head of an index file; None when there is none or it is not one of ours."""
    try:
        with open(path, "rb") as file:
            return _parse_head(file.read(_HEAD.size), os.fstat(file.fileno()).st_size)
    except OSError:
        return None


def read_index(path: Path, stamp: Stamp) -> TarIndex | None:
    """A whole index, unless it is missing, damaged, or of another content than `stamp` says."""
    try:
        payload = path.read_bytes()
    except OSError:
        return None
    head = _parse_head(payload[: _HEAD.size], len(payload))
    return parse_index(payload, stamp.size) if head is not None and head.stamp == stamp else None


def parse_index(payload: bytes, size: int) -> TarIndex | None:
    """The index in these bytes, if it is of a tar of this size and everything it names lies inside."""
    head = _parse_head(payload[: _HEAD.size], len(payload))
    if head is None or head.stamp.size != size:
        return None
    samples = np.frombuffer(payload, dtype=SAMPLE, count=head.num_samples, offset=_HEAD.size)
    in_tar = (samples["start"] <= size).all() and (samples["start"] + samples["size"] <= size).all()
    return TarIndex(samples, payload[len(payload) - head.key_bytes :], head.counts) if in_tar else None


def _parse_head(raw: bytes, file_size: int) -> Head | None:
    if len(raw) < _HEAD.size:
        return None
    magic, version, _, tar_size, tag, num_samples, key_bytes, *counts = _HEAD.unpack(raw)
    head = Head(Stamp(tar_size, tag), num_samples, key_bytes, dict(zip(COUNTS, counts)))
    return head if (magic, version, file_size) == (_MAGIC, VERSION, head.file_bytes) else None


def write_index(index: TarIndex, stamp: Stamp, path: Path) -> Head:
    """Write an index so that a reader sees all of it or nothing."""
    head = Head.of(index, stamp)
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = (index.counts[name] for name in COUNTS)
    raw = _HEAD.pack(_MAGIC, VERSION, 0, stamp.size, stamp.tag, len(index), len(index.keys), *counts)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines((raw, index.samples.tobytes(), index.keys))
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return head
