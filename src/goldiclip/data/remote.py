"""Shards from elsewhere (s3://, gs://, https://, hf://, …), in a folder of bounded size.

All processes of a machine share it. A shard is fetched whole, once, whoever asks first; the least recently used make
room. A file in use is held by a lock on it, which the system lets go when its holder dies: neither a crash nor a kill
leaves anything to clean up by hand.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from goldiclip.data.index_file import Head, Stamp, parse_index, read_head, read_index, write_index
from goldiclip.data.shard_paths import ShardError
from goldiclip.data.tar_index import TarIndex, index_tar

ATTEMPTS = 3
FIRST_PAUSE_SECONDS = 0.5
CHUNK_BYTES = 8 << 20
_MAX_INDEX_BYTES = 256 << 20
# What file systems call the thing that changes with a file's content.
_TAGS = (
    "ETag",
    "etag",
    "generation",
    "md5Hash",
    "LastModified",
    "Last-Modified",
    "last_modified",
    "mtime",
    "updated",
    "created",
)


class RemoteShards:
    """Opens remote shards through a local folder that holds at most `gigabytes` of them."""

    def __init__(self, folder: Path, gigabytes: float) -> None:
        self.folder = folder
        self.room_bytes = int(gigabytes * 1e9)

    def head(self, url: str) -> Head:
        """A shard's length: from the index kept here, else from one published beside the shard, else by fetching it."""
        stamp = _stamp(url)
        if stamp.size > self.room_bytes:
            room = f"the cache holds {self.room_bytes / 1e9:g} GB"
            raise ShardError(f"{url}: {stamp.size / 1e9:g} GB, and {room}; raise data.cache_gigabytes")
        path = self._index_path(url, stamp)
        head = read_head(path)
        if head is not None and head.stamp == stamp:
            return head
        index = _published_index(url, stamp)
        if index is not None:
            return write_index(index, stamp, path)
        descriptor, index = self.open(url, stamp)
        os.close(descriptor)
        self.trim()
        return Head.of(index, stamp)

    def open(self, url: str, stamp: Stamp) -> tuple[int, TarIndex]:
        """A descriptor of the local copy, which cannot be evicted while it is open, and its index."""
        path = self.folder / "shards" / f"{_name(url, stamp)}.tar"
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _open_shared(path)
        if descriptor is None:
            with _locked(path.with_suffix(".lock")):
                descriptor = _open_shared(path)
                if descriptor is None:
                    descriptor = self._fetch(url, stamp, path)
        try:
            self.trim()
            return descriptor, self._index(url, stamp, descriptor)
        except BaseException:
            os.close(descriptor)
            raise

    def _index(self, url: str, stamp: Stamp, descriptor: int) -> TarIndex:
        path = self._index_path(url, stamp)
        index = read_index(path, stamp)
        if index is None:
            index = index_tar(descriptor, url)
            write_index(index, stamp, path)
        return index

    def _index_path(self, url: str, stamp: Stamp) -> Path:
        return self.folder / "index" / f"{_name(url, stamp)}.index"

    def _fetch(self, url: str, stamp: Stamp, path: Path) -> int:
        part = path.with_suffix(".part")
        with self._room():
            self._make_room(stamp.size)
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.truncate(part, stamp.size)  # counts as taken from now on
        try:
            _download(url, stamp.size, descriptor)
            os.replace(part, path)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except BaseException:
            part.unlink(missing_ok=True)
            os.close(descriptor)
            raise
        return descriptor

    def _room(self) -> AbstractContextManager[None]:
        return _locked(self.folder / "shards" / "room.lock")

    def trim(self) -> None:
        """Keep to the bound: what was in use when room was wanted may have become free since."""
        with self._room():
            self._make_room(0)

    def _make_room(self, needed: int) -> None:
        """Remove what was least recently used and is not in use; half-fetched files of the dead go the same way."""
        files = sorted(
            (
                (status.st_mtime_ns, status.st_size, Path(entry.path))
                for entry, status in _files(self.folder / "shards")
            ),
            key=lambda item: item[0],
        )
        taken = sum(size for _, size, _ in files)
        for _, size, path in files:
            if taken + needed <= self.room_bytes:
                return
            taken -= size * _remove_unused(path)


