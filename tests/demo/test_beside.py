"""Work in a process of its own: waited for, heard of when it fails, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from goldiclip.config import ConfigError
from goldiclip.demo.beside import beside
from goldiclip.train.launch import Signals


def write(path: Path) -> None:
    print("writing")
    path.write_text("done")


def fail() -> None:
    raise ValueError("no such luck")


def until_asked(path: Path) -> None:
    """Goes on until it is asked to stop, and says that it was."""
    with Signals() as signals:
        path.write_text(str(os.getpid()))
        while not signals.is_asking:
            time.sleep(0.01)
        path.write_text("saved")


def wait_for(path: Path) -> str:
    while not (path.is_file() and path.read_text()):
        time.sleep(0.01)
    return path.read_text()


def test_what_is_begun_is_waited_for(tmp_path: Path) -> None:
    with beside(write, tmp_path / "result", log=tmp_path / "log") as finish:
        finish()
        assert (tmp_path / "result").read_text() == "done"
    assert "writing" in (tmp_path / "log").read_text()


def test_a_failure_is_told_with_the_place_of_its_words(tmp_path: Path) -> None:
    with beside(fail, log=tmp_path / "log") as finish, pytest.raises(ConfigError, match="log says why"):
        finish()
    assert "no such luck" in (tmp_path / "log").read_text()


def test_whoever_leaves_lets_it_save_first(tmp_path: Path) -> None:
    with beside(until_asked, tmp_path / "state", log=tmp_path / "log"):
        wait_for(tmp_path / "state")
    assert (tmp_path / "state").read_text() == "saved"


def test_it_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, __file__, str(tmp_path / "state"), str(tmp_path / "log")])
    wait_for(tmp_path / "state")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    began = time.monotonic()
    while (tmp_path / "state").read_text() != "saved":
        assert time.monotonic() - began < 30
        time.sleep(0.01)


if __name__ == "__main__":
    with beside(until_asked, Path(sys.argv[1]), log=Path(sys.argv[2])) as finish:
        finish()
