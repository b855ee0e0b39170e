"""Near-duplicates and contamination: what looks the same is found, what does not is kept, and the first one stays."""

from __future__ import annotations

import json
import tarfile
import time
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.io import encode_jpeg
from torchvision.transforms.v2.functional import pil_to_tensor

from goldiclip.config import ConfigError
from goldiclip.data.shards import Shards, write_shards
from goldiclip.prepare.blocks import Job
from goldiclip.prepare.duplicates import MAX_DISTANCE, Hashes, distances, image_hash, near_pairs, repetitions
from goldiclip.prepare.exclusion import exclude
from goldiclip.prepare.pipeline import annotate
from goldiclip.prepare.stages import Phrases
from goldiclip.types import Caption, Sample


def photo(seed: int, height: int = 96, width: int = 128) -> Image.Image:
    """Noise whose spectrum falls as that of photos does."""
    noise = np.random.default_rng(seed).standard_normal((height, width, 3))
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width))
    falling = np.fft.ifft2(np.fft.fft2(noise, axes=(0, 1)) / (frequency + 0.01)[..., None], axes=(0, 1)).real
    return Image.fromarray((128 + 40 * falling / falling.std()).clip(0, 255).astype(np.uint8))


def hashed(image: Image.Image) -> Hashes:
    return image_hash(pil_to_tensor(image.convert("RGB")))


def recompressed(image: Image.Image, quality: int) -> Image.Image:
    buffer = BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer)


def noise(rows: int, seed: int = 0) -> Hashes:
    return np.random.default_rng(seed).integers(0, 1 << 64, (rows, 4), dtype=np.uint64)


