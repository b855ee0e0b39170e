"""What people's shards hold, from the tar to the batch: replaced and counted, mended, or never read."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from goldiclip.config import Config, ConfigError
from goldiclip.data.loader import Loader, TooManyBad
from goldiclip.data.tokenizer import Tokenizer
from made_shards import members

NUM_GOOD = 11
TOKENIZER = Tokenizer()


def encoded(form: str, mode: str = "RGB", side: int = 40) -> bytes:
    file = io.BytesIO()
    Image.radial_gradient("L").resize((side, side)).convert(mode).save(file, form)
    return file.getvalue()


JPEG = encoded("JPEG")


def png_of(width: int, height: int) -> bytes:
    head = struct.pack(">4sIIBBBBB", b"IHDR", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))


def said(caption: object, **keys: object) -> bytes:
    return json.dumps({"captions": caption, **keys}).encode()


def boxed(*box: float) -> bytes:
    return said("odd", regions=[{"phrase": "p", "box": box}])


def shard(folder: Path, *odd: tuple[str, bytes]) -> Path:
    """Eleven good samples around the odd members."""
    good = [
        (f"{i}.{kind}", payload) for i in range(NUM_GOOD) for kind, payload in (("jpg", JPEG), ("json", said(f"{i}")))
    ]
    folder.mkdir(exist_ok=True)
    return members(folder / "a.tar", *good[:8], *odd, *good[8:])


def epochs(tiny: Config, path: Path, num: int = 3) -> tuple[list[str], Counter[str]]:
    """What the captions of as many epochs say, in order, and everything that was counted."""
    data = replace(tiny.data, train=(str(path),), captions=1, workers=0)
    config, counts, texts = replace(tiny, data=data, run=replace(tiny.run, batch=6)), Counter[str](), []
    for batch in Loader(config, TOKENIZER, stop=num * (NUM_GOOD + 1)):
        texts += [TOKENIZER.decode(row) for row in batch.captions.rows()]
        counts.update(batch.counts)
    return texts, counts


REPLACED = {
    "a truncated image": ("undecodable image", ("odd.jpg", JPEG[: len(JPEG) // 2]), ("odd.json", said("odd"))),
    "an image of no bytes": ("empty image", ("odd.jpg", b""), ("odd.json", said("odd"))),
    "an enormous image": ("image too large", ("odd.png", png_of(30_000, 30_000)), ("odd.json", said("odd"))),
    "an image of one pixel": ("image too small", ("odd.png", encoded("PNG", side=1)), ("odd.json", said("odd"))),
    "no image": ("no image", ("odd.json", said("odd"))),
    "JSON that is none": ("unreadable JSON", ("odd.jpg", JPEG), ("odd.json", b"{'captions': odd}")),
    "a caption None": ("no caption", ("odd.jpg", JPEG), ("odd.json", said(None))),
    "a caption NaN": ("no caption", ("odd.jpg", JPEG), ("odd.json", said(float("nan")))),
    "an empty caption": ("no caption", ("odd.jpg", JPEG), ("odd.json", said(""))),
    "a caption of points": ("no caption", ("odd.jpg", JPEG), ("odd.json", said("..."))),
    "a caption of 10 MB": ("record too large", ("odd.jpg", JPEG), ("odd.json", said("odd " * 2_500_000))),
    "a text of 10 MB": ("record too large", ("odd.jpg", JPEG), ("odd.txt", b"odd " * 2_500_000)),
}


@pytest.mark.parametrize("what", REPLACED)
def test_what_cannot_be_trained_on_is_replaced_the_same_way_every_time_and_counted(
    tiny: Config, tmp_path: Path, what: str
) -> None:
    reason, *odd = REPLACED[what]
    path = shard(tmp_path / "set", *odd)
    texts, counts = epochs(tiny, path)
    assert {name for name in counts if name.startswith("bad")} == {f"bad: {reason}"}
    assert counts[f"bad: {reason}"] >= 3  # and again where it was drawn as a substitute
    assert len(texts) == 3 * (NUM_GOOD + 1)
    assert set(texts) == {str(i) for i in range(NUM_GOOD)}
    assert epochs(tiny, path) == (texts, counts)


USED = {
    "a PNG named JPEG": (("odd.jpg", encoded("PNG")), ("odd.json", said("odd"))),
    "a JPEG in CMYK": (("odd.jpg", encoded("JPEG", "CMYK")), ("odd.json", said("odd"))),
    "a string for a list": (("odd.jpg", JPEG), ("odd.json", said("odd"))),
    "a reversed box": (("odd.jpg", JPEG), ("odd.json", boxed(0.9, 0.1, 0.2, 0.4))),
    "a box in pixels": (("odd.jpg", JPEG), ("odd.json", boxed(9, 10, 20, 40))),
    "a box with NaN": (("odd.jpg", JPEG), ("odd.json", boxed(float("nan"), 0.1, 0.2, 0.4))),
    "an unknown key": (("odd.jpg", JPEG), ("odd.json", said("odd", captionz=[1], clip_score=float("nan")))),
    "a key twice in the record": (("odd.jpg", JPEG), ("odd.json", b'{"captions": "no", "captions": "odd"}')),
    "a key twice in the tar": (
        ("odd.jpg", JPEG),
        ("odd.json", said("odd")),
        ("0.jpg", b"not this one"),
        ("0.json", said("nor this")),
    ),
}


@pytest.mark.parametrize("what", USED)
def test_what_can_be_mended_is_trained_on(tiny: Config, tmp_path: Path, what: str) -> None:
    texts, counts = epochs(tiny, shard(tmp_path / "set", *USED[what]))
    assert Counter(texts) == dict.fromkeys(["odd", *map(str, range(NUM_GOOD))], 3)
    assert not any(name.startswith("bad") for name in counts)


class Trap:
    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (Path("sprung"),)


@pytest.mark.parametrize(
    "odd",
    [
        ("../odd.jpg", JPEG),
        ("/tmp/odd.jpg", JPEG),
        ("a/../../odd.json", said("odd")),
        ("odd.pyd", pickle.dumps(Trap())),
        ("odd.pickle", pickle.dumps(Trap())),
        ("odd.pth", pickle.dumps(Trap())),
    ],
)
def test_what_is_no_member_of_a_sample_is_neither_read_nor_written(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: tuple[str, bytes]
) -> None:
    path = shard(tmp_path / "set", odd)
    monkeypatch.chdir(tmp_path / "set")
    texts, _ = epochs(tiny, path)
    assert set(texts) == {str(i) for i in range(NUM_GOOD)}
    assert sorted(tmp_path.rglob("*")) == [path.parent, path, path.with_name("a.tar.index")]


def test_of_a_truncated_tar_the_whole_samples_are_trained_on(tiny: Config, tmp_path: Path) -> None:
    path = shard(tmp_path / "set")
    path.write_bytes(path.read_bytes()[:20_000])
    texts, counts = epochs(tiny, path)
    assert 0 < len(set(texts)) < NUM_GOOD
    assert set(texts) == {str(i) for i in range(len(set(texts)))}
    assert not any(name.startswith("bad") for name in counts)


def test_above_the_configured_rate_the_run_stops_and_says_why(tiny: Config, tmp_path: Path) -> None:
    reason, *odd = REPLACED["an image of no bytes"]
    strict = replace(tiny, data=replace(tiny.data, max_bad_share=0.0))
    with pytest.raises(TooManyBad, match=rf"allows 0: 1 × {reason} \(such as .*a\.tar, key odd: {reason}: zero bytes"):
        epochs(strict, shard(tmp_path / "set", *odd))


@pytest.mark.parametrize("train", ["pipe:cat a.tar", "a.tar::pipe:curl x", "gone.tar", "*.nothing", "a-{0..3}.tar"])
def test_a_run_over_what_cannot_be_read_does_not_start(
    tiny: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train: str
) -> None:
    shard(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-0.tar").write_bytes((tmp_path / "a.tar").read_bytes())
    with pytest.raises((ConfigError, FileNotFoundError), match=r"never run|no such shard|nothing matches|3 of its 4"):
        epochs(tiny, Path(train))
