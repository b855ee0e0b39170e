"""Text-conditioned pooling: what an image has to say about a text.

    omega(t; keys, values) = W_o concat_h[ softmax([q_h·k_h/sqrt(d), 0])[:-1] v_h ] + b_o
    with  q = W_q LN(t) + b_q,  k = W_k LN(keys) + b_k,  v = W_v LN(values) + b_v

The 0 is the sink: an all-zero key and value appended after the in-projections, to which a text that the image does not
show can send its attention. Everything after the softmax is linear, so a mean over texts can be taken on the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from goldiclip.kernels.switch import fuses
from goldiclip.model.folded import folded_cosines, is_cheaper
from goldiclip.model.similarity import paired_cosines

# Largest intermediate, in numbers, that scoring holds at once; beyond it work is cut into pieces that are recomputed
# for their gradient. A GPU that trains has room for more: what is not cut is not computed twice.
NUMBERS_AT_ONCE = 1 << 26
NUMBERS_AT_ONCE_TRAINING = 1 << 28

Texts = Tensor | tuple[Tensor, ...]


class Pooling(nn.Module):
    """Attention of texts over patches, with a sink. Every use of its weights happens inside its own call.

    `pooling(texts, keys, values, what=...)`; texts are (M, D) that every image meets, or (B, M, D), each image's own:

    embedding   (B, M, D)  the conditioned embeddings
    attention   (B, M, L)  mean over heads; what is missing to 1 went to the sink
    condition   both of the above
    cosine      (B, M)     of each conditioned embedding with its text; (P,) for `pairs` = (image, text) indices
    mean        (B, D)     the mean of the conditioned embeddings over the texts, by averaging attention weights
    patches     (B, L, D)  each patch pooled alone without the sink: the value path, which no text changes
    patch_sink  (B, M, L)  cosine with the text of each patch pooled alone, the sink beside it

    `cosine` also takes a tuple of texts and answers in kind, with keys and values projected once. With `step` it is
    of stored patches, standardised and counted in steps (`folded_cosines`).
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_query, self.norm_key, self.norm_value = (nn.LayerNorm(width) for _ in range(3))
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(
        self,
        texts: Any,
        keys: Tensor,
        values: Tensor,
        *,
        what: str = "embedding",
        pairs: tuple[Tensor, Tensor] | None = None,
        step: float | None = None,
    ) -> Any:
        if step is not None:
            return folded_cosines(self, self._queries(texts), texts, keys, values, step)
        uses: dict[str, Callable[..., Any]] = {
            "embedding": self._embedding,
            "attention": self._attention,
            "condition": self._condition,
            "cosine": self._cosine,
            "mean": self._mean,
            "patches": self._patches,
            "patch_sink": self._patch_sink,
        }
        if what not in uses:
            raise ValueError(f"pooling cannot give {what!r}; it gives {', '.join(uses)}")
        if pairs is not None:
            if what != "cosine":
                raise ValueError(f"pairs are scored by cosine, not by {what!r}")
            return self._cosine_pairs(texts, keys, values, pairs)
        return uses[what](texts, keys, values)

    # --- projections ------------------------------------------------------------------------------------------------

    def _split(self, x: Tensor) -> Tensor:
        """(..., N, D) as (..., H, N, d)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def _queries(self, texts: Tensor) -> Tensor:
        """(H, M, d), or (B, H, M, d) of texts of each image's own."""
        return self._split(self.query(self.norm_query(texts)))

    def _keys(self, keys: Tensor) -> Tensor:
        return self._split(self.key(self.norm_key(keys)))

    def _values(self, values: Tensor) -> Tensor:
        return self._split(self.value(self.norm_value(values)))

    def _pooled(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """(B, M, D) of projected queries, keys and values."""
        queries = queries.expand(keys.shape[0], -1, -1, -1)
        keys, values = F.pad(keys, (0, 0, 0, 1)), F.pad(values, (0, 0, 0, 1))
        pooled = F.scaled_dot_product_attention(queries, keys, values)
        return self.out(pooled.transpose(1, 2).flatten(2))

    # --- what it gives ----------------------------------------------------------------------------------------------

    def _embedding(self, texts: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return self._pooled(self._queries(texts), self._keys(keys), self._values(values))

    def _attention(self, texts: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attention_weights(self._queries(texts), self._keys(keys)).mean(1)

    def _condition(self, texts: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        queries, keys = self._queries(texts), self._keys(keys)
        weights = attention_weights(queries, keys)
        pooled = weights.to(keys.dtype) @ self._values(values)
        return self.out(pooled.transpose(1, 2).flatten(2)), weights.mean(1)

    def _mean(self, texts: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        weights = mean_attention(self._queries(texts), self._keys(keys))
        values = self._values(values)
        pooled = (weights.unsqueeze(2).to(values.dtype) @ values).squeeze(2)
        return self.out(pooled.flatten(1))

    def _patches(self, _: Tensor | None, __: Tensor, values: Tensor) -> Tensor:
        return self.out(self.value(self.norm_value(values)))

    def _patch_sink(self, texts: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """One real key beside the sink makes the softmax a sigmoid, per head."""
        queries, keys, values = self._queries(texts), self._keys(keys), self._values(values)
        gates = torch.sigmoid(queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5)
        at_once = max(1, NUMBERS_AT_ONCE // max(1, len(keys) * keys.shape[2] * texts.shape[-1]))
        pieces = []
        for gate, text in zip(gates.split(at_once, 2), texts.split(at_once, -2), strict=True):
            alone = (gate.unsqueeze(-1) * values.unsqueeze(2)).permute(0, 2, 3, 1, 4).flatten(3)  # (B, m, L, D)
            pieces.append(paired_cosines(self.out(alone), text.unsqueeze(-2)))
        return torch.cat(pieces, 1)

    # --- scores, in bounded memory ----------------------------------------------------------------------------------

    def _cosine(self, texts: Texts, keys: Tensor, values: Tensor) -> Texts:
        if isinstance(texts, Tensor) and self._folds(texts):
            return self._cosine_folded(texts, keys, values)
        keys, values = self._keys(keys), self._values(values)
        if isinstance(texts, tuple):
            return tuple(self._cosine_of(part, keys, values) for part in texts)
        return self._cosine_of(texts, keys, values)

    def _cosine_of(self, texts: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """A block of images and of texts at a time, so that (B, M, D) is never whole."""
        num_images, num_texts, width = len(keys), texts.shape[-2], texts.shape[-1]
        queries = self._queries(texts)
        if num_images * num_texts and fuses("scoring", keys):
            from goldiclip.kernels import scores

            if queries.dtype == keys.dtype and scores.fits(width, self.heads):
                queries, keys, values = (x.transpose(-3, -2).flatten(-2) for x in (queries, keys, values))
                return scores.cosines(queries, keys, values, texts, self.out.weight, self.out.bias, self.heads)
        at_once = NUMBERS_AT_ONCE_TRAINING if keys.is_cuda and torch.is_grad_enabled() else NUMBERS_AT_ONCE
        if num_images * num_texts * width <= at_once:
            return self._block(queries, texts, keys, values)
        most_texts = max(1, min(num_texts, at_once // width))
        most_images = max(1, at_once // (most_texts * width))
        blocks = []
        for start in range(0, num_images, most_images):
            here = slice(start, start + most_images)
            own = texts.dim() == 3
            parts = zip(
                (queries[here] if own else queries).split(most_texts, -2),
                (texts[here] if own else texts).split(most_texts, -2),
                strict=True,
            )
            blocks.append(torch.cat([recomputed(self._block, q, t, keys[here], values[here]) for q, t in parts], 1))
        return torch.cat(blocks)

    def _block(self, queries: Tensor, texts: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return paired_cosines(self._pooled(queries, keys, values), texts)

    def _folds(self, texts: Tensor) -> bool:
        is_shared = texts.dim() == 2 and not torch.is_grad_enabled()
        return is_shared and is_cheaper(len(texts), texts.shape[-1], self.heads)

    def _cosine_folded(self, texts: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        queries = self._queries(texts)
        at_once = max(1, NUMBERS_AT_ONCE // max(1, keys[:1].numel()))
        pieces = zip(keys.split(at_once), values.split(at_once), strict=True)
        return torch.cat([folded_cosines(self, queries, texts, *piece) for piece in pieces])

    def _cosine_pairs(self, texts: Tensor, keys: Tensor, values: Tensor, pairs: tuple[Tensor, Tensor]) -> Tensor:
        """Text pairs[1][p] with image pairs[0][p]; each image and each text is projected once."""
        keys, values, queries = self._keys(keys), self._values(values), self._queries(texts).transpose(0, 1)
        at_once = max(1, NUMBERS_AT_ONCE // max(1, keys[:1].numel()))
        scores = [texts.new_zeros(0, dtype=torch.promote_types(texts.dtype, torch.float32))]
        for image, text in zip(pairs[0].split(at_once), pairs[1].split(at_once), strict=True):
            scores.append(recomputed(self._some_pairs, queries, texts, keys, values, image, text))
        return torch.cat(scores)

    def _some_pairs(
        self, queries: Tensor, texts: Tensor, keys: Tensor, values: Tensor, image: Tensor, text: Tensor
    ) -> Tensor:
        pooled = self._pooled(queries[text].unsqueeze(2), keys[image], values[image])
        return paired_cosines(pooled, texts[text].unsqueeze(1)).squeeze(1)


def attention_weights(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, H, M, L) of queries ([B,] H, M, d) and keys (B, H, L, d): softmax([q·k/sqrt(d), 0]) less the sink's."""
    logits = queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5
    return F.pad(logits, (0, 1)).softmax(-1)[..., :-1]


def mean_attention(queries: Tensor, keys: Tensor) -> Tensor:
    """(B, H, L): the mean over texts of the attention weights."""
    if fuses("mean_attention", keys):
        from goldiclip.kernels import mean_attention as fused

        if queries.dtype == keys.dtype and queries.shape[-2] and fused.fits(queries, keys):
            return fused.mean_attention(queries, keys)
    return mean_attention_plain(queries, keys)


def mean_attention_plain(queries: Tensor, keys: Tensor) -> Tensor:
    """The same, a piece of the texts at a time."""
    per_text = keys[..., 0].numel()
    if not queries.shape[-2]:
        raise ValueError("no texts: there is no mean over none")
    at_once = max(1, NUMBERS_AT_ONCE // max(1, per_text))
    sums = [recomputed(_summed_attention, piece, keys) for piece in queries.split(at_once, -2)]
    return torch.stack(sums).sum(0) / queries.shape[-2]


def _summed_attention(queries: Tensor, keys: Tensor) -> Tensor:
    return attention_weights(queries, keys).sum(2)


def recomputed(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """`function(*inputs)`, keeping nothing for the gradient but the inputs."""
    if not torch.is_grad_enabled():
        return function(*inputs)
    return checkpoint(function, *inputs, use_reentrant=False)
