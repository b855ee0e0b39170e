"""Small runs on drawn data."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from drawn import write_drawn

from goldiclip import recipes
from goldiclip.config import Config, override, resolve

# A run without decoder, whose vocabulary is most of a tiny step's work: retrieval and distillation alone.
WITHOUT_DECODER = (
    "model.text.width=16",
    "model.text.depth=1",
    "model.embedding=16",
    "model.vision.width=16",
    "model.vision.depth=1",
    *(f"objective.weights.{task}=0" for task in ("cap", "ref", "grd", "vqa")),
)


@pytest.fixture(scope="session")
def drawn_data(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Shards to train on and shards held out."""
    folder = tmp_path_factory.mktemp("drawn")
    return write_drawn(folder / "train", 40), write_drawn(folder / "held_out", 24, first=1_000)


@pytest.fixture
def full_run(drawn_data: tuple[str, str]) -> Callable[..., Config]:
    """All six terms, deterministic, in steps of 4 images; key=value words change it."""

    def make(*words: str) -> Config:
        settings = {
            "data.train": drawn_data[0],
            "run.deterministic": "True",
            "run.batch": "4",
            "run.samples": "48",
            "run.sinks": "",
            "run.save_every_minutes": "0",
            "optim.warmup_steps": "2",
        }
        chosen = [*(f"{name}={value}" for name, value in settings.items()), *words]
        return resolve(override(recipes.recipe("tiny"), chosen))

    return make


@pytest.fixture
def small_run(full_run: Callable[..., Config]) -> Callable[..., Config]:
    """Retrieval and distillation alone, in steps of 8 images that take a few hundredths of a second."""

    def make(*words: str) -> Config:
        return full_run("run.batch=8", "run.samples=96", *WITHOUT_DECODER, *words)

    return make
