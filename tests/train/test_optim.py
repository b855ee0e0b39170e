"""Every trainable parameter is in exactly one group, and the groups are SPEC's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from goldiclip.config import Config, ConfigError
from goldiclip.learner import Learner
from goldiclip.train.optim import (
    build_optimizer,
    clip_gradients,
    depth_of,
    gradient_norms,
    kind_of,
    lock,
    named_gradients,
    parameter_groups,
    part_of,
    set_learning_rate,
    tower_depths,
)
from synthetic import make_batch


@pytest.fixture
def learner(full_run: Callable[..., Config]) -> Learner:
    return Learner(full_run())


def test_groups_are_a_partition(learner: Learner, full_run: Callable[..., Config]) -> None:
    groups = parameter_groups(learner, full_run("optim.layer_decay=0.7").optim)
    held = [id(parameter) for group in groups for parameter in group["params"]]
    assert len(held) == len(set(held))
    assert set(held) == {id(parameter) for parameter in learner.parameters() if parameter.requires_grad}


def test_what_takes_no_decay_is_what_the_paper_says(learner: Learner) -> None:
    """Vectors, class token and W are not decayed; σ, scale and bias have a rate of their own; the rest is decayed."""
    kinds = {name: kind_of(name, parameter) for name, parameter in learner.named_parameters()}
    assert kinds["student.image.vision.tower.cls_token"] == "no_decay"
    assert kinds["prototypes.weight"] == "no_decay"
    assert kinds["student.text.blocks.0.norm1.weight"] == "no_decay"
    assert kinds["student.image.vision.tower.pos_embed"] == "decay"
    assert kinds["student.text.token_embedding.weight"] == "decay"
    assert kinds["student.pooling.out.weight"] == "decay"
    scalars = {name for name, kind in kinds.items() if kind == "scalar"}
    assert scalars == {
        "student.scale.scale",
        "student.scale.bias",
        *(f"balance.sigma.{t}" for t in learner.config.terms),
    }


def test_groups_take_rate_and_decay_of_their_kind(learner: Learner, full_run: Callable[..., Config]) -> None:
    config = full_run("optim.lr=0.5", "optim.scalar_lr=0.25", "optim.weight_decay=0.125")
    by_kind = {group["kind"]: group for group in build_optimizer(learner, config).param_groups}
    assert [(by_kind[kind]["lr"], by_kind[kind]["weight_decay"]) for kind in ("decay", "no_decay", "scalar")] == [
        (0.5, 0.125),
        (0.5, 0.0),
        (0.25, 0.0),
    ]


def test_each_layer_learns_more_slowly_than_the_one_above_it(learner: Learner, full_run: Callable[..., Config]) -> None:
    config = full_run("optim.lr=1", "optim.scalar_lr=1", "optim.layer_decay=0.5")
    rates = {name: group["peak_lr"] for group in parameter_groups(learner, config.optim) for name in group["names"]}
    tower = "student.image.vision.tower"
    assert rates[f"{tower}.patch_embed.proj.weight"] == rates[f"{tower}.cls_token"] == 0.25
    assert rates[f"{tower}.blocks.0.mlp.fc1.weight"] == 0.5
    assert rates[f"{tower}.blocks.1.mlp.fc1.weight"] == rates[f"{tower}.norm.weight"] == 1
    assert rates["student.text.token_embedding.weight"] == 0.25
    assert rates["student.decoder.blocks.0.mlp.fc1.weight"] == rates["student.scale.scale"] == 1


def test_depths_are_read_off_the_names() -> None:
    names = [f"student.text.blocks.{i}.x" for i in range(12)] + ["student.decoder.blocks.30.x"]
    depths = tower_depths(names)
    assert depths == {"text": 12}
    assert depth_of("student.text.blocks.3.x", depths) == 8
    assert depth_of("student.decoder.blocks.3.x", depths) == 0


@pytest.mark.parametrize(
    ("towers", "frozen"), [("vision", {"vision"}), ("text", {"text"}), ("both", {"vision", "text"})]
)
def test_a_locked_tower_is_frozen_and_its_projection_is_not(learner: Learner, towers: str, frozen: set[str]) -> None:
    names = lock(learner, towers)  # type: ignore[arg-type]
    assert {part_of(name) for name in names} == frozen
    assert learner.student.image.key.weight.requires_grad
    assert learner.student.text.projection.weight.requires_grad
    held = {name for group in parameter_groups(learner, learner.config.optim) for name in group["names"]}
    assert held.isdisjoint(names)


def test_a_learner_with_nothing_to_train_is_an_error() -> None:
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(ConfigError, match="nothing to train"):
        parameter_groups(frozen, Config().optim)


def test_clipping_leaves_the_balance_alone_and_bounds_the_rest(learner: Learner) -> None:
    learner(make_batch(learner.config, 3)).total.backward()
    before = {name: gradient.clone() for name, gradient in named_gradients(learner)}
    norms = gradient_norms(learner)
    by_hand = (
        torch.stack([g.square().sum() for name, g in before.items() if not name.startswith("balance")]).sum().sqrt()
    )
    assert norms["all"] == pytest.approx(float(by_hand), rel=1e-5)
    clip_gradients(learner, norms["all"], largest=0.5)
    for name, gradient in named_gradients(learner):
        factor = 1.0 if name.startswith("balance") else 0.5 / float(by_hand)
        torch.testing.assert_close(gradient, before[name] * factor, rtol=1e-4, atol=1e-9)
    assert gradient_norms(learner)["all"] == pytest.approx(0.5, rel=1e-4)
    clip_gradients(learner, gradient_norms(learner)["all"], largest=9.0)
    assert gradient_norms(learner)["all"] == pytest.approx(0.5, rel=1e-4), "what is small enough stays"


@pytest.mark.parametrize("method", ["adamw", "muon"])
def test_a_step_told_that_it_is_bad_changes_nothing(
    method: str, learner: Learner, full_run: Callable[..., Config]
) -> None:
    """Neither a weight nor a moment nor the count: so the verdict may reach the host later than the optimiser."""
    optimizer = build_optimizer(learner, full_run(f"optim.method={method}"))
    learner(make_batch(learner.config, 3)).total.backward()
    optimizer.step()
    optimizer.found_inf = torch.tensor(1.0)  # type: ignore[attr-defined]
    weights = [parameter.detach().clone() for parameter in learner.parameters()]
    moments = [{name: value.clone() for name, value in held.items()} for held in optimizer.state.values()]
    optimizer.step()
    assert all(torch.equal(now, then) for now, then in zip(learner.parameters(), weights, strict=True))
    for now, then in zip(optimizer.state.values(), moments, strict=True):
        assert all(torch.equal(now[name], then[name]) for name in then)
    optimizer.found_inf = torch.tensor(0.0)  # type: ignore[attr-defined]
    optimizer.step()
    assert not all(torch.equal(now, then) for now, then in zip(learner.parameters(), weights, strict=True))


def test_the_schedule_scales_every_groups_own_peak(learner: Learner, full_run: Callable[..., Config]) -> None:
    optimizer = build_optimizer(learner, full_run("optim.lr=0.5", "optim.scalar_lr=0.25"))
    set_learning_rate(optimizer, 0.1)
    assert {group["kind"]: group["lr"] for group in optimizer.param_groups} == {
        "decay": 0.05,
        "no_decay": 0.05,
        "scalar": 0.025,
    }
