"""L_cap, L_ref, L_grd, L_vqa: next-token negative log-likelihood of a task's target, given its prompt and the image.

    L_task = − 1/|targets| Σ_{target tokens p} log P(token_p | tokens_{<p}, patches)

The targets of a text are its tokens from `target_start` to its end, EOT included (a text that was cut has none), over
the whole global batch. Which tokens count is decided by position, never by id: id 0 is also "!".
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from goldiclip.types import DECODER_TASKS, Texts


class Targets(NamedTuple):
    """The tokens to predict: n of the T tokens of a pack."""

    position: Tensor  # (n,) index into the pack of the token *before* each target: the one whose output predicts it
    ids: Tensor  # (n,) the token itself
    text: Tensor  # (n,) index of the text it is in


def find_targets(texts: Texts, num_targets: int) -> Targets:
    """Where the targets lie. `num_targets` says how many: a Python number, so that nothing waits for a device."""
    if texts.target_start is None and len(texts):
        raise ValueError(
            "these texts have no target_start: captions have nothing to predict; task texts say where it begins"
        )
    target_start = texts.lengths if texts.target_start is None else texts.target_start
    num_tokens, device = texts.ids.shape[0], texts.ids.device
    rows = torch.arange(len(texts), device=device).repeat_interleave(texts.lengths, output_size=num_tokens)
    starts = texts.lengths.cumsum(0) - texts.lengths
    position = torch.arange(num_tokens, device=device) - starts[rows]
    # A text's first token has nothing before it to predict it from.
    is_target = position >= target_start[rows].clamp(min=1)
    found = torch.nonzero_static(is_target, size=num_targets).squeeze(1)
    return Targets(found - 1, texts.ids[found], rows[found])


def task_means(nll: Tensor, task: Tensor, counts: Tensor, num_ranks: int = 1) -> Tensor:
    """(tasks,) each task's mean over the global batch, of which this rank has the tokens nll (n,) with tasks task (n,).

    counts (tasks,) are global. A task that is absent from the whole step has loss 0.
    """
    sums = (_membership(task) * nll).sum(1)
    return sums * num_ranks / counts.clamp(min=1)


def _membership(task: Tensor) -> Tensor:
    """(tasks, n) bool. A masked sum is deterministic on every device; index_add is not."""
    return torch.arange(len(DECODER_TASKS), device=task.device)[:, None] == task
