"""Shards to batches: the stream, read by worker processes, delivered in order.

The state is one integer, `position`: the samples delivered so far over all ranks. Global batch g after `start` is the
stream's positions start + [g·B, (g+1)·B), of which rank r takes the r-th part; a loader started anywhere, with any
number of ranks and workers, gives exactly what remains.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from goldiclip.config import Config, ConfigError
from goldiclip.data.example import collate, make_example
from goldiclip.data.schema import BadSample
from goldiclip.data.shards import Shards
from goldiclip.data.stream import Integers, Stream, example_rng
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.data.worker import start_worker
from goldiclip.types import Batch, Example, Sample

# A bad share is judged as if at least this many samples had been seen: one early accident stops nothing.
MIN_SEEN = 1_000
MAX_SUBSTITUTES = 64
_EXAMPLES_PER_REASON = 3

# What torch says when a worker stalls or dies; what a worker itself raised says "Caught … in DataLoader worker".
_STOPPED = re.compile(r"DataLoader (?:timed out|worker \(pid(?:\(s\))? (?P<pid>\d+))")


class TooManyBad(ValueError):
    """The data has more bad samples than `data.max_bad_share` allows."""


class LoaderStopped(RuntimeError):
    """A worker stalled or died; says which one, and where it was."""


class Source(Protocol):
    """What the loader reads: `Shards`, or anything like them."""

    @property
    def lengths(self) -> Sequence[int] | Integers: ...
    @property
    def paths(self) -> Sequence[str]: ...
    def __getitem__(self, index: int, /) -> Sample: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """What leaves a worker: a batch, what was bad on the way to it, and why there is no batch if there is none."""

    batch: Batch | None
    bad: tuple[tuple[str, str], ...]  # (reason, message)
    failure: str = ""

    def pin_memory(self) -> Delivery:
        return replace(self, batch=self.batch.pin_memory()) if self.batch else self


class Loader:
    """An endless iterable of batches, from `start` on. Iterating again goes on where the last iteration stopped."""

    def __init__(
        self,
        config: Config,
        tokenizer: Tokenizer,
        *,
        rank: int = 0,
        ranks: int = 1,
        start: int = 0,
        stop: int | None = None,
        sources: Sequence[Source] | None = None,
        timeout_seconds: float = 600.0,
    ) -> None:
        """`stop`: give no batch that begins at or after this position. `sources`: one per weight, instead of shards."""
        if config.run.batch % ranks:
            raise ConfigError(f"run.batch is {config.run.batch}; allowed: a multiple of the {ranks} ranks")
        self.position = start
        self._config, self._tokenizer, self._rank, self._ranks, self._stop = config, tokenizer, rank, ranks, stop
        self._timeout_seconds = timeout_seconds
        self.sources = list(sources) if sources is not None else open_sources(config)
        data = config.data
        self.stream = Stream([s.lengths for s in self.sources], data.weights, data.window_shards, config.run.seed)
        self._seen = 0
        self._bad: Counter[str] = Counter()
        self._messages: dict[str, list[str]] = {}
        self._turn: tuple[int, _Batches] | None = None  # the worker that is waited for

    @property
    def num_samples(self) -> int:
        """Samples in one epoch: all that the sources hold."""
        return self.stream.num_samples

    def __iter__(self) -> Iterator[Batch]:
        dataset = _Batches(self, self.position)
        for delivery in self._deliveries(dataset):
            self._account(delivery)
            assert delivery.batch is not None
            self.position = delivery.batch.samples
            yield delivery.batch

    def place(self, position: int) -> str:
        """The shard and row at a position of the stream, for messages."""
        return _place(self.sources, self.stream, position)

    def whereabouts(self) -> str:
        """Whom the next batch is waited for, and where that one is, for messages."""
        if self._turn is None:
            return f"the loader is at {self.place(self.position)}"
        return f"loader worker {self._turn[0]} is {self._at(*self._turn)}"

    # --- workers ---

    def _deliveries(self, dataset: _Batches) -> Iterator[Delivery]:
        workers = self._config.data.workers
        numbers: Sequence[int] | _Endless = _Endless()
        if self._stop is not None:
            numbers = range(max(0, -(-(self._stop - self.position) // self._config.run.batch)))
        if workers == 0:
            yield from map(dataset.__getitem__, numbers)
            return
        deliveries = self._start_workers(dataset, numbers)
        try:
            for number in numbers:
                yield self._next(deliveries, number % workers, dataset)
        finally:
            # at once: a traceback may keep torch's iterator, and a worker forked later would end its copy of it
            deliveries._shutdown_workers()  # type: ignore[attr-defined]

    def _start_workers(self, dataset: _Batches, numbers: Sequence[int] | _Endless) -> Iterator[Delivery]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*DataLoader will create.*worker")  # their number is the user's
            loader: DataLoader[Delivery] = DataLoader(
                dataset,
                batch_size=None,
                sampler=numbers,
                num_workers=self._config.data.workers,
                collate_fn=_as_it_is,
                pin_memory=torch.cuda.is_available(),
                timeout=self._timeout_seconds,
                worker_init_fn=start_worker(),
                prefetch_factor=2,
                generator=torch.Generator(),  # or it would draw from the run's own
            )
            return iter(loader)

    def _next(self, deliveries: Iterator[Delivery], worker: int, dataset: _Batches) -> Delivery:
        self._turn = worker, dataset
        try:
            return next(deliveries)
        except RuntimeError as error:
            said = _STOPPED.match(str(error))
            if said is None:
                raise
            raise self._stopped(worker, said["pid"], dataset, error) from error

    def _stopped(self, worker: int, pid: str | None, dataset: _Batches, error: Exception) -> LoaderStopped:
        """`worker` is the one whose turn it is; one that died is found by its pid."""
        pids = dataset.progress[:, 1]
        if pid and int(pid) in pids:
            worker = pids.tolist().index(int(pid))
        what = "ended (out of memory, or of /dev/shm?)" if pid else f"gave no batch for {self._timeout_seconds:g} s"
        return LoaderStopped(f"loader worker {worker} {what}; it was {self._at(worker, dataset)}: {error}")

    def _at(self, worker: int, dataset: _Batches) -> str:
        position = int(dataset.progress[worker, 0])
        return f"at {self.place(position)}" if position >= 0 else "at no sample yet"

    # --- bad samples ---

    def _account(self, delivery: Delivery) -> None:
        """Keep count of bad samples, and stop when they are too many."""
        for reason, message in delivery.bad:
            self._bad[reason] += 1
            kept = self._messages.setdefault(reason, [])
            if len(kept) < _EXAMPLES_PER_REASON:
                kept.append(message)
        self._seen += len(delivery.batch) if delivery.batch else 0
        limit, bad = self._config.data.max_bad_share, self._bad.total()
        if delivery.failure or bad > limit * max(self._seen + bad, MIN_SEEN):
            raise TooManyBad(self._complaint(delivery.failure))

    def _complaint(self, failure: str) -> str:
        found = "; ".join(
            f"{number} × {reason} (such as {' | '.join(self._messages[reason])})"
            for reason, number in self._bad.most_common()
        )
        share = f"{self._bad.total():,} bad of {self._seen + self._bad.total():,} samples read by this rank"
        allowed = f"data.max_bad_share allows {self._config.data.max_bad_share:.3g}"
        what_to_do = "run `goldiclip shards check` on these shards"
        return f"{failure + ': ' if failure else ''}{share}, {allowed}: {found}; {what_to_do}"


def open_sources(config: Config) -> list[Source]:
    """The shards of `data.train`: one source each when they have weights, all together when they have none."""
    data = config.data
    if not data.sources:
        raise ConfigError("data.train is empty; expected shards, such as data.train=/data/cc3m/{00000..00331}.tar")
    groups = [[source] for source in data.sources] if data.weights else [list(data.sources)]
    # a batch may straddle two windows
    return [Shards(group, data.cache_gigabytes, open_shards=2 * data.window_shards + 2) for group in groups]


class _Endless:
    """0, 1, 2, …"""

    def __iter__(self) -> Iterator[int]:
        return count()


def _as_it_is(delivery: Any) -> Any:
    return delivery


def _place(sources: Sequence[Source], stream: Stream, position: int) -> str:
    source, sample = (int(part[0]) for part in stream.locate(np.array([position])))
    lengths = np.asarray(sources[source].lengths)
    ends = np.cumsum(lengths)
    shard = int(np.searchsorted(ends, sample, side="right"))
    row = sample - int(ends[shard] - lengths[shard])
    return f"{sources[source].paths[shard]}, row {row} (position {position:,})"


class _Batches(Dataset[Delivery]):
    """The n-th batch of this rank after a starting position; built wholly inside one worker."""

    def __init__(self, loader: Loader, start: int) -> None:
        self.config, self.tokenizer = loader._config, loader._tokenizer
        self.sources, self.stream = loader.sources, loader.stream
        self.start, self.rank, self.ranks = start, loader._rank, loader._ranks
        # (position, pid) of each worker, for the message when one stalls or dies
        self.progress: Tensor = torch.full((max(self.config.data.workers, 1), 2), -1, dtype=torch.int64)
        self.progress.share_memory_()

    def __getitem__(self, number: int) -> Delivery:
        batch, share = self.config.run.batch, self.config.run.batch // self.ranks
        first = self.start + number * batch
        rows = np.arange(share) + first + self.rank * share
        bad: list[BadSample] = []
        examples: list[Example] = []
        info = torch.utils.data.get_worker_info()
        mark = self.progress[info.id if info else 0].numpy()
        mark[1] = os.getpid()
        try:
            for position, source, sample in zip(rows.tolist(), *(part.tolist() for part in self.stream.locate(rows))):
                mark[0] = position
                examples.append(self._example(position, source, sample, bad))
        except TooManyBad as error:
            return Delivery(None, _messages(bad), str(error))
        except Exception as error:
            error.add_note(f"at {_place(self.sources, self.stream, position)}")
            raise
        whole = collate(examples, samples=first + batch)
        counts = Counter(f"bad: {error.reason}" for error in bad)
        return Delivery(replace(whole, counts={**whole.counts, **counts}), _messages(bad))

    def _example(self, position: int, source: int, sample: int, bad: list[BadSample]) -> Example:
        """The sample at a position; a bad one is replaced by another, which position and attempt decide."""
        for attempt in range(MAX_SUBSTITUTES):
            try:
                return self._made(self.sources[source][sample], position)
            except BadSample as error:
                bad.append(error)
            source, sample = self.stream.substitute(position, attempt)
        raise TooManyBad(f"no good sample among {MAX_SUBSTITUTES} for position {position:,}")

    def _made(self, sample: Sample, position: int) -> Example:
        try:
            return make_example(sample, self.config, self.tokenizer, example_rng(self.config.run.seed, position))
        except BadSample as error:
            raise BadSample(error.reason, error.detail, sample.key, sample.origin) from error


def _messages(bad: Sequence[BadSample]) -> tuple[tuple[str, str], ...]:
    return tuple((error.reason, str(error)[:300]) for error in bad)
