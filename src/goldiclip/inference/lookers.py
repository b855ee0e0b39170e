"""Threads that score stored pictures side by side, each with one thread of torch's: a group of blocks is too little
work to be shared out, and enough to keep a core busy."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

_one_at_a_time = threading.Lock()


def lookers() -> ThreadPoolExecutor:
    """This process's, as many as torch computes with, made at the first call."""
    with _one_at_a_time:
        return _of_process(os.getpid())  # no thread survives a fork


@cache
def _of_process(number: int) -> ThreadPoolExecutor:
    return single_threaded(torch.get_num_threads())


def single_threaded(count: int) -> ThreadPoolExecutor:
    """So many threads, in each of which torch computes with one. Meanwhile no thread should touch torch for the first
    time: it would take that number for its own."""
    before, all_here = torch.get_num_threads(), threading.Barrier(count)
    pool = ThreadPoolExecutor(count, thread_name_prefix="looks")

    def settle() -> None:
        torch.get_num_threads()  # a thread new to torch takes the process's number at its next call, whatever was set
        torch.set_num_threads(1)
        all_here.wait()

    for settled in [pool.submit(settle) for _ in range(count)]:
        settled.result()
    torch.set_num_threads(before)  # what the threads to come begin with
    return pool
