"""Folding the in-projections into the query changes the cost of a score, not its value."""

from __future__ import annotations

import pytest
import torch

from goldiclip.model.folded import folded_cosines, is_cheaper
from goldiclip.model.pooling import Pooling


def make_pooling(width: int, heads: int) -> Pooling:
    pooling = Pooling(width, heads).double()
    for parameter in pooling.parameters():  # biases and norms far from their starts
        torch.nn.init.normal_(parameter)
    return pooling


@pytest.mark.parametrize(("images", "texts", "patches", "heads"), [(1, 1, 1, 1), (3, 2, 5, 4), (7, 5, 49, 8)])
@torch.no_grad()
def test_folded_is_plain(images: int, texts: int, patches: int, heads: int) -> None:
    width = 16
    pooling = make_pooling(width, heads)
    text = torch.randn(texts, width, dtype=torch.float64)
    keys, values = torch.randn(2, images, patches, width, dtype=torch.float64) * 3 + 1
    with torch.enable_grad():
        plain = pooling(text, keys, values, what="cosine")
    folded = folded_cosines(pooling, pooling._queries(text), text, keys, values)
    torch.testing.assert_close(folded, plain)


@torch.no_grad()
def test_scoring_takes_the_cheaper_path_without_a_word() -> None:
    pooling = make_pooling(16, 4)
    keys, values = torch.randn(2, 3, 9, 16, dtype=torch.float64)
    text = torch.randn(40, 16, dtype=torch.float64)
    assert is_cheaper(5, 16, 4)
    assert not is_cheaper(40, 16, 4)
    few, many = (pooling(part, keys, values, what="cosine") for part in (text[:5], text))
    torch.testing.assert_close(few, many[:, :5])


def test_training_never_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    from goldiclip.model import pooling as module

    monkeypatch.setattr(module, "folded_cosines", None)
    pooling = make_pooling(16, 4)
    keys, values = torch.randn(2, 3, 9, 16, dtype=torch.float64)
    pooling(torch.randn(2, 16, dtype=torch.float64), keys, values, what="cosine").sum().backward()
