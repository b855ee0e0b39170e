"""Memory, time, network and money of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from goldiclip.config import Config
from goldiclip.plan.arithmetic import Lengths, Part, parts_of
from goldiclip.plan.calibration import H200, Calibration
from goldiclip.plan.devices import Device
from goldiclip.plan.memory import memory
from goldiclip.plan.seconds import step_seconds

USABLE = 0.94
IMAGES_PER_CORE = 250.0  # full path, photometrics on the device


@dataclass(frozen=True, slots=True)
class Estimate:
    config: Config
    device: Device
    gpus: int
    samples: int
    parts: tuple[Part, ...]
    seconds: dict[str, float]  # of a step, by part
    gigabytes: dict[str, float]  # of one GPU, by part
    network_gigabytes: float  # per step and GPU
    largest_micro_batch: int
    dollars_per_hour: float

    @property
    def share(self) -> int:
        """Images per step and GPU."""
        return math.ceil(self.config.run.batch / self.gpus)

    @property
    def micro_batch(self) -> int:
        return min(self.config.run.micro_batch or self.share, self.share)

    @property
    def step_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def images_per_second(self) -> float:
        return self.config.run.batch / self.step_seconds

    @property
    def gflops_per_image(self) -> float:
        return sum(part.step_flops for part in self.parts) / 1e9

    @property
    def mfu(self) -> float:
        return self.gflops_per_image * self.images_per_second / (1e3 * self.device.teraflops * self.gpus)

    @property
    def hours(self) -> float:
        return self.samples / self.images_per_second / 3600

    @property
    def dollars(self) -> float:
        return self.hours * self.gpus * self.dollars_per_hour

    @property
    def fits(self) -> bool:
        return sum(self.gigabytes.values()) <= USABLE * self.device.gigabytes

    @property
    def even_micro_batch(self) -> int:
        """What to set when a step does not fit: as few micro-batches as fit, all of them alike; 0 if none does."""
        most = self.largest_micro_batch
        return math.ceil(self.share / math.ceil(self.share / most)) if most else 0

    @property
    def loader_cores(self) -> int:
        """Per GPU, at 250 images a second each, with a fifth to spare."""
        per_core = IMAGES_PER_CORE if self.config.data.photometrics == "device" else IMAGES_PER_CORE / 2
        return math.ceil(1.2 * self.images_per_second / self.gpus / per_core)

    @property
    def shards(self) -> int:
        """At least so many: every worker of every rank reads others than its neighbours."""
        return max(self.gpus * max(1, self.config.data.workers), self.config.data.window_shards)


def estimate(
    config: Config,
    device: Device,
    gpus: int = 1,
    samples: int = 0,
    lengths: Lengths | None = None,
    dollars_per_hour: float | None = None,
    calibration: Calibration = H200,
) -> Estimate:
    """What `config` will need on `gpus` of `device`; `samples` is the length of the run."""
    parts = parts_of(config, lengths)
    share = math.ceil(config.run.batch / gpus)
    micro = min(config.run.micro_batch or share, share)
    network = network_gigabytes(config, parts, gpus)
    return Estimate(
        config=config,
        device=device,
        gpus=gpus,
        samples=samples,
        parts=tuple(parts),
        seconds=step_seconds(config, parts, device, gpus, network, calibration),
        gigabytes=memory(config, parts, gpus, micro, calibration),
        network_gigabytes=network,
        largest_micro_batch=largest_micro_batch(config, parts, device, gpus, calibration),
        dollars_per_hour=device.dollars_per_hour if dollars_per_hour is None else dollars_per_hour,
    )


def largest_micro_batch(config: Config, parts: list[Part], device: Device, gpus: int, calibration: Calibration) -> int:
    """The most images a GPU holds at once, up to its whole share; 0 when not even one fits."""
    low, high = 0, math.ceil(config.run.batch / gpus)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(memory(config, parts, gpus, middle, calibration).values()) <= USABLE * device.gigabytes:
            low = middle
        else:
            high = middle - 1
    return low


def network_gigabytes(config: Config, parts: list[Part], gpus: int) -> float:
    """Sent by each GPU in a step: gradients once round the ring, and the captions' embeddings there and back."""
    if gpus == 1:
        return 0.0
    trained = sum(part.parameters for part in parts if part.name not in ("teacher",))
    gradients = trained * 4 * (3 if config.run.layout == "fsdp" else 2)
    captions = config.run.batch * config.data.captions * config.model.embedding * 4 * 2
    return (gradients + captions) * (gpus - 1) / gpus / 1e9
