"""From what is said about an image to K short texts: one to three sentences each, drawn anew every time."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
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
    share = np.array([weight for _, weight in pool])
    lengths = rng.integers(1, max_sentences + 1, size=num).tolist()
    consecutive = (rng.random(num) < 0.5).tolist()
    where = rng.random((num, len(pool)))
    draw = (_window if flag else _subset for flag in consecutive)
    return [". ".join([sentences[i] for i in pick(share, m, at)]) for pick, m, at in zip(draw, lengths, where)]


def _window(share: np.ndarray, length: int, at: np.ndarray) -> Sequence[int]:
    """`length` neighbours; every window can be drawn, the last one too. All of them when there are no more."""
    if length >= len(share):
        return range(len(share))
    total = np.concatenate([[0.0], share.cumsum()])
    ends = (total[length:] - total[:-length]).cumsum()
    start = int(np.searchsorted(ends, at[0] * ends[-1], side="right"))
    start = min(start, len(ends) - 1)
    return range(start, start + length)


def _subset(share: np.ndarray, length: int, at: np.ndarray) -> Sequence[int]:
    """`length` different sentences in random order: as if drawn one after the other in proportion to their weights."""
    order = np.argsort(np.log(1.0 - at) / -share)  # smallest of exponential clocks with rates `share`
    return order[:length].tolist()
