"""L_sd: the loops over images and views, the kernel behind it, and the weights that only it has."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import reference
from goldiclip.config import Distill
from goldiclip.losses.distill import Prototypes, distillation, moved_centre

SMALL = Distill(prototypes=11, teacher_temperature=0.3, student_temperature=0.5)


def inputs(
    config: Distill,
    sizes: tuple[int, int, int, int, int] = (2, 3, 2, 4, 5),
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> tuple[Tensor, ...]:
    """Student (G, B, C, D), W, teacher (G, B, V, D), W of the teacher, centres (G, P)."""
    num_pools, num_images, num_global, num_local, width = sizes
    rng = torch.Generator().manual_seed(seed)
    shapes = [
        (num_pools, num_images, num_local, width),
        (config.prototypes, width),
        (num_pools, num_images, num_global, width),
        (config.prototypes, width),
        (num_pools, config.prototypes),
    ]
    return tuple(torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype) for shape in shapes)


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1, 4), (2, 3, 2, 4, 5), (2, 2, 1, 6, 3)])
@pytest.mark.parametrize("is_normalized", [True, False])
def test_the_loss_is_the_loop_over_images_and_views(sizes: tuple[int, int, int, int, int], is_normalized: bool) -> None:
    config = replace(SMALL, normalize=is_normalized)
    student, weight, teacher, teacher_weight, centres = inputs(config, sizes)
    found = distillation(student, weight, teacher, teacher_weight, centres, config)
    temperatures = (config.student_temperature, config.teacher_temperature)
    for pool in range(len(student)):
        expected = reference.distillation(
            student[pool], weight, teacher[pool], teacher_weight, centres[pool], temperatures, is_normalized
        )
        torch.testing.assert_close(found.cross_entropy[pool], expected)
        expected = reference.mean_logits(teacher[pool], teacher_weight, is_normalized)
        torch.testing.assert_close(found.mean_logits[pool] / student.shape[1], expected)
    torch.testing.assert_close(found.total, found.cross_entropy.sum())


def test_prototypes_of_unit_length_are_an_option() -> None:
    config = replace(SMALL, prototype_norm="unit")
    student, weight, teacher, teacher_weight, centres = inputs(config)
    found = distillation(student, weight * 3, teacher, teacher_weight * 5, centres, config)
    unit, unit_teacher = (w / w.norm(dim=1, keepdim=True) for w in (weight, teacher_weight))
    expected = distillation(student, unit, teacher, unit_teacher, centres, SMALL)
    torch.testing.assert_close(found.total, expected.total)
    torch.testing.assert_close(found.mean_logits, expected.mean_logits)


def test_a_value_computed_by_hand() -> None:
    """Two prototypes along the axes, both temperatures 1, teacher and student on the first axis."""
    config = Distill(prototypes=2, teacher_temperature=1.0, student_temperature=1.0)
    axis = torch.tensor([[[[1.0, 0.0]]]])
    found = distillation(axis * 7, torch.eye(2), axis, torch.eye(2), torch.zeros(1, 2), config)
    p = math.e / (math.e + 1)
    entropy = -p * math.log(p) - (1 - p) * math.log(1 - p)
    assert found.total.item() == pytest.approx(entropy)
    assert found.entropy.item() == pytest.approx(entropy)
    assert found.mean_logits.tolist() == [[1.0, 0.0]]
    centred = distillation(axis, torch.eye(2), axis, torch.eye(2), torch.tensor([[1.0, 0.0]]), config)
    assert centred.entropy.item() == pytest.approx(math.log(2))


def test_cross_entropy_is_at_least_the_teachers_entropy_and_equal_for_equal_distributions() -> None:
    student, weight, teacher, teacher_weight, centres = inputs(SMALL)
    found = distillation(student, weight, teacher, teacher_weight, centres, SMALL)
    assert (found.cross_entropy > found.entropy).all()
    same = replace(SMALL, teacher_temperature=SMALL.student_temperature)
    found = distillation(teacher, weight, teacher[:, :, :1], weight, torch.zeros_like(centres), same)
    alone = distillation(teacher[:, :, :1], weight, teacher[:, :, :1], weight, torch.zeros_like(centres), same)
    torch.testing.assert_close(alone.cross_entropy, alone.entropy)
    assert (found.cross_entropy > alone.cross_entropy).all()


def test_the_order_of_images_views_and_prototypes_does_not_matter() -> None:
    student, weight, teacher, teacher_weight, centres = inputs(SMALL)
    images, views, prototypes = torch.tensor([2, 0, 1]), torch.tensor([3, 1, 0, 2]), torch.randperm(11)
    before = distillation(student, weight, teacher, teacher_weight, centres, SMALL)
    after = distillation(
        student[:, images][:, :, views],
        weight[prototypes],
        teacher[:, images].flip(2),
        teacher_weight[prototypes],
        centres[:, prototypes],
        SMALL,
    )
    torch.testing.assert_close(after.cross_entropy, before.cross_entropy)
    torch.testing.assert_close(after.mean_logits, before.mean_logits[:, prototypes])


def test_the_gradient_is_that_of_the_value_and_the_teacher_gets_none() -> None:
    student, weight, teacher, teacher_weight, centres = inputs(SMALL, (2, 2, 2, 3, 4))
    leaves = [tensor.requires_grad_() for tensor in (student, weight, teacher, teacher_weight)]
    for normalize in (True, False):
        config = replace(SMALL, normalize=normalize)
        assert torch.autograd.gradcheck(
            lambda s, w, c=config: distillation(s, w, teacher, teacher_weight, centres, c).total, (student, weight)
        )
    distillation(*leaves, centres, SMALL).total.backward()
    assert teacher.grad is None or not teacher.grad.any()
    assert teacher_weight.grad is None


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_half_precision_stays_finite_at_any_size(size: float) -> None:
    config = replace(SMALL, normalize=False, teacher_temperature=0.04, student_temperature=0.1)
    student, weight, teacher, teacher_weight, centres = inputs(config, dtype=torch.bfloat16)
    student = (student * size).requires_grad_()
    found = distillation(student, weight, teacher * size, teacher_weight, centres.float(), config)
    found.total.backward()
    assert found.total.dtype == torch.float32
    for number in (found.total, found.entropy, found.mean_logits, student.grad):
        assert number is not None
        assert number.isfinite().all()


def test_a_zero_embedding_is_no_nan() -> None:
    student, weight, teacher, teacher_weight, centres = inputs(SMALL)
    student = torch.zeros_like(student).requires_grad_()
    found = distillation(student, weight, torch.zeros_like(teacher), teacher_weight, centres, SMALL)
    found.total.backward()
    assert found.total.isfinite()
    assert student.grad is not None
    assert student.grad.isfinite().all()


def test_centres_move_by_their_momentum() -> None:
    centre, mean = torch.tensor([1.0, -1.0]), torch.tensor([3.0, 1.0])
    torch.testing.assert_close(moved_centre(centre, mean, 0.9), torch.tensor([1.2, -0.8]))


def test_prototypes_start_equal_with_unit_rows_on_average_and_a_seed_decides_them() -> None:
    prototypes = Prototypes(32, 2, Distill(prototypes=4096))
    assert torch.equal(prototypes.weight, prototypes.teacher_weight)
    assert prototypes.weight.std().item() == pytest.approx(32**-0.5, rel=0.02)
    assert not prototypes.centres.any()
    assert prototypes.centres.dtype == torch.float32
    assert not prototypes.teacher_weight.requires_grad
    other = Prototypes(32, 2, Distill(prototypes=4096))
    assert torch.equal(other.weight, prototypes.weight)
    other.reset_parameters(seed=1)
    assert not torch.equal(other.weight, prototypes.weight)


def test_at_the_papers_size_each_cross_entropy_starts_near_that_of_guessing() -> None:
    """65,536 prototypes, width 512: ln P + 1/(2·D·τ²) with independent views, less their covariance with equal ones."""
    config = Distill()
    prototypes = Prototypes(512, 1, config)
    rng = torch.Generator().manual_seed(0)
    teacher = torch.randn(1, 4, 1, 512, generator=rng) * 5
    strangers = torch.randn(1, 4, 2, 512, generator=rng) * 5
    with torch.no_grad():
        apart = prototypes(strangers, teacher).cross_entropy.item() / 8
        same = prototypes(teacher, teacher).cross_entropy.item() / 4
    spread = 1 / (2 * 512 * config.student_temperature**2)
    assert apart == pytest.approx(math.log(65_536) + spread, abs=0.03)
    covariance = 1 / (512 * config.student_temperature * config.teacher_temperature)
    assert same == pytest.approx(math.log(65_536) + spread - covariance, abs=0.03)
    assert 10.7 < same < apart < 11.2
