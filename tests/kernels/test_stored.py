"""Products of stored bytes in whole numbers are the products in floats, to a few steps in 16,256."""

from __future__ import annotations

import pytest
import torch

from goldiclip.kernels import stored as kernel
from goldiclip.kernels.stored import against_each, multiplies_bytes, sums_of_each
from goldiclip.model.folded import folded_cosines
from goldiclip.model.pooling import Pooling

SIZES = [(1, 1, 1, 1), (2, 3, 5, 7), (3, 8, 196, 512), (1, 64, 36, 128)]
HAS_BYTES = kernel._has_vnni()


def some_bytes(images: int, patches: int, width: int) -> torch.Tensor:
    return torch.randint(-127, 128, (images, patches, width), dtype=torch.int8)


@pytest.mark.skipif(not HAS_BYTES, reason="this processor multiplies no bytes natively")
@pytest.mark.parametrize(("images", "rows", "patches", "width"), SIZES)
def test_both_products_are_those_of_floats(images: int, rows: int, patches: int, width: int) -> None:
    numbers = some_bytes(images, patches, width)
    seekers = torch.randn(rows, width) * torch.logspace(-3, 3, rows)[:, None]
    weights = torch.rand(images, rows, patches).softmax(-1)
    for found, one, other in (
        (against_each(seekers, numbers), seekers.double(), numbers.double().transpose(1, 2)),
        (sums_of_each(weights, numbers), weights.double(), numbers.double()),
    ):
        # every number of a row is off by half of its step at most
        most = one.abs().amax(-1, keepdim=True) / kernel.STEPS * 0.51 * other.abs().sum(-2, keepdim=True)
        assert found.dtype == torch.float32
        assert ((found - one @ other).abs() <= most + 1e-5 * (one.abs() @ other.abs())).all()


@pytest.mark.skipif(not HAS_BYTES, reason="this processor multiplies no bytes natively")
def test_a_row_of_nothing_is_nothing_and_a_loud_row_drowns_no_other() -> None:
    numbers = some_bytes(1, 9, 16)
    rows = torch.stack([torch.zeros(16), torch.full((16,), 1e6), torch.full((16,), 1e-6)])
    expected = rows.double() @ numbers[0].double().T
    found = against_each(rows, numbers)[0].double()
    assert torch.equal(found[0], torch.zeros(9, dtype=torch.float64))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


@pytest.mark.skipif(not HAS_BYTES, reason="this processor multiplies no bytes natively")
@torch.no_grad()
def test_scores_and_ranks_of_stored_patches_are_those_of_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    pooling, step = Pooling(64, 8), 4 / 127
    texts, keys, values = torch.randn(3, 64), some_bytes(200, 49, 64), some_bytes(200, 49, 64)
    in_bytes = folded_cosines(pooling, pooling._queries(texts), texts, keys, values, step)
    monkeypatch.setattr(kernel, "_has_vnni", lambda: False)
    in_floats = folded_cosines(pooling, pooling._queries(texts), texts, keys, values, step)
    assert not torch.equal(in_bytes, in_floats), "two implementations"
    torch.testing.assert_close(in_bytes, in_floats, atol=1e-4, rtol=0)
    assert torch.equal(in_bytes.argsort(0)[-10:], in_floats.argsort(0)[-10:])


def test_what_is_no_byte_is_multiplied_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "_has_vnni", lambda: True)
    numbers = some_bytes(1, 4, 8)
    assert multiplies_bytes(torch.randn(8, 8), numbers)
    assert not multiplies_bytes(torch.randn(8, 8), numbers.float())
    assert not multiplies_bytes(torch.randn(8, 8).double(), numbers)
    assert not multiplies_bytes(torch.randn(65, 8), numbers), "floats are quicker for many rows"
    assert not multiplies_bytes(torch.randn(8, 8, requires_grad=True), numbers), "a gradient is wanted"
    assert not multiplies_bytes(torch.randn(8, 8), numbers[:0])
    assert not multiplies_bytes(torch.randn(8, 8), torch.empty(1, 4, 8, dtype=torch.int8, device="meta"))
