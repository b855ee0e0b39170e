"""RetVQA: which of a question's pictures hold its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from goldiclip.evaluate.datasets.items import Questions, is_there
from goldiclip.evaluate.datasets.reading import first_there, read_json
from goldiclip.evaluate.problems import BadData, Problems

# The release's own words for its five kinds are matched by what they contain.
KINDS = {"count": "count", "col": "color", "attr": "object-attributes", "shape": "shape", "relat": "relation"}


def retvqa(home: Path, problems: Problems) -> Questions:
    """The test split; pictures are Visual Genome's."""
    genome = [home, home / "images", home.parent / "visual_genome", home.parent / "VisualGenome"]
    folders = [folder / part for folder in genome for part in ("VG_100K", "VG_100K_2", "")]
    found = read_questions(home / "retvqa_release_v1.json", folders, "test", problems)
    lacking = [kind for kind in KINDS.values() if kind not in found.kinds]
    less = f"no question of the kind {', '.join(lacking)}: the average is over the others (published: over five)"
    return replace(found, deviations=(less,)) if lacking else found


def read_questions(annotation: Path, folders: list[Path], split: str, problems: Problems) -> Questions:
    """{qid: {question, q_type, split, pos_imgs, neg_imgs}}; images by name or number, in the first folder with them."""
    found = read_json(annotation)
    if not isinstance(found, dict):
        raise BadData(f"{annotation}: expected a mapping from question ids, found {type(found).__name__}")
    folders = [folder for folder in folders if folder.is_dir()] or folders[:1]
    pictures = _Pictures(annotation, folders, problems)
    texts, kinds, relevant, others = [], [], [], []
    for key, entry in found.items():
        if not _is_asked(entry, split, annotation, key, problems):
            continue
        positives = pictures.places(key, entry["pos_imgs"])
        negatives = pictures.places(key, entry["neg_imgs"])
        if positives is None or negatives is None:
            continue
        texts.append(entry["question"])
        kinds.append(kind_of(str(entry["q_type"]), annotation, key, problems))
        relevant.append(positives)
        others.append(negatives)
    return Questions(
        split=split,
        annotations=(annotation,),
        deviations=(),
        pictures=tuple(pictures.paths),
        texts=tuple(texts),
        kinds=tuple(kinds),
        relevant=tuple(relevant),
        others=tuple(others),
    )


def _is_asked(entry: Any, split: str, annotation: Path, key: str, problems: Problems) -> bool:
    needed = ("question", "q_type", "pos_imgs", "neg_imgs")
    missing = [name for name in needed if not isinstance(entry, Mapping) or name not in entry]
    if missing:
        problems.add("bad entry", annotation, f"question {key}", f"has no {', '.join(missing)}")
        return False
    if entry.get("split", split) != split:
        return False
    flaw = ""
    if not isinstance(entry["question"], str) or not entry["question"].strip():
        flaw = f"its question is {entry['question']!r}, expected words"
    elif not isinstance(entry["pos_imgs"], list) or not isinstance(entry["neg_imgs"], list):
        flaw = "pos_imgs and neg_imgs are to be lists of images"
    elif not entry["pos_imgs"]:
        flaw = "has no relevant image"
    if flaw:
        problems.add("bad entry", annotation, f"question {key}", flaw)
    return not flaw


def kind_of(found: str, annotation: Path, key: str, problems: Problems) -> str:
    """One of the five kinds; another one is said and keeps its name."""
    for part, kind in KINDS.items():
        if part in found.lower():
            return kind
    problems.add(
        "bad entry", annotation, f"question {key}", f"q_type is {found!r}, none of {', '.join(KINDS.values())}"
    )
    return found


class _Pictures:
    """Images by the name that questions give them, each once."""

    def __init__(self, annotation: Path, folders: list[Path], problems: Problems) -> None:
        self.annotation, self.folders, self.problems = annotation, folders, problems
        self.place: dict[str, int | None] = {}
        self.paths: list[Path] = []

    def places(self, key: str, names: list[Any]) -> tuple[int, ...] | None:
        """Where the pictures stand; None, and said, when one is not there: its question would be an easier one."""
        found = [self._find(key, str(name)) for name in names]
        return None if None in found else tuple(place for place in found if place is not None)

    def _find(self, key: str, name: str) -> int | None:
        if name not in self.place:
            file = name if Path(name).suffix else f"{name}.jpg"
            path = first_there(*(folder / file for folder in self.folders))
            there = is_there(path, self.annotation, f"question {key}", self.problems)
            self.place[name] = len(self.paths) if there else None
            if there:
                self.paths.append(path)
        return self.place[name]


Reader = Callable[[Path, Problems], Questions]
