"""Signs that a caption is not what it should be: cheap, and each with a name to count by."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from goldiclip.types import Sample

_WORD = re.compile(r"[^\W_]+")
_ADDRESS = re.compile(r"^\s*(?:https?://|www\.)\S+\s*$|^\S+\.(?:jpe?g|png|webp|gif)$", re.I)
# UTF-8 read as Latin-1, and characters that stand for lost ones.
_MOJIBAKE = re.compile(r"Ã[\x80-\xbf©¨ª§]|â€|Â[\xa0-\xbf]|\ufffd")
_BROKEN_OFF = re.compile(r"(\b\w+(?:\W+\w+){0,11}\b)(?:\W+\1){4,}", re.I)
MAX_CHARACTERS = 5_000
MIN_SHARED = 0.2


def doubts_about(sample: Sample, record: Mapping[str, Any]) -> Iterator[str]:
    """What is odd about a sample's captions, each reason once; `record` is what its image brought along."""
    texts = [caption.text for caption in sample.captions]
    if not any(_WORD.search(text) for text in texts):
        yield "captions without a word"
    if any(_ADDRESS.match(text) for text in texts):
        yield "a file name or an address as caption"
    if any(_MOJIBAKE.search(text) for text in texts):
        yield "characters of another encoding"
    if any(len(text) > MAX_CHARACTERS for text in texts):
        yield "a caption longer than a page"
    if any(_BROKEN_OFF.search(text[:MAX_CHARACTERS]) for text in texts if len(text) > 200):
        yield "a caption that repeats itself"
    if _disagrees(sample, record):
        yield "another caption than the image brought along"


def _disagrees(sample: Sample, record: Mapping[str, Any]) -> bool:
    """The raw caption shares hardly a word with the one beside the image: joined to the wrong row?"""
    own = record.get("caption")
    raw = [caption.text for caption in sample.captions if caption.source == "raw"]
    if not isinstance(own, str) or not raw:
        return False
    said = {word.lower() for word in _WORD.findall(own)}
    if len(said) < 3:
        return False
    return max(len(said & {word.lower() for word in _WORD.findall(text)}) for text in raw) < MIN_SHARED * len(said)
