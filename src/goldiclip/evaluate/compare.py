"""Numbers side by side: a model beside the paper or another run, a recipe's ablations beside each other.

A comparison is a `Table` of cells; `goldiclip.evaluate.show` turns it into text for the terminal, HTML and Markdown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from goldiclip.evaluate.datasets import partial
from goldiclip.evaluate.paper import Column, PaperTable, corrections, paper_tables, require_method
from goldiclip.evaluate.results import Results, Row, counted, read_results

# Names of the paper's ablation by the recipe variant that trains it.
ABLATION = {"ca": "CA", "dc": "+DC", "vd": "+VD", "un": "+UN", "sd": "+SD"}


@dataclass(frozen=True, slots=True)
class Cell:
    """A percentage, and what it is compared with."""

    value: float | None
    difference: float | None = None
    is_certain: bool = True  # whether the difference lies outside the value's 95 % interval
    is_best: bool = False
    interval: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        if self.value is None or math.isnan(self.value):
            return "–"
        bounds = "" if self.interval is None else f" ({self.interval[0]:.1f}–{self.interval[1]:.1f})"
        return f"{self.value:.1f}" + (bounds if self.difference is None else f" ({self.difference:+.1f})")

    @property
    def verdict(self) -> str:
        """better, worse, or same: less than 0.05 apart, or within the interval."""
        if self.difference is None or abs(self.difference) < 0.05 or not self.is_certain:
            return "same"
        return "better" if self.difference > 0 else "worse"


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    notes: tuple[str, ...] = field(default=())


def summary(results: Results) -> list[Table]:
    """What was found, a table for each set: metrics down, modes across, with intervals. For a run's page."""
    tables = []
    for name in dict.fromkeys(row.set for row in results.rows):
        rows = [row for row in results.rows if row.set == name]
        modes = tuple(dict.fromkeys(row.mode for row in rows))
        found = {(row.metric, row.mode): row for row in rows}
        shown = tuple(
            (metric, tuple(_with_interval(found.get((metric, mode))) for mode in modes))
            for metric in dict.fromkeys(row.metric for row in rows)
        )
        problems = results.problems.get(name, [])
        said = (f"problems of the data: {len(problems)}, the first: {problems[0]}",) if problems else ()
        notes = (counted(rows[0].counts), *rows[0].deviations, *said)
        tables.append(Table(f"{name} ({rows[0].split})", modes, shown, notes))
    return tables


def _with_interval(row: Row | None) -> Cell:
    if row is None:
        return Cell(None)
    return Cell(100 * row.value, interval=None if math.isnan(row.low) else (100 * row.low, 100 * row.high))


# --- comparisons ----------------------------------------------------------------------------------------------------


def against(results: Results, other: str, method: str = "GoldiCLIP", data: str = "30M") -> list[Table]:
    """Beside `paper`, or beside the results in another run or folder."""
    return against_paper(results, method, data) if other == "paper" else against_run(results, read_results(Path(other)))


def against_paper(results: Results, method: str = "GoldiCLIP", data: str = "30M") -> list[Table]:
    """Our rows under the paper's, for each table that we have any number of; differences are to the method's row.

    What is measured text-conditioned stands there text-agnostically too: beside the method's own row of that kind where
    the paper has one.
    """
    require_method(method, data)
    tables = (_beside(results, table, method, data) for table in paper_tables().values())
    return [table for table in tables if table is not None]


def _beside(results: Results, table: PaperTable, method: str, data: str) -> Table | None:
    rival = table.row(method, data)
    ours = [_measured(results, column) for column in table.columns]
    if rival is None or not any(ours):
        return None
    shown = tuple(place for place, row in enumerate(ours) if row)
    rows = [(f"{row.method} {row.data}", _plain(row.values, shown)) for row in table.rows]
    rows.append((_name(results), tuple(_cell(ours[place], rival.values[place]) for place in shown)))
    notes = [f"differences to {method} {data}", *(note for note in corrections() if note.startswith(table.name))]
    less = {row.set: partial(row.set, row.counts) for row in ours if row}
    notes += [f"{name}: {said}" for name, said in less.items() if said]
    agnostic = [_measured(results, replace(table.columns[place], mode="ta")) for place in shown]
    if any(row and row is not ours[place] for place, row in zip(shown, agnostic)):
        own = table.row(f"{method} ta", data)
        values = [(own or rival).values[place] for place in shown]
        rows.append((f"{_name(results)} ta", tuple(map(_cell, agnostic, values))))
        notes[0] += f", of ta to {own.method} {data}" if own else ""
    found = Table(table.title, tuple(table.columns[place].head for place in shown), tuple(rows), tuple(notes))
    return _with_average(found) if len(shown) == len(table.columns) else found


