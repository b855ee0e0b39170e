"""Weights laid out for a few rows give the products that torch gives, as long as they are what they were."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from goldiclip import recipes
from goldiclip.inference.engine import Engine
from goldiclip.kernels.few_rows import MOST_ROWS, FewRows, _can_be_laid_out
from goldiclip.model.goldiclip import GoldiCLIP

has_operation = pytest.mark.skipif(not _can_be_laid_out(torch.ones(2, 2)), reason="this torch has no oneDNN")


@pytest.fixture
def layer() -> nn.Linear:
    return nn.Linear(48, 80)


@has_operation
@pytest.mark.parametrize("shape", [(1, 48), (15, 48), (64, 48), (2, 7, 48), (48,)])
@pytest.mark.parametrize("has_bias", [True, False])
@torch.no_grad()
def test_products_are_torchs(layer: nn.Linear, shape: tuple[int, ...], has_bias: bool) -> None:
    rows, bias = torch.randn(shape), layer.bias if has_bias else None
    few = FewRows([layer.weight])
    assert few._takes(rows, layer.weight, bias)
    with few:
        found = F.linear(rows, layer.weight, bias)
    torch.testing.assert_close(found, F.linear(rows, layer.weight, bias), rtol=1e-5, atol=1e-5)


@has_operation
@torch.no_grad()
def test_a_weight_that_was_written_to_is_multiplied_as_it_is_now(layer: nn.Linear) -> None:
    for write in (lambda: layer.weight.mul_(2), lambda: layer.weight.data.mul_(2)):
        few, rows = FewRows([layer.weight]), torch.randn(3, 48)
        with few:
            before = layer(rows)
            write()
            after = layer(rows)
        assert not few._takes(rows, layer.weight)
        torch.testing.assert_close(after - layer.bias, 2 * (before - layer.bias))
    assert FewRows([layer.weight])._takes(rows, layer.weight)
    layer.weight.data = layer.weight.data.clone()
    assert not few._takes(rows, layer.weight)


@has_operation
def test_gradients_other_weights_many_rows_and_half_precision_are_torchs(layer: nn.Linear) -> None:
    few, rows = FewRows([layer.weight]), torch.randn(3, 48)
    assert not few._takes(rows, layer.weight), "a gradient is wanted"
    with few:
        layer(rows).sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad():
        assert not few._takes(rows, nn.Linear(48, 80).weight)
        assert not few._takes(torch.randn(MOST_ROWS + 1, 48), layer.weight)
        assert not few._takes(rows.double(), layer.weight)
        assert not few._takes(rows[:0], layer.weight)
        with torch.autocast("cpu", torch.bfloat16):
            assert not few._takes(rows, layer.weight)


def test_what_cannot_be_laid_out_is_left_out() -> None:
    with torch.inference_mode():
        without_versions = torch.ones(2, 2)
    assert not FewRows(
        [without_versions, torch.ones(3), torch.ones(2, 2).double(), torch.ones(2, 2, device="meta")]
    ).laid_out


@has_operation
def test_an_engine_says_the_same_of_one_text_as_of_many() -> None:
    config = recipes.recipe("tiny").model
    engine = Engine(GoldiCLIP(replace(config, decoder_depth=0)), image_size=32, device="cpu")
    texts = ["a red hat", *(f"number {i} of many more words than there is room for" for i in range(20))]
    one, many = engine.encode_texts(texts[0]), engine.encode_texts(texts)
    assert engine._few_rows.laid_out, "the one went through them"
    torch.testing.assert_close(one.embedding[0], many.embedding[0], rtol=1e-5, atol=1e-6)


@has_operation
def test_an_engine_that_was_asked_can_be_copied_and_sent() -> None:
    engine = Engine(GoldiCLIP(recipes.recipe("tiny").model), image_size=32, device="cpu")
    embedding = engine.encode_texts("a red hat").embedding
    for other in (copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
        torch.testing.assert_close(other.encode_texts("a red hat").embedding, embedding)


def test_half_precision_lays_nothing_out() -> None:
    engine = Engine(GoldiCLIP(recipes.recipe("tiny").model), image_size=32, device="cpu", precision="bf16")
    engine.encode_texts("a red hat")
    assert "_few_rows" not in engine.__dict__
