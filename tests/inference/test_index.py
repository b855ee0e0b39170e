"""Search finds what looking at everything finds, from either store, whatever was added, deleted or interrupted."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from goldiclip import recipes
from goldiclip.inference.blocks import BlockFormat, block_format, standardised
from goldiclip.inference.engine import Engine
from goldiclip.inference.header import IndexMismatch
from goldiclip.inference.index import Index
from goldiclip.inference.lookers import single_threaded
from goldiclip.inference.pictures import pixels
from goldiclip.inference.sources import Item, images_in, picture_of
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.types import ImageFeatures

STORES = ["folder", "table.lance"]
QUERIES = ["a red hat", "two dogs on the beach", "rain"]


def make_engine(seed: int = 0, **options: object) -> Engine:
    config = recipes.recipe("tiny").model
    torch.manual_seed(seed)
    model = GoldiCLIP(replace(config, init_logit_bias=0.0), seed=seed)
    return Engine(model, image_size=32, device="cpu", **options)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return make_engine()


def picture(seed: int) -> Image.Image:
    generator = np.random.default_rng(seed)
    coarse = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((32, 32), Image.Resampling.BICUBIC)


def items(count: int, start: int = 0) -> list[Item]:
    return [Item(f"{i:04d}", picture(i), {"half": "odd" if i % 2 else "even"}) for i in range(start, start + count)]


def need(store: str) -> str:
    if store.endswith(".lance"):
        pytest.importorskip("lance", reason="the serve extra is not installed")
    return store


def everything(engine: Engine, gallery: list[Item], query: str, mode: str = "tc") -> list[str]:
    """The ids from best to worst, by scoring every picture."""
    scores = engine.score([item.picture for item in gallery], [query], mode)[:, 0]
    return [gallery[i].id for i in scores.argsort(descending=True)]


@pytest.mark.parametrize("store", STORES)
def test_a_full_shortlist_finds_what_scoring_everything_finds(engine: Engine, store: str, tmp_path: Path) -> None:
    gallery = items(60)
    index = Index.create(tmp_path / need(store), engine, precision="float16")
    assert index.add(gallery).added == 60
    for query in QUERIES:
        hits = index.search(query, k=60, shortlist=60)
        assert [hit.id for hit in hits[:10]] == everything(engine, gallery, query)[:10]
        expected = engine.score([gallery[int(hits[0].id)].picture], [query])[0, 0]
        assert hits[0].score == pytest.approx(float(expected), abs=1e-2)
        first = index.search(query, k=5, shortlist=0)
        assert [hit.id for hit in first] == everything(engine, gallery, query, "ta")[:5]


def test_both_stores_give_the_same_hits(engine: Engine, tmp_path: Path) -> None:
    need("table.lance")
    found = []
    for store in STORES:
        index = Index.create(tmp_path / store, engine)
        index.add(items(80))
        index.delete(["0003", "0004"])
        found.append(
            [
                index.search(query, k=8, shortlist=20, where=where)
                for query in QUERIES
                for where in (None, {"half": "odd"})
            ]
        )
    for here, there in zip(*found):
        assert [hit.id for hit in here] == [hit.id for hit in there]
        assert [hit.score for hit in here] == pytest.approx([hit.score for hit in there], abs=1e-4)
        assert [hit.record for hit in here] == [hit.record for hit in there]


@pytest.mark.parametrize("store", STORES)
def test_what_is_deleted_is_gone_and_what_is_updated_is_new(engine: Engine, store: str, tmp_path: Path) -> None:
    index = Index.create(tmp_path / need(store), engine)
    index.add(items(20))
    assert index.delete(["0001", "0002", "nowhere"]) == 2
    assert len(index) == 18
    assert not {"0001", "0002"} & {hit.id for hit in index.search("a hat", k=20)}
    changed = Item("0005", picture(999), {"half": "new"})
    assert index.add([changed]).present == 1
    assert index.add([changed], update=True).added == 1
    (hit,) = index.search("a hat", where={"half": "new"})
    assert (hit.id, len(index)) == ("0005", 18)
    index.store.compact()
    assert len(index) == 18
    assert index.search("a hat", where={"half": "new"})[0].score == pytest.approx(hit.score, abs=1e-5)
    reopened = Index.open(tmp_path / store, engine)
    assert [h.id for h in reopened.search("a hat", k=18)] == [h.id for h in index.search("a hat", k=18)]


@pytest.mark.parametrize("store", STORES)
def test_an_update_appears_whole_or_not_at_all(
    engine: Engine, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = Index.create(tmp_path / need(store), engine)
    index.add(items(6))
    changed = [Item(item.id, picture(100 + i), {"half": "new"}) for i, item in enumerate(items(4))]
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", _killed)
        if store.endswith(".lance"):
            patch.setattr("lance.LanceDataset.merge_insert", _killed)
        with pytest.raises(KeyboardInterrupt):
            index.add(changed, update=True)
    untouched = Index.open(tmp_path / store, engine)
    assert (len(untouched), untouched.search("a hat", where={"half": "new"})) == (6, [])
    assert untouched.add([*changed, *items(8, start=6)], update=True).added == 12
    again = Index.open(tmp_path / store, engine)
    assert len(again) == 14
    assert {hit.id for hit in again.search("a hat", where={"half": "new"})} == {item.id for item in changed}


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_two_pictures_of_one_id_are_told_of(engine: Engine, tmp_path: Path) -> None:
    index = Index.create(tmp_path / "index", engine)
    added = index.add([*items(3), Item("0001", picture(50))])
    assert (added.added, len(index)) == (3, 3)
    assert "this id too" in added.failed["0001"]


@pytest.mark.parametrize("store", STORES)
def test_filters_leave_only_what_matches(engine: Engine, store: str, tmp_path: Path) -> None:
    index = Index.create(tmp_path / need(store), engine)
    index.add(items(30))
    hits = index.search("two dogs", k=30, where={"half": "odd"})
    assert len(hits) == 15
    assert all(hit.record["half"] == "odd" for hit in hits)
    assert index.search("two dogs", where={"half": "neither"}) == []


def test_a_picture_finds_itself_and_a_text_beside_it_shifts_the_order(engine: Engine, tmp_path: Path) -> None:
    index = Index.create(tmp_path / "folder", engine)
    index.add(items(40))
    assert index.search(image=picture(17), k=1)[0].id == "0017"
    both = index.search("rain", image=picture(17), k=40, shortlist=40)
    alone = index.search("rain", k=40, shortlist=40)
    rank = [hit.id for hit in both].index("0017"), [hit.id for hit in alone].index("0017")
    assert rank[0] <= rank[1]
    with pytest.raises(ValueError, match="nothing to search for"):
        index.search()
    with pytest.raises(ValueError, match="k is 0"):
        index.search("rain", k=0)


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_packing_keeps_what_pooling_sees(engine: Engine, precision: str) -> None:
    features = engine.encode_images([picture(i) for i in range(6)])
    texts = engine.encode_texts(QUERIES)
    form = block_format(features, precision)
    blocks = form.pack(features)
    assert [len(block) for block in blocks] == [form.num_bytes] * 6
    stored = np.stack([np.frombuffer(block, np.uint8) for block in blocks])
    back = form.unpack(stored, engine.device)
    expected, found = (engine.score(part, texts, "tc") for part in (features, back))
    torch.testing.assert_close(found, expected, atol=0.05 if precision == "int8" else 5e-3, rtol=0)
    with torch.inference_mode():
        quick = engine.model.score_stored(*form.stored(stored, engine.device), texts, form.step)
    torch.testing.assert_close(quick, expected, atol=0.05 if precision == "int8" else 5e-3, rtol=0)


def test_standardised_tokens_pool_alike(engine: Engine) -> None:
    features, texts = engine.encode_images([picture(0)]), engine.encode_texts(QUERIES)
    same = ImageFeatures(features.embedding, standardised(features.keys), standardised(features.values), features.grid)
    torch.testing.assert_close(engine.score(same, texts, "tc"), engine.score(features, texts, "tc"), atol=1e-3, rtol=0)


def test_fewer_tokens_and_tied_ones_take_less_room(engine: Engine) -> None:
    features = engine.encode_images([picture(0)])
    whole, pooled = block_format(features, "int8"), block_format(features, "int8", tokens=4)
    assert (whole.num_bytes, pooled.num_bytes) == (2 * 16 * 32, 2 * 4 * 32)
    tied = ImageFeatures(features.embedding, features.keys, features.keys, features.grid)
    assert block_format(tied, "int8").num_bytes == 16 * 32
    with pytest.raises(ValueError, match="no further"):
        block_format(ImageFeatures(features.embedding, features.keys, features.values, (3, 5)), "int8", tokens=4)


def test_paper_sizes_take_the_stated_bytes() -> None:
    assert BlockFormat("int8", 196, 512, False, (14, 14)).num_bytes == 200_704
    assert BlockFormat("int8", 196, 512, True, (14, 14)).num_bytes == 100_352


def test_nothing_is_kept_for_a_second_look_that_is_never_taken(tmp_path: Path) -> None:
    config = recipes.recipe("tiny/sigmoid").model
    index = Index.create(tmp_path / "index", Engine(GoldiCLIP(config), image_size=32, device="cpu"))
    index.add(items(5))
    assert index.format.num_bytes == 0
    assert len(index.search("a red hat", k=5)) == 5


def test_without_blocks_the_pictures_are_read_again(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for i in range(12):
        picture(i).save(tmp_path / "photos" / f"{i}.png")
    kept, anew = (Index.create(tmp_path / name, engine, precision=name) for name in ("float16", "none"))
    for index in (kept, anew):
        index.add(images_in(tmp_path / "photos"))
    assert anew.format.num_bytes == 0
    ours, theirs = (index.search("a red hat", k=12, shortlist=12) for index in (kept, anew))
    assert [hit.id for hit in ours] == [hit.id for hit in theirs]


def test_a_broken_picture_is_named_and_the_rest_is_indexed(engine: Engine, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    for i in range(3):
        picture(i).save(photos / f"{i}.png")
    (photos / "broken.jpg").write_bytes(b"no picture")
    added = Index.create(tmp_path / "index", engine).add(images_in(photos))
    assert added.added == 3
    assert list(added.failed) == ["broken.jpg"]


@pytest.mark.parametrize("store", STORES)
def test_a_file_name_may_be_any_bytes(engine: Engine, store: str, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    name = os.fsdecode(b"caf\xe9.png")
    picture(0).save(photos / "plain.png")
    (photos / "plain.png").rename(photos / name)
    index = Index.create(tmp_path / need(store), engine)
    assert index.add(images_in(photos)).added == 1
    (hit,) = index.search("a red hat")
    assert hit.id == r"caf\xe9.png"
    assert pixels(picture_of(hit.record)).shape == (3, 32, 32)


def test_an_index_is_opened_with_its_own_encoder_and_format(engine: Engine, tmp_path: Path) -> None:
    Index.create(tmp_path / "index", engine)
    with pytest.raises(IndexMismatch, match="another encoder"):
        Index.open(tmp_path / "index", make_engine(seed=1))
    with pytest.raises(IndexMismatch, match="choose another place"):
        Index.create(tmp_path / "index", engine, precision="float16")
    with pytest.raises(FileNotFoundError, match="goldiclip index"):
        Index.open(tmp_path / "nowhere", engine)


@pytest.mark.parametrize("store", STORES)
def test_a_folder_of_something_else_is_left_alone(engine: Engine, store: str, tmp_path: Path) -> None:
    other = tmp_path / need(store)
    other.mkdir()
    (other / "file").touch()
    with pytest.raises(IndexMismatch, match="something else"):
        Index.create(other, engine)


def test_a_lance_table_of_something_else_is_left_alone(engine: Engine, tmp_path: Path) -> None:
    lance = pytest.importorskip("lance", reason="the serve extra is not installed")
    pyarrow = pytest.importorskip("pyarrow")
    lance.write_dataset(pyarrow.table({"a": [1]}), tmp_path / "other.lance")
    with pytest.raises(IndexMismatch, match="another program"):
        Index.create(tmp_path / "other.lance", engine)


def _build(folder: Path) -> None:
    """Index 64 pictures, eight a segment, slowly."""
    from goldiclip.inference import index as module

    module.SEGMENT = 8
    torch.set_num_threads(1)
    engine = make_engine()
    Index.create(folder, engine).add(slowly(items(64)))


def slowly(gallery: list[Item]):  # type: ignore[no-untyped-def]
    for item in gallery:
        time.sleep(0.01)
        yield item


@pytest.mark.parametrize(("store", "written"), [("folder", "generation-0/0*"), ("table.lance", "data/*")], ids=STORES)
def test_a_killed_build_loses_nothing_written_and_goes_on(
    engine: Engine, store: str, written: str, tmp_path: Path
) -> None:
    folder = tmp_path / need(store)
    process = multiprocessing.get_context("spawn").Process(target=_build, args=(folder,))
    process.start()
    deadline = time.monotonic() + 300
    while len([*folder.glob(written)]) < 5:  # the fifth is begun when the fourth is whole
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    index = Index.create(folder, engine)
    survived = len(index)
    assert 24 <= survived < 64
    added = index.add(items(64))
    assert (added.present, added.added, len(index)) == (survived, 64 - survived, 64)
    whole = Index.create(tmp_path / "whole", engine)
    whole.add(items(64))
    for query in QUERIES:
        assert [h.id for h in index.search(query, k=64)] == [h.id for h in whole.search(query, k=64)]


def test_threads_that_compute_alone_change_nothing_for_others() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        pool = single_threaded(3)
        assert list(pool.map(lambda _: torch.get_num_threads(), range(12))) == [1] * 12
        assert torch.get_num_threads() == 2
        with ThreadPoolExecutor(1) as others:
            assert others.submit(torch.get_num_threads).result() == 2
        pool.shutdown()
    finally:
        torch.set_num_threads(before)


def test_an_engine_of_half_precision_searches_too(engine: Engine, tmp_path: Path) -> None:
    half = Engine(engine.model, image_size=engine.image_size, device="cpu", precision="bf16")
    found = {}
    for name, one in (("half", half), ("whole", engine)):
        index = Index.create(tmp_path / name, one)
        index.add([Item(str(i), picture(i)) for i in range(8)])
        found[name] = {hit.id: hit.score for hit in index.search(QUERIES[0], k=8)}
    for id, score in found["whole"].items():
        assert found["half"][id] == pytest.approx(score, abs=0.1)
