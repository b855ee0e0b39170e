"""A step larger than memory: exactly the whole batch's loss and gradient, from micro-batches.

Every loss splits by image once the step's captions are embedded, so captions are all that is cached:

    1. the text tower embeds all captions, without a graph; the ranks exchange them
    2. micro-batch by micro-batch, all terms run forward and backward against the cached embeddings, a leaf that
       collects their gradient
    3. the text tower runs once more, and passes that gradient on

Images run once. Memory is that of one micro-batch and the N·K embeddings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from goldiclip.exchange import StepTexts, check
from goldiclip.train.parallel import average_gradients, local_gradients, sync_gradients, unwrapped
from goldiclip.types import Batch, Losses


def split(batch: Batch, micro_batch: int) -> list[Batch]:
    """A batch in pieces of at most `micro_batch` images; 0 leaves it whole. Best done before it is on a device."""
    if not micro_batch or micro_batch >= len(batch):
        return [batch]
    check(batch)
    return [batch.slice(start, min(start + micro_batch, len(batch))) for start in range(0, len(batch), micro_batch)]


def backward(model: nn.Module, batches: Sequence[Batch]) -> Losses:
    """The losses of one step, their gradient added to every parameter. `batches` are this rank's share of the step.

    Every rank brings the same number of images, in the same number of micro-batches.
    """
    if len(batches) > 1:
        return _accumulated(model, batches)
    losses = model(batches[0])
    losses.total.backward()
    return replace(losses, total=losses.total.detach())


def _accumulated(model: nn.Module, batches: Sequence[Batch]) -> Losses:
    learner = unwrapped(model)
    learner.begin_step()
    with local_gradients(model):
        texts = _cached_texts(model, batches)
        losses = _losses(model, batches, texts)
        _replay_texts(model, batches, texts)
    average_gradients(model)
    return losses


def _cached_texts(model: nn.Module, batches: Sequence[Batch]) -> StepTexts:
    with torch.no_grad():
        embedding = torch.cat([model(batch, only="texts") for batch in batches])
        texts = unwrapped(model).exchange(batches, embedding)
    return replace(texts, embedding=texts.embedding.detach().requires_grad_())


def _losses(model: nn.Module, batches: Sequence[Batch], texts: StepTexts) -> Losses:
    """Step 2. Sharded parts exchange their gradients with the last micro-batch; the text tower is not done yet."""
    learner = unwrapped(model)
    text_parts = {id(part) for part in learner.student.text.modules()}
    others = [part for part in learner.modules() if id(part) not in text_parts]
    parts: list[Losses] = []
    sync_gradients([learner.student.text], is_last=not learner.trains_captions)
    for batch in batches:
        is_last = len(parts) + 1 == len(batches)
        sync_gradients(others, is_last)
        losses = model(batch, texts)
        losses.total.backward()
        parts.append(replace(losses, total=losses.total.detach()))
        texts = texts.moved(len(batch))
    return add(parts)


def _replay_texts(model: nn.Module, batches: Sequence[Batch], texts: StepTexts) -> None:
    """Step 3: the text tower again, now with a graph, for the gradient that its embeddings have collected."""
    learner = unwrapped(model)
    gradient = texts.embedding.grad
    if gradient is None:
        return
    ranks, counts = learner.ranks, [len(batch.captions) for batch in batches]
    gradient = ranks.reduce_scatter(gradient, [sum(counts)] * ranks.size)
    for i, (batch, piece) in enumerate(zip(batches, gradient.split(counts), strict=True)):
        sync_gradients([learner.student.text], is_last=i + 1 == len(batches))
        torch.autograd.backward(model(batch, only="texts"), piece)


def add(parts: Sequence[Losses]) -> Losses:
    """What micro-batches add up to: the step's total, terms and metrics."""
    return Losses(
        torch.stack([part.total for part in parts]).sum(),
        _added([part.terms for part in parts]),
        _added([part.metrics for part in parts]),
    )


def _added(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    found: dict[str, list[Tensor]] = defaultdict(list)
    for part in parts:
        for name, value in part.items():
            found[name].append(value)
    return {name: torch.stack(values).sum(0) for name, values in found.items()}
