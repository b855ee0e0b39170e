"""The learning rate is the cosine that everybody knows; lengths and saves are counted in samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from goldiclip.config import Config, ConfigError, Run
from goldiclip.train.schedule import SaveClock, learning_rate, total_samples, travel


def test_the_learning_rate_is_open_clips_warm_up_and_cosine(small_run: Callable[..., Config]) -> None:
    """step < warm-up: (step + 1) / warm-up; else half a cosine over what remains."""
    config = small_run("optim.warmup_steps=5", "run.batch=8")
    steps = 40
    for step in range(steps):
        through = (step - 5) / (steps - 5)
        expected = (step + 1) / 5 if step < 5 else 0.5 * (1 + math.cos(math.pi * through))
        assert learning_rate(config, (step + 1) * 8, steps * 8) == pytest.approx(expected, abs=1e-12)


def test_the_learning_rate_ends_at_the_share_that_is_asked_for(small_run: Callable[..., Config]) -> None:
    config = small_run("optim.warmup_steps=0", "optim.final_lr=0.1")
    assert learning_rate(config, 8, 8_000) == 1
    assert learning_rate(config, 8_000, 8_000) == pytest.approx(0.1, abs=1e-4)


def test_twice_the_batch_warms_up_over_as_many_steps(small_run: Callable[..., Config]) -> None:
    one, two = small_run("optim.warmup_steps=4", "run.batch=8"), small_run("optim.warmup_steps=4", "run.batch=16")
    assert learning_rate(one, 16, 800) == learning_rate(two, 32, 1_600) == 0.5


def test_a_run_is_cut_to_whole_batches(small_run: Callable[..., Config]) -> None:
    assert total_samples(small_run("run.samples=100"), 40) == 96
    assert total_samples(small_run("run.samples=0", "run.epochs=2.5"), 40) == 96


def test_fewer_samples_than_a_batch_is_said_with_what_to_do(small_run: Callable[..., Config]) -> None:
    with pytest.raises(ConfigError, match=r"holds 7 samples and run.batch is 8.*run.batch=7 or less"):
        total_samples(small_run(), 7)
    with pytest.raises(ConfigError, match=r"would see 4 samples.*raise run.epochs"):
        total_samples(small_run("run.samples=4"), 40)


def test_travel_is_the_sum_of_the_scalars_rates(small_run: Callable[..., Config]) -> None:
    config = small_run("optim.warmup_steps=10", "optim.scalar_lr=0.01")
    total = 8 * 500
    by_hand = sum(0.01 * learning_rate(config, 8 * step, total) for step in range(1, 501))
    assert travel(config, total) == pytest.approx(by_hand, rel=0.02)


def test_a_save_is_due_when_a_count_is_crossed_or_the_time_has_come() -> None:
    clock = SaveClock(Run(save_every_steps=10, save_every_samples=1_000, save_every_minutes=5), step=20, samples=400)
    assert not clock.due(29, 580)
    assert clock.due(30, 600)
    assert clock.due(31, 620), "a multiple that was skipped counts"
    assert clock.due(25, 1_000)
    clock.saved(31, 620)
    assert not clock.due(39, 780)
    assert not clock.due_by_time()
    clock.seconds -= 301
    assert clock.due_by_time()
    assert not SaveClock(Run(save_every_minutes=0), 0, 0, seconds=-1e9).due_by_time()
