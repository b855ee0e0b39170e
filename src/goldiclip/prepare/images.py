"""Where images come from: folders, img2dataset or webdataset tars, parquet with bytes or paths. Units become shards."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from goldiclip.config import ConfigError
from goldiclip.data.schema import MAX_IMAGE_BYTES, BadSample
from goldiclip.data.shard_paths import expand, is_remote
from goldiclip.data.shard_writer import safe_key
from goldiclip.data.shards import Shards

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
# Columns of a parquet file that hold an image, or say where it lies.
_IMAGE_COLUMNS = ("image", "jpg", "png", "webp", "img", "image_bytes", "bytes")
_PATH_COLUMNS = ("image_path", "path", "file_name", "filename", "file")


@dataclass(frozen=True)
class Image:
    """An image and what is known of it before captions are joined."""

    key: str
    data: bytes
    name: str = ""  # its file's
    record: Mapping[str, Any] = field(default_factory=dict)


class Unit(Protocol):
    """What becomes one shard; picklable."""

    @property
    def name(self) -> str:
        """The output shard's, without .tar."""
        ...

    @property
    def stamp(self) -> Sequence[object]:
        """Equal as long as the input is."""
        ...

    @property
    def path_of_shard(self) -> str:
        """The shard it is, where it is one."""
        ...

    def images(self) -> Iterator[Image | BadSample]: ...


def units(sources: Sequence[str], per_shard: int = 5_000) -> list[Unit]:
    """The units of all sources, in order; folders and parquet files are cut to `per_shard` images."""
    if not sources:
        raise ConfigError("no images given; expected folders, shards or parquet files")
    found: list[Unit] = []
    for source in sources:
        if source.endswith(".parquet"):
            found += _parquet_units([Path(path) for path in expand(source)], per_shard)
        elif os.path.isdir(source) and not any(name.endswith(".tar") for name in os.listdir(source)):
            tables = sorted(Path(source).glob("*.parquet"))
            found += _parquet_units(tables, per_shard) if tables else _folder_units(Path(source), per_shard)
        else:
            found += [ShardUnit(path) for path in expand(source)]
    names = [unit.name for unit in found]
    return found if len(set(names)) == len(names) else [_Numbered(at, unit) for at, unit in enumerate(found)]


@dataclass(frozen=True)
class _Numbered:
    """A unit under a number, where the names of several sources are the same."""

    number: int
    unit: Unit

    @property
    def name(self) -> str:
        return f"{self.number:05d}"

    @property
    def stamp(self) -> Sequence[object]:
        return self.unit.stamp

    @property
    def path_of_shard(self) -> str:
        return self.unit.path_of_shard

    def images(self) -> Iterator[Image | BadSample]:
        return self.unit.images()


