"""Work beside this process's own: small steps fill one core and gain nothing from a second, two processes fill two."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import connection, get_context, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from goldiclip.config import ConfigError
from goldiclip.train.launch import REQUEUE, Interrupted, Signals


@contextmanager
def beside(work: Callable[..., None], *arguments: Any, log: Path) -> Iterator[Callable[[], None]]:
    """Do it in a process of its own; yields what waits for its end. Leaving earlier asks it to save and stop."""
    process = get_context("spawn").Process(target=_do, args=(work, arguments, log))
    with _deaf_to_keyboard():
        process.start()
    try:
        yield partial(_finish, process, log)
    finally:
        if process.is_alive():
            process.terminate()
        process.join()


@contextmanager
def _deaf_to_keyboard() -> Iterator[None]:
    """Ctrl-C reaches a terminal's whole group: what starts here leaves it to this process, which passes it on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _finish(process: BaseProcess, log: Path) -> None:
    with Signals() as signals:
        while process.is_alive() and not signals.is_asking:
            process.join(0.2)
    if signals.is_asking:
        raise Interrupted(signals.exit_code)
    if process.exitcode == REQUEUE:  # the outside world asked it first
        raise Interrupted(REQUEUE)
    if process.exitcode:
        raise ConfigError(f"what ran beside this ended with {process.exitcode}; {log} says why")


def _do(work: Callable[..., None], arguments: tuple[Any, ...], log: Path) -> None:
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    work(*arguments)


def _leave_with_parent() -> None:
    """A killed parent says nothing: whoever starts it again must not meet its child at work."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
