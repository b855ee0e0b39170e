"""A record is in the log or it is not; whatever listens hears the same numbers; the panel knows when to be quiet."""

from __future__ import annotations

import io
import resource
import sys
import types
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from goldiclip.config import Config, ConfigError
from goldiclip.train.folder import launched, open_folder
from goldiclip.train.log import Log, cut_log, numbers, open_sinks, read_log
from goldiclip.train.panel import Panel, duration, sparkline


def record(step: int, **more: Any) -> dict[str, Any]:
    return {
        "step": step,
        "samples": 8 * step,
        "total": 3.0,
        "terms": {"ret": 2.0, "sd": 1.0},
        "task_weight": {"ret": 1.0, "sd": 0.5},
        "lr": 1e-3,
        "scale": 14.0,
        "bias": -10.0,
        "gradient_norm": {"vision": 1.0, "all": 1.5},
        "images_per_second": 100.0,
        "data_wait": 0.01,
        "memory_gigabytes": 1.5,
        **more,
    }


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    for step in range(3):
        log.write(record(step))
    log.close()
    assert list(read_log(tmp_path / "log.jsonl")) == [record(step) for step in range(3)]


def test_numbers_that_are_none_are_still_json(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    log.write(record(1, total=float("nan"), terms={"ret": float("inf")}))
    log.close()
    found = next(read_log(tmp_path / "log.jsonl"))
    assert (found["total"], found["terms"]["ret"]) == ("nan", "inf")


def test_a_line_that_a_kill_cut_off_is_mended_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "tot')
    assert [one["step"] for one in read_log(path)] == [1]
    log = Log(path)
    log.write({"step": 2})
    log.close()
    assert [one["step"] for one in read_log(path)] == [1, 2]


def test_a_full_disk_leaves_whole_lines_and_one_complaint(tmp_path: Path) -> None:
    complaints: list[str] = []
    log = Log(tmp_path / "log.jsonl", complain=complaints.append)
    log.write(record(1))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.size + 20, before[1]))
    try:
        log.write(record(2))
        log.write(record(3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    log.write(record(4))
    log.close()
    assert [one["step"] for one in read_log(tmp_path / "log.jsonl")] == [1, 4]
    assert len(complaints) == 1
    assert "the run goes on" in complaints[0]


def test_records_beyond_a_checkpoint_are_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f'{{"step": {step}}}\n' for step in range(1, 8)))
    assert cut_log(path, 4) == 3
    assert [one["step"] for one in read_log(path)] == [1, 2, 3, 4]
    assert [one["step"] for one in read_log(tmp_path / "log.abandoned.jsonl")] == [5, 6, 7]
    assert cut_log(path, 4) == 0


def test_numbers_are_named_by_their_path() -> None:
    assert dict(numbers(record(1)))["terms/ret"] == 2.0
    assert "step" not in dict(numbers(record(1)))


def test_tensorboard_gets_every_number(small_run: Callable[..., Config], tmp_path: Path) -> None:
    (sink,) = open_sinks(small_run("run.sinks=tensorboard"), tmp_path, 0)
    for step in (1, 2):
        sink(record(step, total=float(step)))
    sink.close()  # type: ignore[attr-defined]
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.value for event in events.Scalars("total")] == [1.0, 2.0]
    assert set(events.Tags()["scalars"]) == set(dict(numbers(record(1))))


def test_a_listener_that_fails_is_left_behind_and_the_log_goes_on(tmp_path: Path) -> None:
    """As TensorBoard does on a full disk, and a tracker when the network is gone."""
    complaints, heard = [], []

    class Lost:
        def __call__(self, record: Any) -> None:
            raise OSError("No space left on device")

    log = Log(tmp_path / "log.jsonl", (Lost(), lambda record: heard.append(record["step"])), complaints.append)
    for step in range(3):
        log.write(record(step))
    log.close()
    assert complaints == ["Lost: No space left on device; the run goes on, without it from here"]
    assert heard == [0, 1, 2]
    assert len(list(read_log(tmp_path / "log.jsonl"))) == 3


