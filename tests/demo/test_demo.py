"""The demo at its smallest, stopped wherever it may be stopped, and after it every command of the README."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from goldiclip.cli import main
from goldiclip.config import ConfigError
from goldiclip.demo.budget import read_budget, settle
from goldiclip.demo.page import ASKED
from goldiclip.recipes import recipe
from goldiclip.train.launch import REQUEUE
from goldiclip.types import TERMS as ALL_TERMS

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SMALLEST = ("demo", "--minutes", "0.05")
DEMO = Path("runs/demo")  # what the README says
# The demo gets by with what a plain install brings.
BARE = os.environ | {"PYTHONPATH": str(Path(__file__).parent / "bare")}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the demo has been run to its end, with three interruptions on the way."""
    home = tmp_path_factory.mktemp("home")
    out = home / DEMO
    stop(home, signal.SIGKILL, lambda: (out / "corpus/train/00000.tar").exists())
    stop(home, signal.SIGTERM, lambda: (out / "run/log.jsonl").exists())
    stop(home, signal.SIGKILL, lambda: (out / "run/evaluation/results.json").exists())
    last = start(home)
    said, _ = last.communicate(timeout=600)
    assert last.returncode == 0, said[-3_000:]
    (home / "said.txt").write_text(said)
    return home


def start(home: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "goldiclip.cli", *SMALLEST]
    return subprocess.Popen(command, cwd=home, env=BARE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def stop(home: Path, how: signal.Signals, is_there: Callable[[], bool]) -> None:
    """Start the demo and end it once something is there."""
    demo = start(home)
    while not is_there():
        assert demo.poll() is None, f"it ended by itself: {demo.communicate()[0][-3_000:]}"
        time.sleep(0.02)
    demo.send_signal(how)
    said, _ = demo.communicate(timeout=120)
    assert demo.returncode == (REQUEUE if how == signal.SIGTERM else -how), said[-3_000:]
    assert ("the same command goes on" in said) == (how == signal.SIGTERM)


def test_what_extras_bring_is_hidden_from_the_demo() -> None:
    said = subprocess.run([sys.executable, "-c", "import faiss"], env=BARE, capture_output=True, text=True)
    assert "No module named 'faiss'" in said.stderr


def test_it_goes_on_from_wherever_it_was_stopped(home: Path) -> None:
    said = (home / "said.txt").read_text()
    assert "run is trained already" in said
    out = home / DEMO
    budget = read_budget(out / "demo.json")
    records = [json.loads(line) for line in (out / "run/log.jsonl").read_text().splitlines()]
    steps = [record["step"] for record in records if "event" not in record]
    assert steps == list(range(1, len(steps) + 1))
    assert records[-1]["event"] == "finished"
    assert steps[-1] == budget.samples // recipe(budget.recipe).run.batch >= 4


def test_it_says_what_happens_and_why(home: Path) -> None:
    said = (home / "said.txt").read_text()
    for word in ("Corpus", "Measure", "Train", "Evaluate", "Index", "Tell", "7 of 7", "images/s", *ASKED):
        assert word in said
    assert set(ASKED) == set(ALL_TERMS)


def test_the_page_tells_the_whole_story_in_one_file(home: Path) -> None:
    page = (home / DEMO / "report.html").read_text()
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)
    for words in ("Short captions", "Segmentation: mIoU", "Captions in which every word is true", "Questions, count"):
        assert words in page
    for title in ("Search", "Where it looks", "Masks", "How it went", "Task weights", "Losses"):
        assert title in page
    for title in ("Six signals from every picture", "What it says", "What it learned from", "Now you"):
        assert title in page
    assert page.count(" of 64</small>") == 5  # of five queries, the place at which their picture comes
    assert page.count("together</small>") >= 4  # pictures with their phrases
    assert page.count("class='stacks'") == 2
    assert page.count("data:image/webp") > 40
    assert not re.search(r"\bnan\b", re.sub(r"data:[^'\"]+", "", page), flags=re.I)


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_scrolls_the_page_down_alone_and_fetches_nothing(home: Path, width: int) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 844})
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((home / DEMO / "report.html").resolve().as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == width
        tables = "[...document.querySelectorAll('.stacks')].map(e => e.scrollWidth > e.parentElement.clientWidth)"
        assert page.evaluate(tables) == [False, False]
        browser.close()
    assert [url for url in asked if not url.startswith("data:")] == [(home / DEMO / "report.html").resolve().as_uri()]


def test_a_folder_keeps_to_what_it_was_begun_with(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"--minutes 0\.05 --seed 0"):
        settle(home / DEMO, 8.0, 0)


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf"])
def test_no_minutes_are_no_demo(minutes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--minutes", minutes, "--out", str(tmp_path / "demo")]) == 2
    assert "more than 0" in capsys.readouterr().err


# --- the README -----------------------------------------------------------------------------------------------------

# What a command gets besides, so that it takes seconds: sizes alone, the path stays the same.
SMALLER = {
    "train": [
        *("run.batch=8", "run.samples=16", "run.precision=fp32", "run.compile=False", "optim.warmup_steps=1"),
        *("model.vision.image_size=32", "model.vision.patch_size=8", "model.vision.width=32", "model.vision.depth=2"),
        *("model.vision.heads=2", "model.text.width=32", "model.text.depth=2", "model.text.heads=2"),
        *("model.embedding=32", "model.pooling_heads=2", "model.decoder_depth=2", "model.decoder_heads=2"),
        *("data.workers=0", "data.captions=2", "data.views.num_local=2", "data.views.local_size=16"),
        *("data.vocabulary=corpus", "objective.distill.prototypes=64"),
    ],
    "demo": list(SMALLEST[1:]),
}


def readme(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)


def commands() -> list[list[str]]:
    """Every `goldiclip …` line of the README's shell blocks, and of its prose where it stands whole."""
    lines = [line.split(" #")[0].strip() for block in readme("bash") for line in block.splitlines()]
    lines += re.findall(r"`(goldiclip (?:doctor|recipes))`", (ROOT / "README.md").read_text())
    return [shlex.split(line)[1:] for line in dict.fromkeys(lines) if line.startswith("goldiclip ")]


@pytest.fixture(scope="module")
def desk(home: Path) -> Path:
    """The folder as a reader of the README has it: shards and sets of their own beside the demo."""
    corpus = home / DEMO / "corpus"
    shutil.copytree(corpus / "train", home / "shards")
    shutil.copytree(corpus / "eval", home / "sets")
    return home


def test_every_command_of_the_readme_runs(
    desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(desk)
    ran = commands()
    for words in ran:
        assert main([*words, *SMALLER.get(words[0], [])]) == 0, f"{words}: {capsys.readouterr().err}"
    assert {words[0] for words in ran} >= {"doctor", "recipes", "train", "evaluate", "report", "shards"}
    assert (desk / "runs/mine/report.html").is_file()


def test_make_demo_is_the_command_that_is_tested() -> None:
    assert "make demo" in "".join(readme("bash"))
    assert re.search(r"^demo:.*\n(?:\t.*\n)*?\t\$\(RUN\)/goldiclip demo", (ROOT / "Makefile").read_text(), flags=re.M)


def test_the_python_of_the_readme_runs(desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk)
    (program,) = readme("python")
    assert len([line for line in program.splitlines() if line.strip()]) <= 10
    names: dict[str, object] = {}
    exec(compile(program, "README.md", "exec"), names)
    assert names["hit"].id  # type: ignore[attr-defined]
