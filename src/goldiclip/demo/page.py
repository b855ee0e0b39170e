"""The demo's page: what was trained, how it went, what it can do and what it cannot, in one file."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from goldiclip.config import Config, from_yaml
from goldiclip.demo.budget import Budget
from goldiclip.demo.pictures import examples, heatmaps, inlined, masks, searches
from goldiclip.evaluate.results import Results, Row, percent, read_results
from goldiclip.evaluate.spoken import Spoken
from goldiclip.inference.engine import Engine
from goldiclip.inference.index import Index
from goldiclip.train.checkpoint import write_durably
from goldiclip.train.log import read_log
from goldiclip.train.report.chart import Series, line_chart
from goldiclip.train.report.chart import percent as share
from goldiclip.train.report.page import card_page, loss_charts, section, total_chart, weight_charts
from goldiclip.types import TERMS, Sample

# What each term of the loss asks of the model, for the panel and the page.
ASKED: dict[str, str] = {
    "ret": "a picture and its captions find each other among all of the batch",
    "cap": "say in a sentence what is in the picture",
    "ref": 'say where "a red cup" is: four numbers',
    "grd": "say what is in this box",
    "vqa": "answer a question about the picture",
    "sd": "say of a small crop what a slower copy says of the whole picture",
}
# What the page shows of each family: set, metric, and what chance would get given the set's counts.
ROWS: tuple[tuple[str, str, str], ...] = (
    ("Short captions: recall@1, text to image", "scenes_short", "text_to_image/recall@1"),
    ("Single sentences: recall@1, text to image", "scenes_fine_grained", "text_to_image/recall@1"),
    ("Long captions: recall@1, text to image", "scenes_long", "text_to_image/recall@1"),
    ("Questions: recall@2 of 25", "scenes_questions", "average/recall@2"),
    ("Classification: top-1", "scenes_classification", "top1"),
    ("Segmentation: mIoU", "scenes_segmentation", "mean_iou"),
)
SPOKEN = {
    "caption/right": "Captions in which every word is true",
    "locate/mean_iou": "Boxes: mean overlap with the true one",
    "ask/accuracy": "Questions, all kinds: right",
}


def write_page(
    out: Path, budget: Budget, engine: Engine, index: Index, samples: Sequence[Sample], said: Sequence[Spoken]
) -> Path:
    run, gallery = out / "run", out / "corpus" / "eval"
    config = from_yaml((run / "config.yaml").read_text(), str(run / "config.yaml"), to_train=False)
    records = list(read_log(run / "log.jsonl"))
    steps = [record for record in records if "event" not in record]
    ours, baseline = read_results(run), read_results(out / "baseline")
    spoken: dict[str, list[float]] = json.loads((run / "evaluation" / "spoken.json").read_text())
    annotations = json.loads((gallery / "retrieval.json").read_text())["annotations"]
    sheet = f"<figure class='card wide scroll sheet'>{inlined(out / 'corpus.png')}</figure>"
    body = [
        section("Six signals from every picture", [_signals()], "Weighed against each other as they are learned."),
        section("What it can do", [_table(ours, baseline)], _what(budget)),
        section(
            "Search",
            [_pairs(searches(index, annotations, gallery))],
            "Held-out sentences, what is found for them, and the picture that each describes, framed.",
        ),
        section(
            "Where it looks",
            [_pairs(heatmaps(engine, samples))],
            "Phrases of held-out scenes: all at once, then each one's attention, in its colour.",
        ),
        section("Masks", masks(run), "Every pixel goes to the kind that fits it best; nobody showed it a mask."),
        section(
            "What it says",
            [_spoken_table(spoken), _pairs(examples(said))],
            "Held-out scenes; beside what the best constant answer of each kind of question would get.",
        ),
        section(
            "How it went", [_held_out(records, out / "baseline"), total_chart(steps), *weight_charts(steps, config)]
        ),
        section("Losses", loss_charts(steps, config), "Over steps; smoothed, the faint line is every step."),
        section(
            "What it learned from",
            [sheet],
            "Training scenes: with their boxes, as they are cropped, and the captions and tasks that go with them.",
        ),
        section("Now you", [_commands(out)]),
    ]
    title = "goldiclip: the first ten minutes"
    page = out / "report.html"
    write_durably(page, card_page(title, _header(title, budget, config, ours, spoken), body))
    return page


def _pairs(cards: Iterable[str]) -> str:
    return f"<div class='cards pairs wide'>{''.join(cards)}</div>"


def _header(title: str, budget: Budget, config: Config, ours: Results, spoken: dict[str, list[float]]) -> str:
    vision, text = config.model.vision, config.model.text
    minutes = f"{budget.minutes:g} minute" + ("" if budget.minutes == 1 else "s")
    told = (
        f"From nothing, in about {minutes} on {budget.device}: {budget.scenes:,} scenes drawn, and a GoldiCLIP "
        f"trained on {budget.samples:,} views of them with all six losses ({vision.depth} layers of width "
        f"{vision.width} for pictures, {text.depth} for texts, {config.model.decoder_depth} to speak). Beside it a "
        f"contrastive model of the same size that had the same time, in which it saw {budget.baseline_samples:,}."
    )
    _, name, metric = ROWS[0]
    right = _row_of(ours, name, metric, "tc")
    answered, constant = spoken["ask/accuracy"][0], spoken["ask/majority"][0]
    tiles = "".join(
        f"<div class='tile'><span>{label}</span><b>{value}</b><small>{more}</small></div>"
        for label, value, more in (
            ("scenes drawn", f"{budget.scenes:,}", f"of {budget.settings.kinds} kinds of things"),
            ("views trained on", f"{budget.samples:,}", f"{budget.images_per_second:,.0f} a second"),
            (
                f"right picture first, of {budget.gallery:,}",
                f"{100 * right.value:.1f} %" if right else "–",
                f"by chance {_chance(ours, name, metric)} %",
            ),
            ("questions answered right", f"{100 * answered:.0f} %", f"best constant answers {100 * constant:.0f} %"),
        )
    )
    top = f"<div class='title'><h1>{html.escape(title)}</h1></div><p class='note'>{html.escape(told)}</p>"
    return f"<header>{top}<div class='tiles'>{tiles}</div></header>"


def _signals() -> str:
    rows = "".join(
        f"<li><b><i class='c{place + 1}'></i>{term}</b><span>{html.escape(ASKED[term])}</span></li>"
        for place, term in enumerate(TERMS)
    )
    return f"<ul class='card wide signals'>{rows}</ul>"


def _commands(out: Path) -> str:
    lines = (
        f'goldiclip search "a red apple" --index {out / "index"}',
        f"goldiclip serve {out / 'index'}",
        f"goldiclip report {out / 'run'}",
        "goldiclip shards check YOUR_SHARDS",
    )
    return f"<pre class='card wide'>{html.escape(chr(10).join(lines))}</pre>"


def _what(budget: Budget) -> str:
    return (
        f"A gallery of {budget.gallery} scenes, every thing in it in a combination that training never showed; in "
        "percent, with 95 % intervals. tc looks at a picture through the text, ta at the picture as a whole."
    )


def _held_out(records: Sequence[dict[str, Any]], baseline: Path) -> str:
    """Recall over both runs: where a line still rises, more minutes would help."""
    lines = []
    runs = {"six losses": records, "contrastive": list(read_log(baseline / "log.jsonl"))}
    for place, (name, found) in enumerate(runs.items()):
        for shade, mode in enumerate(("tc", "ta")):
            points = [(r["samples"], r["recall"][mode]) for r in found if r.get("event") == "held_out"]
            lines.append(Series(f"{name}, {mode}", 1 + 2 * shade + place, points))
    note = "over samples seen; the baseline sees more of them in the same time"
    return line_chart("Held-out captions to images, recall@1", lines, show=share, note=note)


def _table(ours: Results, baseline: Results) -> str:
    heads = ["six losses, tc", "six losses, ta", "contrastive, tc", "contrastive, ta", "chance"]
    rows = []
    for title, name, metric in ROWS:
        cells = [percent(_row_of(results, name, metric, mode)) for results in (ours, baseline) for mode in ("tc", "ta")]
        rows.append((title, [*cells, _chance(ours, name, metric)]))
    return _card_table(heads, rows)


def _row_of(results: Results, name: str, metric: str, mode: str) -> Row | None:
    """One number; segmentation has no such modes, and its value path stands under tc."""
    modes = (mode, "value") if mode == "tc" else (mode,)
    rows = (row for row in results.rows if (row.set, row.metric) == (name, metric) and row.mode in modes)
    return next(rows, None)


def _chance(results: Results, name: str, metric: str) -> str:
    counts = next((row.counts for row in results.rows if row.set == name), {})
    if metric.endswith("recall@1") and counts.get("images"):
        return f"{100 / counts['images']:.1f}"
    if metric.endswith("recall@2"):
        return f"{100 * 2 / 25:.1f}"
    if classes := counts.get("classes"):  # of pixels an even guess gets 1 in n right, of areas 1 in 2n − 1
        return f"{100 / (2 * classes - 1 if metric == 'mean_iou' else classes):.1f}"
    return "–"


def _spoken_table(numbers: dict[str, list[float]]) -> str:
    rows = []
    for name, (value, low, high) in numbers.items():
        if name.endswith("/majority"):
            continue
        constant = numbers.get(name.replace("/accuracy", "/majority")) if name.endswith("/accuracy") else None
        kind = name.removeprefix("ask/").removesuffix("/accuracy")
        title = SPOKEN.get(name, f"Questions, {kind}: right")
        ours = f"{100 * value:.1f} ({100 * low:.0f}–{100 * high:.0f})"
        rows.append((title, [ours, f"{100 * constant[0]:.1f}" if constant else "–"]))
    return _card_table(["six losses", "best constant answer"], rows)


def _card_table(heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """On a phone each row becomes a small list, which is why every cell knows its heading."""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in ("", *heads))
    body = "".join(
        f"<tr><td>{html.escape(title)}</td>"
        + "".join(f"<td data-head='{html.escape(name)}'>{html.escape(cell)}</td>" for name, cell in zip(heads, cells))
        + "</tr>"
        for title, cells in rows
    )
    table = f"<table class='stacks'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f"<div class='card wide scroll'>{table}</div>"
