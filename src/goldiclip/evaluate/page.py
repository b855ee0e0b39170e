"""An evaluation as a page for people, in one file that needs nothing else."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from goldiclip.evaluate.compare import Table, against_paper, summary
from goldiclip.evaluate.results import Results, unmeasured
from goldiclip.evaluate.show import to_html

PAGE = "results.html"
MOST_PICTURES, MOST_PROBLEMS = 24, 10


def write_page(results: Results, folder: Path) -> Path:
    """What was found, beside the paper, with what was wrong, what was missing and the segmentations."""
    made = " · ".join(f"{what} {value}" for what, value in {"weights": results.model_hash, **results.made}.items())
    head = f"<p class='note'>{html.escape(made)}</p><pre>{html.escape(results.command)}</pre>"
    parts = [
        head,
        *section("Found", ("<div class='side'>", *cards(summary(results)), "</div>")),
        *section("Beside the paper", cards(against_paper(results))),
        *section("Problems of the data", _problems(results)),
        *section("Segmentations", _pictures(folder / "overlays")),
        *section("Not there", _missing(results)),
    ]
    page = folder / PAGE
    page.write_text(whole(f"Evaluation of {results.model}", parts), encoding="utf-8")
    return page


def whole(title: str, parts: Iterable[str]) -> str:
    """A page of its own; nothing is fetched."""
    style = (files("goldiclip.evaluate") / "page.css").read_text()
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{html.escape(title)}</title><style>{style}</style></head><body>"
        f"<h1>{html.escape(title)}</h1>{''.join(parts)}</body></html>"
    )


def section(title: str, parts: Iterable[str]) -> Iterator[str]:
    """The parts under a heading, unless there are none."""
    if inside := "".join(parts):
        yield f"<h2>{title}</h2>{inside}"


def cards(tables: Sequence[Table]) -> Iterator[str]:
    for table in tables:
        yield f"<div class='card'>{to_html(table)}</div>"


def _problems(results: Results) -> Iterator[str]:
    left_out = unmeasured(results)
    for name, said in results.problems.items():
        more = [f"… and {len(said) - MOST_PROBLEMS} more, in results.json"] if len(said) > MOST_PROBLEMS else []
        lines = "".join(f"<li>{html.escape(one)}</li>" for one in [*said[:MOST_PROBLEMS], *more])
        title = f"{name}: not measured" if name in left_out else f"{name}: {len(said)}"
        yield f"<div class='card'><b>{html.escape(title)}</b><ul>{lines}</ul></div>"


def _pictures(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.png"))[:MOST_PICTURES]:
        caption = html.escape(f"{path.parent.name}: {path.stem}")
        data = base64.b64encode(path.read_bytes()).decode()
        yield (
            f"<figure class='card'><img loading='lazy' alt='{caption}' src='data:image/png;base64,{data}'>"
            f"<figcaption>{caption}</figcaption></figure>"
        )


def _missing(results: Results) -> Iterator[str]:
    heads = ("set", "what it is", "licence", "from", "files")
    rows = [
        (name, about["title"], about["licence"], about["source"], about["layout"])
        for name, about in results.missing.items()
    ]
    if rows:
        lines = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows)
        head = "".join(f"<th>{one}</th>" for one in heads)
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        yield f"<div class='card'><table class='words'><tr>{head}</tr>{body}</table></div>"
