"""The decoder speaks: greedy and beam search over a cache, freely or under a grammar.

`model.decode` reads whole texts; a `Reader` reads the same texts a few tokens at a time and remembers what it has read,
so that each further token costs one token's work. The two agree, which a test checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from goldiclip.config import ConfigError
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.layers import CrossAttention, DecoderBlock, SelfAttention, TextBlock

# From the tokens said so far to the ones that may come next.
Grammar = Callable[[Sequence[int]], Sequence[int]]


@dataclass(frozen=True)
class Generated:
    """What the decoder said, without prompt and end, and the geometric mean of its tokens' probabilities.

    A token that a grammar leaves no choice about says nothing of the model, and is left out of the mean.
    """

    ids: list[int]
    confidence: float
    finished: bool  # it came to an end by itself, within the room it had


class Reader:
    """R hypotheses read side by side, each looking at its own row of memory (R, L, D): the patch keys of its image."""

    def __init__(self, model: GoldiCLIP, memory: Tensor) -> None:
        if model.decoder is None or model.head is None:
            raise ConfigError(
                "this model has no decoder, so it cannot caption, answer or locate: "
                "load a checkpoint trained with decoder tasks, not an exported encoder"
            )
        self.text, self.norm, self.head = model.text, model.decoder.norm, model.head
        self.text_blocks = [cast(TextBlock, block) for block in model.text.blocks]
        self.blocks = [cast(DecoderBlock, block) for block in model.decoder.blocks]
        self.past: list[tuple[Tensor, Tensor] | None] = [None] * (len(self.text_blocks) + len(self.blocks))
        self.memory = [_keys_and_values(block.cross, block.norm_memory(memory)) for block in self.blocks]
        self.length = 0

    def read(self, ids: Tensor) -> Tensor:
        """Read (R, n) further tokens; the logits (R, vocabulary) of what comes next."""
        stop = self.length + ids.shape[1]
        tokens = self.text.token_embedding(ids) + self.text.position_embedding[self.length : stop]
        for i, below in enumerate(self.text_blocks):
            tokens = tokens + self._attend(i, below.attn, below.norm1(tokens))
            tokens = tokens + below.mlp(below.norm2(tokens))
        tokens = self.text.projection(self.text.norm(tokens))
        for i, (block, memory) in enumerate(zip(self.blocks, self.memory), len(self.text_blocks)):
            tokens = tokens + self._attend(i, block.attn, block.norm1(tokens))
            tokens = tokens + _look(block.cross, block.norm2(tokens), *memory)
            tokens = tokens + block.mlp(block.norm3(tokens))
        self.length = stop
        return self.head(self.norm(tokens[:, -1])).float()

    def select(self, rows: Tensor) -> None:
        """Go on from these hypotheses alone, in this order; one may be taken several times."""
        self.past = [None if past is None else (past[0][rows], past[1][rows]) for past in self.past]
        self.memory = [(key[rows], value[rows]) for key, value in self.memory]

    def _attend(self, layer: int, attention: SelfAttention, tokens: Tensor) -> Tensor:
        """Causal self-attention of new tokens (R, n, D) over everything read so far."""
        query, key, value = _heads(attention.qkv(tokens), 3, attention.heads)
        past = self.past[layer]
        if past is not None:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        self.past[layer] = (key, value)
        new, seen = query.shape[2], key.shape[2]
        may_see = torch.ones(new, seen, dtype=torch.bool, device=tokens.device).tril(seen - new)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=may_see)
        return attention.proj(attended.transpose(1, 2).flatten(2))


def _heads(projected: Tensor, parts: int, heads: int) -> tuple[Tensor, ...]:
    """(R, n, parts·D) as `parts` tensors (R, heads, n, D/heads)."""
    return projected.unflatten(-1, (parts, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)


def _keys_and_values(cross: CrossAttention, memory: Tensor) -> tuple[Tensor, Tensor]:
    key, value = _heads(cross.kv(memory), 2, cross.heads)
    return key, value


def _look(cross: CrossAttention, tokens: Tensor, key: Tensor, value: Tensor) -> Tensor:
    (query,) = _heads(cross.q(tokens), 1, cross.heads)
    return cross.proj(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


@torch.inference_mode()
def generate(
    model: GoldiCLIP,
    memory: Tensor,
    prompt: Sequence[int],
    *,
    end: int,
    max_tokens: int = 40,
    beams: int = 1,
    grammar: Grammar | None = None,
) -> list[Generated]:
    """What follows `prompt` for each image of memory (B, L, D): of `beams` hypotheses the likeliest per token."""
    room = model.text.context - len(prompt)
    if room < 1:
        raise ValueError(f"the prompt has {len(prompt)} tokens, the text tower reads {model.text.context}: shorten it")
    room = min(max_tokens, room)
    if beams == 1 and grammar is None:
        return _greedy(Reader(model, memory), prompt, end, room)
    return [_search(Reader(model, image[None]), prompt, end, room, beams, grammar) for image in memory]


def _greedy(reader: Reader, prompt: Sequence[int], end: int, room: int) -> list[Generated]:
    """The likeliest token each time, for all images side by side."""
    device = reader.memory[0][0].device
    num_images = reader.memory[0][0].shape[0]
    ids = torch.tensor([list(prompt)] * num_images, device=device)
    said: list[list[int]] = [[] for _ in range(num_images)]
    logs = torch.zeros(num_images, device=device)
    counts = torch.zeros(num_images, device=device)
    open_rows = torch.ones(num_images, dtype=torch.bool, device=device)
    for _ in range(room):
        log_probability, token = reader.read(ids).log_softmax(-1).max(-1)
        logs, counts = logs + log_probability * open_rows, counts + open_rows
        open_rows = open_rows & (token != end)
        for row, (word, is_open) in enumerate(zip(token.tolist(), open_rows.tolist())):
            if is_open:
                said[row].append(word)
        if not open_rows.any():
            break
        ids = token[:, None]
    confidences = (logs / counts.clamp(min=1)).exp().tolist()
    return [Generated(*row) for row in zip(said, confidences, (~open_rows).tolist())]


@dataclass(frozen=True)
class _Beam:
    ids: tuple[int, ...]
    logs: float
    choices: int  # of its tokens, those that might have been others
    row: int  # of the reader, whose next token this hypothesis waits for

    @property
    def mean(self) -> float:
        return self.logs / max(self.choices, 1)


def _search(
    reader: Reader, prompt: Sequence[int], end: int, room: int, beams: int, grammar: Grammar | None
) -> Generated:
    """Beam search for one image. Of the tokens a grammar forbids, the odds go to those it allows."""
    device = reader.memory[0][0].device
    live, done = [_Beam((), 0.0, 0, 0)], []
    ids = torch.tensor([list(prompt)], device=device)
    for _ in range(room):
        logits = reader.read(ids)
        grown = [child for beam in live for child in _children(beam, logits[beam.row], beams, grammar)]
        grown.sort(key=lambda beam: -beam.logs)
        done += [beam for beam in grown[:beams] if beam.ids[-1] == end]
        live = [beam for beam in grown[:beams] if beam.ids[-1] != end]
        if not live or len(done) >= beams:
            break
        reader.select(torch.tensor([beam.row for beam in live], device=device))
        ids = torch.tensor([[beam.ids[-1]] for beam in live], device=device)
        live = [replace(beam, row=row) for row, beam in enumerate(live)]
    best = max(done or live, key=lambda beam: beam.mean)
    finished = bool(done)
    return Generated(list(best.ids[:-1] if finished else best.ids), float(torch.tensor(best.mean).exp()), finished)


def _children(beam: _Beam, logits: Tensor, beams: int, grammar: Grammar | None) -> list[_Beam]:
    if grammar is not None:
        allowed = torch.tensor(list(grammar(beam.ids)), device=logits.device)
        odds = logits[allowed].log_softmax(-1)
    else:
        allowed, odds = torch.arange(len(logits), device=logits.device), logits.log_softmax(-1)
    best, index = odds.topk(min(beams, len(allowed)))
    return [
        _Beam((*beam.ids, token), beam.logs + log, beam.choices + (len(allowed) > 1), beam.row)
        for token, log in zip(allowed[index].tolist(), best.tolist())
    ]
