"""Evaluation sets from held-out scenes: every query is about its own image, every distractor is safe.

A caption stays in a gallery only if no other image of it might be meant, by `statements.holds` in the wide reading.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
from PIL import Image

from goldiclip.data.scenes.captions import Passage
from goldiclip.data.scenes.graph import Scene
from goldiclip.data.scenes.questions import QUESTION_KINDS, Asked, all_questions
from goldiclip.data.scenes.sample import spoken, to_sample
from goldiclip.data.scenes.statements import Gallery
from goldiclip.types import Sample

RELEVANT = 2
DISTRACTORS = 23
KINDRED = 8  # of the distractors show something the question names, as far as there are such images
IGNORE = 255
MAX_CLASSES = 150


@dataclass(frozen=True)
class Exhibit:
    """A held-out scene without its pixels, and what is written of it."""

    scene: Scene
    sample: Sample
    mask: bytes  # PNG: 0 for the background, 1 + i where group i is seen

    @classmethod
    def of(cls, scene: Scene) -> Exhibit:
        buffer = io.BytesIO()
        Image.fromarray(scene.owner).save(buffer, "PNG")
        nothing = np.zeros((0, 0, 3), np.uint8)
        return cls(replace(scene, image=nothing, owner=nothing[..., 0]), to_sample(scene), buffer.getvalue())

    @property
    def file(self) -> str:
        return f"{self.scene.key}.jpg"

    @cached_property
    def passages(self) -> tuple[Passage, ...]:
        return spoken(self.scene)


class Exhibition:
    """Exhibits side by side, and which of their captions belong to one of them alone."""

    def __init__(self, exhibits: Sequence[Exhibit]) -> None:
        self.exhibits = exhibits
        self.gallery = Gallery([exhibit.scene for exhibit in exhibits])

    def own_captions(self, index: int, source: str) -> list[str]:
        """The captions of one source of an exhibit that might be meant of no other."""
        return [
            passage.text
            for passage in self.exhibits[index].passages
            if passage.source == source and self._is_own(index, passage)
        ]

    def own_sentences(self, index: int) -> list[str]:
        """The sentences of its long captions, each by itself."""
        found: dict[str, None] = {}
        for passage in self.exhibits[index].passages:
            if passage.source == "long":
                for statement in passage.statements:
                    if self.gallery.about(statement) == {index}:
                        found.setdefault(f"{statement.text}.")
        return list(found)

    def has_own(self, index: int) -> bool:
        return bool(self.own_captions(index, "short")) and bool(self.own_captions(index, "long"))

    def _is_own(self, index: int, passage: Passage) -> bool:
        return frozenset.intersection(*map(self.gallery.about, passage.statements)) == {index}


def select(exhibits: Sequence[Exhibit], count: int) -> list[Exhibit]:
    """The first `count` exhibits that have captions of their own among all of them, or as many as there are."""
    exhibition = Exhibition(exhibits)
    return [exhibit for i, exhibit in enumerate(exhibits) if exhibition.has_own(i)][:count]


# --- retrieval ------------------------------------------------------------------------------------------------------


def retrieval(exhibition: Exhibition) -> dict[str, Any]:
    """Short captions."""
    return _annotations(exhibition, [exhibition.own_captions(i, "short") for i in range(len(exhibition.exhibits))])


def fine_grained(exhibition: Exhibition) -> dict[str, Any]:
    """Single sentences, each a query of its own."""
    return _annotations(exhibition, [exhibition.own_sentences(i) for i in range(len(exhibition.exhibits))])


def long_text(exhibition: Exhibition) -> dict[str, Any]:
    """One long caption each."""
    return _annotations(exhibition, [exhibition.own_captions(i, "long")[:1] for i in range(len(exhibition.exhibits))])


def _annotations(exhibition: Exhibition, captions: Sequence[list[str]]) -> dict[str, Any]:
    rows = [
        {"image": f"images/{exhibit.file}", "captions": texts}
        for exhibit, texts in zip(exhibition.exhibits, captions, strict=True)
        if texts
    ]
    return {"annotations": rows}


# --- questions ------------------------------------------------------------------------------------------------------


def questions(exhibition: Exhibition, seed: int) -> dict[str, Any]:
    """Questions that two images or more answer alike, with images to which they do not apply: RetVQA's form."""
    most = max(20, len(exhibition.exhibits) // 10)
    pool: dict[str, list[dict[str, Any]]] = {kind: [] for kind in QUESTION_KINDS}
    random = Random(f"{seed}/retrieval questions")
    shared = list(_shared_questions(exhibition))
    random.shuffle(shared)
    for asked, relevant in shared:
        if len(pool[asked.kind]) < most:
            pool[asked.kind] += _posed(exhibition, asked, relevant, random)
    rows = [row for rows in pool.values() for row in rows]
    return {f"{i:05d}": row for i, row in enumerate(rows)}


def _shared_questions(exhibition: Exhibition) -> Iterator[tuple[Asked, list[int]]]:
    """A question, and the exhibits that have the same answer to it."""
    having: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    first: dict[tuple[str, str], Asked] = {}
    for i, exhibit in enumerate(exhibition.exhibits):
        for asked in all_questions(exhibit.scene):
            having[asked.question, asked.answer].append(i)
            first.setdefault((asked.question, asked.answer), asked)
    for key, relevant in having.items():
        if len(relevant) >= RELEVANT:
            yield first[key], relevant


def _posed(exhibition: Exhibition, asked: Asked, relevant: list[int], random: Random) -> list[dict[str, Any]]:
    """The question with its images, if there are enough to which it does not apply."""
    applies = exhibition.gallery.about(asked.about)
    safe = [i for i in range(len(exhibition.exhibits)) if i not in applies]
    if len(safe) < DISTRACTORS:
        return []
    named = {claim.kind for claim in asked.about.claims} - {""}
    kindred = [i for i in safe if named & {group.kind for group in exhibition.exhibits[i].scene.groups}]
    chosen = random.sample(kindred, min(KINDRED, len(kindred)))
    rest = sorted(set(safe) - set(chosen))
    distractors = chosen + random.sample(rest, DISTRACTORS - len(chosen))
    files = [exhibit.file for exhibit in exhibition.exhibits]
    return [
        {
            "question": asked.question,
            "answer": asked.answer,
            "q_type": asked.kind,
            "split": "test",
            "pos_imgs": [files[i] for i in random.sample(relevant, RELEVANT)],
            "neg_imgs": [files[i] for i in distractors],
        }
    ]


# --- segmentation ---------------------------------------------------------------------------------------------------


def classes(exhibits: Sequence[Exhibit]) -> list[str]:
    """The kinds to tell apart: all that occur, the most frequent ones when there are more than an index can hold."""
    counts: dict[str, int] = defaultdict(int)
    for exhibit in exhibits:
        for group in exhibit.scene.groups:
            counts[group.kind] += 1
    return sorted(sorted(counts, key=lambda kind: (-counts[kind], kind))[:MAX_CLASSES])


def class_mask(exhibit: Exhibit, names: Sequence[str]) -> bytes:
    """A PNG of indices into `names`; the background, and kinds that are not among them, are to be ignored."""
    table = np.full(256, IGNORE, np.uint8)
    for i, group in enumerate(exhibit.scene.groups):
        if group.kind in names:
            table[i + 1] = names.index(group.kind)
    owner = np.asarray(Image.open(io.BytesIO(exhibit.mask)))
    buffer = io.BytesIO()
    Image.fromarray(table[owner]).save(buffer, "PNG")
    return buffer.getvalue()
