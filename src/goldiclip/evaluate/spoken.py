"""What the decoder says about held-out samples, beside what a constant answer would get."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from goldiclip.data.decode import image_size
from goldiclip.evaluate.metrics import estimate
from goldiclip.inference.engine import Engine
from goldiclip.types import Box, Question, Region, Sample

# Words that claim nothing about a picture.
EMPTY = frozenset(
    [
        "a",
        "an",
        "the",
        "of",
        "and",
        "or",
        "with",
        "in",
        "on",
        "at",
        "to",
        "is",
        "are",
        "was",
        "it",
        "its",
        "this",
        "that",
        "there",
        "here",
        "some",
        "one",
        "no",
        "s",
        "image",
        "picture",
        "photo",
        "photograph",
        "showing",
        "shows",
        "show",
        "seen",
        "see",
        "can",
        "be",
        "you",
    ]
)


@dataclass(frozen=True)
class Spoken:
    """One thing asked and what was said: what a page can show."""

    sample: Sample
    task: str
    asked: str
    said: str
    truth: str
    score: float  # 1 or 0, or the overlap of two boxes
    box: Box | None = None  # in fractions of the picture
    true_box: Box | None = None


def answers(engine: Engine, samples: Sequence[Sample], per_sample: int = 3) -> Iterator[Spoken]:
    """The first few questions of each sample; those asked of several samples are asked of all of them at once."""
    askers: dict[str, list[tuple[Sample, Question]]] = defaultdict(list)
    for sample in samples:
        for asked in sample.questions[:per_sample]:
            askers[asked.question].append((sample, asked))
    for question, asking in askers.items():
        for (sample, asked), said in zip(asking, engine.ask([sample.image for sample, _ in asking], question)):
            is_right = float(plain(said.text) == plain(asked.answer))
            yield Spoken(sample, asked.kind or "any", question, said.text, asked.answer, is_right)


def captions(engine: Engine, samples: Sequence[Sample]) -> Iterator[Spoken]:
    """Right is a caption each of whose words is somewhere in what is known of the picture, and that says something."""
    for sample, said in zip(samples, engine.caption([sample.image for sample in samples])):
        known = {word for caption in sample.captions for word in claims(caption.text)}
        said_words = claims(said.text)
        truth = next((caption.text for caption in sample.captions if caption.source == "short"), "")
        yield Spoken(sample, "cap", "", said.text, truth, float(bool(said_words) and said_words <= known))


def located(engine: Engine, samples: Sequence[Sample]) -> Iterator[Spoken]:
    """One phrase of each sample, in turn; the score is the overlap with its best true box."""
    for number, sample in enumerate(samples):
        phrases = sorted({region.phrase for region in sample.regions})
        if not phrases:
            continue
        phrase = phrases[number % len(phrases)]
        truth = max((region for region in sample.regions if region.phrase == phrase), key=_score).box
        height, width = _size(sample)
        x0, y0, x1, y1 = engine.locate(sample.image, phrase, beams=1).box
        box = (x0 / width, y0 / height, x1 / width, y1 / height)
        yield Spoken(sample, "ref", phrase, "", "", overlap(box, truth), box, truth)


def spoken_numbers(found: Iterable[Spoken]) -> Iterator[tuple[str, float]]:
    """`ask/{kind}/accuracy` beside `…/majority`, all kinds together, `caption/right`, `locate/mean_iou`; intervals."""
    by_task: dict[str, list[Spoken]] = defaultdict(list)
    for one in found:
        by_task[one.task].append(one)
    for task, name in (("cap", "caption/right"), ("ref", "locate/mean_iou")):
        if said := by_task.pop(task, []):
            yield name, estimate(torch.tensor([one.score for one in said]))
    constant = {kind: majority(one.truth for one in said) for kind, said in by_task.items()}
    for kind, said in by_task.items():
        yield f"ask/{kind}/accuracy", estimate(torch.tensor([one.score for one in said]))
        yield f"ask/{kind}/majority", constant[kind]
    if asked := [one for said in by_task.values() for one in said]:
        yield "ask/accuracy", estimate(torch.tensor([one.score for one in asked]))
        yield "ask/majority", sum(constant[one.task] for one in asked) / len(asked)


def majority(truths: Iterable[str]) -> float:
    """The share that the commonest answer alone would get right: the best that can be had without looking."""
    counts = Counter(map(plain, truths))
    return max(counts.values()) / counts.total()


def plain(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", text.lower()))


def claims(text: str) -> frozenset[str]:
    """The words of a text that say something about a picture, plurals as singulars."""
    return frozenset(word.removesuffix("s") for word in plain(text).split() if word not in EMPTY)


def overlap(one: Box, other: Box) -> float:
    """Intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(width, 0.0) * max(height, 0.0)
    return shared / (_area(one) + _area(other) - shared) if shared else 0.0


def _area(box: Box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _score(region: Region) -> float:
    return region.score


def _size(sample: Sample) -> tuple[int, int]:
    width, height = image_size(sample.image)
    return height, width
