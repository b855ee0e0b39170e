"""Colours for phrases and classes, and how they are laid over a picture."""

from __future__ import annotations

import colorsys

import numpy as np
from torch import Tensor

SHARE = 0.6  # of colour over the picture

# For up to eight phrases: apart from one another, also for most who see fewer colours.
PHRASE_COLOURS = ("#e6194b", "#2f7ed8", "#f5a623", "#1b9e5a", "#8e44ad", "#00b8c4", "#e377c2", "#8c6d31")


def phrase_colour(place: int) -> tuple[int, int, int]:
    text = PHRASE_COLOURS[place % len(PHRASE_COLOURS)].removeprefix("#")
    return int(text[:2], 16), int(text[2:4], 16), int(text[4:], 16)


def class_colour(one: int) -> tuple[int, int, int]:
    """Hues a golden angle apart, in three brightnesses: neighbours in the list look unlike each other."""
    hue, value = (one * 0.618033988749895) % 1.0, (1.0, 0.75, 0.55)[one % 3]
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.85, value)
    return round(255 * red), round(255 * green), round(255 * blue)


def tint(picture: np.ndarray, classes: np.ndarray, num_classes: int) -> np.ndarray:
    """The picture (H, W, 3) with every pixel's class laid over it; what is no class is left as it is."""
    palette = np.array([class_colour(one) for one in range(num_classes)], dtype=np.float32)
    known = classes < num_classes
    mixed = picture.astype(np.float32)
    mixed[known] = (1 - SHARE) * mixed[known] + SHARE * palette[classes[known]]
    return mixed.round().astype(np.uint8)


def glow(picture: np.ndarray, strengths: Tensor, first: int = 0) -> np.ndarray:
    """The picture, greyed, with each phrase's colour laid over it as strongly as its map (M, H, W) in 0..1 says.

    Where phrases meet, the stronger one has the greater part of the colour.
    """
    maps = strengths.clamp(0, 1).numpy()[..., None]  # (M, H, W, 1)
    palette = np.array([phrase_colour(first + place) for place in range(len(maps))], dtype=np.float32)
    parts = maps**2
    colour = (parts * palette[:, None, None]).sum(0) / np.maximum(parts.sum(0), 1e-6)
    opacity = 0.78 * maps.max(0)
    grey = picture.astype(np.float32).mean(-1, keepdims=True)
    base = 0.55 * picture.astype(np.float32) + 0.45 * grey
    return ((1 - opacity) * base + opacity * colour).round().clip(0, 255).astype(np.uint8)
