"""The learner: its terms are the equations on the model's own numbers; what a recipe lacks is neither built nor run."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import reference
from goldiclip import recipes
from goldiclip.config import Config, resolve
from goldiclip.exchange import check
from goldiclip.learner import Learner
from goldiclip.losses.start import expected_cross_entropy, expected_retrieval, expected_start, expected_token_loss
from goldiclip.train.accumulate import backward, split
from goldiclip.types import DECODER_TASKS, Batch, Losses, Texts
from synthetic import make_batch

DOUBLE = torch.float64


def small(config: Config, **objective: Any) -> Config:
    """A tiny configuration with a vocabulary to match."""
    model = replace(config.model, text=replace(config.model.text, vocabulary=320))
    return resolve(replace(config, model=model, objective=replace(config.objective, **objective)))


@pytest.fixture
def config(tiny: Config) -> Config:
    return small(tiny)


def run(config: Config, num_images: int = 4, **options: Any) -> tuple[Learner, Batch, Losses]:
    learner = Learner(config).to(DOUBLE)
    batch = make_batch(config, num_images, dtype=DOUBLE, **options)
    return learner, batch, learner(batch)


# --- each term is its equation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("negatives", ["one", "all"])
@pytest.mark.parametrize("equal_texts", ["negative", "ignore"])
def test_retrieval_is_the_loops_over_the_models_scores(config: Config, negatives: Any, equal_texts: Any) -> None:
    retrieval = replace(config.objective.retrieval, negatives=negatives, equal_texts=equal_texts)
    learner, batch, losses = run(small(config, retrieval=retrieval), equal_captions=True)
    student, num_captions = learner.student, batch.captions_per_image
    image, texts = student.encode_image(batch.global_views[:, 0]), student.encode_text(batch.captions)
    hashes = batch.caption_hash.tolist() if equal_texts == "ignore" else None
    ta, tc = (student.score(image, texts, mode=mode) for mode in ("ta", "tc"))
    expected = {"ret/ta": reference.text_agnostic(ta, num_captions, hashes)}
    if negatives == "one":
        expected["ret/tc"] = reference.text_conditioned(tc, num_captions, batch.shared_caption.tolist(), hashes)
    else:
        expected["ret/tc"] = reference.text_conditioned_all(tc, num_captions, hashes)
    for name, value in expected.items():
        torch.testing.assert_close(losses.metrics[name], value)
    torch.testing.assert_close(losses.terms["ret"], expected["ret/ta"] + expected["ret/tc"])


@pytest.mark.parametrize("queries", ["shared", "all"])
def test_distillation_is_the_loop_over_captions_and_views(config: Config, queries: Any) -> None:
    """The mean over captions is taken on attention weights; here every view is pooled by every caption on its own."""
    distill = replace(config.objective.distill, queries=queries)
    learner, batch, losses = run(small(config, distill=distill), 3, num_global=2)
    assert learner.teacher is not None
    assert learner.prototypes is not None
    with torch.no_grad():
        for parameter in (*learner.teacher.parameters(), learner.prototypes.teacher_weight, learner.prototypes.centres):
            parameter += 0.02 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)
    losses = learner(batch)
    texts = learner.student.encode_text(batch.captions).embedding.detach()
    rows = [i * batch.captions_per_image + int(k) for i, k in enumerate(batch.shared_caption)]
    texts = texts if queries == "all" else texts[rows]
    prototypes, temperatures = learner.prototypes, (distill.student_temperature, distill.teacher_temperature)
    weights = (prototypes.weight, prototypes.teacher_weight)
    student = views_by_loops(learner.student, batch.local_views, texts)
    teacher = views_by_loops(learner.teacher, batch.global_views, texts)
    expected = {
        pool: reference.distillation(student[pool], weights[0], teacher[pool], weights[1], centre, temperatures) / 3
        for pool, centre in zip(("ta", "tc"), prototypes.centres, strict=True)
    }
    for pool, value in expected.items():
        torch.testing.assert_close(losses.metrics[f"sd/{pool}"], value)
    torch.testing.assert_close(losses.terms["sd"], expected["ta"] + expected["tc"])


def views_by_loops(encoder: Any, views: Tensor, texts: Tensor) -> dict[str, Tensor]:
    """(B, views, D) per pool: the mean over captions of each view's conditioned embeddings, one by one."""
    whole, conditioned = [], []
    for image in views:
        embedding, keys, values = encoder.image(image)
        whole.append(embedding)
        means = [
            torch.stack([reference.pooled_by_loops(encoder.pooling, text, key, value)[0] for text in texts]).mean(0)
            for key, value in zip(keys, values, strict=True)
        ]
        conditioned.append(torch.stack(means))
    return {"ta": torch.stack(whole), "tc": torch.stack(conditioned)}


