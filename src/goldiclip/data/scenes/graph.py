"""A scene as facts: groups of equal things, where they can be seen, and how they stand to one another.

Every relation has a narrow reading, which captions and answers assert, and a wide one, under which a viewer might still
agree. What is false even in the wide reading is a safe distractor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from goldiclip.types import Box

Split = Literal["train", "held_out"]


@dataclass(frozen=True, slots=True)
class Look:
    """What a thing is, apart from where and how large. What it has no name for is ""."""

    kind: str
    colour: str = ""
    texture: str = ""
    shape: str = ""
    cutout: str = ""  # the file it was cut from, for things that are not drawn


@dataclass(frozen=True, slots=True)
class Group:
    """One thing, or several equal ones side by side."""

    look: Look
    size: str
    boxes: tuple[Box, ...]  # what is visible of each thing, in fractions of the image
    box: Box = field(init=False)  # around all of them

    def __post_init__(self) -> None:
        x0, y0, x1, y1 = zip(*self.boxes, strict=True)
        object.__setattr__(self, "box", (min(x0), min(y0), max(x1), max(y1)))

    @property
    def kind(self) -> str:
        return self.look.kind

    @property
    def count(self) -> int:
        return len(self.boxes)

    @property
    def centre(self) -> tuple[float, float]:
        x0, y0, x1, y1 = self.box
        return (x0 + x1) / 2, (y0 + y1) / 2


@dataclass(frozen=True, slots=True)
class Scene:
    key: str
    stream: str  # the name of its random numbers
    background: str  # "" when it has no name
    groups: tuple[Group, ...]
    covers: frozenset[tuple[int, int]]  # (i, j): group i hides a part of group j
    image: NDArray[np.uint8]  # (H, W, 3)
    owner: NDArray[np.uint8]  # (H, W): 0 for the background, 1 + i where group i is seen


def relation(scene: Scene, first: int, second: int) -> str:
    """How the first group stands to the second; "" where nothing simple can be said.

    Overlapping groups are in front of or behind one another. Others are placed along the axis on which they are clearly
    farther apart.
    """
    if (first, second) in scene.covers or (second, first) in scene.covers:
        mutual = {(first, second), (second, first)} <= scene.covers
        return "" if mutual else "front" if (first, second) in scene.covers else "behind"
    one, other = scene.groups[first], scene.groups[second]
    across, down = other.centre[0] - one.centre[0], other.centre[1] - one.centre[1]
    if abs(across) > 1.5 * abs(down) and _gap(one.box, other.box, 0) > -0.02:
        return "left" if across > 0 else "right"
    if abs(down) > 1.5 * abs(across) and _gap(one.box, other.box, 1) > -0.02:
        return "above" if down > 0 else "below"
    return ""


def is_beside(scene: Scene, first: int, second: int) -> bool:
    """Neighbours at about one height, not overlapping."""
    one, other = scene.groups[first].box, scene.groups[second].box
    return -0.02 < _gap(one, other, 0) < 0.1 and _gap(one, other, 1) < -0.08


def may_relate(scene: Scene, name: str, first: int, second: int) -> bool:
    """Whether a viewer might say that the first group stands so to the second."""
    one, other = scene.groups[first], scene.groups[second]
    across, down = other.centre[0] - one.centre[0], other.centre[1] - one.centre[1]
    if name in ("front", "behind"):
        return _gap(one.box, other.box, 0) < 0.02 and _gap(one.box, other.box, 1) < 0.02
    wide = {"left": across > -0.05, "right": across < 0.05, "above": down > -0.05, "below": down < 0.05}
    return wide.get(name, True)


def place(group: Group) -> str:
    """Where in the image a group is; "" where nothing simple can be said."""
    x, y = group.centre
    column = _third(x, ("left", "", "right"))
    row = _third(y, ("top", "", "bottom"))
    if column is None or row is None:
        return ""
    return f"{row} {column}".strip() or "middle"


def may_be_at(group: Group, name: str) -> bool:
    """Whether a viewer might say that the group is there."""
    x, y = group.centre
    wide = {"left": x < 0.5, "right": x > 0.5, "top": y < 0.5, "bottom": y > 0.5}
    if name == "middle":
        return abs(x - 0.5) < 0.25 and abs(y - 0.5) < 0.25
    return all(wide[word] for word in name.split())


def _third(position: float, names: tuple[str, str, str]) -> str | None:
    """The name of a third of the image, None close to a border between thirds."""
    for name, (low, high) in zip(names, ((0.0, 0.35), (0.39, 0.61), (0.65, 1.0)), strict=True):
        if low <= position <= high:
            return name
    return None


def _gap(one: Box, other: Box, axis: int) -> float:
    """The space between two boxes along an axis; negative when they overlap on it."""
    return max(one[axis], other[axis]) - min(one[axis + 2], other[axis + 2])
