"""The paper's tables as printed, corrected; and numbers beside each other."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from goldiclip.config import ConfigError
from goldiclip.evaluate.compare import Cell, ablation_table, against, against_paper, against_run
from goldiclip.evaluate.datasets import benchmarks
from goldiclip.evaluate.paper import corrections, paper_tables
from goldiclip.evaluate.results import Results, Row, read_results, write_results
from goldiclip.evaluate.show import to_html, to_markdown, to_terminal

LABELS = {
    "retrieval": ("tab:retrieval_full", "tab:retrieval_full_single"),
    "questions": ("tab:retrieval_vqa", "tab:retrieval_vqa_single"),
    "segmentation": ("tab:zs_segmentation",),
    "classification": ("tab:zs_classification",),
    "ablation": ("tab:main_ablation",),
    "prior_methods": ("tab:prior_methods",),
}
WITH_AVERAGE = {"questions", "segmentation", "classification"}
WITHOUT_DATA = {"ablation", "prior_methods"}


def printed(tex: str, table: str) -> dict[tuple[str, str], list[float | None]]:
    """(method's first letters, data) to the numbers of every row that a LaTeX table prints."""
    rows = {}
    for label in LABELS[table]:
        end = tex.index(r"\label{%s}" % label)  # noqa: UP031
        start = tex.rfind(r"\begin{table", 0, end)
        for line in tex[start : tex.index(r"\end{table", end)].splitlines():
            line = re.sub(r"\\cite\{[^}]*\}|\\(textbf|underline|mathrm|textrm|phantom)|[{}$~\\]", "", line)
            name, *cells = (cell.strip() for cell in line.split("&"))
            data = "CC3M-recap" if table in WITHOUT_DATA else (cells.pop(0) if cells else "")
            if len(cells) >= 4 and all(re.fullmatch(r"-|\d+\.\d+", cell) for cell in cells):
                rows[re.sub(r"\W|_", "", name), data] = [None if cell == "-" else float(cell) for cell in cells]
    return rows


def spelled(method: str) -> str:
    """Our name of a method as the table's letters spell it."""
    return re.sub(r"\W", "", method.replace(" without sink", ""))


@pytest.mark.parametrize("table", LABELS)
def test_the_data_are_the_printed_tables(table: str, shared: Path) -> None:
    found = printed((shared / "paper.tex").read_text(), table)
    ours = paper_tables()[table]
    seen = set()
    for row in ours.rows:
        key = (spelled(row.method), row.data)
        if row.method == "FLAIR without sink":
            values = [70.3, 26.2, 26.4, 14.7, 18.8]  # two rows differ by a superscript alone
        else:
            if key == ("FLAIR", "30M") and table == "segmentation":
                values = [73.0, 13.6, 18.6, 10.4, 13.3]
            else:
                values = found[key][: len(row.values)]
            seen.add(key)
        if table == "questions" and row.method == "PE core":
            values[1] = 40.4  # the correction
        assert list(row.values) == values, row.method
    assert {(name, data) for name, data in found} - seen == set()


@pytest.mark.parametrize("table", sorted(WITH_AVERAGE))
def test_printed_averages_agree_with_the_columns_but_where_corrected(table: str, shared: Path) -> None:
    found = printed((shared / "paper.tex").read_text(), table)
    named = {("questions", "SigLIP", "10B"), ("segmentation", "COSMOS", "30M")}
    for row in paper_tables()[table].rows:
        if row.method == "FLAIR without sink":
            continue
        average = found[spelled(row.method), row.data][-1]
        if table == "segmentation" and (row.method, row.data) == ("FLAIR", "30M"):
            average = 25.8
        mean = sum(value or 0 for value in row.values) / len(row.values)
        agrees = average == pytest.approx(mean, abs=0.1)  # columns and average are rounded apart
        assert agrees != ((table, row.method, row.data) in named), (row.method, average, mean)


def test_swapped_heads_are_put_right() -> None:
    """FLAIR's text-to-image recall is the same in every table."""
    tables = paper_tables()
    swapped = tables["prior_methods"]
    place = next(i for i, column in enumerate(swapped.columns) if column.metric.startswith("text_to_image"))
    flair = swapped.row("FLAIR", "CC3M-recap")
    whole = tables["retrieval"].row("FLAIR", "3M")
    assert flair is not None
    assert whole is not None
    assert flair.values[place] == whole.values[0] == 37.7
    assert any(note.startswith("prior_methods") for note in corrections())


def test_every_column_names_a_set_there_is() -> None:
    for table in paper_tables().values():
        assert all(len(row.values) == len(table.columns) for row in table.rows)
        assert {column.set for column in table.columns} <= set(benchmarks())


# --- side by side -----------------------------------------------------------------------------------------------------


def row(name: str, mode: str, metric: str, value: float, spread: float = 0.005, family: str = "retrieval") -> Row:
    known = {"counts": {"images": 5}, "annotations": "aa", "model": "bb", "command": "goldiclip evaluate"}
    bounds = {"low": value - spread, "high": value + spread}
    return Row(set=name, family=family, split="val", mode=mode, metric=metric, value=value, **bounds, **known)  # type: ignore[arg-type]


@pytest.fixture
def results() -> Results:
    rows = [
        row("coco", "tc", "text_to_image/recall@1", 0.600),
        row("coco", "ta", "text_to_image/recall@1", 0.500),
        row("coco", "tc", "image_to_text/recall@1", 0.650),
        row("dci", "tc", "text_to_image/recall@1", 0.720),
        *(row(one, "value", "mean_iou", 0.30) for one in ("voc20", "cityscapes", "context59", "ade20k", "coco_stuff")),
    ]
    return Results("mine", "bb", ("tc", "ta"), "goldiclip evaluate", rows=rows)


def test_our_row_stands_under_the_papers(results: Results) -> None:
    tables = {table.title: table for table in against_paper(results)}
    retrieval = tables["Zero-shot retrieval"]
    assert retrieval.heads == ("COCO T2I R@1", "COCO I2T R@1", "DCI T2I R@1")
    (name, cells), (agnostic, beside) = retrieval.rows[-2:]
    assert (name, agnostic) == ("mine", "mine ta")
    assert [cell.text for cell in beside] == ["50.0 (-2.3)", "–", "–"]  # to GoldiCLIP ta
    assert retrieval.notes[0] == "differences to GoldiCLIP 30M, of ta to GoldiCLIP ta 30M"
    assert [cell.text for cell in cells] == ["60.0 (+4.5)", "65.0 (-5.3)", "72.0 (+0.1)"]
    assert [cell.verdict for cell in cells] == ["better", "worse", "same"]  # 71.9 lies within 71.5 … 72.5
    assert dict(retrieval.rows)["GoldiCLIP 3M"][0].text == "45.1"


def test_averages_are_computed_from_the_columns(results: Results) -> None:
    table = next(table for table in against_paper(results) if table.title.startswith("Zero-shot segmentation"))
    assert table.heads[-1] == "average"
    assert table.rows[-1][1][-1].text == "30.0 (-2.8)"
    assert dict(table.rows)["COSMOS 30M"][-1].text == "20.5"
    assert any("COSMOS's average is printed as 20.0" in note for note in table.notes)
    some = replace(results, rows=[one for one in results.rows if one.set != "voc20"])
    table = next(table for table in against_paper(some) if table.title.startswith("Zero-shot segmentation"))
    assert table.heads == ("Cityscapes", "Context59", "ADE20K", "COCO-Stuff")  # of some no average


def test_another_row_of_the_paper_can_be_the_rival(results: Results) -> None:
    (_, cells), (_, agnostic) = against_paper(results, "FLAIR", "3M")[0].rows[-2:]
    assert cells[0].difference == pytest.approx(60.0 - 37.7)
    assert agnostic[0].difference == pytest.approx(50.0 - 37.7)  # the paper has no FLAIR ta
    with pytest.raises(ConfigError, match="the paper has no FLAIR trained on 5M; nearest: FLAIR 3"):
        against_paper(results, "FLAIR", "5M")


def test_an_encoder_without_pooling_is_compared_text_agnostically(results: Results) -> None:
    only = [one for one in results.rows if one.mode == "ta"]
    plain = Results("clip", "cc", ("ta", "patch"), "", rows=only)
    assert against_paper(plain)[0].rows[-1][1][0].value == pytest.approx(50.0)
    assert against_paper(Results("ours", "bb", ("tc", "ta"), "", rows=only)) == []


def test_two_runs_are_compared_where_both_have_a_number(results: Results, tmp_path: Path) -> None:
    rows = [replace(one, value=one.value - 0.1, annotations="zz") for one in results.rows[:2]]
    other = Results("theirs", "dd", ("tc", "ta"), "", rows=rows)
    (table,) = against_run(results, other)
    assert table.heads == ("coco/tc/text_to_image/recall@1", "coco/ta/text_to_image/recall@1")
    assert [cell.text for cell in table.rows[0][1]] == ["60.0 (+10.0)", "50.0 (+10.0)"]
    assert table.notes == ("coco: not measured on the same annotations",)
    assert [name for name, _ in table.rows] == ["mine", "theirs"]
    assert [name for name, _ in against_run(results, replace(other, model="mine"))[0].rows] == ["mine bb", "mine dd"]
    write_results(other, tmp_path / "run/evaluation")
    assert against(results, str(tmp_path / "run"))[0].rows == table.rows


def test_numbers_that_were_measured_otherwise_say_so(results: Results, tmp_path: Path) -> None:
    first = results.rows[0]
    squeezed = replace(first, counts={"images": 7}, deviations=("images squeezed to a square",))
    folders = [tmp_path / "first", tmp_path / "squeezed"]
    for folder, one in zip(folders, (first, squeezed), strict=True):
        write_results(replace(results, rows=[one]), folder)
    wanted = (
        "coco: measured on 7 images; the other on 5 images",
        "coco: measured in another way: images squeezed to a square",
    )
    assert against(replace(results, rows=[squeezed]), str(folders[0]))[0].notes == wanted
    assert ablation_table(folders).notes == ("differences to the row above", *wanted)


def test_an_ablation_is_made_from_run_folders(results: Results, tmp_path: Path) -> None:
    for step, name in enumerate(("ca", "dc", "sd")):
        rows = [replace(one, value=one.value + 0.02 * step) for one in results.rows]
        write_results(replace(results, rows=rows), tmp_path / name / "evaluation")
    table = ablation_table({name: tmp_path / name for name in ("ca", "dc", "sd")})
    assert [name for name, _ in table.rows] == ["CA", "+DC", "+SD"]
    alike = {f"tiny/ca {tmp_path / name}": tmp_path / name for name in ("ca", "dc")}
    assert [name for name, _ in ablation_table(alike).rows] == list(alike)
    assert table.heads == ("COCO T2I", "COCO I2T", "VOC20 mIoU")
    assert table.notes == ("differences to the row above",)
    assert [cells[0].text for _, cells in table.rows] == ["60.0", "62.0 (+2.0)", "64.0 (+2.0)"]
    assert [cells[0].is_best for _, cells in table.rows] == [False, False, True]


def test_an_ablation_on_other_sets_shows_what_was_measured(results: Results, tmp_path: Path) -> None:
    rows = [
        row("scenes_short", "tc", "text_to_image/recall@1", 0.2),
        row("scenes_short", "tc", "text_to_image/recall@5", 0.4),
    ]
    write_results(replace(results, rows=rows), tmp_path / "demo")
    assert ablation_table([tmp_path / "demo"]).heads == ("scenes_short tc text_to_image/recall@1",)


def test_results_survive_their_file(results: Results, tmp_path: Path) -> None:
    no_number = replace(results.rows[0], metric="x", value=float("nan"), low=float("nan"), high=float("nan"))
    written = replace(results, rows=[*results.rows, no_number])
    path = write_results(written, tmp_path)
    assert "NaN" not in path.read_text()
    found = read_results(tmp_path)
    assert found.rows[:-1] == results.rows
    assert found.rows[-1].value != found.rows[-1].value
    assert found.value("coco", "ta", "text_to_image/recall@1") == 0.5
    path.write_text('{"schema": 1}')
    with pytest.raises(ConfigError, match=r"results\.json: not an evaluation's results"):
        read_results(tmp_path)
    with pytest.raises(FileNotFoundError, match="`goldiclip evaluate` writes it"):
        read_results(tmp_path / "nowhere")


# --- shown ------------------------------------------------------------------------------------------------------------


def test_the_terminal_colours_differences(results: Results) -> None:
    console = Console(force_terminal=True, width=200, color_system="standard")
    with console.capture() as capture:
        for table in against_paper(results):
            console.print(*to_terminal(table))
    text = capture.get()
    assert re.search(r"\x1b\[32m *60\.0 \(\+4\.5\)", text)
    assert re.search(r"\x1b\[31m *65\.0 \(-5\.3\)", text)


def test_two_runs_of_many_numbers_stand_upright(results: Results) -> None:
    rows = [row(f"s{i}", "tc", "text_to_image/recall@1", 0.5) for i in range(5)]
    wide = replace(results, rows=rows)
    (table,) = against_run(wide, replace(wide, model="other"))
    assert to_markdown(table).splitlines()[2] == "| | mine | other |"
    assert "<tr><th>s4/tc/text_to_image/recall@1</th><td class='same'>50.0 (+0.0)</td>" in to_html(table)
    console = Console(width=80)
    with console.capture() as capture:
        console.print(*to_terminal(table))
    assert "s4/tc/text_to_image/recall@1" in capture.get()


def test_the_papers_wide_tables_come_in_pieces_that_a_terminal_holds(results: Results) -> None:
    columns = paper_tables()["retrieval"].columns
    whole = replace(results, rows=[row(one.set, one.mode, one.metric, 0.5) for one in columns])
    (table,) = against_paper(whole)
    assert len(table.heads) == 16
    pieces = to_terminal(table)
    assert [len(piece.columns) - 1 for piece in pieces] == [6, 6, 4]
    assert [piece.caption is None for piece in pieces] == [True, True, False]
    console = Console(width=120)
    with console.capture() as capture:
        console.print(*pieces, sep="\n")
    assert "…" not in capture.get()
    assert capture.get().count("GoldiCLIP 30M") == 4  # a row of each piece, and the note


def test_markdown_and_html_hold_every_cell(results: Results) -> None:
    table = against_paper(replace(results, model="<mine>"))[0]
    page = to_markdown(table)
    assert "| <mine> | **60.0 (+4.5)** | *65.0 (-5.3)* | 72.0 (+0.1) |" in page
    fragment = to_html(table)
    assert "<td class='better'>60.0 (+4.5)</td>" in fragment
    assert "<td class='worse'>65.0 (-5.3)</td>" in fragment
    assert "&lt;mine&gt;" in fragment
    assert "<mine>" not in fragment


def test_a_number_that_is_not_there_is_a_dash() -> None:
    assert (Cell(None).text, Cell(float("nan")).text, Cell(None).verdict) == ("–", "–", "same")
