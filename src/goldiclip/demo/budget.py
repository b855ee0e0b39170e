"""How much of everything fits into the minutes there are, on this machine. Decided once, so that a demo can go on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from goldiclip.config import Config, ConfigError, resolve
from goldiclip.data.loader import Loader
from goldiclip.data.scenes import Settings, scene, to_sample
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.data.vocabulary import with_vocabulary
from goldiclip.learner import Learner
from goldiclip.recipes import recipe
from goldiclip.train.checkpoint import write_durably
from goldiclip.train.optim import build_optimizer, set_learning_rate
from goldiclip.types import Batch

# Shares of the time: drawing, and what comes after training. Run and baseline divide what is left between them, or
# both take all of it, side by side.
CORPUS, AFTER = 0.06, 0.06
LEAST_AFTER_SECONDS = 45.0
SLACK = 0.88  # of a speed measured alone: runs also start, save, log and look at held-out scenes
SLACK_BESIDE = 0.76  # and share memory and caches
FEWEST_SCENES, MOST_SCENES = 256, 60_000
FEWEST_STEPS = 4
CONTRASTIVE = "ca"  # the baseline: L_ret alone


@dataclass(frozen=True)
class Budget:
    """What a demo has decided. Before the machine has been measured there are no samples yet."""

    minutes: float
    seed: int
    recipe: str
    device: str
    scenes: int
    gallery: int
    side_by_side: bool = False  # run and baseline train at once, each on half of the cores
    samples: int = 0
    baseline_samples: int = 0
    images_per_second: float = 0.0
    baseline_images_per_second: float = 0.0
    tokens: tuple[int, ...] = ()  # that the corpus needs: found once for every model of it

    @property
    def is_measured(self) -> bool:
        return self.samples > 0

    @property
    def threads(self) -> int:
        """Of each training process."""
        return num_cores() // 2 if self.side_by_side else num_cores()

    @property
    def settings(self) -> Settings:
        """Scenes of the size that the model sees; of few large things, so that minutes suffice to learn them."""
        size = recipe(self.recipe).model.vision.image_size
        return Settings(
            count=self.scenes,
            held_out=self.gallery,
            size=size,
            seed=self.seed,
            max_objects=2,
            kinds=12,
            repeats=0.2,
            zoom=1.4,
            occlusion=0.15,
            per_shard=250,
        )


def settle(out: Path, minutes: float, seed: int) -> Budget:
    """The budget of the demo in this folder; in a new folder a new one, as far as it can be known before drawing."""
    path = out / "demo.json"
    if path.is_file():
        found = read_budget(path)
        if (found.minutes, found.seed) != (minutes, seed):
            raise ConfigError(
                f"{out} holds a demo of {found.minutes:g} minutes with seed {found.seed}; "
                f"go on with --minutes {found.minutes:g} --seed {found.seed}, or choose another --out"
            )
        return found
    is_gpu = torch.cuda.is_available()
    budget = Budget(
        minutes=minutes,
        seed=seed,
        recipe="demo_gpu" if is_gpu else "demo",
        device=torch.cuda.get_device_name() if is_gpu else f"{num_cores()} CPU cores",
        scenes=FEWEST_SCENES,
        gallery=500 if minutes >= 1 else 64,
        side_by_side=not is_gpu and num_cores() > 1,
    )
    drawn = int(CORPUS * minutes * 60 * scenes_per_second(budget.settings) * num_cores()) - 2 * budget.gallery
    budget = replace(budget, scenes=max(FEWEST_SCENES, min(MOST_SCENES, round(drawn, -2))))
    keep(out, budget)
    return budget


def read_budget(path: Path) -> Budget:
    found = json.loads(path.read_text())
    return Budget(**{**found, "tokens": tuple(found.get("tokens", ()))})


def keep(out: Path, budget: Budget) -> None:
    write_durably(out / "demo.json", json.dumps(asdict(budget), indent=1))


def num_cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Compute with so many."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def scenes_per_second(settings: Settings, count: int = 24) -> float:
    """Drawn and written by one core, after one that is not counted."""
    started = 0.0
    for index in range(count + 1):
        if index == 1:
            started = time.perf_counter()
        to_sample(scene(index, settings.seed, settings, "train"))
    return count / (time.perf_counter() - started)


def measured(budget: Budget, corpus: Path, spent_seconds: Callable[[], float]) -> Budget:
    """The budget with what this machine's speed allows in the time that is left."""
    budget = replace(budget, tokens=with_vocabulary(demo_config(budget, corpus)).model.text.tokens)
    configs = [demo_config(budget, corpus, variant) for variant in ("", CONTRASTIVE)]
    with threads(budget.threads):
        speeds = [images_per_second(config) for config in configs]
    total = 60 * budget.minutes
    after = max(AFTER * total, min(LEAST_AFTER_SECONDS, 0.3 * total))
    left = max(0.2 * total, total - spent_seconds() - after)
    each = SLACK_BESIDE * left if budget.side_by_side else SLACK * left / 2
    fewest = FEWEST_STEPS * configs[0].run.batch
    return replace(
        budget,
        samples=max(fewest, int(speeds[0] * each)),
        baseline_samples=max(fewest, int(speeds[1] * each)),
        images_per_second=speeds[0],
        baseline_images_per_second=speeds[1],
    )


