"""What the decoder is asked: one table of tasks, each a prompt and a target drawn from a sample.

    cap  "CAP caption is"                                   -> a short caption, whole
    ref  "REF {phrase}, box is"                             -> "[x1, y1, x2, y2]"
    grd  "OBGR [x1, y1, x2, y2], grounded caption is"       -> the sentence the phrase came from
    vqa  "VQA {question}, answer is"                        -> the answer

Boxes are integers in pixels of the first global view. Prompt and target are tokenised apart, so that generation starts
from exactly the prompt that was trained on: `prompt_tokens` serves both.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from numpy.random import Generator

from goldiclip.config import Config, Data
from goldiclip.data.captions import split_sentences
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.types import DECODER_TASKS, Box, Region, Sample, Texts

T = TypeVar("T")
PixelBox = tuple[int, int, int, int]

_BOX = re.compile(r"\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")


@dataclass(frozen=True, slots=True)
class Ask:
    """One thing to learn to say. `subject` stands inside the prompt and is what gives way when room is short."""

    subject: str
    target: str


@dataclass(frozen=True, slots=True)
class View:
    """Where the global view lies and what counts as seen in it."""

    crop: Box
    size: int
    data: Data

    def box(self, region: Region) -> PixelBox | None:
        return box_in_crop(region.box, self.crop, self.size, self.data.min_box_visible)


@dataclass(frozen=True, slots=True)
class Task:
    prompt: str  # with {} where the subject stands
    draw: Callable[[Sample, View, float, Counter[str]], Ask | None]
    has_whole_target: bool  # a box or an answer is worth nothing when cut; a sentence is
    has_whole_subject: bool = False


# --- boxes ----------------------------------------------------------------------------------------------------------


def box_in_crop(box: Box, crop: Box, size: int, min_visible: float) -> PixelBox | None:
    """A box of the image in pixels of a crop resized to size × size; None when too little of it is left.

    Both boxes are fractions of the stored image. A coordinate is min(floor(x), size − 1), as a decoder can say it.
    """
    x0, y0, x1, y1 = (max(box[0], crop[0]), max(box[1], crop[1]), min(box[2], crop[2]), min(box[3], crop[3]))
    area = (box[2] - box[0]) * (box[3] - box[1])
    if not (area > 0 and x1 > x0 and y1 > y0 and (x1 - x0) * (y1 - y0) >= min_visible * area):
        return None
    width, height = crop[2] - crop[0], crop[3] - crop[1]
    corners = ((x0 - crop[0]) / width, (y0 - crop[1]) / height, (x1 - crop[0]) / width, (y1 - crop[1]) / height)
    left, top, right, bottom = (min(math.floor(corner * size), size - 1) for corner in corners)
    return (left, top, right, bottom) if left < right and top < bottom else None


def box_text(box: Sequence[int]) -> str:
    return f"[{box[0]}, {box[1]}, {box[2]}, {box[3]}]"


def parse_box(text: str) -> PixelBox | None:
    """The first `[x1, y1, x2, y2]` in decoded text, however it is spaced; None without one or with swapped corners."""
    match = _BOX.search(text)
    if match is None:
        return None
    left, top, right, bottom = (int(number) for number in match.groups())
    return (left, top, right, bottom) if left <= right and top <= bottom else None


# --- what each task draws -------------------------------------------------------------------------------------------


def _caption(sample: Sample, view: View, luck: float, counts: Counter[str]) -> Ask | None:
    """A short caption; without one a raw one; without that the first sentence of a long one."""
    for source in ("short", "raw", "long"):
        texts = [caption.text.strip() for caption in sample.captions if caption.source == source]
        if source == "long":
            texts = [sentences[0] for sentences in map(split_sentences, texts) if sentences]
        texts = [text for text in texts if text]
        if texts:
            return Ask("", _pick(texts, luck))
    return None


def _referred(sample: Sample, view: View, luck: float, counts: Counter[str]) -> Ask | None:
    """A phrase and its best box: when that one is out of view, the phrase is not asked for."""
    best: dict[str, Region] = {}
    confident = _confident(sample, view)
    for region in confident:
        phrase = region.phrase.casefold()
        if phrase not in best or region.score > best[phrase].score:
            best[phrase] = region
    boxes = {phrase: view.box(region) for phrase, region in best.items()}
    visible = [region for region in confident if boxes[region.phrase.casefold()]]
    if not visible:
        counts["ref out of view"] += bool(confident)
        return None
    region = _pick(visible, luck)
    box = boxes[region.phrase.casefold()]
    assert box is not None
    return Ask(region.phrase, box_text(box))


def _grounded(sample: Sample, view: View, luck: float, counts: Counter[str]) -> Ask | None:
    """A box and the sentence about it; a region without a sentence is described by its phrase."""
    confident = _confident(sample, view)
    visible = [(region, box) for region in confident if (box := view.box(region))]
    if not visible:
        counts["grd out of view"] += bool(confident)
        return None
    region, box = _pick(visible, luck)
    return Ask(box_text(box), region.sentence.strip() or region.phrase.strip())


def _answered(sample: Sample, view: View, luck: float, counts: Counter[str]) -> Ask | None:
    asks = [Ask(q.question.strip(), q.answer.strip()) for q in sample.questions]
    asks = [ask for ask in asks if ask.subject and ask.target]
    return _pick(asks, luck) if asks else None


def _pick(choices: Sequence[T], luck: float) -> T:
    return choices[int(luck * len(choices))]


def _confident(sample: Sample, view: View) -> list[Region]:
    return [r for r in sample.regions if r.score >= view.data.min_box_score and r.phrase.strip()]


TASKS: Mapping[str, Task] = {
    "cap": Task("CAP caption is", _caption, has_whole_target=False),
    "ref": Task("REF {}, box is", _referred, has_whole_target=True),
    "grd": Task("OBGR {}, grounded caption is", _grounded, has_whole_target=False, has_whole_subject=True),
    "vqa": Task("VQA {}, answer is", _answered, has_whole_target=True),
}


# --- into tokens ----------------------------------------------------------------------------------------------------


def prompt_tokens(tokenizer: Tokenizer, task: str, subject: str = "", room: int | None = None) -> list[int]:
    """start, and a task's prompt about `subject`, whose last words give way to `room`; [] when none is left of them."""

    def about(subject: str) -> list[int]:
        return [tokenizer.sot, *tokenizer.tokens(TASKS[task].prompt.format(subject))]

    ids, words = about(subject), subject.split()
    if room is None or len(ids) <= room:
        return ids
    num_kept = bisect_right(range(1, len(words) + 1), room, key=lambda num: len(about(" ".join(words[:num]))))
    return about(" ".join(words[:num_kept])) if num_kept else []


