"""Batches to the device, one ahead of the step: a thread waits for the loader and copies while the device computes."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from goldiclip.data.loader import Loader
from goldiclip.train.accumulate import split
from goldiclip.types import Batch, Texts

PATIENCE_SECONDS = 60.0
HASH_BITS = (1 << 40) - 1  # of each caption's hash, so that millions of them add up without overflow


@dataclass(frozen=True, slots=True)
class Delivered:
    """One step's micro-batches on the device, how long the step waited for them, and what tells them from others."""

    batches: list[Batch]
    waited_seconds: float
    counts: dict[str, int]  # truncations, drops and substitutions, by reason
    hash: int  # over the captions drawn; added up over ranks it is that of the step in any layout


class Feed:
    """Iterates over a loader's batches. Closing it lets the thread go; the loader's workers go with the loader."""

    def __init__(self, loader: Loader, device: torch.device, micro_batch: int, complain: Callable[[str], None]) -> None:
        self.loader, self.device, self.micro_batch, self.complain = loader, device, micro_batch, complain
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.ready: queue.Queue[Any] = queue.Queue(maxsize=1)
        self.stopping = threading.Event()
        # The first batch is fetched here: workers must be children of the main thread, to die with it.
        self.batches = iter(loader)
        self.thread: threading.Thread | None = None

    def __iter__(self) -> Iterator[Delivered]:
        before = time.perf_counter()
        first = next(self.batches, None)
        if first is None:
            return
        self.thread = threading.Thread(target=self._fetch, name="feed", daemon=True)
        self.thread.start()
        yield self._upload(first)(time.perf_counter() - before)
        while True:
            before = time.perf_counter()
            item = self._take()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item(time.perf_counter() - before)

    def close(self) -> None:
        self.stopping.set()
        if self.thread is not None:
            while self.thread.is_alive():
                self._drain()
                self.thread.join(timeout=0.05)

    def _drain(self) -> None:
        with contextlib.suppress(queue.Empty):
            self.ready.get_nowait()

    def _take(self) -> Any:
        while True:
            try:
                return self.ready.get(timeout=PATIENCE_SECONDS)
            except queue.Empty:
                self.complain(f"no batch for {PATIENCE_SECONDS:.0f} s; {self.loader.whereabouts()}: still waiting")

    def _fetch(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        try:
            for batch in self.batches:
                self._put(self._upload(batch))
                if self.stopping.is_set():
                    return
            self._put(None)
        except Exception as error:  # raised again where the batch is wanted
            self._put(error)

    def _put(self, item: Any) -> None:
        while not self.stopping.is_set():
            try:
                self.ready.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def _upload(self, batch: Batch) -> Callable[[float], Delivered]:
        """Begin the copy; what is returned finishes it on the stream that will read the batch."""
        drawn = int((batch.caption_hash & HASH_BITS).sum())
        counts = dict(batch.counts)
        pieces = split(batch, self.micro_batch)
        if self.stream is None:
            here = [piece.to(self.device) for piece in pieces]
            return lambda waited: Delivered(here, waited, counts, drawn)
        with torch.cuda.stream(self.stream):
            there = [piece.to(self.device, non_blocking=True) for piece in pieces]
            copied = self.stream.record_event()

        def finish(waited: float) -> Delivered:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(copied)
            for piece in there:
                _used_on(piece, current)
            return Delivered(there, waited, counts, drawn)

        return finish


def _used_on(item: Batch | Texts, stream: torch.cuda.Stream) -> None:
    """Tell the allocator that `stream` reads these tensors, which another stream made."""
    for name in item.__dataclass_fields__:
        value = getattr(item, name)
        if isinstance(value, Texts):
            _used_on(value, stream)
        elif isinstance(value, torch.Tensor):
            value.record_stream(stream)
