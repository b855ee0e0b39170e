"""The chunked cross-entropies equal their plain twins, in value and gradient, at any size and block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from goldiclip.kernels import products
from goldiclip.kernels.soft_cross_entropy import Temperatures, soft_cross_entropy, soft_cross_entropy_plain
from goldiclip.kernels.token_cross_entropy import token_cross_entropy, token_cross_entropy_plain

TEMPERATURES = Temperatures(student=0.5, teacher=0.2)


@pytest.fixture(params=[1, 64, 2**22], ids=["a row at a time", "small blocks", "one block"])
def block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setitem(products.BLOCK_ELEMENTS, "cpu", request.param)
    return request.param


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def gradients(function: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, ...]:
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    value = function(*leaves)
    value.sum().backward()
    return value.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize(("tokens", "width", "vocabulary"), [(0, 4, 5), (1, 1, 1), (7, 5, 13), (33, 8, 17)])
def test_token_cross_entropy_is_the_plain_one(tokens: int, width: int, vocabulary: int) -> None:
    targets = torch.randint(vocabulary, (tokens,), generator=torch.Generator().manual_seed(1))
    importance = torch.linspace(-1, 2, tokens, dtype=torch.float64)  # every token has its own upstream gradient

    def run(function: Callable[..., Tensor]) -> tuple[Tensor, ...]:
        return gradients(
            lambda h, w: function(h, w, targets) * importance, random(tokens, width), random(vocabulary, width)
        )

    for found, expected in zip(run(token_cross_entropy), run(token_cross_entropy_plain), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 3, 2, 4), (1, 5, 1, 6)])
def test_soft_cross_entropy_is_the_plain_one(sizes: tuple[int, int, int, int]) -> None:
    num_pools, num_images, num_global, num_local = sizes
    student, teacher = random(num_pools, num_images, num_local, 5), random(num_pools, num_images, num_global, 5, seed=1)
    weight, teacher_weight, centres = random(13, 5, seed=2), random(13, 5, seed=3), random(num_pools, 13, seed=4)

    def run(function: Callable[..., Any]) -> tuple[Tensor, ...]:
        return gradients(
            lambda s, w: function(s, w, teacher, teacher_weight, centres, TEMPERATURES).total * 3, student, weight
        )

    for found, expected in zip(run(soft_cross_entropy), run(soft_cross_entropy_plain), strict=True):
        torch.testing.assert_close(found, expected)
    arguments = (student, weight, teacher, teacher_weight, centres, TEMPERATURES)
    for found, expected in zip(soft_cross_entropy(*arguments), soft_cross_entropy_plain(*arguments), strict=True):
        torch.testing.assert_close(found, expected)


def test_gradients_pass_the_numerical_check() -> None:
    targets = torch.tensor([0, 2, 1])
    inputs = (random(3, 4).requires_grad_(), random(5, 4).requires_grad_())
    assert torch.autograd.gradcheck(lambda h, w: token_cross_entropy(h, w, targets), inputs)
    teacher, teacher_weight, centres = random(2, 2, 2, 4), random(5, 4), random(2, 5)
    assert torch.autograd.gradcheck(
        lambda s, w: soft_cross_entropy(s, w, teacher, teacher_weight, centres, TEMPERATURES).total,
        (random(2, 2, 3, 4).requires_grad_(), inputs[1]),
    )


def test_a_frozen_side_gets_no_gradient_and_the_other_its_own() -> None:
    hidden, weight, targets = random(3, 4), random(5, 4), torch.tensor([0, 2, 1])
    _, both_hidden, both_weight = gradients(lambda h, w: token_cross_entropy(h, w, targets), hidden, weight)
    _, alone = gradients(lambda h: token_cross_entropy(h, weight, targets), hidden)
    torch.testing.assert_close(alone, both_hidden)
    _, alone = gradients(lambda w: token_cross_entropy(hidden, w, targets), weight)
    torch.testing.assert_close(alone, both_weight)


def test_autocast_computes_in_half_precision_and_answers_in_float32() -> None:
    hidden, weight, targets = random(6, 8), random(9, 8), torch.arange(6)
    exact = gradients(lambda h, w: token_cross_entropy(h, w, targets), hidden, weight)
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(lambda h, w: token_cross_entropy(h, w, targets), hidden.float(), weight.float())
    for value, expected in zip(found, exact, strict=True):
        assert value.dtype == torch.float32
        assert not torch.equal(value, expected.float())
        torch.testing.assert_close(value.double(), expected, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("size", [1e-3, 1e3])
def test_half_precision_stays_finite_at_extreme_logits(size: float) -> None:
    targets = torch.tensor([0, 4, 2])
    found = gradients(
        lambda h, w: token_cross_entropy(h, w, targets),
        random(3, 8, dtype=torch.bfloat16) * size,
        random(5, 8, dtype=torch.bfloat16),
    )
    assert found[0].dtype == torch.float32
    assert all(tensor.isfinite().all() for tensor in found)


def test_whole_logits_are_never_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor made on the way is larger than a block, the weight or the inputs."""
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                largest = max(largest, result.numel())
            return result

    monkeypatch.setitem(products.BLOCK_ELEMENTS, "cpu", 4_000)
    with Watch():
        gradients(lambda h, w: token_cross_entropy(h, w, torch.arange(200)), random(200, 4), random(1000, 4))
        gradients(
            lambda s, w: (
                soft_cross_entropy(s, w, random(2, 50, 1, 4), random(1000, 4), random(2, 1000), TEMPERATURES).total
            ),
            random(2, 50, 2, 4),
            random(1000, 4),
        )
    assert largest <= 4_000  # the logits of all tokens would be 200,000
