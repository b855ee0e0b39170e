"""Writing shards so that a reader sees a whole one or none, and equal samples give equal bytes."""

from __future__ import annotations

import glob
import io
import json
import os
import re
import socket
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from goldiclip.data.schema import write_record
from goldiclip.types import Sample

_KEY = re.compile(r"[^./\\:\0][^.\\:\0]*")
_MAX_KEY = 1_024


class ShardWriter:
    """Samples into `folder/00000.tar`, `00001.tar`, …, each `per_shard` long; use it in a `with` block.

    A shard appears under its name when it is complete and on the disk. An exception inside the block leaves the shards
    that were complete and nothing of the one that was not.
    """

    def __init__(self, folder: str | Path, per_shard: int = 1_000, *, overwrite: bool = False) -> None:
        if per_shard < 1:
            raise ValueError(f"per_shard is {per_shard}; expected 1 or more")
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.per_shard = per_shard
        self.paths: list[Path] = []
        self._shard: _Shard | None = None
        self._make_room(overwrite)

    def write(self, sample: Sample) -> None:
        if self._shard is None:
            self._shard = _Shard(self.folder / f"{len(self.paths):05d}.tar")
        self._shard.add(sample)
        if len(self._shard.keys) == self.per_shard:
            self._publish()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._publish()
        elif self._shard is not None:
            self._shard.discard()
            self._shard = None

    def _publish(self) -> None:
        if self._shard is not None:
            self.paths.append(self._shard.publish())
            self._shard = None

    def _make_room(self, overwrite: bool) -> None:
        old = sorted(self.folder.glob("*.tar"))
        if old and not overwrite:
            found = f"already holds {len(old):,} shards ({old[0].name}, …)"
            raise FileExistsError(f"{self.folder}: {found}; choose an empty folder or remove them")
        for path in old:
            path.unlink()
            path.with_name(path.name + ".index").unlink(missing_ok=True)


def write_shards(
    samples: Iterable[Sample], folder: str | Path, per_shard: int = 1_000, *, overwrite: bool = False
) -> list[Path]:
    """Samples as shards in a folder; the paths written."""
    with ShardWriter(folder, per_shard, overwrite=overwrite) as writer:
        for sample in samples:
            writer.write(sample)
    return writer.paths


def write_shard(samples: Iterable[Sample], path: str | Path) -> Path:
    """Samples as one shard, in place of what was there: the step of a stage that turns a shard into a shard."""
    shard = _Shard(Path(path))
    try:
        for sample in samples:
            shard.add(sample)
        return shard.publish()
    except BaseException:
        shard.discard()
        raise


def safe_key(name: str) -> str:
    """A key made of any name: dots end a key in a tar, and a path must not leave it."""
    parts = (re.sub(r"[.\\:\0]", "_", part) for part in name.split("/"))
    return "/".join(part for part in parts if part) or "_"


class _Shard:
    """One shard under its hidden name, until it is published."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.keys: set[str] = set()
        _remove_orphans(path)
        self._temporary = path.with_name(f".{path.name}.{_host()}.{os.getpid()}.part")
        # closed by publish or discard
        self._file: IO[bytes] = open(self._temporary, "wb")  # noqa: SIM115
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def add(self, sample: Sample) -> None:
        if not _KEY.fullmatch(sample.key) or "//" in sample.key or len(sample.key.encode()) > _MAX_KEY:
            raise ValueError(
                f"key {sample.key!r:.80} cannot name a member: no dot, colon, backslash or leading slash; see safe_key"
            )
        if sample.key in self.keys:
            raise ValueError(f"{self.path.name}: key {sample.key!r} is there already")
        self.keys.add(sample.key)
        self._member(f"{sample.key}.{_suffix(sample.image)}", sample.image)
        self._member(f"{sample.key}.json", _json(write_record(sample)))

    def publish(self) -> Path:
        self._tar.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self.path)
        _sync_folder(self.path.parent)
        return self.path

    def discard(self) -> None:
        self._file.close()
        self._temporary.unlink(missing_ok=True)

    def _member(self, name: str, payload: bytes) -> None:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(payload), 0o644
        self._tar.addfile(info, io.BytesIO(payload))


def _json(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _suffix(image: bytes) -> str:
    """The suffix that an image's first bytes call for."""
    if image.startswith(b"\x89PNG"):
        return "png"
    return "webp" if image[:4] == b"RIFF" and image[8:12] == b"WEBP" else "jpg"


def _host() -> str:
    return re.sub(r"\W", "_", socket.gethostname())


def _remove_orphans(path: Path) -> None:
    """What killed writers of this shard on this machine left behind."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.{_host()}.*.part"):
        process = left.name.split(".")[-2]
        if process.isdigit() and not os.path.exists(f"/proc/{process}") and os.path.exists("/proc/self"):
            left.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
