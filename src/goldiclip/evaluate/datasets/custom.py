"""Sets of your own: a CSV or JSONL file, or a folder.

columns image, caption (or captions)             retrieval; an image may stand on several rows
columns image, label                             classification
columns question, relevant, others [, kind]      question retrieval; lists, in CSV parted by ;
a folder of class folders                        classification
a folder with images/, masks/ and classes.json   segmentation
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, TypeGuard

from goldiclip.config import ConfigError
from goldiclip.evaluate.datasets.items import Gallery, GalleryBuilder, Items, Labelled, Questions, is_there
from goldiclip.evaluate.datasets.labels import read_class_folders, templates
from goldiclip.evaluate.datasets.reading import read_json_lines
from goldiclip.evaluate.datasets.segments import read_folder
from goldiclip.evaluate.problems import BadData, Problems


def read_custom(path: Path, problems: Problems) -> Items:
    """Whichever of the above `path` is. Images are named relative to the file's folder."""
    if path.is_dir():
        return read_folder(path, problems) if (path / "classes.json").exists() else read_class_folders(path, problems)
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there")
    rows = read_rows(path)
    names = set(rows[0]) if rows else set()
    if {"image"} <= names and names & {"caption", "captions"}:
        return _gallery(path, rows, problems)
    if {"image", "label"} <= names:
        return _labelled(path, rows, problems)
    if {"question", "relevant", "others"} <= names:
        return _questions(path, rows, problems)
    raise BadData(
        f"{path}: has the columns {', '.join(sorted(names)) or 'none'}; "
        "expected image and caption(s), image and label, or question, relevant and others"
    )


def read_rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix.lower() in (".jsonl", ".jsonlines"):
        rows = read_json_lines(path)
        bad = next((number for number, row in enumerate(rows, 1) if not isinstance(row, dict)), None)
        if bad is not None:
            raise BadData(f"{path}, line {bad}: expected a mapping")
        return rows
    if path.suffix.lower() not in (".csv", ".tsv"):
        raise ConfigError(f"{path}: ends in {path.suffix or 'nothing'}; allowed: .csv, .tsv, .jsonl, or a folder")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets begin with a mark
            return list(csv.DictReader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ","))
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadData(f"{path}: no table of words ({error})") from error


def _gallery(path: Path, rows: list[dict[str, Any]], problems: Problems) -> Gallery:
    builder = GalleryBuilder(path, problems)
    for number, row in enumerate(rows, 1):
        image, captions = row.get("image"), row.get("captions") or row.get("caption")
        if not _is_word(image) or not captions or not isinstance(captions, (str, list)):
            problems.add("bad entry", path, f"row {number}", "needs an image and a caption")
            continue
        builder.add(f"row {number}", path.parent / image, [captions] if isinstance(captions, str) else captions)
    return builder.gallery("all")


def _labelled(path: Path, rows: list[dict[str, Any]], problems: Problems) -> Labelled:
    names = sorted({str(row["label"]) for row in rows if row.get("label") not in (None, "")})
    there = []
    for number, row in enumerate(rows, 1):
        if not _is_word(row.get("image")) or row.get("label") in (None, ""):
            problems.add("bad entry", path, f"row {number}", "needs an image and a label")
        elif is_there(path.parent / row["image"], path, f"row {number}", problems):
            there.append((path.parent / row["image"], names.index(str(row["label"]))))
    return Labelled(
        split="all",
        annotations=(path,),
        pictures=tuple(image for image, _ in there),
        labels=tuple(label for _, label in there),
        classes=tuple(names),
        templates=templates("plain"),
    )


def _questions(path: Path, rows: list[dict[str, Any]], problems: Problems) -> Questions:
    place: dict[Path, int] = {}
    texts, kinds, relevant, others = [], [], [], []
    for number, row in enumerate(rows, 1):
        pools = [[path.parent / name for name in _list(row.get(part))] for part in ("relevant", "others")]
        there = [is_there(image, path, f"row {number}", problems) for pool in pools for image in pool]
        if not _is_word(row.get("question")) or not pools[0]:
            problems.add("bad entry", path, f"row {number}", "needs a question and relevant images")
        elif all(there):
            texts.append(row["question"])
            kinds.append(str(row.get("kind") or "all"))
            found = [tuple(place.setdefault(image, len(place)) for image in pool) for pool in pools]
            relevant.append(found[0])
            others.append(found[1])
    return Questions(
        split="all",
        annotations=(path,),
        pictures=tuple(image for image in place),
        texts=tuple(texts),
        kinds=tuple(kinds),
        relevant=tuple(relevant),
        others=tuple(others),
    )


def _list(found: Any) -> list[str]:
    if isinstance(found, str):
        return [part.strip() for part in found.split(";") if part.strip()]
    return [str(part) for part in found] if isinstance(found, list) else []


def _is_word(found: Any) -> TypeGuard[str]:
    return isinstance(found, str) and bool(found.strip())