# --- files and locks ------------------------------------------------------------------------------------------------


def _files(folder: Path) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    for entry in os.scandir(folder):
        if entry.name.endswith((".tar", ".part")):
            try:
                yield entry, entry.stat()
            except FileNotFoundError:
                continue


def _open_shared(path: Path) -> int | None:
    """The file, held against removal and marked as used now; None when it is not there."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.fstat(descriptor).st_nlink:
            os.utime(descriptor)
            return descriptor
        os.close(descriptor)  # removed between opening and locking


def _remove_unused(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Between processes and between threads; released by the system if the holder dies."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# --- the other side -------------------------------------------------------------------------------------------------


def remote_glob(pattern: str) -> list[str]:
    """What a pattern on a remote file system matches, sorted, as URLs."""
    system, path = _file_system(pattern)
    try:
        return sorted(str(system.unstrip_protocol(found)) for found in system.glob(path))
    except Exception as error:
        raise FileNotFoundError(
            f"{pattern}: cannot be listed: {_said(error)}; name the shards by a range, {{000..099}}"
        ) from error


def _file_system(url: str) -> tuple[Any, str]:
    """A file system made in this process: event loops do not survive a fork, and fsspec keeps them per process."""
    import fsspec

    try:
        return fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, TypeError) as error:
        raise ShardError(f"{url}: {_said(error)}") from error


def _name(url: str, stamp: Stamp) -> str:
    return hashlib.sha256(f"{url}\0{stamp.size}\0{stamp.tag}".encode()).hexdigest()[:32]


def _stamp(url: str) -> Stamp:
    system, path = _file_system(url)
    info = _persistently(lambda: system.info(path), url)
    if not isinstance(info.get("size"), int):
        raise ShardError(f"{url}: the server does not say how large it is, so it cannot be cached; copy it here first")
    tag = next((str(info[name]) for name in _TAGS if info.get(name)), "")
    return Stamp(info["size"], int.from_bytes(hashlib.sha256(tag.encode()).digest()[:7], "little"))


def _published_index(url: str, stamp: Stamp) -> TarIndex | None:
    """`shard.tar.index` where the shard lies: saves fetching it only to learn how long it is."""
    system, path = _file_system(url)
    try:
        with system.open(f"{path}.index", "rb") as file:
            return parse_index(file.read(_MAX_INDEX_BYTES), size=stamp.size)
    except Exception:  # every file system has its own way to say that there is none
        return None


def _download(url: str, size: int, descriptor: int) -> None:
    def attempt() -> None:
        system, path = _file_system(url)
        arrived = 0
        with system.open(path, "rb") as source:
            while arrived <= size and (chunk := source.read(CHUNK_BYTES)):
                os.pwrite(descriptor, chunk[: size - arrived], arrived)
                arrived += len(chunk)
        if arrived != size:
            raise OSError(f"{arrived:,} bytes arrived where {size:,} were announced")

    _persistently(attempt, url)


def _persistently(action: Any, url: str) -> Any:
    """Try again after a pause: networks fail for seconds. What stays wrong is an OSError that names the URL."""
    for attempt in range(ATTEMPTS):
        try:
            return action()
        except FileNotFoundError as error:
            because = f" ({_said(error.__cause__)})" if isinstance(error.__cause__, Exception) else ""
            raise FileNotFoundError(f"{url}: no such shard{because}") from error
        except Exception as error:
            if attempt == ATTEMPTS - 1:
                raise OSError(f"{url}: {_said(error)} ({ATTEMPTS} attempts)") from error
            time.sleep(FIRST_PAUSE_SECONDS * 4**attempt)
    raise AssertionError("unreachable")


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
