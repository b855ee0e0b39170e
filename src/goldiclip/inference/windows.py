"""SCLIP's sliding windows: an image in overlapping crops, what is said of the crops as one map of the image."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

LONGEST_SIDE = 2_048
NUMBERS_AT_ONCE = 1 << 25  # of a band of the full-size map

# Windows (n, 3, h, w) uint8 to logits of queries on their patches (n, Q, rows, columns).
Scorer = Callable[[Tensor], Tensor]


def resize(image: Tensor, short_side: int) -> Tensor:
    """uint8 (3, H, W), shorter side to `short_side` unless the longer would pass 2,048; bilinear, no antialiasing."""
    height, width = image.shape[1:]
    scale = min(LONGEST_SIDE / max(height, width), short_side / min(height, width))
    size = (int(height * scale + 0.5), int(width * scale + 0.5))
    return F.interpolate(image[None].float(), size, mode="bilinear")[0].round().clamp(0, 255).to(torch.uint8)


def starts(length: int, crop: int, stride: int) -> list[int]:
    """Where windows begin along one side: every `stride`, the last one shifted back to end with the image."""
    last = max(length - crop, 0)
    return [min(start, last) for start in range(0, last + stride, stride)]


def slide(image: Tensor, score: Scorer, crop: int, stride: int, batch: int) -> Tensor:
    """(Q, H, W): the mean over windows of their logits, bilinearly enlarged. A side under the crop is one window."""
    height, width = image.shape[1:]
    size = (min(crop, height), min(crop, width))
    corners = [(y, x) for y in starts(height, crop, stride) for x in starts(width, crop, stride)]
    total, count = None, torch.zeros(height, width)
    for start in range(0, len(corners), batch):
        here = corners[start : start + batch]
        windows = torch.stack([image[:, y : y + size[0], x : x + size[1]] for y, x in here])
        for (y, x), logits in zip(here, score(_squared(windows, crop)), strict=True):
            logits = F.interpolate(logits[None].float(), size, mode="bilinear")[0]
            if total is None:
                total, count = logits.new_zeros(len(logits), height, width), count.to(logits.device)
            total[:, y : y + size[0], x : x + size[1]] += logits
            count[y : y + size[0], x : x + size[1]] += 1
    assert total is not None
    return total / count


def _squared(windows: Tensor, crop: int) -> Tensor:
    """Windows of an image narrower than the crop, stretched to it: towers take whole patches."""
    if windows.shape[2:] == (crop, crop):
        return windows
    return F.interpolate(windows.float(), (crop, crop), mode="bilinear").round().clamp(0, 255).to(torch.uint8)


def classify(logits: Tensor, query_class: Tensor, size: tuple[int, int]) -> Tensor:
    """(H, W) class of every pixel at full size: bilinear, the best of each class's synonyms, the best class.

    SCLIP multiplies by 40 and takes a softmax over queries in between. Both are monotone at every pixel, so they change
    no maximum and are left out; so may the logits be cosines times any scale plus any bias.
    """
    return torch.cat([_best_class(band, query_class) for band in bands(logits, size)])


def _best_class(logits: Tensor, query_class: Tensor) -> Tensor:
    num_classes = int(query_class.max()) + 1
    if num_classes < len(query_class):
        index = query_class.view(-1, 1, 1).expand_as(logits)
        start = logits.new_full((num_classes, *logits.shape[1:]), -torch.inf)
        logits = start.scatter_reduce(0, index, logits, "amax")
    return logits.argmax(0)


def bands(logits: Tensor, size: tuple[int, int]) -> Iterator[Tensor]:
    """(Q, h, w) enlarged to (Q, H, W) as `interpolate` does, some rows at a time: 171 classes of a photo never fit."""
    height, width = size
    low, high, share = _neighbours(logits.shape[2], width, logits.device)
    at_once = max(1, NUMBERS_AT_ONCE // (len(logits) * width))
    above, below, slope = _neighbours(logits.shape[1], height, logits.device)
    for start in range(0, height, at_once):
        here = slice(start, start + at_once)
        rows = torch.lerp(logits[:, above[here]], logits[:, below[here]], slope[here, None])
        yield torch.lerp(rows[..., low], rows[..., high], share)


def _neighbours(length: int, enlarged: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """For every place of the enlarged side: the two places it lies between, and how far along."""
    place = ((torch.arange(enlarged, device=device) + 0.5) * (length / enlarged) - 0.5).clamp(min=0)
    low = place.long().clamp(max=length - 1)
    return low, (low + 1).clamp(max=length - 1), place - low
