"""The commands as a user types them: from photos and a table into a training step, and every mistake said in a line."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from goldiclip.cli import main
from goldiclip.data.scenes import Settings, scene, to_sample
from goldiclip.data.shards import Shards, write_shards
from goldiclip.types import TERMS, Caption, Sample

Models = Callable[[str], Path]


def photos(shared: Path, folder: Path, count: int) -> Path:
    """The first photographs of Flickr8k, as files."""
    with tarfile.open(shared / "data/flickr8k/images.tar") as archive:
        for _ in range(count):
            member = archive.next()
            assert member is not None
            archive.extract(member, folder, filter="data")
    return folder


def terms_of_a_step(shards: Path, batch: int, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """Take real training steps on the shards; the terms that had something to learn from in the first."""
    capsys.readouterr()
    assert main(["train", "tiny", f"data.train={shards}", f"run.batch={batch}", "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = (line.split() for line in lines)
    return {row[0] for row in rows if len(row) >= 3 and row[0] in TERMS and float(row[2]) > 0}


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """Four scenes without regions and questions, in one shard."""
    settings = Settings(size=48)
    drawn = (to_sample(scene(number, 0, settings, "train")) for number in range(4))
    write_shards([Sample(item.key, item.image, item.captions) for item in drawn], tmp_path / "few")
    return tmp_path / "few"


# --- all the way ----------------------------------------------------------------------------------------------------


def test_flickr8k_goes_from_files_and_a_table_into_a_training_step(
    shared: Path, models: Models, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = photos(shared, tmp_path / "photos", 48)
    table = str(shared / "data/flickr8k/captions.csv")
    assert main(["prepare", "join", str(source), "--captions", table, "--out", str(tmp_path / "joined")]) == 0
    said = capsys.readouterr().out
    assert "48 images, 40,455 rows of captions, joined by name" in said
    assert "100.00%  matched" in said
    for kind in ("image without captions", "duplicate key", "suspicious", "NaN or empty in 'caption'"):
        assert kind in said
    model, out = f"owlv2:{models('owlv2')}", str(tmp_path / "annotated")
    words = ["prepare", "annotate", str(tmp_path / "joined"), "--out", out, "--writer", "templates"]
    assert main([*words, "--detector", model, "--workers", "1"]) == 0
    assert "48 samples in 1 shards" in capsys.readouterr().out
    assert main([*words, "--detector", model, "--workers", "1"]) == 0
    assert "1 of them done before" in capsys.readouterr().out
    assert terms_of_a_step(tmp_path / "annotated", 16, capsys) == set(TERMS)


def test_the_embedded_corpus_is_annotated_by_real_model_classes_stage_by_stage(
    few: Path, models: Models, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = (
        ["phrases", "--source", "rules"],
        ["boxes", "--detector", f"grounding-dino:{models('grounding_dino')}", "--min-score", "0"],
        ["boxes", "--detector", f"owlv2:{models('owlv2')}"],
        ["questions", "--writer", str(models("phi3"))],
        ["questions", "--writer", "templates"],
    )
    source = few
    for number, (stage, *settings) in enumerate(steps):
        out = tmp_path / f"{number}-{stage}"
        assert main(["prepare", stage, str(source), "--out", str(out), *settings, "--workers", "1"]) == 0
        source = out
    assert "images without questions" in capsys.readouterr().out  # random weights write nothing that holds
    assert any(sample.regions for sample in Shards(str(source)))
    assert any(sample.questions for sample in Shards(str(source)))
    assert main(["prepare", "check", str(source), "--workers", "1"]) == 0
    assert terms_of_a_step(source, 4, capsys) == set(TERMS)


def test_evaluation_images_and_near_duplicates_stay_out(few: Path, tmp_path: Path) -> None:
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "photo.png").write_bytes(Shards(str(few))[2].image)
    words = ["prepare", "annotate", str(few), "--out", str(tmp_path / "out"), "--stages", "phrases", "--workers", "1"]
    assert main([*words, "--decontaminate", str(tmp_path / "benchmark"), "--near-duplicates"]) == 0
    assert [item.key for item in Shards(str(tmp_path / "out"))] == [
        item.key for number, item in enumerate(Shards(str(few))) if number != 2
    ]


def test_a_contact_sheet_shows_samples_and_what_is_wrong_with_them(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    bad = Sample("zz_bad", b"\xff\xd8 no image", (Caption("A dog."),))
    write_shards([*Shards(str(few)), bad], tmp_path / "mixed")
    sheet = tmp_path / "sheets" / "sheet.png"
    assert main(["prepare", "show", str(tmp_path / "mixed"), "--out", str(sheet)]) == 0
    assert capsys.readouterr().out.strip() == str(sheet)
    heights = []
    for position in (0, 4):
        words = ["--position", str(position), "--count", "1", "--out", str(sheet)]
        assert main(["prepare", "show", str(tmp_path / "mixed"), *words]) == 0
        with Image.open(sheet) as drawn:
            heights.append(drawn.height)
    assert heights[0] > 400 > heights[1]  # a card, and the line of one that cannot be drawn


# --- mistakes -------------------------------------------------------------------------------------------------------

MISTAKES = [
    (["annotate", "nowhere", "--out", "o"], "nowhere: no such shard"),
    (["annotate", "few", "--out", "few", "--stages", "phrases"], "input and output are the same file"),
    (["annotate", "few", "--out", "o", "--stages", "boxen"], "--stages boxen: expected some of phrases, boxes"),
    (["annotate", "few", "--out", "o", "--detector", "yolo"], "expected owlv2 or grounding-dino"),
    (["annotate", "few", "--out", "o", "--block", "0"], "--block is 0"),
    (["annotate", "few", "--out", "o", "--workers", "-1"], "--workers is -1"),
    (["annotate", "few", "--out", "o", "--max-failed", "7"], "--max-failed is 7; expected 0 to 1"),
    (["annotate", "few", "--out", "o", "--writer-batch", "0"], "questions: batch is 0"),
    (["annotate", "few", "--out", "o", "--phrases", "magic"], "expected rules, auto or spacy:NAME"),
    (["annotate", "few", "--out", "o", "--stages", "phrases", "--decontaminate", "gone"], "gone: no such shard"),
    (["boxes", "few", "--out", "o", "--device", "quantum"], "--device quantum: expected auto, cpu"),
    (["boxes", "few", "--out", "o", "--device", "cuda:99"], "--device cuda:99: torch sees"),
    (["boxes", "few", "--out", "o", "--min-score", "7"], "--min-score is 7; expected 0 to 1"),
    (["boxes", "few", "--out", "o", "--detector", "owlv2:few", "--workers", "1"], "cannot be loaded"),
    (["questions", "few", "--out", "o", "--writer", "http://127.0.0.1:9/v1"], "say which model"),
    (["questions", "few", "--out", "o", "--writer", "./gone", "--workers", "1"], "cannot be loaded"),
    (["phrases", "few", "--out", "o", "--limit", "0"], "limit is 0"),
    (["phrases", "cut.tar", "--out", "o"], "no sample in 1 shards (1 × cut short)"),
    (["join", "--out", "o"], "no images given"),
    (["join", "few", "--out", "few"], "is an input; choose another --out"),
    (["join", "few", "--captions", "gone.csv", "--out", "o"], "gone.csv: no caption table there"),
    (["join", "few", "--captions", "other.csv", "--out", "o"], "images without captions (the wrong --by?): 100.0%"),
    (["join", "few", "--captions", "other.csv", "--caption-columns", "caption", "--out", "o"], "NAME=SOURCE"),
    (["join", "few", "--key-column", "image", "--out", "o"], "say which with --captions"),
    (["join", "files", "--out", "o"], "images without captions (a table is given by --captions): 100.0%"),
    (["join", "few", "--out", "o", "--max-missing", "3"], "--max-missing is 3; expected 0 to 1"),
    (["join", "few", "--out", "o", "--per-shard", "0"], "--per-shard is 0"),
    (["check", "nowhere"], "nowhere: no such shard"),
    (["show", "few", "--count", "0"], "--count is 0"),
    (["show", "few", "--position", "4"], "--position is 4; expected 0 to 3"),
]


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=lambda item: " ".join(item) if isinstance(item, list) else "")
def test_a_mistake_is_said_in_a_line(
    words: list[str],
    said: str,
    few: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if "cannot be loaded" in said:
        pytest.importorskip("transformers")
    (tmp_path / "cut.tar").write_bytes(b"")
    (tmp_path / "other.csv").write_text("image,caption\nanother.jpg,A dog.\n")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "b.png").write_bytes(Shards(str(few))[0].image)
    before = (few / "00000.tar").read_bytes()
    assert main(["prepare", *words]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("goldiclip: ")
    assert said in line
    assert (few / "00000.tar").read_bytes() == before


def test_a_damaged_shard_is_named_while_what_is_whole_is_annotated(
    few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (few / "00000.tar").read_bytes()
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole[: len(whole) // 2])
    words = ["prepare", "phrases", str(cut), "--out", str(tmp_path / "out"), "--source", "rules", "--workers", "1"]
    assert main(words) == 0
    assert "cut.tar: 1 × cut short" in capsys.readouterr().err
    assert 0 < len(Shards(str(tmp_path / "out"))) < 4
