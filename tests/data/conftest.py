"""What the tests of the data share: a cache of their own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's indices and fetched shards go: never into the user's cache."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GOLDICLIP_CACHE", str(folder))
    return folder
