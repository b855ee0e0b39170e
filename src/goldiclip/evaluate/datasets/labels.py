"""Classification sets in the layouts torchvision reads, as paths and labels.

Names of classes come from the files themselves or from torchvision and open_clip, prompts from `templates.yaml`.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from goldiclip.config import ConfigError
from goldiclip.evaluate.datasets.items import Labelled, is_there, picture_name
from goldiclip.evaluate.datasets.reading import first_there, read_json, words
from goldiclip.evaluate.datasets.segments import IMAGE_SUFFIXES
from goldiclip.evaluate.problems import BadData, Problems
from goldiclip.inference.pictures import Picture

Reader = Callable[[Path, Problems], Labelled]

# CLIP's names where the dataset's own say less.
FLOWERS = {"globe-flower": "globe flower", "pink-yellow dahlia?": "pink and yellow dahlia", "ball moss": "air plant"}


@cache
def templates(name: str) -> tuple[str, ...]:
    """A set's prompts, with {} where the class's name goes."""
    if name == "imagenet":
        from open_clip import OPENAI_IMAGENET_TEMPLATES

        return tuple(template("{}") for template in OPENAI_IMAGENET_TEMPLATES)
    return tuple(yaml.safe_load((Path(__file__).parent / "templates.yaml").read_text())[name])


def food101(home: Path, problems: Problems) -> Labelled:
    listing = home / "meta/test.json"
    found = read_json(listing)
    names = sorted(found)
    rows = [(home / "images" / f"{image}.jpg", names.index(name), image) for name in names for image in found[name]]
    return _of_files("test", listing, rows, [name.replace("_", " ") for name in names], "food101", problems)


def sun397(home: Path, problems: Problems) -> Labelled:
    """The first of the ten official test partitions: 50 images a class."""
    listing = first_there(home / "Testing_01.txt", home / "Partitions/Testing_01.txt", home.parent / "Testing_01.txt")
    if not listing.exists():
        raise BadData(f"{listing} is not there; SUN397's Partitions.zip holds it")
    folders = [line[1:] for line in words(home / "ClassName.txt")]  # /a/abbey
    index = {folder: place for place, folder in enumerate(folders)}
    rows = []
    for line in words(listing):
        folder = line.lstrip("/").rsplit("/", 1)[0]
        if folder not in index:
            problems.add("class list", listing, line, f"is of the class {folder!r}, which ClassName.txt does not list")
            continue
        rows.append((home / line.lstrip("/"), index[folder], line))
    names = [folder.split("/", 1)[1].replace("_", " ").replace("/", " ") for folder in folders]
    deviation = "official partition 1 of SUN397: the subset behind the published numbers is not reproducible"
    return _of_files("Testing_01", listing, rows, names, "sun397", problems, deviations=(deviation,))


def cars(home: Path, problems: Problems) -> Labelled:
    listing = home / "cars_test_annos_withlabels.mat"
    names = [str(name) for name in _mat(home / "devkit/cars_meta.mat")["class_names"].ravel().tolist()]
    rows = [
        (home / "cars_test" / str(row["fname"]), int(row["class"]) - 1, str(row["fname"]))
        for row in np.atleast_1d(_mat(listing)["annotations"])
    ]
    return _of_files("test", listing, rows, names, "cars", problems)


def aircraft(home: Path, problems: Problems) -> Labelled:
    listing = home / "data/images_variant_test.txt"
    names = words(home / "data/variants.txt")
    rows = []
    for line in words(listing):
        image, _, name = line.partition(" ")
        if name not in names:
            problems.add("class list", listing, image, f"is of the variant {name!r}, which variants.txt does not list")
            continue
        rows.append((home / f"data/images/{image}.jpg", names.index(name), image))
    return _of_files("test", listing, rows, names, "aircraft", problems)


def dtd(home: Path, problems: Problems) -> Labelled:
    """The first of the ten official partitions."""
    base = first_there(home / "dtd", home)
    listing = base / "labels/test1.txt"
    lines = words(listing)
    names = sorted({line.split("/")[0] for line in lines})
    rows = [(base / "images" / line, names.index(line.split("/")[0]), line) for line in lines]
    return _of_files("test1", listing, rows, names, "dtd", problems)


def pets(home: Path, problems: Problems) -> Labelled:
    listing = home / "annotations/test.txt"
    lines = [line.split()[:2] for line in words(listing) if not line.startswith("#")]
    named = {int(label) - 1: image.rsplit("_", 1)[0].replace("_", " ") for image, label in lines}
    if sorted(named) != list(range(len(named))):
        raise BadData(f"{listing}: labels are {sorted(named)}, expected 1, 2, 3 … without a gap")
    rows = [(home / f"images/{image}.jpg", int(label) - 1, image) for image, label in lines]
    return _of_files("test", listing, rows, [named[label] for label in sorted(named)], "pets", problems)


def flowers(home: Path, problems: Problems) -> Labelled:
    from torchvision.datasets import Flowers102

    listing = home / "setid.mat"
    labels = _mat(home / "imagelabels.mat")["labels"].ravel()
    images = [int(image) for image in np.atleast_1d(_mat(listing)["tstid"]).ravel()]
    rows = [(home / f"jpg/image_{image:05d}.jpg", int(labels[image - 1]) - 1, image) for image in images]
    names = [FLOWERS.get(name, name) for name in Flowers102.classes]
    found = _of_files("test", listing, rows, names, "flowers", problems)
    return replace(found, annotations=(listing, home / "imagelabels.mat"))


def imagenet(home: Path, problems: Problems) -> Labelled:
    """val/<wordnet id>/*.JPEG: the thousand folders in order are open_clip's thousand names."""
    from open_clip import IMAGENET_CLASSNAMES

    base = first_there(home / "val", home)
    return read_class_folders(base, problems, names=IMAGENET_CLASSNAMES)


def read_class_folders(
    base: Path, problems: Problems, names: Sequence[str] | None = None, split: str = "val"
) -> Labelled:
    """One folder a class. Names are the folders', unless ImageNet's are given in the folders' order."""
    folders = sorted(folder for folder in base.iterdir() if folder.is_dir())
    if names is not None and len(folders) != len(names):
        raise BadData(f"{base}: holds {len(folders)} class folders; expected {len(names)}, one for each name")
    files = [(path, label) for label, folder in enumerate(folders) for path in sorted(folder.rglob("*"))]
    rows = [(path, label, path.name) for path, label in files if path.suffix.lower() in IMAGE_SUFFIXES]
    known = names if names is not None else [folder.name.replace("_", " ") for folder in folders]
    return _of_files(split, base, rows, known, "imagenet" if names is not None else "plain", problems)


def cifar(name: str) -> Reader:
    """A reader of the test images of CIFAR-10 or CIFAR-100, python version."""
    test, meta, key, labels = {
        "cifar10": ("test_batch", "batches.meta", "label_names", "labels"),
        "cifar100": ("test", "meta", "fine_label_names", "fine_labels"),
    }[name]

    def read(home: Path, problems: Problems) -> Labelled:
        found = _unpickle_arrays(home / test)
        names = [one.replace("_", " ") for one in _unpickle_arrays(home / meta)[key]]
        arrays = torch.from_numpy(np.asarray(found["data"], dtype=np.uint8).reshape(-1, 3, 32, 32).copy())
        return _labelled("test", home / test, tuple(arrays), found[labels], names, "cifar", problems)

    return read


def _of_files(
    split: str,
    listing: Path,
    rows: Iterable[tuple[Path, int, object]],
    names: Sequence[str],
    prompts: str,
    problems: Problems,
    deviations: tuple[str, ...] = (),
) -> Labelled:
    there = [(path, label) for path, label, key in rows if is_there(path, listing, key, problems)]
    pictures, labels = tuple(path for path, _ in there), [label for _, label in there]
    return _labelled(split, listing, pictures, labels, names, prompts, problems, deviations)


def _labelled(
    split: str,
    listing: Path,
    pictures: tuple[Picture, ...],
    labels: Sequence[int],
    names: Sequence[str],
    prompts: str,
    problems: Problems,
    deviations: tuple[str, ...] = (),
) -> Labelled:
    known = [0 <= label < len(names) for label in labels]
    for place, (label, is_known) in enumerate(zip(labels, known, strict=True)):
        if not is_known:
            name = picture_name(pictures, place)
            problems.add("class list", listing, name, f"has label {label}; there are {len(names)} classes")
    return Labelled(
        split=split,
        annotations=(listing,) if listing.is_file() else (),
        deviations=deviations,
        pictures=tuple(picture for picture, is_known in zip(pictures, known, strict=True) if is_known),
        labels=tuple(int(label) for label, is_known in zip(labels, known, strict=True) if is_known),
        classes=tuple(names),
        templates=templates(prompts),
    )


def _mat(path: Path) -> dict[str, Any]:
    try:
        from scipy.io import loadmat  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigError(f"{path}: reading it takes scipy; pip install scipy") from error
    return loadmat(str(path), squeeze_me=True)


# All that CIFAR's pickles are made of: lists and strings, which need no name, and one array.
_ARRAY_PARTS = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Arrays(pickle.Unpickler):
    """Builds arrays, and refuses to build anything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ARRAY_PARTS:
            raise BadData(f"asks for {module}.{name}, which no CIFAR file does")
        return super().find_class(module.replace("numpy.core.", "numpy._core."), name)  # the old name warns


def _unpickle_arrays(path: Path) -> dict[str, Any]:
    try:
        found = _Arrays(io.BytesIO(path.read_bytes()), encoding="latin1").load()
    except (BadData, pickle.UnpicklingError, EOFError) as error:
        raise BadData(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise BadData(f"{path}: expected CIFAR's mapping, found {type(found).__name__}")
    return found
