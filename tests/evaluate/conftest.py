"""A real encoder, small enough that an evaluation takes milliseconds."""

from __future__ import annotations

import pytest

from goldiclip.config import Config
from goldiclip.inference.engine import Engine
from goldiclip.model.goldiclip import GoldiCLIP


@pytest.fixture
def engine(tiny: Config) -> Engine:
    """Untrained, 32 pixels, blocks of four images."""
    return Engine(GoldiCLIP(tiny.model, seed=1), image_size=32, device="cpu", batch=4)
