"""Encoded bytes to pixels: fast, and safe with bytes from anywhere.

The size is read from the header and judged before anything is allocated. EXIF rotation is not applied: boxes are
fractions of the stored image.
"""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from goldiclip.data.schema import BadSample

if TYPE_CHECKING:
    from PIL import Image

try:
    from torchvision.io import ImageReadMode, decode_jpeg
except ImportError:  # announced for a future torchvision: Pillow decodes everything then
    decode_jpeg = None
# Said at every image; torchcodec, which it points to, has no version for the oldest torch that we support.
warnings.filterwarnings("ignore", "The image decoding and encoding capabilities of TorchVision", DeprecationWarning)

MAX_PIXELS = 1 << 26  # 8,192 × 8,192: 200 MB once decoded
MIN_SIDE = 8
# What the fallback may open: pixels alone, nothing that runs a program. Pillow opens MPO as JPEG.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM")

# JPEG frame headers: every SOF but DHT (C4), JPG (C8) and DAC (CC).
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def decode_image(data: bytes) -> Tensor:
    """uint8 (3, H, W); whatever else the bytes hold, a BadSample."""
    if not data:
        raise BadSample("empty image")
    width, height = image_size(data)
    if width * height > MAX_PIXELS:
        raise BadSample("image too large", f"{width:,} × {height:,} pixels, at most {MAX_PIXELS:,} in all")
    if min(width, height) < MIN_SIDE:
        raise BadSample("image too small", f"{width} × {height} pixels, at least {MIN_SIDE} on each side")
    try:
        image = _decode_fast(data)
    except RuntimeError:
        image = _decode_with_pillow(data)
    if image.shape[-2:] != (height, width):
        raise BadSample("undecodable image", f"the header says {width} × {height}, the pixels {tuple(image.shape)}")
    return image


def image_size(data: bytes) -> tuple[int, int]:
    """(width, height) as the header has it; the image is not decoded."""
    size = None
    if data[:2] == b"\xff\xd8":
        size = _jpeg_size(data)
    elif data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR" and len(data) >= 24:
        size = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    return size or _pillow_size(data)


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker in _JPEG_FRAMES:
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers without a body
            at += 2
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None


def _decode_fast(data: bytes) -> Tensor:
    """Regular JPEG alone: torchvision's PNG decoder crashes the process on some damaged files, which Pillow refuses."""
    if decode_jpeg is None or data[:2] != b"\xff\xd8" or _jpeg_size(data) is None:
        raise RuntimeError("not a regular JPEG")
    return decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=ImageReadMode.RGB)


def _decode_with_pillow(data: bytes) -> Tensor:
    from PIL import Image

    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            warnings.simplefilter("ignore")
            width, height = image.size
            pixels = bytearray(_in_bytes(image).convert("RGB").tobytes())
    except Exception as error:  # Pillow raises whatever its many readers raise
        raise _undecodable(error) from None
    return torch.frombuffer(pixels, dtype=torch.uint8).view(height, width, 3).permute(2, 0, 1)


def _in_bytes(image: Image.Image) -> Image.Image:
    """16 bits of grey as 8: Pillow would cut them at 255, and almost all of the picture is white."""
    if not image.mode.startswith("I"):
        return image
    from PIL import Image

    return Image.fromarray((np.asarray(image, np.int64) // 257).clip(0, 255).astype(np.uint8))


def _pillow_size(data: bytes) -> tuple[int, int]:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                return image.size
    except Image.DecompressionBombError as error:
        raise BadSample("image too large", str(error)[:120]) from None
    except Exception as error:
        raise _undecodable(error) from None


def _undecodable(error: Exception) -> BadSample:
    from PIL import UnidentifiedImageError

    is_unknown = isinstance(error, UnidentifiedImageError)  # which would name an address in memory
    return BadSample("undecodable image", f"none of {', '.join(_FORMATS)}" if is_unknown else str(error)[:120])
