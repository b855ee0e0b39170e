"""The drawing language: lines of `paint primitive numbers` become polygons on a 100 × 100 sheet.

    circle x y r · ellipse x y rx ry [degrees] · box x0 y0 x1 y1 [corner] · poly x y x y …
    line width x y x y … · path M x y, L x y, C (cubic), Q (quadratic), Z · shape x y r · bars x y r width

A line that begins with a command or a number goes on from the one before. `shape` and `bars` take the outline of the
thing's own shape: a clock may be round, square or a heart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]  # (P, 2)

CURVE_STEPS = 10
ROUND_STEPS = 28


@dataclass(frozen=True, slots=True)
class Layer:
    paint: str
    points: Points


def layers(drawing: str, shape: str = "") -> tuple[Layer, ...]:
    """The polygons of a drawing, from the back to the front."""
    return tuple(Layer(paint, points) for paint, points in _polygons(drawing, shape))


def _polygons(drawing: str, shape: str) -> Iterator[tuple[str, Points]]:
    for line in re.split(r"\n\s*(?=[a-z])", drawing.strip()):
        paint, primitive, rest = line.split(None, 2)
        if primitive == "path":
            yield paint, _path(rest)
            continue
        numbers = [float(word) for word in rest.split()]
        if primitive in ("shape", "bars"):
            outline = OUTLINES[shape or "round"] * numbers[2] + numbers[:2]
            parts = [outline] if primitive == "shape" else _bars(outline, numbers[0], numbers[1], numbers[3])
        else:
            parts = PRIMITIVES[primitive](*numbers)
        for points in parts:
            yield paint, points


def _ellipse(x: float, y: float, width: float, height: float, degrees: float = 0.0) -> list[Points]:
    turn = np.linspace(0, 2 * np.pi, ROUND_STEPS, endpoint=False)
    flat = np.stack([width * np.cos(turn), height * np.sin(turn)], axis=1)
    return [flat @ rotation(degrees) + (x, y)]


def _circle(x: float, y: float, radius: float) -> list[Points]:
    return _ellipse(x, y, radius, radius)


def _box(x0: float, y0: float, x1: float, y1: float, corner: float = 0.0) -> list[Points]:
    if not corner:
        return [np.array([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])]
    centres = (
        (x1 - corner, y1 - corner, 0),
        (x0 + corner, y1 - corner, 90),
        (x0 + corner, y0 + corner, 180),
        (x1 - corner, y0 + corner, 270),
    )
    turns = [(x, y, math.radians(start + step)) for x, y, start in centres for step in (0, 22.5, 45, 67.5, 90)]
    return [np.array([(x + corner * math.cos(turn), y + corner * math.sin(turn)) for x, y, turn in turns])]


def _poly(*numbers: float) -> list[Points]:
    return [np.array(numbers).reshape(-1, 2)]


def _line(width: float, *numbers: float) -> list[Points]:
    """A quadrangle for each stretch, and a disc where two meet and at the ends."""
    points = np.array(numbers).reshape(-1, 2)
    parts = []
    for start, end in pairwise(points):
        along = (end - start) / max(float(np.hypot(*(end - start))), 1e-9)
        aside = np.array([-along[1], along[0]]) * width / 2
        parts.append(np.array([start + aside, end + aside, end - aside, start - aside]))
    return parts + [disc for x, y in points for disc in _circle(x, y, width / 2)]


def _path(text: str) -> Points:
    """The first move's outline, its curves as short straight stretches."""
    words = iter(re.findall(r"[MLCQZ]|-?\d+(?:\.\d+)?", text))
    pending: list[float] = []
    points: list[NDArray[np.float64]] = []
    command = "M"
    for word in words:
        if word.isalpha():
            command = word
            continue
        pending.append(float(word))
        if len(pending) == {"M": 2, "L": 2, "Q": 4, "C": 6}[command]:
            points.extend(_stretch(command, points[-1:], np.array(pending).reshape(-1, 2)))
            pending = []
    return np.array(points)


def _stretch(command: str, last: list[NDArray[np.float64]], controls: Points) -> list[NDArray[np.float64]]:
    if command in "ML":
        return [controls[0]]
    knots = [last[0], *controls]
    degree = len(knots) - 1
    steps = np.linspace(0, 1, CURVE_STEPS + 1)[1:]
    return [
        sum(math.comb(degree, k) * t**k * (1 - t) ** (degree - k) * knot for k, knot in enumerate(knots)) for t in steps
    ]


def _bars(outline: Points, x: float, y: float, width: float) -> list[Points]:
    """A cross of bars through (x, y), cut off at the outline."""
    upright = _cut(_cut(outline, 0, x - width / 2, 1), 0, x + width / 2, -1)
    level = _cut(_cut(outline, 1, y - width / 2, 1), 1, y + width / 2, -1)
    return [upright, level]


def _cut(points: Points, axis: int, limit: float, side: int) -> Points:
    """What of a polygon lies on one side of a line parallel to an axis."""
    kept: list[NDArray[np.float64]] = []
    for start, end in zip(points, np.roll(points, -1, axis=0), strict=True):
        before, after = side * (start[axis] - limit), side * (end[axis] - limit)
        if before >= 0:
            kept.append(start)
        if before * after < 0:
            kept.append(start + (end - start) * before / (before - after))
    return np.array(kept).reshape(-1, 2)


def rotation(degrees: float) -> Points:
    """The matrix that turns row vectors clockwise on a sheet whose y points down."""
    angle = math.radians(degrees)
    return np.array([(math.cos(angle), math.sin(angle)), (-math.sin(angle), math.cos(angle))])


def _star() -> Points:
    turn = np.radians(np.arange(10) * 36 - 90)
    radius = np.where(np.arange(10) % 2 == 0, 1.0, 0.52)
    return np.stack([radius * np.cos(turn), radius * np.sin(turn)], axis=1) * 1.08 + (0, 0.06)


def _regular(corners: int, start: float, scale: float = 1.0) -> Points:
    turn = np.radians(np.arange(corners) * 360 / corners + start)
    return np.stack([np.cos(turn), np.sin(turn)], axis=1) * scale


PRIMITIVES: dict[str, Callable[..., list[Points]]] = {
    "circle": _circle,
    "ellipse": _ellipse,
    "box": _box,
    "poly": _poly,
    "line": _line,
}

# One unit in radius around the origin.
OUTLINES: dict[str, Points] = {
    "round": _ellipse(0, 0, 1, 1)[0],
    "square": _box(-0.88, -0.88, 0.88, 0.88, 0.08)[0],
    "triangular": _regular(3, -90, 1.12) + np.array((0, 0.18)),
    "hexagonal": _regular(6, 0),
    "star-shaped": _star(),
    "heart-shaped": (_path("M50 96 C20 72 0 52 2 30 C4 8 36 0 50 26 C64 0 96 8 98 30 C100 52 80 72 50 96 Z") - 50) / 48,
}
