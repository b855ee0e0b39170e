"""FLAIR's own loss, computed by FLAIR's own code, is what the learner's retrieval term says of FLAIR's weights."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from goldiclip import recipes
from goldiclip.exchange import StepTexts
from goldiclip.learner import Learner
from goldiclip.model.pretrained import from_flair
from goldiclip.types import Texts


@pytest.mark.parametrize("has_micro_batches", [False, True])
@torch.no_grad()
def test_both_losses_are_flairs(shared: Path, has_micro_batches: bool) -> None:
    tensors, sizes = golden(shared / "golden" / "flair_small.safetensors")
    weights = {name.removeprefix("weights/"): part for name, part in tensors.items() if name.startswith("weights/")}
    learner = Learner(recipes.recipe("tiny/flair"))
    learner.student = from_flair(
        weights, vision_heads=sizes["width"] // sizes["head_width"], text_heads=sizes["text_heads"], show=lambda _: None
    ).double()
    retrieval = replace(learner.config.objective.retrieval, equal_texts="negative")
    learner.config = replace(learner.config, objective=replace(learner.config.objective, retrieval=retrieval))
    rows = [row[: int(row.argmax()) + 1].tolist() for row in tensors["tokens"]]  # EOT is the highest id
    images, drawn = tensors["images"].double(), tensors["negative_caption"]
    num_captions = len(rows) // len(images)
    step = StepTexts(
        embedding=learner.student.encode_text(Texts.pack(rows)).embedding,
        caption_hash=torch.arange(len(rows)),
        shared=torch.arange(len(images)) * num_captions + drawn,
        num_targets=torch.zeros(4),
        tasks=(),
        first_image=0,
    )
    sums = dict.fromkeys(("ta", "tc"), 0.0)
    for piece in images.split(1 if has_micro_batches else len(images)):
        metrics: dict[str, Any] = {}
        learner.retrieval(learner.student.encode_image(piece), step, metrics)
        step = step.moved(len(piece))
        sums = {mode: value + metrics[f"ret/{mode}"].item() for mode, value in sums.items()}
    for mode, value in sums.items():
        assert value == pytest.approx(tensors[f"expected/loss_{mode}"].item(), abs=1e-5)


def golden(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(file.metadata()["config"])  # noqa: SIM118
