"""A comparison in the terminal, as HTML and as Markdown: what is better and what is worse is seen at once."""

from __future__ import annotations

import html
from collections.abc import Mapping

from rich.table import Table as TerminalTable
from rich.text import Text

from goldiclip.evaluate.compare import Cell, Table

COLOURS = {"better": "green", "worse": "red", "same": "default"}
WIDEST = 100  # columns of text across, names of rows apart
FEW = 4  # rows that stand beside one another rather than across many columns
CELL = 14  # what a number, its difference and the rule beside it take
AT_ONCE = 6  # columns of a piece: even, so that both directions of a retrieval stay together


def laid_out(table: Table) -> Table:
    """A few rows of many numbers turned upright: numbers down, rows across."""
    if len(table.rows) > FEW or sum(max(CELL, len(head) + 3) for head in table.heads) <= WIDEST:
        return table
    names = tuple(name for name, _ in table.rows)
    rows = tuple((head, tuple(cells[place] for _, cells in table.rows)) for place, head in enumerate(table.heads))
    return Table(table.title, names, rows, table.notes)


def to_terminal(table: Table) -> list[TerminalTable]:
    """For rich to print: in pieces of as many columns as a terminal holds."""
    table = laid_out(table)
    starts = range(0, len(table.heads), AT_ONCE)
    return [_piece(table, slice(start, start + AT_ONCE), start == starts[-1]) for start in starts]


def _piece(table: Table, columns: slice, is_last: bool) -> TerminalTable:
    title = table.title if not columns.start else f"{table.title}, continued"
    notes = "\n".join(table.notes) if is_last else None
    shown = TerminalTable(title=title, caption=notes, title_justify="left", caption_justify="left")
    shown.add_column("", no_wrap=True)
    for head in table.heads[columns]:
        shown.add_column(head, justify="right")
    for name, cells in table.rows:
        shown.add_row(name, *(_coloured(cell) for cell in cells[columns]))
    return shown


def _coloured(cell: Cell) -> Text:
    return Text(cell.text, style=("bold " if cell.is_best else "") + COLOURS[cell.verdict])


def to_markdown(table: Table) -> str:
    """Better is bold, worse is in italics."""
    marks = {"better": "**", "worse": "*", "same": ""}
    table = laid_out(table)
    lines = [f"### {table.title}", "", "| | " + " | ".join(table.heads) + " |", "|---|" + "---:|" * len(table.heads)]
    for name, cells in table.rows:
        parts = (f"{_mark(cell, marks)}{cell.text}{_mark(cell, marks)}" for cell in cells)
        lines.append(f"| {name} | " + " | ".join(parts) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes), ""])


def _mark(cell: Cell, marks: Mapping[str, str]) -> str:
    return "**" if cell.is_best else marks[cell.verdict]


def to_html(table: Table) -> str:
    """A fragment without scripts; classes better, worse, same and best are for the page's style to colour."""
    table = laid_out(table)
    head = "".join(f"<th>{html.escape(one)}</th>" for one in table.heads)
    rows = "\n".join(
        f"<tr><th>{html.escape(name)}</th>{''.join(map(_html_cell, cells))}</tr>" for name, cells in table.rows
    )
    notes = "".join(f"<p class='note'>{html.escape(note)}</p>" for note in table.notes)
    title = html.escape(table.title)
    return f"<table class='compare'>\n<caption>{title}</caption>\n<tr><th></th>{head}</tr>\n{rows}\n</table>\n{notes}"


def _html_cell(cell: Cell) -> str:
    classes = cell.verdict + (" best" if cell.is_best else "")
    return f"<td class='{classes}'>{html.escape(cell.text)}</td>"
