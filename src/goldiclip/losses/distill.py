"""L_sd: the student's local views learn what the teacher says of the whole image.

With y = W v, where v is a view's embedding made a unit vector (for the text-conditioned pool: its mean over the step's
captions first),

    p^T = softmax((y^T − c)/τ_T)      p^S = softmax(y^S/τ_S)
    L_sd = Σ_{global i} Σ_{local j} [ H(p_ta^{T,i}, p_ta^{S,j}) + H(p_tc^{T,i}, p_tc^{S,j}) ],  mean over images.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from goldiclip.config import Distill
from goldiclip.kernels.products import wide
from goldiclip.kernels.soft_cross_entropy import Temperatures, soft_cross_entropy


class Distillation(NamedTuple):
    total: Tensor  # () Σ over pools, images and pairs of views: what is differentiated
    cross_entropy: Tensor  # (G,) the same per pool
    entropy: Tensor  # (G,) the teacher's own entropy over the same pairs; cross_entropy − entropy is the KL divergence
    mean_logits: Tensor  # (G, P) Σ over images and global views of y^T, divided by the number of global views


def distillation(
    student: Tensor, weight: Tensor, teacher: Tensor, teacher_weight: Tensor, centres: Tensor, config: Distill
) -> Distillation:
    """Sums over the B images at hand of L_sd, for G pools at once.

    student (G, B, C, D) local views, teacher (G, B, V, D) global views, weights (P, D), centres (G, P).
    """
    if config.normalize:
        student, teacher = F.normalize(wide(student), dim=-1), F.normalize(wide(teacher), dim=-1)
    if config.prototype_norm == "unit":
        weight, teacher_weight = F.normalize(weight, dim=-1), F.normalize(teacher_weight, dim=-1)
    temperatures = Temperatures(config.student_temperature, config.teacher_temperature)
    sums = soft_cross_entropy(student, weight, teacher, teacher_weight, centres, temperatures)
    with torch.no_grad(), torch.autocast(teacher.device.type, enabled=False):
        # W is linear: the mean of y^T is W times the mean of v^T.
        mean_logits = wide(teacher).mean(2).sum(1) @ wide(teacher_weight).T
    return Distillation(*sums, mean_logits)


def moved_centre(centre: Tensor, mean_logits: Tensor, momentum: float) -> Tensor:
    """c ← m_c·c + (1 − m_c)·mean y^T"""
    return momentum * centre + (1 - momentum) * mean_logits.to(centre)


class Prototypes(nn.Module):
    """W of the student, W of the teacher and the centres: the weights that only L_sd has.

    The loss is formed inside `forward`, for the weights are whole nowhere else when the module is sharded.
    """

    centres: Tensor

    def __init__(self, width: int, num_pools: int, config: Distill) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.prototypes, width))
        self.teacher_weight = nn.Parameter(torch.empty(config.prototypes, width), requires_grad=False)
        self.register_buffer("centres", torch.empty(num_pools, config.prototypes))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, seed: int = 0) -> None:
        """W ~ N(0, 1/D) for both, drawn in float32 from a generator of its own; centres at 0."""
        generator = torch.Generator().manual_seed(zlib.crc32(f"{seed}:prototypes".encode()))
        drawn = torch.empty(self.weight.shape, dtype=torch.float32).normal_(generator=generator)
        self.weight.copy_(drawn * self.weight.shape[1] ** -0.5)
        self.teacher_weight.copy_(self.weight)
        self.centres.zero_()

    def forward(self, student: Tensor, teacher: Tensor) -> Distillation:
        """student (G, B, C, D) and teacher (G, B, V, D), as projected or pooled; see `distillation`."""
        return distillation(student, self.weight, teacher, self.teacher_weight, self.centres, self.config)

    @torch.no_grad()
    def move_centres(self, mean_logits: Tensor) -> None:
        self.centres.copy_(moved_centre(self.centres, mean_logits, self.config.centre_momentum))
