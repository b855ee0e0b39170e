"""Scenes from a folder of named RGBA cut-outs, on photographs or on drawn grounds.

Three layouts are read: `cutouts.json` (a list of {"file", "name", …}) beside `cutouts.tar`; a folder per name; files
named `name_123.png`. A quarter of each name's cut-outs, chosen by file name, is held out: training never shows them.
"""

from __future__ import annotations

import colorsys
import hashlib
import io
import json
import os
import re
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random

import numpy as np
from PIL import Image

from goldiclip.config import ConfigError
from goldiclip.data.scenes.draw import visible_box
from goldiclip.data.scenes.graph import Look, Split
from goldiclip.data.scenes.props import Drawn, Ground
from goldiclip.data.scenes.vocabulary import AIRBORNE

SUFFIXES = (".png", ".webp", ".gif", ".jpg", ".jpeg")
HELD_OUT_EVERY = 4
NAMED_SHARE = 0.55  # of the opaque pixels in one colour: from there on the cut-out is said to have it
MAX_FILE_BYTES = 16 << 20
MAX_PIXELS = 4_096 * 4_096
FLYING = AIRBORNE | {
    "bird",
    "bee",
    "eagle",
    "dove",
    "owl",
    "bat",
    "helicopter",
    "comet",
    "rainbow",
    "full moon",
    "new moon",
}


class Pictures:
    """The image files of a folder, or of a tar; nothing else is read, nothing is extracted."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise FileNotFoundError(f"{path}: no such folder or tar")
        self.path = path
        self._members: dict[str, tuple[int, int]] = {}
        if path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
            self.names = [str(file.relative_to(path)) for file in files]
            return
        try:
            with tarfile.open(path, "r:") as tar:
                for member in tar:
                    if member.isfile() and Path(member.name).suffix.lower() in SUFFIXES:
                        self._members[member.name] = (member.offset_data, member.size)
        except tarfile.TarError as error:
            raise ConfigError(f"{path}: neither a folder nor a plain tar of pictures ({error})") from error
        self.names = sorted(self._members)
        self._descriptor = os.open(path, os.O_RDONLY)

    def __getitem__(self, name: str) -> Image.Image:
        start, size = self._members.get(name, (0, 0))
        if not self._members:
            size = (self.path / name).stat().st_size
        if size > MAX_FILE_BYTES:
            raise ConfigError(f"{self.path}, {name}: {size:,} bytes; allowed: {MAX_FILE_BYTES:,}")
        data = os.pread(self._descriptor, size, start) if self._members else (self.path / name).read_bytes()
        try:
            image = Image.open(io.BytesIO(data))
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"{image.width} × {image.height} pixels")
            image.load()
        except Exception as error:
            raise ConfigError(f"{self.path}, {name}: not a picture that can be used ({error}); remove it") from error
        return image


class Cutouts:
    """Named cut-outs as the things of scenes."""

    def __init__(self, folder: Path, backgrounds: Path | None = None, num_kinds: int = 0) -> None:
        self._pictures, names = _catalogue(folder)
        by_kind: dict[str, list[str]] = {}
        for file, kind in sorted(names.items()):
            by_kind.setdefault(kind, []).append(file)
        frequent = sorted(by_kind, key=lambda kind: (-len(by_kind[kind]), kind))[: num_kinds or len(by_kind)]
        self._files = {split: {kind: _part(by_kind[kind], split) for kind in sorted(frequent)} for split in SPLITS}
        self._kinds = {split: [kind for kind, files in part.items() if files] for split, part in self._files.items()}
        if not self._kinds["held_out"]:
            raise ConfigError(f"{folder}: no name has two cut-outs or more, so none can be held out")
        self._photographs = Pictures(backgrounds) if backgrounds else None
        if self._photographs and len(self._photographs.names) < 2:
            raise ConfigError(f"{backgrounds}: {len(self._photographs.names)} photographs; expected 2 or more")
        self._drawn = Drawn()
        self._opened = lru_cache(maxsize=1_024)(self._open)
        self._colour = lru_cache(maxsize=None)(lambda file: colour_name(self._opened(file)))
        photographs = self._photographs.names if self._photographs else []
        listing = json.dumps([sorted((file, names[file]) for file in names), photographs])
        self.fingerprint = hashlib.sha256(listing.encode()).hexdigest()[:16]

    def kinds(self, split: Split) -> Sequence[str]:
        return self._kinds[split]

    def choose(self, kind: str, split: Split, random: Random, but: Sequence[str] = ()) -> Look | None:
        files = self._files[split][kind]
        if but:
            files = [file for file in files if self._colour(file) not in ("", *but)]
        if not files:
            return None
        file = random.choice(files)
        return Look(kind, self._colour(file), cutout=file)

    def picture(self, look: Look, pixels: int, degrees: float, flip: bool) -> Image.Image:
        picture = self._opened(look.cutout)
        scale = pixels / max(picture.size)
        side = (max(2, round(picture.width * scale)), max(2, round(picture.height * scale)))
        picture = picture.resize(side, Image.Resampling.LANCZOS)
        if flip:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        picture = picture.rotate(-degrees, Image.Resampling.BICUBIC, expand=True)
        return picture.crop(visible_box(picture))

    def ground(self, size: int, split: Split, random: Random) -> Ground:
        if self._photographs is None:
            return self._drawn.ground(size, split, random)
        names = _part(self._photographs.names, split)
        photograph = self._photographs[random.choice(names)].convert("RGB")
        side = max(1, round(min(photograph.size) * random.uniform(0.75, 1)))
        x, y = random.randint(0, photograph.width - side), random.randint(0, photograph.height - side)
        return Ground("", photograph.resize((size, size), Image.Resampling.BICUBIC, (x, y, x + side, y + side)))

    def is_airborne(self, kind: str) -> bool:
        return kind in FLYING

    def _open(self, file: str) -> Image.Image:
        picture = self._pictures[file].convert("RGBA")
        box = visible_box(picture)
        if box is None:
            raise ConfigError(f"{self._pictures.path}, {file}: nothing in it is opaque; remove it")
        picture = picture.crop(box)
        picture.thumbnail((512, 512))
        return picture


SPLITS: tuple[Split, ...] = ("train", "held_out")


def _part(files: Sequence[str], split: Split) -> list[str]:
    """The files of a split: every fourth in the order of their hashes is held out, one at least when there are two."""
    order = sorted(files, key=lambda file: (zlib.crc32(file.encode()), file))
    return [file for i, file in enumerate(order) if (i % HELD_OUT_EVERY == 1) == (split == "held_out")]


def _catalogue(folder: Path) -> tuple[Pictures, Mapping[str, str]]:
    """Where the pictures are, and what each one is called."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: no such folder of cut-outs")
    if (folder / "cutouts.json").exists():
        pictures = Pictures(folder / "cutouts.tar" if (folder / "cutouts.tar").exists() else folder)
        listed = _listed(folder / "cutouts.json")
        missing = sorted(set(listed) - set(pictures.names))
        if missing:
            raise ConfigError(f"{folder}: cutouts.json lists {len(missing)} files that are not there ({missing[0]}, …)")
        return pictures, listed
    pictures = Pictures(folder)
    names = {file: _name(Path(file)) for file in pictures.names}
    if not names:
        raise ConfigError(
            f"{folder}: no picture ({', '.join(SUFFIXES)}) in it; expected cutouts.json, name/….png or name_1.png"
        )
    return pictures, names


