"""The doctor of annotations: it names what no longer belongs together, and judges only what stages made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_pipeline import STAGES, picture, run, sample

from goldiclip.cli import main
from goldiclip.data.shards import Shards, write_shards
from goldiclip.prepare.blocks import Job, plan_shards
from goldiclip.prepare.check import REMEDIES, examine
from goldiclip.prepare.pipeline import annotate
from goldiclip.prepare.stages import Phrases
from goldiclip.types import Caption, Question, Region, Sample

SENTENCE = "A big red dog chases a ball."
MADE = {"phrases": "a", "boxes": "b", "questions": "c"}


def annotated(
    key: str = "k",
    phrases: Any = None,
    regions: tuple[Region, ...] = (),
    questions: tuple[Question, ...] = (),
    made: Mapping[str, str] = MADE,
) -> Sample:
    meta = {"phrases": {SENTENCE: ["red dog", "ball"]} if phrases is None else phrases, "prepared": dict(made)}
    return Sample(key, picture(0), (Caption(SENTENCE, "long"),), regions, questions, meta)


def faults(tmp_path: Path, *samples: Sample) -> dict[str, int]:
    write_shards(samples, tmp_path / "in")
    found = examine(Shards(str(tmp_path / "in")), workers=1).findings
    assert all(item.remedy for reason, item in found.items())
    return {reason: item.count for reason, item in found.items()}


DOG = Region("red dog", (0.1, 0.1, 0.5, 0.5), SENTENCE, 0.9)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"phrases": ["red dog"]}, "phrases are no object of lists"),
        ({"phrases": {SENTENCE: ["red dog", 3]}}, "phrases are no object of lists"),
        ({"phrases": {"A cat sleeps.": ["cat"]}}, "phrase of no caption"),
        ({"phrases": {SENTENCE: ["cat"]}}, "phrase of no caption"),
        ({"phrases": {SENTENCE: ["dog", "red dog", "big red dog", "ball"] * 3}}, "more phrases than asked for"),
        ({"regions": (replace(DOG, phrase="cat"),)}, "region of no phrase"),
        ({"regions": (replace(DOG, sentence="A cat sleeps."),)}, "region's sentence in no caption"),
        ({"regions": (replace(DOG, box=(0.0, 0.0, 1.0, 1.0)),)}, "box of the whole image"),
        ({"regions": (DOG, replace(DOG, score=0.8))}, "two boxes of one phrase in one place"),
        ({"regions": (replace(DOG, score=0.2),)}, "no box good enough to train on"),
        ({"questions": (Question("What color is the dog?", "blue"),)}, "question: unsupported answer"),
        ({"questions": (Question("What color is the red dog?", "red"),)}, "question: leaked answer"),
        ({"questions": (Question("What color is the dog?", "red"),) * 2}, "question repeated"),
    ],
)
def test_what_does_not_belong_together_is_named(changes: dict[str, Any], fault: str, tmp_path: Path) -> None:
    found = faults(tmp_path, annotated(**changes))
    assert found[fault] == 1
    assert set(found) == {fault}
    given = annotated("given", **changes, made={})  # by people, or another program
    assert not faults(tmp_path / "given", given)


def test_more_questions_than_asked_for_are_named(tmp_path: Path) -> None:
    items = tuple(Question(f"What does the red dog {verb}?", "ball") for verb in ("chase", "want", "see", "eat", "get"))
    assert not faults(tmp_path / "five", annotated(questions=items))
    six = (*items, Question("What runs after the ball?", "big red dog"))
    assert faults(tmp_path / "six", annotated(questions=six)) == {"more questions than asked for": 1}


def test_good_annotations_raise_no_doubt(tmp_path: Path) -> None:
    questions = (
        Question("What color is the dog?", "red"),
        Question("Is the dog large or small?", "large"),
        Question("Is the dog to the left or to the right of the ball?", "left"),
    )
    ball = Region("ball", (0.6, 0.1, 0.8, 0.5), SENTENCE, 0.2)
    assert not faults(tmp_path, annotated(regions=(DOG, ball), questions=questions))


def test_what_the_stages_make_passes_the_doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_shards((sample(number) for number in range(12)), tmp_path / "in", 6)
    run(tmp_path / "in", tmp_path / "out")
    assert not examine(Shards(str(tmp_path / "out")), workers=1).findings
    assert main(["prepare", "check", str(tmp_path / "out"), "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert "boxes: a stage has been over 100% of the samples" in said
    boxes = sum(len(item.regions) for item in Shards(str(tmp_path / "out"))) / 12
    assert f"{boxes:.2f} boxes and 1.00 questions per sample" in said


def test_an_interrupted_run_and_a_changed_shard_fail_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shards((sample(number) for number in range(12)), tmp_path / "in", 6)
    out = tmp_path / "out"
    run(tmp_path / "in", out)
    other = Job(out, (Phrases("rules", limit=1),), 4)
    plan = plan_shards(Shards(str(tmp_path / "in")), other)[1]
    plan.folder.mkdir()
    assert main(["prepare", "check", str(out), "--workers", "1"]) == 1
    assert "Annotation is not whole: 1 × shard not finished." in capsys.readouterr().out
    plan.folder.rmdir()
    write_shards([sample(50)], tmp_path / "else")
    (out / "00001.tar").write_bytes((tmp_path / "else" / "00000.tar").read_bytes())
    assert main(["prepare", "check", str(out), "--workers", "1"]) == 1
    assert f"{out / '00001.tar'}" in capsys.readouterr().out.replace("\n", "").replace(" ", "")


def test_shards_annotated_in_two_ways_are_noticed(tmp_path: Path) -> None:
    write_shards((sample(number) for number in range(12)), tmp_path / "in", 6)
    for number, stages in enumerate((STAGES, STAGES[:1])):
        shard = Shards(str(tmp_path / "in" / f"0000{number}.tar"))
        annotate(shard, Job(tmp_path / "out", tuple(stages)), quiet=True)
    assert set(examine(Shards(str(tmp_path / "out")), workers=1).findings) == {"shards annotated in different ways"}


def test_every_fault_has_a_remedy_and_no_remedy_is_left_over() -> None:
    text = (Path(__file__).parents[2] / "src/goldiclip/prepare/check.py").read_text()
    assert [reason for reason in REMEDIES if text.count(f'"{reason}"') < 2] == []
