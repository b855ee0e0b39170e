"""The causal text tower over packed texts: no padding is computed on the fast path."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from goldiclip.config import Text
from goldiclip.model.layers import Rows, TextBlock, in_stream, waits


class TextTower(nn.Module):
    """Token and position embeddings, causal pre-norm blocks, a final LayerNorm, a bias-free projection of every token.

    A text's embedding is its last token's output: EOT, unless the text was cut.
    """

    def __init__(self, config: Text, embedding: int) -> None:
        super().__init__()
        self.vocabulary, self.context = config.vocabulary, config.context
        self.checkpointing = False
        self.token_embedding = nn.Embedding(config.vocabulary, config.width)
        self.position_embedding = nn.Parameter(torch.empty(config.context, config.width))
        self.blocks = nn.ModuleList(
            TextBlock(config.width, config.heads, config.activation) for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.width)
        self.projection = nn.Linear(config.width, embedding, bias=False)

    def forward(self, ids: Tensor, lengths: Tensor, max_length: int) -> tuple[Tensor, Tensor]:
        """The texts' embeddings (M, D) and every token's projection (T, D), of packed ids (T,)."""
        self._check(ids, lengths, max_length)
        rows = Rows.of(lengths, ids.shape[0], max_length)
        tokens = in_stream(self.token_embedding(ids) + self.position_embedding[rows.position])
        for block in self.blocks:
            if self.checkpointing and self.training:
                tokens = checkpoint(block, tokens, rows, use_reentrant=False)
            else:
                tokens = block(tokens, rows)
        tokens = self.projection(self.norm(tokens))
        return tokens.index_select(0, lengths.cumsum(0) - 1), tokens

    def _check(self, ids: Tensor, lengths: Tensor, max_length: int) -> None:
        if max_length > self.context:
            raise ValueError(
                f"a text has {max_length} tokens, the tower reads {self.context}: tokenize with context={self.context}"
            )
        if waits(ids) or not len(lengths):
            return
        if int(lengths.min()) < 1 or int(lengths.sum()) != len(ids) or int(lengths.max()) > max_length:
            raise ValueError(
                f"lengths {int(lengths.min())}..{int(lengths.max())} that sum to {int(lengths.sum())} do not lay out "
                f"{len(ids)} tokens in texts of 1..{max_length}: build texts with Texts.pack or Tokenizer.encode"
            )
        if int(ids.max()) >= self.vocabulary or int(ids.min()) < 0:
            raise ValueError(
                f"token ids reach from {int(ids.min())} to {int(ids.max())} and the tower's vocabulary has "
                f"{self.vocabulary}: tokenizer and model do not belong together"
            )
