"""The shards' doctor, statistics and contact sheet: they say what is there, and nothing else."""

from __future__ import annotations

import io
import json
import re
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torchvision.io import encode_jpeg

from goldiclip import cli, data
from goldiclip.config import Config, override
from goldiclip.data import doctor, many, statistics
from goldiclip.data.contact_sheet import contact_sheet, draw_example
from goldiclip.data.doctor import diagnose
from goldiclip.data.doctor_report import show
from goldiclip.data.remedies import REMEDIES, remedy
from goldiclip.data.schema import BadSample, read_sample
from goldiclip.data.shards import Shards, write_shards
from goldiclip.data.statistics import measure
from goldiclip.data.statistics_plot import _coverage, plot
from goldiclip.data.tar_index import COUNTS
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.data.views import cut
from goldiclip.types import Caption, Question, Region, Sample


def picture(seed: int = 0, height: int = 60, width: int = 80) -> bytes:
    """A smooth picture, so that crops of it can be compared."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(1, 3, 6, 8, generator=generator) * 255
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 255)
    return encode_jpeg(smooth[0].to(torch.uint8), quality=98).numpy().tobytes()


PICTURE = picture()


def sample(number: int, **changes: object) -> Sample:
    parts = {
        "captions": (
            Caption("raw one"),
            Caption("A short caption", "short"),
            Caption("Long it is. Two sentences.", "long"),
        ),
        "regions": (
            Region("a thing", (0.2, 0.2, 0.8, 0.6), "a thing is here", 0.9),
            Region("a hint", (0, 0, 1, 1), score=0.1),
        ),
        "questions": (Question("How many?", "2", "count"),),
        "meta": {"url": "u"},
    }
    return Sample(f"{number:06d}", PICTURE, **{**parts, **changes})


def tar(path: Path, *items: tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, payload in items:
            info = tarfile.TarInfo(name)
            info.size = len(payload)
            archive.addfile(info, io.BytesIO(payload))
    return path


def record(**keys: object) -> bytes:
    return json.dumps({"captions": {"raw": ["a caption"]}, **keys}).encode()


def sick(folder: Path) -> Path:
    """Six good samples of which some lost parts, and one of each kind of bad one."""
    box = [0.1, 0.2, 0.5, 0.6]
    png = io.BytesIO()
    Image.new("L", (4, 4)).save(png, "png")
    items: list[tuple[str, bytes]] = []
    for number, payload in enumerate(
        [
            record(),
            record(regions=[{"phrase": "p", "box": [10, 20, 30, 40]}, {"phrase": "p", "box": box[::-1]}]),
            record(region=[1]),
            record(questions=[{"question": "q"}]),
            record(captions=["fine", None]),
            record(url="u"),
        ]
    ):
        items += [(f"good{number}.jpg", PICTURE), (f"good{number}.json", payload)]
    items += [("no_image.json", record()), ("no_caption.jpg", PICTURE), ("no_caption.json", b'{"url": 1}')]
    items += [("no_json.jpg", PICTURE), ("no_json.json", b"{"), ("dots.jpg", PICTURE), ("dots.txt", b"...")]
    items += [
        ("cut.jpg", PICTURE[: len(PICTURE) // 2]),
        ("cut.json", record()),
        ("tiny.jpg", png.getvalue()),
        ("tiny.txt", b"t"),
    ]
    items += [("x.pickle", b"x"), ("../up.jpg", b"x")]
    return tar(folder / "sick.tar", *items)


def counts(found: doctor.Diagnosis, severity: str) -> dict[str, int]:
    return {reason: item.count for reason, item in found.findings.items() if item.severity == severity}


# --- check ----------------------------------------------------------------------------------------------------------


def test_the_doctor_counts_by_reason_what_is_wrong(tmp_path):
    shards = Shards(str(sick(tmp_path)))
    found = diagnose(shards)
    assert (found.samples, found.bad) == (12, 6)
    assert counts(found, "sample") == {
        "no image": 1,
        "no caption": 2,
        "unreadable JSON": 1,
        "undecodable image": 1,
        "image too small": 1,
    }
    assert counts(found, "part") == {
        "box outside the image": 1,
        "box reversed": 1,
        "question without answer": 1,
        "caption empty": 1,
    }
    assert counts(found, "archive") == {"member ignored": 1, "name refused": 1}
    assert counts(found, "note") == {"unknown key 'region'": 1}
    assert "did you mean 'regions'" in found.findings["unknown key 'region'"].examples[0]
    assert found.findings["no image"].examples == [
        f"{shards.paths[0]}, key no_image: no .jpg, .jpeg, .png or .webp under this key"
    ]


def test_the_doctor_is_right_about_what_training_could_not_read(tmp_path, tiny):
    shards = Shards(str(sick(tmp_path)))
    config = override(tiny, ["data.train=x"])
    bad = 0
    for position in range(len(shards)):
        try:
            draw_example(shards[position], config, Tokenizer(), position)
        except BadSample:
            bad += 1
    assert bad == diagnose(shards).bad


def test_the_fast_way_misses_only_what_decoding_shows(tmp_path):
    shards = Shards(str(sick(tmp_path)))
    thorough, fast = counts(diagnose(shards), "sample"), counts(diagnose(shards, fast=True), "sample")
    assert thorough.pop("undecodable image") == 1
    assert fast == thorough


def test_an_enormous_image_is_found_by_its_header_alone(tmp_path):
    head = struct.pack(">4sIIBBBBB", b"IHDR", 30_000, 30_000, 8, 2, 0, 0, 0)
    png = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head))
    shards = Shards(str(tar(tmp_path / "a.tar", ("0.jpg", png), ("0.txt", b"c"))))
    for fast in (True, False):
        assert counts(diagnose(shards, fast=fast), "sample") == {"image too large": 1}


def test_keys_in_several_shards_and_shards_listed_twice_are_noted(tmp_path):
    for name in ("a", "b"):
        write_shards([sample(1), sample(2 if name == "a" else 3)], tmp_path / name)
    paths = [str(tmp_path / "a/00000.tar"), str(tmp_path / "b/00000.tar"), str(tmp_path / "a/00000.tar")]
    found = diagnose(Shards(paths))
    assert counts(found, "archive") == {"shard listed twice": 1}
    assert counts(found, "note") == {"key in several shards": 2}
    assert found.findings["key in several shards"].examples[0].endswith("key 000001")
    assert not diagnose(Shards(paths[0])).findings


@pytest.mark.slow
def test_many_processes_find_what_one_finds(tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "CHUNK", 1)
    shards = Shards([str(sick(tmp_path))] * 6)
    assert len(shards) > many.FEWEST_PARTS
    assert diagnose(shards, workers=2) == diagnose(shards, workers=1)


def test_two_diagnoses_add_up(tmp_path):
    first, second = doctor.Diagnosis(num_examples=2), doctor.Diagnosis(num_examples=2)
    for number in range(3):
        first.find("sample", "no image", f"{number}")
    second.find("sample", "no image", "later", 5)
    first.add(second)
    assert first.findings["no image"] == doctor.Finding("sample", 8, ["0", "1"])


def test_it_says_what_the_data_can_train(tmp_path):
    write_shards([sample(0, regions=(), questions=()), sample(1, questions=())], tmp_path)
    found = diagnose(Shards(str(tmp_path)))
    assert found.terms == {"ret": 2, "cap": 2, "ref": 1, "grd": 1, "vqa": 0, "sd": 2}


def printed(shards: Shards, max_bad_share: float = 0.01) -> tuple[int, str]:
    console = Console(file=io.StringIO(), width=100)
    code = show(shards, diagnose(shards), max_bad_share, console)
    return code, console.file.getvalue()


def test_the_report_names_reason_place_and_remedy_and_fails_when_training_would_stop(tmp_path):
    shards = Shards(str(sick(tmp_path)))
    code, text = printed(shards)
    assert code == 1
    flat = " ".join(text.split())
    assert "1 × unreadable JSON" in flat
    assert "key no_json" in flat
    assert remedy("unreadable JSON") in flat
    assert "vqa stays idle: no questions" in flat
    assert "50.00% of the samples are bad, and data.max_bad_share allows 1.00%" in flat
    assert printed(shards, max_bad_share=0.6)[0] == 0


def test_sound_shards_are_ready(tmp_path):
    write_shards([sample(i) for i in range(3)], tmp_path)
    code, text = printed(Shards(str(tmp_path)))
    assert code == 0
    assert "Ready: 3 good samples." in text
    assert "×" not in text


def test_every_reason_has_a_remedy():
    source = "".join(path.read_text() for path in Path(data.__file__).parent.glob("*.py"))
    reasons = set(re.findall(r'BadSample\(\s*"([^"]+)"', source)) | set(re.findall(r'None, "(box [^"]+)"', source))
    reasons |= {*COUNTS, *re.findall(r'dropped\["([^"]+)"', source), *re.findall(r'find\("\w+", "([^"]+)"', source)}
    reasons |= {form.format(name="caption") for form in re.findall(r'dropped\[f"(\{name\}[^"{]*)"', source)}
    assert len(reasons) > 25
    assert [reason for reason in sorted(reasons) if not remedy(reason)] == []
    assert remedy("captions not a list") == remedy("regions not a list") == REMEDIES["{}s not a list"]
    assert remedy("something new") == ""


# --- stats ----------------------------------------------------------------------------------------------------------


def test_statistics_are_those_of_the_samples(tmp_path):
    long = Caption("word " * 100, "long")
    write_shards([sample(0), sample(1, captions=(Caption("raw one"), long), regions=(), questions=())], tmp_path)
    found = measure(Shards(str(tmp_path)))
    assert found.samples == 2
    assert found.sizes == [(80, 60)] * 2
    assert found.num_captions == {"raw": [1, 1], "short": [1, 0], "long": [1, 1]}
    assert found.tokens == {"raw": [4, 4], "short": [5], "long": [9, 102]}
    assert found.sentences["long"] == [2, 1]
    assert (found.truncated("raw"), found.truncated("short"), found.truncated("long")) == (0, 0, 0.5)
    assert found.repeated == 2 / 5
    assert found.num_regions == [2, 0]
    assert dict(found.kinds) == {"count": 1}
    assert dict(found.phrases) == {"a thing": 1, "a hint": 1}


def test_statistics_of_some_are_spread_over_all(tmp_path):
    write_shards([sample(i, questions=(Question("q", str(i)),)) for i in range(20)], tmp_path, per_shard=5)
    found = measure(Shards(str(tmp_path)), num_samples=4)
    assert sorted(found.answers) == ["0", "13", "19", "6"]


def test_bad_samples_are_counted_and_not_measured(tmp_path):
    found = measure(Shards(str(sick(tmp_path))))
    assert dict(found.bad) == {"no image": 1, "no caption": 1, "unreadable JSON": 1}
    assert found.samples == 9


def test_parts_measured_apart_add_up(tmp_path, monkeypatch):
    write_shards([sample(i) for i in range(10)], tmp_path)
    shards = Shards(str(tmp_path))
    whole = measure(shards)
    monkeypatch.setattr(statistics, "CHUNK", 3)
    assert measure(shards) == whole


def test_coverage_counts_the_boxes_over_each_cell():
    boxes = np.array([[0, 0, 0.5, 0.5], [0.25, 0, 1, 1], [0.5, 0.5, 0.51, 0.51]])
    slow = np.zeros((8, 8))
    for x0, y0, x1, y1 in (boxes * 8).round().astype(int):
        slow[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] += 1
    assert np.array_equal(_coverage(boxes, 8), slow)


@pytest.mark.parametrize("bare", [False, True])
def test_the_plot_is_drawn_with_and_without_regions_and_questions(tmp_path, bare):
    parts = {"regions": (), "questions": (), "captions": (Caption("only raw"),)} if bare else {}
    write_shards([sample(i, **parts) for i in range(5)], tmp_path)
    path = plot(measure(Shards(str(tmp_path))), tmp_path / "new" / "stats.png")
    with Image.open(path) as image:
        assert min(image.size) > 500


# --- show -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("photometrics", ["device", "worker"])
def test_the_outlines_are_where_the_views_were_cut(tiny: Config, photometrics):
    config = override(tiny, [f"data.photometrics={photometrics}", "data.views.num_local=6"])
    for position in range(5):
        drawn = draw_example(sample(0), config, Tokenizer(), position)
        views = [*drawn.example.global_views]
        views += [*drawn.example.local_views] if photometrics == "device" else []
        for view, (x0, y0, x1, y1) in zip(views, drawn.windows):
            left, right, top, bottom = round(min(x0, x1) * 80), round(max(x0, x1) * 80), round(y0 * 60), round(y1 * 60)
            again = cut(drawn.image, [(top, left, bottom - top, right - left)], view.shape[-1])[0]
            again = again.flip(-1) if x0 > x1 else again
            assert (again.float() - view.float()).abs().mean() < 4
        assert len(drawn.windows) == 7


def test_a_contact_sheet_shows_bad_samples_too_and_is_the_same_twice(tmp_path, tiny):
    shards = Shards(str(sick(tmp_path)))
    first, again, later = (
        contact_sheet(shards, tiny, tmp_path / f"{i}.png", count=6, position=at).read_bytes()
        for i, at in enumerate((0, 0, 6))
    )
    assert first == again
    assert first != later


# --- the command line -----------------------------------------------------------------------------------------------


def test_the_commands_work_from_the_command_line(tmp_path, capsys):
    write_shards([sample(i) for i in range(4)], tmp_path / "set", per_shard=2)
    shards, out = str(tmp_path / "set" / "{00000..00001}.tar"), tmp_path / "out.png"
    assert cli.main(["shards", "check", shards]) == 0
    assert "4 good samples" in capsys.readouterr().out
    assert cli.main(["shards", "stats", shards, "--out", str(out)]) == 0
    assert "over 77" in capsys.readouterr().out
    assert out.exists()
    out.unlink()
    assert cli.main(["shards", "show", shards, "data.captions=2", "--recipe", "tiny", "--out", str(out)]) == 0
    assert out.exists()


def test_the_commands_say_what_is_wrong_in_one_line(tmp_path, capsys):
    assert cli.main(["shards", "check", str(tmp_path / "gone.tar")]) == 2
    assert cli.main(["shards", "check"]) == 2
    assert cli.main(["shards", "show", "pipe:cat"]) == 2
    assert cli.main(["shards", "show", str(sick(tmp_path)), "--recipe", "tiny", "--position", "-5"]) == 2
    assert cli.main(["shards", "check", str(sick(tmp_path))]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert [line.split(":")[0] for line in lines] == ["goldiclip"] * 4
    assert "no such shard" in lines[0]


def test_the_documentation_names_every_reason_and_its_example_is_read():
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    named = set(re.findall(r"`([a-z][^`]+)`", text.partition("## What can be wrong")[2], flags=re.IGNORECASE))
    forms = {re.sub(r"\b(caption|region|question)(?=s?\b)", "{}", name) for name in named}
    assert sorted(reason for reason in REMEDIES if reason not in named | forms) == []
    example = json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])
    found = read_sample("k", PICTURE, example)
    assert len(found.captions) == 3
    assert len(found.regions) == len(found.questions) == 1
    assert sorted(found.meta) == ["height", "url", "width"]
