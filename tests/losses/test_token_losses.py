"""The token losses: which tokens count, over what they are averaged, and what a missing task does."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import reference
from goldiclip.losses.decode import find_targets, task_means
from goldiclip.types import DECODER_TASKS, Batch, Texts

VOCABULARY = 13
ROWS = [[11, 3, 0, 7, 12], [11, 5, 12], [11, 0, 0, 0, 0, 4], [11, 9, 1, 12]]
STARTS = [2, 1, 3, 3]
TASKS = [0, 3, 1, 0]


def logits_for(rows: list[list[int]], seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(sum(map(len, rows)), VOCABULARY, generator=rng, dtype=torch.float64)


def losses_of(
    logits: Tensor, rows: list[list[int]], starts: list[int], tasks: list[int], counts: Tensor | None = None
) -> Tensor:
    texts, task = Texts.pack(rows, target_start=starts), torch.tensor(tasks)
    targets = find_targets(texts, sum(len(row) - max(start, 1) for row, start in zip(rows, starts, strict=True)))
    nll = -logits.log_softmax(-1)[targets.position, targets.ids]
    counts = batch_of(texts, task).count_targets() if counts is None else counts
    return task_means(nll, task[targets.text], counts)


def batch_of(texts: Texts, task: Tensor) -> Batch:
    none = torch.zeros(0)
    return Batch(none, none, none, Texts.pack([]), none, none, texts, task, torch.zeros_like(task))


def test_the_losses_are_the_loop_over_target_tokens() -> None:
    logits = logits_for(ROWS)
    found = losses_of(logits, ROWS, STARTS, TASKS)
    expected = reference.task_losses(logits, ROWS, STARTS, TASKS, len(DECODER_TASKS))
    for task, value in enumerate(expected):
        torch.testing.assert_close(found[task], torch.zeros_like(found[task]) if value is None else value)
    assert expected[2] is None


def test_targets_are_told_by_position_never_by_id() -> None:
    """Id 0 is "!" and counts like any token; a text that was cut ends in a word and has no EOT to predict."""
    texts = Texts.pack(ROWS, target_start=STARTS)
    targets = find_targets(texts, 3 + 2 + 3 + 1)
    assert targets.ids.tolist() == [0, 7, 12, 5, 12, 0, 0, 4, 12]
    assert targets.position.tolist() == [1, 2, 3, 5, 6, 10, 11, 12, 16]
    assert targets.text.tolist() == [0, 0, 0, 1, 1, 2, 2, 2, 3]


def test_a_first_token_is_never_a_target() -> None:
    """Nothing stands before it that could predict it."""
    texts = Texts.pack([[11, 4, 12], [11, 12]], target_start=[0, 0])
    assert find_targets(texts, 3).ids.tolist() == [4, 12, 12]
    assert batch_of(texts, torch.tensor([0, 1])).count_targets().tolist() == [2, 1, 0, 0]


def test_a_value_computed_by_hand() -> None:
    """A head that knows nothing costs ln(vocabulary) per token, whatever the number of tokens."""
    logits = torch.zeros(sum(map(len, ROWS)), VOCABULARY)
    found = losses_of(logits, ROWS, STARTS, TASKS)
    assert found.tolist() == pytest.approx([math.log(13), math.log(13), 0, math.log(13)])


def test_what_stands_before_the_target_and_after_the_end_changes_nothing() -> None:
    logits = logits_for(ROWS)
    before = losses_of(logits, ROWS, STARTS, TASKS)
    targets = find_targets(Texts.pack(ROWS, target_start=STARTS), 9)
    untouched = torch.zeros(len(logits), dtype=torch.bool).index_fill(0, targets.position, True)
    changed = torch.where(untouched[:, None], logits, torch.full_like(logits, 1e3))
    torch.testing.assert_close(losses_of(changed, ROWS, STARTS, TASKS), before)


def test_the_order_of_texts_does_not_matter() -> None:
    logits, order = logits_for(ROWS), [2, 0, 3, 1]
    pieces = logits.split([len(row) for row in ROWS])
    shuffled = losses_of(
        torch.cat([pieces[i] for i in order]),
        [ROWS[i] for i in order],
        [STARTS[i] for i in order],
        [TASKS[i] for i in order],
    )
    torch.testing.assert_close(shuffled, losses_of(logits, ROWS, STARTS, TASKS))


def test_ragged_ranks_average_to_the_whole() -> None:
    """Divided by the mean over ranks of the count: dividing by a local count would be off by half."""
    logits, pieces = logits_for(ROWS), logits_for(ROWS).split([len(row) for row in ROWS])
    counts = batch_of(Texts.pack(ROWS, target_start=STARTS), torch.tensor(TASKS)).count_targets()
    ranks = []
    for rows in ([0], [1, 2, 3]):
        texts = Texts.pack([ROWS[i] for i in rows], target_start=[STARTS[i] for i in rows])
        task = torch.tensor([TASKS[i] for i in rows])
        targets = find_targets(texts, int(batch_of(texts, task).count_targets().sum()))
        nll = -torch.cat([pieces[i] for i in rows]).log_softmax(-1)[targets.position, targets.ids]
        ranks.append(task_means(nll, task[targets.text], counts, num_ranks=2))
    torch.testing.assert_close(torch.stack(ranks).mean(0), losses_of(logits, ROWS, STARTS, TASKS))


def test_no_texts_at_all_give_zero_losses_and_zero_gradients() -> None:
    texts, task = Texts.pack([]), torch.zeros(0, dtype=torch.int64)
    targets = find_targets(texts, 0)
    nll = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    found = task_means(nll, task[targets.text], batch_of(texts, task).count_targets())
    found.sum().backward()
    assert found.tolist() == [0, 0, 0, 0]
    assert nll.grad is not None


def test_captions_are_refused_as_task_texts() -> None:
    with pytest.raises(ValueError, match="target_start"):
        find_targets(Texts.pack(ROWS), 0)
