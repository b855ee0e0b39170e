"""Metrics against loops over every order of the ties, clip_benchmark, torchmetrics and sklearn."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from goldiclip.evaluate.metrics import (
    Estimate,
    areas,
    estimate,
    interval,
    mean_iou,
    mean_per_class,
    recall_share_at,
    resampled_ious,
    resampled_means,
    standing,
    top_at,
)

SMALL = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6).filter(
    lambda row: any(positive for _, positive in row)
)


def orders(scores: list[int]) -> list[tuple[int, ...]]:
    """Every ranking that respects the scores."""
    return [
        order
        for order in itertools.permutations(range(len(scores)))
        if all(scores[a] >= scores[b] for a, b in itertools.pairwise(order))
    ]


@given(SMALL, st.integers(1, 4))
def test_a_hit_is_the_mean_over_every_order_of_the_ties(row: list[tuple[int, bool]], k: int) -> None:
    scores, positive = [score for score, _ in row], [is_positive for _, is_positive in row]
    by_loops = [any(positive[one] for one in order[:k]) for order in orders(scores)]
    found = standing(torch.tensor([scores], dtype=torch.float32), torch.tensor([positive])).hit_at(k)
    assert found.item() == pytest.approx(sum(by_loops) / len(by_loops), abs=1e-12)


@given(SMALL, st.integers(1, 4))
def test_a_recall_share_is_the_mean_over_every_order_of_the_ties(row: list[tuple[int, bool]], k: int) -> None:
    scores, positive = [score for score, _ in row], [is_positive for _, is_positive in row]
    by_loops = [sum(positive[one] for one in order[:k]) / sum(positive) for order in orders(scores)]
    found = recall_share_at(torch.tensor([scores], dtype=torch.float32), torch.tensor([positive]), k)
    assert found.item() == pytest.approx(sum(by_loops) / len(by_loops), abs=1e-6)


def test_a_constant_scorer_gets_exactly_chance() -> None:
    scores, is_positive = torch.zeros(1, 25), torch.arange(25).unsqueeze(0) < 2
    assert recall_share_at(scores, is_positive, 2).item() == pytest.approx(2 / 25, rel=1e-7)
    both_missed = math.comb(23, 2) / math.comb(25, 2)
    assert standing(scores, is_positive).hit_at(2).item() == pytest.approx(1 - both_missed, rel=1e-12)
    assert top_at(torch.zeros(3, 10), torch.tensor([0, 4, 9]), 5).tolist() == [0.5, 0.5, 0.5]


def test_absent_candidates_of_a_ragged_pool_are_never_found() -> None:
    scores = torch.tensor([[0.0, 0.0, 0.0, -torch.inf]])
    is_positive = torch.tensor([[True, False, False, False]])
    assert recall_share_at(scores, is_positive, 2).item() == pytest.approx(2 / 3)
    assert standing(scores, is_positive).hit_at(2).item() == pytest.approx(2 / 3)


# --- the same as others ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 5, 10])
def test_recall_is_clip_benchmarks(k: int) -> None:
    benchmark = pytest.importorskip("clip_benchmark.metrics.zeroshot_retrieval")
    rng = torch.Generator().manual_seed(k)
    scores, owners = torch.randn(60, 20, generator=rng), torch.arange(60) // 3
    is_pair = owners.unsqueeze(1) == torch.arange(20)
    for ours, theirs in (((scores, is_pair), (scores, is_pair)), ((scores.T, is_pair.T), (scores.T, is_pair.T))):
        wanted = (benchmark.recall_at_k(*theirs, k) > 0).float().mean().item()
        assert standing(*ours).hit_at(k).mean().item() == pytest.approx(wanted, abs=1e-6)


def test_accuracy_is_clip_benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = pytest.importorskip("clip_benchmark.metrics.zeroshot_classification")
    monkeypatch.setattr(benchmark, "float", lambda one: one.item(), raising=False)  # numpy 2.4 wants it said
    rng = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(200, 12, generator=rng), torch.randint(12, (200,), generator=rng)
    wanted = benchmark.accuracy(logits, labels, topk=(1, 5))
    assert [top_at(logits, labels, k).mean().item() for k in (1, 5)] == pytest.approx(wanted, abs=1e-6)


def test_mean_per_class_is_sklearns_balanced_accuracy() -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    rng = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(300, 7, generator=rng), torch.randint(6, (300,), generator=rng)  # class 6 never occurs
    logits[:, 6] -= 100
    found = mean_per_class(top_at(logits, labels, 1), labels, 7)
    assert found == pytest.approx(sklearn.balanced_accuracy_score(labels, logits.argmax(1)), abs=1e-12)


def test_recall_is_torchmetrics() -> None:
    retrieval = pytest.importorskip("torchmetrics.functional.retrieval")
    rng = torch.Generator().manual_seed(0)
    for _ in range(20):
        scores, is_positive = torch.randn(25, generator=rng), torch.randperm(25, generator=rng) < 2
        wanted = retrieval.retrieval_recall(scores, is_positive, top_k=2).item()
        assert recall_share_at(scores[None], is_positive[None], 2).item() == pytest.approx(wanted, abs=1e-6)
        hit = retrieval.retrieval_hit_rate(scores, is_positive, top_k=2).item()
        assert standing(scores[None], is_positive[None]).hit_at(2).item() == pytest.approx(hit, abs=1e-6)


# --- areas ----------------------------------------------------------------------------------------------------------


def mean_iou_by_loops(pairs: list[tuple[Tensor, Tensor]], num_classes: int, ignore: int) -> float:
    """for class c: Σ over images and pixels of both / either; the mean over classes that are in either."""
    found = []
    for c in range(num_classes):
        both = either = 0
        for predicted, labelled in pairs:
            for p, t in zip(predicted.flatten().tolist(), labelled.flatten().tolist(), strict=True):
                if t != ignore:
                    both += p == c and t == c
                    either += p == c or t == c
        if either:
            found.append(both / either)
    return sum(found) / len(found)


def test_mean_iou_accumulates_over_images_ignores_and_drops_absent_classes() -> None:
    rng = torch.Generator().manual_seed(0)
    pairs = []
    for _ in range(4):
        labelled = torch.randint(4, (6, 5), generator=rng)
        labelled[0, :2] = 255
        predicted = torch.where(torch.rand(6, 5, generator=rng) < 0.5, labelled % 4, torch.randint(4, (6, 5)))
        pairs.append((predicted, labelled))
    per_image = torch.stack([areas(predicted, labelled, 6) for predicted, labelled in pairs])  # 4 and 5 never occur
    assert mean_iou(per_image) == pytest.approx(mean_iou_by_loops(pairs, 6, 255), abs=1e-12)


def test_mean_iou_is_torchmetrics() -> None:
    jaccard = pytest.importorskip("torchmetrics.functional.classification").multiclass_jaccard_index
    rng = torch.Generator().manual_seed(1)
    predicted, labelled = torch.randint(5, (3, 8, 8), generator=rng), torch.randint(5, (3, 8, 8), generator=rng)
    labelled[:, 0] = 255
    wanted = jaccard(predicted, labelled, num_classes=5, ignore_index=255).item()
    per_image = torch.stack([areas(p, t, 5) for p, t in zip(predicted, labelled, strict=True)])
    assert mean_iou(per_image) == pytest.approx(wanted, abs=1e-6)


# --- intervals ------------------------------------------------------------------------------------------------------


def test_an_interval_is_the_normal_ones_for_many_independent_values() -> None:
    values = (torch.rand(4_000, generator=torch.Generator().manual_seed(0)) < 0.3).float()
    found = estimate(values)
    spread = 1.96 * math.sqrt(found * (1 - found) / len(values))
    assert found.low == pytest.approx(found - spread, abs=0.15 * spread)
    assert found.high == pytest.approx(found + spread, abs=0.15 * spread)


def test_values_that_hang_together_widen_the_interval() -> None:
    by_image = (torch.rand(200, generator=torch.Generator().manual_seed(0)) < 0.5).float()
    values, images = by_image.repeat_interleave(5), torch.arange(200).repeat_interleave(5)
    alone, together = estimate(values), estimate(values, images)
    assert together.high - together.low > 1.8 * (alone.high - alone.low)


def test_intervals_repeat() -> None:
    values = torch.rand(50)
    assert torch.equal(resampled_means(values, seed=3), resampled_means(values, seed=3))
    assert not torch.equal(resampled_means(values, seed=3), resampled_means(values, seed=4))


def test_resampled_ious_centre_on_the_iou() -> None:
    rng = torch.Generator().manual_seed(0)
    labelled = torch.randint(3, (60, 10, 10), generator=rng)
    predicted = torch.where(torch.rand(60, 10, 10, generator=rng) < 0.7, labelled, torch.zeros_like(labelled))
    per_image = torch.stack([areas(p, t, 3) for p, t in zip(predicted, labelled, strict=True)])
    low, high = interval(resampled_ious(per_image))
    assert low < mean_iou(per_image) < high
    assert high - low < 0.05


def test_an_estimate_is_a_number() -> None:
    assert Estimate(0.5, 0.4, 0.6) + 1 == 1.5
    assert math.isnan(Estimate(0.5).low)
    assert math.isnan(estimate(torch.zeros(0)))
