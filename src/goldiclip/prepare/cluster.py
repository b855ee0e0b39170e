"""The cluster executor: the same stages as operators of Ray Data.

    block numbers -> read (and stages without a model) -> one pool of actors per model -> store -> counts

Every operator runs where its resources are: models on the GPUs of the cluster, the rest on its CPUs. Ray Data holds
back readers when models fall behind, and repeats what a dead worker or node had in hand. Blocks are stored under names
of their own, so a repetition writes the same file again. All nodes must share the folders of shards and output.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

from goldiclip.config import ConfigError
from goldiclip.prepare.blocks import Block, Job, assemble, disk_full, read_block, store_block
from goldiclip.prepare.local import Done, Task
from goldiclip.prepare.pipeline import Progress
from goldiclip.prepare.stages import Stage, Work

Row = dict[str, Any]


def run_on_ray(job: Job, progress: Progress, address: str) -> None:
    """All missing blocks through the cluster at `address`; shards are joined there as they get complete."""
    ray = _ray()
    started = _connect(ray, address)
    try:
        tasks = list(progress.tasks())
        joins = [_join(ray, task, job) for task in tasks if task.block is None]
        blocks = [task.block for task in tasks if task.block is not None]
        for row in _dataset(ray, job, blocks).iter_rows() if blocks else ():
            if row["error"]:
                raise ConfigError(row["error"])
            block = pickle.loads(row["block"])
            done = Done(Task(block.plan, block), Counter(json.loads(row["counts"])))
            if progress.note(done):
                joins.append(_join(ray, Task(block.plan), job))
        while joins:
            ready, joins = ray.wait(joins)
            for done in ray.get(ready):
                progress.note(done)
    finally:
        if started:
            ray.shutdown()


def _connect(ray: Any, address: str) -> bool:
    """Join the cluster, or start one of this machine for "local"; whether it is ours to end."""
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    settings = {"log_to_driver": False, "logging_level": logging.WARNING}
    try:
        if address == "local":
            ray.init(include_dashboard=False, **settings)
        else:
            ray.init(address=address, **settings)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"--ray {address}: {str(error)[:300]}; is the cluster running? `ray status`") from error
    return True


def _dataset(ray: Any, job: Job, blocks: Sequence[Block]) -> Any:
    """One row per block, through one operator per group of stages."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.WARNING)
    resources = ray.cluster_resources()
    rows = [{"block": pickle.dumps(block), "counts": "{}", "samples": b"", "error": ""} for block in blocks]
    data = ray.data.from_items(rows, override_num_blocks=len(blocks))
    operators = _operators(job, has_gpus=resources.get("GPU", 0) > 0)
    share = _gpu_share(int(resources.get("GPU", 0)), sum(on_gpu for _, on_gpu in operators))
    for operator, on_gpu in operators:
        most = max(min(int(resources.get("GPU" if on_gpu else "CPU", 1)), len(blocks)), 1)
        least = most if len(operators) == 1 else 1  # alone it may have everything at once
        pool = ray.data.ActorPoolStrategy(min_size=least, max_size=most)
        data = data.map(operator, compute=pool, num_gpus=share if on_gpu else None, num_cpus=None if on_gpu else 1)
    return data


def _gpu_share(gpus: int, models: int) -> float:
    """What each actor with a model takes of a GPU: all of it, unless there are more models than GPUs."""
    return 1.0 if gpus >= models else gpus / models


def _operators(job: Job, has_gpus: bool) -> list[tuple[type[_Operator], bool]]:
    """(operator, whether it wants a GPU). Stages that run on the CPU are one operator with their neighbours; the first
    of all reads and the last stores, neither on a GPU."""
    parts: list[list[Stage]] = [[]]
    for stage in job.stages:
        if has_gpus and stage.needs_device:
            parts += [[stage], []]
        else:
            parts[-1].append(stage)
    inner = [part for part in parts[1:-1] if part]
    parts = [parts[0], *inner, parts[-1]] if len(parts) > 1 else parts
    last = len(parts) - 1
    return [
        (_operator(job, part, reads=at == 0, stores=at == last), has_gpus and any(stage.needs_device for stage in part))
        for at, part in enumerate(parts)
    ]


class _Operator:
    """An actor: opens its stages once, then turns rows into rows."""

    job: Job
    stages: tuple[Stage, ...] = ()
    reads = stores = False

    def __init__(self) -> None:
        self.works: list[Work] | None = None

    def __call__(self, row: Row) -> Row:
        """A row: the block, its counts, its samples on the way, and an error of ours, which travels to the end."""
        if row["error"]:
            return row
        try:
            return row | self._work(pickle.loads(row["block"]), row)
        except ConfigError as error:
            return row | {"error": str(error), "samples": b""}
        except OSError as error:
            said = disk_full(error, self.job.out)
            if said is None:
                raise
            return row | {"error": str(said), "samples": b""}

    def _work(self, block: Block, row: Row) -> Row:
        works = self._opened()
        counts: Counter[str] = Counter(json.loads(row["counts"]))
        samples = read_block(block, counts) if self.reads else pickle.loads(row["samples"])
        for work in works:
            samples = work(samples, counts)
        if self.stores:
            store_block(block, samples, counts)
        return {"counts": json.dumps(counts), "samples": b"" if self.stores else pickle.dumps(samples)}

    def _opened(self) -> list[Work]:
        if self.works is None:
            import torch

            torch.set_num_threads(1)
            device = "cuda" if any(stage.needs_device for stage in self.stages) and torch.cuda.is_available() else "cpu"
            self.works = [stage.open(device) for stage in self.stages]
        return self.works


def _operator(job: Job, stages: Sequence[Stage], *, reads: bool, stores: bool) -> type[_Operator]:
    """An operator's class, named after what it does so that Ray's dashboard reads well."""
    name = "_".join([*(["read"] if reads else []), *(stage.name for stage in stages), *(["store"] if stores else [])])
    return type(name, (_Operator,), {"job": job, "stages": tuple(stages), "reads": reads, "stores": stores})


def _join(ray: Any, task: Task, job: Job) -> Any:
    """A shard's joining, as a task of the cluster."""

    def join() -> Done:
        return Done(task, Counter(), assemble(task.plan, job))

    return ray.remote(join).options(max_retries=3).remote()


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ConfigError("--ray needs Ray: pip install 'goldiclip[prepare]'") from error
    return ray
