"""Image × text scores of whole sets, and where everyone's positives stand in them.

Ranks hold the rows of their own images. What a text needs to know of the other ranks' rows are counts: merging is
exact.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from goldiclip.evaluate.datasets.items import picture_name
from goldiclip.evaluate.encode import Block, ImageBlocks
from goldiclip.evaluate.metrics import Standing, count, standing
from goldiclip.inference.engine import Engine
from goldiclip.types import Ranks, TextFeatures

MEMORY_BYTES = 1 << 31  # for score matrices; larger ones lie in a temporary file
COMPARED_AT_ONCE = 1 << 24


@dataclass(frozen=True, slots=True)
class Scores:
    """The rows of the image × text matrix that this rank computed."""

    rows: Tensor  # (B, M)
    index: Tensor  # (B,) the image of each row
    gate: tuple[Tensor, Tensor] | None = None  # (B, M) and a threshold, (B, 1) or (M,): what is below it scores −inf

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows with their images, a bounded number at a time."""
        at_once = max(1, COMPARED_AT_ONCE // max(1, self.rows.shape[1]))
        for start in range(0, len(self.rows), at_once):
            here = slice(start, start + at_once)
            rows = self.rows[here]
            if self.gate is not None:
                deciding, threshold = self.gate
                rows = rows.masked_fill(
                    deciding[here] < (threshold[here] if threshold.ndim == 2 else threshold), -torch.inf
                )
            yield rows, self.index[here]


@torch.no_grad()
def score_all(
    engine: Engine, blocks: ImageBlocks, texts: TextFeatures, modes: Sequence[str], memory_bytes: int = MEMORY_BYTES
) -> dict[str, Scores]:
    """Every image of this rank with every text, in every mode, in one pass over the images."""
    shape = (len(blocks.index), len(texts))
    at_most = memory_bytes // len(modes)
    rows = {mode: empty_matrix(shape, engine.device, at_most, blocks.largest_share) for mode in modes}
    start = 0
    for block in blocks:
        for mode in modes:
            scores = score_block(engine, blocks, block, texts, mode)
            rows[mode][start : start + len(block.index)] = scores.to(rows[mode].device)
        start += len(block.index)
    return {mode: Scores(rows[mode], blocks.index.to(rows[mode].device)) for mode in modes}


def score_block(engine: Engine, blocks: ImageBlocks, block: Block, texts: TextFeatures, mode: str) -> Tensor:
    """(B, M) float32 logits of one block."""
    with engine.autocast():
        scores = engine.model.score(block.features, texts, mode).float()
    if scores.isnan().any():
        bad = int(scores.isnan().any(1).nonzero()[0, 0])
        raise ValueError(f"{picture_name(blocks.pictures, int(block.index[bad]))}: its {mode} scores are not numbers")
    return scores


def score_pairs(
    engine: Engine, blocks: ImageBlocks, block: Block, texts: TextFeatures, mode: str, row: Tensor, text: Tensor
) -> Tensor:
    """(P,) float32 logits of pairs of a block's images, by row, and texts. Only the texts that occur are projected."""
    row, (used, text) = row.to(engine.device), text.to(engine.device).unique(return_inverse=True)
    some = TextFeatures(texts.embedding[used], texts.tokens, texts.lengths[used], texts.max_length)
    with engine.autocast():
        scores = engine.model.score(block.features, some, mode, pairs=(row, text)).float()
    if scores.isnan().any():
        bad = int(row[scores.isnan().nonzero()[0, 0]])
        raise ValueError(f"{picture_name(blocks.pictures, int(block.index[bad]))}: its {mode} scores are not numbers")
    return scores


def empty_matrix(
    shape: Sequence[int], device: torch.device, memory_bytes: int = MEMORY_BYTES, largest_share: int = 0
) -> Tensor:
    """An empty float32 matrix: on the device when it is small, else in a file that goes with it.

    Ranks choose by the largest of their shares, alike: what they gather afterwards has to lie on one kind of device.
    """
    if 4 * max(shape[0], largest_share) * shape[1] <= memory_bytes:
        return torch.empty(shape, device=device)
    with tempfile.TemporaryFile() as file:
        return torch.from_numpy(np.memmap(file, dtype=np.float32, mode="w+", shape=tuple(shape)))


# --- where positives stand ------------------------------------------------------------------------------------------


def image_standings(scores: Scores, owners: Tensor, is_text: Tensor, ranks: Ranks) -> tuple[Tensor, Standing]:
    """Of every image its best caption among all texts, and which images these are: those with a caption, in order."""
    found, index = [], []
    is_text, owners = is_text.to(scores.rows.device), owners.to(scores.rows.device)
    hides_none = bool(is_text.all())
    for rows, images in scores.chunks():
        rows = rows if hides_none else rows.masked_fill(~is_text, -torch.inf)
        is_own = owners == images.unsqueeze(1)
        asks = (is_own & is_text).any(1)
        found.append(standing(rows[asks], is_own[asks]))
        index.append(images[asks])
    parts = [torch.cat([getattr(one, name) for one in found] or [scores.index[:0]]) for name in Standing.__slots__]
    image = ranks.gather(torch.cat(index or [scores.index[:0]]))
    order = image.argsort()
    return image[order], Standing(*(ranks.gather(part)[order] for part in parts))


def text_standings(scores: Scores, owners: Tensor, is_image: Tensor, ranks: Ranks) -> Standing:
    """Of every text its image among all images. Rows of images that are none do not count."""
    own = own_scores(scores, owners, ranks)
    better, tied = torch.zeros_like(own, dtype=torch.int64), torch.zeros_like(own, dtype=torch.int64)
    for rows, images in scores.chunks():
        rows = rows[is_image.to(rows.device)[images]].to(own.device)
        better += count(rows > own, 0)
        tied += count(rows == own, 0)
    tied = ranks.sum(tied)
    return Standing(ranks.sum(better), tied, torch.ones_like(tied))


def own_scores(scores: Scores, owners: Tensor, ranks: Ranks) -> Tensor:
    """(M,) each text's score with its own image, whichever rank holds it."""
    device = scores.rows.device
    place = torch.full((int(owners.max()) + 1 if len(owners) else 0,), -1, device=device)
    known = scores.index < len(place)
    place[scores.index[known]] = torch.arange(len(scores.index), device=device)[known]
    row = place[owners.to(device)]
    texts = torch.arange(len(owners), device=device)[row >= 0]
    own = torch.zeros(len(owners), device=device)
    own[texts] = scores.rows[row[row >= 0], texts]
    return ranks.sum(own)
