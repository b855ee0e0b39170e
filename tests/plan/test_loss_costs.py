"""The cost of each equation: counted from the kernels' own products, and as the document has it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from goldiclip import recipes
from goldiclip.config import Config, Distill
from goldiclip.kernels.soft_cross_entropy import Temperatures, soft_cross_entropy
from goldiclip.kernels.token_cross_entropy import token_cross_entropy
from goldiclip.plan import device_named, estimate, parts_of
from goldiclip.plan.losses import cost_table, loss_costs

METHOD = (Path(__file__).resolve().parents[2] / "docs" / "method.md").read_text()


def costs(config: Config) -> dict[str, Any]:
    return {cost.name: cost for cost in loss_costs(config)}


def counting() -> FlopCounterMode:
    """Counts every matrix product; torch's own list leaves out the one that adds in place."""

    def in_place(_: Any, left: tuple[int, int], right: tuple[int, int], **options: Any) -> int:
        return 2 * left[0] * left[1] * right[1]

    return FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: in_place})


@pytest.mark.parametrize("variant", ["", *(f"/{name}" for name in recipes.VARIANTS)])
def test_the_equations_of_a_recipe_are_those_of_its_plan(variant: str) -> None:
    """Two ways of counting the same arithmetic: by equation here, by part of the model in the plan."""
    config = recipes.recipe(f"cc3m{variant}")
    found, parts = costs(config), {part.name: part.step_flops for part in parts_of(config)}
    sums = {
        "scoring": [cost.flops for name, cost in found.items() if name.startswith("ret")],
        "vocabulary head": [found[task].flops for task in config.decoder_tasks],
        "prototypes": [cost.flops for name, cost in found.items() if name.startswith("sd")],
    }
    for part, flops in sums.items():
        assert sum(flops) == pytest.approx(parts.get(part, 0.0)), part


def test_the_kernels_do_the_arithmetic_that_is_said() -> None:
    """Matrix products counted while they run, forward and backward."""
    tiny = recipes.recipe("tiny")
    distill = Distill(prototypes=200)
    config = replace(tiny, objective=replace(tiny.objective, distill=distill))
    found, views, width = costs(config), config.data.views, config.model.embedding
    student = torch.randn(1, 6, views.num_local, width, requires_grad=True)
    weight = torch.randn(200, width, requires_grad=True)
    teacher = torch.randn(1, 6, views.num_global, width)
    with counting() as counter:
        temperatures = Temperatures(0.1, 0.04)
        soft_cross_entropy(
            student, weight, teacher, weight.detach(), torch.zeros(1, 200), temperatures
        ).total.backward()
    assert counter.get_total_flops() == pytest.approx(6 * found["sd/ta"].flops)

    tokens, words = 100, config.model.text.vocabulary
    per_token = found["cap"].flops / (0.6 * 22)
    hidden, head = torch.randn(tokens, width, requires_grad=True), torch.randn(words, width, requires_grad=True)
    with counting() as counter:
        token_cross_entropy(hidden, head, torch.zeros(tokens, dtype=torch.int64)).sum().backward()
    assert counter.get_total_flops() == pytest.approx(tokens * per_token * 4 / 3)  # the logits are made again


def test_all_negatives_cost_more_and_no_equation_holds_what_its_plain_form_would() -> None:
    config = recipes.recipe("cc3m")
    retrieval = replace(config.objective.retrieval, negatives="all")
    every = costs(replace(config, objective=replace(config.objective, retrieval=retrieval)))
    one = costs(config)
    assert every["ret/tc"].flops > 7 * one["ret/tc"].flops
    assert all(cost.kept_bytes <= cost.whole_bytes for cost in one.values())
    assert sum(cost.whole_bytes for cost in one.values()) > 40 * sum(cost.kept_bytes for cost in one.values())


def test_the_document_has_these_numbers() -> None:
    table = cost_table(recipes.recipe("cc3m"))
    assert table in METHOD, f"docs/method.md should have\n{table}"


def test_the_papers_batch_fits_one_gpu_of_80_gigabytes_in_micro_batches() -> None:
    config = recipes.recipe("open30m")
    assert config.run.batch == 6_400
    device = device_named("h100")
    split = estimate(replace(config, run=replace(config.run, micro_batch=128)), device)
    said = re.search(r"\| \*\*sum\*\* \| \*\*([\d.,]+)\*\* \| \*\*([\d.,]+)\*\* \|", METHOD)
    assert said is not None
    assert sum(split.gigabytes.values()) < 0.9 * device.gigabytes == 0.9 * 80
    assert float(said[1]) == pytest.approx(sum(split.gigabytes.values()), rel=0.05)
    assert sum(estimate(config, device).gigabytes.values()) > 10 * device.gigabytes
