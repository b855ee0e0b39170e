"""Softmax over rows of many logits, in place: one pass for each row's normaliser, one that leaves the gradient there.

Between two matrix products, logits in half precision are read twice and written once; nothing else of their size is
made. Triton; `token_cross_entropy` and `soft_cross_entropy` use these on CUDA and say the same in plain torch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4_096


def normalisers(logits: Tensor, scale: float = 1.0, centre: Tensor | None = None) -> Tensor:
    """(n,) float32: log Σ_p exp((logits_np − centre_p)·scale) of rows (n, P)."""
    rows, width = logits.shape
    found = torch.empty(rows, dtype=torch.float32, device=logits.device)
    _normalisers[(rows,)](
        logits, logits if centre is None else centre, found, scale, width, centre is not None, BLOCK, num_warps=8
    )
    return found


def token_errors_(logits: Tensor, normaliser: Tensor, targets: Tensor, upstream: Tensor) -> Tensor:
    """upstream_n·(softmax(logits_n) − onehot(target_n)), in the place of the logits (n, P)."""
    rows, width = logits.shape
    _token_errors[(rows, triton.cdiv(width, BLOCK))](
        logits, normaliser, targets, upstream.float().contiguous(), width, BLOCK, num_warps=8
    )
    return logits


def soft_errors_(
    student: Tensor, teacher: Tensor, centre: Tensor, scales: tuple[float, float], normaliser: tuple[Tensor, Tensor]
) -> Tensor:
    """Cross-entropies of images' student rows (b, C, P) with their teacher rows (b, V, P); d/d logits in their place.

    `scales` and `normaliser` are student's and teacher's. Returns (b, 2, blocks): sums of cross-entropy and of the
    teacher's entropy over the pairs of views.
    """
    images, num_student, width = student.shape
    blocks = triton.cdiv(width, BLOCK // 4)
    sums = torch.empty(images, 2, blocks, dtype=torch.float32, device=student.device)
    _soft_errors[(images, blocks)](
        student, teacher, centre, *normaliser, sums, *scales, width, blocks, num_student, teacher.shape[1], BLOCK // 4,
        num_warps=4,
    )  # fmt: skip
    return sums


@triton.jit
def _normalisers(logits, centre, found, scale, width, HAS_CENTRE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    most = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, width, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        x = tl.load(logits + row * width + columns, mask=columns < width, other=-float("inf")).to(tl.float32)
        if HAS_CENTRE:
            x = x - tl.load(centre + columns, mask=columns < width, other=0.0)
        x = x * scale
        higher = tl.maximum(tl.maximum(most, x), -1e30)
        total = total * tl.exp(most - higher) + tl.exp(x - higher)
        most = higher
    peak = tl.max(most, 0)
    tl.store(found + row, peak + tl.log(tl.sum(total * tl.exp(most - peak), 0)))


@triton.jit
def _token_errors(logits, normaliser, targets, upstream, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = columns < width
    x = tl.load(logits + row * width + columns, mask=there, other=0.0).to(tl.float32)
    error = tl.exp(x - tl.load(normaliser + row)) - tl.where(columns == tl.load(targets + row), 1.0, 0.0)
    error = error * tl.load(upstream + row)
    tl.store(logits + row * width + columns, error.to(logits.dtype.element_ty), mask=there)


@triton.jit
def _soft_errors(
    student, teacher, centre, student_normaliser, teacher_normaliser, sums, student_scale, teacher_scale,
    width, blocks, NUM_STUDENT: tl.constexpr, NUM_TEACHER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    image = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = columns < width
    middle = tl.load(centre + columns, mask=there, other=0.0)
    target = tl.zeros([BLOCK], tl.float32)
    entropy = tl.zeros([BLOCK], tl.float32)
    for view in tl.static_range(NUM_TEACHER):
        row = image * NUM_TEACHER + view
        y = tl.load(teacher + row * width + columns, mask=there, other=0.0).to(tl.float32)
        log_q = (y - middle) * teacher_scale - tl.load(teacher_normaliser + row)
        q = tl.where(there, tl.exp(log_q), 0.0)
        target += q
        entropy -= q * log_q
    agreement = tl.zeros([BLOCK], tl.float32)
    for view in tl.static_range(NUM_STUDENT):
        row = image * NUM_STUDENT + view
        y = tl.load(student + row * width + columns, mask=there, other=0.0).to(tl.float32)
        log_p = y * student_scale - tl.load(student_normaliser + row)
        agreement -= target * log_p
        error = (NUM_TEACHER * tl.exp(log_p) - target) * student_scale
        tl.store(student + row * width + columns, error.to(student.dtype.element_ty), mask=there)
    place = image * 2 * blocks + tl.program_id(1)
    tl.store(sums + place, tl.sum(agreement, 0))
    tl.store(sums + place + blocks, tl.sum(entropy, 0) * NUM_STUDENT)
