"""Zero-shot classification: the class whose prompts score highest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from goldiclip.evaluate.datasets.items import Labelled
from goldiclip.evaluate.encode import ImageBlocks, encode_texts
from goldiclip.evaluate.metrics import Estimate, estimate, mean_per_class, top_at
from goldiclip.evaluate.problems import Problems
from goldiclip.evaluate.scores import score_block
from goldiclip.inference.engine import Engine
from goldiclip.inference.pictures import Fit
from goldiclip.types import Alone, Ranks, TextFeatures


def classification(
    engine: Engine,
    items: Labelled,
    *,
    modes: Sequence[str] = ("tc", "ta"),
    how: Fit = "crop",
    ranks: Ranks | None = None,
    problems: Problems | None = None,
) -> Iterator[tuple[str, float]]:
    """Yields `{mode}/top1`, `…/top5` (with five classes or more) and `…/mean_per_class`.

    In tc a class's embedding is both what the image is pooled by and what it is compared with.
    """
    ranks = ranks or Alone()
    problems = problems if problems is not None else Problems()
    classes, num_truncated = class_features(engine, [(name,) for name in items.classes], items.templates, ranks)
    labels = torch.tensor(items.labels, dtype=torch.int64)
    blocks = ImageBlocks(engine, items.pictures, problems=problems, ranks=ranks, how=how)
    ks = (1, 5) if len(items.classes) >= 5 else (1,)
    hits: dict[tuple[str, int], list[Tensor]] = {(mode, k): [] for mode in modes for k in ks}
    for block in blocks:
        for mode in modes:
            scores = score_block(engine, blocks, block, classes, mode)
            for k in ks:
                hits[mode, k].append(top_at(scores, labels[block.index].to(scores.device), k))
    readable = blocks.readable(ranks)
    order = ranks.gather(blocks.index.to(engine.device)).argsort()
    for (mode, k), found in hits.items():
        mine = torch.cat(found or [torch.zeros(0, dtype=torch.float64, device=engine.device)])
        whole = ranks.gather(mine)[order].cpu()[readable]
        yield f"{mode}/top{k}", estimate(whole)
        if k == 1:
            yield f"{mode}/mean_per_class", Estimate(mean_per_class(whole, labels[readable], len(items.classes)))
    yield "counts/images", int(readable.sum())
    yield "counts/classes", len(items.classes)
    yield "counts/templates", len(items.templates)
    yield "counts/truncated_texts", num_truncated


def class_features(
    engine: Engine, classes: Sequence[Sequence[str]], templates: Sequence[str], ranks: Ranks
) -> tuple[TextFeatures, int]:
    """One embedding for each name: the unit vectors of its prompts, their mean, made a unit vector."""
    names = [name for names in classes for name in names]
    prompts = [template.replace("{}", name) for name in names for template in templates]
    texts, num_truncated = encode_texts(engine, prompts, ranks)
    means = F.normalize(texts.embedding, dim=-1).unflatten(0, (len(names), len(templates))).mean(1)
    embedding = F.normalize(means, dim=-1)
    return TextFeatures(embedding, embedding[:0], texts.lengths[:: len(templates)], texts.max_length), num_truncated
