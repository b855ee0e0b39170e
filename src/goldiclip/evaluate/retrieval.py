"""Image-text retrieval: recall both ways, with several captions an image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from goldiclip.evaluate.datasets.items import Gallery
from goldiclip.evaluate.encode import ImageBlocks, encode_texts
from goldiclip.evaluate.metrics import Standing, estimate
from goldiclip.evaluate.problems import Problems
from goldiclip.evaluate.scores import image_standings, score_all, text_standings
from goldiclip.evaluate.shortlist import shortlisted_standings
from goldiclip.inference.engine import Engine
from goldiclip.inference.pictures import Fit
from goldiclip.types import Alone, Ranks

KS = (1, 5, 10)
KEEP_BYTES = 1 << 30  # of features, between the two stages of a shortlist


def retrieval(
    engine: Engine,
    gallery: Gallery,
    *,
    modes: Sequence[str] = ("tc", "ta"),
    shortlist: int = 0,
    how: Fit = "crop",
    ranks: Ranks | None = None,
    problems: Problems | None = None,
) -> Iterator[tuple[str, float]]:
    """Yields `{mode}/text_to_image/recall@1` and so on, and `counts/…` of what it was measured on.

    A text's positive is its image; an image is right when any of its texts ranks among the first k. `shortlist` adds
    the mode `tc@ta{shortlist}`. Pictures that cannot be read are left out with their texts.
    """
    ranks = ranks or Alone()
    problems = problems if problems is not None else Problems()
    texts, num_truncated = encode_texts(engine, gallery.texts, ranks)
    owners = torch.tensor(gallery.owners, dtype=torch.int64, device=engine.device)
    blocks = ImageBlocks(
        engine, gallery.pictures, problems=problems, ranks=ranks, how=how, keep_bytes=KEEP_BYTES if shortlist else 0
    )
    scores = score_all(engine, blocks, texts, modes) if modes else {}
    is_image = blocks.readable(ranks).to(engine.device) if modes else None
    for mode in modes:
        assert is_image is not None
        is_text = is_image[owners]
        of_images = image_standings(scores[mode], owners, is_text, ranks)
        of_texts = text_standings(scores.pop(mode), owners, is_image, ranks)
        yield from recalls(mode, of_images, of_texts, owners, is_text)
    if shortlist:
        of_images, of_texts = shortlisted_standings(engine, blocks, texts, owners, shortlist, ranks)
        is_text = blocks.readable(ranks).to(engine.device)[owners]
        yield from recalls(f"tc@ta{shortlist}", of_images, of_texts, owners, is_text)
    readable = blocks.readable(ranks)
    yield "counts/images", int(readable.sum())
    yield "counts/texts", int(readable[owners.cpu()].sum())
    yield "counts/truncated_texts", num_truncated


def recalls(
    mode: str, of_images: tuple[Tensor, Standing], of_texts: Standing, owners: Tensor, is_text: Tensor
) -> Iterator[tuple[str, float]]:
    """Both directions from where everyone's positives stand. Captions of one image are one draw of the bootstrap."""
    image, standing = of_images
    keep, owners = is_text.cpu(), owners.cpu()
    for k in KS:
        yield f"{mode}/text_to_image/recall@{k}", estimate(of_texts.hit_at(k).cpu()[keep], owners[keep])
    for k in KS:
        yield f"{mode}/image_to_text/recall@{k}", estimate(standing.hit_at(k).cpu(), image.cpu())
