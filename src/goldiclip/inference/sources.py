"""Pictures to index: folders and shards, each picture with an id that stays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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


def images_in(folder: str | Path) -> Iterator[Item]:
    """Every picture below a folder, by its path there; a folder of its own becomes `folder` to filter by."""
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder of images")
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() in SUFFIXES and path.is_file():
            yield Item(
                path.relative_to(root).as_posix(), path.resolve(), {"folder": path.parent.relative_to(root).as_posix()}
            )


def images_of(shards: str | Sequence[str]) -> Iterator[Item]:
    """Every readable sample of shards, by its key; its first caption becomes `caption`."""
    samples = Shards(shards)
    for position in range(len(samples)):
        try:
            sample = samples[position]
        except BadSample:
            continue
        caption = {"caption": sample.captions[0].text} if sample.captions else {}
        yield Item(sample.key, sample.image, {"shard": sample.origin, **caption})
