"""L_ret: images and texts that belong together score high, all others low, each pair on its own.

ℓ is a logit (scale and bias included), y is +1 for an image and its own caption and −1 for any other pair:

    L_ta = 1/(N·K)     Σ_{i,j,k} softplus(−y·ℓ(v_i, t_jk))
    L_tc = 1/(N+K−1)   Σ_i [ Σ_k softplus(−ℓ_{i,(i,k)}) + Σ_{j≠i} softplus(+ℓ_{i,(j,k_j)}) ]

N images in the global batch, K captions each. Rows are the images at hand: those of one rank, or of one micro-batch.
Sums over rows are multiplied by the number of ranks, so that their mean over ranks is the global loss.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from goldiclip.kernels.products import wide


def pair_sigmoid(logits: Tensor, is_pair: Tensor, ignored: Tensor | None = None) -> Tensor:
    """for image i: for text j: loss -= log sigmoid(+logit_ij if j describes i else -logit_ij)"""
    logits = wide(logits)
    losses = F.softplus(torch.where(is_pair, -logits, logits))
    return losses.sum() if ignored is None else losses.masked_fill(ignored & ~is_pair, 0).sum()


def text_agnostic(
    logits: Tensor, is_own: Tensor, ignored: Tensor | None, num_images: int, num_captions: int, num_ranks: int = 1
) -> Tensor:
    """L_ta of B images against all captions: logits, is_own and ignored are (B, N·K)."""
    return pair_sigmoid(logits, is_own, ignored) * (num_ranks / (num_images * num_captions))


def text_conditioned(
    own: Tensor, shared: Tensor, is_own: Tensor, ignored: Tensor | None, num_images: int, num_ranks: int = 1
) -> Tensor:
    """L_tc against one caption of every other image.

    own (B, K): each image against its own captions. shared (B, N): against the caption that each image of the global
    batch lends; is_own (B, N) marks the one it lends itself, which is no negative and already among its own.
    """
    positives = F.softplus(-wide(own)).sum()
    without = is_own if ignored is None else is_own | ignored
    negatives = F.softplus(wide(shared)).masked_fill(without, 0).sum()
    return (positives + negatives) * (num_ranks / (num_images + own.shape[1] - 1))


def text_conditioned_all(
    logits: Tensor, is_own: Tensor, ignored: Tensor | None, num_images: int, num_captions: int, num_ranks: int = 1
) -> Tensor:
    """L_tc against all captions of every other image, of which `text_conditioned` is the unbiased estimate.

    1/(N+K−1) Σ_i [ Σ_k softplus(−ℓ_{i,(i,k)}) + 1/K Σ_{j≠i,k} softplus(+ℓ_{i,(j,k)}) ]; everything is (B, N·K).
    """
    logits = wide(logits)
    losses = F.softplus(torch.where(is_own, -logits, logits))
    positives = losses.masked_fill(~is_own, 0).sum()
    negatives = losses.masked_fill(is_own if ignored is None else is_own | ignored, 0).sum()
    return (positives + negatives / num_captions) * (num_ranks / (num_images + num_captions - 1))


def is_equal_text(own_hash: Tensor, hashes: Tensor) -> Tensor:
    """(B, M): whether text m reads the same as one of image i's own captions. own_hash (B, K), hashes (M,)."""
    equal = own_hash[:, :1] == hashes
    for k in range(1, own_hash.shape[1]):
        equal |= own_hash[:, k, None] == hashes
    return equal
