"""Annotations, drawn: each image with its boxes, its captions with the phrases in colour, questions and answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from goldiclip.config import ConfigError
from goldiclip.data.canvas import COLOURS, DIM, INK, RED, Canvas, Run, fit, from_tensor, stack
from goldiclip.data.decode import decode_image
from goldiclip.data.schema import BadSample
from goldiclip.data.shards import Shards
from goldiclip.prepare.check import TRAINED_SCORE
from goldiclip.prepare.stages import marks, phrases_of
from goldiclip.types import Caption, Sample

PICTURE, TEXT, GAP, MARGIN = 400, 430, 20, 24  # pixels
WIDTH = 2 * MARGIN + PICTURE + 2 * (TEXT + GAP)
MAX_CHARACTERS = 600  # of one caption


def draw_sheet(shards: Shards, path: Path, count: int = 8, position: int | None = None) -> Path:
    """Draw `count` samples as a PNG: from `position` on, or evenly spread."""
    if count < 1:
        raise ConfigError(f"--count is {count}; expected 1 or more")
    if position is not None and not 0 <= position < len(shards):
        raise ConfigError(f"--position is {position}; expected 0 to {len(shards) - 1:,}, the last sample there is")
    count = min(count, len(shards))
    if position is None:
        rows = np.linspace(0, len(shards) - 1, count).astype(int).tolist()
    else:
        rows = list(range(position, min(position + count, len(shards))))
    path.parent.mkdir(parents=True, exist_ok=True)
    stack([_card(shards, row) for row in rows]).save(path)
    return path


def _card(shards: Shards, row: int) -> Image.Image:
    try:
        sample = shards[row]
        image = from_tensor(decode_image(sample.image))
    except BadSample as error:
        canvas = Canvas(WIDTH, 400)
        canvas.text(MARGIN, MARGIN, [(f"{row:,}", INK, True), (str(error), RED, False)], WIDTH - 2 * MARGIN)
        return canvas.done(MARGIN)
    canvas = Canvas(WIDTH, 8_000)
    stages = ", ".join(f"{name} {mark[:6]}" for name, mark in marks(sample).items()) or "no stage has been here"
    facts = f"{Path(sample.origin).name} · sample {row:,} · {image.width} × {image.height} · {stages}"
    top = int(canvas.text(MARGIN, 18, [(sample.key, INK, True), (facts, DIM, False)], WIDTH - 2 * MARGIN, 15)) + 6
    colours = _colours(sample)
    _draw_image(canvas, sample, image, colours, top)
    _draw_captions(canvas, sample, colours, MARGIN + PICTURE + GAP, top)
    _draw_questions(canvas, sample, MARGIN + PICTURE + TEXT + 2 * GAP, top)
    return canvas.done(MARGIN)


def _colours(sample: Sample) -> dict[str, str]:
    """A colour for every phrase that has a box; equal phrases share one."""
    phrases = dict.fromkeys(region.phrase for region in sample.regions)
    return {phrase: COLOURS[at % len(COLOURS)] for at, phrase in enumerate(phrases)}


def _draw_image(canvas: Canvas, sample: Sample, image: Image.Image, colours: dict[str, str], top: int) -> None:
    """The image with its boxes, weak ones thin; below, what each number says."""
    frame = canvas.picture(MARGIN, top, fit(image, PICTURE, PICTURE))
    for number, region in reversed(list(enumerate(sample.regions, 1))):
        colour = colours[region.phrase]
        corner = canvas.box(frame, region.box, colour, 3 if region.score >= TRAINED_SCORE else 1)
        canvas.label(*corner[:2], f"{number}", colour)
    y = frame[3] + 10
    title: list[Run] = [(_number(len(sample.regions), "box", "boxes"), DIM, True)]
    if any(region.score < TRAINED_SCORE for region in sample.regions):
        title.append(("thin: weaker than training takes", DIM, False))
    y = canvas.text(MARGIN, y, title, PICTURE, 13) + 2
    for number, region in enumerate(sample.regions, 1):
        canvas.label(MARGIN, y + 1, f"{number}", colours[region.phrase], 11)
        said: list[Run] = [(region.phrase, INK, False), (f"{region.score:.2f}", DIM, False)]
        y = canvas.text(MARGIN + 26, y, said, PICTURE - 40, 13) + 2


def _draw_captions(canvas: Canvas, sample: Sample, colours: dict[str, str], left: int, top: float) -> None:
    """Every caption by source; then the phrases with the sentence each came from."""
    y = top
    for caption in sample.captions:
        y = canvas.text(left, y, [(caption.source, DIM, True), *_said(caption)], TEXT, 13) + 2
    by_sentence: dict[str, list[Run]] = {}
    for sentence, phrase in phrases_of(sample):
        by_sentence.setdefault(sentence, []).append((f"[{phrase}]", colours.get(phrase, INK), phrase in colours))
    y = canvas.text(
        left, y + 8, [("phrases, bold where a box was found" if by_sentence else "no phrases", DIM, True)], TEXT, 13
    )
    for sentence, runs in by_sentence.items():
        y = canvas.text(left, y + 2, [*runs, (f"← {sentence[:160]}", DIM, False)], TEXT, 13)


def _said(caption: Caption) -> list[Run]:
    text = caption.text
    return [(text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} …", INK, False)]


def _draw_questions(canvas: Canvas, sample: Sample, left: int, top: float) -> None:
    y = canvas.text(left, top, [(_number(len(sample.questions), "question", "questions"), DIM, True)], TEXT, 13) + 2
    for item in sample.questions:
        runs: list[Run] = [(item.question, INK, False), (item.answer, COLOURS[2], True), (item.kind, DIM, False)]
        y = canvas.text(left, y, runs, TEXT, 13) + 2


def _number(count: int, one: str, several: str) -> str:
    return f"{count or 'no'} {one if count == 1 else several}"
