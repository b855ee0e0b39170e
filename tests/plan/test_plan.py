"""The plan counts what models really have and steps really compute, and says what to change when a run does not fit."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from torch.utils.flop_counter import FlopCounterMode

from goldiclip import plan, recipes
from goldiclip.cli import main
from goldiclip.config import Config, ConfigError, override, resolve
from goldiclip.learner import Learner
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.plan import Lengths, device_named, estimate, parts_of
from goldiclip.plan.arithmetic import vision_sizes
from goldiclip.plan.devices import device_like
from goldiclip.types import DECODER_TASKS, Batch
from synthetic import make_batch


def named(config: Config) -> dict[str, plan.Part]:
    return {part.name: part for part in parts_of(config)}


@pytest.mark.parametrize("name", ["tiny", "demo", "cc3m", "cc3m/flair", "cc3m/sigmoid", "demo/ca"])
def test_parameters_are_those_the_model_has(name: str) -> None:
    config = recipes.recipe(name)
    with torch.device("meta"):
        model = GoldiCLIP(config.model)
    counted = sum(parameter.numel() for parameter in model.parameters())
    parts = named(config)
    student = ("vision", "captions", "decoder", "vocabulary head", "scoring")
    planned = sum(parts[part].parameters for part in student if part in parts)
    assert planned == pytest.approx(counted, rel=2e-3)


def lengths_of(batch: Batch, config: Config) -> Lengths:
    """The mean lengths of a batch's texts, per task that each image has."""
    means = {"caption": float(batch.captions.lengths.float().mean())}
    for number, task in enumerate(DECODER_TASKS):
        of_task = batch.task_texts.lengths[batch.task == number]
        means[task] = float(of_task.sum()) / len(batch)
    return Lengths(**means)


def test_flops_of_a_step_are_those_that_torch_counts() -> None:
    """Forward and backward of the real learner, every part in it."""
    words = ["model.text.vocabulary=600", "model.decoder_depth=2", "run.batch=6", "objective.distill.prototypes=96"]
    config = resolve(override(recipes.recipe("tiny"), words))
    batch = make_batch(config, 6, tasks=[DECODER_TASKS] * 6)
    learner = Learner(config)
    with FlopCounterMode(display=False) as counter:
        learner(batch).total.backward()
    counted = counter.get_total_flops() / 6
    planned = plan.flops_per_image(config, lengths_of(batch, config))
    assert planned == pytest.approx(counted, rel=0.12)


@pytest.mark.parametrize("size", [224, 96])
def test_flops_of_the_towers_are_those_that_torch_counts(size: int) -> None:
    config = recipes.recipe("cc3m")
    with torch.device("meta"):
        model = GoldiCLIP(config.model)
        with FlopCounterMode(display=False) as counter:
            model.image(torch.empty(1, 3, size, size))
    part = named(config)["vision" if size == 224 else "local views"]
    planned = part.flops if size == 224 else part.flops / 6
    assert planned == pytest.approx(counter.get_total_flops(), rel=0.02)


def test_what_an_ablation_leaves_out_costs_nothing() -> None:
    assert set(named(recipes.recipe("cc3m/sigmoid"))) == {"vision", "captions", "scoring"}
    assert set(named(recipes.recipe("cc3m/ca"))) == {"vision", "captions", "scoring"}
    assert "teacher" not in named(recipes.recipe("cc3m/un"))
    assert named(recipes.recipe("cc3m/sigmoid"))["scoring"].parameters == 0


def measured(batch: int = 512) -> Config:
    config = recipes.recipe("cc3m")
    return replace(config, run=replace(config.run, batch=batch))


@pytest.mark.parametrize(
    ("part", "milliseconds"),
    [("vision", 140), ("local views", 160), ("teacher", 45), ("captions", 108), ("scoring", 6.1)],
)
def test_parts_take_the_time_they_were_measured_to_take_on_an_h200(part: str, milliseconds: float) -> None:
    found = estimate(measured(), device_named("h200"))
    assert 1e3 * found.seconds[part] == pytest.approx(milliseconds, rel=0.05)


