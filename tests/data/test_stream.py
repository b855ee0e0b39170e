from __future__ import annotations

import time
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldiclip.config import ConfigError
from goldiclip.data.stream import MAX_PATTERN, Pattern, Shuffle, Stream, example_rng

LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any)
WEIGHTS = st.lists(st.sampled_from([0.1, 0.25, 0.3, 0.7, 1.0, 2.5, 1 / 3]), min_size=1, max_size=5)


def span(start: int, stop: int) -> np.ndarray:
    return np.arange(start, stop)


# --- one source -----------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(LENGTHS, st.integers(1, 5), st.integers(0, 2**40), st.integers(0, 1_000))
def test_every_epoch_has_every_sample_once(lengths: list[int], window: int, seed: int, epoch: int) -> None:
    shuffle, total = Shuffle(lengths, window, seed), sum(lengths)
    samples = shuffle.samples(span(epoch * total, (epoch + 1) * total))
    assert sorted(samples.tolist()) == list(range(total))


@settings(max_examples=100, deadline=None)
@given(LENGTHS, st.integers(1, 5), st.integers(0, 2**40), st.lists(st.integers(0, 500), min_size=1, max_size=40))
def test_where_and_in_what_order_one_looks_changes_nothing(
    lengths: list[int], window: int, seed: int, positions: list[int]
) -> None:
    whole = Shuffle(lengths, window, seed).samples(span(0, 501))
    fresh = Shuffle(lengths, window, seed)
    assert fresh.samples(np.array(positions)).tolist() == whole[positions].tolist()
    assert [int(fresh.samples(np.array([p]))[0]) for p in positions] == whole[positions].tolist()


def test_a_window_reads_a_few_shards_to_their_end() -> None:
    lengths, window = [10] * 12, 3
    samples = Shuffle(lengths, window, seed=1).samples(span(0, 120))
    opened = [set((samples[i : i + 30] // 10).tolist()) for i in range(0, 120, 30)]
    assert [len(shards) for shards in opened] == [3] * 4
    assert set.union(*opened) == set(range(12))


def test_shards_and_samples_are_shuffled_anew_in_every_epoch_and_by_every_seed() -> None:
    orders = [Shuffle([20] * 6, 2, seed).samples(span(start, start + 120)) for seed in (0, 1) for start in (0, 120)]
    assert len({tuple(order) for order in orders}) == 4
    assert len({tuple(dict.fromkeys(order // 20)) for order in orders}) > 1
    for order in orders:
        assert abs(np.corrcoef(order % 20, np.arange(120) % 40)[0, 1]) < 0.3


def test_two_sources_of_one_seed_have_orders_of_their_own() -> None:
    first, second = (Shuffle([50], 1, seed=0, source=source).samples(span(0, 50)) for source in (0, 1))
    assert not np.array_equal(first, second)


def test_a_billion_samples_resume_in_the_middle_at_once() -> None:
    shuffle = Shuffle(np.full(100_000, 10_000), 8, seed=0)
    start = time.perf_counter()
    samples = shuffle.samples(span(512_000_000, 512_002_560))
    assert time.perf_counter() - start < 1.0
    assert len(set(samples.tolist())) == 2_560


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 4), st.integers(0, 300))
def test_a_substitute_is_a_function_of_position_and_comes_from_its_window(
    lengths: list[int], window: int, position: int
) -> None:
    shuffle, total = Shuffle(lengths, window, seed=3), sum(lengths)
    found = [shuffle.substitute(position, attempt) for attempt in range(12)]
    assert found == [Shuffle(lengths, window, seed=3).substitute(position, attempt) for attempt in range(12)]
    assert all(0 <= sample < total for sample in found)
    epoch = position // total * total
    shard_of = np.repeat(np.arange(len(lengths)), lengths)
    order = shard_of[shuffle.samples(span(epoch, epoch + total))].tolist()
    shards = shuffle._epoch(position // total).shards.tolist()
    here = shards.index(order[position % total]) // window * window
    assert {int(shard_of[sample]) for sample in found[:8]} <= set(shards[here : here + window])


def test_a_source_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="without samples"):
        Shuffle([0, 0], 1, seed=0)


# --- mixtures -------------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(WEIGHTS, st.integers(0, 10**12))
def test_a_mixture_is_exactly_in_proportion_in_every_round_and_nearly_so_anywhere(
    weights: list[float], start: int
) -> None:
    pattern = Pattern(weights)
    source, _ = pattern.locate(span(start, start + len(pattern)))
    shares = [Fraction(repr(weight)).limit_denominator(1_000) for weight in weights]
    counts = Counter(source.tolist())
    assert [Fraction(counts[i], len(pattern)) for i in range(len(weights))] == [s / sum(shares) for s in shares]
    for i, share in enumerate(shares):
        drift = np.cumsum(pattern.locate(span(0, len(pattern)))[0] == i) - float(share / sum(shares)) * span(
            1, len(pattern) + 1
        )
        assert np.abs(drift).max() < len(weights)


@settings(max_examples=100, deadline=None)
@given(WEIGHTS)
def test_each_source_of_a_mixture_runs_on_without_a_gap(weights: list[float]) -> None:
    source, inside = Pattern(weights).locate(span(0, 3_000))
    for i in range(len(weights)):
        assert inside[source == i].tolist() == list(range(int((source == i).sum())))


def test_one_source_is_its_own_stream() -> None:
    source, inside = Pattern([1.0]).locate(span(7, 20))
    assert not source.any()
    assert inside.tolist() == list(range(7, 20))


def test_weights_without_a_small_common_denominator_are_rounded() -> None:
    pattern = Pattern([3.14159265, 1.0, 1e-9])
    assert len(pattern) == pattern.counts.sum() <= MAX_PATTERN + 1
    assert pattern.counts[0] / pattern.counts[1] == pytest.approx(3.14159265, rel=1e-4)
    assert pattern.counts[2] == 1


@pytest.mark.parametrize("weights", [[0.0, 0.0], [-1.0, 2.0], [float("nan"), 1.0], [float("inf")]])
def test_weights_that_are_no_shares_are_refused(weights: list[float]) -> None:
    with pytest.raises(ConfigError, match=r"data\.weights"):
        Pattern(weights)


def test_a_source_without_weight_is_never_read() -> None:
    source, _ = Stream([[5], [5]], (0.0, 2.0), 1, 0).locate(span(0, 50))
    assert set(source.tolist()) == {1}


def test_sources_without_weights_must_be_one() -> None:
    with pytest.raises(ConfigError, match="0 entries for 2 sources"):
        Stream([[5], [5]], (), 1, 0)


def test_in_a_mixture_each_source_repeats_its_epochs_at_its_own_pace() -> None:
    stream = Stream([[3, 4], [10, 10]], (1.0, 1.0), 2, seed=0)
    assert stream.num_samples == 27
    source, sample = stream.locate(span(0, 280))
    assert set(Counter(sample[source == 0].tolist()).values()) == {20}
    assert set(Counter(sample[source == 1].tolist()).values()) == {7}
    for position in range(30):
        assert stream.substitute(position, 0)[0] == source[position]


def test_what_an_example_draws_depends_on_seed_and_position_alone() -> None:
    draws = {(seed, position): example_rng(seed, position).random() for seed in range(4) for position in range(50)}
    assert len(set(draws.values())) == 200
    assert draws[2, 7] == example_rng(2, 7).random()
