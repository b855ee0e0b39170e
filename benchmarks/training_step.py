"""A training step on synthetic batches: `step.py` times it whole, `step_parts.py` in parts, and `plan.py` fits to it.

The real `Learner`, optimiser and update, as `train.loop` runs them: random pixels, and captions and task texts of
realistic ragged lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from goldiclip.config import Config
from goldiclip.data.photometrics import draw_photometrics
from goldiclip.kernels.soft_cross_entropy import soft_cross_entropy_plain
from goldiclip.kernels.token_cross_entropy import token_cross_entropy_plain
from goldiclip.learner import Learner
from goldiclip.model.pooling import Pooling
from goldiclip.plan import Lengths
from goldiclip.train.accumulate import backward, split
from goldiclip.train.loop import update
from goldiclip.train.optim import build_optimizer
from goldiclip.train.parallel import compile_towers
from goldiclip.types import DECODER_TASKS, Alone, Batch, Ranks, Texts


def make_batch(config: Config, num_images: int, seed: int, lengths: Lengths | None = None) -> Batch:
    """Random pixels; texts of the lengths that DreamLIP's captions and our prompts have, no two batches alike."""
    lengths, rng = lengths or Lengths(), np.random.default_rng(seed)
    views, size, num_captions = config.data.views, config.model.vision.image_size, config.data.captions
    pixels = torch.Generator().manual_seed(seed)
    tasks = [task for task in DECODER_TASKS if task in config.decoder_tasks]
    rows = [text(rng, config, getattr(lengths, task)) for _ in range(num_images) for task in tasks]
    captions = Texts.pack([text(rng, config, lengths.caption) for _ in range(num_images * num_captions)])
    return Batch(
        global_views=torch.randint(256, (num_images, 1, 3, size, size), generator=pixels, dtype=torch.uint8),
        local_views=torch.randint(
            256, (num_images, views.num_local, 3, views.local_size, views.local_size), generator=pixels
        ).to(torch.uint8),
        photometrics=draw_photometrics(views, num_images * views.num_local, rng).unflatten(0, (num_images, -1)),
        captions=captions,
        caption_hash=torch.randint(1 << 62, (num_images * num_captions,), generator=pixels),
        shared_caption=torch.randint(num_captions, (num_images,), generator=pixels),
        task_texts=Texts.pack(rows, target_start=[max(1, int(0.4 * len(row))) for row in rows]),
        task=torch.tensor([DECODER_TASKS.index(task) for task in tasks] * num_images),
        task_owner=torch.arange(num_images).repeat_interleave(len(tasks)),
    )


def text(rng: np.random.Generator, config: Config, mean: float) -> list[int]:
    """One text of about `mean` tokens, its spread that of sampled captions, cut at the context."""
    words, context = config.model.text.vocabulary - 2, config.model.text.context
    length = int(np.clip(rng.gamma(4.0, (mean - 2) / 4.0), 3, context - 2))
    return [words, *rng.integers(0, words, length).tolist(), words + 1]


def padded(batch: Batch, context: int) -> Batch:
    """Every text as long as the context: what a tower without packing computes."""

    def longer(texts: Texts) -> Texts:
        rows = [row + [row[-1]] * (context - len(row)) for row in texts.rows()]
        starts = None if texts.target_start is None else texts.target_start.tolist()
        return Texts.pack(rows, target_start=starts)

    return replace(batch, captions=longer(batch.captions), task_texts=longer(batch.task_texts))


@contextmanager
def written_down_plainly(is_wanted: bool) -> Iterator[None]:
    """The same modules with every intermediate whole: one pooled embedding per view and caption, all logits."""

    def every_embedding(self: Pooling, texts: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return self._embedding(texts, keys, values).mean(1)

    if not is_wanted:
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(patch("goldiclip.learner.token_cross_entropy", token_cross_entropy_plain))
        stack.enter_context(patch("goldiclip.losses.distill.soft_cross_entropy", soft_cross_entropy_plain))
        stack.enter_context(patch.object(Pooling, "_mean", every_embedding))
        stack.enter_context(patch("goldiclip.model.pooling.NUMBERS_AT_ONCE_TRAINING", 1 << 62))
        yield


@dataclass
class Step:
    """A learner with its optimiser and a few batches: one update after the other, as a run makes them."""

    config: Config
    learner: Learner
    optimizer: torch.optim.Optimizer
    batches: list[list[Batch]]
    turn: int = 0

    @classmethod
    def make(cls, config: Config, device: torch.device, num_batches: int = 3, pads: bool = False) -> Step:
        learner = Learner(config).to(device).train()
        learner.student.checkpoint_activations(config.run.checkpoint_activations)
        if config.run.compile:
            compile_towers(learner)
        step = cls(config, learner, build_optimizer(learner, config), [])
        step.draw(config.run.batch, config.run.micro_batch, num_batches=num_batches, pads=pads)
        return step

    def draw(self, batch: int, micro_batch: int, ranks: int = 1, num_batches: int = 3, pads: bool = False) -> None:
        """Batches of `batch` images, held in pieces; with `ranks` others bring as many, of whom only texts are seen."""
        self.learner.ranks = Crowd(ranks) if ranks > 1 else Alone()
        made = [make_batch(self.config, batch, seed) for seed in range(num_batches)]
        if pads:
            made = [padded(one, self.config.model.text.context) for one in made]
        device = next(self.learner.parameters()).device
        self.batches = [[piece.to(device) for piece in split(one, micro_batch)] for one in made]

    def __call__(self) -> None:
        self.turn += 1
        self.optimizer.zero_grad(set_to_none=True)
        batches = self.batches[self.turn % len(self.batches)]
        update(self, backward(self.learner, batches), batches)  # type: ignore[arg-type]

    @property
    def ranks(self) -> Ranks:
        return self.learner.ranks

    @property
    def folder(self) -> NoReturn:
        """Where a run would write down a step that has failed."""
        raise FloatingPointError("the losses or the gradients of this step are not finite")


class Crowd:
    """Other ranks, acted: they bring as many texts as this one has, and gradients as it has them."""

    rank = 0

    def __init__(self, size: int) -> None:
        self.size = size

    def gather(self, local: Tensor) -> Tensor:
        return torch.cat([local, *[local.detach()] * (self.size - 1)])

    begin_gather = gather

    def wait(self) -> None:
        pass

    def sum(self, value: Tensor) -> Tensor:
        return value * self.size

    def mean(self, value: Tensor) -> Tensor:
        return value

    def reduce_scatter(self, value: Tensor, counts: Sequence[int]) -> Tensor:
        return value[: counts[0]]
