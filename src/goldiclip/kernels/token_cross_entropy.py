"""Cross-entropy of tokens against a vocabulary head, without the logits of all tokens in memory.

49,408 logits for each of 50,000 target tokens would be 10 GB in float32. Here a block of tokens is scored at a time;
only one log-sum-exp per token is kept, and the backward pass scores each block once more.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from goldiclip.kernels.products import add_product, blocks, compute_dtype, wide
from goldiclip.kernels.switch import fuses


def token_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """-log softmax(weight · hidden_t)[target_t] for each token t.

    hidden (T, D), weight (vocabulary, D), targets (T,) → (T,) in float32 (float64 for float64). T may be 0.
    """
    return _TokenCrossEntropy.apply(hidden, weight, targets, compute_dtype(hidden))


def token_cross_entropy_plain(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """The same, whole: for tests and small inputs."""
    return F.cross_entropy(wide(hidden @ weight.T), targets, reduction="none")


class _TokenCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        narrow = weight.to(dtype)
        normaliser = torch.empty(len(hidden), dtype=wide(hidden).dtype, device=hidden.device)
        picked = torch.empty_like(normaliser)
        for rows in blocks(len(hidden), len(weight), hidden.device):
            logits = hidden[rows].to(dtype) @ narrow.T
            picked[rows] = wide(logits.gather(1, targets[rows, None]).squeeze(1))
            normaliser[rows] = _normalisers(logits)
        ctx.save_for_backward(hidden, weight, targets, normaliser)
        ctx.dtype = dtype
        return normaliser - picked

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        hidden, weight, targets, normaliser = ctx.saved_tensors
        narrow, (grad,) = weight.to(ctx.dtype), upstream
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        for rows in blocks(len(hidden), len(weight), hidden.device):
            tokens = hidden[rows].to(ctx.dtype)
            error = _errors(tokens @ narrow.T, normaliser[rows], targets[rows], grad[rows]).to(ctx.dtype)
            if grad_hidden is not None:
                grad_hidden[rows] = (error @ narrow).to(hidden.dtype)
            if grad_weight is not None:
                add_product(grad_weight, error.T, tokens)
        return grad_hidden, grad_weight, None, None


def _normalisers(logits: Tensor) -> Tensor:
    """log Σ exp of each row; may use the logits up."""
    if fuses("token_cross_entropy", logits):
        from goldiclip.kernels import rows

        return rows.normalisers(logits)
    logits = wide(logits)
    most = logits.amax(-1, keepdim=True)  # torch.logsumexp takes five times as long on a CPU
    return logits.sub_(most).exp_().sum(-1).log_() + most.squeeze(1)


def _errors(logits: Tensor, normaliser: Tensor, targets: Tensor, upstream: Tensor) -> Tensor:
    """upstream·(softmax − onehot) of each row; uses the logits up."""
    if fuses("token_cross_entropy", logits):
        from goldiclip.kernels import rows

        return rows.token_errors_(logits, normaliser, targets, upstream)
    error = wide(logits).sub_(normaliser[:, None]).exp_()
    error.scatter_add_(1, targets[:, None], error.new_full((len(targets), 1), -1.0))
    return error.mul_(upstream[:, None])
