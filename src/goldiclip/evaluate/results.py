"""What an evaluation found, as rows that say by themselves what was measured, on what, of what, and how."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from goldiclip.config import ConfigError
from goldiclip.evaluate.datasets import benchmarks

SCHEMA = 1
FILE = "results.json"


@dataclass(frozen=True, slots=True)
class Row:
    """One number."""

    set: str
    family: str
    split: str
    mode: str
    metric: str
    value: float  # a share, of 1
    low: float  # its 95 % interval; NaN where there is none
    high: float
    counts: Mapping[str, int]
    annotations: str  # SHA-256 of the annotation files, 16 digits
    model: str  # SHA-256 of the weights, 16 digits
    command: str
    deviations: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.set}/{self.mode}/{self.metric}"


@dataclass
class Results:
    model: str  # what was loaded
    model_hash: str
    modes: tuple[str, ...]
    command: str
    made: dict[str, str] = field(default_factory=dict)  # when, where, with which versions
    rows: list[Row] = field(default_factory=list)
    details: dict[str, dict[str, float]] = field(default_factory=dict)  # by set: what is too much for rows
    missing: dict[str, dict[str, str]] = field(default_factory=dict)  # by set: title, licence, source, layout
    problems: dict[str, list[str]] = field(default_factory=dict)  # by set
    seconds: dict[str, float] = field(default_factory=dict)  # by set

    def value(self, set_name: str, mode: str, metric: str) -> float | None:
        """One number by name; None when it was not measured."""
        wanted = (set_name, mode, metric)
        return next((row.value for row in self.rows if (row.set, row.mode, row.metric) == wanted), None)


def write_results(results: Results, folder: Path) -> Path:
    """results.json and results.md, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema": SCHEMA, **asdict(results)}, indent=1, default=float, allow_nan=True)
    _replace(folder / FILE, _without_nan(text))
    _replace(folder / "results.md", as_markdown(results))
    return folder / FILE


def with_earlier(results: Results, folder: Path) -> Results:
    """Also what the folder holds of the same weights on sets that are not measured here."""
    try:
        earlier = read_results(folder / FILE)
    except (FileNotFoundError, ConfigError):
        return results
    if earlier.model_hash != results.model_hash:
        return results
    here = {row.set for row in results.rows} | set(results.problems)
    kept = [row for row in earlier.rows if row.set not in here]
    old = {row.set for row in kept}
    joined = {
        name: {key: value for key, value in getattr(earlier, name).items() if key in old} | getattr(results, name)
        for name in ("details", "problems", "seconds")
    }
    missing = {name: about for name, about in results.missing.items() if name not in old}
    place = {name: number for number, name in enumerate(benchmarks())}
    rows = sorted([*kept, *results.rows], key=lambda row: place.get(row.set, len(place)))
    return replace(results, rows=rows, missing=missing, **joined)


def read_results(path: Path) -> Results:
    """From the file, or the folder or run that holds it."""
    file = find_results(path)
    try:
        found = json.loads(file.read_text())
        if found.pop("schema", None) != SCHEMA:
            raise ConfigError(f"{file}: not schema {SCHEMA}, which is what this version reads")
        rows = [_row(row) for row in found.pop("rows")]
        return Results(rows=rows, **{**found, "modes": tuple(found["modes"])})
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: not an evaluation's results ({error})") from error


def find_results(path: Path) -> Path:
    for file in (path, path / FILE, path / "evaluation" / FILE):
        if file.is_file():
            return file
    raise FileNotFoundError(f"{path}: no {FILE} there nor in evaluation/; `goldiclip evaluate` writes it")


def _row(found: dict[str, Any]) -> Row:
    numbers = {name: math.nan if found[name] is None else found[name] for name in ("value", "low", "high")}
    return Row(**{**found, **numbers, "deviations": tuple(found["deviations"])})


def _without_nan(text: str) -> str:
    """JSON has no NaN: null."""
    return json.dumps(json.loads(text, parse_constant=lambda _: None), indent=1, ensure_ascii=False)


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


# --- Markdown -------------------------------------------------------------------------------------------------------


def as_markdown(results: Results) -> str:
    """A page for people: a table for each set, what was missing, what was wrong, and how it deviates."""
    lines = [f"# Evaluation of {results.model}", "", f"    {results.command}", ""]
    lines += [f"Weights {results.model_hash}, " + ", ".join(f"{name} {value}" for name, value in results.made.items())]
    for name in dict.fromkeys(row.set for row in results.rows):
        lines += ["", *_set_page(results, name)]
    for name in unmeasured(results):
        lines += ["", f"## {name}: not measured", *_problem_lines(results.problems[name])]
    if results.missing:
        lines += ["", "## Not there", "", "| set | what it is | licence | from | files |", "|---|---|---|---|---|"]
        for name, about in results.missing.items():
            lines.append(
                f"| {name} | {about['title']} | {about['licence']} | {about['source']} | `{about['layout']}` |"
            )
    return "\n".join(lines) + "\n"


def unmeasured(results: Results) -> list[str]:
    """Sets that are there and could not be read."""
    measured = {row.set for row in results.rows}
    return [name for name in results.problems if name not in measured]


def _set_page(results: Results, name: str) -> list[str]:
    rows = [row for row in results.rows if row.set == name]
    first = rows[0]
    lines = [f"## {name} ({first.split})", "", f"{counted(first.counts)}; annotations {first.annotations}", ""]
    modes = list(dict.fromkeys(row.mode for row in rows))
    lines += ["| | " + " | ".join(modes) + " |", "|---|" + "---|" * len(modes)]
    cells = {(row.metric, row.mode): row for row in rows}
    for metric in dict.fromkeys(row.metric for row in rows):
        shown = [percent(cells.get((metric, mode))) for mode in modes]
        lines.append(f"| {metric} | " + " | ".join(shown) + " |")
    lines += ["", *(f"- {deviation}" for deviation in dict.fromkeys(d for row in rows for d in row.deviations))]
    return lines + _problem_lines(results.problems.get(name, []))


def counted(counts: Mapping[str, int]) -> str:
    """`5,000 images, 25,014 texts, 12 truncated texts`."""
    return ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in counts.items())


def percent(row: Row | None) -> str:
    """`45.1 (44.0–46.2)`."""
    if row is None or math.isnan(row.value):
        return "–"
    bounds = "" if math.isnan(row.low) else f" ({100 * row.low:.1f}–{100 * row.high:.1f})"
    return f"{100 * row.value:.1f}{bounds}"


def _problem_lines(problems: Iterable[str], most: int = 10) -> list[str]:
    problems = list(problems)
    if not problems:
        return []
    more = [f"- … and {len(problems) - most} more, in {FILE}"] if len(problems) > most else []
    return ["", f"{len(problems)} problems:", "", *(f"- {problem}" for problem in problems[:most]), *more]
