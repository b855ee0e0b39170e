"""From what is said about an image to K short texts: one to three sentences each, drawn anew every time."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from numpy.random import Generator

from goldiclip.data.schema import BadSample
from goldiclip.types import CAPTION_SOURCES, Caption

_SENTENCE_END = re.compile(r"\n|</s>|[.]")
# Longer than any context can hold: 77 tokens of the longest words are shorter.
MAX_SENTENCE_CHARACTERS = 4_000


def split_sentences(text: str) -> list[str]:
    """Stripped sentences, empty ones dropped."""
    parts = (part.strip() for part in _SENTENCE_END.split(text))
    return [part[:MAX_SENTENCE_CHARACTERS] for part in parts if part]


def sample_captions(
    captions: Sequence[Caption], num: int, max_sentences: int, weights: Sequence[float], rng: Generator
) -> list[str]:
    """`num` texts. Each: m ~ U{1 … max_sentences} sentences, half the time consecutive, half at random, joined by ". ".

    `weights` are those of a sentence from a raw, a short and a long caption. Consecutive sentences may cross from one
    caption into the next; a window is drawn by the mean weight of its sentences. A source of weight 0 is never drawn.
    """
    weight_of = dict(zip(CAPTION_SOURCES, weights, strict=True))
    pool = [(text, weight_of[caption.source]) for caption in captions for text in split_sentences(caption.text)]
    pool = [(text, weight) for text, weight in pool if weight > 0]
    if not pool:
        raise BadSample("no caption", f"{len(captions)} captions hold no sentence of a source with weight above 0")
    sentences = [text for text, _ in pool]
    shares = [weight for _, weight in pool]
    texts = []
    for how, many, *where in rng.random((num, 2 + max_sentences)).tolist():
        length = 1 + int(many * max_sentences)
        chosen = _window(shares, length, where[0]) if how < 0.5 else _subset(shares, where[:length])
        texts.append(". ".join([sentences[i] for i in chosen]))
    return texts


def _window(shares: Sequence[float], length: int, where: float) -> Sequence[int]:
    """`length` neighbours; every window can be drawn, the last one too. All of them when there are no more."""
    if length >= len(shares):
        return range(len(shares))
    start = _pick([sum(shares[i : i + length]) for i in range(len(shares) - length + 1)], where)
    return range(start, start + length)


def _subset(shares: Sequence[float], where: Sequence[float]) -> list[int]:
    """A different one for each number, in the order drawn, while there are any."""
    left = list(range(len(shares)))
    return [left.pop(_pick([shares[i] for i in left], at)) for at in where[: len(shares)]]


def _pick(shares: Sequence[float], where: float) -> int:
    """The place that `where` in [0, 1) falls on when each has room by its share."""
    ends = list(accumulate(shares))
    return min(bisect_right(ends, where * ends[-1]), len(ends) - 1)
