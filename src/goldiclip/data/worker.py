"""A loader's worker process, as it starts: one thread, deaf to Ctrl-C, and gone when its parent is."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing import connection, parent_process

import torch


def start_worker() -> Callable[[int], None]:
    """What each worker runs first; called in the parent, on the thread that will start the workers."""
    # Linux ties the signal to the thread that forked, not to the process: a worker would die with a passing thread.
    is_main_thread = threading.current_thread() is threading.main_thread()
    is_direct = torch.multiprocessing.get_start_method() != "forkserver"
    return partial(_start, parent=os.getpid() if is_direct else None, die_with_parent=is_main_thread)


def _start(worker: int, parent: int | None, die_with_parent: bool) -> None:
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the run
    if parent is None:
        threading.Thread(target=_leave_with_parent, daemon=True).start()
    elif die_with_parent and sys.platform == "linux":
        _kill_when_parent_dies(parent)


def _leave_with_parent() -> None:
    """A fork server lives as long as its last worker: neither would hear that the process they work for was killed."""
    master = parent_process()
    assert master is not None
    connection.wait([master.sentinel])
    os._exit(1)


def _kill_when_parent_dies(parent: int) -> None:
    import ctypes

    set_death_signal = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None, use_errno=True).prctl(set_death_signal, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os._exit(1)
