"""Annotation of many shards: what is left to do, done by one executor or another, with the same bytes at the end."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from goldiclip.config import ConfigError
from goldiclip.data.shards import Shards
from goldiclip.prepare.blocks import LEFT_OUT, Block, Job, Plan, is_stored, plan_shards, read_manifest
from goldiclip.prepare.local import Done, Executor, Here, Processes, Task
from goldiclip.prepare.meter import Meter

# Shares of the samples above which a run stops, by what the counts begin with, once this many were seen.
MAX_SHARES: Mapping[str, float] = {LEFT_OUT: 0.05, "server ": 0.2}
MIN_SAMPLES = 1_000


@dataclass
class Report:
    """What came of a run."""

    shards: int = 0
    skipped: int = 0
    samples: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, manifest: Mapping[str, Any]) -> None:
        self.shards += 1
        self.samples += int(manifest["output"]["samples"])
        self.counts.update(manifest["counts"])


def annotate(
    shards: Shards,
    job: Job,
    *,
    workers: int = 0,
    devices: Iterable[str] = ("cpu",),
    ray: str = "",
    max_shares: Mapping[str, float] = MAX_SHARES,
    quiet: bool = False,
) -> Report:
    """Every shard through the job's stages into `job.out`; finished ones are skipped.

    `workers` 0 works in this process; `ray` is the address of a cluster, "local" for one of its own, "" for none.
    """
    plans = plan_shards(shards, job)
    job.out.mkdir(parents=True, exist_ok=True)
    progress = Progress(plans, job, max_shares)
    with Meter("annotating", progress.num_samples, quiet=quiet) as meter:
        progress.meter = meter
        if ray:
            from goldiclip.prepare.cluster import run_on_ray

            run_on_ray(job, progress, ray)
        else:
            run_locally(job, progress, workers, tuple(devices))
    return progress.report


def run_locally(job: Job, progress: Progress, workers: int, devices: Sequence[str]) -> None:
    executor: Executor = Processes(job, workers, devices) if workers else Here(job, devices[0])
    source, waiting = progress.tasks(), deque[Task]()
    try:
        while True:
            waiting.extend(islice(source, max(executor.size - len(waiting), 0)))
            if not waiting and not executor.is_busy:
                return
            for done in executor.step(waiting):
                if progress.note(done):
                    waiting.appendleft(Task(done.task.plan))
    finally:
        executor.close()


class Progress:
    """Which blocks of which shards are still out, and what was counted so far."""

    def __init__(self, plans: list[Plan], job: Job, max_shares: Mapping[str, float]) -> None:
        self.job, self.max_shares = job, max_shares
        self.report = Report()
        self.meter: Meter | None = None
        self.counts: Counter[str] = Counter()
        self.samples = 0
        self.open: dict[str, int] = {}  # blocks still out, by shard
        self.todo: list[Plan] = []
        for plan in plans:
            manifest = read_manifest(plan)
            if manifest is None:
                self.todo.append(plan)
            else:
                self.report.add(manifest)
                self.report.skipped += 1

    @property
    def num_samples(self) -> int:
        return sum(plan.rows for plan in self.todo)

    def tasks(self) -> Iterator[Task]:
        """What is to be done; a shard whose blocks are all there only needs joining."""
        for plan in self.todo:
            blocks = self.missing(plan)
            yield from (Task(plan, block) for block in blocks) if blocks else (Task(plan),)

    def missing(self, plan: Plan) -> list[Block]:
        """The blocks of a shard that no earlier run left behind."""
        blocks = plan.blocks(self.job.block)
        missing = [block for block in blocks if not is_stored(block)]
        self.open[plan.shard] = len(missing)
        if self.meter:
            self.meter.spare(sum(map(len, blocks)) - sum(map(len, missing)))
        return missing

    def note(self, done: Done) -> bool:
        """What has finished; whether it was the last block of its shard, which can be joined now."""
        if done.manifest is not None:
            self.report.add(done.manifest)
        if done.task.block is None:
            return False
        self.counts.update(done.counts)
        self.samples += len(done.task.block)
        self._advance(len(done.task.block))
        self._stop_above_shares()
        shard = done.task.plan.shard
        self.open[shard] -= 1
        return self.open[shard] == 0

    def _advance(self, samples: int) -> None:
        if self.meter:
            self.meter.advance(samples, self.counts)

    def _stop_above_shares(self) -> None:
        if self.samples < min(MIN_SAMPLES, self.num_samples):
            return
        for start, allowed in self.max_shares.items():
            reasons = {reason: count for reason, count in self.counts.items() if reason.startswith(start)}
            share = sum(reasons.values()) / max(self.samples, 1)
            if share > allowed:
                said = ", ".join(f"{count:,} × {reason}" for reason, count in sorted(reasons.items()))
                where = f"stopped after {self.samples:,} samples: {share:.1%} of them failed, {allowed:.0%} may"
                raise ConfigError(f"{where} ({said}); mend it and run again, or allow more with --max-failed")
