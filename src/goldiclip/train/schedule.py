"""When things happen: the learning rate, the length of the run, what is due. Counted in samples: ranks may change."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from goldiclip.config import Config, ConfigError, Run


def total_samples(config: Config, num_samples: int) -> int:
    """Samples the whole run sees, in whole batches; `num_samples` is the length of one epoch."""
    batch = config.run.batch
    if num_samples < batch:
        raise ConfigError(
            f"data.train holds {num_samples} samples and run.batch is {batch}, so there is not one whole batch; "
            f"add shards or use run.batch={max(1, num_samples)} or less"
        )
    wanted = config.run.samples or round(config.run.epochs * num_samples)
    if wanted < batch:
        raise ConfigError(
            f"the run would see {wanted} samples, less than one batch of {batch}; "
            "raise run.epochs or run.samples, or lower run.batch"
        )
    return wanted // batch * batch


def learning_rate(config: Config, samples: int, total: int) -> float:
    """Share of the peak rate for the step that ends at `samples`: linear warm-up, then a cosine down to `final_lr`."""
    warmup = config.optim.warmup_steps * config.run.batch
    if samples <= warmup:
        return samples / warmup
    through = (samples - config.run.batch - warmup) / max(1, total - warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, through)))
    return config.optim.final_lr + (1 - config.optim.final_lr) * cosine


def travel(config: Config, total: int) -> float:
    """Σ lr of the scalars over the run: how far an Adam-driven σ can move. Below 5 it hardly leaves its start."""
    batch = config.run.batch
    stride = max(1, total // batch // 1_000)
    points = range(batch, total + 1, batch * stride)
    return config.optim.scalar_lr * stride * sum(learning_rate(config, samples, total) for samples in points)


@dataclass(slots=True)
class SaveClock:
    """Remembers the last checkpoint; a save is due by steps, samples or minutes, whichever asks first."""

    run: Run
    step: int
    samples: int
    seconds: float = field(default_factory=time.monotonic)

    def due(self, step: int, samples: int) -> bool:
        """Due by count. The same on every rank without asking the others."""
        steps, every = self.run.save_every_steps, self.run.save_every_samples
        by_steps = steps > 0 and step // steps > self.step // steps
        return by_steps or (every > 0 and samples // every > self.samples // every)

    def due_by_time(self) -> bool:
        """Due by the clock of this rank; ranks must agree before they act on it."""
        minutes = self.run.save_every_minutes
        return minutes > 0 and time.monotonic() - self.seconds >= 60 * minutes

    def saved(self, step: int, samples: int) -> None:
        self.step, self.samples, self.seconds = step, samples, time.monotonic()
