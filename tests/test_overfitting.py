"""The system test of the objectives: a tiny learner learns eight samples by heart, through all of its six signals."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from goldiclip import recipes
from goldiclip.config import Config, resolve
from goldiclip.data.example import collate, make_example
from goldiclip.data.tasks import parse_box
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.learner import Learner
from goldiclip.types import DECODER_TASKS, Batch, Caption, ImageFeatures, Question, Region, Sample, Texts

COLOURS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (40, 60, 230), "yellow": (230, 220, 40)}
PLACES = {"left": (0.05, 0.3, 0.4, 0.9), "right": (0.55, 0.1, 0.95, 0.6)}
STEPS = 220


@dataclass
class Learnt:
    learner: Learner
    batch: Batch
    image: ImageFeatures
    words: Tensor  # the tokenizer's id of each id in the batch


def block(colour: str, side: str) -> Sample:
    """A coloured block on one side of a grey picture, with everything a sample may have."""
    pixels = np.full((64, 64, 3), 128, np.uint8)
    x0, y0, x1, y1 = (round(64 * edge) for edge in PLACES[side])
    pixels[y0:y1, x0:x1] = COLOURS[colour]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return Sample(
        key=f"{colour}-{side}",
        image=file.getvalue(),
        captions=(
            Caption(f"a {colour} block on the {side}", "short"),
            Caption(f"the {side} side holds a {colour} block", "raw"),
        ),
        regions=(Region(f"the {colour} block", PLACES[side], f"a {colour} block on the {side}"),),
        questions=(Question("what colour is the block?", colour, "color"),),
    )


def eight_samples(config: Config) -> tuple[Config, Batch, Tensor]:
    """Their batch, drawn once, in a vocabulary of just the words it has, so that a step takes milliseconds."""
    tokenizer = Tokenizer(config.model.text.context)
    samples = [block(colour, side) for colour in COLOURS for side in PLACES]
    examples = [make_example(sample, config, tokenizer, np.random.default_rng(i)) for i, sample in enumerate(samples)]
    batch = collate(examples)
    words = torch.cat([batch.captions.ids, batch.task_texts.ids]).unique()
    batch = replace(batch, **{name: in_words(getattr(batch, name), words) for name in ("captions", "task_texts")})
    text = replace(config.model.text, vocabulary=len(words))
    return replace(config, model=replace(config.model, text=text)), batch, words


def in_words(texts: Texts, words: Tensor) -> Texts:
    return replace(texts, ids=torch.searchsorted(words, texts.ids))


@pytest.fixture(scope="module")
def learnt() -> Learnt:
    config = recipes.recipe("tiny")
    data = replace(config.data, captions=2, max_sentences=1)
    config, batch, words = eight_samples(resolve(replace(config, data=data)))
    learner = Learner(config)
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, betas=(0.9, 0.98), weight_decay=0, fused=True)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 4e-3 * min(1, (step + 1) / 20, 2 * (STEPS - step) / STEPS)
        optimizer.zero_grad()
        learner(batch).total.backward()
        optimizer.step()
        learner.student.scale.clamp_()
        learner.update_teacher()
    learner.eval()
    with torch.no_grad():
        image = learner.student.encode_image(learner.views(batch)[0][:, 0])
    return Learnt(learner, batch, image, words)


@torch.no_grad()
def said(learnt: Learnt, prompts: list[list[int]], owners: list[int], longest: int) -> list[str]:
    """What the decoder answers, always its likeliest word, until it says the end."""
    student, end = learnt.learner.student, len(learnt.words) - 1
    rows, owner = [list(prompt) for prompt in prompts], torch.tensor(owners)
    assert student.head is not None
    for _ in range(longest):
        texts = Texts.pack(rows)
        hidden = student.decode(texts, learnt.image, owner)[texts.last]
        for row, word in zip(rows, student.head(hidden).argmax(-1).tolist(), strict=True):
            if row[-1] != end:
                row.append(word)
    answers = [row[len(prompt) :] for row, prompt in zip(rows, prompts, strict=True)]
    assert all(answer[-1] == end for answer in answers)
    tokenizer = Tokenizer()
    return [tokenizer.decode(learnt.words[answer].tolist()) for answer in answers]


def asked(learnt: Learnt, task: str) -> tuple[list[str], list[str]]:
    """What the decoder says to each prompt of a task, and what it should."""
    texts, which = learnt.batch.task_texts, DECODER_TASKS.index(task)
    assert texts.target_start is not None
    starts, rows, tokenizer = texts.target_start.tolist(), texts.rows(), Tokenizer()
    mine = [i for i, found in enumerate(learnt.batch.task.tolist()) if found == which]
    owners = learnt.batch.task_owner[mine].tolist()
    targets = [tokenizer.decode(learnt.words[rows[i][starts[i] :]].tolist()) for i in mine]
    longest = max(len(rows[i]) - starts[i] for i in mine)
    return said(learnt, [rows[i][: starts[i]] for i in mine], owners, longest), targets


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ta", "tc"])
@torch.no_grad()
def test_every_caption_finds_its_image_and_every_image_its_captions(learnt: Learnt, mode: str) -> None:
    texts = learnt.learner.student.encode_text(learnt.batch.captions)
    scores = learnt.learner.student.score(learnt.image, texts, mode=mode)
    owners = torch.arange(len(texts)) // learnt.batch.captions_per_image
    assert scores.argmax(0).tolist() == owners.tolist()
    assert owners[scores.argmax(1)].tolist() == list(range(len(learnt.batch)))


@pytest.mark.slow
@pytest.mark.parametrize("task", DECODER_TASKS)
def test_the_decoder_says_every_target_word_for_word(learnt: Learnt, task: str) -> None:
    answers, targets = asked(learnt, task)
    assert len(answers) == 8
    assert answers == targets


@pytest.mark.slow
def test_the_answers_to_a_phrase_are_boxes_around_the_blocks(learnt: Learnt) -> None:
    boxes = [parse_box(answer) for answer in asked(learnt, "ref")[0]]
    for i, box in enumerate(boxes):
        assert box is not None
        assert (box[0] + box[2] < 32) == (i % 2 == 0)  # left, right, left, …


@pytest.mark.slow
def test_the_teacher_has_not_collapsed(learnt: Learnt) -> None:
    with torch.no_grad():
        losses = learnt.learner(learnt.batch)
    for pool in ("ta", "tc"):
        assert 0.05 < losses.metrics[f"teacher_entropy/{pool}"].item() < 0.98 * np.log(64)
    assert losses.terms["ret"].item() < 0.5
    assert losses.terms["sd"].item() < 12