# --- the runs -------------------------------------------------------------------------------------------------------


def demo_config(budget: Budget, corpus: Path, variant: str = "") -> Config:
    """The demo's recipe, or a variant of it, on this corpus."""
    config = recipe(f"{budget.recipe}/{variant}" if variant else budget.recipe)
    data = replace(
        config.data,
        train=(str(corpus / "train" / "*.tar"),),
        held_out=(str(corpus / "held_out" / "*.tar"),),
        workers=num_workers(config),
    )
    model = replace(config.model, text=replace(config.model.text, tokens=budget.tokens))
    run = replace(config.run, seed=budget.seed, batch=min(config.run.batch, budget.scenes))
    return resolve(replace(config, model=model, data=data, run=run))


def num_workers(config: Config) -> int:
    """As many as the recipe asks for beside a GPU; on a CPU few, since reading is a tenth of the work."""
    is_gpu = torch.cuda.is_available()
    return max(1, min(config.data.workers, num_cores() - 1) if is_gpu else num_cores() // 4)


def with_length(config: Config, samples: int) -> Config:
    """A run of so many samples, its warm-up a tenth of it and its scalars free to travel."""
    steps = max(1, samples // config.run.batch)
    warmup = max(1, min(config.optim.warmup_steps, steps // 10))
    scalar_lr = min(0.05, max(config.optim.scalar_lr, 10 / steps))  # a mean over the cosine of half: a sum of 5
    return replace(
        config,
        run=replace(config.run, samples=steps * config.run.batch, evaluate_every_steps=max(1, -(-steps // 5))),
        optim=replace(config.optim, warmup_steps=warmup, scalar_lr=scalar_lr),
    )


def images_per_second(config: Config) -> float:
    """What a run will reach. Steps and reading are timed apart: a GPU's workers read meanwhile, a CPU's share cores."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    workers = config.data.workers
    batches, reading = _read(replace(config, data=replace(config.data, workers=0)))
    stepping = _step(config, [batch.to(device) for batch in batches], device)
    if device.type == "cuda":
        return config.run.batch / max(stepping, reading / workers)
    return config.run.batch / max(stepping + reading / torch.get_num_threads(), reading / workers)


def _read(config: Config, count: int = 2) -> tuple[list[Batch], float]:
    """A few batches, and the seconds that one core takes for one."""
    batches = iter(Loader(config, Tokenizer.of(config.model.text)))
    read = [next(batches)]
    started = time.perf_counter()
    read += [next(batches) for _ in range(count)]
    return read, (time.perf_counter() - started) / count


def _step(config: Config, batches: list[Batch], device: torch.device, seconds: float = 2.0) -> float:
    """Seconds of one step: forward, backward and update, after a few that are not counted."""
    learner = Learner(config).to(device)
    optimizer = build_optimizer(learner, config)
    set_learning_rate(optimizer, 0.0)
    started, number, warmup = time.perf_counter(), 0, len(batches)
    while number < warmup + 2 or time.perf_counter() - started < seconds:
        if number == warmup:
            _wait(device)
            started = time.perf_counter()
        learner(batches[number % len(batches)]).total.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        learner.update_teacher()
        number += 1
        if number > warmup:
            _wait(device)
    return (time.perf_counter() - started) / (number - warmup)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