def test_token_losses_are_the_loop_over_target_tokens(config: Config) -> None:
    learner, batch, losses = run(config)
    student = learner.student
    assert student.head is not None
    image = student.encode_image(batch.global_views[:, 0])
    logits = student.head(student.decode(batch.task_texts, image, batch.task_owner))
    assert batch.task_texts.target_start is not None
    starts, tasks = batch.task_texts.target_start.tolist(), batch.task.tolist()
    expected = reference.task_losses(logits, batch.task_texts.rows(), starts, tasks, len(DECODER_TASKS))
    for task, value in zip(DECODER_TASKS, expected, strict=True):
        torch.testing.assert_close(losses.terms[task], value)


def test_the_total_is_the_balance_of_the_terms(config: Config) -> None:
    learner, batch, _ = run(config)
    with torch.no_grad():
        for i, term in enumerate(config.terms):
            learner.balance.sigma[term].fill_(0.5 + 0.2 * i)
    losses = learner(batch)
    sigmas = [0.5 + 0.2 * i for i in range(len(config.terms))]
    expected = reference.balanced([v.item() for v in losses.terms.values()], [1, 2, 1, 1, 1, 1], sigmas)
    assert list(losses.terms) == ["ret", "cap", "ref", "grd", "vqa", "sd"]
    assert losses.total.item() == pytest.approx(expected)
    assert losses.metrics["weight/cap"].item() == pytest.approx(2 / sigmas[1] ** 2)


def test_padding_the_batch_differently_changes_nothing(config: Config) -> None:
    """Texts lie end to end; a longer `max_length` only makes the padded backend's rows longer."""
    learner, batch, losses = run(config)
    longer = replace(
        batch,
        captions=replace(batch.captions, max_length=batch.captions.max_length + 9),
        task_texts=replace(batch.task_texts, max_length=batch.task_texts.max_length + 7),
    )
    torch.testing.assert_close(learner(longer).total, losses.total)


def test_shuffling_the_images_changes_nothing(config: Config) -> None:
    learner, batch, losses = run(config)
    order = [2, 0, 3, 1]
    parts = [batch.slice(i, i + 1) for i in order]
    shuffled = replace(
        batch,
        **{
            name: torch.cat([getattr(part, name) for part in parts])
            for name in ("global_views", "local_views", "caption_hash", "shared_caption", "task")
        },
        task_owner=torch.cat([part.task_owner + i for i, part in enumerate(parts)]),
        captions=Texts.cat([part.captions for part in parts]),
        task_texts=Texts.cat([part.task_texts for part in parts]),
    )
    found = learner(shuffled)
    for term, value in losses.terms.items():
        torch.testing.assert_close(found.terms[term], value)


def test_stored_views_are_rendered_and_float_ones_taken_as_they_are(config: Config) -> None:
    from goldiclip.data.views import render

    learner, batch = Learner(config), make_batch(config, 2)
    stored = replace(
        batch,
        global_views=torch.randint(0, 256, batch.global_views.shape, dtype=torch.uint8),
        local_views=torch.randint(0, 256, batch.local_views.shape, dtype=torch.uint8),
    )
    rendered = replace(stored, global_views=render(stored.global_views), local_views=render(stored.local_views))
    torch.testing.assert_close(learner(stored).total, learner(rendered).total)


# --- what a recipe lacks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", list(recipes.VARIANTS))
def test_what_a_recipe_lacks_is_not_built_and_everything_built_is_trained(variant: str) -> None:
    config = small(recipes.recipe(f"tiny/{variant}"))
    tasks = [config.decoder_tasks] * 3
    learner, _, losses = run(config, 3, tasks=tasks)
    losses.total.backward()
    untrained = [name for name, p in learner.named_parameters() if p.requires_grad and p.grad is None]
    assert untrained == []
    has_sd, has_tasks = "sd" in config.terms, bool(config.decoder_tasks)
    assert (learner.teacher is not None) == (learner.prototypes is not None) == has_sd
    assert (learner.student.decoder is not None) == (learner.student.head is not None) == has_tasks
    assert (learner.student.pooling is not None) == config.pools_text
    assert set(learner.balance.sigma) == (set(config.terms) if config.objective.balance == "learned" else set())
    assert set(losses.terms) == set(config.terms)
    if has_sd and not config.objective.distill.text_conditioned:
        assert learner.teacher is not None
        assert learner.teacher.pooling is None
        assert learner.teacher.image.value is None


