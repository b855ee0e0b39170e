"""The page: what a run's folder holds, laid out for a person, in one file without anything fetched."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

from goldiclip.config import Config, from_yaml
from goldiclip.evaluate.compare import against, summary
from goldiclip.evaluate.results import find_results, read_results
from goldiclip.evaluate.show import to_html
from goldiclip.train.checkpoint import write_durably
from goldiclip.train.folder import writing
from goldiclip.train.log import read_log
from goldiclip.train.panel import duration
from goldiclip.train.report.chart import Series, line_chart, percent, short
from goldiclip.types import TERMS

MAX_PICTURES, MAX_PICTURE_BYTES = 24, 2_000_000
Record = Mapping[str, Any]

# What charts show beside the losses: title, path in the record, options.
MORE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Retrieval: text-agnostic and text-conditioned", "ret", {}),
    ("Gradient norms", "gradient_norm", {"is_log": True}),
    ("Teacher entropy", "teacher_entropy", {"note": "near 0: one prototype per image; near the log of all: uniform"}),
    ("KL of teacher to student", "teacher_kl", {}),
    ("Norm of the centres", "centre_norm", {}),
)
COSTS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Images per second", "images_per_second", {}),
    ("Share of the step spent waiting for data", "data_wait", {"show": percent}),
    ("Model-FLOP utilisation", "mfu", {"show": percent}),
    ("Memory, GB", "memory_gigabytes", {}),
)
STATE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Learning rate", "lr", {}),
    ("Logit scale", "scale", {}),
    ("Logit bias", "bias", {}),
)


def write_report(run: Path, rival: str = "paper") -> Path:
    """RUN/report.html from what the folder holds now; a run under way may be asked as often as one likes.

    Its evaluations stand beside `rival`: the paper's tables, or another run's results.
    """
    if not (run / "config.yaml").is_file():
        raise FileNotFoundError(f"{run} holds no run (no config.yaml): `goldiclip report` takes the folder of one")
    config = from_yaml((run / "config.yaml").read_text(), str(run / "config.yaml"))
    records = list(read_log(run / "log.jsonl")) if (run / "log.jsonl").is_file() else []
    page = run / "report.html"
    with writing(page, "make room, mend its folder, or copy the run to one that can be written"):
        write_durably(page, render(run, config, records, rival))
    return page


def render(run: Path, config: Config, records: Sequence[Record], rival: str) -> str:
    """The whole page."""
    steps = [record for record in records if "event" not in record]
    events = [record for record in records if "event" in record]
    name = config.run.name or config.recipe or run.name
    sections = [
        section("At a glance", [*held_out_charts(events), total_chart(steps), *weight_charts(steps, config)]),
        section("Losses", loss_charts(steps, config), "Smoothed; the faint line is every step."),
        section("Optimisation", charts(steps, (*STATE, *MORE))),
        section("Cost", charts(steps, COSTS)),
        section("Evaluation", evaluation_tables(run, rival)),
        section("Pictures", pictures(run)),
        section("What happened", [happenings(events)] if events else []),
        section("Configuration", [configuration(run)]),
    ]
    return card_page(name, header(run, name, config, steps, events), sections)


def card_page(title: str, head: str, sections: Iterable[str]) -> str:
    """A whole page in one file: nothing is fetched."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)} · goldiclip</title><style>{_resource('page.css')}</style></head><body>"
        f"{head}<main>{''.join(sections)}</main>"
        f"<script>{_resource('crosshair.js')}</script></body></html>"
    )


def _resource(name: str) -> str:
    return (files("goldiclip.train.report") / name).read_text()


def section(title: str, parts: Iterable[str], note: str = "") -> str:
    inside = "".join(parts)
    if not inside:
        return ""
    told = f"<p class='note'>{html.escape(note)}</p>" if note else ""
    return f"<section><h2>{html.escape(title)}</h2>{told}<div class='cards'>{inside}</div></section>"


# --- the top ----------------------------------------------------------------------------------------------------------


def header(run: Path, name: str, config: Config, steps: Sequence[Record], events: Sequence[Record]) -> str:
    tiles = "".join(
        "<div class='tile'><span>{}</span><b>{}</b><small>{}</small></div>".format(*map(html.escape, row))
        for row in headline(config, steps, events)
    )
    when = datetime.now().strftime("%-d %B %Y, %H:%M")
    status, tone = standing(steps, events)
    told = f"recipe {config.recipe or 'of its own'} · folder {run.resolve().name} · page written {when}"
    return (
        f"<header><div class='title'><h1>{html.escape(name)}</h1>"
        f"<span class='status {tone}'>{html.escape(status)}</span></div>"
        f"<p class='note'>{html.escape(told)}</p><div class='tiles'>{tiles}</div></header>"
    )


def standing(steps: Sequence[Record], events: Sequence[Record]) -> tuple[str, str]:
    """Where the run is, and in which tone that is said."""
    last = events[-1]["event"] if events else ""
    if last == "finished":
        return "finished", "good"
    if last == "interrupted":
        return f"stopped at step {events[-1]['step']:,}, ready to resume", "warn"
    if last == "alarm" and "not finite" in events[-1]["message"]:
        return f"failed at step {events[-1]['step'] + 1:,}", "bad"
    return (f"step {steps[-1]['step']:,}" if steps else "not a step yet"), "plain"