def flipped(hashes: Hashes, bits: int, seed: int) -> Hashes:
    """The same hashes with some bits changed in each."""
    rng = np.random.default_rng(seed)
    changed = hashes.copy()
    for row in changed:
        for bit in rng.choice(255, bits, replace=False).tolist():
            row[bit // 64] ^= np.uint64(1 << bit % 64)
    return changed


# --- hashes ---------------------------------------------------------------------------------------------------------


def test_what_was_recompressed_or_resized_is_near_and_another_photo_is_far() -> None:
    for seed in range(8):
        image = photo(seed)
        original = hashed(image)
        for other in (
            recompressed(image, 30),
            image.resize((64, 48)),
            image.resize((256, 192)),
            image.point(lambda v: v * 0.8),
        ):
            assert distances(original, hashed(other)) <= MAX_DISTANCE
        assert distances(original, hashed(photo(seed + 100))) > 2 * MAX_DISTANCE


def test_flat_images_of_any_colour_and_size_hash_alike() -> None:
    flat = [hashed(Image.new("RGB", size, colour)) for size in ((8, 8), (300, 200)) for colour in ("white", "red")]
    assert {int(distances(flat[0], other)) for other in flat} == {0}


def test_the_hash_is_the_sign_of_the_transform_by_definition() -> None:
    image = pil_to_tensor(photo(3, 64, 64)).float()
    grey = (0.299 * image[0] + 0.587 * image[1] + 0.114 * image[2]).double().numpy()
    x = np.arange(64) + 0.5
    low = np.array(
        [
            (1 if u else 0.5**0.5) * (1 if v else 0.5**0.5) / 32
            * (grey * np.outer(np.cos(np.pi * u * x / 64), np.cos(np.pi * v * x / 64))).sum()
            for u in range(16) for v in range(16)
        ][1:]
    )  # fmt: skip
    bits = np.unpackbits(image_hash(image.to(torch.uint8)).view(np.uint8), bitorder="little")[:255].astype(bool)
    sure = np.abs(low - np.median(low)) > 0.01
    assert sure.sum() > 200
    assert (bits == (low > np.median(low)))[sure].all()


def pairs(hashes: Hashes, split: int = 0) -> Iterator[tuple[int, ...]]:
    return (tuple(row) for found in near_pairs(hashes, split=split) for row in found.tolist())


# --- pairs ----------------------------------------------------------------------------------------------------------


def test_pairs_are_those_of_comparing_all_with_all() -> None:
    base = noise(400)
    hashes = np.concatenate([base, flipped(base[:100], 6, 1), base[:20]])
    exact = {
        (i, j): int(distances(hashes[i], hashes[j]))
        for i in range(len(hashes))
        for j in range(i + 1, len(hashes))
        if distances(hashes[i], hashes[j]) <= MAX_DISTANCE
    }
    found = {(i, j): distance for i, j, distance in pairs(hashes)}
    assert set(found) <= set(exact)
    assert len(found) >= 0.99 * len(exact) >= 120 * 0.99
    assert all(exact[pair] == distance for pair, distance in found.items())


def test_most_pairs_at_the_limit_are_found() -> None:
    base = noise(500)
    far = flipped(base, MAX_DISTANCE, 2)
    found = {(i, j) for i, j, _ in pairs(np.concatenate([base, far]), split=500)}
    assert sum((row, row + 500) in found for row in range(500)) >= 0.9 * 500


def test_two_sets_are_compared_with_each_other_alone() -> None:
    base = noise(50)
    hashes = np.concatenate([base, base, base])
    found = {(i, j) for i, j, _ in pairs(hashes, split=50)}
    assert found == {(i, j) for i in range(50) for j in (i + 50, i + 100)}


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_of_equal_images_the_first_stays(kinds: list[int]) -> None:
    gone = repetitions(noise(6)[kinds])
    assert gone == {row: (kinds.index(kind), 0) for row, kind in enumerate(kinds) if kinds.index(kind) != row}


def test_what_goes_is_near_to_one_that_stays() -> None:
    """A chain 0, 16, 32, 48, 64 bits long: the second goes for the first; the third stays, near to none that does."""
    chain = [noise(1)[0]]
    for step in range(4):
        following = chain[-1].copy()
        for bit in range(16 * step, 16 * step + 16):
            following[bit // 64] ^= np.uint64(1 << bit % 64)
        chain.append(following)
    assert repetitions(np.stack(chain)) == {1: (0, 16), 3: (2, 16)}


def test_thousands_of_images_in_one_bucket_are_no_trouble() -> None:
    rng = np.random.default_rng(0)
    hashes = np.zeros((2_500, 4), dtype=np.uint64)
    hashes[:, 3] = rng.integers(0, 1 << 30, 2_500, dtype=np.uint64)
    start = time.process_time()
    assert len(repetitions(hashes)) > 1_250
    assert time.process_time() - start < 20


# --- shards ---------------------------------------------------------------------------------------------------------


def jpeg(image: Image.Image, quality: int = 95) -> bytes:
    return encode_jpeg(pil_to_tensor(image.convert("RGB")), quality=quality).numpy().tobytes()


def corpus(tmp_path: Path) -> Path:
    """Photos 0…9; 10 and 11 are photo 2 again, recompressed and halved; 12 cannot be decoded."""
    images = [jpeg(photo(seed)) for seed in range(10)]
    images += [jpeg(photo(2), 40), jpeg(photo(2).resize((64, 48))), b"\xff\xd8 nothing"]
    samples = (Sample(f"key{n:02d}", data, (Caption("A dog."),)) for n, data in enumerate(images))
    write_shards(samples, tmp_path / "in", 7)
    return tmp_path / "in"


def run(source: Path, out: Path, **settings: object) -> tuple[dict[str, int], list[str]]:
    counts = exclude(Shards(str(source)), out, quiet=True, **settings)  # type: ignore[arg-type]
    annotate(Shards(str(source)), Job(out, (Phrases("rules"),)), quiet=True, max_shares={})
    return dict(counts), [key for shard in range(2) for key in Shards(str(out)).keys(shard)]


def test_near_duplicates_are_left_out_and_the_report_says_of_what(tmp_path: Path) -> None:
    counts, kept = run(corpus(tmp_path), tmp_path / "out", near_duplicates=True)
    assert counts == {"near-duplicate": 2}
    assert kept == [f"key{n:02d}" for n in (*range(10), 12)]
    said = [json.loads(line) for line in (tmp_path / "out/.prepare/excluded.jsonl").read_text().splitlines()]
    assert [(line["key"], line["of"].rsplit(":", 1)[1], line["reason"]) for line in said] == [
        ("key10", "key02", "near-duplicate"),
        ("key11", "key02", "near-duplicate"),
    ]


def test_evaluation_images_are_left_out_from_folders_and_shards_alike(tmp_path: Path) -> None:
    source = corpus(tmp_path)
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "a.jpg").write_bytes(jpeg(photo(5), 60))
    write_shards([Sample("b", jpeg(photo(2)), (Caption("x"),))], tmp_path / "eval-shards")
    evaluation = [str(tmp_path / "eval"), str(tmp_path / "eval-shards")]
    counts, kept = run(source, tmp_path / "out", evaluation=evaluation)
    assert counts == {"evaluation image": 4}
    assert kept == [f"key{n:02d}" for n in (0, 1, 3, 4, 6, 7, 8, 9, 12)]


def test_without_the_options_nothing_is_left_out_even_after_a_run_with_them(tmp_path: Path) -> None:
    source = corpus(tmp_path)
    run(source, tmp_path / "out", near_duplicates=True)
    counts, kept = run(source, tmp_path / "out")
    assert (counts, len(kept)) == ({}, 13)


def test_images_are_hashed_once(tmp_path: Path) -> None:
    source = corpus(tmp_path)
    run(source, tmp_path / "out", near_duplicates=True)
    made = {path: path.stat().st_mtime_ns for path in (tmp_path / "out/.prepare/hashes").iterdir()}
    assert run(source, tmp_path / "out", near_duplicates=True)[0] == {"near-duplicate": 2}
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out/.prepare/hashes").iterdir()} == made


def test_an_evaluation_folder_without_images_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no images"):
        exclude(Shards(str(corpus(tmp_path))), tmp_path / "out", evaluation=[str(tmp_path / "empty")], quiet=True)
    (tmp_path / "empty" / "x.jpg").write_bytes(b"none")
    with pytest.raises(ConfigError, match="no image in there"):
        exclude(Shards(str(tmp_path / "in")), tmp_path / "out", evaluation=[str(tmp_path / "empty")], quiet=True)


def test_real_photos_are_not_taken_for_one_another(shared: Path) -> None:
    """The first 1,500 of Flickr8k: no two of them are the same picture."""
    hashes = []
    with tarfile.open(shared / "data/flickr8k/images.tar") as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file and len(hashes) < 1_500:
                hashes.append(hashed(Image.open(BytesIO(file.read()))))
    assert repetitions(np.stack(hashes)) == {}
