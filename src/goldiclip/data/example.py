"""One sample to one training item, and items to a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.random import PCG64, Generator
from numpy.typing import NDArray
from torch import Tensor

from goldiclip.config import Config
from goldiclip.data.captions import sample_captions
from goldiclip.data.photometrics import apply_in_worker
from goldiclip.data.tasks import task_texts
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.data.views import decode_image, draw_views
from goldiclip.types import DECODER_TASKS, Batch, Example, Sample, Texts


def make_example(sample: Sample, config: Config, tokenizer: Tokenizer, rng: Generator) -> Example:
    """Views, captions and task texts drawn from a sample; a function of (sample, rng). Raises BadSample.

    Tasks have random numbers of their own and local views come last: leaving these out does not redraw the rest.
    """
    data, size = config.data, config.model.vision.image_size
    for_tasks = Generator(PCG64(int(rng.integers(1 << 62))))
    texts = sample_captions(sample.captions, data.captions, data.max_sentences, data.caption_weights, rng)
    shared_caption = int(rng.integers(data.captions))
    captions = tokenizer.encode(texts)
    global_views, local_views, photometrics, crop = draw_views(decode_image(sample.image), data.views, size, rng)
    if data.photometrics == "worker":
        local_views, photometrics = apply_in_worker(local_views, photometrics), photometrics[:, :0]
    names, tasks, counts = task_texts(sample, crop, config, size, tokenizer, for_tasks)
    num_cut = int(captions.truncated.sum())
    return Example(
        global_views=global_views,
        local_views=local_views,
        photometrics=photometrics,
        captions=captions,
        shared_caption=shared_caption,
        tasks=names,
        task_texts=tasks,
        counts={**counts, "caption cut": num_cut} if num_cut else counts,
    )


def collate(examples: Sequence[Example], samples: int = 0) -> Batch:
    """One batch of items in order; `samples` is how many the run has seen when it is done."""
    numbers = sorted({len(example.captions) for example in examples})
    if len(numbers) > 1:
        raise ValueError(f"examples have {numbers[0]} to {numbers[-1]} captions; a batch needs as many of each image")
    captions = Texts.cat([example.captions for example in examples])
    counts: Counter[str] = Counter()
    for example in examples:
        counts.update(example.counts)
    return Batch(
        global_views=torch.stack([example.global_views for example in examples]),
        local_views=torch.stack([example.local_views for example in examples]),
        photometrics=torch.stack([example.photometrics for example in examples]),
        captions=captions,
        caption_hash=text_hash(captions),
        shared_caption=torch.tensor([example.shared_caption for example in examples]),
        task_texts=Texts.cat([example.task_texts for example in examples]),
        task=torch.tensor([DECODER_TASKS.index(name) for e in examples for name in e.tasks], dtype=torch.int64),
        task_owner=torch.tensor([i for i, e in enumerate(examples) for _ in e.tasks], dtype=torch.int64),
        samples=samples,
        counts=dict(counts),
    )


def text_hash(texts: Texts) -> Tensor:
    """(M,) int64, 63 bits: the same for the same row of ids, in any process, on any machine.

    The sum over a row of mix(id, place in the row), mixed once more.
    """
    if not len(texts):
        return torch.empty(0, dtype=torch.int64)
    ids = texts.ids.numpy().astype(np.uint64)
    lengths = texts.lengths.numpy()
    starts = np.cumsum(lengths) - lengths
    place = np.arange(len(ids), dtype=np.uint64) - np.repeat(starts, lengths).astype(np.uint64)
    sums = np.add.reduceat(_mix((place << np.uint64(32)) + ids), starts)
    return torch.from_numpy((_mix(sums) >> np.uint64(1)).astype(np.int64))


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64: every input bit moves every output bit."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
