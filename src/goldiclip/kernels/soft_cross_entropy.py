"""Cross-entropy between a teacher's and a student's distributions over many prototypes, without whole logits in memory.

65,536 prototypes for 6 local views of 512 images would be 0.8 GB of logits per pool, several times over. Here a block
of images is scored at a time. Nothing but the sum is differentiated, so the gradient is formed with the block still at
hand: each product is computed once, and what waits for the backward pass is as small as the inputs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from goldiclip.kernels.products import add_product, blocks, compute_dtype, wide
from goldiclip.kernels.switch import fuses


class SoftCrossEntropy(NamedTuple):
    total: Tensor  # () sum over pools, images, global and local views: the only part that carries gradient
    cross_entropy: Tensor  # (G,) the same per pool
    entropy: Tensor  # (G,) the teacher's own entropy, summed over the same pairs of views


class Temperatures(NamedTuple):
    student: float
    teacher: float


def soft_cross_entropy(
    student: Tensor,
    weight: Tensor,
    teacher: Tensor,
    teacher_weight: Tensor,
    centres: Tensor,
    temperatures: Temperatures,
) -> SoftCrossEntropy:
    """Σ_images Σ_i Σ_j H(softmax((W^T x^T_i − c)/τ_T), softmax(W^S x^S_j/τ_S)) over global views i and local views j.

    student (G, B, C, D) and teacher (G, B, V, D) hold G pools; weights (P, D); centres (G, P). The teacher's side gets
    no gradient.
    """
    dtype = compute_dtype(student)
    return SoftCrossEntropy(
        *_SoftCrossEntropy.apply(student, weight, teacher, teacher_weight, centres, temperatures, dtype)
    )


def soft_cross_entropy_plain(
    student: Tensor,
    weight: Tensor,
    teacher: Tensor,
    teacher_weight: Tensor,
    centres: Tensor,
    temperatures: Temperatures,
) -> SoftCrossEntropy:
    """The same, whole: for tests and small inputs."""
    log_p = (wide(student @ weight.T) / temperatures.student).log_softmax(-1)
    log_q = (
        ((wide(teacher @ teacher_weight.T) - centres[:, None, None]) / temperatures.teacher).log_softmax(-1).detach()
    )
    cross_entropy = -torch.einsum("gbvp,gbcp->g", log_q.exp(), log_p)
    entropy = -(log_q.exp() * log_q).sum((1, 2, 3)) * student.shape[2]
    return SoftCrossEntropy(cross_entropy.sum(), cross_entropy.detach(), entropy)


class _SoftCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        student: Tensor,
        weight: Tensor,
        teacher: Tensor,
        teacher_weight: Tensor,
        centres: Tensor,
        temperatures: Temperatures,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor, Tensor]:
        narrow, narrow_teacher = weight.to(dtype), teacher_weight.to(dtype)
        needs_grad = any(ctx.needs_input_grad[:2])
        grad_student = torch.empty_like(student) if needs_grad else None
        grad_weight = torch.zeros_like(weight) if needs_grad else None
        sums = torch.zeros(2, len(student), dtype=wide(student).dtype, device=student.device)
        row_elements = (student.shape[2] + teacher.shape[2]) * len(weight)
        for pool in range(len(student)):
            for rows in blocks(student.shape[1], row_elements, student.device):
                views = student[pool, rows].to(dtype)
                logits, raw = views @ narrow.T, teacher[pool, rows].to(dtype) @ narrow_teacher.T
                part = _block_fused if fuses("soft_cross_entropy", logits) else _block
                *found, error = part(logits, raw, centres[pool], temperatures, needs_grad)
                sums[:, pool] += torch.stack(found)
                if grad_student is not None and grad_weight is not None:
                    error = error.to(dtype)
                    grad_student[pool, rows] = (error @ narrow).to(student.dtype)
                    add_product(grad_weight, error.flatten(0, 1).T, views.flatten(0, 1))
        ctx.save_for_backward(grad_student, grad_weight)
        total, (cross_entropy, entropy) = sums[0].sum(), sums.unbind()
        ctx.mark_non_differentiable(cross_entropy, entropy)
        return total, cross_entropy, entropy

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        grad_student, grad_weight = ctx.saved_tensors
        scale = upstream[0]
        return (grad_student * scale).to(grad_student.dtype), grad_weight * scale, None, None, None, None, None


def _block(
    logits: Tensor, raw: Tensor, centre: Tensor, temperatures: Temperatures, needs_grad: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy and entropy of one block of images, and d cross-entropy / d logits; logits are used up.

    logits (b, C, P), the teacher's raw (b, V, P). H(q, p) = logsumexp(z) − Σ q·z for each pair of views, so the sum
    over the teacher's views needs only their summed probabilities.
    """
    logits = wide(logits).div_(temperatures.student)
    log_target = wide(raw).sub_(centre).div_(temperatures.teacher).log_softmax(-1)
    num_teacher, num_student = log_target.shape[1], logits.shape[1]
    target = log_target.exp()
    entropy = -log_target.mul_(target).sum() * num_student
    target = target.sum(1, keepdim=True)
    agreement = (target * logits.sum(1, keepdim=True)).sum()
    most = logits.amax(-1, keepdim=True)
    sums = logits.sub_(most).exp_().sum(-1, keepdim=True)
    cross_entropy = (sums.log() + most).sum() * num_teacher - agreement
    error = logits.mul_(num_teacher / sums).sub_(target).div_(temperatures.student) if needs_grad else logits
    return cross_entropy, entropy, error


def _block_fused(
    logits: Tensor, raw: Tensor, centre: Tensor, temperatures: Temperatures, needs_grad: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The same: each logit read twice and written once, in the precision it came in."""
    from goldiclip.kernels import rows

    scales = 1 / temperatures.student, 1 / temperatures.teacher
    normalisers = (
        rows.normalisers(logits.flatten(0, 1), scales[0]),
        rows.normalisers(raw.flatten(0, 1), scales[1], centre),
    )
    cross_entropy, entropy = rows.soft_errors_(logits, raw, centre, scales, normalisers).sum((0, 2))
    return cross_entropy, entropy, logits
