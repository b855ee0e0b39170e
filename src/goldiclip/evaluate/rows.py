"""Numbers as rows: with what they were measured on, and where the protocol is not to the letter the published one."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from goldiclip.evaluate.datasets import benchmarks
from goldiclip.evaluate.datasets.items import Items, Masked
from goldiclip.evaluate.metrics import Estimate
from goldiclip.evaluate.options import Options, own_fit
from goldiclip.evaluate.results import Results, Row
from goldiclip.inference.engine import Engine
from goldiclip.inference.segment import PROTOCOL_SIZE

Measured = Iterator[tuple[str, float]]


def as_rows(name: str, items: Items, measured: Measured, results: Results) -> tuple[list[Row], dict[str, float]]:
    """Numbers as rows. `counts/…` go into every row; the IoU of each class goes into details."""
    counts, details, numbers = {}, {}, {}
    for key, value in measured:
        if key.startswith("counts/"):
            counts[key.removeprefix("counts/")] = int(value)
        elif "/iou/" in key:
            details[key] = value
        else:
            numbers[key] = value
    start = Row(
        set=name,
        family=benchmarks()[name].family if name in benchmarks() else "custom",
        split=items.split,
        mode="",
        metric="",
        value=math.nan,
        low=math.nan,
        high=math.nan,
        counts=counts,
        annotations=annotation_hash(items),
        model=results.model_hash,
        command=results.command,
    )
    rows = []
    for key, value in numbers.items():
        mode, _, metric = key.partition("/")
        low, high = (value.low, value.high) if isinstance(value, Estimate) else (math.nan, math.nan)
        rows.append(replace(start, mode=mode, metric=metric, value=float(value), low=low, high=high))
    return rows, details


def annotation_hash(items: Items) -> str:
    """SHA-256 of the annotation files one after another, 16 digits: of one file, what sha256sum says.

    Masks count by name and size, pictures that no file lists by name and folder.
    """
    digest = hashlib.sha256()
    for path in items.annotations:
        digest.update(path.read_bytes() if path.is_file() else path.name.encode())
    if isinstance(items, Masked):
        for mask in items.masks:
            digest.update(f"{mask.name} {mask.stat().st_size}\n".encode())
    elif not items.annotations:
        digest.update("\n".join("/".join(Path(str(one)).parts[-2:]) for one in items.pictures).encode())
    return digest.hexdigest()[:16]


def deviations(engine: Engine, items: Items, options: Options) -> tuple[str, ...]:
    """Where this evaluation is not to the letter the published one, by name."""
    named = []
    if isinstance(items, Masked):
        named.append("bilinear resizing by torch (published: OpenCV's, which rounds otherwise)")
        if engine.image_size != PROTOCOL_SIZE:
            named.append(f"windows of {engine.image_size} pixels, images scaled alike (published: {PROTOCOL_SIZE})")
        if options.spaced:
            named.append("class names with their spaces (published: run together)")
    else:
        named.append("bicubic resizing of uint8 tensors, antialiased (published: Pillow's)")
        if options.fit not in (None, own_fit(engine)):
            ways = ("images squeezed to a square", "shorter side resized, centre cropped")
            named.append("{} (published: {})".format(*(ways if options.fit == "whole" else ways[::-1])))
        named.append("ties in expectation (published: as the sort leaves them)")
    if engine.precision != "fp32":
        named.append(f"{engine.precision} autocast")
    return tuple(named)
