"""The public surface is small, typed and quick to import."""

from __future__ import annotations

import subprocess
import sys

import pytest

import goldiclip


def test_importing_goldiclip_imports_no_torch() -> None:
    code = "import sys, goldiclip, goldiclip.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", goldiclip.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(goldiclip, name) is not None


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(AttributeError, match="Engine"):
        _ = goldiclip.Enigne
