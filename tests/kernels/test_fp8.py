"""Products in 8 bits: near the plain ones, exact where numbers are representable, and the loss curve overlays."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from goldiclip.config import Config, ConfigError, validate
from goldiclip.kernels.fp8 import EightBitLinear, narrow_products, takes
from goldiclip.learner import Learner
from goldiclip.train.accumulate import backward
from goldiclip.train.optim import build_optimizer
from synthetic import make_batch


def products(layer: nn.Linear, x: Tensor) -> list[Tensor]:
    """What a layer says under autocast, and the gradients of its input, weight and bias."""
    x = x.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y)
    return [y, *torch.autograd.grad(y, [x, layer.weight, layer.bias], upstream)]


def both(rows: int, inputs: int, outputs: int) -> tuple[list[Tensor], list[Tensor]]:
    torch.manual_seed(0)
    layer, x = nn.Linear(inputs, outputs), torch.randn(rows, 2, inputs)
    plain = products(layer, x)
    narrow_products(tower := nn.Sequential(layer))
    assert type(tower[0]) is EightBitLinear
    return products(layer, x), plain


def test_products_and_gradients_are_near_the_plain_ones_and_in_their_precision() -> None:
    for found, plain in list(zip(*both(24, 48, 64), strict=True))[:3]:  # a bias has no product
        assert found.dtype == plain.dtype
        assert not torch.equal(found, plain)
        assert (found - plain).norm() <= 0.07 * plain.norm()


def test_sizes_that_the_library_does_not_take_run_plain() -> None:
    for found, plain in zip(*both(5, 48, 64), strict=True):
        assert torch.equal(found, plain)


def test_numbers_that_eight_bits_hold_are_exact() -> None:
    layer = EightBitLinear(16, 16, bias=False)
    whole = torch.arange(256).view(16, 16)
    layer.weight.data = (whole % 15 - 7).float()
    x = (whole % 13 - 6).float()
    layer.weight.data[0, 0], x[0, 0] = 7.0, 7.0  # scales of 64, a power of two
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x).float(), (x @ layer.weight.T).bfloat16().float())


def test_the_loss_curve_overlays_that_of_bf16(tiny: Config) -> None:
    """The tower's tokens of 16 images are multiples of 16, so that every block's products are in 8 bits."""
    batches = [make_batch(tiny, 16, seed=seed) for seed in range(2)]

    def curve(fp8: bool) -> Tensor:
        config = replace(tiny, run=replace(tiny.run, precision="bf16", fp8=fp8))
        learner = Learner(config)
        optimizer, losses = build_optimizer(learner, config), []
        for turn in range(10):
            optimizer.zero_grad()
            losses.append(backward(learner, [batches[turn % 2]]).total)
            optimizer.step()
            learner.update_teacher()
        return torch.stack(losses)

    plain, narrow = curve(False), curve(True)
    assert plain[-2:].mean() < 0.95 * plain[:2].mean()
    assert not torch.equal(plain, narrow)
    assert ((plain - narrow).abs() <= 0.02 * plain).all()


@pytest.mark.parametrize(("capability", "is_taken"), [((8, 0), False), ((8, 9), True), ((9, 0), True)])
def test_gpus_without_eight_bits_are_known(
    capability: tuple[int, int], is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    assert takes(torch.device("cuda")) == is_taken
    assert takes(torch.device("cpu"))


def test_eight_bits_without_bf16_are_refused(tiny: Config) -> None:
    with pytest.raises(ConfigError, match=r"run\.fp8 is True"):
        validate(replace(tiny, run=replace(tiny.run, precision="fp32", fp8=True)))
