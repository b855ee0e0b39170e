"""Caption tables in whatever form they come, row by row: CSV, TSV, JSON lines, parquet, COCO's and Karpathy's JSON.

A row becomes (what names its image, captions by source). Which column is which is read off the header, or said by hand.
"""

from __future__ import annotations

import csv
import gzip
import html
import io
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from goldiclip.config import ConfigError
from goldiclip.prepare.images import IMAGE_SUFFIXES, open_parquet, with_record
from goldiclip.types import CAPTION_SOURCES

By = Literal["url", "name", "key", "sha256"]
Captions = dict[str, list[str]]  # by source

# What tables call the column that names the image, by kind and in order of trust.
_NAMES: dict[By, tuple[str, ...]] = {
    "sha256": ("sha256",),
    "url": ("url", "image_url", "image url", "image path", "url_link"),
    "key": ("key", "__key__", "image_key"),
    "name": ("file_name", "filename", "image", "image_name", "image_path", "path", "file", "img", "image_id", "id"),
}
_DREAMLIP = re.compile(r"(raw|short|long)[A-Za-z0-9]*_captions?")
_RAW = ("caption", "captions", "raw", "text", "texts", "alt_text", "comment", "sentence", "sentences", "title")
_ABSENT = frozenset(("", "nan", "none", "null", "[]"))
MAX_CELL_CHARACTERS = 1 << 20
_DELIMITERS = ",\t;|"  # Flickr30k's table has bars
_NOT_CAPTIONS = "_stats.json"  # img2dataset's, beside its parquet
SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".jsonl", ".ndjson", ".jsonl.gz", ".parquet", ".json")


@dataclass(frozen=True)
class Columns:
    """Which column names the image, in what way, and which columns hold captions of which source."""

    key: str
    by: By
    captions: Mapping[str, str]  # column -> source


@dataclass
class Reading:
    """What was met while a table was read."""

    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    absent: Counter[str] = field(default_factory=Counter)  # cells without a caption, by column
    position: Callable[[], int] = lambda: 0  # bytes of the table that were read


def read_table(path: Path, columns: Columns, reading: Reading) -> Iterator[tuple[str, Captions]]:
    """(what names the image, its captions) for every row that has both."""
    for row in raw_rows(path, reading):
        reading.rows += 1
        key = normal_key(columns.by, row.get(columns.key))
        if not key:
            reading.counts["row without key"] += 1
            continue
        captions: Captions = {}
        for name, source in columns.captions.items():
            texts = list(_texts(row.get(name)))
            reading.absent[name] += not texts
            captions.setdefault(source, []).extend(texts)
        found = {source: texts for source, texts in captions.items() if texts}
        if found:
            yield key, found
        else:
            reading.counts["row without caption"] += 1


def find_columns(
    path: Path, key: str = "", by: By | Literal["auto"] = "auto", captions: Mapping[str, str] | None = None
) -> Columns:
    """The columns of a table, as its header and first row show them; what is said by hand goes before."""
    row = next(raw_rows(path, Reading()), None)
    if row is None:
        raise ConfigError(f"{path}: no rows; expected a header and at least one row")
    named = [name for name in (key, *(captions or {})) if name and name not in row]
    if named:
        raise ConfigError(f"{path}: no column {named[0]!r}; it has {', '.join(map(repr, row))}")
    sources = dict(captions or {}) or _caption_columns(row)
    wrong = [source for source in sources.values() if source not in CAPTION_SOURCES]
    if wrong:
        raise ConfigError(f"caption source {wrong[0]!r}: expected {', '.join(CAPTION_SOURCES)}")
    kind, column = _key_column(row, key, by, sources)
    if not column or not sources:
        what = "names the image" if not column else "holds captions"
        raise ConfigError(
            f"{path}: no column that {what} among {', '.join(map(repr, row))}; say which with "
            f"{'--key-column' if not column else '--caption-columns NAME=raw …'}"
        )
    return Columns(column, kind, sources)


def _caption_columns(row: Mapping[str, Any]) -> dict[str, str]:
    found = {name: match[1] for name in row if (match := _DREAMLIP.fullmatch(name))}
    return found or {name: "raw" for name in row if name.lower() in _RAW}


def _key_column(
    row: Mapping[str, Any], key: str, by: By | Literal["auto"], captions: Mapping[str, str]
) -> tuple[By, str]:
    if key:
        return (by, key) if by != "auto" else (_kind_of(key, row[key]), key)
    lower = {name.lower(): name for name in row if name not in captions and isinstance(row[name], str | int)}
    if by != "auto":
        usual = [name for names in _NAMES.values() for name in names]
        fitting = [name for name in (*_NAMES[by], *usual, *lower) if name in lower and _fits(by, row[lower[name]])]
        return by, lower[fitting[0]] if fitting else ""
    for name in (name for kind in get_args(By) for name in _NAMES[kind]):
        if name in lower:
            return _kind_of(name, row[lower[name]]), lower[name]
    return "name", ""


def _fits(by: By, value: Any) -> bool:
    """Whether a cell can be what it is said to be: anything can be a name or a key."""
    return by in ("name", "key") or _kind_of("", value) == by


def _kind_of(name: str, value: Any) -> By:
    """DreamLIP calls a URL "Image Path"; others mean it."""
    text = str(value).strip().lower()
    if re.match(r"[a-z][a-z0-9+.-]*://", text):
        return "url"
    if re.fullmatch(r"[0-9a-f]{64}", text):
        return "sha256"
    return "key" if name.lower() in _NAMES["key"] else "name"


