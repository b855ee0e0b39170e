"""Annotation files as plain Python, with errors that name the file and the entry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from goldiclip.evaluate.problems import BadData, Problems


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadData(f"{path}: no JSON ({error})") from error


def read_json_lines(path: Path) -> list[Any]:
    entries = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):  # other breaks are JSON's to hold
        if line.strip():
            try:
                entries.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise BadData(f"{path}, line {number}: no JSON ({error})") from error
    return entries


def listed(found: Any, path: Path, name: str = "") -> list[Any]:
    """The list that a file holds, or holds under a name."""
    inside = found.get(name) if name and isinstance(found, dict) else found
    if not isinstance(inside, list):
        raise BadData(f"{path}: expected a list{f' under {name!r}' if name else ''}, found {type(inside).__name__}")
    return inside


def entries(found: list[Any], path: Path, fields: Mapping[str, type], problems: Problems) -> Iterator[tuple[int, Any]]:
    """The entries that have the fields they need, with their position; the others are said."""
    for position, entry in enumerate(found):
        flaw = _flaw(entry, fields)
        if flaw:
            problems.add("bad entry", path, f"entry {position}", flaw)
        else:
            yield position, entry


def _flaw(entry: Any, fields: Mapping[str, type]) -> str:
    if not isinstance(entry, dict):
        return f"expected a mapping with {', '.join(fields)}, found {type(entry).__name__}"
    for name, kind in fields.items():
        if name not in entry:
            return f"has no {name!r}; expected {', '.join(fields)}"
        if not isinstance(entry[name], kind):
            return f"{name!r} is {type(entry[name]).__name__}, expected {kind.__name__}"
    return ""


def words(path: Path) -> list[str]:
    """The lines of a list file, stripped, without empty ones."""
    return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def first_there(*paths: Path) -> Path:
    """The first of some places that exists; the first of all when none does, so that the message names it."""
    return next((path for path in paths if path.exists()), paths[0])
