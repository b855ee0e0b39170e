"""Memory, time, network and money of a run.

Calibrated on one H200 with ViT-B/16, K = 8, B = 512, mean caption 28 tokens: the towers forward and backward in 140 ms
(224 px), 160 ms (six 96 px views), 45 ms (teacher), 108 ms (captions); scoring in 6 ms; text activations of 25 GiB.
A part's time is its arithmetic at the rate its width reaches, plus the traffic of what lies between the products.
Elsewhere the same constants are scaled by a device's peak and memory speed: predictions, and labelled so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from goldiclip.config import Config
from goldiclip.plan.arithmetic import Lengths, Part, parts_of
from goldiclip.plan.devices import GPUS_PER_NODE, NODE_GIGABYTES_PER_SECOND, Device

MATRIX_SHARE = 0.65  # of the maker's peak, for products as wide as a ViT-B's
FULL_WIDTH = 768
NARROW_POWER = 1.2  # rate falls with (width / 768) to this power
FULL_PRECISION = 0.12  # float32's share of the bf16 rate
TRAFFIC_WIDTHS = 140.0  # bf16 numbers moved per token, layer and unit of width in a training pass, compiled
KEPT_WIDTHS = 19.0  # of them kept for the backward pass
HEAD_SHARE = 0.18  # of the peak, for scoring, prototypes and the vocabulary: small products, softmaxes between
UPDATE_BYTES = 45.0  # moved per parameter by AdamW, EMA and gradients
FIXED_GIGABYTES = 3.0  # CUDA context, libraries, allocator slack
USABLE = 0.94
IMAGES_PER_CORE = 250.0  # full path, photometrics on the device
HEADS = ("scoring", "prototypes", "vocabulary head")
SAMPLES_PER_SHARD = 10_000


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
        seconds=step_seconds(config, parts, device, gpus, network),
        gigabytes=memory(config, parts, gpus, micro),
        network_gigabytes=network,
        largest_micro_batch=largest_micro_batch(config, parts, device, gpus, share),
        dollars_per_hour=device.dollars_per_hour if dollars_per_hour is None else dollars_per_hour,
    )


def step_seconds(config: Config, parts: list[Part], device: Device, gpus: int, network: float) -> dict[str, float]:
    """By part; `network` gigabytes are counted where they cannot hide behind the backward pass."""
    share = config.run.batch / gpus
    replayed = 0 < config.run.micro_batch < share
    found = {}
    for part in parts:
        again = 4 / 3 if replayed and part.name == "captions" else 1.0
        again *= 4 / 3 if config.run.checkpoint_activations and part.passes == 3 and part.token_layers else 1.0
        found[part.name] = share * again * part_seconds(config, part, device)
    parameters = sum(part.parameters for part in parts)
    sharded = gpus if config.run.layout == "fsdp" else 1
    found["update"] = parameters * UPDATE_BYTES / sharded / (device.terabytes_per_second * 1e12)
    if gpus > 1:
        speed = device.link_gigabytes_per_second if gpus <= GPUS_PER_NODE else NODE_GIGABYTES_PER_SECOND
        backward = 0.6 * sum(found.values())
        found["network"] = max(0.0, network / speed - backward) + 0.02 * backward
    return found


def part_seconds(config: Config, part: Part, device: Device) -> float:
    """Of one image."""
    is_bf16 = config.run.precision == "bf16"
    peak = device.teraflops * 1e12 * (1.0 if is_bf16 or device.is_cpu else FULL_PRECISION)
    if part.name in HEADS:
        return part.step_flops / (peak * (MATRIX_SHARE if device.is_cpu else HEAD_SHARE))
    narrow = 0.0 if device.is_cpu else NARROW_POWER
    rate = peak * MATRIX_SHARE * min(1.0, (part.width / FULL_WIDTH) ** narrow)
    traffic = part.token_layers * part.width * TRAFFIC_WIDTHS * part.passes / 3 * (2 if is_bf16 else 4)
    eager = 1.0 if config.run.compile else 1.6  # traffic is what compilation saves
    return part.step_flops / rate + eager * traffic / (device.terabytes_per_second * 1e12)


def memory(config: Config, parts: list[Part], gpus: int, micro_batch: int) -> dict[str, float]:
    """Gigabytes of one GPU by part."""
    sharded = gpus if config.run.layout == "fsdp" else 1
    trained = sum(part.parameters for part in parts if part.name not in ("teacher", "prototypes"))
    prototypes = sum(part.parameters for part in parts if part.name == "prototypes") / 2
    teacher = sum(part.parameters for part in parts if part.name == "teacher") + prototypes
    trained += int(prototypes)
    number = 2 if config.run.precision == "bf16" else 4
    found = {
        "weights, gradients, AdamW": trained * 16 / sharded / 1e9,
        "teacher": teacher * 4 / sharded / 1e9,
        "half-precision copies": (trained + teacher) * 2 / sharded / 1e9 if number == 2 else 0.0,
        "captions of the step": config.run.batch * config.data.captions * config.model.embedding * 4 * 3 / 1e9,
        "fixed": FIXED_GIGABYTES,
    }
    kept = 1.0 + 1.0 if config.run.checkpoint_activations else KEPT_WIDTHS
    for part in parts:
        if part.passes == 3 and part.token_layers:
            found[f"activations: {part.name}"] = micro_batch * part.token_layers * part.width * kept * number / 1e9
    found["pixels"] = micro_batch * _pixels(config) * (1 + number) / 1e9
    found["scores and logits"] = micro_batch * _scores(config) / 1e9
    return {name: size for name, size in found.items() if size}


def _pixels(config: Config) -> float:
    views, size = config.data.views, config.model.vision.image_size
    return 3.0 * (views.num_global * size**2 + views.num_local * views.local_size**2)


def _scores(config: Config) -> float:
    """Bytes per image of score rows and conditioned embeddings; logits over prototypes and words are never whole."""
    retrieval, found = config.objective.retrieval, 0.0
    if "ret" in config.terms:
        found += 12.0 * config.run.batch * config.data.captions
        if retrieval.text_conditioned:
            texts = config.run.batch * (config.data.captions if retrieval.negatives == "all" else 1)
            found += 6.0 * texts * config.model.embedding
    return found


def largest_micro_batch(config: Config, parts: list[Part], device: Device, gpus: int, share: int) -> int:
    """The most images a GPU holds at once, up to its whole share; 0 when not even one fits."""
    low, high = 0, share
    while low < high:
        middle = (low + high + 1) // 2
        if sum(memory(config, parts, gpus, middle).values()) <= USABLE * device.gigabytes:
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


def with_fitting_micro_batch(config: Config, found: Estimate) -> Config:
    """The configuration with the micro-batch that fits, where its own does not."""
    return replace(config, run=replace(config.run, micro_batch=found.largest_micro_batch))
