"""What an evaluation set holds once it is read: pictures and what is asked of them. No pixel is decoded yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from goldiclip.evaluate.problems import Problems
from goldiclip.inference.pictures import Picture


@dataclass(frozen=True, kw_only=True)
class Items:
    """What all sets have in common: where they come from, for the report."""

    split: str
    annotations: tuple[Path, ...]
    pictures: tuple[Picture, ...]
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Gallery(Items):
    """Pictures and texts, each text about one of them."""

    texts: tuple[str, ...]
    owners: tuple[int, ...]  # of each text, its picture


@dataclass(frozen=True, kw_only=True)
class Questions(Items):
    """Questions with a pool of pictures each, some of which show the answer."""

    texts: tuple[str, ...]
    kinds: tuple[str, ...]
    relevant: tuple[tuple[int, ...], ...]  # of each question, pictures
    others: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Labelled(Items):
    """Pictures of one class each."""

    labels: tuple[int, ...]
    classes: tuple[str, ...]
    templates: tuple[str, ...]  # with {} where the class's name goes


@dataclass(frozen=True, kw_only=True)
class Masked(Items):
    """Pictures with a class for every pixel."""

    masks: tuple[Path, ...]
    classes: tuple[tuple[str, ...], ...]  # each with its synonyms
    zero_is_ignored: bool  # label 0 is no class, and label k is class k − 1
    short_side: int  # what images are resized to, for a model that sees 224 pixels
    ignore: int = 255
    templates: tuple[str, ...] = ()  # with {} where a class's name goes; empty: ImageNet's


class GalleryBuilder:
    """Collects captions by image, in order of appearance, and leaves out those whose image is not there."""

    def __init__(self, annotation: Path, problems: Problems) -> None:
        self.annotation, self.problems = annotation, problems
        self.place: dict[Path, int | None] = {}
        self.pictures: list[Path] = []
        self.texts: list[str] = []
        self.owners: list[int] = []

    def add(self, key: object, image: Path, texts: Iterable[str]) -> None:
        if image not in self.place:
            self.place[image] = self._new(key, image)
        owner = self.place[image]
        if owner is None:
            return
        for place, text in enumerate(texts):
            if isinstance(text, str) and text.strip():
                self.texts.append(text)
                self.owners.append(owner)
            else:
                self.problems.add("bad entry", self.annotation, key, f"caption {place} is {text!r}, expected words")

    def _new(self, key: object, image: Path) -> int | None:
        if not is_there(image, self.annotation, key, self.problems):
            return None
        self.pictures.append(image)
        return len(self.pictures) - 1

    def gallery(self, split: str, annotations: Iterable[Path] = (), deviations: Iterable[str] = ()) -> Gallery:
        return Gallery(
            split=split,
            annotations=tuple(annotations) or (self.annotation,),
            deviations=tuple(deviations),
            pictures=tuple(self.pictures),
            texts=tuple(self.texts),
            owners=tuple(self.owners),
        )


def is_there(image: Path, annotation: Path, key: object, problems: Problems) -> bool:
    """Whether an annotation's image exists; said when it does not."""
    if image.is_file():
        return True
    problems.add("missing image", annotation, key, f"names {image}, which is not there")
    return False


def picture_name(pictures: Sequence[Picture], place: int) -> str:
    """How a message calls a picture: its path, or where it stands."""
    picture = pictures[place]
    return str(picture) if isinstance(picture, (str, Path)) else f"picture {place}"
