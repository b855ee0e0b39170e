"""From what a detector says to the regions a sample keeps: geometry and choice, apart from any model.

A detector gives, for each of its guesses, a box and a score per phrase. A guess speaks for its best phrase; boxes go to
fractions of the stored image; then, per phrase, weak boxes and overlapping ones fall away and the best few stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from goldiclip.config import ConfigError
from goldiclip.types import Region


@dataclass(frozen=True)
class BoxLimits:
    """What is kept: the paper names no numbers; these are OWLv2's own and what training draws from."""

    min_score: float = 0.1
    """Stored from here on; training samples from 0.3."""
    max_overlap: float = 0.5
    """Intersection over union above which the weaker of two boxes of one phrase goes."""
    per_phrase: int = 3
    per_image: int = 10

    def __post_init__(self) -> None:
        for name, least, most in (
            ("min_score", 0, 1),
            ("max_overlap", 0, 1),
            ("per_phrase", 1, 100),
            ("per_image", 1, 1000),
        ):
            if not least <= getattr(self, name) <= most:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} is {getattr(self, name):g}; expected {least} to {most}")

    def fingerprint(self) -> dict[str, float]:
        return asdict(self)


DEFAULT = BoxLimits()


def corners(centred: Tensor) -> Tensor:
    """(…, 4) centre x, centre y, width, height -> x0, y0, x1, y1."""
    centre, half = centred[..., :2], centred[..., 2:] / 2
    return torch.cat([centre - half, centre + half], dim=-1)


def from_padded_square(boxes: Tensor, height: int, width: int) -> Tensor:
    """Boxes in fractions of the square that an image was padded to, right and below, as fractions of the image."""
    side = max(height, width)
    return boxes * torch.tensor([side / width, side / height] * 2, dtype=boxes.dtype, device=boxes.device)


def regions_of(boxes: Tensor, scores: Tensor, phrases: Sequence[str], min_score: float) -> list[Region]:
    """Guesses as regions. boxes (N, 4) in fractions of the image, scores (N, Q) in 0…1 with one column per phrase.

    A box is clipped to the image; what has no area there (a guess about padding) is no region.
    """
    best, which = scores[:, : len(phrases)].max(dim=1)
    boxes = boxes.clamp(0.0, 1.0)
    has_area = (boxes[:, 2] - boxes[:, 0] > 1e-3) & (boxes[:, 3] - boxes[:, 1] > 1e-3)
    kept = has_area & (best >= min_score) & boxes.isfinite().all(dim=1) & best.isfinite()
    rows = zip(boxes[kept].double().tolist(), best[kept].tolist(), which[kept].tolist())
    return [Region(phrases[phrase], (x0, y0, x1, y1), "", score) for (x0, y0, x1, y1), score, phrase in rows]


def choose(regions: Iterable[Region], limits: BoxLimits = DEFAULT) -> tuple[Region, ...]:
    """The regions worth keeping, rounded: per phrase the best that overlap little, then the best of the image.

    Every phrase keeps its best box before any gets its second.
    """
    by_phrase: dict[str, list[Region]] = {}
    for region in sorted(map(_rounded, regions), key=_by_score):
        kept = by_phrase.setdefault(region.phrase, [])
        if region.score < limits.min_score or len(kept) >= limits.per_phrase or not _area(region.box) > 0:
            continue
        if all(overlap(region.box, other.box) <= limits.max_overlap for other in kept):
            kept.append(region)
    ranked = sorted(
        ((rank, *_by_score(region), region) for kept in by_phrase.values() for rank, region in enumerate(kept)),
        key=lambda item: item[:-1],
    )
    return tuple(item[-1] for item in ranked[: limits.per_image])


def overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """Intersection over union."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    return shared / (_area(one) + _area(other) - shared)


def _area(box: Sequence[float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _by_score(region: Region) -> tuple[float, str, tuple[float, ...]]:
    return -region.score, region.phrase, region.box


def _rounded(region: Region) -> Region:
    """Five decimals are a tenth of a pixel at 10,000: rounded first, a detector's last bits decide nothing."""
    x0, y0, x1, y1 = (round(corner, 5) for corner in region.box)
    return Region(region.phrase, (x0, y0, x1, y1), region.sentence, round(region.score, 4))
