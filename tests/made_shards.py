"""Samples and tars made for tests: sound ones, and ones of exactly the members asked for."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from goldiclip.data.shards import Shards
from goldiclip.types import Caption, Region, Sample

JPEG = b"\xff\xd8\xff\xe0 not decoded here"


def sample(number: int, key: str = "") -> Sample:
    box = (0.1, 0.2, 0.3, 0.4)
    return Sample(
        key=key or f"{number:06d}",
        image=JPEG + bytes(number % 700),
        captions=(Caption(f"caption {number}"), Caption("Long. Text.", "long")),
        regions=(Region("thing", box, "a thing", 0.5),),
        meta={"number": number},
    )


def members(path: Path, *items: tuple[str, bytes] | tarfile.TarInfo, format: int = tarfile.USTAR_FORMAT) -> Path:
    """A tar of exactly these members, whatever their names."""
    with tarfile.open(path, "w", format=format) as tar:
        for item in items:
            info = item if isinstance(item, tarfile.TarInfo) else tarfile.TarInfo(item[0])
            payload = b"" if isinstance(item, tarfile.TarInfo) else item[1]
            info.size = len(payload)
            tar.addfile(info, io.BytesIO(payload))
    return path


def record(text: str = "c") -> bytes:
    return json.dumps({"caption": text}).encode()


def pair(key: str, text: str = "c") -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    return (f"{key}.jpg", JPEG), (f"{key}.json", record(text))


def keys(shards: Shards) -> list[str]:
    return [key for number in range(len(shards.paths)) for key in shards.keys(number)]
