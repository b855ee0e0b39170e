"""An index in object storage, built by several Ray workers, answers as one in a folder does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from goldiclip import recipes
from goldiclip.config import ConfigError
from goldiclip.inference.engine import Engine
from goldiclip.inference.index import Index
from goldiclip.inference.parallel import add_with_ray
from goldiclip.inference.sources import images_in
from goldiclip.inference.stores import Row, lance
from goldiclip.model.goldiclip import GoldiCLIP

QUERIES = ["a red hat", "two dogs on the beach", "rain"]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket of an S3-compatible server on loopback; every process here finds it."""
    pytest.importorskip("lance", reason="the serve extra is not installed")
    moto = pytest.importorskip("moto.server", reason="the oracles extra is not installed")
    boto3 = pytest.importorskip("boto3")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="pictures")
    yield "s3://pictures"
    server.stop()


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    config = recipes.recipe("tiny")
    engine = Engine(GoldiCLIP(config.model, seed=2), image_size=32, config=config, device="cpu")
    return engine.save_pretrained(tmp_path / "encoder")


def picture(seed: int) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((32, 32), Image.Resampling.BICUBIC)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(41):
        picture(seed).save(folder / f"{seed:02d}.png")
    (folder / "broken.jpg").write_bytes(b"no picture")
    return folder


def test_an_index_in_a_bucket_built_by_ray_answers_as_a_folder_does(
    bucket: str, encoder: Path, photos: Path, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="the prepare extra is not installed")
    engine = Engine.load(encoder, device="cpu")
    here, there = Index.create(tmp_path / "index", engine), Index.create(f"{bucket}/index", engine)
    here.add(images_in(photos))
    there.add(list(images_in(photos))[:7])  # a build that was interrupted
    (tmp_path / "other").mkdir()
    for name in ("05.png", "06.png", "07.png"):  # other pictures of ids that are met already
        picture(99).save(tmp_path / "other" / name)
    folders = [str(photos), str(tmp_path / "other")]
    added = add_with_ray(there.uri, str(encoder), folders, 2, device="cpu", update=True)
    assert (added.added, added.present, sorted(added.failed)) == (41, 0, ["05.png", "06.png", "07.png", "broken.jpg"])
    there.refresh()
    readers = [Index.open(there.uri, engine) for _ in range(2)]
    for index in (here, there):
        index.delete(["03.png"])
    readers[1].refresh()
    for query in QUERIES:
        expected = here.search(query, k=10)
        for found in (there.search(query, k=10), readers[1].search(query, k=10)):
            assert [hit.id for hit in found] == [hit.id for hit in expected]
            assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected], abs=1e-4)
    assert (len(readers[0]), len(readers[1])) == (41, 40)  # each server answers from what it last saw


def test_a_bucket_is_reached_by_options_too(bucket: str, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {
        "endpoint": os.environ["AWS_ENDPOINT_URL"],
        "allow_http": "true",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "region": "us-east-1",
    }
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    engine = Engine.load(encoder, device="cpu")
    Index.create(f"{bucket}/other", engine, storage_options=options)
    assert len(Index.open(f"{bucket}/other", engine, storage_options=options)) == 0


def test_a_folder_is_not_built_by_several(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one writer"):
        add_with_ray(str(tmp_path / "index"), str(encoder), [str(tmp_path)], 2)


def test_a_large_table_is_indexed_and_finds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lance", reason="the serve extra is not installed")
    monkeypatch.setattr(lance, "INDEX_FROM", 500)
    lance.create_table(str(tmp_path / "table.lance"), 32, {})
    store = lance.LanceStore(str(tmp_path / "table.lance"), 32, 8)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((1_100, 32))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    rows = [Row(f"{i:04d}", vector, bytes(8), {"half": str(i % 2)}) for i, vector in enumerate(vectors)]
    for start in range(0, 1_000, 250):
        store.append(rows[start : start + 250])

    def found(query: int, **where: str) -> list[str]:
        places, _ = store.nearest(vectors[query], 20, where or None)
        return [record["id"] for record in store.records(places.tolist())]

    before = [found(query) for query in range(30)]
    store.compact()
    assert len(store.table.describe_indices()) == 2
    after = [found(query) for query in range(30)]
    assert np.mean([len({*one} & {*other}) / 20 for one, other in zip(before, after)]) > 0.95
    store.append(rows[1_000:])  # what came after the index was made
    assert found(1_050)[0] == "1050"
    assert store.delete(["1050", "0007"]) == 2
    assert not {"1050", "0007"} & {*found(1_050), *found(7)}
    assert {int(id) % 2 for id in found(3, half="1")} == {1}
    np.testing.assert_array_equal(store.vectors([store.place("0042")])[0], vectors[42])
