"""Batches made by hand: small, ragged, in any precision, with any mix of tasks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from goldiclip.config import Config
from goldiclip.types import DECODER_TASKS, Batch, Texts


def make_batch(
    config: Config,
    num_images: int,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    tasks: Sequence[Sequence[str]] | None = None,
    num_global: int = 1,
    equal_captions: bool = False,
) -> Batch:
    """`tasks[i]` are the decoder tasks image i has; without it every image has a different few."""
    rng = torch.Generator().manual_seed(seed)
    views, num_captions = config.data.views, config.data.captions
    size = config.model.vision.image_size
    pattern = [DECODER_TASKS, ("cap",), ("ref", "vqa"), (), ("cap", "grd")]
    tasks = tasks if tasks is not None else [pattern[i % len(pattern)] for i in range(num_images)]
    words = config.model.text.vocabulary - 2
    captions = [_row(rng, words, 2, 9) for _ in range(num_images * num_captions)]
    if equal_captions:  # two images share a text, and one image has the same text twice
        captions[num_captions] = captions[0]
        captions[-1] = captions[-2]
    owned = [(DECODER_TASKS.index(task), i) for i in range(num_images) for task in tasks[i]]
    rows = [_row(rng, words, 4, 12) for _ in owned]
    starts = [int(torch.randint(2, len(row), (), generator=rng)) for row in rows]
    return Batch(
        global_views=torch.randn(num_images, num_global, 3, size, size, generator=rng).to(dtype),
        local_views=torch.randn(num_images, views.num_local, 3, views.local_size, views.local_size, generator=rng).to(
            dtype
        ),
        photometrics=torch.zeros(num_images, views.num_local, 0),
        captions=Texts.pack(captions),
        caption_hash=torch.tensor([hash(tuple(row)) for row in captions]),
        shared_caption=torch.randint(num_captions, (num_images,), generator=rng),
        task_texts=Texts.pack(rows, target_start=starts),
        task=torch.tensor([task for task, _ in owned], dtype=torch.int64),
        task_owner=torch.tensor([owner for _, owner in owned], dtype=torch.int64),
    )


def _row(rng: torch.Generator, words: int, low: int, high: int) -> list[int]:
    """A text of low to high words between SOT and EOT; id 0, "!", is a word like any other."""
    length = int(torch.randint(low, high + 1, (), generator=rng))
    return [words, *torch.randint(0, min(words, 300), (length,), generator=rng).tolist(), words + 1]
