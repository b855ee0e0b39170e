"""Every launcher's way of saying who a process is; ranks that agree; a dead rank under torchrun."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import finish, free_port, learned, said, start_ranks, steps_of, story

from goldiclip.config import Config, ConfigError, override, to_yaml
from goldiclip.train.launch import Seat, Signals, first_decides, is_restarted, place_of
from goldiclip.train.log import read_log


def test_a_process_that_nobody_launched_is_alone() -> None:
    assert place_of({}) == (0, 1, 0)


def test_torchrun_and_slurm_say_who_a_process_is() -> None:
    common = {"MASTER_ADDR": "node-0"}
    assert place_of({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", **common}) == (5, 8, 1)
    assert place_of({"SLURM_PROCID": "9", "SLURM_NTASKS": "16", "SLURM_LOCALID": "1", **common}) == (9, 16, 1)
    both = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    assert place_of({**both, **common}) == (1, 2, 1), "torchrun inside a Slurm job decides"


def test_ranks_that_cannot_find_one_another_are_told_what_is_missing() -> None:
    with pytest.raises(ConfigError, match="MASTER_ADDR is not set"):
        place_of({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"})


def test_a_restart_is_known_by_the_launchers_count() -> None:
    assert not is_restarted({})
    assert not is_restarted({"TORCHELASTIC_RESTART_COUNT": "0"})
    assert is_restarted({"TORCHELASTIC_RESTART_COUNT": "1"})
    assert is_restarted({"SLURM_RESTART_COUNT": "2"})


def test_the_only_rank_decides_for_itself() -> None:
    import torch

    seat = Seat(0, 1, torch.device("cpu"))
    assert first_decides(seat, lambda: 7) == 7
    with pytest.raises(ConfigError, match="no"):
        first_decides(seat, lambda: (_ for _ in ()).throw(ConfigError("no")))


def test_a_signal_is_remembered_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Signals() as signals:
        assert not signals.is_asking
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.is_asking
        assert signals.exit_code == 75
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_lost_terminal_asks_too_unless_somebody_said_that_it_does_not_matter() -> None:
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGHUP)
        assert signals.exit_code == 75
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what nohup does
    try:
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not signals.is_asking
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_interrupt_stops_at_once() -> None:
    with Signals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.exit_code == 130
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.distributed
def test_an_error_of_rank_0_ends_every_rank_with_its_words(small_run: Callable[..., Config], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    assert finish(*start_ranks(small_run(), tmp_path / "run", 2)) == [1, 1]
    for rank in (0, 1):
        assert "is not empty and holds no run" in said(tmp_path / "run", rank)


@pytest.mark.distributed
@pytest.mark.slow
def test_torchrun_recovers_from_a_rank_killed_at_random(small_run: Callable[..., Config], tmp_path: Path) -> None:
    """200 steps on two ranks; one dies, torchrun starts both again; the end is that of the undisturbed run, bitwise."""
    config = override(small_run(), ["run.batch=4", "run.samples=800", "run.save_every_steps=20"])
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    references = start_ranks(config, undisturbed, 2)
    (tmp_path / "config.yaml").write_text(to_yaml(config))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--max-restarts=2"]
    command = ["-m", "goldiclip.cli", "train", str(tmp_path / "config.yaml"), "--out", str(killed)]
    address = [f"--master-port={free_port()}", "--monitor-interval=0.1"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    with (tmp_path / "torchrun.txt").open("w") as output:
        agent = subprocess.Popen([*torchrun, *address, *command], env=environment, stdout=output, stderr=output)
    wanted = random.randint(25, 170)
    while agent.poll() is None and not (killed / "log.jsonl").exists():
        time.sleep(0.05)
    while agent.poll() is None and max((record["step"] for record in steps_of(killed)), default=0) < wanted:
        time.sleep(0.02)
    os.kill(random.choice(children_of(agent.pid)), signal.SIGKILL)
    assert agent.wait(timeout=120) == 0, (tmp_path / "torchrun.txt").read_text()[-3_000:]
    assert finish(*references) == [0, 0], said(undisturbed)
    starts = [record for record in read_log(killed / "log.jsonl") if record.get("event") == "started"]
    assert len(starts) == 2
    assert starts[1]["step"] >= 20
    assert story(killed) == story(undisturbed)
    assert len(story(killed)) == 200
    for (name, tensor), (_, reference) in zip(learned(killed), learned(undisturbed), strict=True):
        assert tensor.equal(reference), name


def children_of(pid: int) -> list[int]:
    """The worker processes of a launcher."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=True).stdout
    return [int(word) for word in listed.split()]
