"""Machines without a GPU run the kernels' tests in Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from goldiclip.kernels.switch import HAS_TRITON


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
@pytest.mark.parametrize("file", ["test_fused.py", "test_whole_step.py"])
def test_kernels_say_the_same_when_interpreted(file: str) -> None:
    program = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(Path(__file__).with_name(file)),
    ]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout
    assert "skipped" not in ended.stdout
