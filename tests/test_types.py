"""Packed texts and batches keep their rows whatever is done to them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from goldiclip.types import Batch, Texts

ROWS = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=7)


@given(ROWS)
def test_packing_keeps_every_row(rows: list[list[int]]) -> None:
    texts = Texts.pack(rows)
    assert texts.rows() == rows
    assert len(texts) == len(rows)
    assert texts.max_length == max(map(len, rows))
    assert texts.ids[texts.last].tolist() == [row[-1] for row in rows]
    assert texts.offsets.tolist() == [sum(map(len, rows[:i])) for i in range(len(rows) + 1)]


@given(ROWS, st.data())
def test_cutting_and_joining_changes_nothing(rows: list[list[int]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(rows)))
    texts = Texts.pack(rows)
    joined = Texts.cat([texts.slice(0, cut), texts.slice(cut, len(rows))])
    assert joined.rows() == rows
    assert joined.max_length == texts.max_length


def test_no_texts_are_a_pack_too() -> None:
    assert len(Texts.pack([])) == 0
    assert len(Texts.cat([])) == 0


def test_packs_with_and_without_targets_do_not_mix() -> None:
    with pytest.raises(ValueError, match="target_start"):
        Texts.cat([Texts.pack([[1]]), Texts.pack([[1]], target_start=[0])])


def make_batch(owners: list[int], images: int = 4, captions: int = 2) -> Batch:
    return Batch(
        global_views=torch.arange(images).view(images, 1, 1, 1, 1).expand(images, 1, 3, 2, 2),
        local_views=torch.zeros(images, 0, 3, 1, 1),
        photometrics=torch.zeros(images, 0, 3),
        captions=Texts.pack([[i, k] for i in range(images) for k in range(captions)]),
        caption_hash=torch.arange(images * captions),
        shared_caption=torch.zeros(images, dtype=torch.int64),
        task_texts=Texts.pack([[owner] for owner in owners], target_start=[0] * len(owners)),
        task=torch.zeros(len(owners), dtype=torch.int64),
        task_owner=torch.tensor(owners, dtype=torch.int64),
    )


@given(st.lists(st.integers(0, 3), max_size=6).map(sorted), st.integers(0, 4), st.integers(0, 4))
def test_a_slice_of_a_batch_keeps_each_image_with_its_texts(owners: list[int], start: int, stop: int) -> None:
    start, stop = min(start, stop), max(start, stop)
    part = make_batch(owners).slice(start, stop)
    assert part.global_views[:, 0, 0, 0, 0].tolist() == list(range(start, stop))
    assert part.captions.rows() == [[i, k] for i in range(start, stop) for k in range(2)]
    assert (part.task_owner + start).tolist() == [owner for owner in owners if start <= owner < stop]
    assert part.task_texts.rows() == [[owner] for owner in owners if start <= owner < stop]