# --- shards ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShardUnit:
    path: str

    @property
    def path_of_shard(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        return Path(self.path).stem

    @property
    def stamp(self) -> Sequence[object]:
        return (self.path,) if is_remote(self.path) else _stamp(Path(self.path))

    def images(self) -> Iterator[Image | BadSample]:
        shards = Shards([self.path])
        for row in range(len(shards)):
            try:
                key, data, record = shards.entry(0, row)
            except BadSample as bad:
                yield bad
            else:
                yield Image(key, data, key, record)


# --- folders --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FolderUnit:
    name: str
    root: Path
    files: tuple[str, ...]  # relative to root
    path_of_shard: str = ""

    @property
    def stamp(self) -> Sequence[object]:
        return tuple((name, *_stamp(self.root / name)[1:]) for name in self.files)

    def images(self) -> Iterator[Image | BadSample]:
        for name in self.files:
            read = read_file(self.root / name)
            key = safe_key(os.path.splitext(name)[0])
            yield read if isinstance(read, BadSample) else Image(key, read, os.path.basename(name), {"file": name})


def _folder_units(root: Path, per_shard: int) -> list[Unit]:
    files = sorted(
        os.path.relpath(os.path.join(folder, name), root)
        for folder, _, names in os.walk(root)
        for name in names
        if name.lower().endswith(IMAGE_SUFFIXES)
    )
    if not files:
        raise FileNotFoundError(
            f"{root}: no images ({', '.join(IMAGE_SUFFIXES)}), no shards, no parquet files in there"
        )
    parts = [tuple(files[start : start + per_shard]) for start in range(0, len(files), per_shard)]
    return [FolderUnit(f"{number:05d}", root, part) for number, part in enumerate(parts)]


def read_file(path: Path) -> bytes | BadSample:
    try:
        if path.stat().st_size > MAX_IMAGE_BYTES:
            return BadSample("image too large", f"more than {MAX_IMAGE_BYTES:,} bytes", str(path))
        return path.read_bytes()
    except OSError as error:
        return BadSample("unreadable image file", str(error), str(path))


# --- parquet --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ParquetUnit:
    name: str
    path: Path
    groups: tuple[int, ...]
    first_row: int
    path_of_shard: str = ""

    @property
    def stamp(self) -> Sequence[object]:
        return (*_stamp(self.path), *self.groups)

    def images(self) -> Iterator[Image | BadSample]:
        file = open_parquet(self.path)
        column, is_path = _image_column(self.path, file.schema_arrow.names)
        number = self.first_row
        for batch in file.iter_batches(batch_size=64, row_groups=list(self.groups)):
            for row in map(with_record, batch.to_pylist()):
                yield self._image(row.pop(column), is_path, row, number)
                number += 1

    def _image(self, value: Any, is_path: bool, row: dict[str, Any], number: int) -> Image | BadSample:
        name = str(value) if is_path else ""
        if isinstance(value, Mapping):  # the hub's {"bytes", "path"}
            name, value = str(value.get("path") or ""), value.get("bytes")
            is_path = value is None and bool(name)
        key = safe_key(str(row.get("key") or row.get("__key__") or f"{self.path.stem}-{number:08d}"))
        if is_path:
            value = read_file(self.path.parent / name)
        if not isinstance(value, bytes):
            return value if isinstance(value, BadSample) else BadSample("no image", key=key, origin=str(self.path))
        return Image(key, value, os.path.basename(name), {name: _plain(item) for name, item in row.items()})


def _parquet_units(paths: Sequence[Path], per_shard: int) -> list[Unit]:
    found: list[Unit] = []
    for path in paths:
        about = open_parquet(path).metadata
        groups: list[int] = []
        rows = first = 0
        for number in range(about.num_row_groups):
            groups.append(number)
            rows += about.row_group(number).num_rows
            if rows >= per_shard or number == about.num_row_groups - 1:
                found.append(ParquetUnit(f"{len(found):05d}", path, tuple(groups), first))
                first, rows, groups = first + rows, 0, []
    return found


def _image_column(path: Path, names: Sequence[str]) -> tuple[str, bool]:
    """The column with images, and whether it holds paths rather than bytes."""
    kinds = {field.name: str(field.type) for field in open_parquet(path).schema_arrow}
    for name in _IMAGE_COLUMNS:
        if name in names and "binary" in kinds[name]:
            return name, False
    for name in (*_PATH_COLUMNS, *_IMAGE_COLUMNS):
        if name in names and "string" in kinds[name]:
            return name, True
    raise ConfigError(
        f"{path}: no column with images among {', '.join(names)}; expected bytes or paths in {_IMAGE_COLUMNS[0]}"
    )


def _plain(value: Any) -> Any:
    """What JSON can hold of a cell."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items() if not isinstance(item, bytes)}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _stamp(path: Path) -> tuple[object, ...]:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns


def with_record(row: dict[str, Any]) -> dict[str, Any]:
    """A row as the hub shows a tar's sample, with what its KEY.json and KEY.txt said among the columns."""
    record = row.pop("json", None)
    row = {**record, **row} if isinstance(record, Mapping) else row
    if "txt" in row and not row.get("caption"):
        row["caption"] = row.pop("txt")
    return row


def open_parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError("parquet needs pyarrow: pip install 'goldiclip[prepare]'") from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except pyarrow.ArrowInvalid as error:
        raise ConfigError(f"{path}: {error}") from error
