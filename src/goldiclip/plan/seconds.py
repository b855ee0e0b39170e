"""The time of a step, part by part.

A part's time is its arithmetic at the rate its width reaches, plus the traffic of what lies between the products.
The host launches all of it meanwhile; where that takes longer, as with small models, the device waits.
"""

from __future__ import annotations

import math

from goldiclip.config import Config
from goldiclip.plan.arithmetic import Part
from goldiclip.plan.calibration import Calibration
from goldiclip.plan.devices import GPUS_PER_NODE, NODE_GIGABYTES_PER_SECOND, Device

FULL_WIDTH = 768
FULL_PRECISION = 0.12  # float32's share of the bf16 rate
HEADS = ("scoring", "prototypes", "vocabulary head")


def step_seconds(
    config: Config, parts: list[Part], device: Device, gpus: int, network: float, calibration: Calibration
) -> dict[str, float]:
    """By part; `network` gigabytes are counted where they cannot hide behind the backward pass."""
    share = config.run.batch / gpus
    found = {
        part.name: share * passes(config, part, share) / part.passes * part_seconds(config, part, device, calibration)
        for part in parts
    }
    parameters = sum(part.parameters for part in parts)
    sharded = gpus if config.run.layout == "fsdp" else 1
    found["update"] = parameters * calibration.update_bytes / sharded / (device.terabytes_per_second * 1e12)
    if not device.is_cpu:
        found["waiting for the host"] = max(0.0, host_seconds(config, parts, share, calibration) - sum(found.values()))
    if gpus > 1:
        speed = device.link_gigabytes_per_second if gpus <= GPUS_PER_NODE else NODE_GIGABYTES_PER_SECOND
        backward = 0.6 * sum(found.values())
        found["network"] = max(0.0, network / speed - backward) + 0.02 * backward
    return found


def passes(config: Config, part: Part, share: float) -> float:
    """How often a part is run, a backward pass counting twice; accumulation and checkpointing repeat some."""
    is_again = part.passes == 3 and part.token_layers and config.run.checkpoint_activations
    is_replayed = part.name == "captions" and 0 < config.run.micro_batch < share
    return part.passes + bool(is_again) + is_replayed


def part_seconds(config: Config, part: Part, device: Device, calibration: Calibration) -> float:
    """Of one image."""
    is_bf16 = config.run.precision == "bf16"
    peak = device.teraflops * 1e12 * (1.0 if is_bf16 or device.is_cpu else FULL_PRECISION)
    if part.name in HEADS:
        return part.step_flops / (peak * (calibration.matrix_share if device.is_cpu else calibration.head_share))
    narrow = 0.0 if device.is_cpu else calibration.narrow_power
    rate = peak * calibration.matrix_share * min(1.0, (part.width / FULL_WIDTH) ** narrow)
    moved = part.token_layers * part.width * calibration.traffic_widths * part.passes / 3 * (2 if is_bf16 else 4)
    moved *= 1.0 if config.run.compile else calibration.eager_traffic
    return part.step_flops / rate + moved / (device.terabytes_per_second * 1e12)


def host_seconds(config: Config, parts: list[Part], share: float, calibration: Calibration) -> float:
    """What the host needs to launch a step."""
    micro_batches = math.ceil(share / (config.run.micro_batch or share))
    layers = sum(part.layers * passes(config, part, share) for part in parts)
    slower = 1.0 if config.run.compile else calibration.eager_traffic
    return micro_batches * (layers * calibration.layer_seconds * slower + calibration.batch_seconds)