def headline(config: Config, steps: Sequence[Record], events: Sequence[Record]) -> list[tuple[str, str, str]]:
    """The few numbers one asks for first: (label, value, more)."""
    if not steps:
        return []
    last = steps[-1]
    seconds = sum(record["seconds"] for record in steps) * config.run.log_every_steps
    starts = [event for event in events if event["event"] == "started"]
    total = starts[-1].get("total", 0) if starts else 0
    found = [
        ("steps", f"{last['step']:,}", f"of {total // config.run.batch:,}" if total else f"batch {config.run.batch:,}"),
        ("samples", short(last["samples"]), f"in {duration(seconds)}"),
        ("loss", f"{last['total']:.3f}", f"began at {steps[0]['total']:.3f}"),
        ("speed", f"{short(median(record['images_per_second'] for record in steps))}/s", "images, median"),
    ]
    recalls = [event["recall"] for event in events if event["event"] == "held_out"]
    for mode, label in (("tc", "R@1, conditioned"), ("ta", "R@1, agnostic")):
        if recalls and mode in recalls[-1]:
            found.append((label, percent(recalls[-1][mode]), f"best {percent(max(r.get(mode, 0) for r in recalls))}"))
    if starts:
        where = f"{starts[-1].get('ranks', 1)} × {starts[-1].get('device', 'CPU')}"
        found.append(("attempts", str(len(starts)), where))
    return found


# --- charts -----------------------------------------------------------------------------------------------------------


def _points(records: Iterable[Record], *path: str) -> list[tuple[float, float]]:
    found = []
    for record in records:
        value: Any = record
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            found.append((record["step"], value))
    return found


def loss_charts(steps: Sequence[Record], config: Config) -> list[str]:
    found = []
    for number, term in enumerate(TERMS):
        weight = getattr(config.objective.weights, term)
        title = f"L_{term}" + (f", weight {weight:g}" if weight != 1 else "")
        found.append(line_chart(title, [Series(term, number + 1, _points(steps, "terms", term))]))
    return found


def total_chart(steps: Sequence[Record]) -> str:
    return line_chart("Total loss, balanced", [Series("total", 0, _points(steps, "total"))])


def weight_charts(steps: Sequence[Record], config: Config) -> list[str]:
    """1/σ² of each task: what the paper's supplement plots."""
    lines = [Series(term, number + 1, _points(steps, "task_weight", term)) for number, term in enumerate(TERMS)]
    note = "learned; all begin at 1" if config.objective.balance == "learned" else "not learned: objective.balance"
    return [line_chart("Task weights 1/σ²", lines, is_log=True, note=note)]


def held_out_charts(events: Sequence[Record]) -> list[str]:
    measured = [event for event in events if event["event"] == "held_out"]
    names = {"tc": "text-conditioned", "ta": "text-agnostic"}
    lines = [Series(names[mode], colour, _points(measured, "recall", mode)) for mode, colour in (("tc", 1), ("ta", 5))]
    return [line_chart("Text to image, recall@1", lines, show=percent)]


def charts(steps: Sequence[Record], wanted: Sequence[tuple[str, str, dict[str, Any]]]) -> list[str]:
    """One chart per name: one line for a number, several for a group of numbers."""
    found = []
    for title, name, options in wanted:
        holding = next((record[name] for record in steps if name in record), None)
        if isinstance(holding, Mapping):
            colours = {part: 0 if part == "all" else 1 + i % 7 for i, part in enumerate(holding)}
            lines = [Series(part, colour, _points(steps, name, part)) for part, colour in colours.items()]
        else:
            lines = [Series(name.replace("_", " "), 0, _points(steps, name))]
        found.append(line_chart(title, lines, **options))
    return found


# --- tables, pictures, words ------------------------------------------------------------------------------------------


def evaluation_tables(run: Path, rival: str) -> list[str]:
    """What `goldiclip evaluate` has found for this run, then beside the paper or another run."""
    try:
        results = read_results(find_results(run))
    except FileNotFoundError:
        return []
    tables = [*summary(results), *against(results, rival)]
    return [f"<div class='card wide scroll'>{to_html(table)}</div>" for table in tables]


def pictures(run: Path) -> list[str]:
    """PNG and JPEG files of RUN/pictures and RUN/evaluation, inlined."""
    found: list[str] = []
    candidates = [path for folder in ("pictures", "evaluation") for path in sorted((run / folder).rglob("*.*"))]
    kinds = {".png": "png", ".jpg": "jpeg", ".jpeg": "jpeg"}
    for path in candidates:
        if path.suffix not in kinds or path.stat().st_size > MAX_PICTURE_BYTES or len(found) == MAX_PICTURES:
            continue
        data = base64.b64encode(path.read_bytes()).decode()
        caption = html.escape(path.stem.replace("_", " "))
        found.append(
            f"<figure class='card picture'><img loading='lazy' alt='{caption}' "
            f"src='data:image/{kinds[path.suffix]};base64,{data}'><figcaption>{caption}</figcaption></figure>"
        )
    return found


def happenings(events: Sequence[Record]) -> str:
    rows = "".join(
        f"<li class='{html.escape(event['event'])}'><time>step {event['step']:,}</time>"
        f"<span>{html.escape(event['message'])}</span></li>"
        for event in events
        if event["event"] != "held_out"
    )
    return f"<ol class='card wide events'>{rows}</ol>"


def configuration(run: Path) -> str:
    text = html.escape((run / "config.yaml").read_text())
    return f"<details class='card wide'><summary>config.yaml</summary><pre>{text}</pre></details>"
