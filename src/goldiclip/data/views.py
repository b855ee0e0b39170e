"""The crops of one image: global views for everything, small local ones for self-distillation.

Geometry is drawn and cut in the worker, in uint8, one crop and resize each. Colour is drawn there too and applied by
`render` on the device. A global view is never flipped: captions say left and right, and boxes follow the crop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from goldiclip.config import Views
from goldiclip.data.decode import decode_image as decode_image
from goldiclip.data.photometrics import apply_photometrics, draw_photometrics
from goldiclip.types import Box

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
_ATTEMPTS = 10


def draw_views(image: Tensor, views: Views, size: int, rng: Generator) -> tuple[Tensor, Tensor, Tensor, Box]:
    """From uint8 (3, H, W): global (V, 3, size, size), local (C, 3, s, s), photometrics (C, P), and where in the stored
    image the first global view lies, in fractions."""
    height, width = image.shape[-2:]
    windows = draw_windows(height, width, views.global_scale, views.aspect, views.num_global, rng)
    global_views = cut(image, windows, size)
    top, left, h, w = windows[0]
    crop = (left / width, top / height, (left + w) / width, (top + h) / height)
    windows = draw_windows(height, width, views.local_scale, views.aspect, views.num_local, rng)
    local_views = cut(image, windows, views.local_size, flip=rng.random(views.num_local) < views.flip)
    return global_views, local_views, draw_photometrics(views, views.num_local, rng), crop


def draw_windows(
    height: int, width: int, scale: tuple[float, float], aspect: tuple[float, float], num: int, rng: Generator
) -> list[tuple[int, int, int, int]]:
    """`num` windows (top, left, height, width): RandomResizedCrop's law, ten attempts and then the centre.

    Area uniform in `scale` of the image, aspect log-uniform, corner uniform among the pixels where it fits.
    """
    luck = rng.random((num, _ATTEMPTS + 1, 2)).tolist()
    (low, high), (narrow, wide) = scale, (math.log(aspect[0]), math.log(aspect[1]))
    windows = []
    for *attempts, (down, right) in luck:
        window = _central(height, width, aspect)
        for some, shape in attempts:
            area = height * width * (low + (high - low) * some)
            ratio = math.exp(narrow + (wide - narrow) * shape)
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                window = (int(down * (height - h + 1)), int(right * (width - w + 1)), h, w)
                break
        windows.append(window)
    return windows


def _central(height: int, width: int, aspect: tuple[float, float]) -> tuple[int, int, int, int]:
    """The largest centred window whose aspect is allowed."""
    w = min(width, max(1, round(height * aspect[1])))
    h = min(height, max(1, round(width / aspect[0])))
    return (height - h) // 2, (width - w) // 2, h, w


def cut(image: Tensor, windows: list[tuple[int, int, int, int]], size: int, flip: np.ndarray | None = None) -> Tensor:
    """Each window as a square uint8 view: bicubic, antialiased."""
    out = torch.empty((len(windows), 3, size, size), dtype=torch.uint8)
    for i, (top, left, height, width) in enumerate(windows):
        window = image[None, :, top : top + height, left : left + width]
        view = torch.nn.functional.interpolate(window, (size, size), mode="bicubic", antialias=True)[0]
        out[i] = view.flip(-1) if flip is not None and flip[i] else view
    return out


@torch.no_grad()
def render(
    views: Tensor,
    photometrics: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    paint: Callable[..., Tensor] | None = None,
) -> Tensor:
    """uint8 (…, 3, h, w) to CLIP-normalised floats, wherever the views are; photometrics (…, P) is applied on the way.

    Photometrics of no columns (P = 0) means that the worker has applied them. `paint` is `painted`, or it compiled.
    """
    flat, rows = views.reshape(-1, *views.shape[-3:]), None
    if photometrics is not None and photometrics.shape[-1]:
        rows = photometrics.flatten(0, -2)
    return (paint or painted)(flat, rows, *_normalisation(flat.device), dtype).view(views.shape)


def painted(views: Tensor, photometrics: Tensor | None, mean: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """uint8 (N, 3, h, w) with its photometrics (N, P), less the mean, times the scale."""
    flat = views.float().div_(255)
    if photometrics is not None:
        flat = apply_photometrics(flat, photometrics)
    return flat.sub_(mean).mul_(scale).to(dtype)


@lru_cache(maxsize=64)
def _normalisation(device: torch.device) -> tuple[Tensor, Tensor]:
    """Kept per device: making a tensor from numbers there would wait for it."""
    mean, std = (torch.tensor(values, device=device).view(3, 1, 1) for values in (CLIP_MEAN, CLIP_STD))
    return mean, 1 / std
