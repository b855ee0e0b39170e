"""Muon: matrices inside towers move by orthogonal momentum, everything else as AdamW moves it."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from goldiclip.config import Config
from goldiclip.learner import Learner
from goldiclip.train.guard import blame
from goldiclip.train.muon import MOMENTUM, RMS, Muon, newton_schulz, orthogonal
from goldiclip.train.optim import build_optimizer, kind_of, parameter_groups
from synthetic import make_batch


def after_a_step(config: Config) -> tuple[Learner, torch.optim.Optimizer]:
    learner = Learner(config)
    optimizer = build_optimizer(learner, config)
    learner(make_batch(config, 3)).total.backward()
    optimizer.step()
    learner.zero_grad()
    return learner, optimizer


def polar(matrix: Tensor) -> Tensor:
    """U·Vᵀ, exactly."""
    u, _, vh = torch.linalg.svd(matrix, full_matrices=False)
    return u @ vh


def newton_schulz_in_loops(matrix: Tensor) -> Tensor:
    """One matrix, one singular value at a time: five times x → 3.4445·x − 4.775·x³ + 2.0315·x⁵."""
    u, s, vh = torch.linalg.svd(matrix / matrix.norm(), full_matrices=False)
    for i in range(len(s)):
        for _ in range(5):
            s[i] = 3.4445 * s[i] - 4.775 * s[i] ** 3 + 2.0315 * s[i] ** 5
    return u @ s.diag() @ vh


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (9, 2), (1, 5), (16, 64)])
def test_the_products_are_the_polynomial_of_every_singular_value(shape: tuple[int, int]) -> None:
    matrices = torch.randn(3, *shape, dtype=torch.float64)
    found = newton_schulz(matrices)
    for one, matrix in zip(found, matrices, strict=True):
        torch.testing.assert_close(one, newton_schulz_in_loops(matrix), rtol=1e-9, atol=1e-9)
        values = torch.linalg.svdvals(one)
        assert values.max() < 1.3
        assert (one * polar(matrix)).sum() > 0.65 * min(shape), "every direction is followed"


def test_matrices_that_lie_in_one_weight_are_taken_apart() -> None:
    stacked, alone = torch.randn(6, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    found = orthogonal([stacked, alone], [3, 1])
    each = [orthogonal([part], [1])[0] for part in (*stacked.split(2), alone)]
    torch.testing.assert_close(found[0], torch.cat(each[:3]))
    torch.testing.assert_close(found[1], each[3])
    assert not torch.allclose(found[0], orthogonal([stacked], [1])[0])


def test_a_matrix_without_a_gradient_of_its_own_stays_where_it_is() -> None:
    found = orthogonal([torch.zeros(3, 5)], [1])
    assert torch.equal(found[0], torch.zeros(3, 5))


def test_three_steps_are_torchs_own() -> None:
    """But for torch's iterating in bfloat16."""
    ours, theirs = (nn.Linear(24, 16, bias=False) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    group = {"params": [ours.weight], "names": ["tower.fc1.weight"], "kind": "matrix", "lr": 0.1, "weight_decay": 0.2}
    optimizer = Muon([group], lr=0.1)
    optimizer.state[ours.weight] = {"momentum": torch.zeros_like(ours.weight)}
    reference = torch.optim.Muon(
        [theirs.weight], lr=0.1, weight_decay=0.2, momentum=MOMENTUM, adjust_lr_fn="match_rms_adamw"
    )
    start = ours.weight.detach().clone()
    for _ in range(3):
        gradient = torch.randn(16, 24)
        ours.weight.grad, theirs.weight.grad = gradient.clone(), gradient
        optimizer.step()
        reference.step()
        assert torch.equal(ours.weight.grad, gradient), "whoever asks what went wrong finds it"
    moved = (theirs.weight - start).norm()
    assert moved > 0.1 * start.norm()
    assert (ours.weight - theirs.weight).norm() < 0.02 * moved


def test_a_matrix_that_a_step_says_nothing_of_stays_where_it_is(full_run: Callable[..., Config]) -> None:
    """Its momentum fades, and made orthogonal would not: a task that is absent for long would drive its layers away."""
    learner, optimizer = after_a_step(full_run("optim.method=muon"))
    learner(make_batch(learner.config, 3, tasks=[()] * 3)).total.backward()
    matrices = [p for group in optimizer.param_groups if group["kind"] == "matrix" for p in group["params"]]
    silent = [parameter for parameter in matrices if not parameter.grad.any()]
    spoken = [parameter for parameter in matrices if parameter.grad.any()]
    assert silent
    assert spoken
    before = {id(parameter): parameter.detach().clone() for parameter in matrices}
    optimizer.step()
    assert all(torch.equal(parameter, before[id(parameter)]) for parameter in silent)
    assert not any(torch.equal(parameter, before[id(parameter)]) for parameter in spoken)


def test_an_update_is_as_large_as_one_of_adamw() -> None:
    update = orthogonal([torch.randn(64, 256, dtype=torch.float64)], [1])[0]
    assert update.square().mean().sqrt() == pytest.approx(RMS, rel=0.25)


def test_what_is_a_matrix_of_a_tower(full_run: Callable[..., Config]) -> None:
    learner = Learner(full_run())
    kinds = {name: kind_of(name, parameter, "muon") for name, parameter in learner.named_parameters()}
    tower = "student.image.vision.tower"
    for name in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"):
        assert kinds[f"{tower}.blocks.0.{name}.weight"] == kinds[f"student.text.blocks.1.{name}.weight"] == "matrix"
    for name in ("image.key", "image.value", "text.projection", "pooling.query", "decoder.blocks.0.cross.kv"):
        assert kinds[f"student.{name}.weight"] == "matrix"
    for name in (f"{tower}.patch_embed.proj.weight", f"{tower}.pos_embed", "student.text.token_embedding.weight"):
        assert kinds[name] == "decay"
    assert kinds["student.head.weight"] == kinds["student.text.position_embedding"] == "decay"
    assert kinds["prototypes.weight"] == "no_decay"
    assert "matrix" not in {kind_of(name, parameter) for name, parameter in learner.named_parameters()}


def test_groups_are_a_partition_with_muon_too(full_run: Callable[..., Config]) -> None:
    config = full_run("optim.method=muon", "optim.layer_decay=0.5", "optim.weight_decay=0.3")
    learner = Learner(config)
    groups = parameter_groups(learner, config.optim)
    held = [id(parameter) for group in groups for parameter in group["params"]]
    assert len(held) == len(set(held))
    assert set(held) == {id(parameter) for parameter in learner.parameters() if parameter.requires_grad}
    assert {group["weight_decay"] for group in groups if group["kind"] == "matrix"} == {0.3}
    assert {group["peak_lr"] for group in groups if group["kind"] == "matrix"} >= {config.optim.lr, config.optim.lr / 2}


def test_what_is_no_matrix_moves_as_adamw_moves_it(full_run: Callable[..., Config]) -> None:
    learners = {}
    for method in ("adamw", "muon"):
        config = full_run(f"optim.method={method}")
        learner = learners[method] = Learner(config)
        optimizer = build_optimizer(learner, config)
        learner(make_batch(config, 3)).total.backward()
        optimizer.step()
    for (name, ours), theirs in zip(learners["muon"].named_parameters(), learners["adamw"].parameters(), strict=True):
        if ours.requires_grad:
            is_same = torch.equal(ours, theirs)
            assert is_same == (kind_of(name, ours, "muon") != "matrix"), name


def test_a_step_that_is_bad_moves_nothing_and_leaves_what_went_wrong_to_be_seen(
    full_run: Callable[..., Config],
) -> None:
    learner, optimizer = after_a_step(full_run("optim.method=muon"))
    batch = make_batch(learner.config, 3)
    learner(batch).total.backward()
    for parameter in learner.parameters():
        if parameter.grad is not None:
            parameter.grad.fill_(math.nan)
    optimizer.found_inf = torch.tensor(1.0)  # type: ignore[attr-defined]
    weights = [parameter.detach().clone() for parameter in learner.parameters()]
    optimizer.step()
    assert all(torch.equal(now, then) for now, then in zip(learner.parameters(), weights, strict=True))
    assert blame(learner, batch).startswith("gradients of")
