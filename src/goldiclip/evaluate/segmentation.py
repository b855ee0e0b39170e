"""Zero-shot segmentation, measured: the class whose name each patch is most like, by SCLIP's protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from goldiclip.config import ConfigError
from goldiclip.evaluate.classification import class_features
from goldiclip.evaluate.datasets.items import Masked, picture_name
from goldiclip.evaluate.datasets.labels import templates
from goldiclip.evaluate.metrics import Estimate, areas, interval, iou_per_class, mean_iou, resampled_ious
from goldiclip.evaluate.overlay import save_overlay
from goldiclip.evaluate.problems import Problems
from goldiclip.inference.engine import Engine
from goldiclip.inference.pictures import pixels
from goldiclip.inference.segment import predict, segmentation_modes
from goldiclip.types import Alone, Ranks


def segmentation(
    engine: Engine,
    items: Masked,
    *,
    modes: Sequence[str] = ("value",),
    overlays: Path | None = None,
    num_overlays: int = 8,
    ranks: Ranks | None = None,
    problems: Problems | None = None,
) -> Iterator[tuple[str, float]]:
    """Yields `{mode}/mean_iou`, `…/pixel_accuracy` and `…/iou/{class}`.

    Windows are the model's input size and half overlap; a model that sees other than 224 pixels gets images scaled
    alike. Images whose mask cannot be used are left out.
    """
    ranks = ranks or Alone()
    problems = problems if problems is not None else Problems()
    _require(modes, segmentation_modes(engine))
    queries, num_truncated = class_features(engine, items.classes, items.templates or templates("imagenet"), ranks)
    query_class = torch.tensor([place for place, names in enumerate(items.classes) for _ in names])
    found: dict[str, list[Tensor]] = {mode: [] for mode in modes}
    index = []
    for place, image, labelled in _readable(items, ranks, problems):
        index.append(place)
        for mode in modes:
            predicted = predict(engine, image, queries, query_class, mode, items.short_side)
            found[mode].append(areas(predicted.cpu(), labelled, len(items.classes), ignore=255))
            if overlays and place < num_overlays:
                name = Path(picture_name(items.pictures, place)).stem
                names = [synonyms[0] for synonyms in items.classes]
                save_overlay(overlays / f"{name}-{mode}.png", image, predicted.cpu(), labelled, names)
    problems.settle()
    order = ranks.gather(torch.tensor(index, dtype=torch.int64, device=engine.device)).argsort()
    for mode in modes:
        mine = torch.stack(found[mode]) if found[mode] else torch.zeros(0, 3, len(items.classes), dtype=torch.int64)
        yield from _ious(mode, ranks.gather(mine.to(engine.device))[order].cpu(), items)
    yield "counts/images", len(order)
    yield "counts/classes", len(items.classes)
    yield "counts/truncated_texts", num_truncated


def _ious(mode: str, per_image: Tensor, items: Masked) -> Iterator[tuple[str, float]]:
    if not len(per_image):
        yield f"{mode}/mean_iou", Estimate(float("nan"))
        return
    yield f"{mode}/mean_iou", Estimate(mean_iou(per_image), *interval(resampled_ious(per_image)))
    intersect, _, labelled = per_image.sum(0).sum(1).tolist()
    yield f"{mode}/pixel_accuracy", intersect / labelled if labelled else float("nan")
    for names, iou in zip(items.classes, iou_per_class(per_image.sum(0)).tolist(), strict=True):
        yield f"{mode}/iou/{names[0]}", iou


# --- pictures and masks ---------------------------------------------------------------------------------------------


def _readable(items: Masked, ranks: Ranks, problems: Problems) -> Iterator[tuple[int, Tensor, Tensor]]:
    """This rank's images (uint8) with their labels (int64), the next one read meanwhile."""
    places = range(len(items.pictures))[ranks.rank :: ranks.size]
    with ThreadPoolExecutor(1) as pool:
        jobs = [pool.submit(_read, items, place) for place in places[:1]]
        for number, place in enumerate(places):
            if number + 1 < len(places):
                jobs.append(pool.submit(_read, items, places[number + 1]))
            read = jobs.pop(0).result()
            if isinstance(read, Broken):
                problems.add("unreadable image", read.where, f"picture {place}", read.why)
                continue
            image, mask = read
            labelled = _usable(items, place, image, mask, problems)
            if labelled is not None:
                yield place, image, labelled


@dataclass(frozen=True, slots=True)
class Broken:
    """A file that could not be read."""

    where: str
    why: str


def _read(items: Masked, place: int) -> tuple[Tensor, Tensor] | Broken:
    where = picture_name(items.pictures, place)
    try:
        image = pixels(items.pictures[place])
        where = str(items.masks[place])
        with Image.open(where) as mask:
            return image, torch.from_numpy(np.array(mask).astype(np.int64))
    except (ValueError, OSError, SyntaxError, Image.DecompressionBombError) as error:  # SyntaxError: a broken PNG
        return Broken(where, str(error).removeprefix(f"{where}: "))


def _usable(items: Masked, place: int, image: Tensor, labelled: Tensor, problems: Problems) -> Tensor | None:
    """Labels as classes, 255 where none counts; None, and said, for a mask that is not the image's."""
    key = Path(picture_name(items.pictures, place)).name
    if labelled.shape != image.shape[1:]:
        found = f"is {tuple(labelled.shape)}; the image is {tuple(image.shape[1:])} (height, width)"
        problems.add("mask size", items.masks[place], key, found)
        return None
    ignored = labelled == items.ignore
    if items.zero_is_ignored:
        ignored |= labelled == 0
        labelled = labelled - 1
    stray = ~ignored & (labelled >= len(items.classes))
    if stray.any():
        values = (labelled[stray].unique() + items.zero_is_ignored).tolist()
        found = f"has the labels {values[:5]}; there are {len(items.classes)} classes. They are ignored"
        problems.add("class list", items.masks[place], key, found)
    return labelled.masked_fill(ignored | stray, 255)


def _require(modes: Sequence[str], known: Sequence[str]) -> None:
    for mode in modes:
        if mode not in known:
            raise ConfigError(
                f"segmentation cannot be {mode!r} with this encoder; it can be {', '.join(known) or 'none'}"
            )
