"""Training data drawn on the spot: coloured shapes on plain ground, with true captions, boxes and questions."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from goldiclip.data.shards import write_shards
from goldiclip.types import Caption, Question, Region, Sample

COLOURS = {"red": (200, 40, 40), "green": (40, 160, 60), "blue": (50, 80, 200), "yellow": (220, 200, 40)}
SHAPES = ("square", "circle")
GROUNDS = {"white": (245, 245, 245), "grey": (150, 150, 150), "black": (20, 20, 20)}


def drawn_sample(number: int) -> Sample:
    rng = np.random.default_rng(number)
    colour, shape, ground = (str(rng.choice(list(names))) for names in (COLOURS, SHAPES, GROUNDS))
    size = int(rng.integers(16, 36))
    left, top = (int(rng.integers(0, 64 - size)) for _ in range(2))
    image = Image.new("RGB", (64, 64), GROUNDS[ground])
    draw = ImageDraw.Draw(image)
    (draw.rectangle if shape == "square" else draw.ellipse)((left, top, left + size, top + size), COLOURS[colour])
    encoded = io.BytesIO()
    image.save(encoded, "JPEG", quality=90)
    side = "left" if left + size / 2 < 32 else "right"
    short = f"a {colour} {shape} on {ground} ground"
    long = f"A {colour} {shape} lies on the {side}. The ground is {ground}. It is {size} pixels wide."
    box = (left / 64, top / 64, (left + size) / 64, (top + size) / 64)
    return Sample(
        key=f"{number:06d}",
        image=encoded.getvalue(),
        captions=(Caption(short, "short"), Caption(long, "long"), Caption(f"{shape} number {number}", "raw")),
        regions=(Region(f"the {colour} {shape}", box, short),),
        questions=(Question(f"what colour is the {shape}?", colour, "color"),),
    )


def write_drawn(folder: Path, count: int, first: int = 0) -> str:
    """Shards of `count` samples; returns the glob that names them."""
    write_shards([drawn_sample(number) for number in range(first, first + count)], folder, per_shard=10)
    return str(folder / "*.tar")
