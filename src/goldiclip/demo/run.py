"""The demo, step by step. Every step leaves its result in the folder; one whose result is there is not repeated."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.console import Console

from goldiclip.config import ConfigError
from goldiclip.data.contact_sheet import contact_sheet
from goldiclip.data.scenes import write_corpus
from goldiclip.data.shards import Shards
from goldiclip.demo.budget import (
    BASELINE,
    TRAIN,
    Budget,
    corpus_settings,
    demo_config,
    images_per_second,
    keep,
    settle,
    with_length,
)
from goldiclip.demo.page import ROWS, write_page
from goldiclip.evaluate.results import FILE, read_results
from goldiclip.evaluate.run import Options, evaluate
from goldiclip.evaluate.spoken import Spoken, answers, captions, located, spoken_numbers
from goldiclip.inference.engine import Engine
from goldiclip.inference.index import Index
from goldiclip.inference.sources import images_in
from goldiclip.train.loop import train

CONTRASTIVE = "ca"  # the baseline: L_ret alone


class Demo:
    """One folder, one budget, and the console that says what is happening and why."""

    def __init__(self, out: Path, minutes: float, seed: int) -> None:
        if minutes <= 0:
            raise ConfigError(f"--minutes is {minutes:g}; allowed: more than 0")
        self.out, self.minutes, self.seed = out, minutes, seed
        self.console = Console()
        self.seconds: dict[str, float] = {}
        out.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def step(self, name: str, why: str) -> Iterator[None]:
        self.console.rule(f"[bold]{name}", align="left")
        self.console.print(why, style="dim")
        started = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - started
        self.console.print(f"[green]done[/] in {self.seconds[name]:.0f} s")


def demo(out: Path, minutes: float = 8.0, seed: int = 0) -> Path:
    """Everything, within about so many minutes; run again, it goes on where it stopped. Returns the page."""
    show = Demo(out, minutes, seed)
    corpus = out / "corpus"
    with show.step("Corpus", "Drawing scenes with captions, boxes, questions and masks: nothing is downloaded."):
        budget = settle(out, minutes, seed)
        cores = os.cpu_count() or 1
        write_corpus(corpus, corpus_settings(minutes, seed, cores), workers=cores, say=show.console.print)
        draw_sheet(corpus, out / "corpus.png", seed)
        show.console.print(f"what training sees of it: {out / 'corpus.png'}")
    if budget is None:
        with show.step("Measure", "How fast does this machine train? That decides how long a run fits into the time."):
            budget = measured(corpus, minutes, seed)
            keep(out, budget)
            show.console.print(
                f"{budget.images_per_second:.0f} images/s with all six losses, "
                f"{budget.baseline_images_per_second:.0f} with the contrastive one alone, on {budget.device}"
            )
    with show.step("Train", "Six signals from every picture: retrieval, captions, boxes, regions, questions, itself."):
        fit(out / "run", corpus, "", budget.samples, seed)
    with show.step("Train the baseline", "The same model and the same time, with the contrastive loss alone."):
        fit(out / "baseline", corpus, CONTRASTIVE, budget.baseline_samples, seed)
    engines = {name: Engine.load(out / name) for name in ("run", "baseline")}
    with show.step("Evaluate", "Six families of questions about scenes whose combinations training never showed."):
        for name, engine in engines.items():
            if not is_measured(out / name):
                measure(engine, corpus / "eval", out / name)
        said = say(engines["run"], corpus, out / "run", most=120 if minutes >= 4 else 24)
    with show.step("Index", "Embedding the gallery, so that a sentence finds its picture."):
        index = Index.create(out / "index", engines["run"])
        index.add(images_in(corpus / "eval" / "images"))
    with show.step("Tell", "One page with everything on it."):
        page = write_page(out, budget, engines["run"], index, said)
    show.console.print(f"\nOpen [bold]{page}[/] in a browser.")
    return page


def draw_sheet(corpus: Path, sheet: Path, seed: int) -> None:
    """A few scenes with their boxes, and the crops, captions and task texts that training draws from them."""
    if not sheet.is_file():
        shards = Shards(str(corpus / "train" / "*.tar"))
        contact_sheet(shards, demo_config(corpus, "", seed), sheet, count=4)


def measured(corpus: Path, minutes: float, seed: int) -> Budget:
    """The budget that this machine's speed allows."""
    speeds = {variant: images_per_second(demo_config(corpus, variant, seed)) for variant in ("", CONTRASTIVE)}
    settings = corpus_settings(minutes, seed, os.cpu_count() or 1)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{os.cpu_count()} CPU cores"
    return Budget(
        minutes=minutes,
        seed=seed,
        scenes=settings.count,
        gallery=settings.held_out,
        samples=int(speeds[""] * TRAIN * minutes * 60),
        baseline_samples=int(speeds[CONTRASTIVE] * BASELINE * minutes * 60),
        images_per_second=speeds[""],
        baseline_images_per_second=speeds[CONTRASTIVE],
        device=device,
    )


def fit(run: Path, corpus: Path, variant: str, samples: int, seed: int) -> None:
    """Train to the end, unless that has happened; an interrupted run goes on."""
    if not (run / "encoder" / "model.safetensors").is_file():
        config = with_length(demo_config(corpus, variant, seed), samples)
        train(config, out=run, requeue=True)


def is_measured(run: Path) -> bool:
    """Results are written set by set: an interrupted evaluation has some of them."""
    return (run / "evaluation" / FILE).is_file() and {name for _, name, _ in ROWS} <= set(read_results(run).seconds)


def measure(engine: Engine, sets: Path, run: Path) -> None:
    """The embedded corpus's six sets, text-conditioned and text-agnostic."""
    options = Options(fit="whole", overlays=6)
    evaluate(engine, sets, options, out=run / "evaluation", name=run.name, command="goldiclip demo", say=_quiet)


def say(engine: Engine, corpus: Path, run: Path, most: int) -> list[Spoken]:
    """What the decoder says about held-out scenes; the numbers are kept beside the evaluation."""
    shards = Shards(str(corpus / "held_out" / "*.tar"))
    samples = [shards[place] for place in range(min(most, len(shards)))]
    said = [*answers(engine, samples), *captions(engine, samples), *located(engine, samples)]
    numbers = {name: [float(value), *_bounds(value)] for name, value in spoken_numbers(said)}
    (run / "evaluation" / "spoken.json").write_text(json.dumps(numbers, indent=1))
    return said


def _bounds(value: float) -> list[float | None]:
    low, high = getattr(value, "low", None), getattr(value, "high", None)
    return [low, high]


def _quiet(_: str) -> None:
    pass