def against_run(results: Results, other: Results) -> list[Table]:
    """Every number that both have, a table for each family; the second row is what differences are to."""
    theirs = {row.name: row for row in other.rows}
    tables = []
    for family in dict.fromkeys(row.family for row in results.rows):
        both = [row for row in results.rows if row.family == family and row.name in theirs]
        if not both:
            continue
        notes = dict.fromkeys(note for row in both for note in _unlike(row, theirs[row.name]))
        mine = tuple(_cell(row, 100 * theirs[row.name].value) for row in both)
        plain = tuple(Cell(100 * theirs[row.name].value) for row in both)
        names = [_name(results), _name(other)]
        if names[0] == names[1]:
            names = [f"{one.model} {one.model_hash}" for one in (results, other)]
        rows = ((names[0], mine), (names[1], plain))
        tables.append(Table(family, tuple(row.name for row in both), rows, tuple(notes)))
    return tables


def ablation_table(runs: Mapping[str, Path] | Iterable[Path]) -> Table:
    """One row for each run folder, in order, differences to the row above it; the best of each column stands out.

    Columns are the paper's ablation columns where they were measured, else recall@1 and each set's first number.
    """
    named = dict(runs) if isinstance(runs, Mapping) else {folder.name: folder for folder in runs}
    found = {name: read_results(folder) for name, folder in named.items()}
    columns = _ablation_columns(list(found.values()))
    rows: list[tuple[str, tuple[Cell, ...]]] = []
    measured = {name: [_measured(results, column) for column in columns] for name, results in found.items()}
    best = [_best(place, measured.values()) for place in range(len(columns))]
    notes = ["differences to the row above"]
    above: list[Row | None] = [None] * len(columns)
    for name, row in measured.items():
        before = [100 * one.value if one else None for one in above]
        cells = (_cell(one, old, one is not None and one.value == top) for one, old, top in zip(row, before, best))
        notes += [note for one, old in zip(row, above) if one and old for note in _unlike(one, old)]
        rows.append((ABLATION.get(name.partition("/")[2] or name, name), tuple(cells)))
        above = row
    return Table("Ablation", tuple(column.head for column in columns), tuple(rows), tuple(dict.fromkeys(notes)))


def _ablation_columns(found: Sequence[Results]) -> list[Column]:
    paper = [column for column in paper_tables()["ablation"].columns if any(_measured(one, column) for one in found)]
    if paper:
        return paper
    columns: dict[str, Column] = {}
    for row in (row for results in found for row in results.rows):
        if row.metric.endswith(("recall@1", "average/recall@2", "mean_iou", "top1")):
            columns.setdefault(row.name, Column(row.set, row.metric, row.mode, f"{row.set} {row.mode} {row.metric}"))
    return list(columns.values())


def _measured(results: Results, column: Column) -> Row | None:
    """The row of a column: in its mode, or text-agnostic where the model has no pooling."""
    modes = (column.mode, "ta") if column.mode == "tc" and "tc" not in results.modes else (column.mode,)
    for row in results.rows:
        if (row.set, row.metric) == (column.set, column.metric) and row.mode in modes:
            return row
    return None


def _best(place: int, rows: Iterable[Sequence[Row | None]]) -> float | None:
    values = [row[place] for row in rows]
    return max((one.value for one in values if one is not None), default=None)


def _cell(row: Row | None, against: float | None, is_best: bool = False) -> Cell:
    if row is None:
        return Cell(None)
    if against is None:
        return Cell(100 * row.value, is_best=is_best)
    is_certain = math.isnan(row.low) or not 100 * row.low <= against <= 100 * row.high
    return Cell(100 * row.value, 100 * row.value - against, is_certain, is_best)


def _plain(values: Sequence[float | None], shown: Sequence[int]) -> tuple[Cell, ...]:
    return tuple(Cell(values[place]) for place in shown)


def _with_average(table: Table) -> Table:
    """A last column with the unweighted mean, where the paper has one: the columns are of one kind."""
    if not table.title.startswith(("Retrieval for question", "Zero-shot segmentation", "Zero-shot classification")):
        return table
    rows = []
    for name, cells in table.rows:
        values = [cell.value for cell in cells if cell.value is not None]
        differences = [cell.difference for cell in cells if cell.difference is not None]
        is_whole = len(values) == len(cells)
        mean = sum(values) / len(values) if is_whole else None
        difference = sum(differences) / len(cells) if len(differences) == len(cells) else None
        rows.append((name, (*cells, Cell(mean, difference))))
    return Table(table.title, (*table.heads, "average"), tuple(rows), table.notes)


def _name(results: Results) -> str:
    return results.model or results.model_hash


def _unlike(row: Row, other: Row) -> Iterator[str]:
    """What makes a difference between two numbers mean less."""
    if row.annotations != other.annotations:
        yield f"{row.set}: not measured on the same annotations"
    if row.counts != other.counts:
        yield f"{row.set}: measured on {counted(row.counts)}; the other on {counted(other.counts)}"
    if alone := set(row.deviations) ^ set(other.deviations):
        sizes = {partial(one.set, one.counts) for one in (row, other)}
        yield from (f"{row.set}: measured in another way: {one}" for one in sorted(alone - sizes))
