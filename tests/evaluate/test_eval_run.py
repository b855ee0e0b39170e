"""One command over a whole data root."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from plain_sets import indifferent
from set_layouts import WRITERS, write_all, write_csv, write_image

from goldiclip.cli import main
from goldiclip.config import Config, ConfigError, to_yaml
from goldiclip.evaluate.compare import against_paper, summary
from goldiclip.evaluate.datasets import READERS, benchmarks, partial
from goldiclip.evaluate.problems import BadData, Problems
from goldiclip.evaluate.results import as_markdown, read_results
from goldiclip.evaluate.rows import annotation_hash
from goldiclip.evaluate.run import Options, evaluate
from goldiclip.inference.engine import Engine
from goldiclip.inference.load import load_engine, weights_hash
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.pretrained import save_model

# Their prompts alone are thousands of texts: read elsewhere, measured on the small ones here.
LARGE = {"imagenet", "cars", "cifar100", "ade20k", "coco_stuff", "flowers", "context59", "cifar10", "cityscapes"}


def test_everything_under_a_root_is_measured(engine: Engine, tmp_path: Path) -> None:
    root, out = write_all(tmp_path / "data"), tmp_path / "out"
    only = tuple(name for name in READERS if name not in LARGE)
    command = "goldiclip evaluate MODEL --data data"
    results = evaluate(
        engine,
        root,
        Options(only=only, shortlist=2, overlays=1),
        out=out,
        name="tiny",
        command=command,
        say=lambda _: None,
    )
    assert {row.set for row in results.rows} == set(only)
    assert results.missing == {}
    for row in results.rows:
        assert 0 <= row.value <= 1, row.name
        assert row.low <= row.value + 1e-9 or row.low != row.low, row.name
        assert (row.command, row.model) == (command, weights_hash(engine))
        assert row.split
        assert len(row.annotations) == 16
        assert row.counts["images"] > 0
        assert row.deviations
    assert {row.mode for row in results.rows if row.family == "long-text"} == {"tc", "ta", "tc@ta2"}
    assert (out / "overlays/voc20/2007_000033-value.png").exists()
    again = read_results(out)
    assert [(row.name, row.value) for row in again.rows] == [(row.name, row.value) for row in results.rows]
    assert json.loads((out / "results.json").read_text())["rows"][0]["set"] == "coco"
    page = (out / "results.md").read_text()
    assert page == as_markdown(results)
    assert all(f"## {name} (" in page for name in only)
    whole = (out / "results.html").read_text()
    assert all(f"<caption>{name} (" in whole for name in only)
    assert "<caption>Zero-shot retrieval</caption>" in whole
    assert "src='data:image/png;base64," in whole
    assert not re.search(r"(src|href)='?https?:", whole)


def test_the_annotation_hash_is_that_of_the_file(engine: Engine, tmp_path: Path) -> None:
    WRITERS["coco"](tmp_path)
    row = evaluate(engine, tmp_path, Options(only=("coco",)), say=lambda _: None).rows[0]
    file = tmp_path / "coco/annotations/captions_val2017.json"
    assert row.annotations == hashlib.sha256(file.read_bytes()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "file"),
    [("dci", "dci/densely_captioned_images/annotations/sa_3.json"), ("flowers", "flowers-102/imagelabels.mat")],
)
def test_another_caption_or_label_is_another_hash(name: str, file: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path)
    home = benchmarks()[name].find(tmp_path)
    assert home is not None
    items = READERS[name](home, Problems(strict=True))
    before = annotation_hash(items)
    (tmp_path / file).write_bytes((tmp_path / file).read_bytes() + b" ")
    assert annotation_hash(items) != before


def test_a_part_of_a_set_is_not_taken_for_the_whole(engine: Engine, tmp_path: Path) -> None:
    """Few images are easily found: beside the paper's number of all of them the table says so."""
    WRITERS["coco"](tmp_path)
    results = evaluate(engine, tmp_path, Options(only=("coco",)), say=lambda _: None)
    less = "3 images (published: 5,000), 16 texts (published: 25,014)"
    assert results.rows[0].deviations[0] == less
    (table,) = against_paper(results)
    assert table.notes.count(f"coco: {less}") == 1
    assert partial("coco", {"images": 5_000, "texts": 25_014, "truncated_texts": 9}) == partial("mine", {}) == ""


def test_what_is_missing_is_named_with_its_source(engine: Engine, tmp_path: Path) -> None:
    WRITERS["coco"](tmp_path)
    results = evaluate(engine, tmp_path, say=lambda _: None)
    assert {row.set for row in results.rows} == {"coco"}
    about = results.missing["docci_fg"]
    assert (about["licence"], about["source"].split(";")[0]) == ("CC BY 4.0", "google.github.io/docci")
    assert "docci/annotations/test_annotations.json" in about["layout"]
    assert "| docci_fg | DOCCI-FG | CC BY 4.0 |" in as_markdown(results)


