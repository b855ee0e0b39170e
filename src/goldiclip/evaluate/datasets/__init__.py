"""Every set that can be evaluated on. A new one is a reader in this dict and one of its name in benchmarks.yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml

from goldiclip.evaluate.datasets import captions, labels, questions, scenes, segments
from goldiclip.evaluate.datasets.items import Items
from goldiclip.evaluate.problems import Problems

READERS: dict[str, Callable[[Path, Problems], Items]] = {
    "coco": captions.coco,
    "coco_karpathy": captions.coco_karpathy,
    "flickr30k_val": captions.flickr30k("val"),
    "flickr30k_test": captions.flickr30k("test"),
    "docci_fg": captions.docci_fine_grained,
    "iiw_fg": captions.iiw_fine_grained,
    "dci": captions.dci,
    "urban1k": captions.urban1k,
    "sharegpt4v_1k": captions.sharegpt4v(1_000),
    "sharegpt4v_10k": captions.sharegpt4v(10_000),
    "retvqa": questions.retvqa,
    "voc20": segments.voc20,
    "cityscapes": segments.cityscapes,
    "context59": segments.context59,
    "ade20k": segments.ade20k,
    "coco_stuff": segments.coco_stuff,
    "food101": labels.food101,
    "cifar10": labels.cifar("cifar10"),
    "cifar100": labels.cifar("cifar100"),
    "sun397": labels.sun397,
    "cars": labels.cars,
    "aircraft": labels.aircraft,
    "dtd": labels.dtd,
    "pets": labels.pets,
    "flowers": labels.flowers,
    "imagenet": labels.imagenet,
    "scenes_short": scenes.captions("retrieval"),
    "scenes_fine_grained": scenes.captions("fine_grained"),
    "scenes_long": scenes.captions("long"),
    "scenes_questions": scenes.questions,
    "scenes_segmentation": scenes.segmentation,
    "scenes_classification": scenes.classification,
}


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A set as benchmarks.yaml describes it."""

    family: str
    title: str
    licence: str
    source: str
    homes: tuple[str, ...]
    marker: tuple[str, ...]
    layout: str
    holds: Mapping[str, int] = field(default_factory=dict)  # images and texts of the whole of it

    def find(self, root: Path) -> Path | None:
        """The set's own folder under `root`, when it is there."""
        for home in self.homes:
            if any((root / home / mark).exists() for mark in self.marker):
                return root / home
        return None


@cache
def benchmarks() -> dict[str, Benchmark]:
    found = yaml.safe_load((Path(__file__).parent / "benchmarks.yaml").read_text())
    return {
        name: Benchmark(**{**entry, "homes": tuple(entry["homes"]), "marker": tuple(entry["marker"])})
        for name, entry in found.items()
    }


def partial(name: str, counts: Mapping[str, int]) -> str:
    """What is said of a set that was not measured whole, else nothing: a smaller gallery is an easier one."""
    whole = benchmarks()[name].holds if name in benchmarks() else {}
    less = {what: count for what, count in whole.items() if counts.get(what, count) != count}
    return ", ".join(f"{counts[what]:,} {what} (published: {count:,})" for what, count in less.items())
