"""Colour and blur of the local views: drawn on the host as a few numbers per view, applied to a whole batch at once.

The order is fixed (brightness, contrast, saturation, hue, grey, blur) where torchvision shuffles the first four per
image: with a fixed order one pass over the batch does, without a branch, a loop over images or a wait for the device.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from goldiclip.config import Views

# The columns of a photometrics tensor; a row of NEUTRAL leaves its view as it is.
COLUMNS = ("brightness", "contrast", "saturation", "hue", "grey", "blur_sigma")
NEUTRAL = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)

BLUR_SIGMA = (0.1, 2.0)
BLUR_SHARE = 0.1  # of the view's side that the kernel covers, as SimCLR has it; DINO's 9 taps at 96
_LUMA = (0.2989, 0.587, 0.114)
# Views changed at once: bounds the room for intermediates, which are a few float copies.
_CHUNK = 1_024


def draw_photometrics(views: Views, num: int, rng: Generator) -> Tensor:
    """(num, P) float32. Takes the same count of random numbers whatever the settings are."""
    uniform = rng.random((num, 8), dtype=np.float32)
    brightness, contrast, saturation, hue = views.jitter
    low = np.array([max(0.0, 1 - brightness), max(0.0, 1 - contrast), max(0.0, 1 - saturation), -hue], np.float32)
    high = np.array([1 + brightness, 1 + contrast, 1 + saturation, hue], np.float32)
    is_jittered, is_blurred = uniform[:, 5:6] < views.jitter_probability, uniform[:, 7] < views.blur
    rows = np.empty((num, len(COLUMNS)), np.float32)
    rows[:, :4] = np.where(is_jittered, low + (high - low) * uniform[:, :4], np.array(NEUTRAL[:4], np.float32))
    rows[:, 4] = uniform[:, 6] < views.grey
    rows[:, 5] = np.where(is_blurred, BLUR_SIGMA[0] + (BLUR_SIGMA[1] - BLUR_SIGMA[0]) * uniform[:, 4], 0.0)
    return torch.from_numpy(rows)


@torch.no_grad()
def apply_photometrics(images: Tensor, parameters: Tensor) -> Tensor:
    """Images (N, 3, h, w) in [0, 1], one row of `parameters` each. Works on any device, on the whole batch."""
    if not len(images):
        return images
    at_once = len(images) if torch.compiler.is_compiling() else _CHUNK  # one kernel has no intermediates
    pairs = zip(images.split(at_once), parameters.to(images).split(at_once))
    return torch.cat([blur(colour(part, rows), rows) for part, rows in pairs])


@torch.no_grad()
def apply_in_worker(images: Tensor, parameters: Tensor) -> Tensor:
    """The same on uint8 views, each step on the views alone that it changes: for a host, where branches are free."""
    is_changed = {
        colour: (parameters[:, :5] != torch.tensor(NEUTRAL[:5])).any(1),
        blur: parameters[:, 5] > 0,
    }
    out = images.float().mul_(1 / 255)
    for step, rows in is_changed.items():
        if rows.any():
            which = rows.nonzero().flatten()
            changed = step(out.index_select(0, which), parameters.index_select(0, which))
            for row, view in zip(which.tolist(), changed):
                out[row] = view
    return out.mul_(255).add_(0.5).to(torch.int16).to(torch.uint8)  # by way of int16, which is vectorised


def colour(images: Tensor, parameters: Tensor) -> Tensor:
    """Brightness, contrast, saturation, hue and grey."""
    brightness, contrast, saturation, hue, grey, _ = parameters[:, :, None, None, None].unbind(1)
    images = (images * brightness).clamp_(0, 1)
    images = _blend(images, luma(images).mean((-3, -2, -1), keepdim=True), contrast).clamp_(0, 1)
    images = _blend(images, luma(images), saturation).clamp_(0, 1)
    images = _turn_hue(images, hue)
    return _blend(images, luma(images), 1 - grey)


def _blend(images: Tensor, towards: Tensor, keep: Tensor) -> Tensor:
    """In place, in operations of two tensors: those of three do not vectorise on a CPU."""
    return images.mul_(keep).add_(towards * (1 - keep))


def luma(images: Tensor) -> Tensor:
    """(N, 1, h, w): how bright each pixel looks."""
    red, green, blue = images.split(1, dim=1)
    return (red * _LUMA[0]).add_(green, alpha=_LUMA[1]).add_(blue, alpha=_LUMA[2])


def _turn_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Turn the colour wheel by `turn`. With hue h in [0, 6) a channel is least + chroma·clamp(ramp(h), 0, 1):
    |h − 3| − 1 for red, 2 − |h − 2| for green, 2 − |h − 4| for blue."""
    red, green, blue = images.split(1, dim=1)
    value, least = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    chroma = value - least
    scale = chroma.clamp(min=1e-12).reciprocal_()
    hue = torch.where(value == green, (blue - red).mul_(scale).add_(2), (red - green).mul_(scale).add_(4))
    hue = torch.where(value == red, (green - blue).mul_(scale), hue).add_(6 * turn)
    hue.sub_((hue / 6).floor_().mul_(6))
    channel = torch.arange(3, device=images.device, dtype=images.dtype).view(1, 3, 1, 1)
    is_red = (channel == 0).to(images.dtype)
    ramp = (hue - (3 * is_red + 2 * channel)).abs_().mul_(2 * is_red - 1).add_(2 - 3 * is_red).clamp_(0, 1)
    return ramp.mul_(chroma).add_(least)


def blur_taps(side: int) -> int:
    """The width of the blur kernel for views of this side: odd, at least 3."""
    return max(3, 2 * int((side * BLUR_SHARE - 1) / 2) + 1)


def blur(images: Tensor, parameters: Tensor) -> Tensor:
    """A separable Gaussian with reflected borders; where sigma is 0 the kernel is a single 1."""
    sigma = parameters[:, 5, None, None, None]
    taps = blur_taps(min(images.shape[-2:]))
    reach = taps // 2
    offset = torch.arange(-reach, reach + 1, device=images.device, dtype=images.dtype)
    weight = torch.softmax(-0.5 * (offset / sigma.clamp(min=1e-3)).square(), dim=-1)  # (N, 1, 1, taps)
    for dim, border in ((-1, (reach, reach, 0, 0)), (-2, (0, 0, reach, reach))):
        padded = torch.nn.functional.pad(images, border, mode="reflect")
        size = images.shape[dim]
        images = padded.narrow(dim, 0, size) * weight[..., :1]
        for tap in range(1, taps):
            images.addcmul_(padded.narrow(dim, tap, size), weight[..., tap : tap + 1])
    return images