def test_text_activations_take_the_memory_they_were_measured_to_take() -> None:
    found = estimate(measured(), device_named("h200"))
    assert found.gigabytes["activations: captions"] == pytest.approx(25 * 1.0737, rel=0.05)


def test_the_papers_batch_fits_one_80_gb_gpu_in_micro_batches() -> None:
    found = estimate(recipes.recipe("open30m"), device_named("h100"))
    assert not found.fits
    assert found.largest_micro_batch >= 64
    config = recipes.recipe("open30m")
    fitting = replace(config, run=replace(config.run, micro_batch=found.largest_micro_batch))
    assert estimate(fitting, device_named("h100")).fits
    larger = replace(config, run=replace(config.run, micro_batch=found.largest_micro_batch + 1))
    assert not estimate(larger, device_named("h100")).fits


def test_more_gpus_take_less_time_and_send_something() -> None:
    alone, eight = (estimate(measured(2_560), device_named("h200"), gpus, samples=10**8) for gpus in (1, 8))
    assert alone.network_gigabytes == 0 < eight.network_gigabytes
    assert alone.hours / 8 < eight.hours < alone.hours / 6
    assert eight.dollars == pytest.approx(eight.hours * 8 * 3.8)


@pytest.mark.parametrize(
    ("word", "grows", "shrinks"),
    [
        ("run.checkpoint_activations=True", "step_seconds", "memory"),
        ("run.precision=fp32", "step_seconds", ""),
        ("run.layout=fsdp", "network_gigabytes", "memory"),
        ("objective.retrieval.negatives=all", "gflops_per_image", ""),
        ("data.captions=16", "gflops_per_image", ""),
    ],
)
def test_choices_cost_and_save_what_they_should(word: str, grows: str, shrinks: str) -> None:
    config = recipes.recipe("cc3m")
    before = estimate(config, device_named("h200"), 8)
    after = estimate(override(config, [word]), device_named("h200"), 8)
    assert getattr(after, grows) > getattr(before, grows)
    if shrinks:
        assert sum(after.gigabytes.values()) < sum(before.gigabytes.values())


def test_drivers_names_find_their_device() -> None:
    names = ["NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "NVIDIA GeForce RTX 4090", "Tesla T4"]
    found = [device_like(name) for name in names]
    assert [device.name if device else None for device in found] == ["h200", "h100", "a100-40gb", "rtx4090", None]


def test_an_unknown_device_shows_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"h20 is not known; nearest: h200.*all: h200, h100"):
        device_named("h20")


def test_sizes_come_from_the_name_and_from_the_numbers() -> None:
    vision = recipes.recipe("cc3m").model.vision
    assert vision_sizes(vision).tokens(224) == 197
    assert vision_sizes(replace(vision, name="vit_large_patch14_clip_224")).depth == 24
    assert vision_sizes(replace(vision, depth=3)).depth == 3
    with pytest.raises(ConfigError, match="whose sizes the plan does not know"):
        vision_sizes(replace(vision, name="resnet50"))


def test_the_command_shows_the_plan_and_the_one_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "open30m", "--gpus", "8", "--gpu", "h100", "--dollars-per-hour", "2"]) == 0
    shown = capsys.readouterr().out
    for word in (
        "open30m on 8 × h100 (a prediction",
        "does not fit",
        "with run.micro_batch=",
        "$2.00 per GPU",
        "shards",
    ):
        assert word in shown, word
    advised = int(re.findall(r"with run.micro_batch=(\d+)", shown)[0])
    assert 0 <= -800 % advised < 3, "the micro-batches of a GPU's 800 images are alike"
    assert main(["plan", "tiny"]) == 2
    assert "how long is an epoch?" in capsys.readouterr().err


def test_the_table_fits_a_narrow_terminal() -> None:
    console = Console(width=80, record=True)
    plan.show(estimate(measured(), device_named("h200"), samples=10**8), console)
    assert max(map(len, console.export_text().splitlines())) <= 80
