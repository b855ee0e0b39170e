"""Composing a scene: which groups, where they stand, what hides what; then the picture and who owns which pixel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from goldiclip.data.scenes.graph import Group, Look, Scene, Split
from goldiclip.data.scenes.props import Ground, Props
from goldiclip.data.scenes.settings import Settings
from goldiclip.data.scenes.vocabulary import SIZES
from goldiclip.data.scenes.words import is_countable
from goldiclip.types import Box

OPAQUE = 128  # alpha from which a pixel belongs to the thing
MIN_VISIBLE = 0.5  # of every thing
HIDES = 0.05  # of a group's pixels: from there on it is said to be hidden in part
LAYOUTS = 4  # arrangements tried before things are kept apart

Rectangle = tuple[int, int, int, int]  # x0, y0, x1, y1 in pixels


@dataclass(frozen=True, slots=True)
class Piece:
    """A group before it has a place: one picture per thing, and where it lies in the group's rectangle."""

    look: Look
    size: str
    pictures: tuple[Image.Image, ...]
    offsets: tuple[tuple[int, int], ...]

    @property
    def extent(self) -> tuple[int, int]:
        right = max(x + picture.width for (x, _), picture in zip(self.offsets, self.pictures, strict=True))
        bottom = max(y + picture.height for (_, y), picture in zip(self.offsets, self.pictures, strict=True))
        return right, bottom

    @property
    def depth(self) -> int:
        """How much farther down the feet of the lowest thing are than those of the highest."""
        feet = [y + picture.height for (_, y), picture in zip(self.offsets, self.pictures, strict=True)]
        return max(feet) - min(feet)


def compose(key: str, props: Props, settings: Settings, split: Split, stream: str, kinds: Sequence[str] = ()) -> Scene:
    """A scene that keeps its promises: every thing is in the image, and at least half of it is seen.

    `stream` names the random numbers: equal names, equal scenes. `kinds` are those to choose from, by default all.
    """
    random = Random(stream)
    ground = props.ground(settings.size, split, random)
    looks = _looks(kinds or props.kinds(split), props, settings, split, random)
    pieces = [_piece(look, len(looks), settings, ground, props, random) for look in looks]
    pieces.sort(key=lambda piece: -piece.extent[0] * piece.extent[1])
    for attempt in range(LAYOUTS):
        overlap = attempt + 1 < LAYOUTS and random.random() < settings.occlusion
        placed = _place(pieces, ground, settings.size, overlap, props, random)
        scene = _paint(key, stream, ground, placed)
        if scene is not None and scene.groups:
            return scene
    raise AssertionError(f"{stream}: things that do not overlap are all visible, and one has room")


# --- what is in it --------------------------------------------------------------------------------------------------


def _looks(kinds: Sequence[str], props: Props, settings: Settings, split: Split, random: Random) -> list[Look]:
    """Different kinds, or now and then one kind in two colours; a single one half as often as any other number."""
    several = range(2, settings.max_objects + 1)
    count = random.choice((1, *several, *several))
    looks: list[Look] = []
    for kind in random.sample(kinds, min(count, len(kinds))):
        last = looks[-1] if looks else None
        if last and last.colour and random.random() < settings.rivals and not _doubles(looks, last.kind):
            look = props.choose(last.kind, split, random, but=(last.colour,))
        else:
            look = props.choose(kind, split, random)
        if look:
            looks.append(look)
    return looks


def _doubles(looks: list[Look], kind: str) -> bool:
    return sum(look.kind == kind for look in looks) > 1


def _piece(look: Look, crowd: int, settings: Settings, ground: Ground, props: Props, random: Random) -> Piece:
    """Pictures of one to five equal things; the more there are of them, and of other things, the smaller.

    Several that have no room together are one.
    """
    count = 1
    if random.random() < settings.repeats and is_countable(look.kind):
        count = random.choice((2, 2, 3, 3, 4, 5))
    sizes = ("small", "medium", "medium") if crowd > 2 and random.random() < 0.7 else ("small", "medium", "large")
    size = random.choice(sizes[: {1: 3, 2: 2, 3: 2}.get(count, 1)])
    low, high = SIZES[size]
    pixels = round(random.uniform(low, high) * settings.zoom * settings.size)
    lean = 4 if ground.horizon is not None else 14
    picture = props.picture(look, pixels, random.uniform(-lean, lean), random.random() < 0.5)
    mirrored = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    pictures = tuple(random.choice((picture, picture, mirrored)) for _ in range(count))
    upright = ground.horizon is not None
    offsets = _formation(count, picture.size, settings.size, upright, random)
    piece = Piece(look, size, pictures, offsets)
    has_room = max(piece.extent) <= settings.size - 2 * _margin(settings.size)
    return piece if has_room else Piece(look, size, pictures[:1], ((0, 0),))


