"""A thousand damaged shards: each ends in samples, counted bad samples or a clean refusal, soon, and in its folder."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.random import Generator
from torchvision.io import encode_jpeg

from goldiclip.data.decode import decode_image
from goldiclip.data.shard_paths import ShardError
from goldiclip.data.shard_writer import write_shard
from goldiclip.data.shards import BadSample, Shards
from goldiclip.types import Caption, Question, Region, Sample

NUM_MUTANTS = 1_200


class Exploded(Exception):
    """What a pickle in a shard would raise if anything ever loaded it."""


def _explode() -> None:
    raise Exploded


class Bomb:
    def __reduce__(self):
        return (_explode, ())


@pytest.fixture(scope="module")
def seeds(tmp_path_factory) -> list[bytes]:
    """Small sound shards in several dialects, one with a pickle and a link in it."""
    folder = tmp_path_factory.mktemp("seeds")
    image = bytes(
        encode_jpeg(torch.arange(3 * 24 * 24, dtype=torch.int64).remainder(255).to(torch.uint8).view(3, 24, 24)).numpy()
    )
    region, question = Region("dog", (0.1, 0.2, 0.8, 0.9), "a dog"), Question("how many?", "2", "count")
    samples = [
        Sample(key, image, (Caption("a. b"), Caption("c", "short")), (region,), (question,))
        for key in ("0", "1", "x" * 120)
    ]
    own = write_shard(samples, folder / "own.tar").read_bytes()
    return [
        own,
        *(_foreign(folder / f"{format}.tar", image, format) for format in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)),
    ]


def _foreign(path: Path, image: bytes, format: int) -> bytes:
    with tarfile.open(path, "w", format=format) as tar:
        for key in ("0", "y" * 150, "2"):
            for suffix, payload in (
                ("jpg", image),
                ("json", b'{"shortSV_captions": "a. b"}'),
                ("txt", b"c"),
                ("pyd", pickle.dumps(Bomb())),
            ):
                info = tarfile.TarInfo(f"{key}.{suffix}")
                info.size = len(payload)
                tar.addfile(info, io.BytesIO(payload))
        link = tarfile.TarInfo("3.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "../../../etc/passwd"
        tar.addfile(link)
    return path.read_bytes()


def _flip(raw: bytearray, rng: Generator) -> None:
    for at in rng.integers(0, len(raw), size=int(rng.integers(1, 20))):
        raw[at] ^= 1 << int(rng.integers(8))


def _cut(raw: bytearray, rng: Generator) -> None:
    del raw[int(rng.integers(0, len(raw))) :]


def _header(raw: bytearray, rng: Generator) -> None:
    """Damage fields of one header and make its checksum right again, so that the damage is believed."""
    headers = [at for at in range(0, len(raw), 512) if raw[at + 257 : at + 262] == b"ustar"]
    at = headers[int(rng.integers(len(headers)))]
    for _ in range(int(rng.integers(1, 4))):
        start, size = [(0, 100), (124, 12), (156, 1), (257, 8), (345, 155), (482, 1)][int(rng.integers(6))]
        junk = [
            bytes(rng.integers(0, 256, size, dtype=np.uint8)),
            b"../" * 40,
            b"/etc/x.jpg\0" * 9,
            b"7" * 12,
            b"\x80" + b"\xff" * 11,
            b"S" * 9,
            b"x" * 9,
        ]
        choice = junk[int(rng.integers(len(junk)))]
        raw[at + start : at + start + min(size, len(choice))] = choice[:size]
    raw[at + 148 : at + 156] = b" " * 8
    raw[at + 148 : at + 156] = f"{sum(raw[at : at + 512]):06o}\0 ".encode()


def _splice(raw: bytearray, rng: Generator) -> None:
    """Move some blocks elsewhere, or repeat them."""
    blocks = len(raw) // 512
    start, where = (512 * int(i) for i in rng.integers(0, blocks, size=2))
    part = raw[start : start + 512 * int(rng.integers(1, 5))]
    if rng.random() < 0.5:
        del raw[start : start + len(part)]
    raw[where:where] = part


def _zero(raw: bytearray, rng: Generator) -> None:
    start, size = int(rng.integers(0, len(raw))), int(rng.integers(1, 3_000))
    raw[start : start + size] = bytes(len(raw[start : start + size]))


def _text(raw: bytearray, rng: Generator) -> None:
    """Damage inside the JSON that stays JSON: other types, other numbers."""
    for old, new in (
        (b'"a. b"', b"123456"),
        (b"0.1", b"NaN"),
        (b"0.8", b"1e9"),
        (b"[", b"{"),
        (b'"box"', b'"bax"'),
        (b"dog", b"\\u0"),
    ):
        if rng.random() < 0.4:
            raw[:] = raw.replace(old, new[: len(old)].ljust(len(old)), int(rng.integers(1, 4)))


MUTATIONS = (_flip, _cut, _header, _splice, _zero, _text)


def _mutant(seeds: list[bytes], number: int) -> bytes:
    rng = np.random.default_rng(number)
    raw = bytearray(seeds[number % len(seeds)])
    for _ in range(int(rng.integers(1, 3))):
        if raw:
            MUTATIONS[int(rng.integers(len(MUTATIONS)))](raw, rng)
    return bytes(raw)


def _read_all(path: Path) -> tuple[int, int, bool]:
    """(good, bad, refused). Anything but these three outcomes is an exception, and fails the test."""
    try:
        shards = Shards(str(path))
    except ShardError:
        return 0, 0, True
    good = bad = 0
    for i in range(len(shards)):
        try:
            sample = shards[i]
            assert decode_image(sample.image).shape[0] == 3
            assert sample.captions
            assert ".." not in sample.key.split("/")
            good += 1
        except BadSample as error:
            bad += bool(error.reason)
    return good, bad, False


def test_mutated_shards_never_crash_the_reader(seeds, tmp_path, monkeypatch):
    monkeypatch.setenv("GOLDICLIP_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "shards"
    folder.mkdir()
    path = folder / "mutant.tar"
    total = np.zeros(3, dtype=int)
    changed, slowest = 0, 0.0
    for number in range(NUM_MUTANTS):
        raw = _mutant(seeds, number)
        changed += raw not in seeds
        path.write_bytes(raw)
        began = time.perf_counter()
        total += _read_all(path)
        slowest = max(slowest, time.perf_counter() - began)
    good, bad, refused = total
    assert changed >= 1_000
    assert min(good, bad, refused) > 20, "the mutations reach every outcome"
    assert slowest < 5
    assert sorted(os.listdir(folder)) == ["mutant.tar", "mutant.tar.index"]
    assert sorted(os.listdir(tmp_path)) == ["shards"]


def test_unmutated_seeds_are_sound(seeds, tmp_path):
    """Otherwise the test above would fuzz nothing."""
    for number, raw in enumerate(seeds):
        (tmp_path / f"{number}.tar").write_bytes(raw)
        assert _read_all(tmp_path / f"{number}.tar") == (3, 0, False)


def test_the_bomb_would_explode():
    with pytest.raises(Exploded):
        pickle.loads(pickle.dumps(Bomb()))
