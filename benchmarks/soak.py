"""A run killed again and again at random instants, beside the same run left in peace.

    python benchmarks/soak.py                              30 kills of one process
    python benchmarks/soak.py --ranks 2 --kills 50         one of two ranks is killed, the other loses its partner
    python benchmarks/soak.py run.batch=256 run.precision=bf16 run.compile=True     on a GPU, with settings of its own

SIGKILL, as a power cut: no handler runs, no file is closed. The instants are spread over starting, stepping and saving.
What each step drew stands in the run's log as a hash over its captions; a sample is lost when a step of the undisturbed
run is missing, repeated when a step is there that the undisturbed run has not.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
import tyro
from tyro.conf import Positional

from goldiclip import recipes
from goldiclip.config import Config, from_yaml, override, resolve, to_yaml
from goldiclip.data.scenes import Settings, write_corpus
from goldiclip.train.checkpoint import load_tensors, newest
from goldiclip.train.log import read_log

# Children are forked from a server that has imported torch, so that kills fall on the run and not on imports.
CONTEXT = multiprocessing.get_context("forkserver")
SETTINGS = (
    "run.deterministic=True",
    "run.save_every_steps=5",
    "run.save_every_minutes=0",
    "run.sinks=",
    "data.vocabulary=corpus",
    "optim.warmup_steps=5",
)
GRACE_SECONDS = 15.0


@dataclass
class Told:
    """What became of a soaked run."""

    kills: int = 0
    starting: int = 0  # kills before the first step of an attempt
    ended: int = 0  # partners that were still waiting to meet, and were ended as a launcher does
    saving: int = 0  # kills that left a half-written checkpoint
    rounds: int = 0
    steps: int = 0
    repeated_work: int = 0  # steps computed again after a kill; their first records are put aside
    lost: int = 0  # samples
    repeated: int = 0  # samples
    same_numbers: bool = True
    same_weights: bool = True


def soak(config: Config, folder: Path, kills: int, ranks: int, reach: float, rng: random.Random) -> Told:
    """Rounds of the same run, killed until there were `kills`; every round is then led to its end."""
    told, undisturbed, began = Told(), folder / "undisturbed", time.monotonic()
    finish(config, undisturbed, ranks)
    reach = reach or (time.monotonic() - began) / 2
    while told.kills < kills:
        run = folder / f"killed-{told.rounds}"
        while told.kills < kills and not is_finished(run):
            kill_once(config, run, ranks, reach, rng, told)
            print(
                f"\r{told.kills} kills, step {last_record(run).get('step', 0)}  ", end="", file=sys.stderr, flush=True
            )
        finish(config, run, ranks)
        compare(run, undisturbed, config.run.batch, told)
        told.rounds += 1
    print(file=sys.stderr)
    return told


def kill_once(config: Config, run: Path, ranks: int, reach: float, rng: random.Random, told: Told) -> None:
    """Start, or go on; kill one rank at a random instant. The others lose their partner and end."""
    before, processes = last_record(run), start(config, run, ranks)
    time.sleep(rng.uniform(0.05, reach))
    victim = rng.choice(processes)
    was_alive = victim.is_alive()
    victim.kill()
    for process in processes:
        process.join(timeout=GRACE_SECONDS)
        if process.exitcode is None:  # it waits for a partner that never came: a launcher ends it
            assert not has_stepped(run, before), f"rank {processes.index(process)} hangs in a step after a death"
            process.kill()
            process.join()
            told.ended += 1
    if was_alive and victim.exitcode == -signal.SIGKILL:
        told.kills += 1
        told.starting += not has_stepped(run, before)
        told.saving += bool(list((run / "checkpoints").glob(".step-*")))


def compare(run: Path, undisturbed: Path, batch: int, told: Told) -> None:
    """Samples by what each step drew; numbers and weights bit for bit."""
    found, expected = steps(run), steps(undisturbed)
    drawn, wanted = (Counter((one["step"], one["batch_hash"]) for one in records) for records in (found, expected))
    told.steps += len(found)
    told.lost += batch * (wanted - drawn).total()
    told.repeated += batch * (drawn - wanted).total()
    aside = run / "log.abandoned.jsonl"
    told.repeated_work += sum("event" not in one for one in read_log(aside)) if aside.exists() else 0
    told.same_numbers &= [numbers(one) for one in found] == [numbers(one) for one in expected]
    ours, theirs = (load_tensors(newest(path), "") for path in (run, undisturbed))
    told.same_weights &= ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def numbers(record: dict[str, object]) -> tuple[object, ...]:
    return tuple(record[name] for name in ("samples", "total", "terms", "gradient_norm", "scale", "bias", "lr"))


def steps(run: Path) -> list[dict[str, object]]:
    log = run / "log.jsonl"
    return [record for record in read_log(log) if "event" not in record] if log.exists() else []


def last_record(run: Path) -> dict[str, object]:
    log = run / "log.jsonl"
    found = list(read_log(log)) if log.exists() else []
    return found[-1] if found else {}


def has_stepped(run: Path, before: dict[str, object]) -> bool:
    """Whether an attempt has come as far as its first step; `before` is the last record of earlier ones."""
    last = last_record(run)
    return last != before and last.get("event") != "started"


def is_finished(run: Path) -> bool:
    return (run / "report.html").exists()


# --- processes --------------------------------------------------------------------------------------------------------


def finish(config: Config, run: Path, ranks: int) -> None:
    for process in (processes := start(config, run, ranks)):
        process.join()
    codes = [process.exitcode for process in processes]
    assert codes == [0] * ranks, f"exit codes {codes}; what the ranks said is in {run.parent}/{run.name}-rank-*.txt"


def start(config: Config, run: Path, ranks: int) -> list[BaseProcess]:
    """The ranks of a run that goes on in its folder when there is something to go on with."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    several = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port} if ranks > 1 else {}
    places = [{**several, "RANK": str(rank), "LOCAL_RANK": str(rank)} if several else {} for rank in range(ranks)]
    processes = [CONTEXT.Process(target=attempt, args=(to_yaml(config), run, place)) for place in places]
    for process in processes:
        process.start()
    return processes