def test_views_that_no_term_needs_are_never_looked_at() -> None:
    config = small(recipes.recipe("tiny/ca"))
    learner, batch = Learner(config), make_batch(config, 3, tasks=[()] * 3)
    poisoned = replace(batch, local_views=torch.full((3, 2, 3, 16, 16), math.nan))
    assert learner(poisoned).total.isfinite()


def test_flair_is_the_mean_of_its_two_losses() -> None:
    _, _, losses = run(small(recipes.recipe("tiny/flair")), tasks=[()] * 4)
    torch.testing.assert_close(losses.total, (losses.metrics["ret/ta"] + losses.metrics["ret/tc"]) / 2)


@pytest.mark.parametrize("absent", [("vqa",), ("cap", "ref", "grd", "vqa")])
def test_a_task_absent_from_the_step_is_silent_and_its_parameters_get_zeros(
    config: Config, absent: tuple[str, ...]
) -> None:
    tasks = [tuple(task for task in DECODER_TASKS if task not in absent)] * 3
    learner, _, losses = run(config, 3, tasks=tasks)
    losses.total.backward()
    assert not set(absent) & set(losses.terms)
    for task in absent:
        assert learner.balance.sigma[task].grad.item() == 0
    assert all(parameter.grad is not None for parameter in learner.parameters() if parameter.requires_grad)
    if len(absent) == 4:
        assert learner.student.head is not None
        assert not learner.student.head.weight.grad.any()
    expected = sum(
        weight * losses.terms[term] + 1
        for term, weight in {"ret": 1, "cap": 2, "ref": 1, "grd": 1, "vqa": 1, "sd": 1}.items()
        if term in losses.terms
    )
    torch.testing.assert_close(losses.total, expected)


# --- teacher and centres ----------------------------------------------------------------------------------------------


def test_teacher_and_centres_follow_once_per_step(config: Config) -> None:
    learner, batch, losses = run(config, 3, num_global=2)
    assert learner.teacher is not None
    assert learner.prototypes is not None
    with torch.no_grad():
        for parameter in learner.student.parameters():
            parameter += 0.1
    students = dict(learner.student.named_parameters())
    before = {name: value.clone() for name, value in learner.teacher.named_parameters()}
    texts = learner.encode_texts(batch)
    losses = learner(batch)
    step = learner.exchange([batch], texts)
    with torch.no_grad():
        logits = learner.prototypes(
            learner.pools(learner.student, batch.local_views, step.embedding, step),
            learner.pools(learner.teacher, batch.global_views, step.embedding, step),
        ).mean_logits
    learner.update_teacher()
    momentum = config.objective.distill.momentum
    for name, value in learner.teacher.named_parameters():
        torch.testing.assert_close(value, momentum * before[name] + (1 - momentum) * students[name])
    torch.testing.assert_close(learner.prototypes.centres, 0.1 * logits / 3)
    assert losses.total.isfinite()
    with pytest.raises(RuntimeError, match="once after each step"):
        learner.update_teacher()


def test_a_bad_step_leaves_no_trace_in_teacher_and_centres(config: Config) -> None:
    learner, good, _ = run(config, 3)
    twin = Learner(config).to(DOUBLE)
    bad = replace(good, global_views=torch.full_like(good.global_views, math.inf))
    with torch.no_grad():
        assert not learner(bad).total.isfinite()
    for one in (learner, twin):  # the guard drops the bad step; the next one begins
        one(good)
        one.update_teacher()
    for name, value in twin.state_dict().items():
        assert torch.equal(learner.state_dict()[name], value), name


