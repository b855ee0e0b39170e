"""The pipeline: the same bytes however it is run, killed, resumed; what is finished is not done again."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import torch
from scripted import DieOnce, Fail, box_of, find_by_script, write_by_script

from goldiclip.config import ConfigError
from goldiclip.data.shards import Shards, write_shards
from goldiclip.prepare import blocks as blocks_module
from goldiclip.prepare.blocks import Job, plan_shards, read_manifest
from goldiclip.prepare.pipeline import Report, annotate
from goldiclip.prepare.stages import Boxes, Phrases, Questions, Stage
from goldiclip.types import Caption, Question, Region, Sample

STAGES: tuple[Stage, ...] = (Phrases("rules"), Boxes(find_by_script), Questions(write_by_script))
NOUNS = ("dog", "cat", "bus", "tree", "lamp", "horse")


def picture(number: int) -> bytes:
    from torchvision.io import encode_jpeg

    rng = np.random.default_rng(number)
    pixels = np.repeat(np.repeat(rng.integers(0, 255, (3, 4, 6), dtype=np.uint8), 8, 1), 8, 2)
    return encode_jpeg(torch.from_numpy(pixels)).numpy().tobytes()


def sample(number: int) -> Sample:
    one, other = NOUNS[number % 6], NOUNS[(number // 6) % 6]
    caption = Caption(f"Red {one} stands near a small {other}.", "long")
    return Sample(f"key{number:04d}", picture(number), (caption,), meta={"url": f"u{number}"})


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three shards of 40, 40 and 16 samples."""
    folder = tmp_path_factory.mktemp("corpus")
    write_shards((sample(number) for number in range(96)), folder, 40)
    return folder


def run(corpus: Path, out: Path, stages: Sequence[Stage] = STAGES, block: int = 16, **settings: object) -> Report:
    return annotate(Shards(str(corpus)), Job(out, tuple(stages), block), quiet=True, **settings)  # type: ignore[arg-type]


def digests(out: Path) -> dict[str, str]:
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(out.glob("*.tar"))}


@pytest.fixture(scope="session")
def undisturbed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("undisturbed")
    run(corpus, out)
    return digests(out)


# --- what comes out -------------------------------------------------------------------------------------------------


def test_every_sample_gets_phrases_boxes_and_questions(corpus: Path, tmp_path: Path) -> None:
    report = run(corpus, tmp_path)
    assert (report.shards, report.skipped, report.samples) == (3, 0, 96)
    samples = list(Shards(str(tmp_path)))
    assert [item.key for item in samples] == [f"key{number:04d}" for number in range(96)]
    first = samples[1]
    sentence = "Red cat stands near a small dog."
    assert first.meta["phrases"] == {sentence: ["red cat", "small dog"]}
    found = {region.phrase: region for region in first.regions}
    assert set(found) == {"red cat", "small dog"}
    assert found["small dog"].box == pytest.approx(box_of("small dog"))
    assert found["small dog"].sentence == sentence
    assert first.questions == (Question("What does this show first?", "Red cat", "other"),)
    assert first.image == picture(1)
    assert first.meta["url"] == "u1"


def test_block_size_and_workers_change_no_byte(corpus: Path, tmp_path: Path, undisturbed: dict[str, str]) -> None:
    run(corpus, tmp_path / "whole", block=1_000)
    run(corpus, tmp_path / "odd", block=7)
    run(corpus, tmp_path / "processes", workers=2)
    for name in ("whole", "odd", "processes"):
        assert digests(tmp_path / name) == undisturbed, name


def test_annotating_twice_is_annotating_once(corpus: Path, tmp_path: Path, undisturbed: dict[str, str]) -> None:
    run(corpus, tmp_path / "once")
    report = run(tmp_path / "once", tmp_path / "twice")
    assert digests(tmp_path / "twice") == undisturbed
    assert report.counts["boxes"] == report.counts["questions"] == 0


