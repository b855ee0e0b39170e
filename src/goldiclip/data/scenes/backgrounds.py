"""What lies behind the things: landscapes with a horizon, and flat grounds seen from above."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Array = NDArray[np.float32]
Draw = np.random.Generator


def landscape(name: str, size: int, horizon: float, draw: Draw) -> Image.Image:
    """`size` × `size` pixels of sky (or wall) down to `horizon`, a fraction of the height, and ground below."""
    x, y = _grid(size)
    sky, ground, edge = LANDSCAPES[name]
    line = horizon + edge * (
        np.sin(x * draw.uniform(3, 6) + draw.uniform(0, 6)) + 0.6 * np.sin(x * draw.uniform(7, 11))
    )
    share = np.clip((y - line) * size * 0.7 + 0.5, 0, 1)[..., None]
    return _image(sky(x, y, horizon, draw) * (1 - share) + ground(x, y, horizon, draw) * share)


def flat(name: str, size: int, draw: Draw) -> Image.Image:
    x, y = _grid(size)
    return _image(FLATS[name](x, y, 0.0, draw))


def _image(pixels: Array) -> Image.Image:
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


@lru_cache(maxsize=4)
def _grid(size: int) -> tuple[Array, Array]:
    steps = (np.arange(size, dtype=np.float32) + 0.5) / size
    return steps[None, :].astype(np.float32), steps[:, None].astype(np.float32)


def _noise(size: int, columns: int, rows: int, draw: Draw) -> Array:
    """Smooth noise in [-1, 1] with about that many hills."""
    coarse = Image.fromarray(draw.uniform(-1, 1, (rows, columns)).astype(np.float32))
    return np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC))


def _blend(top: tuple[int, int, int], bottom: tuple[int, int, int], share: Array, size: int) -> Array:
    share = np.broadcast_to(np.clip(share, 0, 1), (size, size))[..., None]
    return (np.array(top, np.float32) * (1 - share) + np.array(bottom, np.float32) * share).astype(np.float32)


def _day(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    deep = draw.uniform(-16, 16)
    return _blend((int(104 + deep), int(172 + deep), 236), (212, 235, 250), y / horizon, x.size)


def _dusk(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    return _blend((244, 170, 108), (253, 226, 176), y / horizon, x.size)


def _winter(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    return _blend((160, 184, 208), (222, 232, 242), y / horizon, x.size)


def _starry(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    sky = _blend((34, 42, 92), (84, 92, 158), y / horizon, x.size)
    for _ in range(26):
        column, row = draw.integers(0, x.size, 2)
        sky[row, column] = (250, 246, 220)
        if draw.random() < 0.3:
            sky[max(row - 1, 0) : row + 2, column] = sky[row, max(column - 1, 0) : column + 2] = (235, 230, 210)
    return sky


def _wall(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    paper = np.array([(236, 214, 196), (206, 222, 214), (222, 212, 232), (238, 226, 190)][draw.integers(4)], np.float32)
    stripes = 9 * ((x * draw.integers(8, 14)) % 1 < 0.5) + 0 * y
    skirting = 34 * (y > horizon - 0.045)
    return paper + (stripes + skirting - 10)[..., None]


def _skyline(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    sky = _day(x, y, horizon, draw)
    blocks = draw.integers(7, 10)
    tops = horizon - draw.uniform(0.08, 0.3, blocks)
    column = np.minimum((x * blocks).astype(int), blocks - 1)
    tone = draw.uniform(136, 188, blocks).astype(np.float32)[column]
    lit = ((x * blocks * 4) % 1 < 0.5) & ((y * 26) % 1 < 0.45) & ((x * blocks) % 1 < 0.86) & ((x * blocks) % 1 > 0.12)
    facade = np.stack([tone * 0.96, tone, tone * 1.06], axis=-1) + (24 * lit)[..., None]
    return np.where((y > tops[column])[..., None], facade, sky).astype(np.float32)


def _grass(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    ground = _blend((148, 200, 96), (88, 156, 66), (y - horizon) / (1 - horizon), x.size)
    blades = _noise(x.size, x.size // 2, x.size // 7, draw) * (0.3 + y)
    return ground + (12 * blades + 8 * _noise(x.size, 5, 4, draw))[..., None]


def _sand(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    ground = _blend((246, 226, 172), (230, 198, 134), (y - horizon) / (1 - horizon), x.size)
    ground += (7 * _noise(x.size, x.size // 2, x.size // 2, draw) + 6 * _noise(x.size, 3, 9, draw))[..., None]
    surf = horizon + 0.1 + 0.012 * np.sin(x * 14 + draw.uniform(0, 6))
    sea = _blend((58, 142, 190), (122, 204, 214), (y - horizon) / 0.1, x.size)
    foam = np.clip(1 - np.abs(y - surf) * 60, 0, 1)[..., None] * 60
    return np.where((y < surf)[..., None], sea, ground).astype(np.float32) + foam


def _dunes(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    ground = _blend((238, 186, 112), (206, 138, 70), (y - horizon) / (1 - horizon), x.size)
    crest = horizon + 0.16 + 0.06 * np.sin(x * draw.uniform(4, 7) + draw.uniform(0, 6))
    shadow = np.clip((crest - y) * 9 + 0.3, 0, 1) * (y < crest)
    return ground - (26 * shadow)[..., None] + (5 * _noise(x.size, 6, x.size // 3, draw))[..., None]


def _snow(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    ground = _blend((236, 242, 250), (206, 220, 238), (y - horizon) / (1 - horizon), x.size)
    return ground + (9 * _noise(x.size, 4, 8, draw))[..., None]


def _water(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    water = _blend((66, 140, 196), (28, 92, 158), (y - horizon) / (1 - horizon), x.size)
    ripples = np.sin((y * 66 + 1.4 * np.sin(x * 19 + draw.uniform(0, 6)) + 3 * _noise(x.size, 5, 9, draw)) * 1.2)
    return water + (40 * np.clip(ripples - 0.62, 0, 1) + 5 * _noise(x.size, 4, 4, draw))[..., None]


def _dark_grass(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    return _grass(x, y, horizon, draw) * np.array([0.36, 0.5, 0.66], np.float32)


def _road(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    road = _blend((150, 152, 158), (116, 118, 126), (y - horizon) / (1 - horizon), x.size)
    road += (5 * _noise(x.size, x.size // 2, x.size // 2, draw))[..., None]
    road += (58 * (y < horizon + 0.06))[..., None] - (50 * ((y > horizon + 0.06) & (y < horizon + 0.075)))[..., None]
    middle = (horizon + 1.07) / 2
    dashes = (np.abs(y - middle) < 0.012) & ((x * 5 + draw.random()) % 1 < 0.6)
    return road + (110 * dashes)[..., None]


def _floor(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    return _planks(x, y, horizon, draw) * np.array([0.95, 0.93, 0.9], np.float32)


def _planks(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    rows = int(draw.integers(6, 9))
    row = np.minimum((y * rows).astype(int), rows - 1)
    tone = draw.uniform(-13, 13, rows).astype(np.float32)[row]
    shift = draw.random(rows).astype(np.float32)[row]
    seam = ((y * rows) % 1 < 0.07) | ((x + shift) % 1 < 0.012)
    grain = 9 * _noise(x.size, 4, x.size // 2, draw)
    return np.array((206, 160, 108), np.float32) + (tone + grain - 46 * seam)[..., None]


def _bricks(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    rows = int(draw.integers(9, 12))
    row = (y * rows).astype(int)
    across = x * rows / 2 + 0.5 * (row % 2)
    tone = draw.uniform(-16, 16, (rows + 1, rows + 2)).astype(np.float32)[row, across.astype(int)]
    mortar = ((y * rows) % 1 < 0.13) | (across % 1 < 0.07)
    brick = (
        np.array((190, 106, 82), np.float32) + (tone + 6 * _noise(x.size, x.size // 2, x.size // 2, draw))[..., None]
    )
    return np.where(mortar[..., None], np.array((218, 206, 192), np.float32), brick)


def _tiles(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    count = int(draw.integers(5, 8))
    odd = ((x * count).astype(int) + (y * count).astype(int)) % 2
    grout = ((x * count) % 1 < 0.05) | ((y * count) % 1 < 0.05)
    pair = np.array([(228, 234, 234), (176, 204, 208)], np.float32)
    return pair[odd] - (34 * grout)[..., None] + (4 * _noise(x.size, 5, 5, draw))[..., None]


def _ruled(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    page = np.array((252, 250, 240), np.float32) + (2 * _noise(x.size, 8, 8, draw))[..., None]
    rule = ((y * 14 + draw.random()) % 1 < 0.13)[..., None] * np.array((70, 40, 14), np.float32)
    margin = (np.abs(x - 0.12) < 0.005)[..., None] * np.array((20, 110, 110), np.float32)
    return page - rule - margin


def _slate(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
    board = (
        np.array((62, 104, 86), np.float32)
        + (11 * _noise(x.size, 4, 3, draw) + 4 * _noise(x.size, 20, 12, draw))[..., None]
    )
    frame = np.minimum(np.minimum(x, 1 - x), np.minimum(y, 1 - y)) < 0.035
    return np.where(frame[..., None], np.array((172, 122, 74), np.float32), board)


def _pale(colour: tuple[int, int, int]) -> Callable[[Array, Array, float, Draw], Array]:
    def backdrop(x: Array, y: Array, horizon: float, draw: Draw) -> Array:
        distance = np.hypot(x - draw.uniform(0.3, 0.7), y - draw.uniform(0.2, 0.5))
        return np.array(colour, np.float32) + (14 - 40 * distance)[..., None]

    return backdrop


Painter = Callable[[Array, Array, float, Draw], Array]

# name: what is above the horizon, what is below, how wavy the horizon is
LANDSCAPES: dict[str, tuple[Painter, Painter, float]] = {
    "meadow": (_day, _grass, 0.02),
    "beach": (_day, _sand, 0.0),
    "desert": (_dusk, _dunes, 0.018),
    "snow": (_winter, _snow, 0.022),
    "sea": (_day, _water, 0.0),
    "night": (_starry, _dark_grass, 0.02),
    "street": (_skyline, _road, 0.0),
    "room": (_wall, _floor, 0.0),
}
FLATS: dict[str, Painter] = {
    "wood": _planks,
    "bricks": _bricks,
    "tiles": _tiles,
    "paper": _ruled,
    "blackboard": _slate,
    "pale blue": _pale((190, 220, 240)),
    "pale pink": _pale((246, 208, 218)),
    "pale green": _pale((204, 232, 200)),
    "pale yellow": _pale((250, 238, 190)),
}
