"""Six terms, one number: the sum as printed, what is absent, where σ comes to rest, and shares of a step."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import reference
from goldiclip.losses.balance import Balance, balanced, uniform

PRESENT = torch.ones(3, dtype=torch.bool)


def tensors(*rows: list[float]) -> list[Tensor]:
    return [torch.tensor(row, dtype=torch.float64) for row in rows]


@pytest.mark.parametrize("absent", [None, 0, 2])
def test_the_total_is_the_sum_over_present_terms(absent: int | None) -> None:
    losses, weights, sigmas = tensors([4.0, 0.5, 133.0], [1, 2, 1], [1.0, 0.7, 2.5])
    is_present = torch.tensor([i != absent for i in range(3)])
    said = [None if i == absent else loss for i, loss in enumerate(losses.tolist())]
    expected = reference.balanced(said, weights.tolist(), sigmas.tolist())
    assert balanced(losses, weights, sigmas, is_present).item() == pytest.approx(expected)


def test_values_computed_by_hand() -> None:
    losses, weights, sigmas = tensors([3.0, 2.0], [1, 2], [1.0, 2.0])
    assert balanced(losses, weights, sigmas, PRESENT[:2]).item() == 3 / 1 + 1 + 2 * 2 / 4 + 4
    assert uniform(losses, weights, PRESENT[:2]).item() == 7


def test_sigma_comes_to_rest_at_the_root_of_its_weighted_loss() -> None:
    losses, weights = tensors([4.0, 0.5, 9.0], [1, 2, 1])
    sigmas = torch.ones(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([sigmas], max_iter=60)

    def total() -> Tensor:
        optimizer.zero_grad()
        loss = balanced(losses, weights, sigmas, PRESENT)
        loss.backward()
        return loss

    optimizer.step(total)
    assert (sigmas.detach() ** 2).tolist() == pytest.approx([math.sqrt(4), math.sqrt(1), math.sqrt(9)], rel=1e-4)


def test_an_absent_task_moves_neither_its_sigma_nor_anything_else() -> None:
    losses, weights, sigmas = tensors([1.0, 0.0, 3.0], [1, 2, 1], [1.0, 1.5, 2.0])
    losses.requires_grad_(), sigmas.requires_grad_()
    balanced(losses, weights, sigmas, torch.tensor([True, False, True])).backward()
    assert losses.grad is not None
    assert sigmas.grad is not None
    assert losses.grad[1] == 0
    assert sigmas.grad[1] == 0
    assert sigmas.grad[0] == pytest.approx(2 - 2)


def test_shares_of_a_step_add_up_to_the_step() -> None:
    losses, weights, sigmas = tensors([4.0, 0.5, 9.0], [1, 2, 1], [1.0, 0.7, 2.5])
    parts = [balanced(losses * share, weights, sigmas, PRESENT, share) for share in (0.25, 0.75)]
    torch.testing.assert_close(sum(parts), balanced(losses, weights, sigmas, PRESENT))


def test_the_gradient_is_that_of_the_value() -> None:
    losses, weights, sigmas = tensors([4.0, 0.5, 9.0], [1, 2, 1], [1.0, 0.7, 2.5])
    assert torch.autograd.gradcheck(
        lambda x, s: balanced(x, weights, s, torch.tensor([True, False, True]), 0.5),
        (losses.requires_grad_(), sigmas.requires_grad_()),
    )


def test_the_module_keeps_one_float32_scalar_per_term_and_none_when_uniform() -> None:
    learned = Balance({"ret": 1.0, "cap": 2.0}, is_learned=True)
    assert {name: tuple(p.shape) for name, p in learned.named_parameters()} == {"sigma.ret": (1,), "sigma.cap": (1,)}
    assert all(parameter.dtype == torch.float32 for parameter in learned.parameters())
    total, pull = learned(torch.tensor([3.0, 4.0]), PRESENT[:2])
    assert total.item() == 3 + 1 + 8 + 1
    assert pull.tolist() == [1, 2]
    plain = Balance({"ret": 1.0, "cap": 2.0}, is_learned=False)
    assert not list(plain.parameters())
    total, pull = plain(torch.tensor([3.0, 4.0]), PRESENT[:2])
    assert (total.item(), pull.tolist()) == (11, [1, 2])


def test_extreme_losses_stay_finite() -> None:
    for loss in (0.0, 1e-30, 1e30):
        sigma = torch.ones(1, requires_grad=True)
        total = balanced(torch.tensor([loss]), torch.ones(1), sigma, PRESENT[:1])
        total.backward()
        assert total.isfinite()
        assert sigma.grad is not None
        assert sigma.grad.isfinite().all()
