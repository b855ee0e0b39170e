"""The page says what the folder holds, needs nothing else, and opens in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image
from test_run_log import record

from goldiclip.config import Config, to_yaml
from goldiclip.evaluate.results import Results, Row, write_results
from goldiclip.train.report import write_report
from goldiclip.train.report.chart import Series, line_chart, nice_ticks, short, smoothed, thinned


@pytest.fixture
def run(tmp_path: Path, full_run: Callable[..., Config]) -> Path:
    """A folder as a run of 60 steps leaves it."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text(to_yaml(full_run("run.name=<b>bold</b>")))
    records: list[dict[str, object]] = [
        {"event": "started", "step": 0, "samples": 0, "message": "begins", "total": 480, "ranks": 2, "device": "CPU"}
    ]
    for step in range(1, 61):
        records.append(
            record(step, seconds=0.1, total=100.0 / step, batch_hash=1, teacher_entropy={"ta": 3.0, "tc": 2.0})
        )
        if step % 20 == 0:
            recall = {"tc": step / 100, "ta": 0.1}
            records.append({"event": "held_out", "step": step, "samples": 1, "message": "measured", "recall": recall})
    records.append({"event": "alarm", "step": 60, "samples": 480, "message": "held-out recall has <fallen>"})
    (folder / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    (folder / "pictures").mkdir()
    Image.new("RGB", (8, 8), "red").save(folder / "pictures" / "a_red_square.png")
    return folder


class Tags(HTMLParser):
    """Every tag with its attributes, and whether they nest."""

    VOID = frozenset({"meta", "img", "line", "circle", "polyline", "br", "i"})

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_needs_nothing_else_and_escapes_what_it_is_told(run: Path) -> None:
    text = write_report(run).read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    for tag, attributes in tags.found:
        source = attributes.get("src") or attributes.get("href") or ""
        assert source.startswith("data:") or not source, f"{tag} fetches {source}"
    assert "<b>bold</b>" not in text
    assert "&lt;fallen&gt;" in text
    assert "url(" not in text


def test_the_page_shows_terms_weights_recall_events_pictures_and_configuration(run: Path) -> None:
    text = write_report(run).read_text()
    for word in ("L_ret", "L_sd", "Task weights 1/σ²", "recall@1", "60%", "a red square", "prototypes: 64", "attempts"):
        assert word in text, word
    charts = re.findall(r'<script type="application/json">(.*?)</script>', text)
    drawn = {line["name"]: line["points"] for chart in charts for line in json.loads(chart)["lines"]}
    assert drawn["text-conditioned"] == [[20, 0.2], [40, 0.4], [60, 0.6]]
    assert drawn["total"][0] == [1, 100.0]
    assert drawn["total"][-1][0] == 60


def test_evaluations_of_the_run_are_on_its_page(run: Path) -> None:
    assert "Evaluation</h2>" not in write_report(run).read_text()
    counts = {"images": 24}
    row = Row("coco", "retrieval", "val", "tc", "text_to_image/recall@1", 0.512, 0.4, 0.6, counts, "", "", "")
    write_results(Results("run", "", ("tc",), "goldiclip evaluate run", rows=[row]), run / "evaluation")
    text = write_report(run).read_text()
    assert "coco" in text
    assert "51.2" in text


def test_a_run_that_has_not_begun_has_a_page_too(run: Path) -> None:
    (run / "log.jsonl").unlink()
    assert "not a step yet" in write_report(run).read_text()


def test_a_folder_without_a_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no run"):
        write_report(tmp_path)


def test_a_chart_leaves_out_what_is_no_number() -> None:
    chart = line_chart("x", [Series("a", 1, [(1, 2.0), (2, "nan"), (3, 4.0)])])  # type: ignore[list-item]
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', chart)
    assert json.loads(data)["lines"][0]["points"] == [[1, 2.0], [3, 4.0]]
    assert line_chart("x", [Series("a", 1, [])]) == ""
    assert line_chart("x", [Series("a", 1, [(1, -2.0)])], is_log=True) == ""


def test_thinning_keeps_both_ends_and_every_extreme() -> None:
    points = [(float(i), 0.0) for i in range(10_000)]
    points[4_321] = (4_321.0, 99.0)
    kept = thinned(points)
    assert len(kept) <= 240
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    assert (4_321.0, 99.0) in kept
    assert kept == sorted(kept)


def test_smoothing_keeps_a_straight_line_straight() -> None:
    line = [(float(i), 2.0 * i) for i in range(500)]
    assert all(abs(y - 2 * x) < 1e-9 for x, y in smoothed(line))


def test_ticks_are_round_and_inside() -> None:
    assert nice_ticks(0, 10) == [0, 2.5, 5, 7.5, 10]
    assert nice_ticks(97.3, 98.1) == pytest.approx([97.4, 97.6, 97.8, 98.0])
    assert [short(value) for value in (0.00003, 0.5, 12, 345.6, 12_345, 2_500_000)] == [
        "3e-05",
        "0.5",
        "12",
        "346",
        "12.35k",
        "2.5M",
    ]


@pytest.mark.browser
@pytest.mark.parametrize("width", [500, 1280])
def test_a_real_browser_draws_the_page_without_overflow(run: Path, tmp_path: Path, width: int) -> None:
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium here")
    page = write_report(run)
    seen = "[document.documentElement.scrollWidth, innerWidth, document.querySelectorAll('polyline').length].join(' ')"
    probe = f"<script>addEventListener('load', () => {{ document.title = {seen} }})</script></body>"
    page.write_text(page.read_text().replace("</body>", probe))
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", "--dump-dom"]
    dom = subprocess.run(
        [browser, *options, page.as_uri()], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    found = re.search(r"<title>(\d+) (\d+) (\d+)</title>", dom)
    assert found, dom[:300]
    needed, available, lines = map(int, found.groups())
    assert needed <= available
    assert lines > 10
