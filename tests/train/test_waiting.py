"""Nothing in a step asks the device for a number, until all its work is on its way and its numbers are read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from goldiclip.config import Config
from goldiclip.learner import Learner
from goldiclip.train.accumulate import backward, split
from goldiclip.train.measure import Numbers
from goldiclip.train.optim import build_optimizer, clip_gradients, gradient_norms
from goldiclip.types import Alone
from synthetic import make_batch

aten = torch.ops.aten
# What a device cannot do without telling the host a number: values, and sizes that follow from values.
ASKING = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.equal.default,
}


class Asked(AssertionError):
    pass


class Silence(TorchDispatchMode):
    """Refuses every operation that would make a host wait for its device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        by_mask = func is aten.index.Tensor and any(one is not None and one.dtype == torch.bool for one in args[1])
        by_count = func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is None
        if func in ASKING or by_mask or by_count:
            raise Asked(str(func))
        return func(*args, **kwargs)


@contextmanager
def as_on_a_device() -> Iterator[None]:
    """Models check no values, as on CUDA, and nothing may ask for one."""

    def refuse(self: Tensor) -> None:
        raise Asked("tolist")

    with ExitStack() as stack:
        for user in ("layers", "text", "decoder"):
            stack.enter_context(patch(f"goldiclip.model.{user}.waits", lambda tensor: True))
        stack.enter_context(patch("goldiclip.exchange._check_values", lambda batch: None))
        stack.enter_context(patch.object(Tensor, "tolist", refuse))
        stack.enter_context(Silence())
        yield


@pytest.mark.parametrize("micro_batch", [0, 2], ids=["whole", "accumulated"])
@pytest.mark.parametrize(("negatives", "method"), [("one", "adamw"), ("all", "adamw"), ("one", "muon")])
def test_a_step_asks_for_nothing(tiny: Config, micro_batch: int, negatives: str, method: Any) -> None:
    retrieval = replace(tiny.objective.retrieval, negatives=negatives)
    config = replace(tiny, objective=replace(tiny.objective, retrieval=retrieval))
    config = replace(config, optim=replace(config.optim, method=method))
    learner = Learner(config).train()
    optimizer = build_optimizer(learner, config)
    # every task somewhere, not everywhere; counted before they leave the host
    batches = [piece.to("cpu") for piece in split(make_batch(config, 5), micro_batch)]
    with as_on_a_device():
        losses = backward(learner, batches)
        norms = gradient_norms(learner)
        numbers = Numbers(learner, losses, norms, learner.ranks)
        clip_gradients(learner, norms["all"], 1.0)
        learner.student.scale.clamp_()
        learner.update_teacher()
    optimizer.step()
    assert numbers.read()["total"] > 0


ASKS = (lambda x: x.sum().item(), lambda x: x[x > 0], lambda x: x.nonzero(), lambda x: x.tolist())


@pytest.mark.parametrize("ask", ASKS)
def test_what_would_wait_is_noticed(ask: Any) -> None:
    with pytest.raises(Asked), as_on_a_device():
        ask(torch.arange(3))


class _Arriving(torch.autograd.Function):
    """A copy that holds nothing yet."""

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        return torch.full_like(local, math.nan)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> Tensor:
        return upstream[0]


class Slow(Alone):
    """Rows arrive when they are waited for, and are poison before."""

    def __init__(self) -> None:
        self.arriving: list[tuple[Tensor, Tensor]] = []

    def begin_gather(self, local: Tensor) -> Tensor:
        gathered = _Arriving.apply(local)
        self.arriving.append((gathered, local))
        return gathered

    def wait(self) -> None:
        while self.arriving:
            gathered, local = self.arriving.pop()
            gathered.data.copy_(local.detach())


@pytest.mark.parametrize("micro_batch", [0, 2], ids=["whole", "accumulated"])
def test_texts_travel_while_images_are_encoded(tiny: Config, micro_batch: int) -> None:
    """Nothing reads the other ranks' texts before they are waited for, and by then the images are encoded."""
    learner = Learner(tiny).train()
    batches = [piece.to("cpu") for piece in split(make_batch(tiny, 4), micro_batch)]
    alone = backward(learner, batches).total
    gradients = [p.grad.clone() for p in learner.parameters() if p.grad is not None]
    learner.zero_grad()
    learner.ranks, under_way = Slow(), []
    encode = learner.student.encode_image

    def watched(images: Tensor) -> Any:
        under_way.append(len(learner.ranks.arriving))
        return encode(images)

    with patch.object(learner.student, "encode_image", watched):
        assert torch.equal(backward(learner, batches).total, alone)
    assert under_way[0] == 1
    assert not learner.ranks.arriving
    again = [p.grad for p in learner.parameters() if p.grad is not None]
    assert all(torch.equal(one, other) for one, other in zip(again, gradients, strict=True))
