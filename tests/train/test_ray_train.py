"""Ray Train starts the ranks and makes their group; the run is the same run."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import steps_of

from goldiclip.config import Config, to_yaml
from goldiclip.train import train

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ray_train.py"


@pytest.mark.distributed
@pytest.mark.slow
def test_two_ray_workers_train_as_one_process_does(small_run: Callable[..., Config], tmp_path: Path) -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'goldiclip[prepare]'")
    config = small_run("run.samples=48")
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    words = [str(tmp_path / "config.yaml"), "--workers=2", "--cpu", f"--out={tmp_path / 'ray'}"]
    command = [sys.executable, str(EXAMPLE), *words]
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    train(config, out=tmp_path / "alone")
    for ours, reference in zip(steps_of(tmp_path / "ray"), steps_of(tmp_path / "alone"), strict=True):
        assert ours["batch_hash"] == reference["batch_hash"]
        assert ours["total"] == pytest.approx(reference["total"], rel=2e-4)
