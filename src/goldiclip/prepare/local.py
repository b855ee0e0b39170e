"""The default executor: worker processes on this machine, one block in the hands of each.

A worker that dies (out of memory, killed) loses the block it held; a new one takes that block up again. A block that
kills three workers stops the run and is named.
"""

from __future__ import annotations

import signal
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, get_context
from typing import Any, Protocol

import torch

from goldiclip.config import ConfigError
from goldiclip.prepare.blocks import Block, Job, Plan, assemble, disk_full, run_block

MAX_DEATHS = 3


@dataclass(frozen=True)
class Task:
    """A block to annotate, or, with `block` empty, a shard to join."""

    plan: Plan
    block: Block | None = None

    def __str__(self) -> str:
        return str(self.block) if self.block else f"joining {self.plan.target}"


@dataclass(frozen=True)
class Done:
    task: Task
    counts: Counter[str]
    manifest: dict[str, Any] | None = None


class Executor(Protocol):
    size: int
    """How many tasks it can have in hand: what it could not take soon is not planned either."""

    @property
    def is_busy(self) -> bool: ...

    def step(self, waiting: deque[Task]) -> Iterator[Done]:
        """Take from `waiting` what there is room for; what has finished since."""
        ...

    def close(self) -> None: ...


class Here:
    """Without processes: for small runs and for looking inside."""

    size = 1
    is_busy = False

    def __init__(self, job: Job, device: str) -> None:
        self._do = _doer(job, device)

    def step(self, waiting: deque[Task]) -> Iterator[Done]:
        yield self._do(waiting.popleft())

    def close(self) -> None:
        """Nothing to end."""


class Processes:
    """In worker processes, which take the devices in turn."""

    def __init__(self, job: Job, workers: int, devices: Sequence[str]) -> None:
        self.job, self.devices, self.size = job, devices, workers
        self.threads = max(torch.get_num_threads() // workers, 1)  # as OMP_NUM_THREADS has it, where it is set
        self.workers = [self._new(number) for number in range(workers)]
        self.deaths: Counter[str] = Counter()

    def _new(self, number: int) -> _Worker:
        return _Worker(number, self.job, self.devices[number % len(self.devices)], self.threads)

    @property
    def is_busy(self) -> bool:
        return any(worker.task for worker in self.workers)

    def step(self, waiting: deque[Task]) -> Iterator[Done]:
        """Hand out what is waiting, then wait for one worker at least to say something or to die."""
        for worker in self.workers:
            if waiting and worker.task is None:
                worker.give(waiting.popleft())
        handles: dict[Any, _Worker] = {worker.pipe: worker for worker in self.workers}
        handles |= {worker.sentinel: worker for worker in self.workers}
        for worker in {handles[ready] for ready in connection.wait(list(handles))}:
            answer = worker.answer()
            if isinstance(answer, Done):
                yield answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._replace(worker, waiting)

    def _replace(self, dead: _Worker, waiting: deque[Task]) -> None:
        what = str(dead.task) if dead.task else "starting"
        self.deaths[what] += 1
        code = dead.close()
        if self.deaths[what] >= MAX_DEATHS:
            perhaps = "; out of memory? fewer --workers, or a smaller --block" if code == -9 else ""
            raise ConfigError(f"{what}: {MAX_DEATHS} workers in a row ended there (exit code {code}){perhaps}")
        if dead.task:
            waiting.appendleft(dead.task)
        self.workers[dead.number] = self._new(dead.number)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


class _Worker:
    """A process and the task it holds."""

    def __init__(self, number: int, job: Job, device: str, threads: int) -> None:
        # A server that has imported all of this once: a new worker starts in no time, and no thread of ours is forked.
        context = get_context("forkserver")
        context.set_forkserver_preload([__name__])
        self.number = number
        self.task: Task | None = None
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(job, device, threads, theirs), daemon=True)
        self.process.start()
        theirs.close()

    @property
    def sentinel(self) -> int:
        return self.process.sentinel

    def give(self, task: Task) -> None:
        self.task = task
        try:
            self.pipe.send(task)
        except OSError:
            return  # it is dead already: `answer` will find out

    def answer(self) -> Done | BaseException | None:
        """What it has to say; None when it is dead."""
        try:
            if not self.pipe.poll():
                return None
            said: Done | BaseException = self.pipe.recv()
        except (EOFError, OSError):
            return None
        self.task = None if isinstance(said, Done) else self.task
        return said

    def close(self) -> int | None:
        self.process.kill()
        self.process.join()
        self.pipe.close()
        return self.process.exitcode


def _serve(job: Job, device: str, threads: int, pipe: connection.Connection) -> None:
    """A worker's life: open the stages, then task after task until the other end is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the run
    torch.set_num_threads(threads)
    try:
        do = _doer(job, device)
        while True:
            pipe.send(do(pipe.recv()))
    except (EOFError, BrokenPipeError):
        return
    except ConfigError as error:
        pipe.send(error)
    except BaseException as error:
        said = disk_full(error, job.out) or RuntimeError(f"a worker failed:\n{traceback.format_exc()}")
        pipe.send(said)


def _doer(job: Job, device: str) -> Any:
    """A function from tasks to what came of them, its models loaded when the first block needs them."""
    works: list[Any] = []

    def do(task: Task) -> Done:
        try:
            if task.block is None:
                return Done(task, Counter(), assemble(task.plan, job))
            if not works:
                works.extend(stage.open(device) for stage in job.stages)
            return Done(task, run_block(task.block, works))
        except OSError as error:
            raise disk_full(error, job.out) or error from error

    return do
