"""What the arithmetic and the bytes of a step cost in practice: the one place for numbers that were measured.

    python benchmarks/plan.py --out measured.json    on the GPU: seconds and gigabytes of real steps beside the plan's
    python benchmarks/plan.py --fit measured.json    anywhere: the constants below that fit them best

Elsewhere the same constants are scaled by a device's peak and memory speed: predictions, and labelled so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Calibration:
    """Shares of a device's peak, multiples of what has to be moved or kept, and what the host needs."""

    # seconds
    matrix_share: float  # of the maker's peak, for products as wide as a ViT-B's
    narrow_power: float  # the rate falls with (width / 768) to this power
    head_share: float  # of the peak, for scoring, prototypes and the vocabulary: small products, softmaxes between
    traffic_widths: float  # bf16 numbers moved per token, layer and unit of width in a training pass, compiled
    eager_traffic: float  # how much more is moved without compilation
    update_bytes: float  # moved per parameter by AdamW, EMA and gradients
    layer_seconds: float  # of the host, to launch one layer once; it runs beside the device
    batch_seconds: float  # of the host, for everything else of a micro-batch
    # gigabytes
    kept_image_widths: float  # bf16 numbers kept for the backward pass per patch, layer and unit of width, compiled
    kept_text_widths: float  # the same per token of captions, task texts and the decoder
    eager_kept: float  # how much more is kept without compilation
    block_gigabytes: float  # the largest block of scores or logits at work
    fixed_gigabytes: float  # CUDA context and libraries


# One H200, ViT-B/16, K = 8, B = 512, mean caption 28 tokens: the towers forward and backward in 140 ms (224 px), 160 ms
# (six 96 px views), 45 ms (teacher), 108 ms (captions); scoring in 6 ms; text activations of 25 GiB.
H200 = Calibration(
    matrix_share=0.65,
    narrow_power=1.2,
    head_share=0.18,
    traffic_widths=140.0,
    eager_traffic=1.6,
    update_bytes=45.0,
    layer_seconds=30e-6,
    batch_seconds=4e-3,
    kept_image_widths=19.0,
    kept_text_widths=19.0,
    eager_kept=1.0,
    block_gigabytes=1.0,
    fixed_gigabytes=1.5,
)
