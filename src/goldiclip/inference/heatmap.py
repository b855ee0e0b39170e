"""Pictures worth publishing: where phrases are, with and without the sink, masks of classes, and boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from goldiclip.inference.colours import class_colour, glow, phrase_colour, tint
from goldiclip.inference.engine import Engine, Located, enlarged
from goldiclip.inference.pictures import Picture, pixels
from goldiclip.inference.segment import Segmented

Colour = tuple[int, int, int]
Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

PANEL = 420  # width of one panel in pixels
MARGIN, LINE = 16, 26
INK, FAINT, PAPER = (24, 26, 31), (110, 116, 125), (255, 255, 255)
MOST_NAMES = 20


@dataclass(frozen=True)
class PhraseMaps:
    """Where phrases are in one picture: maps (M, H, W) in 0..1, and the share of attention that patches kept."""

    phrases: tuple[str, ...]
    with_sink: Tensor
    without_sink: Tensor
    kept: tuple[float, ...]


def phrase_maps(engine: Engine, picture: Picture, phrases: Sequence[str]) -> PhraseMaps:
    """`without_sink` fills 0..1 for each phrase; `with_sink` is the same times what the phrase kept of its attention.

    A phrase that the picture does not show has sent most of its attention to the sink, and so stays pale.
    """
    features, texts = engine.encode_images([picture], how="whole"), engine.encode_texts(phrases)
    grids = engine.patch_maps(features, texts)[0].cpu()
    kept = grids.flatten(1).sum(1)
    without = strengths(grids)
    size = pixels(picture).shape[1:]
    large = enlarged(without, (size[0], size[1])).clamp(0, 1)
    return PhraseMaps(tuple(phrases), large * kept.clamp(0, 1)[:, None, None], large, tuple(kept.tolist()))


def strengths(grids: Tensor) -> Tensor:
    """(M, rows, columns) scaled to 0..1 for each: nothing at its median, full at its second largest patch."""
    flat = grids.flatten(1)
    low = flat.median(1).values
    high = flat.topk(min(2, flat.shape[1]), 1).values[:, -1]
    scaled = (grids - low[:, None, None]) / (high - low).clamp(min=1e-9)[:, None, None]
    return scaled.clamp(0, 1)


# --- sheets ---------------------------------------------------------------------------------------------------------


def draw_phrases(picture: Picture, maps: PhraseMaps, title: str = "") -> Image.Image:
    """The picture, all phrases over it, and each phrase with the sink and without it."""
    shown = _array(picture)
    panels = [
        ("image", shown),
        ("all phrases", glow(shown, maps.with_sink)),
    ]
    for place, phrase in enumerate(maps.phrases):
        one = slice(place, place + 1)
        panels += [
            (f"“{phrase}”, with sink", glow(shown, maps.with_sink[one], place)),
            (f"“{phrase}”, without sink", glow(shown, maps.without_sink[one], place)),
        ]
    legend = [
        (phrase_colour(place), f"{phrase}  ·  {1 - kept:.0%} to the sink")
        for place, (phrase, kept) in enumerate(zip(maps.phrases, maps.kept))
    ]
    return _sheet(panels, legend, columns=2 if len(maps.phrases) < 3 else 4, title=title)


def draw_segments(picture: Picture, found: Segmented, title: str = "") -> Image.Image:
    """The picture beside its classes, with a legend of those it shows, largest first."""
    shown = _array(picture)
    order = sorted(range(len(found.names)), key=lambda one: -found.shares[one])
    legend = [
        (class_colour(one), f"{found.names[one]}  ·  {found.shares[one]:.0%}")
        for one in order[:MOST_NAMES]
        if found.shares[one] > 0
    ]
    mask = tint(shown, found.mask.numpy(), len(found.names))
    return _sheet([("image", shown), ("classes", mask)], legend, columns=2, title=title)


def draw_box(picture: Picture, phrase: str, found: Located) -> Image.Image:
    """The picture with the box of a phrase."""
    image = Image.fromarray(_array(picture))
    wide = max(2, round(min(image.size) / 120))
    ImageDraw.Draw(image).rectangle(found.box, outline=phrase_colour(0), width=wide)
    legend = [(phrase_colour(0), f"{phrase}  ·  confidence {found.confidence:.0%}")]
    return _sheet([("", np.array(image))], legend, columns=1)


def _array(picture: Picture) -> np.ndarray:
    return pixels(picture).permute(1, 2, 0).numpy()


def _sheet(
    panels: Sequence[tuple[str, np.ndarray]],
    legend: Sequence[tuple[Colour, str]],
    columns: int,
    title: str = "",
) -> Image.Image:
    height = max(1, round(PANEL * panels[0][1].shape[0] / panels[0][1].shape[1]))
    font, large = ImageFont.load_default(15), ImageFont.load_default(20)
    rows = -(-len(panels) // columns)
    width = MARGIN + columns * (PANEL + MARGIN)
    top = MARGIN + (LINE + MARGIN // 2 if title else 0)
    lines = _flow(legend, font, width - 2 * MARGIN)
    sheet = Image.new("RGB", (width, top + rows * (LINE + height + MARGIN) + len(lines) * LINE + MARGIN), PAPER)
    draw = ImageDraw.Draw(sheet)
    if title:
        draw.text((MARGIN, MARGIN), _short(title, large, width - 2 * MARGIN), fill=INK, font=large)
    for place, (name, panel) in enumerate(panels):
        left = MARGIN + (place % columns) * (PANEL + MARGIN)
        down = top + (place // columns) * (LINE + height + MARGIN)
        draw.text((left, down), _short(name, font, PANEL), fill=FAINT, font=font)
        small = Image.fromarray(panel).resize((PANEL, height), Image.Resampling.LANCZOS)
        sheet.paste(_rounded(small), (left, down + LINE))
    down = top + rows * (LINE + height + MARGIN)
    for number, line in enumerate(lines):
        for left, colour, words in line:
            _swatch(draw, MARGIN + left, down + number * LINE, colour, words, font)
    return sheet


def _flow(legend: Sequence[tuple[Colour, str]], font: Font, room: int) -> list[list[tuple[int, Colour, str]]]:
    """The legend in lines that fit: (left, colour, words) each."""
    lines: list[list[tuple[int, Colour, str]]] = [[]]
    left = 0
    for colour, words in legend:
        wide = 24 + int(font.getlength(words)) + 28
        if lines[-1] and left + wide > room:
            lines.append([])
            left = 0
        lines[-1].append((left, colour, words))
        left += wide
    return lines


def _swatch(draw: ImageDraw.ImageDraw, left: int, top: int, colour: Colour, words: str, font: Font) -> None:
    draw.rounded_rectangle((left, top + 2, left + 15, top + 17), 4, fill=colour)
    draw.text((left + 24, top), words, fill=INK, font=font)


def _rounded(panel: Image.Image, radius: int = 8) -> Image.Image:
    """Corners cut round, on the sheet's white."""
    mask = Image.new("L", panel.size, 0)
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, panel.width - 1, panel.height - 1), radius, fill=255)
    return Image.composite(panel, Image.new("RGB", panel.size, PAPER), mask)


def _short(words: str, font: Font, room: int) -> str:
    """As many of the words as fit."""
    if font.getlength(words) <= room:
        return words
    while words and font.getlength(words + "…") > room:
        words = words[:-1]
    return words + "…"
