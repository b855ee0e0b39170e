"""What the tests share: small real objects, and the experimental data where a checkout has it beside it."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest
import torch

from goldiclip import recipes
from goldiclip.config import Config

torch.set_num_threads(1)
hypothesis.settings.register_profile("house", deadline=None, derandomize=True)
hypothesis.settings.load_profile("house")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture
def shared() -> Path:
    """The folder of experimental data beside the checkout."""
    if not SHARED.exists():
        pytest.skip(f"no experimental data beside this checkout ({SHARED.name}/)")
    return SHARED


@pytest.fixture
def tiny() -> Config:
    """A two-layer, 32-wide GoldiCLIP with all six terms: milliseconds on a CPU."""
    return recipes.recipe("tiny")
