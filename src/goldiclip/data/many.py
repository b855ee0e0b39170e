"""The same work on many parts, in processes, in order, with a bar."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, TypeVar

from goldiclip.config import ConfigError
from goldiclip.data.worker import start_worker

Context = TypeVar("Context")
Part = TypeVar("Part")
Result = TypeVar("Result")

# Starting a process costs seconds of imports: fewer parts than this are done here.
FEWEST_PARTS = 64

_work: Callable[[Any], Any] | None = None


def in_processes(
    work: Callable[[Context, Part], Result],
    context: Context,
    parts: Sequence[Part],
    workers: int = 0,
    fewest: int = FEWEST_PARTS,
) -> Iterator[Result]:
    """work(context, part) for every part, in order. `workers` 0 takes the cores there are; 1 does it here."""
    workers = min(workers or len(os.sched_getaffinity(0)), len(parts))
    if workers <= 1 or len(parts) < fewest:
        yield from (work(context, part) for part in parts)
        return
    with ProcessPoolExecutor(
        workers, mp_context=get_context("spawn"), initializer=_start, initargs=(start_worker(), work, context)
    ) as pool:
        pending: deque[Future[Any]] = deque()
        try:
            for part in parts:
                pending.append(pool.submit(_do, part))
                if len(pending) > 4 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            raise ConfigError("a reading process ended, perhaps out of memory; try again with --workers 1") from error
        finally:
            for future in pending:
                future.cancel()


def _start(begin: Callable[[int], None], work: Callable[[Any, Any], Any], context: Any) -> None:
    global _work
    begin(0)
    _work = lambda part: work(context, part)  # noqa: E731


def _do(part: Any) -> Any:
    assert _work is not None
    return _work(part)


def progress(items: Iterable[Result], what: str, total: int) -> Iterator[Result]:
    """The items, with a bar while they come, where someone is looking."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, what, total=total, console=Console(stderr=True), transient=True)
