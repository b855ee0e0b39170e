"""Tiny models of the real classes, built once per session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with a tiny model by name: owlv2, grounding_dino, phi3."""
    pytest.importorskip("transformers")
    from tiny_transformers import save_grounding_dino, save_owlv2, save_phi3

    save = {"owlv2": save_owlv2, "grounding_dino": save_grounding_dino, "phi3": save_phi3}
    made: dict[str, Path] = {}

    def model(name: str) -> Path:
        if name not in made:
            made[name] = save[name](tmp_path_factory.mktemp(name))
        return made[name]

    return model