def test_a_listener_that_cannot_even_be_closed_stops_nothing(tmp_path: Path) -> None:
    def broken() -> None:
        raise OSError("gone")

    sink = types.SimpleNamespace(close=broken)
    complaints: list[str] = []
    Log(tmp_path / "log.jsonl", (sink,), complaints.append).close()  # type: ignore[arg-type]
    assert complaints == ["SimpleNamespace: gone; the run goes on, without it from here"]


@pytest.mark.parametrize("package", ["wandb", "trackio"])
def test_a_tracker_gets_every_number_under_the_runs_name(
    package: str, small_run: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two share their interface; this stands in for it, neither service can be reached from a test."""
    heard: list[Any] = []
    run = types.SimpleNamespace(
        log=lambda *words, **named: heard.append((words, named)), finish=lambda: heard.append("end")
    )
    module = types.ModuleType(package)
    module.init = lambda **named: heard.append(named) or run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package, module)
    config = small_run(f"run.sinks={package}")
    for place in (tmp_path / "first", tmp_path / "elsewhere" / "first"):
        open_folder(config, place, None)
    (sink,) = open_sinks(config, tmp_path / "first", 0)
    sink(record(7))
    sink.close()  # type: ignore[attr-defined]
    assert heard[0]["name"] == f"first-{launched(tmp_path / 'first', 'id')}"
    assert not heard[0]["name"].endswith(launched(tmp_path / "elsewhere" / "first", "id") or ""), "not taken for one"
    assert heard[0]["config"]["run.batch"] == "8"
    assert heard[1] == ((dict(numbers(record(7))),), {"step": 7})
    assert heard[2] == "end"


def test_a_tracker_that_is_not_installed_is_said(
    small_run: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ConfigError, match="pip install wandb"):
        open_sinks(small_run("run.sinks=wandb"), tmp_path, 0)


def test_in_a_file_the_panel_is_a_rare_line() -> None:
    out = io.StringIO()
    panel = Panel("a run", total=800, batch=8, console=Console(file=out, width=200))
    for step in range(1, 101):
        panel(record(step))
    panel({"event": "alarm", "step": 100, "message": "look here"})
    panel.close()
    lines = out.getvalue().splitlines()
    assert [line.split()[1] for line in lines if line.startswith("step") and "loss" in line] == [
        "1/100",
        "2/100",
        "100/100",
    ]
    assert lines[-1] == "step 100: look here"
    assert "\x1b" not in out.getvalue()


def test_in_a_terminal_the_panel_shows_terms_weights_and_what_is_left() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=30)
    panel = Panel("a run", total=800, batch=8, console=console)
    for step in range(1, 51):
        panel(record(step, mfu=0.4))
    panel({"event": "held_out", "step": 50, "message": "measured", "recall": {"tc": 0.25}})
    with console.capture() as captured:
        console.print(panel.draw())
    panel.close()
    shown = captured.get()
    for word in ("50/100", "ret", "0.50", "100 img/s", "MFU 40%", "tc 25.0%", "data wait 1%"):
        assert word in shown, word
    assert max(len(Text.from_ansi(line)) for line in shown.splitlines()) <= 80


def test_sparklines_and_durations_read_well() -> None:
    assert sparkline(deque([0.0, 1.0, 2.0, 3.0]), 10) == "▁▃▆█"
    assert sparkline(deque([1.0, 1.0]), 10) == "▁▁"
    assert len(sparkline(deque(float(i) for i in range(400)), 32)) == 32
    assert [duration(seconds) for seconds in (5, 65, 3_700, 200_000)] == [
        "0 min 05 s",
        "1 min 05 s",
        "1 h 01 min",
        "2 d 7 h",
    ]
