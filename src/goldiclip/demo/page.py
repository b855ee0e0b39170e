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

from goldiclip.config import from_yaml
from goldiclip.demo.budget import Budget
from goldiclip.evaluate.results import Results, percent, read_results
from goldiclip.evaluate.spoken import Spoken
from goldiclip.inference.engine import Engine
from goldiclip.inference.index import Index
from goldiclip.train.checkpoint import write_durably
from goldiclip.train.log import read_log
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
COLOURS = ((214, 39, 40), (31, 119, 180), (44, 160, 44), (148, 103, 189))


def write_page(out: Path, budget: Budget, engine: Engine, index: Index, said: Sequence[Spoken]) -> Path:
    run = out / "run"
    config = from_yaml((run / "config.yaml").read_text(), str(run / "config.yaml"), to_train=False)
    steps = [record for record in read_log(run / "log.jsonl") if "event" not in record]
    ours, baseline = read_results(run), read_results(out / "baseline")
    annotations = json.loads((out / "corpus" / "eval" / "retrieval.json").read_text())["annotations"]
    gallery = out / "corpus" / "eval"
    body = [
        section("What it can do", [_table(ours, baseline)], _what(budget)),
        section("What the decoder says", [_spoken_table(run)], "Beside the best constant answer."),
        section(
            "Search", _searches(index, annotations, gallery), "Held-out sentences; the picture they describe is framed."
        ),
        section(
            "Where it looks", _heatmaps(engine, annotations, gallery), "Attention of each phrase over the picture."
        ),
        section("Masks", _overlays(run), "Picture, prediction, truth."),
        section("Captions, answers and boxes", _examples(said), "Right and wrong ones, as they came."),
        section("What it learned from", [f"<figure class='card wide picture'>{_image(out / 'corpus.png')}</figure>"]),
        section("Losses", loss_charts(steps, config)),
        section("Task weights 1/σ²", weight_charts(steps)),
    ]
    title = "goldiclip: the first ten minutes"
    page = out / "report.html"
    write_durably(page, card_page(title, _header(title, budget), body))
    return page


def _header(title: str, budget: Budget) -> str:
    told = (
        f"{budget.scenes:,} drawn scenes, {budget.samples:,} samples seen, "
        f"{budget.minutes:g} minutes on {budget.device}. "
        f"All six losses at {budget.images_per_second:.0f} images/s; the contrastive baseline had the same time, "
        f"at {budget.baseline_images_per_second:.0f} images/s."
    )
    top = f"<div class='title'><h1>{html.escape(title)}</h1></div>"
    return f"<header>{top}<p class='note'>{html.escape(told)}</p></header>"


def _what(budget: Budget) -> str:
    return (
        f"A gallery of {budget.gallery} scenes, every thing in it in a combination that training never showed; "
        "with 95 % intervals."
    )


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
    if counts.get("classes"):
        return f"{100 / counts['classes']:.1f}"
    return "–"


def _spoken_table(run: Path) -> str:
    numbers: dict[str, list[float | None]] = json.loads((run / "evaluation" / "spoken.json").read_text())
    rows = []
    for name, (value, low, high) in numbers.items():
        if name.endswith("/majority"):
            continue
        constant = numbers.get(name.replace("/accuracy", "/majority"), [None])[0] if "/accuracy" in name else None
        bounds = f" ({100 * low:.0f}–{100 * high:.0f})" if low is not None and high is not None else ""
        rows.append(
            _row([name, f"{100 * (value or 0):.1f}{bounds}", "–" if constant is None else f"{100 * constant:.1f}"])
        )
    return _card_table(["", "right, %", "best constant answer"], rows)


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
