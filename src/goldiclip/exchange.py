"""What the ranks of a run tell each other in a step, before any of them can score an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from goldiclip.types import DECODER_TASKS, Batch, Ranks


@dataclass(frozen=True, slots=True)
class StepTexts:
    """What every rank knows of the whole step's texts. N images, K captions each."""

    embedding: Tensor  # (N·K, D) every caption's, image by image
    caption_hash: Tensor  # (N·K,)
    shared: Tensor  # (N,) the row of `embedding` that each image lends to the others
    num_targets: Tensor  # (tasks,) target tokens of each decoder task
    tasks: tuple[str, ...]  # the active decoder tasks that have any
    first_image: int  # which of the N the images at hand begin with

    @property
    def num_images(self) -> int:
        return len(self.shared)

    @property
    def num_captions(self) -> int:
        return len(self.caption_hash) // len(self.shared)

    def own(self, num_images: int) -> slice:
        """The rows of `embedding` about the images at hand."""
        first = self.first_image * self.num_captions
        return slice(first, first + num_images * self.num_captions)

    def image_ids(self, num_images: int) -> Tensor:
        """(B, 1): which of the N images those at hand are."""
        return torch.arange(self.first_image, self.first_image + num_images, device=self.shared.device)[:, None]

    def owners(self) -> Tensor:
        """(N·K,): the image each caption is about."""
        return torch.arange(len(self.caption_hash), device=self.shared.device) // self.num_captions

    def moved(self, images: int) -> StepTexts:
        """The same, seen from the images that begin `images` further on."""
        return replace(self, first_image=self.first_image + images)

    def has_targets(self, terms: Sequence[str]) -> Tensor:
        """(terms,) whether each term has anything to say in this step; only decoder tasks may have nothing."""
        found = self.num_targets > 0
        always = torch.ones_like(found[0])
        return torch.stack([found[DECODER_TASKS.index(term)] if term in DECODER_TASKS else always for term in terms])


def exchange(batches: Sequence[Batch], embedding: Tensor, ranks: Ranks, tasks: Sequence[str]) -> StepTexts:
    """Gather what every rank has to know of the step's texts; the embeddings come with their gradient, after `wait`.

    `batches` are this rank's share of the step, `embedding` its captions' embeddings, `tasks` the active decoder tasks.
    """
    num_images, (num_captions, *more) = sum(map(len, batches)), sorted({batch.captions_per_image for batch in batches})
    if more:
        raise ValueError(f"micro-batches have {num_captions} to {more[-1]} captions per image: a step needs one number")
    integers = ranks.gather(torch.cat([_integers(batch) for batch in batches]))
    if len(integers) != num_images * ranks.size:
        found = f"{len(integers)} images on {ranks.size} ranks, {num_images} of them on rank {ranks.rank}"
        raise ValueError(f"{found}: every rank needs the same number; run.batch must divide by the ranks")
    num_targets = ranks.sum(torch.stack([batch.count_targets() for batch in batches]).sum(0))
    return StepTexts(
        embedding=ranks.begin_gather(embedding),
        caption_hash=integers[:, :-1].flatten(),
        shared=torch.arange(len(integers), device=integers.device) * num_captions + integers[:, -1],
        num_targets=num_targets,
        tasks=_tasks_of_step(batches, num_targets, tasks),
        first_image=ranks.rank * num_images,
    )


def _integers(batch: Batch) -> Tensor:
    """(B, K+1): the hashes of each image's captions, and which of them it lends."""
    return torch.cat([batch.caption_hash.view(len(batch), -1), batch.shared_caption[:, None]], 1)


def _tasks_of_step(batches: Sequence[Batch], num_targets: Tensor, tasks: Sequence[str]) -> tuple[str, ...]:
    """The active tasks with a target anywhere. Only a rank that lacks one itself has to wait for the sum."""
    here = [batch.num_targets or tuple(batch.count_targets().tolist()) for batch in batches]
    counts = [sum(column) for column in zip(*here, strict=True)]
    if not all(counts[DECODER_TASKS.index(task)] for task in tasks):
        counts = num_targets.tolist()
    return tuple(task for task in tasks if counts[DECODER_TASKS.index(task)])


def check(batch: Batch) -> None:
    """Refuse what would make a step quietly wrong: sizes everywhere, values where no device has to answer for them."""
    num_images, num_captions = len(batch), len(batch.captions)
    if not num_images:
        raise ValueError("the batch has no images")
    if not num_captions or num_captions % num_images:
        raise ValueError(
            f"{num_captions} captions for {num_images} images: every image needs the same number, at least one"
        )
    if not batch.global_views.shape[1]:
        raise ValueError("the batch has no global views: every image needs at least one")
    sizes = {
        "local_views": (len(batch.local_views), num_images),
        "photometrics": (len(batch.photometrics), num_images),
        "caption_hash": (len(batch.caption_hash), num_captions),
        "shared_caption": (len(batch.shared_caption), num_images),
        "task": (len(batch.task), len(batch.task_texts)),
        "task_owner": (len(batch.task_owner), len(batch.task_texts)),
    }
    for name, (found, expected) in sizes.items():
        if found != expected:
            raise ValueError(f"batch.{name} has {found} entries; expected {expected}")
    if not batch.task.is_cuda:
        _check_values(batch)


def _check_values(batch: Batch) -> None:
    limits = {
        "shared_caption": (batch.shared_caption, batch.captions_per_image, "captions per image"),
        "task": (batch.task, len(DECODER_TASKS), "decoder tasks"),
        "task_owner": (batch.task_owner, len(batch), "images"),
    }
    for name, (values, limit, of) in limits.items():
        if len(values) and not 0 <= int(values.min()) <= int(values.max()) < limit:
            found = f"{int(values.min())} to {int(values.max())}"
            raise ValueError(f"batch.{name} reaches from {found}; there are {limit} {of}, counted from 0")
    if (batch.task_owner.diff() < 0).any():
        raise ValueError("batch.task_owner does not ascend: task texts lie image by image, so that a batch can be cut")
    counted = tuple(batch.count_targets().tolist())
    if batch.num_targets and batch.num_targets != counted:
        raise ValueError(f"batch.num_targets is {batch.num_targets}; its task texts have {counted}")
