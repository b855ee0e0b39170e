"""Runs in processes of their own, which can be killed as a power cut would: no handler runs, no file is closed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from goldiclip.config import Config, from_yaml, to_yaml
from goldiclip.train.checkpoint import load_tensors, newest
from goldiclip.train.log import read_log

# Children are forked from a server that has imported torch: a start costs a tenth of a second.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["goldiclip.train.loop"])


def start(config: Config, out: Path, **options: Any) -> BaseProcess:
    """A run of one process, which goes on in `out` when there is something to go on with."""
    return _start(config, out, {}, options)


def start_ranks(config: Config, out: Path, ranks: int, **options: Any) -> list[BaseProcess]:
    """A run of several processes on this machine."""
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        _start(config, out, {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}, options) for rank in range(ranks)
    ]


def _start(config: Config, out: Path, environment: Mapping[str, str], options: Mapping[str, Any]) -> BaseProcess:
    process = CONTEXT.Process(target=_run, args=(to_yaml(config), out, dict(environment), dict(options)))
    process.start()
    return process


def _run(config: str, out: Path, environment: Mapping[str, str], options: Mapping[str, Any]) -> None:
    import torch

    from goldiclip.train import train

    warnings.simplefilter("ignore")
    os.environ.update(environment)
    sys.stdout = sys.stderr = (out.parent / f"{out.name}-rank-{environment.get('RANK', 0)}.txt").open("a")
    torch.set_num_threads(1)
    train(from_yaml(config), out=out, requeue=True, **options)


def kill(process: BaseProcess) -> None:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def finish(*processes: BaseProcess, seconds: float = 120) -> list[int | None]:
    """Wait for the processes; their exit codes."""
    end = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.1, end - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()
    return [process.exitcode for process in processes]


def wait_for_step(out: Path, step: int, process: BaseProcess, seconds: float = 60) -> None:
    """Until the run's log has reached a step, or the process is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.is_alive():
        if (out / "log.jsonl").exists() and any(record["step"] >= step for record in steps_of(out)):
            return
        time.sleep(0.01)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def steps_of(run: Path) -> list[dict[str, Any]]:
    """The records of a run's steps."""
    return [record for record in read_log(run / "log.jsonl") if "event" not in record]


def learned(run: Path) -> Iterator[tuple[str, Any]]:
    """What two runs must have in common to be the same run: every tensor, and every number that steps had."""
    yield from sorted(load_tensors(newest(run), "").items())


def story(run: Path) -> list[tuple[Any, ...]]:
    """What each step saw and said."""
    told = ("step", "samples", "batch_hash", "total", "terms", "gradient_norm", "scale", "bias", "lr")
    return [tuple(record[name] for name in told) for record in steps_of(run)]


def said(run: Path, rank: int = 0) -> str:
    """What a rank printed."""
    path = run.parent / f"{run.name}-rank-{rank}.txt"
    return path.read_text() if path.exists() else ""
