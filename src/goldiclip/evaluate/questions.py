"""Retrieval for question answering: which pictures of a question's own pool hold its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from goldiclip.evaluate.datasets.items import Questions
from goldiclip.evaluate.encode import ImageBlocks, encode_texts
from goldiclip.evaluate.metrics import Estimate, estimate, interval, recall_share_at, resampled_means, standing
from goldiclip.evaluate.problems import Problems
from goldiclip.evaluate.scores import score_pairs
from goldiclip.inference.engine import Engine
from goldiclip.inference.pictures import Fit
from goldiclip.types import Alone, Ranks

KINDS = ("count", "color", "object-attributes", "shape", "relation")
K = 2
AT_ONCE = 4_096  # questions compared at once


def questions(
    engine: Engine,
    items: Questions,
    *,
    modes: Sequence[str] = ("tc", "ta"),
    how: Fit = "crop",
    ranks: Ranks | None = None,
    problems: Problems | None = None,
) -> Iterator[tuple[str, float]]:
    """Yields `{mode}/{kind}/recall@2` and `…/hit@2` for each kind of question, and their unweighted mean as `average`.

    recall@2 is the share of a question's relevant pictures among its first two, hit@2 whether any is. Questions with a
    picture that cannot be read are left out.
    """
    ranks = ranks or Alone()
    problems = problems if problems is not None else Problems()
    texts, num_truncated = encode_texts(engine, items.texts, ranks)
    pools = Pools(items)
    blocks = ImageBlocks(engine, items.pictures, problems=problems, ranks=ranks, how=how)
    scores = {mode: torch.zeros(pools.picture.shape, device=engine.device) for mode in modes}
    for block in blocks:
        question, slot, row = pools.places_of(block.index)
        for mode in modes:
            scored = score_pairs(engine, blocks, block, texts, mode, row, question)
            scores[mode][question.to(engine.device), slot.to(engine.device)] = scored
    readable = pools.are_readable(blocks.readable(ranks))
    for mode in modes:
        pooled = ranks.sum(scores[mode]).cpu().masked_fill(~pools.is_there, -torch.inf)
        yield from _by_kind(mode, items.kinds, readable, *pool_metrics(pooled, pools.is_relevant))
    yield "counts/images", len(items.pictures) - int((~blocks.readable(ranks)).sum())
    yield "counts/questions", int(readable.sum())
    yield "counts/truncated_texts", num_truncated


class Pools:
    """The pictures of each question as rows of a table: (Q, longest pool), short rows filled up with nothing."""

    def __init__(self, items: Questions) -> None:
        rows = [first + rest for first, rest in zip(items.relevant, items.others, strict=True)]
        longest = max((len(row) for row in rows), default=0)
        self.picture = torch.tensor([row + (-1,) * (longest - len(row)) for row in rows], dtype=torch.int64)
        self.picture = self.picture.view(len(rows), longest)
        self.is_there = self.picture >= 0
        num_relevant = torch.tensor([len(first) for first in items.relevant], dtype=torch.int64)
        self.is_relevant = torch.arange(longest) < num_relevant.unsqueeze(1)
        # Places sorted by picture, so that those of a block of pictures lie side by side.
        flat = self.picture.flatten()
        self._order = flat.argsort(stable=True)
        self._sorted = flat[self._order]

    def places_of(self, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Where consecutive pictures stand: question, slot, and the picture's row in the block."""
        if not len(index):
            return index, index, index
        ends = torch.searchsorted(self._sorted, torch.stack([index[0], index[-1] + 1]))
        places = self._order[int(ends[0]) : int(ends[1])]
        width = self.picture.shape[1]
        return places // width, places % width, self.picture.flatten()[places] - index[0]

    def are_readable(self, readable: Tensor) -> Tensor:
        """(Q,) whether every picture of the pool could be read."""
        return (readable[self.picture.clamp(min=0)] | ~self.is_there).all(1)


def pool_metrics(scores: Tensor, is_relevant: Tensor) -> tuple[Tensor, Tensor]:
    """(Q,) recall@2 and hit@2, ties in expectation."""
    pieces = list(zip(scores.split(AT_ONCE), is_relevant.split(AT_ONCE), strict=True))
    recall = torch.cat([recall_share_at(*piece, k=K) for piece in pieces])
    hit = torch.cat([standing(*piece).hit_at(K) for piece in pieces])
    return recall, hit


def _by_kind(
    mode: str, kinds: Sequence[str], readable: Tensor, recall: Tensor, hit: Tensor
) -> Iterator[tuple[str, float]]:
    found = [kind for kind in KINDS if kind in kinds] + sorted(set(kinds) - set(KINDS))
    of = {kind: torch.tensor([one == kind for one in kinds], dtype=torch.bool) & readable for kind in found}
    for name, values in (("recall@2", recall), ("hit@2", hit)):
        for kind in found:
            yield f"{mode}/{kind}/{name}", estimate(values[of[kind]])
        yield f"{mode}/average/{name}", _mean_of_means([values[of[kind]] for kind in found])


def _mean_of_means(groups: Sequence[Tensor]) -> Estimate:
    groups = [group for group in groups if len(group)]
    if not groups:
        return Estimate(float("nan"))
    draws = torch.stack([resampled_means(group, seed=place) for place, group in enumerate(groups)]).mean(0)
    return Estimate(sum(group.mean().item() for group in groups) / len(groups), *interval(draws))
