"""A page to draw on: pictures, outlines and wrapped text, one below the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

INK, DIM, FAINT, PAGE, GOLD, RED = "#2b2d42", "#8087a0", "#dfe2ea", "#eef0f4", "#b97d00", "#c1121f"
# For boxes: told apart on photographs, and from each other.
COLOURS = ("#e63946", "#1d7fd1", "#2a9d3f", "#c77700", "#8e44ad", "#00949e", "#d6277f", "#6b7d00")

Rectangle = tuple[float, float, float, float]  # left, top, right, bottom in pixels
Run = tuple[str, str, bool]  # text, colour, whether bold


class Canvas:
    """A white sheet, cut to what was drawn when it is `done`."""

    def __init__(self, width: int, height: int) -> None:
        self.image = Image.new("RGB", (width, height), "white")
        self._draw = ImageDraw.Draw(self.image)
        self.bottom = 0

    def text(self, left: float, top: float, runs: Sequence[Run], width: float, size: int = 14) -> float:
        """Runs of words set one after the other and wrapped; returns where the next line would begin."""
        x, y, line = left, top, size * 1.4
        for word, colour, bold in _words(runs):
            font = _font(size, bold)
            advance = font.getlength(word)
            if x > left and x + advance > left + width:
                x, y = left, y + line
            while advance > width and len(word) > 1:  # a word wider than the column is broken
                fitting = max(1, int(len(word) * width / advance))
                self._draw.text((x, y), word[:fitting], colour, font)
                word, y = word[fitting:], y + line
                advance = font.getlength(word)
            self._draw.text((x, y), word, colour, font)
            x += advance + font.getlength(" ")
        return self._used(y + line)

    def label(self, left: float, top: float, text: str, colour: str, size: int = 12) -> None:
        """White on a coloured patch: a number on a picture."""
        font = _font(size, True)
        width = font.getlength(text)
        self._draw.rectangle((left, top, left + width + 7, top + size + 4), colour)
        self._draw.text((left + 4, top + 1), text, "white", font)

    def picture(self, left: int, top: int, image: Image.Image) -> Rectangle:
        self.image.paste(image, (left, top))
        self._used(top + image.height)
        return left, top, left + image.width, top + image.height

    def box(self, frame: Rectangle, part: Rectangle, colour: str, width: int = 2) -> Rectangle:
        """Outline a part, in fractions, of a picture; on a white hem, to be seen on anything. Returns its corners."""
        w, h = frame[2] - frame[0], frame[3] - frame[1]
        corners = (frame[0] + part[0] * w, frame[1] + part[1] * h, frame[0] + part[2] * w, frame[1] + part[3] * h)
        left, top, right, bottom = corners
        self._draw.rectangle(
            (left - 1, top - 1, max(right, left) + 1, max(bottom, top) + 1), outline="white", width=width + 2
        )
        self._draw.rectangle((left, top, max(right, left), max(bottom, top)), outline=colour, width=width)
        return corners

    def done(self, margin: int) -> Image.Image:
        return self.image.crop((0, 0, self.image.width, min(self.bottom + margin, self.image.height)))

    def _used(self, bottom: float) -> float:
        self.bottom = max(self.bottom, int(bottom))
        return bottom


def stack(images: Sequence[Image.Image], gap: int = 18) -> Image.Image:
    """Cards below each other on a page, with rounded corners."""
    width = max(image.width for image in images) + 2 * gap
    page = Image.new("RGB", (width, sum(image.height + gap for image in images) + gap), PAGE)
    top = gap
    for image in images:
        mask = Image.new("L", image.size, 0)
        ImageDraw.Draw(mask).rounded_rectangle((0, 0, image.width - 1, image.height - 1), 12, fill=255)
        page.paste(image, (gap, top), mask)
        top += image.height + gap
    return page


def from_tensor(image: Tensor) -> Image.Image:
    """uint8 (3, h, w) as a picture."""
    return Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy()))


def fit(image: Image.Image, width: int, height: int) -> Image.Image:
    """As large as it can be within width × height."""
    scale = min(width / image.width, height / image.height)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    return image.resize(size, Image.Resampling.LANCZOS)


def pale(image: Image.Image) -> Image.Image:
    """Washed out, as a ground for outlines."""
    return Image.blend(image.convert("L").convert("RGB"), Image.new("RGB", image.size, "white"), 0.35)


def _words(runs: Iterable[Run]) -> Iterable[Run]:
    return ((word, colour, bold) for text, colour, bold in runs for word in text.split())


@lru_cache(maxsize=32)
def _font(size: int, bold: bool) -> ImageFont.FreeTypeFont:
    import matplotlib

    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size)