def normal_key(by: By, value: Any) -> str:
    """What two spellings of one image have in common; "" when there is nothing."""
    text = "" if value is None or (isinstance(value, float) and math.isnan(value)) else str(value).strip()
    if text.lower() in _ABSENT:
        return ""
    if by == "url":
        rest = html.unescape(text).partition("://")[2]
        if not rest:
            return text
        host, slash, path = rest.partition("/")
        return f"{host.lower()}{slash}{path.split('#')[0]}"  # http and https lead to one image
    if by == "name":
        stem, dot, suffix = text.replace("\\", "/").rsplit("/", 1)[-1].rpartition(".")
        return stem if f".{suffix.lower()}" in IMAGE_SUFFIXES else f"{stem}{dot}{suffix}"
    return text.lower() if by == "sha256" else text


def _texts(value: Any) -> Iterator[str]:
    """A cell's captions. A string is one, unless it is a JSON list; NaN, null and what says so are none."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("[") and text.endswith("]"):
            try:
                value = json.loads(text)
            except ValueError:
                value = text
        else:
            value = text
    for item in value if isinstance(value, list | tuple) else [value]:
        item = item.get("raw", item.get("caption")) if isinstance(item, Mapping) else item
        if isinstance(item, str) and item.strip().lower() not in _ABSENT:
            yield item.strip()


# --- formats --------------------------------------------------------------------------------------------------------


def raw_rows(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    """Every row of a table as it stands there."""
    try:
        yield from _rows(path, reading)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(f"{path}: broken after {reading.rows:,} rows ({error}); fetch it anew") from error


def _rows(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    name = path.name.lower()
    if name.endswith((".csv", ".csv.gz")):
        return _csv_rows(path, "", reading)
    if name.endswith((".tsv", ".tsv.gz")):
        return _csv_rows(path, "\t", reading)
    if name.endswith((".jsonl", ".ndjson", ".jsonl.gz")):
        return _json_lines(path, reading)
    if name.endswith(".parquet"):
        return _parquet_rows(path, reading)
    if name.endswith(".json"):
        return iter(_json_rows(path))
    raise ConfigError(f"{path}: expected a table ending in {', '.join(SUFFIXES)}")


def _csv_rows(path: Path, delimiter: str, reading: Reading) -> Iterator[dict[str, Any]]:
    """Rows below a header, which shows by what cells are parted. An open quote swallows rows: each counts."""
    csv.field_size_limit(MAX_CELL_CHARACTERS)
    with _open_text(path, reading) as file:
        lines = (line.replace("\0", "") for line in file)
        first = next(lines, "")
        delimiter = delimiter or max(_DELIMITERS, key=first.count)
        header = [name.strip() for name in next(csv.reader([first], delimiter=delimiter), [])]
        rows, before = csv.reader(lines, delimiter=delimiter), 0
        while True:
            try:
                cells = next(rows)
            except StopIteration:
                return
            except csv.Error:
                cells = [""] * (len(header) + 1)
            if len(cells) == len(header):
                yield dict(zip(header, cells))
            elif cells:
                reading.counts["malformed row"] += rows.line_num - before
            before = rows.line_num


def _json_lines(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    with _open_text(path, reading) as file:
        for line in file:
            try:
                row = json.loads(line) if line.strip() else None
            except ValueError:
                row = 0
            if isinstance(row, dict):
                yield row
            elif row is not None:
                reading.counts["malformed row"] += 1


def _parquet_rows(path: Path, reading: Reading) -> Iterator[dict[str, Any]]:
    file = open_parquet(path)
    size, rows, before = path.stat().st_size, max(file.metadata.num_rows, 1), reading.rows
    reading.position = lambda: size * (reading.rows - before) // rows
    # Images are no captions: bytes, or a struct with bytes in it, stay on the disk.
    names = [field.name for field in file.schema_arrow if "binary" not in str(field.type)]
    for batch in file.iter_batches(batch_size=1_024, columns=names):
        yield from map(with_record, batch.to_pylist())


def _json_rows(path: Path) -> Iterable[dict[str, Any]]:
    """COCO ({"images", "annotations"}), Karpathy ({"images": [{"sentences"}]}), or a list of objects."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}; one object per line is JSON lines, named .jsonl") from error
    lists = found if isinstance(found, dict) else {"data": found}
    objects = {name: lists[name] for name in ("images", "annotations", "data") if _are_objects(lists.get(name))}
    if not objects:
        raise ConfigError(f"{path}: expected COCO's captions, Karpathy's split or a list of objects")
    if "images" in objects and "annotations" in objects:
        images = {image["id"]: image for image in objects["images"] if "id" in image}
        said = [(images.get(item.get("image_id"), {}), item.get("caption")) for item in objects["annotations"]]
        names = ("file_name", "coco_url")
        return [{**{name: image.get(name) for name in names}, "caption": text} for image, text in said if image]
    return next(iter(objects.values()))


def _are_objects(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(item, dict) for item in found)


@contextmanager
def _open_text(path: Path, reading: Reading) -> Iterator[io.TextIOBase]:
    with open(path, "rb") as stored:
        reading.position = stored.tell
        opened: Any = gzip.GzipFile(fileobj=stored) if path.name.endswith(".gz") else stored
        with io.TextIOWrapper(opened, encoding="utf-8-sig", errors="replace", newline="") as text:
            yield text


def tables_in(paths: Sequence[Path]) -> list[Path]:
    """Tables named, and those inside folders named."""
    found = []
    for path in paths:
        inside = (
            sorted(item for item in path.iterdir() if item.name.endswith(SUFFIXES) and _NOT_CAPTIONS not in item.name)
            if path.is_dir()
            else [path]
        )
        if not inside or not path.exists():
            raise FileNotFoundError(f"{path}: no caption table there ({', '.join(SUFFIXES)})")
        found += inside
    return found
