"""A comparison in the terminal, as HTML and as Markdown: what is better and what is worse is seen at once."""

from __future__ import annotations

import html
from collections.abc import Mapping

from rich.table import Table as TerminalTable
from rich.text import Text

from goldiclip.evaluate.compare import Cell, Table

COLOURS = {"better": "green", "worse": "red", "same": "default"}


def to_terminal(table: Table) -> TerminalTable:
    """For rich to print; the sets across when they are few, else down."""
    shown = TerminalTable(
        title=table.title, caption="\n".join(table.notes), title_justify="left", caption_justify="left"
    )
    if len(table.heads) <= 8:
        shown.add_column("")
        for head in table.heads:
            shown.add_column(head, justify="right")
        for name, cells in table.rows:
            shown.add_row(name, *(_coloured(cell) for cell in cells))
        return shown
    shown.add_column("")
    for name, _ in table.rows:
        shown.add_column(name, justify="right")
    for place, head in enumerate(table.heads):
        shown.add_row(head, *(_coloured(cells[place]) for _, cells in table.rows))
    return shown


def _coloured(cell: Cell) -> Text:
    return Text(cell.text, style=("bold " if cell.is_best else "") + COLOURS[cell.verdict])


def to_markdown(table: Table) -> str:
    """Better is bold, worse is in italics."""
    marks = {"better": "**", "worse": "*", "same": ""}
    lines = [f"### {table.title}", "", "| | " + " | ".join(table.heads) + " |", "|---|" + "---:|" * len(table.heads)]
    for name, cells in table.rows:
        parts = (f"{_mark(cell, marks)}{cell.text}{_mark(cell, marks)}" for cell in cells)
        lines.append(f"| {name} | " + " | ".join(parts) + " |")
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes), ""])


def _mark(cell: Cell, marks: Mapping[str, str]) -> str:
    return "**" if cell.is_best else marks[cell.verdict]


def to_html(table: Table) -> str:
    """A fragment without scripts; classes better, worse, same and best are for the page's style to colour."""
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
