"""What the tests of the page share: pictures, phrases, and where the server is."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from goldiclip.prepare.chunks import rule_chunks
from goldiclip.prepare.phrases import clean


def find_phrases(text: str) -> list[str]:
    return list(dict.fromkeys(filter(None, map(clean, rule_chunks(text)))))


def picture(seed: int, width: int = 64, height: int = 48) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


@dataclass
class Server:
    url: str
    port: int
