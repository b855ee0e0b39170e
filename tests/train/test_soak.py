"""The soak says what it is there to say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).resolve().parents[2] / "benchmarks/soak.py"


@pytest.mark.slow
def test_a_short_soak_loses_and_repeats_nothing(tmp_path: Path) -> None:
    words = ["--kills", "1", "--samples", "80", "--folder", str(tmp_path)]
    done = subprocess.run([sys.executable, str(SOAK), *words], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    rows = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines())
    said = ("kills survived", "samples lost", "samples repeated", "weights and moments bit for bit")
    assert [rows[name] for name in said] == ["1", "0", "0", "yes"]
    assert int(rows["steps"]) == 10 * int(rows["runs led to their end"])
