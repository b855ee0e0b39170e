"""Runs that begin from weights: what they begin with, what is frozen, and what the end averages."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from processes import steps_of
from safetensors.torch import save_file

from goldiclip.config import Config, ConfigError
from goldiclip.learner import Learner
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.pretrained import load_model, save_model, to_open_clip
from goldiclip.train import train
from goldiclip.train.log import read_log
from goldiclip.train.start import averaged, begin_from, fit_scalars, solve, starting_model
from goldiclip.types import Alone
from synthetic import make_batch


@pytest.fixture
def encoder(small_run: Callable[..., Config], tmp_path: Path) -> tuple[Path, GoldiCLIP]:
    """An encoder folder, other than a fresh model, and what is in it."""
    model = GoldiCLIP(small_run().model, seed=7)
    return save_model(model, small_run(), tmp_path / "encoder"), model


def test_student_and_teacher_both_begin_as_the_weights(
    encoder: tuple[Path, GoldiCLIP], small_run: Callable[..., Config]
) -> None:
    learner = Learner(small_run())
    begin_from(learner, starting_model(str(encoder[0]), small_run(), print))
    for name, tensor in encoder[1].state_dict().items():
        assert torch.equal(learner.student.state_dict()[name], tensor)
        if learner.teacher is not None and name in learner.teacher.state_dict():
            assert torch.equal(learner.teacher.state_dict()[name], tensor)


def test_a_run_and_a_checkpoint_are_weights_too(small_run: Callable[..., Config], tmp_path: Path) -> None:
    run = train(small_run("run.samples=16"), out=tmp_path / "run")
    expected = load_model(run / "encoder")[0].state_dict()
    for source in (run, run / "checkpoints" / "step-000000002", run / "encoder"):
        found = starting_model(str(source), small_run(), print).state_dict()
        assert all(torch.equal(found[name], expected[name]) for name in expected), source


def test_what_the_weights_lack_is_initialised_and_what_has_no_place_is_said(
    encoder: tuple[Path, GoldiCLIP], full_run: Callable[..., Config], small_run: Callable[..., Config]
) -> None:
    said: list[str] = []
    sizes = ("text.width=16", "text.depth=1", "embedding=16", "vision.width=16", "vision.depth=1")
    words = [f"model.{size}" for size in sizes]
    starting_model(str(encoder[0]), full_run(*words), said.append)
    assert "initialised" in said[0]
    assert "decoder" in said[0]
    without = small_run("objective.retrieval.text_conditioned=False", "objective.weights.sd=0")
    starting_model(str(encoder[0]), without, said.append)
    assert "the configuration has no such part" in said[1]


def test_open_clip_weights_start_a_run(small_run: Callable[..., Config], tmp_path: Path) -> None:
    config = small_run("model.vision.name=vit_base_patch16_clip_224", "model.vision.heads=2")
    _, tensors = to_open_clip(GoldiCLIP(config.model, seed=3))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "clip.safetensors")
    model = starting_model(f"open_clip:{tmp_path / 'clip.safetensors'}", config, print)
    assert torch.equal(model.text.token_embedding.weight, GoldiCLIP(config.model, seed=3).text.token_embedding.weight)


def test_a_run_from_weights_measures_itself_before_its_first_step(
    encoder: tuple[Path, GoldiCLIP], small_run: Callable[..., Config], drawn_data: tuple[str, str], tmp_path: Path
) -> None:
    config = small_run(f"data.held_out={drawn_data[1]}", "run.samples=16")
    train(config, out=tmp_path / "run", init=str(encoder[0]))
    measured = [r for r in read_log(tmp_path / "run" / "log.jsonl") if r.get("event") == "held_out"]
    assert [record["step"] for record in measured] == [0, 2]


def test_a_fall_of_held_out_recall_raises_the_alarm(
    small_run: Callable[..., Config], drawn_data: tuple[str, str], tmp_path: Path
) -> None:
    """A trained encoder, then training with a rate that destroys it."""
    good = small_run(f"data.held_out={drawn_data[1]}", "run.samples=480", "optim.lr=5e-3", "optim.warmup_steps=5")
    run = train(good, out=tmp_path / "good")
    bad = small_run(f"data.held_out={drawn_data[1]}", "run.samples=80", "optim.lr=1", "run.alarm_drop=0.02")
    train(bad, out=tmp_path / "bad", init=str(run))
    alarms = [r["message"] for r in read_log(tmp_path / "bad" / "log.jsonl") if r.get("event") == "alarm"]
    assert any("held-out recall@1 has fallen to" in message and "it began at" in message for message in alarms), alarms


# --- scale and bias ---------------------------------------------------------------------------------------------------


def test_scale_and_bias_are_where_the_loss_is_least() -> None:
    """Against a search over a grid; positives around 0.3, negatives around 0.1, one in a hundred a pair."""
    rng = torch.Generator().manual_seed(0)
    is_pair = (torch.rand(20_000, generator=rng) < 0.01).double()
    cosines = 0.1 + 0.2 * is_pair + 0.05 * torch.randn(20_000, generator=rng, dtype=torch.float64)
    ones = torch.ones_like(cosines)
    scale, bias = solve(cosines, is_pair, ones, Alone())

    def loss(s: float, b: float) -> float:
        return F.binary_cross_entropy_with_logits(s * cosines + b, is_pair).item()

    best = loss(scale, bias)
    for ds in (-2.0, -0.1, 0.0, 0.1, 2.0):
        for db in (-0.5, -0.02, 0.0, 0.02, 0.5):
            assert loss(scale + ds, bias + db) >= best - 1e-12
    weighted = solve(cosines, is_pair, torch.where(is_pair > 0, 1.0, 10.0).double(), Alone())
    assert weighted[1] < bias, "more negatives in the step want a lower bias"


def test_the_scale_stays_where_the_model_keeps_it() -> None:
    """Cosines that are only just apart want a scale far above 100; its bias is then the best for 100."""
    rng = torch.Generator().manual_seed(0)
    is_pair = (torch.arange(4_000) % 4 == 0).double()
    cosines = 0.5 + 0.01 * is_pair + 0.003 * torch.randn(4_000, generator=rng, dtype=torch.float64)
    scale, bias = solve(cosines, is_pair, torch.ones_like(cosines), Alone())
    assert scale == pytest.approx(100)
    best = F.binary_cross_entropy_with_logits(100 * cosines + bias, is_pair)
    for shift in (-0.05, 0.05):
        assert F.binary_cross_entropy_with_logits(100 * cosines + bias + shift, is_pair) > best
    with pytest.raises(ConfigError, match="pairs and non-pairs"):
        solve(cosines, torch.ones_like(cosines), torch.ones_like(cosines), Alone())


def test_fitting_lowers_the_retrieval_loss_and_moves_nothing_else(small_run: Callable[..., Config]) -> None:
    """As after softmax training: scale 100, bias −10, and negatives begin at logits above 0."""
    learner = Learner(small_run("objective.retrieval.text_conditioned=False"))
    with torch.no_grad():
        learner.student.scale.scale.fill_(math.log(100))
        learner.student.scale.bias.fill_(-10)
    batches = [make_batch(learner.config, 8, seed=seed) for seed in range(3)]
    before = {name: tensor.clone() for name, tensor in learner.state_dict().items()}
    loss = learner(batches[0]).terms["ret"].item()
    fit_scalars(learner, batches, Alone())
    assert learner(batches[0]).terms["ret"].item() < 0.5 * loss
    changed = {name for name, tensor in learner.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {"student.scale.scale", "student.scale.bias"}


def test_a_run_says_what_it_fitted_and_begins_there(
    encoder: tuple[Path, GoldiCLIP],
    small_run: Callable[..., Config],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train(small_run("run.samples=16", "optim.fit_scalars_steps=2"), out=tmp_path / "run", init=str(encoder[0]))
    assert "fitted on 2 batches, the towers frozen" in capsys.readouterr().out
    first = steps_of(tmp_path / "run")[0]
    assert first["bias"] != -10
    assert first["samples"] == 8, "fitting consumes no data"


# --- the end ----------------------------------------------------------------------------------------------------------


def test_the_encoder_is_the_average_that_wise_ft_asks_for(
    encoder: tuple[Path, GoldiCLIP], small_run: Callable[..., Config], tmp_path: Path
) -> None:
    run = train(small_run("run.samples=16", "run.wise_ft=0.25"), out=tmp_path / "run", init=str(encoder[0]))
    trained = starting_model(str(run / "checkpoints" / "step-000000002"), small_run(), print).state_dict()
    found = load_model(run / "encoder")[0].state_dict()
    for name, start in encoder[1].state_dict().items():
        torch.testing.assert_close(found[name], 0.75 * start + 0.25 * trained[name])


def test_what_did_not_exist_at_the_start_stays_as_it_was_trained() -> None:
    found = averaged({"a": torch.ones(1), "b": torch.ones(1)}, {"a": torch.zeros(1)}, 0.25)
    assert (found["a"].item(), found["b"].item()) == (0.25, 1.0)


@pytest.mark.parametrize("towers", ["vision", "text", "both"])
def test_a_locked_tower_is_the_same_after_training(
    towers: str, encoder: tuple[Path, GoldiCLIP], small_run: Callable[..., Config], tmp_path: Path
) -> None:
    run = train(small_run("run.samples=16", f"optim.lock={towers}"), out=tmp_path / "run", init=str(encoder[0]))
    found = load_model(run / "encoder")[0].state_dict()
    for name, start in encoder[1].state_dict().items():
        is_vision = name.startswith("image.vision.")
        is_text = name.startswith("text.") and "projection" not in name
        is_locked = (is_vision and towers != "text") or (is_text and towers != "vision")
        if is_locked:
            assert torch.equal(found[name], start), name
    for name in ("image.key.weight", "text.projection.weight"):
        assert not torch.equal(found[name], encoder[1].state_dict()[name])
