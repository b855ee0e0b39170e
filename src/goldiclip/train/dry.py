"""A rehearsal: two steps on real batches, each term beside what it should begin at, then the plan. Writes nothing.

Most bad data, wrong paths and shapes that do not fit are caught here, in a minute.
"""

from __future__ import annotations

import time

import torch
from rich.console import Console
from rich.table import Table

from goldiclip import plan
from goldiclip.config import Config
from goldiclip.data.vocabulary import with_vocabulary
from goldiclip.learner import Learner
from goldiclip.losses.start import expected_start
from goldiclip.plan.devices import Device, device_like
from goldiclip.train.accumulate import backward, split
from goldiclip.train.launch import seated
from goldiclip.train.measure import peak_flops
from goldiclip.train.optim import build_optimizer, clip_gradients, gradient_norms, lock, set_learning_rate
from goldiclip.train.panel import duration
from goldiclip.train.schedule import learning_rate, total_samples, travel
from goldiclip.train.session import open_loader
from goldiclip.train.start import begin_from, starting_model
from goldiclip.types import DECODER_TASKS, TERMS, Batch

STEPS = 2
# A term that begins outside these bounds around its expectation deserves a word.
LOW, HIGH = 0.6, 1.5


def dry_run(config: Config, init: str | None = None, console: Console | None = None) -> list[dict[str, float]]:
    """Rehearse `config` and say what was seen; returns the terms of each step."""
    console = console or Console()
    config = with_vocabulary(config)
    with seated() as seat:
        loader = open_loader(config, seat, 0, STEPS)
        total = total_samples(config, loader.num_samples)
        learner = Learner(config)
        if init:
            begin_from(learner, starting_model(init, config, console.print))
        learner.to(seat.device).train()
        lock(learner, config.optim.lock)
        optimizer = build_optimizer(learner, config)
        console.print(f"{loader.num_samples:,} samples, {total // config.run.batch:,} steps of {config.run.batch:,}")
        steps, seconds = [], []
        for batch in loader:
            before = time.perf_counter()
            set_learning_rate(optimizer, learning_rate(config, batch.samples, total))
            optimizer.zero_grad(set_to_none=True)
            pieces = [piece.to(seat.device) for piece in split(batch, config.run.micro_batch)]
            losses = backward(learner, pieces)
            if config.optim.clip_norm:
                clip_gradients(learner, gradient_norms(learner)["all"], config.optim.clip_norm)
            optimizer.step()
            learner.update_teacher()
            steps.append({name: float(value) for name, value in losses.terms.items()})
            seconds.append(time.perf_counter() - before)
            if len(steps) == 1:
                console.print(_seen(config, batch))
        console.print(_terms(config, steps, is_new=not init))
        for warning in warnings_of(config, steps, total):
            console.print(f"[yellow]•[/] {warning}", highlight=False, soft_wrap=True)
        whole = duration(min(seconds) * total / config.run.batch)
        console.print(f"measured here: {min(seconds):.2f} s per step, {whole} for the run; by calculation:\n")
        device = device_here(seat.device)
        plan.show(plan.estimate(config, device, seat.ranks, total), console)
    return steps


def device_here(device: torch.device) -> Device:
    """The device the run is on, for the plan; a CPU or an unknown GPU is measured by a matrix product."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        memory = torch.cuda.get_device_properties(device).total_memory / 1e9
        return device_like(name) or Device(name, 100.0, memory, 1.0, 32, 0.0)
    import os

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return Device("this CPU", peak_flops(device) / 1e12, memory, 0.02, 1, 0.0, is_cpu=True)


def _seen(config: Config, batch: Batch) -> Table:
    """What the first batch holds."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    lengths = batch.captions.lengths
    table.add_row(
        "images", f"{len(batch)}, {tuple(batch.global_views.shape[2:])} and {tuple(batch.local_views.shape[1:])}"
    )
    table.add_row("captions", f"{len(batch.captions)}, {float(lengths.float().mean()):.1f} tokens on average")
    cut = float(batch.captions.truncated.float().mean())
    table.add_row("cut at the context", f"{cut:.1%}")
    counts = torch.bincount(batch.task, minlength=len(DECODER_TASKS)).tolist()
    table.add_row("task texts", ", ".join(f"{task} {count}" for task, count in zip(DECODER_TASKS, counts)))
    if batch.counts:
        table.add_row("left out or cut", ", ".join(f"{name} {count}" for name, count in batch.counts.items()))
    return table


def _terms(config: Config, steps: list[dict[str, float]], is_new: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("term", "expected", *(f"step {number + 1}" for number in range(len(steps))), ""):
        table.add_column(column, justify="left" if column in ("term", "") else "right")
    expected = expected_start(config)
    for term in config.terms:
        values = [f"{step[term]:.3f}" if term in step else "–" for step in steps]
        start = f"{expected[term]:.3f}" if term in expected else ""
        table.add_row(term, start, *values, _verdict(steps[0].get(term), expected.get(term), is_new))
    return table


def _verdict(value: float | None, expected: float | None, is_new: bool) -> str:
    if value is None:
        return "[yellow]no data for it in this batch[/]"
    if not is_new or expected is None:
        return ""
    return "" if LOW * expected <= value <= HIGH * expected else "[yellow]not where it should begin[/]"


def warnings_of(config: Config, steps: list[dict[str, float]], total: int) -> list[str]:
    """What a person should know before starting."""
    said = []
    inactive = [term for term in TERMS if term not in config.terms]
    if inactive:
        said.append(f"inactive, by objective.weights: {', '.join(inactive)}")
    absent = [term for term in config.terms if not any(term in step for step in steps)]
    if absent:
        said.append(
            f"active but without data in these batches: {', '.join(absent)}; `goldiclip shards stats` counts them"
        )
    steps_in_all, warmup = total // config.run.batch, config.optim.warmup_steps
    if warmup >= steps_in_all:
        said.append(f"optim.warmup_steps is {warmup} and the run has {steps_in_all} steps: all of it warms up")
    far = travel(config, total)
    if config.objective.balance == "learned" and far < 5:
        wanted = 5 / far * config.optim.scalar_lr
        said.append(f"the σ can travel {far:.2g} in this run, 5 is wanted: raise optim.scalar_lr to {wanted:.2g}")
    if not config.data.held_out:
        said.append("data.held_out is empty: nothing will measure retrieval during the run, and no alarm can sound")
    return said
