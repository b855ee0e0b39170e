"""One thing as an RGBA picture: its drawing in its colour, texture and shape, anti-aliased, with a thin dark rim."""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from goldiclip.data.scenes.vectors import Layer, layers, rotation
from goldiclip.data.scenes.vocabulary import COLOURS, DRAWINGS

Colour = tuple[int, int, int]

SUPERSAMPLING = 3
MARGIN = 2  # pixels around a drawing, for the outline

VISIBLE = [255 * (alpha > 40) for alpha in range(256)]  # by alpha

PAINTS: dict[str, Colour] = {
    "ink": (36, 36, 44),
    "white": (252, 251, 247),
    "cream": (250, 236, 205),
    "grey": (150, 154, 162),
    "metal": (172, 178, 188),
    "glass": (190, 226, 242),
    "gold": (250, 193, 52),
    "flame": (247, 127, 32),
    "scarlet": (219, 46, 52),
    "rose": (247, 152, 176),
    "leaf": (78, 157, 70),
    "moss": (118, 156, 96),
    "wood": (137, 92, 56),
    "wicker": (188, 138, 84),
    "wafer": (232, 182, 110),
    "sand": (224, 190, 140),
    "clay": (196, 104, 66),
    "coffee": (98, 60, 38),
}
# The second colour of a texture where white would not stand out.
SECOND: dict[str, Colour] = {
    "yellow": (208, 140, 20),
    "white": (160, 170, 186),
    "grey": (236, 238, 240),
    "pink": (255, 240, 246),
}


def sprite(
    kind: str,
    colour: str,
    texture: str = "plain",
    shape: str = "",
    pixels: int = 48,
    degrees: float = 0.0,
    flip: bool = False,
) -> Image.Image:
    """The thing on a transparent ground, its longer side `pixels` long before it is turned; trimmed."""
    parts = _parsed(kind, shape)
    outlines = _fit([part.points for part in parts], pixels * SUPERSAMPLING, degrees, flip)
    paints = _paints(colour)
    side = [
        int(np.ceil(length))
        for length in np.max([points.max(0) for points in outlines], axis=0) + MARGIN * SUPERSAMPLING
    ]
    side = [length + -length % SUPERSAMPLING for length in side]
    sheet = Image.new("RGBA", (side[0], side[1]), (*paints["main"], 0))
    fill = _fill(colour, texture, side[0], side[1], pixels)
    pen = ImageDraw.Draw(sheet)
    for part, points in zip(parts, outlines, strict=True):
        corners = points.ravel().tolist()
        if part.paint == "main" and texture != "plain":
            _paste(sheet, fill, corners, points)
        else:
            pen.polygon(corners, fill=(*paints[part.paint], 0 if part.paint == "hole" else 255))
    return _outlined(sheet.reduce(SUPERSAMPLING), _mix(paints["main"], (12, 12, 24), 0.62))


@cache
def _parsed(kind: str, shape: str) -> tuple[Layer, ...]:
    return layers(DRAWINGS[kind], shape)


def _fit(outlines: list[np.ndarray], pixels: float, degrees: float, flip: bool) -> list[np.ndarray]:
    """Scale the longer side to `pixels`, turn, and move to the sheet's upper left corner."""
    points = np.concatenate(outlines)
    scale = pixels / (points.max(0) - points.min(0)).max()
    turned = (points - 50) * (-scale if flip else scale, scale) @ rotation(degrees)
    turned += MARGIN * SUPERSAMPLING - turned.min(0)
    return np.split(turned, np.cumsum([len(outline) for outline in outlines])[:-1])


@cache
def _paints(colour: str) -> dict[str, Colour]:
    main = COLOURS[colour]
    shade = _mix(main, (20, 12, 40), 0.28 if colour != "black" else 0.6)
    tint = _mix(main, (255, 255, 255), 0.45 if colour != "white" else 1.0)
    return {**PAINTS, "main": main, "shade": shade, "tint": tint, "hole": main}


def _mix(colour: Colour, other: Colour, share: float) -> Colour:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(colour, other, strict=True))
    return red, green, blue


def _fill(colour: str, texture: str, width: int, height: int, pixels: int) -> Image.Image:
    """A sheet of the textured colour."""
    second = SECOND.get(colour) or _mix(COLOURS[colour], (255, 255, 255), 0.78)
    stencil = pattern(texture, (max(width, height) + 31) // 32 * 32, SUPERSAMPLING * max(6, pixels // 5))
    sheet = Image.new("RGBA", (width, height), (*COLOURS[colour], 255))
    x, y = (stencil.width - width) // 2, (stencil.height - height) // 2
    sheet.paste((*second, 255), (0, 0, width, height), stencil.crop((x, y, x + width, y + height)))
    return sheet


@lru_cache(maxsize=512)
def pattern(texture: str, side: int, period: int) -> Image.Image:
    """Where the second colour goes: a stencil whose figure comes back every `period` pixels."""
    y, x = np.mgrid[:side, :side] / period
    wave = np.abs(x % 1 - 0.5)
    where = {
        "plain": np.zeros_like(x, dtype=bool),
        "striped": (y % 1) < 0.45,
        "dotted": np.hypot((x + 0.5 * (np.floor(y / 0.8) % 2)) % 1 - 0.5, (y % 0.8) - 0.4) < 0.26,
        "checked": ((x * 1.5).astype(int) + (y * 1.5).astype(int)) % 2 == 0,
        "zigzag": ((y + wave) % 1) < 0.42,
        "ringed": (np.hypot(x - side / period / 2, y - side / period / 2) % 1) < 0.45,
        "two-tone": x > side / period / 2,
    }[texture]
    return Image.fromarray((where * 255).astype(np.uint8))


def _paste(sheet: Image.Image, fill: Image.Image, corners: list[float], points: np.ndarray) -> None:
    """Lay the part of the textured sheet inside a polygon on the drawing."""
    x0, y0 = (int(value) for value in np.floor(points.min(0)))
    x1, y1 = (int(value) + 1 for value in np.ceil(points.max(0)))
    stencil = Image.new("L", (x1 - x0, y1 - y0))
    shifted = (points - (x0, y0)).ravel().tolist()
    ImageDraw.Draw(stencil).polygon(shifted, fill=255)
    sheet.paste(fill.crop((x0, y0, x1, y1)), (x0, y0), stencil)


def _outlined(picture: Image.Image, colour: Colour) -> Image.Image:
    """Trimmed, with a dark rim where the picture ends."""
    alpha = picture.getchannel("A")
    rim = Image.new("RGBA", picture.size, (*colour, 0))
    wider = alpha.filter(ImageFilter.MaxFilter(3))
    rim.putalpha(ImageChops.lighter(alpha, Image.blend(Image.new("L", alpha.size), wider, 0.85)))
    rim.alpha_composite(picture)
    return rim.crop(rim.getbbox())


def visible_box(picture: Image.Image) -> tuple[int, int, int, int] | None:
    """The extent of what can be seen of an RGBA picture, None when that is nothing."""
    return picture.getchannel("A").point(VISIBLE).getbbox()
