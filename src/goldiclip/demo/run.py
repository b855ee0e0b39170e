"""The demo, step by step. Every step leaves its result in the folder; one whose result is there is not repeated."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from goldiclip.config import Config, ConfigError
from goldiclip.data.contact_sheet import contact_sheet
from goldiclip.data.scenes import write_corpus
from goldiclip.data.shards import Shards
from goldiclip.demo.beside import beside
from goldiclip.demo.budget import (
    CONTRASTIVE,
    Budget,
    demo_config,
    keep,
    measured,
    num_cores,
    settle,
    threads,
    with_length,
)
from goldiclip.demo.page import ASKED, ROWS, write_page
from goldiclip.evaluate.results import FILE, read_results
from goldiclip.evaluate.run import Options, evaluate
from goldiclip.evaluate.spoken import Spoken, answers, captions, located, spoken_numbers
from goldiclip.inference.engine import Engine
from goldiclip.inference.index import Index
from goldiclip.inference.sources import images_in
from goldiclip.train.launch import Interrupted
from goldiclip.train.loop import train
from goldiclip.types import Sample

STEPS = ("Corpus", "Measure", "Train", "Train the baseline", "Evaluate", "Index", "Tell")


class Demo:
    """The console that says what is happening and why, and how much of the time is gone."""

    def __init__(self, minutes: float, console: Console | None = None) -> None:
        self.minutes = minutes
        self.console = console or Console()
        self.began = time.perf_counter() - time.process_time()  # starting Python took time too

    def elapsed(self) -> float:
        return time.perf_counter() - self.began

    @contextmanager
    def step(self, name: str, why: str) -> Iterator[None]:
        gone = f"{clock(self.elapsed())} of about {clock(60 * self.minutes)} gone"
        place = f"{STEPS.index(name) + 1} of {len(STEPS)}"
        self.console.rule(f"[bold]{name}[/] [dim]· {place} · {gone}[/]", align="left")
        self.say(why)
        started = time.perf_counter()
        try:
            yield
        except (KeyboardInterrupt, Interrupted):
            self.console.print(f"[yellow]stopped[/] in the middle of {name!r}: the same command goes on from here")
            raise
        self.console.print(f"[green]done[/] in {clock(time.perf_counter() - started)}")

    def say(self, text: str) -> None:
        self.console.print(escape(text), style="dim", highlight=False, soft_wrap=not self.console.is_terminal)


def demo(out: Path, minutes: float = 8.0, seed: int = 0) -> Path:
    """Everything, within about so many minutes; run again, it goes on where it stopped. Returns the page."""
    if not 0 < minutes < math.inf:
        raise ConfigError(f"--minutes is {minutes:g}; allowed: more than 0")
    show = Demo(minutes)
    out.mkdir(parents=True, exist_ok=True)
    corpus = out / "corpus"
    with show.step("Corpus", "Drawing scenes with captions, boxes, questions and masks: nothing is downloaded."):
        budget = settle(out, minutes, seed)
        draw(budget, corpus, out / "corpus.png", show)
    with show.step("Measure", "How fast does this machine train? That decides how long a run fits into the time."):
        if not budget.is_measured:
            budget = measured(budget, corpus, show.elapsed)
            keep(out, budget)
        show.say(planned(budget))
    with baseline(out, budget, corpus, show) as finish_baseline:
        with show.step("Train", "Six signals from every picture, weighed against each other as they are learned:"):
            show.console.print(legend())
            fit(out / "run", with_length(demo_config(budget, corpus), budget.samples), budget.threads, show.say)
        with show.step(
            "Train the baseline", "The same model and the same time, with ret alone: what the other five are worth."
        ):
            finish_baseline()
    with show.step("Evaluate", "Six families of questions about scenes whose combinations training never showed."):
        engines = {name: Engine.load(out / name) for name in ("run", "baseline")}
        for name, engine in engines.items():
            measure(engine, corpus / "eval", out / name, show)
        samples = held_out(corpus, most=200 if minutes >= 4 else 100 if minutes >= 1 else 16)
        said = say(engines["run"], samples, out / "run")
    with show.step("Index", "Embedding the gallery, so that a sentence finds its picture."):
        index = Index.create(out / "index", engines["run"])
        index.add(images_in(corpus / "eval" / "images"))
    with show.step("Tell", "One page with everything on it."):
        page = write_page(out, budget, engines["run"], index, samples, said)
    show.console.print(f"\nOpen [bold]{escape(str(page))}[/] in a browser. Then, for example:", soft_wrap=True)
    program, kept = called(), shlex.quote(str(out / "index"))
    show.say(f'  {program} search "a red apple" --index {kept}\n  {program} serve {kept}')
    return page


def called() -> str:
    """How to call goldiclip from here: by its name, or by its place in an environment that is not active."""
    beside = Path(sys.executable).with_name("goldiclip")
    return "goldiclip" if shutil.which("goldiclip") or not beside.exists() else shlex.quote(os.path.relpath(beside))


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def draw(budget: Budget, corpus: Path, sheet: Path, show: Demo) -> None:
    """The corpus, and a sheet of a few scenes with their boxes and what training draws from them."""
    write_corpus(corpus, budget.settings, workers=num_cores(), say=show.say)
    if not sheet.is_file():
        contact_sheet(Shards(str(corpus / "train" / "*.tar")), demo_config(budget, corpus), sheet, count=4)
    show.say(f"what training sees of it: {sheet}")


def planned(budget: Budget) -> str:
    """How the time will be spent."""
    each = budget.samples / budget.images_per_second
    return (
        f"{budget.device}: {budget.images_per_second:,.0f} images/s with all six losses, "
        f"{budget.baseline_images_per_second:,.0f} with the contrastive one alone. So {clock(each)} of training are "
        f"{budget.samples:,} samples of {budget.scenes:,} scenes, and {budget.baseline_samples:,} for the baseline."
    )


def legend() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(style="dim")
    for name, meaning in ASKED.items():
        table.add_row(name, meaning)
    return table


@contextmanager
def baseline(out: Path, budget: Budget, corpus: Path, show: Demo) -> Iterator[Callable[[], None]]:
    """Yields what trains the baseline to its end; beside the run, where they share no GPU, it begins at once."""
    run, log = out / "baseline", out / "baseline.log"
    config = with_length(demo_config(budget, corpus, CONTRASTIVE), budget.baseline_samples)
    if budget.side_by_side and not is_trained(run):
        with beside(fit, run, config, budget.threads, print, log=log) as finish:
            show.say(f"beside it, on the other half of the cores, the baseline of the next step: {log}")
            yield finish
    else:
        yield lambda: fit(run, config, budget.threads, show.say)


def fit(run: Path, config: Config, num_threads: int, say: Callable[[str], None]) -> None:
    """Train to the end, unless that has happened; an interrupted run goes on."""
    if is_trained(run):
        say(f"{run} is trained already")
        return
    with threads(num_threads):
        train(config, out=run, requeue=True)


def is_trained(run: Path) -> bool:
    return (run / "encoder" / "model.safetensors").is_file()


def is_measured(run: Path) -> bool:
    """Results are written set by set: an interrupted evaluation has some of them."""
    return (run / "evaluation" / FILE).is_file() and {name for _, name, _ in ROWS} <= set(read_results(run).seconds)


def measure(engine: Engine, sets: Path, run: Path, show: Demo) -> None:
    """The embedded corpus's six sets, text-conditioned and text-agnostic."""
    if is_measured(run):
        show.say(f"{run} is measured already")
        return

    def say(line: str) -> None:
        if not line.startswith(" "):  # the numbers come on the page
            show.say(f"{run.name}: {line}")

    options = Options(fit="whole", overlays=6)
    evaluate(engine, sets, options, out=run / "evaluation", name=run.name, command="goldiclip demo", say=say)


def held_out(corpus: Path, most: int) -> list[Sample]:
    shards = Shards(str(corpus / "held_out" / "*.tar"))
    return [shards[place] for place in range(min(most, len(shards)))]


def say(engine: Engine, samples: Sequence[Sample], run: Path) -> list[Spoken]:
    """What the decoder says about held-out scenes; the numbers are kept beside the evaluation."""
    said = [*answers(engine, samples), *captions(engine, samples), *located(engine, samples)]
    numbers = {name: [float(value), *_bounds(value)] for name, value in spoken_numbers(said)}
    (run / "evaluation" / "spoken.json").write_text(json.dumps(numbers, indent=1))
    return said


def _bounds(value: float) -> list[float | None]:
    low, high = getattr(value, "low", None), getattr(value, "high", None)
    return [low, high]
