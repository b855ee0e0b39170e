"""The order of samples: from a position in an endless stream to the sample that stands there, without any state.

One source: in every epoch the shards are permuted and cut into windows of a few shards, and the samples of a window are
permuted among themselves, so that reading stays within a few files. Epoch follows epoch. Several sources with weights:
a fixed pattern of slots, exactly in proportion, and each source runs on by itself.

Everything here is a function of (seed, position): ranks, workers and resumed runs agree by construction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.random import PCG64, Generator, Philox, SeedSequence
from numpy.typing import NDArray

from goldiclip.config import ConfigError

Integers = NDArray[np.int64]
Key = TypeVar("Key")
Value = TypeVar("Value")

# What a random number is for: the first word of its seed after the run's.
_SHARDS, _WINDOW, _SUBSTITUTE = range(3)
# Slots of a mixture's pattern, at most; weights with a longer common denominator are rounded to it.
MAX_PATTERN = 1 << 16
# A bad slot is refilled from its own window first, whose shards are open, then from its whole source.
_LOCAL_SUBSTITUTES = 8


def example_rng(seed: int, position: int) -> Generator:
    """What draws the crops, captions and tasks of the sample at a position. Philox is keyed, so no seed is hashed."""
    return Generator(Philox(key=(seed << 64) | position))


def _rng(*words: int) -> Generator:
    return Generator(PCG64(SeedSequence(words)))


@dataclass(frozen=True, slots=True)
class _Epoch:
    shards: Integers  # in this epoch's order
    ends: Integers  # samples up to the end of each window


class Shuffle:
    """One source, endless: `lengths` are the samples of each of its shards."""

    def __init__(self, lengths: Sequence[int] | Integers, window_shards: int, seed: int, source: int = 0) -> None:
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.num_samples = int(self.lengths.sum())
        self.window_shards = window_shards
        self._seed = (seed, source)
        self._epochs: dict[int, _Epoch] = {}
        self._windows: dict[tuple[int, int], Integers] = {}
        if not self.num_samples:
            raise ValueError("a source without samples has no order")

    def samples(self, positions: Integers) -> Integers:
        """Which samples stand at these positions of the stream."""
        out = np.empty(len(positions), dtype=np.int64)
        epochs, inside = np.divmod(positions, self.num_samples)
        for epoch in np.unique(epochs).tolist():
            here = np.flatnonzero(epochs == epoch)
            ends = self._epoch(epoch).ends
            windows = np.searchsorted(ends, inside[here], side="right")
            for window in np.unique(windows).tolist():
                rows = here[windows == window]
                start = ends[window - 1] if window else 0
                out[rows] = self._window(epoch, window)[inside[rows] - start]
        return out

    def substitute(self, position: int, attempt: int) -> int:
        """Another sample for a bad one: a function of position and attempt."""
        rng = _rng(*self._seed, _SUBSTITUTE, position, attempt)
        if attempt >= _LOCAL_SUBSTITUTES:
            return int(rng.integers(self.num_samples))
        epoch, inside = divmod(position, self.num_samples)
        window = int(np.searchsorted(self._epoch(epoch).ends, inside, side="right"))
        return int(rng.choice(self._window(epoch, window)))

    def _epoch(self, epoch: int) -> _Epoch:
        def draw() -> _Epoch:
            shards = _rng(*self._seed, _SHARDS, epoch).permutation(len(self.lengths))
            first = np.arange(0, len(shards), self.window_shards)
            return _Epoch(shards, np.cumsum(np.add.reduceat(self.lengths[shards], first)))

        return _kept(self._epochs, epoch, draw)

    def _window(self, epoch: int, window: int) -> Integers:
        """The samples of one window in their order."""

        def draw() -> Integers:
            first = window * self.window_shards
            shards = self._epoch(epoch).shards[first : first + self.window_shards]
            samples = np.concatenate([self.starts[shard] + np.arange(self.lengths[shard]) for shard in shards])
            return _rng(*self._seed, _WINDOW, epoch, window).permutation(samples)

        return _kept(self._windows, (epoch, window), draw)


def _kept(cache: dict[Key, Value], key: Key, draw: Callable[[], Value], room: int = 4) -> Value:
    """The value of a key, drawn again only when others have pushed it out."""
    if key not in cache:
        while len(cache) >= room:
            del cache[next(iter(cache))]
        cache[key] = draw()
    return cache[key]


class Pattern:
    """Which source fills which slot: counts exactly in proportion to the weights, each source's slots evenly spread."""

    def __init__(self, weights: Sequence[float]) -> None:
        self.counts = np.array(_whole_shares(weights), dtype=np.int64)
        due = np.concatenate([(np.arange(count) + 0.5) / max(count, 1) for count in self.counts])
        source = np.repeat(np.arange(len(weights)), self.counts)
        turn = np.concatenate([np.arange(count) for count in self.counts])
        order = np.argsort(due, kind="stable")
        self._source, self._turn = source[order], turn[order]

    def __len__(self) -> int:
        return len(self._source)

    def locate(self, positions: Integers) -> tuple[Integers, Integers]:
        """For each position of the mixture: its source, and the position in that source's own stream."""
        rounds, slot = np.divmod(positions, len(self))
        source = self._source[slot]
        return source, rounds * self.counts[source] + self._turn[slot]


def _whole_shares(weights: Sequence[float]) -> list[int]:
    """The smallest whole numbers in proportion to the weights as they are written: 0.7, 0.3 -> 7, 3."""
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or not any(weights):
        raise ConfigError(f"data.weights is {tuple(weights)}; allowed: numbers of 0 or more, not all 0")
    exact = [Fraction(repr(float(weight))) for weight in weights]
    shares = [weight.limit_denominator(1_000_000) or weight for weight in exact]  # 0.3333333333333333 is a third
    shares = [share / sum(shares) for share in shares]
    size = math.lcm(*(share.denominator for share in shares))
    if size <= MAX_PATTERN:
        return [int(share * size) for share in shares]
    counts = [max(int(share * MAX_PATTERN), 1 if share else 0) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - shares[i] * MAX_PATTERN)
    for i in by_remainder[: max(MAX_PATTERN - sum(counts), 0)]:
        counts[i] += 1
    return counts


class Stream:
    """Sources with weights as one endless stream; a single source needs none."""

    def __init__(
        self, lengths: Sequence[Sequence[int] | Integers], weights: Sequence[float], window_shards: int, seed: int
    ) -> None:
        if len(weights or [1.0]) != len(lengths):
            raise ConfigError(f"data.weights has {len(weights)} entries for {len(lengths)} sources; expected one each")
        self.sources = [Shuffle(each, window_shards, seed, source) for source, each in enumerate(lengths)]
        self.pattern = Pattern(weights or [1.0] * len(lengths))
        self.num_samples = sum(source.num_samples for source in self.sources)

    def locate(self, positions: Integers) -> tuple[Integers, Integers]:
        """(source, sample in it) at each position."""
        source, inside = self.pattern.locate(positions)
        sample = np.empty_like(source)
        for i in np.unique(source).tolist():
            sample[source == i] = self.sources[i].samples(inside[source == i])
        return source, sample

    def substitute(self, position: int, attempt: int) -> tuple[int, int]:
        """(source, sample) for the slot of a bad sample."""
        source, inside = (int(part[0]) for part in self.pattern.locate(np.array([position])))
        return source, self.sources[source].substitute(inside, attempt)
