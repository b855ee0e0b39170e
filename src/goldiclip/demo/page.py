"""The demo's page: what was trained, how it went, what it can do and what it cannot, in one file."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from goldiclip.config import Config, from_yaml
from goldiclip.demo.budget import Budget
from goldiclip.evaluate.results import Results, percent, read_results
from goldiclip.evaluate.spoken import Spoken
from goldiclip.inference.engine import Engine
from goldiclip.inference.index import Index
from goldiclip.train.checkpoint import write_durably
from goldiclip.train.log import read_log
from goldiclip.train.report.chart import Series, line_chart
from goldiclip.train.report.chart import percent as share
from goldiclip.train.report.page import card_page, loss_charts, section, weight_charts

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
COLOURS = ((214, 39, 40), (31, 119, 180), (44, 160, 44), (148, 103, 189))


def write_page(out: Path, budget: Budget, engine: Engine, index: Index, said: Sequence[Spoken]) -> Path:
    run = out / "run"
    config = from_yaml((run / "config.yaml").read_text(), str(run / "config.yaml"), to_train=False)
    records = list(read_log(run / "log.jsonl"))
    steps = [record for record in records if "event" not in record]
    ours, baseline = read_results(run), read_results(out / "baseline")
    annotations = json.loads((out / "corpus" / "eval" / "retrieval.json").read_text())["annotations"]
    gallery = out / "corpus" / "eval"
    body = [
        section("What it can do", [_table(ours, baseline)], _what(budget)),
        section(
            "What the decoder says",
            [_spoken_table(run)],
            "Held-out scenes; beside what the best constant answer of each kind of question would get.",
        ),
        section(
            "Search", _searches(index, annotations, gallery), "Held-out sentences; the picture they describe is framed."
        ),
        section("Where it looks", _heatmaps(engine, annotations, gallery), "Each phrase's attention, in its colour."),
        section("Masks", _overlays(run), "Picture, prediction, truth; nobody showed it a mask."),
        section("Captions, answers and boxes", _examples(said), "Right and wrong ones, as they came."),
        section("What it learned from", [f"<figure class='card wide picture'>{_image(out / 'corpus.png')}</figure>"]),
        section("How it went", [_held_out(records, out / "baseline"), *weight_charts(steps)]),
        section("Losses", loss_charts(steps, config)),
    ]
    title = "goldiclip: the first ten minutes"
    page = out / "report.html"
    write_durably(page, card_page(title, _header(title, budget, config), body))
    return page


def _header(title: str, budget: Budget, config: Config) -> str:
    vision, text = config.model.vision, config.model.text
    told = (
        f"From nothing, in about {budget.minutes:g} minutes on {budget.device}: {budget.scenes:,} scenes drawn, and a "
        f"GoldiCLIP trained on {budget.samples:,} views of them with all six losses ({vision.depth} layers of width "
        f"{vision.width} for pictures, {text.depth} for texts, {config.model.decoder_depth} to speak). Beside it a "
        f"contrastive model of the same size that had the same time, in which it saw {budget.baseline_samples:,}."
    )
    tiles = "".join(
        f"<div class='tile'><span>{name}</span><b>{value}</b><small>{more}</small></div>"
        for name, value, more in (
            ("scenes", f"{budget.scenes:,}", f"of {budget.settings.kinds} kinds of things"),
            ("samples seen", f"{budget.samples:,}", f"{budget.images_per_second:,.0f} a second"),
            ("the baseline's", f"{budget.baseline_samples:,}", f"{budget.baseline_images_per_second:,.0f} a second"),
            ("gallery", f"{budget.gallery:,}", "held-out scenes"),
        )
    )
    top = f"<div class='title'><h1>{html.escape(title)}</h1></div><p class='note'>{html.escape(told)}</p>"
    return f"<header>{top}<div class='tiles'>{tiles}</div></header>"


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
    rows = []
    for title, name, metric in ROWS:
        cells = [_cell(results, name, metric, mode) for results in (ours, baseline) for mode in ("tc", "ta")]
        rows.append(_row([title, *cells, _chance(ours, name, metric)]))
    heads = ["", "six losses, tc", "six losses, ta", "contrastive, tc", "contrastive, ta", "chance"]
    return _card_table(heads, rows)


def _cell(results: Results, name: str, metric: str, mode: str) -> str:
    """One number; segmentation has no such modes, and its value path stands under tc."""
    modes = (mode, "value") if mode == "tc" else (mode,)
    rows = (row for row in results.rows if (row.set, row.metric) == (name, metric) and row.mode in modes)
    return percent(next(rows, None))


def _chance(results: Results, name: str, metric: str) -> str:
    counts = next((row.counts for row in results.rows if row.set == name), {})
    if metric.endswith("recall@1") and counts.get("images"):
        return f"{100 / counts['images']:.1f}"
    if metric.endswith("recall@2"):
        return f"{100 * 2 / 25:.1f}"
    if classes := counts.get("classes"):  # of pixels an even guess gets 1 in n right, of areas 1 in 2n − 1
        return f"{100 / (2 * classes - 1 if metric == 'mean_iou' else classes):.1f}"
    return "–"


def _spoken_table(run: Path) -> str:
    numbers: dict[str, list[float]] = json.loads((run / "evaluation" / "spoken.json").read_text())
    rows = []
    for name, (value, low, high) in numbers.items():
        if name.endswith("/majority"):
            continue
        constant = numbers.get(name.replace("/accuracy", "/majority")) if name.endswith("/accuracy") else None
        kind = name.removeprefix("ask/").removesuffix("/accuracy")
        title = SPOKEN.get(name, f"Questions, {kind}: right")
        cells = [title, f"{100 * value:.1f} ({100 * low:.0f}–{100 * high:.0f})"]
        rows.append(_row([*cells, f"{100 * constant[0]:.1f}" if constant else "–"]))
    return _card_table(["", "six losses", "best constant answer"], rows)


def _card_table(heads: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heads)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f"<div class='card wide scroll'>{table}</div>"


def _row(cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


# --- pictures -------------------------------------------------------------------------------------------------------


def _searches(index: Index, annotations: Sequence[dict[str, Any]], gallery: Path, count: int = 5) -> list[str]:
    cards = []
    for entry in annotations[:: max(1, len(annotations) // count)][:count]:
        query, wanted = entry["captions"][0], Path(entry["image"]).name
        hits = index.search(query, k=5)
        shown = "".join(_image(gallery / "images" / hit.id, framed=hit.id == wanted) for hit in hits)
        caption = f"<figcaption>{html.escape(query)}</figcaption>"
        cards.append(f"<figure class='card wide'>{caption}<div class='hits'>{shown}</div></figure>")
    return cards


def _heatmaps(engine: Engine, annotations: Sequence[dict[str, Any]], gallery: Path, count: int = 4) -> list[str]:
    cards = []
    for entry in annotations[3 :: max(1, len(annotations) // count)][:count]:
        picture = gallery / entry["image"]
        phrases = [part.strip() for part in entry["captions"][0].replace(" and ", ", ").split(",") if part.strip()][:3]
        maps = engine.heatmap(picture, phrases).cpu().numpy()
        pictures = [_image(picture)] + [
            _figure(tinted(Image.open(picture).convert("RGB"), heat, COLOURS[i % len(COLOURS)]), phrase)
            for i, (heat, phrase) in enumerate(zip(maps, phrases))
        ]
        cards.append(f"<figure class='card wide'><div class='hits'>{''.join(pictures)}</div></figure>")
    return cards


def tinted(picture: Image.Image, heat: np.ndarray, colour: tuple[int, int, int]) -> Image.Image:
    """A picture in grey, its warm places in a colour."""
    span = heat.max() - heat.min()
    share = ((heat - heat.min()) / (span or 1))[..., None]
    grey = np.asarray(picture.convert("L"), dtype=np.float32)[..., None].repeat(3, -1) * 0.6 + 80
    return Image.fromarray((grey * (1 - share) + np.array(colour) * share).clip(0, 255).astype(np.uint8))


def _overlays(run: Path, count: int = 6) -> list[str]:
    found = sorted((run / "evaluation" / "overlays").rglob("*.png"))[:count]
    return [f"<figure class='card picture'>{_image(path)}</figure>" for path in found]


def _examples(said: Sequence[Spoken], each: int = 4) -> list[str]:
    """Of every task as many right as wrong ones, where there are."""
    cards = []
    for task in dict.fromkeys(one.task for one in said):
        of_task = [one for one in said if one.task == task]
        right = [one for one in of_task if one.score >= 0.5][: each // 2]
        wrong = [one for one in of_task if one.score < 0.5][: each - len(right)]
        cards += [_example(one) for one in (*right, *wrong)]
    return cards


def _example(one: Spoken) -> str:
    picture = Image.open(io.BytesIO(one.sample.image)).convert("RGB")
    if one.box and one.true_box:
        _frame(picture, one.true_box, (44, 160, 44))
        _frame(picture, one.box, (214, 39, 40))
        text = f"“{one.asked}”: overlap {one.score:.2f} (red said, green true)"
    else:
        asked = f"{one.asked} " if one.asked else "Caption: "
        text = f"{asked}“{one.said}”" + ("" if one.score >= 0.5 else f" (known: “{one.truth}”)")
    tone = "better" if one.score >= 0.5 else "worse"
    caption = f"<figcaption class='{tone}'>{html.escape(text)}</figcaption>"
    return f"<figure class='card picture'>{_inline(picture)}{caption}</figure>"


def _frame(picture: Image.Image, box: Sequence[float], colour: tuple[int, int, int]) -> None:
    width, height = picture.size
    corners = [(box[0] * width, box[1] * height), (box[2] * width - 1, box[3] * height - 1)]
    ImageDraw.Draw(picture).rectangle([*corners[0], *corners[1]], outline=colour, width=2)


def _figure(picture: Image.Image, text: str) -> str:
    return f"<span class='hit'>{_inline(picture)}<small>{html.escape(text)}</small></span>"


def _image(path: Path, framed: bool = False) -> str:
    return f"<span class='hit{' found' if framed else ''}'>{_inline(Image.open(path).convert('RGB'))}</span>"


def _inline(picture: Image.Image) -> str:
    file = io.BytesIO()
    picture.save(file, "WEBP", quality=82)
    return f"<img alt='' src='data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}'>"
