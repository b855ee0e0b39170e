"""Segmentation sets in mmsegmentation's layouts, with SCLIP's class names and image sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from goldiclip.evaluate.datasets.items import Masked, is_there
from goldiclip.evaluate.datasets.reading import first_there, read_json, words
from goldiclip.evaluate.problems import BadData, Problems

Reader = Callable[[Path, Problems], Masked]
Synonyms = tuple[str, ...]


@cache
def _data() -> dict[str, Any]:
    return yaml.safe_load((Path(__file__).parent / "classes.yaml").read_text())


def classes(name: str, spaced: bool = False) -> tuple[Synonyms, ...]:
    """A set's classes with their synonyms: as published, or with run-together words spaced."""
    names = tuple(tuple(one.strip() for one in line.split(",")) for line in _data()[name])
    return space(names) if spaced else names


def space(names: Iterable[Synonyms]) -> tuple[Synonyms, ...]:
    known = _data()["spaced"]
    return tuple(tuple(known.get(name, name) for name in synonyms) for synonyms in names)


def voc20(home: Path, problems: Problems) -> Masked:
    """VOC 2012 val without the background class."""
    return _voc("voc20", first_there(home / "VOC2012", home), "Segmentation", "SegmentationClass", problems)


def context59(home: Path, problems: Problems) -> Masked:
    """PASCAL-Context val without the background class."""
    base = first_there(home / "VOC2010", home)
    return _voc("context59", base, "SegmentationContext", "SegmentationClassContext", problems)


def _voc(name: str, base: Path, listed: str, masks: str, problems: Problems) -> Masked:
    listing = base / f"ImageSets/{listed}/val.txt"
    pairs = ((base / f"JPEGImages/{key}.jpg", base / f"{masks}/{key}.png") for key in words(listing))
    return _masked(name, "val", [listing], pairs, problems, zero_is_ignored=True, short_side=336)


def ade20k(home: Path, problems: Problems) -> Masked:
    base = first_there(home / "ADEChallengeData2016", home)
    images = sorted((base / "images/validation").glob("*.jpg"))
    pairs = ((image, base / f"annotations/validation/{image.stem}.png") for image in images)
    return _masked("ade20k", "validation", [], pairs, problems, zero_is_ignored=True, short_side=336)


def cityscapes(home: Path, problems: Problems) -> Masked:
    end = "_gtFine_labelTrainIds.png"
    masks = sorted((home / "gtFine/val").glob(f"*/*{end}"))
    if not masks and any((home / "gtFine/val").glob("*/*_gtFine_labelIds.png")):
        raise BadData(f"{home / 'gtFine/val'}: no *{end}; make them with cityscapesscripts' createTrainIdLabelImgs")
    images = home / "leftImg8bit/val"
    pairs = ((images / mask.parent.name / f"{mask.name.removesuffix(end)}_leftImg8bit.png", mask) for mask in masks)
    return _masked("cityscapes", "val", [], pairs, problems, zero_is_ignored=False, short_side=560)


def coco_stuff(home: Path, problems: Problems) -> Masked:
    end = "_labelTrainIds.png"
    masks = sorted((home / "annotations/val2017").glob(f"*{end}"))
    if not masks and any((home / "annotations/val2017").glob("*.png")):
        raise BadData(f"{home / 'annotations/val2017'}: no *{end}; make them with mmsegmentation's coco_stuff164k.py")
    pairs = ((home / f"images/val2017/{mask.name.removesuffix(end)}.jpg", mask) for mask in masks)
    return _masked("coco_stuff", "val2017", [], pairs, problems, zero_is_ignored=False, short_side=448)


def read_folder(home: Path, problems: Problems, split: str = "all") -> Masked:
    """images/, masks/ and classes.json: {"classes": [name or list of synonyms, …], "ignore": 255}."""
    listing = home / "classes.json"
    found = read_json(listing)
    if not isinstance(found, dict) or not isinstance(found.get("classes"), list):
        raise BadData(f'{listing}: expected {{"classes": [names…], "ignore": 255}}')
    images = sorted(path for path in (home / "images").glob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
    pairs = ((image, home / f"masks/{image.stem}.png") for image in images)
    names = tuple(tuple(one) if isinstance(one, list) else (one,) for one in found["classes"])
    for place, synonyms in enumerate(names):
        if not synonyms or not all(isinstance(one, str) and one.strip() for one in synonyms):
            raise BadData(
                f"{listing}: class {place} is {found['classes'][place]!r}, expected a name or a list of synonyms"
            )
    return _items(names, split, [listing], pairs, problems, False, 336, int(found.get("ignore", 255)))


IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif"}


def _masked(
    name: str,
    split: str,
    listings: list[Path],
    pairs: Iterable[tuple[Path, Path]],
    problems: Problems,
    *,
    zero_is_ignored: bool,
    short_side: int,
) -> Masked:
    return _items(classes(name), split, listings, pairs, problems, zero_is_ignored, short_side, 255)


def _items(
    names: tuple[Synonyms, ...],
    split: str,
    listings: list[Path],
    pairs: Iterable[tuple[Path, Path]],
    problems: Problems,
    zero_is_ignored: bool,
    short_side: int,
    ignore: int,
) -> Masked:
    there = []
    for image, mask in pairs:
        where = listings[0] if listings else mask.parent
        if is_there(image, where, image.stem, problems) and is_there(mask, where, image.stem, problems):
            there.append((image, mask))
    return Masked(
        split=split,
        annotations=tuple(listings),
        pictures=tuple(image for image, _ in there),
        masks=tuple(mask for _, mask in there),
        classes=names,
        zero_is_ignored=zero_is_ignored,
        short_side=short_side,
        ignore=ignore,
    )
