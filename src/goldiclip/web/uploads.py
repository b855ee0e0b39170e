"""Pictures that visitors bring: judged by their headers, decoded once, kept small, few, and in memory alone."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from threading import Lock

import torch.nn.functional as F
from torch import Tensor

from goldiclip.data.decode import decode_image, image_size

MAX_BYTES = 12 << 20
MAX_PIXELS = 32_000_000
KEPT_SIDE = 1_024
KEPT = 64

# What the bytes must begin with, whatever their sender calls them.
_BEGINNINGS = {
    "JPEG": (b"\xff\xd8\xff",),
    "PNG": (b"\x89PNG\r\n\x1a\n",),
    "WebP": (b"RIFF",),
    "GIF": (b"GIF87a", b"GIF89a"),
}


class NotTaken(ValueError):
    """A file that is no picture of a kind, or of a size, that is taken."""


class Uploads:
    """The last few pictures, each under a name that cannot be guessed; the oldest makes room for the newest."""

    def __init__(self, keep: int = KEPT) -> None:
        self.keep = keep
        self._pictures: OrderedDict[str, Tensor] = OrderedDict()
        self._lock = Lock()

    def add(self, data: bytes) -> tuple[str, Tensor]:
        picture = small(decoded(data))
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._pictures[name] = picture
            while len(self._pictures) > self.keep:
                self._pictures.popitem(last=False)
        return name, picture

    def get(self, name: str) -> Tensor:
        with self._lock:
            if name not in self._pictures:
                raise KeyError("this upload is no longer kept; upload the picture again")
            self._pictures.move_to_end(name)
            return self._pictures[name]

    def __len__(self) -> int:
        return len(self._pictures)


def decoded(data: bytes) -> Tensor:
    """uint8 (3, H, W)."""
    kinds = [kind for kind, begins in _BEGINNINGS.items() if data.startswith(begins)]
    if not kinds or (kinds == ["WebP"] and data[8:12] != b"WEBP"):
        raise NotTaken(f"not a picture of a kind that is taken: {', '.join(_BEGINNINGS)}")
    width, height = image_size(data)
    if width * height > MAX_PIXELS:
        raise NotTaken(f"{width:,} × {height:,} pixels; at most {MAX_PIXELS:,} are taken")
    return decode_image(data)


def small(picture: Tensor, side: int = KEPT_SIDE) -> Tensor:
    """uint8 (3, H, W), no side longer than `side`."""
    height, width = picture.shape[1:]
    scale = side / max(height, width)
    if scale >= 1:
        return picture
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    return F.interpolate(picture[None], size, mode="bicubic", antialias=True)[0]
