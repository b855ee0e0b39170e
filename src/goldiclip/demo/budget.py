"""How much of everything fits into the minutes there are, on this machine."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from goldiclip.config import Config, ConfigError, resolve
from goldiclip.data.loader import Loader
from goldiclip.data.scenes import Settings
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.learner import Learner
from goldiclip.recipes import recipe

# Shares of the time; what is left goes to evaluation, index and page.
CORPUS, TRAIN, BASELINE = 0.14, 0.34, 0.34
# Scenes drawn per second and core: a cautious reading, since drawing too few costs less than drawing too many.
SCENES_PER_SECOND = 40


@dataclass(frozen=True)
class Budget:
    """What a demo has decided once, so that an interrupted one goes on with the same numbers."""

    minutes: float
    seed: int
    scenes: int
    gallery: int
    samples: int
    baseline_samples: int
    images_per_second: float
    baseline_images_per_second: float
    device: str


def settle(out: Path, minutes: float, seed: int) -> Budget | None:
    """The budget of the demo in this folder, if it was settled for as many minutes."""
    path = out / "demo.json"
    if not path.is_file():
        return None
    found = Budget(**json.loads(path.read_text()))
    if (found.minutes, found.seed) != (minutes, seed):
        raise ConfigError(
            f"{out} holds a demo of {found.minutes:g} minutes with seed {found.seed}; "
            f"go on with --minutes {found.minutes:g} --seed {found.seed}, or choose another --out"
        )
    return found


def keep(out: Path, budget: Budget) -> None:
    (out / "demo.json").write_text(json.dumps(asdict(budget), indent=1))


def corpus_settings(minutes: float, seed: int, cores: int) -> Settings:
    """Scenes of the size the model sees, as many as the corpus's share of the time allows."""
    count = int(CORPUS * minutes * 60 * SCENES_PER_SECOND * cores)
    count = max(512, min(200_000, round(count, -2)))
    gallery = 500 if minutes >= 4 else 100
    size = recipe("demo").model.vision.image_size
    return Settings(count=count, held_out=gallery, size=size, seed=seed, max_objects=3, per_shard=500)


def demo_config(corpus: Path, variant: str, seed: int) -> Config:
    """The demo's recipe, or a variant of it, on this corpus."""
    config = recipe(f"demo/{variant}" if variant else "demo")
    data = replace(
        config.data, train=(str(corpus / "train" / "*.tar"),), held_out=(str(corpus / "held_out" / "*.tar"),)
    )
    return resolve(replace(config, data=data, run=replace(config.run, seed=seed)))


def with_length(config: Config, samples: int) -> Config:
    """A run of so many samples, its warm-up a tenth of it and its scalars free to travel."""
    steps = max(1, samples // config.run.batch)
    warmup = max(1, min(config.optim.warmup_steps, steps // 10))
    scalar_lr = min(0.05, max(config.optim.scalar_lr, 10 / steps))  # a mean over the cosine of half: a sum of 5
    return replace(
        config,
        run=replace(config.run, samples=steps * config.run.batch, evaluate_every_steps=max(1, steps // 8)),
        optim=replace(config.optim, warmup_steps=warmup, scalar_lr=scalar_lr),
    )


def images_per_second(config: Config, steps: int = 2) -> float:
    """Measured: forward, backward and update of real batches, after one that is not counted."""
    learner = Learner(config)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    learner.to(device)
    optimizer = torch.optim.AdamW(learner.parameters(), lr=0.0, fused=True)
    small = replace(config, run=replace(config.run, batch=min(64, config.run.batch)))
    small = replace(small, data=replace(small.data, workers=0))
    started = 0.0
    for number, batch in enumerate(Loader(small, Tokenizer(config.model.text.context))):
        if number == 1:
            _wait(device)
            started = time.perf_counter()
        learner(batch.to(device)).total.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        learner.update_teacher()
        if number == steps:
            break
    _wait(device)
    return steps * small.run.batch / (time.perf_counter() - started)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