def test_the_teacher_starts_as_a_copy_takes_no_gradient_and_reads_no_text(config: Config) -> None:
    learner, _, losses = run(config)
    losses.total.backward()
    assert learner.teacher is not None
    students = dict(learner.student.named_parameters())
    for name, parameter in learner.teacher.named_parameters():
        assert torch.equal(parameter, students[name])
        assert parameter.grad is None
        assert not parameter.requires_grad
    assert {name.split(".")[0] for name, _ in learner.teacher.named_parameters()} == {"image", "pooling"}
    learner.train()
    assert not any(module.training for module in learner.teacher.modules())


@pytest.mark.parametrize("is_learned", [False, True])
def test_distillation_trains_the_text_tower_only_when_asked(config: Config, is_learned: bool) -> None:
    distill = replace(config.objective.distill, text_grad=is_learned)
    weights = replace(config.objective.weights, ret=0.0, cap=0.0, ref=0.0, grd=0.0, vqa=0.0)
    learner, _, losses = run(small(config, distill=distill, weights=weights), tasks=[()] * 4)
    losses.total.backward()
    gradients = [parameter.grad for parameter in learner.student.text.parameters()]
    assert any(gradient is not None and gradient.any() for gradient in gradients) == is_learned


# --- wiring -----------------------------------------------------------------------------------------------------------


def test_parts_can_be_sharded_one_by_one(config: Config) -> None:
    """No parameter without dimensions, and none on a container that is never called itself."""
    learner = Learner(config)
    assert all(parameter.dim() > 0 for parameter in learner.parameters())
    for container in (learner, learner.student, learner.teacher):
        assert isinstance(container, nn.Module)
        assert list(container.parameters(recurse=False)) == []


def test_nothing_waits_for_the_device(config: Config) -> None:
    """On stand-ins for CUDA tensors, which have sizes and no values, asking for a value is an error."""
    learner, batch = Learner(config), make_batch(config, 4).to("cpu")
    assert len(batch.num_targets) == len(DECODER_TASKS)
    with FakeTensorMode(allow_non_fake_inputs=True):
        learner, batch = learner.to("cuda"), batch.to("cuda")
        losses = learner(batch)  # the backward pass would want a real device
        learner.update_teacher()
        assert set(losses.terms) == set(config.terms)
        with pytest.raises(DataDependentOutputException):
            losses.total.item()


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_half_precision_gives_finite_losses_and_float32_gradients(config: Config, precision: Any) -> None:
    config = replace(config, run=replace(config.run, precision=precision))
    learner, batch = Learner(config), make_batch(config, 4)
    losses = learner(batch)
    losses.total.backward()
    assert losses.total.dtype == torch.float32
    for name, parameter in learner.named_parameters():
        if parameter.grad is not None:
            assert parameter.grad.dtype == torch.float32, name
            assert parameter.grad.isfinite().all(), name


# --- where it starts --------------------------------------------------------------------------------------------------


def test_the_expected_start_is_where_a_learner_starts(tiny: Config) -> None:
    """At a size where sampling noise is small: wide enough for the cosines, enough tokens for the token losses."""
    model = replace(tiny.model, embedding=256, pooling_heads=4, decoder_heads=4)
    distill = replace(tiny.objective.distill, prototypes=4096)
    config = replace(
        tiny, model=model, objective=replace(tiny.objective, distill=distill), run=replace(tiny.run, batch=32)
    )
    batch = make_batch(config, 32, tasks=[DECODER_TASKS] * 32)
    with torch.no_grad():
        losses = Learner(config)(batch)
    expected = expected_start(config)
    assert set(expected) == set(config.terms)
    for term, value in expected.items():
        assert losses.terms[term].item() == pytest.approx(value, rel=0.08), term


def test_the_papers_start_by_hand() -> None:
    """N = 2,560, K = 8, scale 1/0.07, bias −10; 49,408 tokens; 65,536 prototypes at width 512."""
    config = recipes.recipe("cc3m")
    retrieval, spread = expected_retrieval(config), math.exp((1 / 0.07) ** 2 / (2 * 512))
    assert retrieval["ta"] == pytest.approx(10 + 2559 * math.exp(-10) * spread, rel=0.01)
    assert retrieval["tc"] == pytest.approx(2560 / 2567 * (80 + 2559 * math.exp(-10) * spread), rel=0.01)
    assert expected_token_loss(config) == pytest.approx(math.log(49_408) + 512 * 0.02**2 / 2)
    gaussian = math.log(65_536) + 1 / (2 * 512 * 0.1**2) - 1 / (512 * 0.1 * 0.04)
    assert expected_cross_entropy(config) == pytest.approx(gaussian, abs=0.02)
    assert 10.65 < expected_cross_entropy(config) < 11.2
    assert expected_start(config)["sd"] == pytest.approx(12 * gaussian, rel=0.01)


