"""Pooling for a few texts and many images: the in-projections folded into the query, so that no patch is projected.

    q·(W_k LN(k) + b_k) = (W_k^T q)·LN(k) + q·b_k
    sum_l a_l (W_v LN(v_l) + b_v) = W_v (sum_l a_l LN(v_l)) + b_v sum_l a_l

The same numbers as the plain path for L·D·H·M products instead of L·D·D: a search re-ranks with one text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from goldiclip.kernels.stored import against_each, sums_of_each
from goldiclip.model.similarity import paired_cosines

if TYPE_CHECKING:
    from goldiclip.model.pooling import Pooling


def is_cheaper(num_texts: int, width: int, heads: int) -> bool:
    return num_texts * (heads - 1) < width


def folded_cosines(
    pooling: Pooling, queries: Tensor, texts: Tensor, keys: Tensor, values: Tensor, step: float | None = None
) -> Tensor:
    """(B, M) cosines of texts (M, D) with what they see in patches (B, L, D); queries (H, M, d) are the texts' own.

    With `step`, patches are stored ones: standardised already, and numbers of any type that count such steps.
    """
    heads, num_texts = queries.shape[:2]
    unfolded = torch.einsum("hmd,hdw->hmw", queries, pooling.key.weight.unflatten(0, (heads, -1)))
    constant = torch.einsum("hmd,hd->hm", queries, pooling.key.bias.unflatten(0, (heads, -1)))
    constant = constant + unfolded @ pooling.norm_key.bias
    scale = queries.shape[-1] ** -0.5
    seekers = (unfolded * pooling.norm_key.weight * (scale * (step or 1))).flatten(0, 1)  # (H·M, D)

    if step is None:
        keys, values = (
            F.layer_norm(patches, patches.shape[-1:], eps=norm.eps)
            for patches, norm in ((keys, pooling.norm_key), (values, pooling.norm_value))
        )
    logits = against_each(seekers, keys) + constant.flatten()[:, None] * scale
    weights = F.pad(logits, (0, 1)).softmax(-1)[..., :-1]  # (B, H·M, L), the sink left out
    mass = weights.sum(-1, keepdim=True)
    gathered = sums_of_each(weights, values).to(texts.dtype) * (step or 1)
    gathered = gathered * pooling.norm_value.weight + mass * pooling.norm_value.bias
    gathered = gathered.unflatten(1, (heads, num_texts))
    projected = torch.einsum("bhmw,hdw->bhmd", gathered, pooling.value.weight.unflatten(0, (heads, -1)))
    projected = projected + mass.unflatten(1, (heads, num_texts)) * pooling.value.bias.unflatten(0, (heads, 1, -1))
    return paired_cosines(pooling.out(projected.transpose(1, 2).flatten(2)), texts)
