"""Pictures from anywhere to the pixels a tower reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from goldiclip.config import ConfigError
from goldiclip.data.views import decode_image
from goldiclip.types import Sample

# A path, encoded bytes, a sample of shards, a PIL image, an array (H, W, 3) or a tensor (3, H, W), both uint8.
Picture = Any
Fit = Literal["crop", "whole"]
T = TypeVar("T")


def pixels(picture: Picture) -> Tensor:
    """uint8 (3, H, W) of whatever shows a picture."""
    if isinstance(picture, (str, Path)):
        try:
            return decode_image(Path(picture).read_bytes())
        except ValueError as error:
            raise ConfigError(f"{picture}: {error}") from error
    if isinstance(picture, Exception):  # in place of a picture that could not be read
        raise picture
    if isinstance(picture, Sample):
        picture = picture.image
    if isinstance(picture, (bytes, bytearray)):
        return decode_image(bytes(picture))
    if hasattr(picture, "convert"):  # PIL, without importing it
        picture = np.array(picture.convert("RGB"))
    if isinstance(picture, np.ndarray):
        picture = torch.from_numpy(np.ascontiguousarray(picture))
        picture = picture.permute(2, 0, 1) if picture.ndim == 3 and picture.shape[-1] == 3 else picture
    if isinstance(picture, Tensor) and picture.dtype == torch.uint8 and picture.ndim == 3 and picture.shape[0] == 3:
        return picture
    found = f"{type(picture).__name__} {tuple(getattr(picture, 'shape', ()))} {getattr(picture, 'dtype', '')}".strip()
    raise TypeError(f"found {found}; expected a path, bytes, a PIL image, or uint8 pixels (H, W, 3) or (3, H, W)")


def fit(image: Tensor, size: int, how: Fit = "crop") -> Tensor:
    """uint8 (3, size, size): the centre after resizing the shorter side, or the whole image squeezed in.

    Sides and corners are rounded as torchvision's Resize and CenterCrop round them.
    """
    if how == "whole":
        return _resize(image, size, size)
    short = min(image.shape[1:])
    image = _resize(image, *(int(size * side / short) for side in image.shape[1:]))
    top, left = (round((side - size) / 2) for side in image.shape[1:])
    return image[:, top : top + size, left : left + size]


def _resize(image: Tensor, height: int, width: int) -> Tensor:
    if tuple(image.shape[1:]) == (height, width):
        return image
    return F.interpolate(image[None], (height, width), mode="bicubic", antialias=True)[0]


def batches(
    pictures: Iterable[Picture], size: int, batch: int, how: Fit = "crop", threads: int = 4
) -> Iterator[Tensor]:
    """uint8 (n, 3, size, size), at most `batch` at a time; the next ones are decoded meanwhile."""
    with ThreadPoolExecutor(threads) as pool:
        waiting: list[Any] = []
        for group in grouped(pictures, batch):
            waiting.append([pool.submit(_read, picture, size, how) for picture in group])
            if len(waiting) > 1:
                yield torch.stack([job.result() for job in waiting.pop(0)])
        for jobs in waiting:
            yield torch.stack([job.result() for job in jobs])


def grouped(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of at most `size` items, in order."""
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


def _read(picture: Picture, size: int, how: Fit) -> Tensor:
    return fit(pixels(picture), size, how)


def each(pictures: Picture | Iterable[Picture]) -> Iterable[Picture]:
    """One picture or several, to go through."""
    is_one = isinstance(pictures, (str, bytes, bytearray, Tensor, Sample)) or hasattr(pictures, "convert")
    return [pictures] if is_one or hasattr(pictures, "__array_interface__") or isinstance(pictures, Path) else pictures