@pytest.mark.slow
def test_a_learner_of_the_papers_size_starts_where_it_should() -> None:
    """ViT-B/16, text tower, decoder and 65,536 prototypes as the paper has them; fewer images and local views."""
    config = recipes.recipe("cc3m")
    data = replace(config.data, captions=2, views=replace(config.data.views, num_local=1))
    config = replace(config, data=data, run=replace(config.run, batch=2, precision="fp32"))
    with torch.no_grad():
        losses = Learner(config)(make_batch(config, 2, tasks=[DECODER_TASKS] * 2))
    assert losses.terms["ret"].item() == pytest.approx(expected_start(config)["ret"], rel=0.15)
    for task in DECODER_TASKS:  # some ten tokens each
        assert losses.terms[task].item() == pytest.approx(10.91, abs=0.4), task
    for pool in ("ta", "tc"):
        assert 10.65 < losses.metrics[f"sd/{pool}"].item() < 11.2, pool


# --- bad input --------------------------------------------------------------------------------------------------------


def test_a_single_image_has_only_positives(config: Config) -> None:
    learner, batch, losses = run(config, 1)
    image = learner.student.encode_image(batch.global_views[:, 0])
    texts = learner.student.encode_text(batch.captions)
    ta, tc = (learner.student.score(image, texts, mode=mode) for mode in ("ta", "tc"))
    expected = sum(reference.softplus(-row).mean() for logits in (ta, tc) for row in logits)
    torch.testing.assert_close(losses.terms["ret"], expected)


def test_distillation_without_local_views_is_refused_in_words(config: Config) -> None:
    batch = make_batch(config, 3)
    with pytest.raises(ValueError, match="no local views"):
        Learner(config)(replace(batch, local_views=batch.local_views[:, :0]))


def bad_batches(config: Config) -> Iterator[tuple[Batch, str]]:
    batch = make_batch(config, 3)
    yield replace(batch, captions=batch.captions.slice(0, 8)), "same number"
    yield replace(batch, captions=Texts.pack([])), "at least one"
    yield replace(batch, caption_hash=batch.caption_hash[1:]), "caption_hash"
    yield replace(batch, shared_caption=batch.shared_caption[1:]), "shared_caption"
    yield replace(batch, task=batch.task[1:]), "batch.task has"
    yield replace(batch, task_owner=batch.task_owner[1:]), "task_owner"
    yield replace(batch, global_views=batch.global_views[:0]), "no images"
    yield replace(batch, global_views=batch.global_views[:, :0]), "no global views"
    yield replace(batch, local_views=batch.local_views[:2]), "local_views has 2 entries; expected 3"
    yield replace(batch, photometrics=batch.photometrics[:2]), "photometrics has 2 entries; expected 3"
    yield replace(batch, shared_caption=batch.shared_caption + 3), "3 captions per image"
    yield replace(batch, task=batch.task + 4), "4 decoder tasks"
    yield replace(batch, task_owner=batch.task_owner + 1), "3 images"
    yield replace(batch, task_owner=batch.task_owner.flip(0)), "task_owner does not ascend"
    yield (
        replace(batch.to("cpu"), task_texts=replace(batch.task_texts, target_start=batch.task_texts.lengths)),
        "num_targets",
    )


@pytest.mark.parametrize("case", range(15))
def test_a_malformed_batch_is_refused_in_words(config: Config, case: int) -> None:
    batch, message = list(bad_batches(config))[case]
    with pytest.raises(ValueError, match=message):
        check(batch)
    with pytest.raises(ValueError, match=message):
        Learner(config)(batch)
    with pytest.raises(ValueError, match=message):
        backward(Learner(config), split(batch, 2))


def test_micro_batches_with_more_captions_than_others_are_refused_in_words(config: Config) -> None:
    more = replace(config, data=replace(config.data, captions=config.data.captions + 2))
    pieces = [make_batch(one, 2) for one in (config, more)]
    with pytest.raises(ValueError, match="micro-batches have 3 to 5 captions per image"):
        backward(Learner(config), pieces)
