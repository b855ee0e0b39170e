"""The paper's tables, as data: paper.yaml beside this file, with its errors corrected and named."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from goldiclip.config import ConfigError


@dataclass(frozen=True, slots=True)
class Column:
    """What one column measures, as the evaluations here name it."""

    set: str
    metric: str
    mode: str
    head: str


@dataclass(frozen=True, slots=True)
class PaperRow:
    method: str
    data: str  # how much it was trained on
    values: tuple[float | None, ...]  # percent


@dataclass(frozen=True, slots=True)
class PaperTable:
    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[PaperRow, ...]

    def row(self, method: str, data: str) -> PaperRow | None:
        return next((row for row in self.rows if (row.method, row.data) == (method, data)), None)


@cache
def paper_tables() -> dict[str, PaperTable]:
    found = yaml.safe_load((Path(__file__).parent / "paper.yaml").read_text())["tables"]
    tables = {}
    for name, table in found.items():
        columns = tuple(Column(**{"mode": table["mode"], **column}) for column in table["columns"])
        rows = tuple(PaperRow(method, data, tuple(values)) for method, data, *values in table["rows"])
        tables[name] = PaperTable(name, table["title"], columns, rows)
    return tables


@cache
def corrections() -> tuple[str, ...]:
    return tuple(yaml.safe_load((Path(__file__).parent / "paper.yaml").read_text())["corrections"])


def require_method(method: str, data: str) -> None:
    """That some table has this row."""
    known = [(row.method, row.data) for table in paper_tables().values() for row in table.rows]
    if (method, data) not in known:
        names = sorted({f"{one} {size}" for one, size in known})
        near = difflib.get_close_matches(f"{method} {data}", names, n=4, cutoff=0.3)
        raise ConfigError(f"the paper has no {method} trained on {data}; nearest: {', '.join(near or names)}")
