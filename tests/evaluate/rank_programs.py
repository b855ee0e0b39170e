"""What each rank of a shared evaluation runs, and one process alone: every family, a broken picture among them."""

from __future__ import annotations

import json
import traceback
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from plain_sets import gallery, labelled_set, question_set
from set_layouts import WRITERS

from goldiclip import recipes
from goldiclip.evaluate.classification import classification
from goldiclip.evaluate.datasets import READERS, benchmarks
from goldiclip.evaluate.datasets.items import Masked
from goldiclip.evaluate.problems import BadData, Problems
from goldiclip.evaluate.questions import questions
from goldiclip.evaluate.retrieval import retrieval
from goldiclip.evaluate.run import Options, evaluate
from goldiclip.evaluate.segmentation import segmentation
from goldiclip.inference.engine import Engine
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.train.parallel import current_ranks


def write_sets(root: Path) -> None:
    for name in ("scenes_segmentation", "coco"):
        WRITERS[name](root)
    (root / "coco/images/val2017/000000000003.jpg").write_bytes(b"no picture")


def measure_all(root: Path) -> dict[str, float | str | list[str]]:
    """Every number by name, what each rank said, and the error that strict evaluation ends with."""
    ranks = current_ranks()
    engine = Engine(GoldiCLIP(recipes.recipe("tiny").model, seed=1), image_size=32, device="cpu", batch=4)
    whole = gallery(num_images=19)
    broken = replace(whole, pictures=(*whole.pictures[:6], b"no picture", *whole.pictures[7:]))
    masked = READERS["scenes_segmentation"](benchmarks()["scenes_segmentation"].find(root), Problems(strict=True))  # type: ignore[arg-type]
    assert isinstance(masked, Masked)
    problems = Problems(ranks=ranks)
    found: dict[str, float | str | list[str]] = {}
    for name, numbers in {
        "gallery": retrieval(engine, whole, shortlist=3, ranks=ranks),
        "one_block": retrieval(engine, gallery(num_images=3), shortlist=2, ranks=ranks),
        "broken": retrieval(engine, broken, shortlist=4, ranks=ranks, problems=problems),
        "questions": questions(engine, question_set(), ranks=ranks),
        "labels": classification(engine, labelled_set(), ranks=ranks),
        "masks": segmentation(engine, masked, modes=("value", "sink"), ranks=ranks),
    }.items():
        for key, value in numbers:
            found[f"{name}/{key}"] = float(value)
            found[f"{name}/{key}/low"] = getattr(value, "low", 0.0)
    found["said"] = problems.of_all()
    try:
        evaluate(engine, root, Options(only=("coco",), strict=True), ranks=ranks, say=lambda _: None)
    except BadData as error:
        found["strict"] = str(error)
    return found


def rank_program(rank: int, size: int, folder: str) -> None:
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store{size}", rank=rank, world_size=size)
        found = measure_all(Path(folder) / "data")
        (Path(folder) / f"rank{rank}of{size}.json").write_text(json.dumps(found))
        dist.destroy_process_group()
    except BaseException:
        (Path(folder) / f"failed{rank}of{size}.txt").write_text(traceback.format_exc())
        raise