def _listed(file: Path) -> dict[str, str]:
    try:
        return {str(entry["file"]): str(entry["name"]) for entry in json.loads(file.read_text())}
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f'{file}: expected a list of {{"file": …, "name": …}} ({error!r:.80})') from error


def _name(file: Path) -> str:
    """cup/03.png, cup_03.png: a cup."""
    word = file.parent.name if file.parent.name else re.sub(r"[_\- ]*\d+$", "", file.stem)
    return re.sub(r"[_\-\s]+", " ", word).strip().lower()


def colour_name(picture: Image.Image) -> str:
    """The colour that most of a cut-out has, "" when none has a clear majority."""
    small = np.asarray(picture.resize((24, 24), Image.Resampling.BOX)).reshape(-1, 4)
    opaque = small[small[:, 3] > 200, :3] / 255
    if len(opaque) < 24:
        return ""
    names = [_colour_of(*pixel) for pixel in opaque.tolist()]
    best = max(sorted(set(names)), key=names.count)
    return best if names.count(best) >= NAMED_SHARE * len(names) else ""


def _colour_of(red: float, green: float, blue: float) -> str:
    hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
    degrees = hue * 360
    if value < 0.24:
        return "black"
    if saturation < 0.16:
        return "white" if value > 0.88 else "grey"
    if (degrees < 48 and value < 0.62) or (15 < degrees < 40 and saturation < 0.6 and value < 0.75):
        return "brown"
    if (degrees > 300 or degrees < 12) and saturation < 0.62 and value > 0.7:
        return "pink"
    limits = (
        (14, "red"),
        (40, "orange"),
        (68, "yellow"),
        (165, "green"),
        (255, "blue"),
        (295, "purple"),
        (338, "pink"),
    )
    return next((name for limit, name in limits if degrees < limit), "red")
