"""The embedded corpus's held-out sets, written by `goldiclip scenes`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from goldiclip.evaluate.datasets.items import Gallery, GalleryBuilder, Labelled, Masked, Questions
from goldiclip.evaluate.datasets.labels import read_class_folders, templates
from goldiclip.evaluate.datasets.questions import read_questions
from goldiclip.evaluate.datasets.reading import entries, listed, read_json
from goldiclip.evaluate.datasets.segments import read_folder
from goldiclip.evaluate.problems import Problems
from goldiclip.inference.segment import PROTOCOL_SIZE

SPLIT = "held out"


def captions(name: str) -> Callable[[Path, Problems], Gallery]:
    """A reader of {"annotations": [{"image", "captions"}]}."""

    def read(home: Path, problems: Problems) -> Gallery:
        annotation = home / f"{name}.json"
        builder = GalleryBuilder(annotation, problems)
        found = listed(read_json(annotation), annotation, "annotations")
        for position, entry in entries(found, annotation, {"image": str, "captions": list}, problems):
            builder.add(f"entry {position}", home / entry["image"], entry["captions"])
        return builder.gallery(SPLIT)

    return read


def questions(home: Path, problems: Problems) -> Questions:
    return read_questions(home / "questions.json", [home / "images", home], "test", problems)


def segmentation(home: Path, problems: Problems) -> Masked:
    """Scenes are drawn at the size that models of them see: one window is the whole of each."""
    found = read_folder(home / "segmentation", problems, SPLIT)
    return replace(found, short_side=PROTOCOL_SIZE, templates=templates("scenes"))


def classification(home: Path, problems: Problems) -> Labelled:
    return replace(read_class_folders(home / "classification", problems, split=SPLIT), templates=templates("scenes"))