def attempt(config: str, run: Path, place: dict[str, str]) -> None:
    """One rank, from where the run stands to its end."""
    from goldiclip.train import train

    os.environ.update(place)
    sys.stdout = sys.stderr = (run.parent / f"{run.name}-rank-{place.get('RANK', 0)}.txt").open("a")
    torch.set_num_threads(1)
    train(from_yaml(config), out=run, requeue=True)


def main(
    overrides: Positional[tuple[str, ...]] = (),
    kills: int = 30,
    ranks: int = 1,
    reach: float = 0.0,
    recipe: str = "tiny",
    samples: int = 1_600,
    seed: int = 0,
    folder: Path | None = None,
) -> None:
    """Kill a run at random instants and say what it cost.

    Args:
        overrides: Settings to change, as key=value.
        kills: How often to kill.
        ranks: Processes of the run.
        reach: Seconds after a start within which the kill falls; 0 takes half of what the undisturbed run takes.
        recipe: What to train.
        samples: Length of the run.
        seed: Of the instants.
        folder: Where to work, and leave everything; a temporary folder otherwise.
    """
    with tempfile.TemporaryDirectory() as temporary:
        place = folder or Path(temporary)
        corpus = write_corpus(place / "corpus", Settings(count=400, held_out=0, size=64))
        words = (f"data.train={corpus / 'train' / '*.tar'}", f"run.samples={samples}", *SETTINGS, *overrides)
        CONTEXT.set_forkserver_preload(["goldiclip.train.loop"])
        config = resolve(override(recipes.recipe(recipe), words))
        began = time.monotonic()
        told = soak(config, place, kills, ranks, reach, random.Random(seed))
        show(told, ranks, time.monotonic() - began)


def show(told: Told, ranks: int, seconds: float) -> None:
    rows = {
        "ranks": ranks,
        "kills survived": told.kills,
        "of them before an attempt's first step": told.starting,
        "of them with a checkpoint half-written": told.saving,
        "partners ended while waiting to meet": told.ended,
        "runs led to their end": told.rounds,
        "steps": told.steps,
        "steps computed again": told.repeated_work,
        "samples lost": told.lost,
        "samples repeated": told.repeated,
        "losses and gradients bit for bit": "yes" if told.same_numbers else "NO",
        "weights and moments bit for bit": "yes" if told.same_weights else "NO",
        "minutes": f"{seconds / 60:.1f}",
    }
    for name, value in rows.items():
        print(f"{name:40} {value:>8}")


if __name__ == "__main__":
    tyro.cli(main)
