"""Every equation as loops: slow, obvious, and what the fast ones are tested against.

Nothing here is vectorised over what the equation sums over. Captions are counted image by image: caption k of image j
is row j·K + k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

# --- L_ret ------------------------------------------------------------------------------------------------------------


def softplus(x: Tensor) -> Tensor:
    """log(1 + e^x), in the form that does not overflow."""
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))


def pair_sigmoid(logits: Tensor, is_pair: Tensor, ignored: Tensor | None = None) -> Tensor:
    """Σ_{i,j} softplus(−y·ℓ)"""
    total = logits.new_zeros(())
    for i in range(logits.shape[0]):
        for j in range(logits.shape[1]):
            if is_pair[i, j]:
                total = total + softplus(-logits[i, j])
            elif ignored is None or not ignored[i, j]:
                total = total + softplus(logits[i, j])
    return total


def text_agnostic(logits: Tensor, num_captions: int, hashes: Sequence[int] | None = None) -> Tensor:
    """L_ta = 1/(N·K) Σ_{i,j,k} softplus(−y·ℓ_{i,(j,k)}); with hashes, equal texts are ignored."""
    num_images, total = len(logits), logits.new_zeros(())
    for i in range(num_images):
        for j in range(num_images):
            for k in range(num_captions):
                row = j * num_captions + k
                if i == j:
                    total = total + softplus(-logits[i, row])
                elif hashes is None or not reads_like_own(hashes, i, row, num_captions):
                    total = total + softplus(logits[i, row])
    return total / (num_images * num_captions)


def text_conditioned(
    logits: Tensor, num_captions: int, shared: Sequence[int], hashes: Sequence[int] | None = None
) -> Tensor:
    """L_tc = 1/(N+K−1) Σ_i [ Σ_k softplus(−ℓ_{i,(i,k)}) + Σ_{j≠i} softplus(ℓ_{i,(j,k_j)}) ], of all (N, N·K) logits."""
    num_images, total = len(logits), logits.new_zeros(())
    for i in range(num_images):
        for k in range(num_captions):
            total = total + softplus(-logits[i, i * num_captions + k])
        for j in range(num_images):
            row = j * num_captions + shared[j]
            if j != i and (hashes is None or not reads_like_own(hashes, i, row, num_captions)):
                total = total + softplus(logits[i, row])
    return total / (num_images + num_captions - 1)


def text_conditioned_all(logits: Tensor, num_captions: int, hashes: Sequence[int] | None = None) -> Tensor:
    """1/(N+K−1) Σ_i [ Σ_k softplus(−ℓ_{i,(i,k)}) + 1/K Σ_{j≠i,k} softplus(ℓ_{i,(j,k)}) ]"""
    num_images, total = len(logits), logits.new_zeros(())
    for i in range(num_images):
        for j in range(num_images):
            for k in range(num_captions):
                row = j * num_captions + k
                if i == j:
                    total = total + softplus(-logits[i, row])
                elif hashes is None or not reads_like_own(hashes, i, row, num_captions):
                    total = total + softplus(logits[i, row]) / num_captions
    return total / (num_images + num_captions - 1)


def reads_like_own(hashes: Sequence[int], image: int, row: int, num_captions: int) -> bool:
    return any(hashes[image * num_captions + k] == hashes[row] for k in range(num_captions))


# --- L_sd -------------------------------------------------------------------------------------------------------------


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """H(target, softmax(logits)) of one distribution."""
    log_normaliser = logits.max() + torch.log(torch.exp(logits - logits.max()).sum())
    return sum((-p * (z - log_normaliser) for p, z in zip(target, logits, strict=True)), logits.new_zeros(()))


def distillation(
    student: Tensor,
    weight: Tensor,
    teacher: Tensor,
    teacher_weight: Tensor,
    centre: Tensor,
    temperatures: tuple[float, float],
    normalize: bool = True,
) -> Tensor:
    """Σ_images Σ_{global i} Σ_{local j} H(p^{T,i}, p^{S,j}) of one pool: student (B, C, D), teacher (B, V, D)."""
    tau_student, tau_teacher = temperatures
    total = student.new_zeros(())
    for image in range(len(student)):
        for i in range(teacher.shape[1]):
            v = teacher[image, i] / teacher[image, i].norm() if normalize else teacher[image, i]
            target = torch.softmax((teacher_weight @ v - centre) / tau_teacher, 0)
            for j in range(student.shape[1]):
                u = student[image, j] / student[image, j].norm() if normalize else student[image, j]
                total = total + cross_entropy(target, weight @ u / tau_student)
    return total


def mean_logits(teacher: Tensor, teacher_weight: Tensor, normalize: bool = True) -> Tensor:
    """The mean of y^T over images and global views."""
    rows = [v / v.norm() if normalize else v for image in teacher for v in image]
    return sum((teacher_weight @ v for v in rows), torch.zeros_like(teacher_weight[:, 0])) / len(rows)


# --- L_cap, L_ref, L_grd, L_vqa ---------------------------------------------------------------------------------------


def task_losses(
    logits: Tensor, rows: Sequence[Sequence[int]], starts: Sequence[int], task: Sequence[int], num_tasks: int
) -> list[Tensor | None]:
    """Per task the mean −log P(token_p | what precedes it) over target tokens p ≥ start; None for a task without any.

    logits (T, vocabulary) at each token of the texts, laid end to end.
    """
    losses: list[list[Tensor]] = [[] for _ in range(num_tasks)]
    offset = 0
    for row, start, which in zip(rows, starts, task, strict=True):
        for p in range(max(start, 1), len(row)):
            losses[which].append(-torch.log_softmax(logits[offset + p - 1], 0)[row[p]])
        offset += len(row)
    return [torch.stack(found).mean() if found else None for found in losses]


# --- balance ----------------------------------------------------------------------------------------------------------


def balanced(losses: Sequence[float | None], weights: Sequence[float], sigmas: Sequence[float]) -> float:
    """Σ_task w·L/σ² + σ², over the tasks that the step has."""
    total = 0.0
    for loss, weight, sigma in zip(losses, weights, sigmas, strict=True):
        if loss is not None:
            total += weight * loss / sigma**2 + sigma**2
    return total


# --- model: pooling with its weights, attention over one sequence -----------------------------------------------------


def pooled_by_loops(pooling: Any, text: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """One text (D,) and one image (L, D), head by head and patch by patch: its embedding (D,) and attention (H, L)."""
    query = pooling.query(pooling.norm_query(text))
    key, value = pooling.key(pooling.norm_key(keys)), pooling.value(pooling.norm_value(values))
    size = len(query) // pooling.heads
    heads, attention = [], []
    for head in range(pooling.heads):
        part = slice(head * size, (head + 1) * size)
        exponentials = [torch.exp(query[part] @ key[patch, part] / size**0.5) for patch in range(len(key))]
        total = torch.stack(exponentials).sum() + 1.0  # the sink: logit 0
        weights = torch.stack([exponential / total for exponential in exponentials])
        heads.append(torch.stack([weight * value[patch, part] for patch, weight in enumerate(weights)]).sum(0))
        attention.append(weights)
    return pooling.out.weight @ torch.cat(heads) + pooling.out.bias, torch.stack(attention)


def attention_by_loops(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> Tensor:
    """One sequence, (T, H, d) each: every query position by itself."""
    out = torch.zeros_like(query)
    for head in range(query.shape[1]):
        for i in range(len(query)):
            seen = range(i + 1) if is_causal else range(len(key))
            logits = torch.stack([query[i, head] @ key[j, head] / query.shape[2] ** 0.5 for j in seen])
            for weight, j in zip(logits.softmax(0), seen, strict=True):
                out[i, head] += weight * value[j, head]
    return out
