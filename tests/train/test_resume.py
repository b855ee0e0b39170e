"""A run killed at any instant goes on as if nothing had happened: bit for bit."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from processes import (
    finish,
    kill,
    learned,
    said,
    start,
    start_ranks,
    steps_of,
    story,
    wait_for_step,
)

from goldiclip.config import Config, override
from goldiclip.train import train
from goldiclip.train.checkpoint import whole
from goldiclip.train.launch import REQUEUE
from goldiclip.train.log import read_log


def assert_same_run(run: Path, other: Path) -> None:
    assert story(run) == story(other)
    for (name, tensor), (other_name, other_tensor) in zip(learned(run), learned(other), strict=True):
        assert name == other_name
        assert torch.equal(tensor, other_tensor), name


@pytest.mark.parametrize("method", ["adamw", "muon"])
def test_a_run_killed_at_random_instants_ends_bitwise_where_the_undisturbed_one_ends(
    method: str, full_run: Callable[..., Config], tmp_path: Path
) -> None:
    """All six terms, a worker process, accumulation, clipping, and an epoch that ends inside a batch."""
    words = ("run.save_every_steps=3", "run.micro_batch=3", "data.workers=1", "optim.clip_norm=9")
    config = full_run("run.samples=64", f"optim.method={method}", *words)
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert finish(start(config, undisturbed)) == [0], said(undisturbed)
    kills = 0
    while kills < 3:
        process = start(config, killed)
        time.sleep(random.uniform(0.3, 2.5))
        if process.is_alive():
            kill(process)
        kills += 1
    assert finish(start(config, killed)) == [0], said(killed)
    assert [record["step"] for record in steps_of(killed)] == list(range(1, 17))
    assert_same_run(killed, undisturbed)


@pytest.mark.distributed
def test_two_ranks_killed_at_random_instants_end_bitwise_where_the_undisturbed_ones_end(
    small_run: Callable[..., Config], tmp_path: Path
) -> None:
    """One rank is killed; the other ends by itself, because it has lost its partner."""
    config = small_run("run.save_every_steps=3")
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert finish(*start_ranks(config, undisturbed, 2)) == [0, 0], said(undisturbed)
    last = '"step": {step},'.format(**json.loads((undisturbed / "log.jsonl").read_text().splitlines()[-1]))
    for _ in range(2):
        processes = start_ranks(config, killed, 2)
        time.sleep(random.uniform(1.0, 2.5))
        victim, survivor = random.sample(processes, 2)
        if victim.is_alive():
            kill(victim)
            codes = finish(survivor, seconds=30)
            assert codes != [0] or last in (killed / "log.jsonl").read_text(), "it ended well before the last step"
    assert finish(*start_ranks(config, killed, 2)) == [0, 0], said(killed)
    assert_same_run(killed, undisturbed)


@pytest.mark.distributed
def test_ranks_and_layout_may_change_when_a_run_goes_on(
    small_run: Callable[..., Config], drawn_data: tuple[str, str], tmp_path: Path
) -> None:
    """One process, then two under DDP, then two sharded by FSDP2, then one: the losses stay those of one process."""
    held_out = (f"data.held_out={drawn_data[1]}", "run.evaluate_every_steps=5")
    config = small_run("optim.clip_norm=9", "run.samples=240", *held_out)
    alone, moving = tmp_path / "alone", tmp_path / "moving"
    train(config, out=alone)
    for step, layout, ranks in ((3, "ddp", 1), (8, "ddp", 2), (13, "fsdp", 2)):
        processes = start_ranks(override(config, [f"run.layout={layout}"]), moving, ranks)
        wait_for_step(moving, step, processes[0])
        os.kill(processes[-1].pid or 0, signal.SIGTERM)  # one rank is asked, all stop
        assert finish(*processes) == [REQUEUE] * ranks, said(moving)
    train(config, resume=moving)
    for ours, reference in zip(steps_of(moving), steps_of(alone), strict=True):
        assert ours["batch_hash"] == reference["batch_hash"]
        assert ours["total"] == pytest.approx(reference["total"], rel=2e-4), ours["step"]
    assert recalls(moving) == recalls(alone)


def recalls(run: Path) -> list[tuple[int, dict[str, float]]]:
    """Held-out recall, which ranks measure together."""
    return [(one["step"], one["recall"]) for one in read_log(run / "log.jsonl") if one.get("event") == "held_out"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_asked_to_stop_a_run_saves_and_says_that_it_wants_to_be_started_again(
    number: signal.Signals, small_run: Callable[..., Config], tmp_path: Path
) -> None:
    config = small_run("run.samples=4000")
    process = start(config, tmp_path / "run")
    wait_for_step(tmp_path / "run", 2, process)
    assert process.pid is not None
    os.kill(process.pid, number)
    assert finish(process) == [REQUEUE]
    last = list(read_log(tmp_path / "run" / "log.jsonl"))[-1]
    assert last["event"] == "interrupted"
    assert number.name in last["message"]
    assert whole(tmp_path / "run" / "checkpoints")[-1].name == f"step-{last['step']:09d}"


def test_a_checkpoint_half_written_is_never_taken_for_whole(small_run: Callable[..., Config], tmp_path: Path) -> None:
    config = small_run("run.samples=64", "run.save_every_steps=4")
    train(config, out=tmp_path / "run")
    folder = tmp_path / "run" / "checkpoints"
    torn = folder / ".step-000000099"
    torn.mkdir()
    (torn / "__0_0.distcp").write_bytes(b"half")
    assert [path.name for path in whole(folder)] == ["step-000000004", "step-000000008"]
    train(config, resume=tmp_path / "run")
    assert not torn.exists()


def test_steps_that_a_resumed_run_repeats_stand_in_its_log_once(
    small_run: Callable[..., Config], tmp_path: Path
) -> None:
    """The log was ahead of the checkpoint: those records are put aside, not lost and not doubled."""
    run = tmp_path / "run"
    train(small_run("run.save_every_steps=4"), out=run)
    shutil.rmtree(whole(run / "checkpoints")[-1])
    with (run / "log.jsonl").open("a") as log:
        log.write('{"step": 13, "torn')
    train(small_run("run.save_every_steps=4"), resume=run)
    assert [record["step"] for record in steps_of(run)] == list(range(1, 13))
    put_aside = [record["step"] for record in read_log(run / "log.abandoned.jsonl") if "event" not in record]
    assert put_aside == [9, 10, 11, 12]
