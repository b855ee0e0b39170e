"""Whether what was exported is what we have: numbers, rankings, recall and time, side by side."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from goldiclip.config import Config, ConfigError
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.data.views import render
from goldiclip.inference.pictures import fit, pixels
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.types import ImageFeatures, TextFeatures

# What is asked of noise where no pictures are given.
TEXTS = ("a red umbrella left of a dog", "two bicycles", "a photo of the sea at night", "what colour is the car?")
GALLERY = 100


@dataclass(frozen=True)
class Probe:
    """What both sides are shown: pictures (N, 3, S, S) as a tower reads them, texts, and whose each text is."""

    images: Tensor
    texts: tuple[str, ...]
    owner: tuple[int, ...] = ()  # for each text the picture it describes, where that is known


def noise(config: Config) -> Probe:
    size = config.model.vision.image_size
    return Probe(torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(0)), TEXTS)


def gallery(config: Config, file: Path, count: int = GALLERY) -> Probe:
    """The first pictures of a retrieval set, each with its first caption."""
    try:
        entries = json.loads(file.read_text())["annotations"][:count]
        pictures = [pixels(file.parent / entry["image"]) for entry in entries]
        texts = tuple(entry["captions"][0] for entry in entries)
    except (KeyError, TypeError, IndexError, json.JSONDecodeError) as error:
        expected = '{"annotations": [{"image": "a.jpg", "captions": ["…"]}, …]}'
        raise ConfigError(f"{file}: no retrieval set ({type(error).__name__}: {error}); expected {expected}") from error
    size = config.model.vision.image_size
    return Probe(render(torch.stack([fit(picture, size) for picture in pictures])), texts, tuple(range(len(texts))))


@dataclass(frozen=True)
class Answers:
    """One side's numbers for a probe, and (pictures, texts) scores; it took so long."""

    numbers: Sequence[Tensor]
    scores: Tensor
    milliseconds: float


@dataclass(frozen=True)
class Exported:
    """One written thing: its size, how far its numbers are from ours, how long it takes beside ours."""

    name: str
    path: Path
    megabytes: float
    max_error: float | None = None
    rank_change: float | None = None
    """Share of texts whose best picture is another one."""
    recall: float | None = None
    recall_change: float | None = None
    """Of texts that find their own picture first, theirs less ours."""
    milliseconds: float | None = None
    torch_milliseconds: float | None = None


def compared(name: str, path: Path, ours: Answers, theirs: Answers, owner: Sequence[int] = ()) -> Exported:
    recall, before = (_recall(side.scores, owner) for side in (theirs, ours))
    return Exported(
        name=name,
        path=path,
        megabytes=megabytes(path),
        max_error=max(float((a - b).abs().max()) for a, b in zip(ours.numbers, theirs.numbers, strict=True)),
        rank_change=float((ours.scores.argmax(0) != theirs.scores.argmax(0)).float().mean()),
        recall=recall,
        recall_change=None if recall is None or before is None else recall - before,
        milliseconds=theirs.milliseconds,
        torch_milliseconds=ours.milliseconds,
    )


def _recall(scores: Tensor, owner: Sequence[int]) -> float | None:
    return float((scores.argmax(0) == torch.tensor(owner)).float().mean()) if owner else None


@torch.no_grad()
def our_answers(model: GoldiCLIP, config: Config, probe: Probe, mode: str) -> Answers:
    texts = Tokenizer.of(config.model.text).encode(probe.texts)

    def encode() -> tuple[ImageFeatures, TextFeatures]:
        return model.encode_image(probe.images), model.encode_text(texts)

    image, text = encode()
    scores = model.score(image, text, mode)
    return Answers((image.embedding, text.embedding), scores, milliseconds(encode))


@torch.inference_mode()
def milliseconds(call: Callable[[], Any], repeats: int = 5) -> float:
    """The quickest of a few: whatever else the machine does only makes a call slower."""
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def megabytes(path: Path) -> float:
    """A file with what lies beside it under its name, or a folder."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob(path.name + "*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6
