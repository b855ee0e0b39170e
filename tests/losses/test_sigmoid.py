"""L_ret: the double loops, hand values, what must not matter, and layouts."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

import reference
from goldiclip.losses import sigmoid

SIZES = [(1, 1), (1, 3), (2, 1), (3, 2), (5, 4)]


def logits_of(num_images: int, num_captions: int, seed: int = 0, scale: float = 3.0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(num_images, num_images * num_captions, generator=rng, dtype=torch.float64) * scale


def ownership(num_images: int, num_captions: int) -> Tensor:
    return torch.arange(num_images)[:, None] == torch.arange(num_images * num_captions) // num_captions


def hashes_with_duplicates(num_images: int, num_captions: int) -> Tensor:
    """Few distinct texts, so that every image shares some with others."""
    return torch.arange(num_images * num_captions) % 3


def conditioned(logits: Tensor, num_captions: int, shared: Tensor, equal: Tensor | None = None) -> Tensor:
    """`text_conditioned` of full (N, N·K) logits."""
    num_images = len(logits)
    rows = torch.arange(num_images) * num_captions + shared
    own = torch.stack([logits[i, i * num_captions : (i + 1) * num_captions] for i in range(num_images)])
    is_own = ownership(num_images, num_captions)[:, rows]
    return sigmoid.text_conditioned(own, logits[:, rows], is_own, None if equal is None else equal[:, rows], num_images)


@pytest.mark.parametrize(("images", "texts"), [(1, 1), (2, 5), (4, 3)])
def test_pair_sigmoid_is_the_double_loop(images: int, texts: int) -> None:
    rng = torch.Generator().manual_seed(images)
    logits = torch.randn(images, texts, generator=rng, dtype=torch.float64)
    is_pair, ignored = (torch.rand(images, texts, generator=rng) < 0.4 for _ in range(2))
    torch.testing.assert_close(sigmoid.pair_sigmoid(logits, is_pair), reference.pair_sigmoid(logits, is_pair))
    torch.testing.assert_close(
        sigmoid.pair_sigmoid(logits, is_pair, ignored), reference.pair_sigmoid(logits, is_pair, ignored)
    )


@pytest.mark.parametrize(("num_images", "num_captions"), SIZES)
@pytest.mark.parametrize("is_ignoring", [False, True])
def test_all_three_losses_are_their_loops(num_images: int, num_captions: int, is_ignoring: bool) -> None:
    logits, is_own = logits_of(num_images, num_captions), ownership(num_images, num_captions)
    shared = torch.arange(num_images) % num_captions
    texts = hashes_with_duplicates(num_images, num_captions)
    equal = sigmoid.is_equal_text(texts.view(num_images, -1), texts) if is_ignoring else None
    hashes = texts.tolist() if is_ignoring else None

    found = sigmoid.text_agnostic(logits, is_own, equal, num_images, num_captions)
    torch.testing.assert_close(found, reference.text_agnostic(logits, num_captions, hashes))
    found = conditioned(logits, num_captions, shared, equal)
    torch.testing.assert_close(found, reference.text_conditioned(logits, num_captions, shared.tolist(), hashes))
    found = sigmoid.text_conditioned_all(logits, is_own, equal, num_images, num_captions)
    torch.testing.assert_close(found, reference.text_conditioned_all(logits, num_captions, hashes))


def test_values_computed_by_hand() -> None:
    """N = 2, K = 2, every logit 0: each pair costs ln 2."""
    logits, is_own = torch.zeros(2, 4), ownership(2, 2)
    ln2 = math.log(2)
    assert sigmoid.text_agnostic(logits, is_own, None, 2, 2).item() == pytest.approx(8 * ln2 / 4)
    assert conditioned(logits, 2, torch.tensor([0, 1])).item() == pytest.approx(6 * ln2 / 3)
    assert sigmoid.text_conditioned_all(logits, is_own, None, 2, 2).item() == pytest.approx((4 + 4 / 2) * ln2 / 3)
    alone = torch.tensor([[2.0]])
    assert sigmoid.text_agnostic(alone, ownership(1, 1), None, 1, 1).item() == pytest.approx(math.log1p(math.exp(-2)))


def test_one_negative_caption_is_the_unbiased_estimate_of_all() -> None:
    """Averaged over every draw of k_1 … k_N, the shared negatives are all the negatives."""
    num_images, num_captions = 3, 2
    logits, is_own = logits_of(num_images, num_captions), ownership(num_images, num_captions)
    draws = itertools.product(range(num_captions), repeat=num_images)
    mean = torch.stack([conditioned(logits, num_captions, torch.tensor(draw)) for draw in draws]).mean()
    torch.testing.assert_close(mean, sigmoid.text_conditioned_all(logits, is_own, None, num_images, num_captions))


def test_renaming_images_changes_nothing() -> None:
    num_images, num_captions = 4, 3
    logits, shared = logits_of(num_images, num_captions), torch.tensor([0, 2, 1, 0])
    order = torch.tensor([2, 0, 3, 1])
    texts = (order[:, None] * num_captions + torch.arange(num_captions)).flatten()
    renamed, is_own = logits[order][:, texts], ownership(num_images, num_captions)
    for loss in (sigmoid.text_agnostic, sigmoid.text_conditioned_all):
        before = loss(logits, is_own, None, num_images, num_captions)
        torch.testing.assert_close(loss(renamed, is_own, None, num_images, num_captions), before)
    torch.testing.assert_close(
        conditioned(renamed, num_captions, shared[order]), conditioned(logits, num_captions, shared)
    )


def test_ranks_average_to_the_whole_and_micro_batches_add_up() -> None:
    num_images, num_captions = 6, 2
    logits, is_own = logits_of(num_images, num_captions), ownership(num_images, num_captions)
    for loss in (sigmoid.text_agnostic, sigmoid.text_conditioned_all):
        whole = loss(logits, is_own, None, num_images, num_captions)
        of_ranks = [loss(logits[r : r + 2], is_own[r : r + 2], None, num_images, num_captions, 3) for r in (0, 2, 4)]
        torch.testing.assert_close(torch.stack(of_ranks).mean(), whole)
        micro = [loss(logits[r], is_own[r], None, num_images, num_captions) for r in (slice(0, 1), slice(1, 6))]
        torch.testing.assert_close(torch.stack(micro).sum(), whole)


def test_a_positive_is_never_ignored() -> None:
    """With texts that are all equal there is no negative left, and every positive counts."""
    equal = torch.ones(3, 6, dtype=torch.bool)
    found = sigmoid.text_agnostic(torch.zeros(3, 6), ownership(3, 2), equal, 3, 2)
    assert found.item() == pytest.approx(6 * math.log(2) / 6)
    found = conditioned(torch.zeros(3, 6), 2, torch.tensor([0, 1, 0]), equal)
    assert found.item() == pytest.approx(6 * math.log(2) / 4)


def test_equal_texts_are_found_by_hash() -> None:
    own = torch.tensor([[7, 8], [9, 7]])
    assert sigmoid.is_equal_text(own, own.flatten()).tolist() == [[True, True, False, True], [True, False, True, True]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("extreme", [-1e4, 1e4])
def test_extreme_logits_stay_finite(dtype: torch.dtype, extreme: float) -> None:
    logits = torch.full((2, 4), extreme, dtype=dtype, requires_grad=True)
    loss = sigmoid.text_agnostic(logits, ownership(2, 2), None, 2, 2) + sigmoid.text_conditioned_all(
        logits, ownership(2, 2), None, 2, 2
    )
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.isfinite()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_the_gradient_is_that_of_the_value() -> None:
    is_own, equal = ownership(3, 2), torch.rand(3, 6, generator=torch.Generator().manual_seed(1)) < 0.3
    logits = logits_of(3, 2).requires_grad_()
    shared = torch.tensor([1, 0, 1])
    assert torch.autograd.gradcheck(lambda x: sigmoid.text_agnostic(x, is_own, equal, 3, 2), logits)
    assert torch.autograd.gradcheck(lambda x: sigmoid.text_conditioned_all(x, is_own, equal, 3, 2), logits)
    assert torch.autograd.gradcheck(lambda x: conditioned(x, 2, shared, equal), logits)