def test_a_set_asked_for_and_not_there_stops_only_under_strict(engine: Engine, tmp_path: Path) -> None:
    WRITERS["coco"](tmp_path)
    results = evaluate(engine, tmp_path, Options(only=("coco", "dci")), say=lambda _: None)
    assert list(results.missing) == ["dci"]
    with pytest.raises(BadData, match=r"dci is not there; expected dci/densely_captioned_images"):
        evaluate(engine, tmp_path, Options(only=("coco", "dci"), strict=True), say=lambda _: None)


def test_a_root_with_nothing_in_it_says_what_it_expected(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none of 32 sets is there\. Expected, for example, coco: coco/annotations"):
        evaluate(engine, tmp_path, say=lambda _: None)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        evaluate(engine, tmp_path / "nowhere", say=lambda _: None)


def test_unknown_names_list_the_nearest(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'doci_fg' is no set; nearest: docci_fg"):
        evaluate(engine, tmp_path, Options(only=("doci_fg",)), say=lambda _: None)
    with pytest.raises(ConfigError, match="mode 'patch': this encoder has tc, ta"):
        evaluate(engine, tmp_path, Options(modes=("patch",)), say=lambda _: None)


def test_problems_are_counted_and_reported_or_stop(engine: Engine, tmp_path: Path) -> None:
    WRITERS["coco"](tmp_path / "data")
    (tmp_path / "data/coco/images/val2017/000000000003.jpg").write_bytes(b"no picture")
    (tmp_path / "data/coco/images/val2017/000000000002.jpg").unlink()
    said: list[str] = []
    results = evaluate(engine, tmp_path / "data", out=tmp_path / "out", say=said.append)
    assert len(results.problems["coco"]) == 2
    assert results.rows[0].counts["images"] == 1
    assert any("image 20: names" in line for line in said)
    assert "2 problems" in (tmp_path / "out/results.md").read_text()
    with pytest.raises(BadData, match="image 20"):
        evaluate(engine, tmp_path / "data", Options(strict=True), say=lambda _: None)


def test_annotations_of_an_unexpected_form_are_said(engine: Engine, tmp_path: Path) -> None:
    WRITERS["dci"](tmp_path)
    (tmp_path / "dci/densely_captioned_images/splits.json").write_text('["sa_1.json"]')
    with pytest.raises(BadData, match="dci: its annotations are not of the form expected"):
        evaluate(engine, tmp_path, Options(only=("dci",)), say=lambda _: None)


def test_a_set_that_cannot_be_read_leaves_the_others_to_be_measured(engine: Engine, tmp_path: Path) -> None:
    root, out = tmp_path / "data", tmp_path / "out"
    for name in ("coco", "cars", "aircraft"):
        WRITERS[name](root)
    (root / "coco/annotations/captions_val2017.json").write_text("{")
    (root / "stanford_cars/devkit/cars_meta.mat").unlink()
    said: list[str] = []
    results = evaluate(engine, root, out=out, say=said.append)
    assert {row.set for row in results.rows} == {"aircraft"}
    assert "captions_val2017.json: no JSON" in results.problems["coco"][0]
    assert re.search(r"cars: .*cars_meta\.mat cannot be read \(No such file", results.problems["cars"][0])
    assert sum(line.startswith("left out: ") for line in said) == 2
    for page in ("results.md", "results.html"):
        assert "cars: not measured" in (out / page).read_text()
    with pytest.raises(BadData, match="no JSON"):
        evaluate(engine, root, Options(strict=True), say=lambda _: None)
    with pytest.raises(BadData, match="no JSON"):
        evaluate(engine, root, Options(only=("coco", "cars")), say=lambda _: None)


def test_what_was_measured_before_stays_while_the_weights_do(engine: Engine, tiny: Config, tmp_path: Path) -> None:
    root, out = tmp_path / "data", tmp_path / "out"
    for name in ("coco", "scenes_questions"):
        WRITERS[name](root)
    only = {name: Options(only=(name,)) for name in ("coco", "scenes_questions", "scenes_short")}
    evaluate(engine, root, only["scenes_questions"], out=out, command="first", say=lambda _: None)
    evaluate(engine, root, only["coco"], out=out, command="second", say=lambda _: None)
    found = read_results(out)
    assert {(row.set, row.command) for row in found.rows} == {("coco", "second"), ("scenes_questions", "first")}
    assert found.rows[0].set == "coco"  # in the order of the sets, not of the commands
    other = Engine(GoldiCLIP(tiny.model, seed=2), image_size=32, device="cpu", batch=4)
    evaluate(other, root, only["scenes_short"], out=out, say=lambda _: None)
    assert {row.set for row in read_results(out).rows} == {"scenes_short"}


def test_kinds_of_segmentation_are_known_and_fit_the_encoder(engine: Engine, tmp_path: Path) -> None:
    for name in ("coco", "scenes_segmentation"):
        WRITERS[name](tmp_path)
    with pytest.raises(ConfigError, match="'sinks' is no kind of segmentation; nearest: sink"):
        evaluate(engine, tmp_path, Options(segmentation=("sinks",)), say=lambda _: None)
    plain = indifferent()
    sets = Options(only=("coco", "scenes_segmentation"), modes=("ta",))
    results = evaluate(plain, tmp_path, sets, say=lambda _: None)
    assert {row.set for row in results.rows} == {"coco"}
    assert results.problems["scenes_segmentation"][0].endswith("kinds of segmentation asked for; it has none")


def test_sets_of_ones_own_need_no_root(engine: Engine, tmp_path: Path) -> None:
    for i in range(3):
        write_image(tmp_path / f"{i}.jpg", seed=i)
    path = write_csv(tmp_path / "mine.csv", [{"image": f"{i}.jpg", "caption": f"number {i}"} for i in range(3)])
    results = evaluate(engine, None, Options(custom=(path,)), say=lambda _: None)
    assert {(row.set, row.family) for row in results.rows} == {("mine", "custom")}
    with pytest.raises(ConfigError, match="give a folder of sets"):
        evaluate(engine, None, say=lambda _: None)
    with pytest.raises(FileNotFoundError, match=r"yours\.csv is not there"):
        evaluate(engine, None, Options(custom=(path, tmp_path / "yours.csv")), say=lambda _: None)


def test_sets_of_one_name_are_refused(engine: Engine, tmp_path: Path) -> None:
    write_image(tmp_path / "0.jpg")
    rows = [{"image": "0.jpg", "caption": "zero"}]
    first = write_csv(tmp_path / "mine.csv", rows)
    for second in ("mine.tsv", "coco.csv"):
        path = write_csv(tmp_path / second, rows)
        with pytest.raises(ConfigError, match=r"another set is called '(mine|coco)' already"):
            evaluate(engine, None, Options(custom=(first, path)), say=lambda _: None)


def test_deviations_are_named(engine: Engine, tmp_path: Path) -> None:
    WRITERS["scenes_segmentation"](tmp_path)
    options = Options(only=("scenes_segmentation", "scenes_short"), fit="whole", spaced=True)
    named = {row.set: row.deviations for row in evaluate(engine, tmp_path, options, say=lambda _: None).rows}
    assert any(one.startswith("windows of 32 pixels") for one in named["scenes_segmentation"])
    assert any(one.startswith("class names with their spaces") for one in named["scenes_segmentation"])
    assert any(one.startswith("images squeezed to a square") for one in named["scenes_short"])


# --- commands ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def run_folder(tiny: Config, tmp_path: Path) -> Path:
    """A run's folder with an encoder in it, and some sets beside it."""
    save_model(GoldiCLIP(tiny.model, seed=3), tiny, tmp_path / "run/encoder")
    (tmp_path / "run/config.yaml").write_text(to_yaml(replace(tiny, recipe="tiny/ca")))
    (tmp_path / "run/log.jsonl").touch()
    for name in ("coco", "scenes_short"):
        WRITERS[name](tmp_path / "sets")
    return tmp_path / "run"


def test_the_command_writes_beside_the_run(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = str(run_folder.parent / "sets")
    assert main(["evaluate", str(run_folder), "--data", sets, "--only", "coco,scenes_short", "--mode", "tc"]) == 0
    said = capsys.readouterr().out
    assert "text_to_image/recall@1" in said
    results = read_results(run_folder)
    assert {row.set for row in results.rows} == {"coco", "scenes_short"}
    assert {row.mode for row in results.rows} == {"tc"}
    assert results.command.startswith("goldiclip ")
    for page in ("evaluation/results.json", "evaluation/results.html", "report.html"):
        assert str(run_folder / page) in said
    assert "<caption>scenes_short (held out)</caption>" in (run_folder / "report.html").read_text()


def test_a_run_is_shown_beside_the_paper_and_other_runs(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = str(run_folder.parent / "sets")
    assert main(["evaluate", str(run_folder), "--data", sets, "--only", "coco"]) == 0
    assert main(["compare", str(run_folder), "--against", "paper"]) == 0
    assert "GoldiCLIP 30M" in capsys.readouterr().out
    assert "<td class='" in (run_folder / "evaluation/against-paper.html").read_text()
    assert main(["compare", str(run_folder), "--against", str(run_folder)]) == 0
    assert "coco/tc/text_to_image/recall@1" in (run_folder / "evaluation/against-run.md").read_text()
    assert main(["compare", str(run_folder), str(run_folder / "evaluation")]) == 0
    page = (run_folder / "evaluation/ablation.md").read_text()
    assert "| CA |" in page
    assert main(["compare", str(run_folder)]) == 2
    assert "nothing to compare with" in capsys.readouterr().err


def test_a_report_stands_beside_the_paper_or_another_run(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets, other = str(run_folder.parent / "sets"), run_folder.parent / "other"
    assert main(["evaluate", str(run_folder), "--data", sets, "--only", "coco"]) == 0
    shutil.copytree(run_folder, other)
    capsys.readouterr()
    assert main(["report", str(run_folder), "--against", "paper"]) == 0
    assert "GoldiCLIP 30M" in capsys.readouterr().out
    page = (run_folder / "report.html").read_text()
    assert "<caption>Zero-shot retrieval</caption>" in page
    assert re.search(r"<td class='(better|worse|same)'>[\d.]+ \([+-][\d.]+\)</td>", page)
    assert main(["report", str(run_folder), "--against", str(other)]) == 0
    page = (run_folder / "report.html").read_text()
    assert "Zero-shot retrieval" not in page
    assert "<th>coco/tc/text_to_image/recall@1</th>" in page
    assert main(["report", str(run_folder), str(other)]) == 0
    ablation = (run_folder / "evaluation/ablation.md").read_text()
    assert [f"| tiny/ca {folder} |" in ablation for folder in (run_folder, other)] == [True, True]
    assert (other / "report.html").exists()


def test_an_evaluation_of_no_run_has_a_report_too(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets, alone = str(run_folder.parent / "sets"), run_folder.parent / "alone"
    assert main(["evaluate", str(run_folder), "--data", sets, "--only", "coco", "--out", str(alone)]) == 0
    assert not (run_folder / "report.html").exists()
    (alone / "results.html").unlink()
    assert main(["report", str(alone), "--against", "paper"]) == 0
    assert str(alone / "results.html") in capsys.readouterr().out
    assert "coco (val2017)" in (alone / "results.html").read_text()
    assert main(["report"]) == 2


def test_mistakes_are_said_in_a_line(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = str(run_folder.parent / "sets")
    (run_folder.parent / "sets/coco/images/val2017/000000000002.jpg").unlink()
    assert main(["evaluate", str(run_folder), "--data", sets, "--strict"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "captions_val2017.json, image 20: names" in error
    assert main(["evaluate", str(run_folder), "--data", sets, "--mode", "tx"]) == 2
    assert main(["evaluate", str(run_folder)]) == 2


def test_a_summary_has_a_table_for_each_set(engine: Engine, tmp_path: Path) -> None:
    WRITERS["scenes_short"](tmp_path)
    results = evaluate(engine, tmp_path, Options(only=("scenes_short", "scenes_questions")), say=lambda _: None)
    tables = summary(results)
    assert [table.title for table in tables] == ["scenes_short (held out)", "scenes_questions (test)"]
    assert tables[0].heads == ("tc", "ta")
    assert re.fullmatch(r"\d+\.\d \(\d+\.\d–\d+\.\d\)", tables[0].rows[0][1][0].text)
    assert "5 images, 10 texts" in tables[0].notes[0]


# --- models -----------------------------------------------------------------------------------------------------------


def test_an_encoder_folder_is_loaded_and_its_hash_is_of_its_weights(tiny: Config, tmp_path: Path) -> None:
    model = GoldiCLIP(tiny.model, seed=3)
    save_model(model, tiny, tmp_path / "model")
    loaded = load_engine(str(tmp_path / "model"), device="cpu")
    ours = Engine(model, image_size=32, device="cpu")
    assert weights_hash(loaded) == weights_hash(ours)
    assert weights_hash(loaded) != weights_hash(Engine(GoldiCLIP(tiny.model, seed=4), image_size=32, device="cpu"))


def test_unknown_kinds_of_weights_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'clip' is no kind of weights; allowed: flair, cosmos, open_clip"):
        load_engine("clip:ViT")
    with pytest.raises(FileNotFoundError, match=r"nothing\.pt: no such file of weights"):
        load_engine("flair:nothing.pt")
    with pytest.raises(ConfigError, match="neither a file nor a model that open_clip knows"):
        load_engine("open_clip:ViT-B-17/openai")
    with pytest.raises(ConfigError, match="say which weights, else they are random: ViT-B-16/openai"):
        load_engine("open_clip:ViT-B-16")
    with pytest.raises(FileNotFoundError):
        load_engine(str(tmp_path / "nowhere"))
