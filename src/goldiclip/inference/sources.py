"""Pictures to index: folders and shards, each picture with an id that stays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from zlib import crc32

from goldiclip.config import ConfigError
from goldiclip.data.schema import BadSample
from goldiclip.data.shards import Shards
from goldiclip.inference.pictures import Picture

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif"}


@dataclass(frozen=True)
class Item:
    """One picture to index: an id that stays, and words about it to filter by."""

    id: str
    picture: Picture
    record: Mapping[str, str] = field(default_factory=dict)


def sources(names: Sequence[str], rank: int = 0, ranks: int = 1) -> Iterator[Item]:
    """Pictures of folders, single files and shards, in order; of several ranks, this one's share."""
    if not names:
        raise ConfigError("nothing to index: expected folders of images, image files or shards")
    return chain.from_iterable(_source(name, rank, ranks) for name in names)


def _source(name: str, rank: int, ranks: int) -> Iterator[Item]:
    path = Path(name)
    if path.is_dir() and not any(path.glob("*.tar")):
        return images_in(path, rank, ranks)
    if path.is_file() and path.suffix != ".tar":
        is_mine = _share(path.name, ranks) == rank
        return iter([Item(path.name, path.resolve(), {"folder": path.parent.name})] if is_mine else [])
    return images_of(name, rank, ranks)


def _share(id: str, ranks: int) -> int:
    """Which of several ranks an id belongs to, wherever it is met."""
    return crc32(id.encode()) % ranks


def images_in(folder: str | Path, rank: int = 0, ranks: int = 1) -> Iterator[Item]:
    """Every picture below a folder, by its path there; a folder of its own becomes `folder` to filter by."""
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder of images")
    found = sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES)
    for path in found:
        inside = path.relative_to(root)
        if _share(id := _readable(inside), ranks) == rank and path.is_file():
            yield Item(id, path.resolve(), {"folder": _readable(inside.parent)})


def _readable(path: Path) -> str:
    """A path as text, whatever its bytes are."""
    return os.fsencode(path.as_posix()).decode(errors="backslashreplace")


def images_of(shards: str | Sequence[str], rank: int = 0, ranks: int = 1) -> Iterator[Item]:
    """Every sample of shards, by its key; its first caption becomes `caption`. A bad one says so when looked at."""
    samples = Shards(shards)
    for position in range(len(samples)):
        shard, row = samples.locate(position)
        if ranks > 1 and _share(samples.key(shard, row), ranks) != rank:
            continue
        try:
            sample = samples.read(shard, row)
        except BadSample as error:
            yield Item(error.key or f"{Path(error.origin or str(shards)).name} {row}", error)
            continue
        caption = {"caption": sample.captions[0].text} if sample.captions else {}
        origin = Path(sample.origin)
        where = {"shard": str(origin.resolve() if origin.exists() else sample.origin), "row": str(row)}
        yield Item(sample.key, sample.image, {**where, **caption})


def place_of(picture: str | Path) -> dict[str, str]:
    """What a record says of where its picture is, so that `picture_of` finds it. File names need not be text."""
    try:
        str(picture).encode()
    except UnicodeEncodeError:
        return {"path_hex": os.fsencode(picture).hex()}
    return {"path": str(picture)}


def picture_of(record: Mapping[str, str]) -> Picture:
    """The picture that an index's record was made of, from where it was read."""
    if "path" in record:
        return Path(record["path"])
    if "path_hex" in record:
        return Path(os.fsdecode(bytes.fromhex(record["path_hex"])))
    if "shard" in record:
        return _shard(record["shard"]).read(0, int(record["row"])).image
    raise FileNotFoundError(f"{record.get('id', 'a picture')}: the index does not know where it came from")


@lru_cache(maxsize=64)
def _shard(path: str) -> Shards:
    return Shards(path)