def task_texts(
    sample: Sample, crop: Box, config: Config, size: int, tokenizer: Tokenizer, rng: Generator
) -> tuple[tuple[str, ...], Texts, dict[str, int]]:
    """One text for each active task that the sample has data for, in the table's order; what was lost, by reason."""
    view, counts = View(crop, size, config.data), Counter[str]()
    luck = dict(zip(DECODER_TASKS, rng.random(len(DECODER_TASKS)).tolist()))  # one task's draw moves no other's
    names: list[str] = []
    rows: list[list[int]] = []
    starts: list[int] = []
    truncated: list[bool] = []
    for name in config.decoder_tasks:
        ask = TASKS[name].draw(sample, view, luck[name], counts)
        row = ask and _row(tokenizer, name, ask, counts)
        if row:
            ids, start, is_cut = row
            names.append(name)
            rows.append(ids)
            starts.append(start)
            truncated.append(is_cut)
    return tuple(names), Texts.pack(rows, truncated, starts), dict(+counts)


def _row(tokenizer: Tokenizer, name: str, ask: Ask, counts: Counter[str]) -> tuple[list[int], int, bool] | None:
    """(ids, first target position, whether tokens were lost); None when what must be whole does not fit.

    The subject gives way first, then the target, which then has no end mark.
    """
    task, context = TASKS[name], tokenizer.context
    target = tokenizer.tokens(ask.target)
    full = prompt_tokens(tokenizer, name, ask.subject)
    prompt = full
    if len(full) + len(target) + 1 > context and ask.subject and not task.has_whole_subject:
        prompt = prompt_tokens(tokenizer, name, ask.subject, room=context - len(target) - 1)
        counts[f"{name} prompt cut"] += bool(prompt)
    is_target_cut = len(prompt) + len(target) + 1 > context
    if not target or not prompt or len(prompt) >= context or (is_target_cut and task.has_whole_target):
        counts[f"{name} without room"] += 1
        return None
    counts[f"{name} target cut"] += is_target_cut
    ids = [*prompt, *target, tokenizer.eot][:context]
    return ids, len(prompt), is_target_cut or len(prompt) < len(full)
