"""As much work as the machine can do, a little that waits, and a clear no to the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import TypeVar

T = TypeVar("T")


class Busy(Exception):
    """More was asked for than can be done soon."""


class Room:
    """So many at once; `Busy` for whoever comes to a full one."""

    def __init__(self, places: int) -> None:
        self.places, self.inside = places, 0

    def enter(self) -> None:
        if self.inside >= self.places:
            raise Busy
        self.inside += 1

    def leave(self) -> None:
        self.inside -= 1

    @contextmanager
    def place(self) -> Iterator[None]:
        self.enter()
        try:
            yield
        finally:
            self.leave()


class Gate:
    """`workers` calls at once, `waiting` more in line, each answered within `seconds` or not at all.

    A place is free again when its work is done, not when somebody has stopped waiting for it: what is bounded is the
    work, and with it memory.
    """

    def __init__(self, workers: int, waiting: int, seconds: float = 30.0, name: str = "work") -> None:
        self.room, self.seconds = Room(workers + waiting), seconds
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=name)

    async def run(self, call: Callable[[], T]) -> T:
        self.room.enter()
        job = self._pool.submit(copy_context().run, call)
        loop = asyncio.get_running_loop()
        job.add_done_callback(lambda _: loop.call_soon_threadsafe(self.room.leave))
        try:
            return await asyncio.wait_for(asyncio.wrap_future(job), self.seconds)
        except TimeoutError:
            raise Busy from None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
