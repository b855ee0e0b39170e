"""Two-stage retrieval: the text-agnostic scores choose k candidates, the text-conditioned ones order them.

What is not on a shortlist stands behind it, in its text-agnostic order. Candidates that tie with the k-th are all on
it. With k at its largest this is plain text-conditioned retrieval.
"""

from __future__ import annotations

import torch
from torch import Tensor

from goldiclip.evaluate.encode import ImageBlocks
from goldiclip.evaluate.metrics import Standing
from goldiclip.evaluate.scores import (
    Scores,
    empty_matrix,
    image_standings,
    score_all,
    score_pairs,
    text_standings,
)
from goldiclip.inference.engine import Engine
from goldiclip.types import Ranks, TextFeatures


def shortlisted_standings(
    engine: Engine, blocks: ImageBlocks, texts: TextFeatures, owners: Tensor, k: int, ranks: Ranks
) -> tuple[tuple[Tensor, Standing], Standing]:
    """As `image_standings` and `text_standings` have them."""
    agnostic = score_all(engine, blocks, texts, ["ta"])["ta"]
    is_image = blocks.readable(ranks).to(owners.device)
    is_text = is_image[owners]
    per_image, per_text = _image_thresholds(agnostic, is_text, k), _text_thresholds(agnostic, is_image, k, ranks)
    rows = _rerank(engine, blocks, texts, agnostic, per_image, per_text)

    image, behind = image_standings(agnostic, owners, is_text, ranks)
    _, first = image_standings(Scores(rows, agnostic.index, (agnostic.rows, per_image)), owners, is_text, ranks)
    of_images = first.where(behind.better < k, behind)

    behind = text_standings(agnostic, owners, is_image, ranks)
    first = text_standings(Scores(rows, agnostic.index, (agnostic.rows, per_text)), owners, is_image, ranks)
    return (image, of_images), first.where(behind.better < k, behind)


def _image_thresholds(scores: Scores, is_text: Tensor, k: int) -> Tensor:
    """(B, 1) the k-th highest score of each row, below which nothing is on its shortlist."""
    is_text = is_text.to(scores.rows.device)
    best = [
        rows.masked_fill(~is_text, -torch.inf).topk(min(k, rows.shape[1]), dim=1).values[:, -1:]
        for rows, _ in scores.chunks()
    ]
    return torch.cat(best) if best else scores.rows[:, :1]


def _text_thresholds(scores: Scores, is_image: Tensor, k: int, ranks: Ranks) -> Tensor:
    """(M,) the k-th highest score of each text over the images of all ranks."""
    best = scores.rows[:0]
    for rows, images in scores.chunks():
        best = _highest(torch.cat([best, rows[is_image.to(rows.device)[images]]]), k)
    return _highest(ranks.gather(best), k)[-1]


def _highest(rows: Tensor, k: int) -> Tensor:
    return rows.topk(min(k, len(rows)), dim=0).values


def _rerank(
    engine: Engine, blocks: ImageBlocks, texts: TextFeatures, agnostic: Scores, per_image: Tensor, per_text: Tensor
) -> Tensor:
    """(B, M) text-conditioned scores of every pair on the image's shortlist or the text's; −inf elsewhere."""
    rows = empty_matrix(agnostic.rows.shape, engine.device, largest_share=blocks.largest_share).fill_(-torch.inf)
    start = 0
    for block in blocks:
        here = slice(start, start + len(block.index))
        start = here.stop
        chosen = agnostic.rows[here]
        wanted = ((chosen >= per_image[here]) | (chosen >= per_text)).nonzero()
        if len(wanted):
            image, text = wanted.unbind(1)
            rows[here][image, text] = score_pairs(engine, blocks, block, texts, "tc", image, text).to(rows.device)
    return rows