def _formation(
    count: int, extent: tuple[int, int], room: int, upright: bool, random: Random
) -> tuple[tuple[int, int], ...]:
    """Where the things of a group stand: a row, or two rows, a little out of line."""
    width, height = extent
    per_row = {2: 2, 3: 3, 4: 4, 5: 3}.get(count, 1)
    if not upright:
        per_row = random.choice({3: (3, 2), 4: (2, 4)}.get(count, (per_row,)))
    rows = -(-count // max(1, min(per_row, int(0.9 * room / (1.1 * width)))))
    per_row = -(-count // rows)
    places = []
    for i in range(count):
        row, column = divmod(i, per_row)
        short = per_row - min(per_row, count - row * per_row)
        x = (column + short / 2) * 1.05 * width + random.uniform(0, 0.05) * width
        y = row * 1.05 * height + random.uniform(0, 0.12) * height * (count > 1)
        places.append((round(x), round(y)))
    left, top = min(x for x, _ in places), min(y for _, y in places)
    return tuple((x - left, y - top) for x, y in places)


# --- where it is ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Placed:
    piece: Piece
    at: Rectangle
    stands: bool  # on the ground of a landscape


def _place(pieces: list[Piece], ground: Ground, size: int, overlap: bool, props: Props, random: Random) -> list[Placed]:
    """Every piece at a free place, one of them perhaps partly over another; a piece without room is left out."""
    placed: list[Placed] = []
    for piece in pieces:
        flies = props.is_airborne(piece.look.kind)
        partner = random.choice(placed) if overlap and len(placed) == 1 else None
        over = partner.at if partner else None
        at = _free(piece, [other.at for other in placed], over, ground, size, flies, random)
        if at is not None:
            placed.append(Placed(piece, at, ground.horizon is not None and not flies))
    if ground.horizon is None:
        random.shuffle(placed)
    else:
        placed.sort(key=lambda item: item.at[3] if item.stands else 0)
    return placed


def _free(
    piece: Piece,
    taken: list[Rectangle],
    partner: Rectangle | None,
    ground: Ground,
    size: int,
    flies: bool,
    random: Random,
) -> Rectangle | None:
    width, height = piece.extent
    margin = _margin(size)
    if max(width, height) > size - 2 * margin:
        return None
    for _ in range(80):
        x = random.randint(margin, size - margin - width)
        if partner is not None:
            x = min(max(margin, random.randint(partner[0] - width, partner[2])), size - margin - width)
        y = _height(height, piece.depth, ground.horizon, size, margin, flies, random)
        at = (x, y, x + width, y + height)
        if all(_shares(at, other, partner, margin) for other in taken):
            return at
    return None


def _margin(size: int) -> int:
    return max(1, size // 64)


def _height(height: int, depth: int, horizon: float | None, size: int, margin: int, flies: bool, random: Random) -> int:
    """The top edge: anywhere on a flat ground; in a landscape above the horizon, or with the feet below it."""
    lowest = size - margin - height
    if horizon is None:
        return random.randint(margin, lowest)
    if flies:
        return random.randint(margin, max(margin, min(lowest, round(horizon * size - 0.7 * height))))
    nearest = size - margin
    feet = random.randint(min(round((horizon + 0.1) * size) + depth, nearest), nearest)
    return min(max(margin, feet - height), lowest)


def _shares(at: Rectangle, other: Rectangle, partner: Rectangle | None, margin: int) -> bool:
    """Whether two rectangles overlap as they should: partners by a quarter or so, others not at all."""
    width = min(at[2], other[2]) - max(at[0], other[0])
    height = min(at[3], other[3]) - max(at[1], other[1])
    if other is not partner:
        return width < -margin or height < -margin
    smaller = min((at[2] - at[0]) * (at[3] - at[1]), (other[2] - other[0]) * (other[3] - other[1]))
    return width > 0 and height > 0 and 0.15 < width * height / smaller < 0.5


# --- what it looks like ---------------------------------------------------------------------------------------------


def _paint(key: str, stream: str, ground: Ground, placed: list[Placed]) -> Scene | None:
    """The picture from back to front; None when something is hidden too far."""
    canvas = ground.image.convert("RGB")
    size = canvas.width
    whose = np.zeros((size, size), np.uint8)  # which thing, over all groups
    silhouettes: list[NDArray[np.bool_]] = []
    for item in placed:
        for picture, (x, y) in zip(item.piece.pictures, item.piece.offsets, strict=True):
            corner = (item.at[0] + x, item.at[1] + y)
            _shadow(canvas, picture, corner, item.stands, ground.horizon is None)
            canvas.paste(picture, corner, picture)
            silhouettes.append(_silhouette(picture, corner, size))
            whose[silhouettes[-1]] = len(silhouettes)
    seen = np.bincount(whose.ravel(), minlength=len(silhouettes) + 1)[1:]
    if any(seen[i] < MIN_VISIBLE * max(1, shape.sum()) for i, shape in enumerate(silhouettes)):
        return None
    group_of = np.repeat(np.arange(1, len(placed) + 1), [len(item.piece.pictures) for item in placed])
    owner = np.concatenate([[0], group_of]).astype(np.uint8)[whose]
    boxes = [_box(whose == i + 1) for i in range(len(silhouettes))]
    groups = tuple(
        Group(
            item.piece.look, item.piece.size, tuple(box for box, g in zip(boxes, group_of, strict=True) if g == i + 1)
        )
        for i, item in enumerate(placed)
    )
    covers = _covers(owner, silhouettes, group_of)
    return Scene(key, stream, ground.name, groups, covers, np.asarray(canvas), owner)


def _shadow(canvas: Image.Image, picture: Image.Image, corner: tuple[int, int], stands: bool, lies: bool) -> None:
    """A soft shadow at the feet of what stands, behind what lies on a flat ground, none below what flies."""
    size = canvas.width
    if not (stands or lies):
        return
    spread = max(1, size // 64)
    alpha = picture.getchannel("A")
    if stands:
        alpha = alpha.resize((picture.width, max(2, picture.height // 8)))
        corner = (corner[0], corner[1] + picture.height - alpha.height * 2 // 3)
    else:
        corner = (corner[0] + spread, corner[1] + spread + spread // 2)
    soft = Image.new("L", (alpha.width + 4 * spread, alpha.height + 4 * spread))
    soft.paste(alpha, (2 * spread, 2 * spread))
    soft = Image.blend(Image.new("L", soft.size), soft.filter(ImageFilter.BoxBlur(spread)), 0.42)
    canvas.paste((24, 20, 48), (corner[0] - 2 * spread, corner[1] - 2 * spread), soft)


def _silhouette(picture: Image.Image, corner: tuple[int, int], size: int) -> NDArray[np.bool_]:
    """Where a picture covers what is below; a faint one counts from half of its own strength."""
    alpha = np.asarray(picture.getchannel("A"))
    shape = np.zeros((size, size), np.bool_)
    x, y = corner
    shape[y : y + picture.height, x : x + picture.width] = alpha >= min(OPAQUE, (int(alpha.max()) + 1) // 2)
    return shape


def _box(mask: NDArray[np.bool_]) -> Box:
    """The extent of a mask in fractions of the image."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    height, width = mask.shape
    return columns[0] / width, rows[0] / height, (columns[-1] + 1) / width, (rows[-1] + 1) / height


def _covers(
    owner: NDArray[np.uint8], silhouettes: list[NDArray[np.bool_]], group_of: NDArray[np.int64]
) -> frozenset[tuple[int, int]]:
    """Which group hides a part of which."""
    found = set()
    for hidden in range(1, int(group_of.max(initial=0)) + 1):
        whole = np.any([shape for shape, g in zip(silhouettes, group_of, strict=True) if g == hidden], axis=0)
        over = np.bincount(owner[whole], minlength=1)
        found |= {
            (front - 1, hidden - 1)
            for front in range(1, len(over))
            if front != hidden and over[front] >= HIDES * whole.sum()
        }
    return frozenset(found)