def test_stages_one_after_the_other_equal_all_at_once(
    corpus: Path, tmp_path: Path, undisturbed: dict[str, str]
) -> None:
    source = corpus
    for stage in STAGES:
        run(source, tmp_path / stage.name, [stage])
        source = tmp_path / stage.name
    assert digests(source) == undisturbed


# --- resuming -------------------------------------------------------------------------------------------------------


def test_what_is_finished_is_not_done_again(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.tar")}
    report = run(corpus, tmp_path)
    assert (report.shards, report.skipped, report.samples) == (3, 3, 96)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.tar")} == before


@pytest.mark.parametrize("harm", ["input", "output", "manifest", "stages"])
def test_whatever_no_longer_fits_is_done_again(harm: str, corpus: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    write_shards((sample(number) for number in range(40)), source, 20)
    run(source, out, STAGES[:1])
    stages: Sequence[Stage] = STAGES[:1]
    if harm == "input":
        write_shards((sample(number + 50) for number in range(40)), source, 20, overwrite=True)
    elif harm == "output":
        (out / "00001.tar").write_bytes(b"")
    elif harm == "manifest":
        (out / ".prepare" / "00001.json").write_text('{"fingerprint": 3')
    else:
        stages = [Phrases("rules", limit=1)]
    report = run(source, out, stages)
    assert report.skipped == {"input": 0, "output": 1, "manifest": 1, "stages": 0}[harm]
    fresh = tmp_path / "fresh"
    run(source, fresh, stages)
    assert digests(out) == digests(fresh)


def test_an_input_that_was_only_touched_is_the_same_input(corpus: Path, tmp_path: Path) -> None:
    source = tmp_path / "in"
    write_shards((sample(number) for number in range(10)), source)
    run(source, tmp_path / "out", STAGES[:1])
    os.utime(source / "00000.tar")
    assert run(source, tmp_path / "out", STAGES[:1]).skipped == 1


def test_the_manifest_says_what_went_in_and_what_came_out(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path)
    job = Job(tmp_path, STAGES, 16)
    plan = plan_shards(Shards(str(corpus)), job)[0]
    manifest = read_manifest(plan)
    assert manifest is not None
    assert manifest["input"]["sha256"] == sha256((corpus / "00000.tar").read_bytes()).hexdigest()
    assert manifest["output"]["sha256"] == sha256((tmp_path / "00000.tar").read_bytes()).hexdigest()
    assert manifest["stages"]["questions"]["prompt"]
    assert manifest["counts"]["boxes"] > 0
    assert "goldiclip" in manifest["versions"]
    assert not list((tmp_path / ".prepare" / "blocks").iterdir())


def test_a_worker_that_dies_loses_one_block(corpus: Path, tmp_path: Path, undisturbed: dict[str, str]) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    stages = [*STAGES, DieOnce("0050", marks)]
    report = run(corpus, tmp_path / "out", stages, workers=2)
    assert (marks / "died-0").exists()
    assert report.samples == 96
    assert digests(tmp_path / "out") == undisturbed


def test_a_block_that_kills_every_worker_is_named(corpus: Path, tmp_path: Path) -> None:
    stages = [*STAGES[:1], DieOnce("0050", tmp_path, times=99)]
    with pytest.raises(ConfigError, match=r"00001\.tar, samples 0 to 16: 3 workers in a row ended there"):
        run(corpus, tmp_path / "out", stages, workers=1)
    assert run(corpus, tmp_path / "out", STAGES[:1]).shards == 3


KILLED = """
import sys
from pathlib import Path
from goldiclip.data.shards import Shards
from goldiclip.prepare.blocks import Job
from goldiclip.prepare.pipeline import annotate
from test_pipeline import STAGES
from scripted import DieOnce
annotate(Shards(sys.argv[1]), Job(Path(sys.argv[2]), (*STAGES, DieOnce("0060", Path(sys.argv[3]))), 8), quiet=True)
"""


def test_a_run_that_is_killed_goes_on_where_it_was(corpus: Path, tmp_path: Path, undisturbed: dict[str, str]) -> None:
    here, out = Path(__file__).parent, tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(corpus), str(out), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(here)}
    assert subprocess.run(command, env=environment, check=False).returncode == -9
    assert list(digests(out)) == ["00000.tar"]
    stored = {path: path.stat().st_mtime_ns for path in (out / ".prepare" / "blocks").glob("*/*.tar")}
    assert len(stored) == 2  # samples 40 to 56 of the second shard; 56 to 64 were in hand
    assert not list(out.rglob("00001.tar"))
    assert subprocess.run(command, env=environment, check=False).returncode == 0
    assert digests(out) == undisturbed
    leftovers = [path for path in out.rglob("*") if path.suffix == ".part"]
    assert not leftovers


# --- what a sample brings along -------------------------------------------------------------------------------------


def test_regions_and_questions_that_no_stage_made_are_left_alone(tmp_path: Path) -> None:
    region, question = Region("dog", (0.0, 0.0, 0.5, 0.5)), Question("How many dogs?", "one", "count")
    given = [replace(sample(0), regions=(region,)), replace(sample(1), questions=(question,)), sample(2)]
    write_shards(given, tmp_path / "in")
    report = run(tmp_path / "in", tmp_path / "out")
    first, second, third = Shards(str(tmp_path / "out"))
    assert first.regions == (region,)
    assert first.questions
    assert second.questions == (question,)
    assert second.regions
    assert third.regions
    assert report.counts["images with regions of their own"] == 1
    run(tmp_path / "in", tmp_path / "anew", [STAGES[0], replace(STAGES[1], replace=True)])  # type: ignore[type-var]
    assert Shards(str(tmp_path / "anew"))[0].regions != (region,)


def test_other_phrases_mean_other_boxes(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "first")
    report = run(tmp_path / "first", tmp_path / "second", [Phrases("rules", limit=1), *STAGES[1:]])
    assert all(len(item.regions) == 1 for item in Shards(str(tmp_path / "second")))
    assert report.counts["questions"] == 0  # the writer reads captions: nothing new for it


def test_bad_samples_are_left_out_and_counted(tmp_path: Path) -> None:
    from goldiclip.data.shards import write_shard

    good = [sample(number) for number in range(4)]
    bad = [
        replace(good[0], key="truncated", image=good[0].image[: len(good[0].image) // 3]),
        replace(good[1], key="nan", meta={"score": None}),
    ]
    path = write_shard([*good, *bad], tmp_path / "in" / "00000.tar")
    path.write_bytes(path.read_bytes().replace(b'"score":null', b'"score":NaN ', 1))
    report = run(tmp_path / "in", tmp_path / "out", max_shares={})
    assert report.samples == 5
    assert {reason: n for reason, n in report.counts.items() if reason.startswith("left out")} == {
        "left out: undecodable image": 1
    }
    assert Shards(str(tmp_path / "out"))[4].meta["score"] is None


def test_a_shard_without_good_samples_becomes_none(tmp_path: Path) -> None:
    write_shards([replace(sample(0), image=b"\xff\xd8 no image")], tmp_path / "in")
    report = run(tmp_path / "in", tmp_path / "out", max_shares={})
    assert (report.shards, report.samples) == (1, 0)
    assert not digests(tmp_path / "out")
    assert run(tmp_path / "in", tmp_path / "out", max_shares={}).skipped == 1


def test_too_many_failures_stop_the_run_and_say_which(tmp_path: Path) -> None:
    write_shards((replace(sample(n), image=b"\xff\xd8 no image") for n in range(8)), tmp_path / "in")
    with pytest.raises(ConfigError, match=r"100\.0% of them failed, 5% may \(8 × left out: undecodable image\)"):
        run(tmp_path / "in", tmp_path / "out")


# --- what stops a run -----------------------------------------------------------------------------------------------


def test_a_full_disk_is_said_and_nothing_half_written_stays(corpus: Path, tmp_path: Path) -> None:
    stages = [*STAGES[:1], Fail(OSError, "no room", errno.ENOSPC)]
    with pytest.raises(ConfigError, match=r"No space left on device; what is finished stays"):
        run(corpus, tmp_path / "out", stages)


def test_a_real_limit_on_what_can_be_written_is_said(corpus: Path, tmp_path: Path) -> None:
    """RLIMIT_FSIZE: files may grow to 8 KiB, a block needs more."""
    program = KILLED.replace("import sys", "import resource, signal, sys", 1).replace(
        "*STAGES, DieOnce", "*STAGES,) or (DieOnce"
    )
    program = f"import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n{program}".replace(
        "annotate(Shards", "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\nannotate(Shards"
    )
    Shards(str(corpus))  # the index is there already
    out = tmp_path / "out"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", program, str(corpus), str(out), str(tmp_path)]
    ended = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert "ConfigError" in ended.stderr
    assert "File too large; what is finished stays" in ended.stderr
    assert not digests(out)
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    run(corpus, out)
    assert len(digests(out)) == 3


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_a_stage_keeps_its_name(workers: int, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such model"):
        run(corpus, tmp_path / "out", [Fail(ConfigError, "no such model")], workers=workers)
    with pytest.raises((ValueError, RuntimeError), match="a bug"):
        run(corpus, tmp_path / "out", [Fail(ValueError, "a bug")], workers=workers)


def test_inputs_of_one_name_and_output_onto_input_are_refused(corpus: Path, tmp_path: Path) -> None:
    write_shards([sample(0)], tmp_path / "other")
    with pytest.raises(ConfigError, match="would both become"):
        annotate(Shards([str(corpus), str(tmp_path / "other")]), Job(tmp_path / "out", STAGES), quiet=True)
    with pytest.raises(ConfigError, match="same file"):
        run(corpus, corpus)


def test_counts_of_stages_add_up_over_blocks(corpus: Path, tmp_path: Path) -> None:
    whole, parts = run(corpus, tmp_path / "a", block=1_000), run(corpus, tmp_path / "b", block=5)
    assert Counter(whole.counts) == Counter(parts.counts)
    assert whole.counts["phrases"] == sum(
        len(p) for s in Shards(str(tmp_path / "a")) for p in s.meta["phrases"].values()
    )


def test_progress_is_said_with_rate_and_time_left(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goldiclip.prepare.meter.LINE_EVERY_SECONDS", 0.0)
    annotate(Shards(str(corpus)), Job(tmp_path, STAGES[:1], 16))
    lines = capsys.readouterr().err.splitlines()
    assert any("of 96 samples" in line and "/s" in line and "left" in line for line in lines)
    assert "96 of 96 samples" in lines[-1]


def test_what_was_done_before_is_no_part_of_the_rate(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "marks").mkdir()
    stages = (*STAGES[:1], DieOnce("0030", tmp_path / "marks", times=99))
    with pytest.raises(ConfigError, match="samples 16 to 32"):
        run(corpus, tmp_path / "out", stages, workers=1)
    for number in range(99):
        (tmp_path / "marks" / f"died-{number}").touch()
    annotate(Shards(str(corpus)), Job(tmp_path / "out", stages, 16))
    assert "annotating: 80 of 80 samples" in capsys.readouterr().err.splitlines()[-1]


# --- memory of what is read -----------------------------------------------------------------------------------------


def test_one_shard_is_open_at_a_time(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path)
    assert len(blocks_module._opened) == 1


def test_manifests_are_json_with_sorted_counts(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path)
    found = json.loads((tmp_path / ".prepare" / "00000.json").read_text())
    assert list(found["counts"]) == sorted(found["counts"])
    assert time.time_ns() > found["input"]["changed_ns"]
