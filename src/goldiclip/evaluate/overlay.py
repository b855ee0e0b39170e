"""Segmentations to look at: the picture, what was predicted, what was labelled, and the names of the colours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from goldiclip.inference.colours import class_colour, tint

MARGIN, LINE, MOST_NAMES = 8, 38, 15
LETTERS = 28  # pixels high: to be read where a page shows the sheet at a third of its size
WIDTH = 360  # of each of the three


def save_overlay(path: Path, image: Tensor, predicted: Tensor, labelled: Tensor, names: Sequence[str]) -> None:
    """Three panels and a legend of the largest classes, as a PNG. Unlabelled pixels stay the picture's."""
    picture = image.permute(1, 2, 0).numpy()
    maps = (predicted.numpy(), labelled.numpy())
    panels = [Image.fromarray(panel) for panel in (picture, *(tint(picture, one, len(names)) for one in maps))]
    height = max(1, round(WIDTH * picture.shape[0] / picture.shape[1]))
    shown = _largest(maps, len(names))
    rows = (len(shown) + 2) // 3
    sheet = Image.new("RGB", (3 * WIDTH + 4 * MARGIN, height + 3 * MARGIN + LINE + rows * LINE), "white")
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(LETTERS)
    for place, (panel, title) in enumerate(zip(panels, ("image", "predicted", "labelled"), strict=True)):
        left = MARGIN + place * (WIDTH + MARGIN)
        draw.text((left, MARGIN // 2), title, fill="black", font=font)
        sheet.paste(panel.resize((WIDTH, height), Image.Resampling.BILINEAR), (left, MARGIN // 2 + LINE))
    top = height + LINE + 2 * MARGIN
    for place, known in enumerate(shown):
        left, down = MARGIN + (place % 3) * (WIDTH + MARGIN), top + (place // 3) * LINE
        draw.rectangle((left, down + 6, left + 22, down + 28), fill=class_colour(known), outline="black")
        draw.text((left + 32, down), names[known], fill="black", font=font)
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)


def _largest(maps: Sequence[np.ndarray], num_classes: int) -> list[int]:
    counts = sum(np.bincount(one[one < num_classes].ravel(), minlength=num_classes) for one in maps)
    order = np.argsort(-np.asarray(counts), kind="stable")[:MOST_NAMES]
    return [int(one) for one in order if np.asarray(counts)[one] > 0]
