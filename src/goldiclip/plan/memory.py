"""The memory of one GPU at the worst moment of a step, part by part.

In micro-batches the captions' activations are never held together with the images': the text tower is replayed after
the last image (`train.accumulate`).
"""

from __future__ import annotations

from goldiclip.config import Config
from goldiclip.plan.arithmetic import Part
from goldiclip.plan.calibration import Calibration
from goldiclip.plan.losses import loss_costs

BATCHES_AHEAD = 3  # on the device: the one at work, the one that is ready and the one on its way
IMAGE_PARTS = ("vision", "local views")


def memory(
    config: Config, parts: list[Part], gpus: int, micro_batch: int, calibration: Calibration
) -> dict[str, float]:
    """Gigabytes by part."""
    share = config.run.batch / gpus
    found = weights(config, parts, gpus)
    found["captions of the step"] = config.run.batch * config.data.captions * config.model.embedding * 4 * 3 / 1e9
    found["pixels"] = (share * BATCHES_AHEAD * _pixels(config) + micro_batch * 4 * _pixels(config)) / 1e9
    found["fixed"] = calibration.fixed_gigabytes
    activations = {
        part.name: micro_batch * kept_bytes(config, part, calibration) / 1e9
        for part in parts
        if part.passes == 3 and part.token_layers
    }
    captions = activations["captions"]
    if micro_batch < share and 2 * captions < sum(activations.values()):
        del activations["captions"]
    found |= {f"activations: {name}": size for name, size in activations.items()}
    found["scores and logits"] = _scores(config, micro_batch, calibration)
    return {name: size for name, size in found.items() if size}


def weights(config: Config, parts: list[Part], gpus: int) -> dict[str, float]:
    """What does not depend on how many images are held."""
    sharded = gpus if config.run.layout == "fsdp" else 1
    prototypes = sum(part.parameters for part in parts if part.name == "prototypes") / 2
    teacher = sum(part.parameters for part in parts if part.name == "teacher") + prototypes
    trained = sum(part.parameters for part in parts if part.name not in ("teacher", "prototypes")) + prototypes
    is_bf16 = config.run.precision == "bf16"
    return {
        "weights, gradients, AdamW": trained * 16 / sharded / 1e9,
        "teacher": teacher * 4 / sharded / 1e9,
        "half-precision copies": (trained + teacher) * 2 / sharded / 1e9 if is_bf16 else 0.0,
    }


def kept_bytes(config: Config, part: Part, calibration: Calibration) -> float:
    """Of one image, for the backward pass: every layer's numbers, or each layer's input and one layer's numbers."""
    widths = calibration.kept_image_widths if part.name in IMAGE_PARTS else calibration.kept_text_widths
    widths *= 1.0 if config.run.compile else calibration.eager_kept
    if config.run.checkpoint_activations:
        widths = 2.0 + widths / part.layers
    return part.token_layers * part.width * widths * (2 if config.run.precision == "bf16" else 4)


def _pixels(config: Config) -> float:
    views, size = config.data.views, config.model.vision.image_size
    return 3.0 * (views.num_global * size**2 + views.num_local * views.local_size**2)


def _scores(config: Config, micro_batch: int, calibration: Calibration) -> float:
    """What the equations hold, and the largest block at work; logits over prototypes and words are never whole."""
    costs = loss_costs(config)
    held = micro_batch * sum(cost.kept_bytes for cost in costs) / 1e9
    largest = micro_batch * max(cost.whole_bytes for cost in costs) / 1e9
    return held + min(largest, calibration.block_gigabytes)
