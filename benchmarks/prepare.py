"""Throughput of each stage of preparation, in records a second.

    python benchmarks/prepare.py             what needs no model, on one core
    python benchmarks/prepare.py --captions captions.csv
                                             how near phrases come to what people read in captions of Flickr8k, by every
                                             chunker that is installed
    python benchmarks/prepare.py --models    boxes and questions too: OWLv2-base and Phi-3.5-mini in size and shape,
                                             random weights, through the real classes; on a GPU, a minute and a half

Without models one process and one thread; seconds are the CPU's, so that neighbours on a busy machine take none. The
best of the rounds counts. With models seconds are the clock's, from samples in memory to samples in memory.
"""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
import tyro
from PIL import Image
from rich.console import Console
from rich.table import Table

from annotation_models import save_owlv2, save_phi
from goldiclip.data.decode import decode_image
from goldiclip.data.scenes import Settings, scene, to_sample
from goldiclip.data.shards import Shards, write_shard, write_shards
from goldiclip.plan.annotation import DETECTORS
from goldiclip.plan.devices import device_like
from goldiclip.prepare.blocks import Job
from goldiclip.prepare.chunks import chunker, resolve
from goldiclip.prepare.detectors import Owlv2
from goldiclip.prepare.duplicates import image_hash, repetitions
from goldiclip.prepare.images import units
from goldiclip.prepare.join import join, open_captions
from goldiclip.prepare.phrases import find_phrases
from goldiclip.prepare.pipeline import annotate
from goldiclip.prepare.questions import prompt_for, read_questions, reference_caption
from goldiclip.prepare.stages import Boxes, Phrases, Questions, Stage
from goldiclip.prepare.tables import find_columns
from goldiclip.prepare.writers import ModelWriter
from goldiclip.types import Sample

HEIGHT, WIDTH = 384, 512
REPLY = "\n".join(f"Q{n}: What color is object {n}?\nA{n}: red" for n in range(1, 6))
ANSWER_TOKENS = 110  # five short pairs; random weights would go on to the limit


def made_samples(count: int) -> list[Sample]:
    """Smooth JPEGs of 512×384 with the short and long captions of drawn scenes."""
    rng, settings = np.random.default_rng(0), Settings(size=48)
    pictures = []
    for _ in range(min(count, 64)):
        file = io.BytesIO()
        coarse = Image.fromarray(rng.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), dtype=np.uint8))
        coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
        pictures.append(file.getvalue())
    told = [to_sample(scene(number, 0, settings, "train")) for number in range(min(count, 200))]
    return [
        Sample(f"{number:08d}", pictures[number % len(pictures)], told[number % len(told)].captions)
        for number in range(count)
    ]


def best(work: Callable[[], object], rounds: int, clock: Callable[[], float] = time.process_time) -> float:
    """Seconds of the fastest round."""
    found = []
    for _ in range(rounds):
        started = clock()
        work()
        found.append(clock() - started)
    return min(found)


# --- without models -------------------------------------------------------------------------------------------------


def without_models(samples: Sequence[Sample], folder: Path, rounds: int) -> Iterator[tuple[str, int, float]]:
    """(stage, records, seconds)"""
    numbers = iter(range(1_000_000))
    phrased = Phrases("rules").open("cpu")(samples, Counter())
    captions = [reference_caption(sample.captions) for sample in samples]
    hashes = np.random.default_rng(0).integers(0, 1 << 63, (100_000, 4), dtype=np.uint64)
    write_shards(samples, folder / "in")
    stages: dict[str, tuple[int, Callable[[], object]]] = {
        "join: captions into the store": (20 * len(samples), lambda: store(samples, folder, next(numbers))),
        "join: images to captions, shards written": (
            len(samples),
            lambda: join_all(samples, folder, next(numbers)),
        ),
        "read a shard, write a shard": (
            len(samples),
            lambda: write_shard(Shards(str(folder / "in")), folder / "copy.tar"),
        ),
        "decode": (len(samples), lambda: [decode_image(sample.image) for sample in samples]),
        "hash for duplicates, decoding included": (
            len(samples),
            lambda: [image_hash(decode_image(sample.image)) for sample in samples],
        ),
        "near pairs among 100,000 hashes": (len(hashes), lambda: repetitions(hashes)),
        "phrases by rule": (len(samples), lambda: Phrases("rules").open("cpu")(samples, Counter())),
        "questions by template": (len(samples), lambda: Questions().open("cpu")(phrased, Counter())),
        "replies read and checked": (
            len(samples),
            lambda: [read_questions(REPLY, caption, Counter()) for caption in captions],
        ),
        "annotate: phrases, templates, shards, manifest": (
            len(samples),
            lambda: annotate_all(folder, next(numbers)),
        ),
    }
    for name, (records, work) in stages.items():
        yield name, records, best(work, rounds)


def store(samples: Sequence[Sample], folder: Path, number: int) -> None:
    table = folder / "captions.csv"
    if not table.exists():
        with open(table, "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["image", "raw_caption", "longLLA_captions"])
            for again in range(20):
                for sample in samples:
                    rows.writerow([f"{sample.key}-{again}.jpg", sample.captions[0].text, sample.captions[-1].text])
    open_captions([table], find_columns(table), folder / f"store-{number}", quiet=True)


def join_all(samples: Sequence[Sample], folder: Path, number: int) -> None:
    table = folder / "own.csv"
    if not table.exists():
        with open(table, "w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["key", "caption"])
            rows.writerows([sample.key, sample.captions[-1].text] for sample in samples)
    opened = open_captions([table], find_columns(table), folder / "own", quiet=True)
    join(units([str(folder / "in")]), opened, folder / f"joined-{number}", quiet=True)


def annotate_all(folder: Path, number: int) -> None:
    stages: tuple[Stage, ...] = (Phrases("rules"), Questions())
    annotate(Shards(str(folder / "in")), Job(folder / f"annotated-{number}", stages), quiet=True)


# --- with models ----------------------------------------------------------------------------------------------------


def with_models(samples: Sequence[Sample], folder: Path, device: str, small: bool) -> Iterator[tuple[str, int, float]]:
    """The detector alone and as a stage, then the writer as a stage; halved batches show in the name."""
    phrased = Phrases("rules").open("cpu")(samples, Counter())
    owlv2 = save_owlv2(folder / "owlv2", layers=1 if small else 12)
    for batch in (2,) if small else (16, 32, 64):
        stage = Boxes(opening(Owlv2, owlv2, batch=batch), batch=batch)
        yield from timed(f"boxes: OWLv2-base's size, batch {batch}", stage, phrased, device, batch)
    yield from parts_of_the_detector(owlv2, phrased, device, batch=2 if small else 32)
    prompts = [prompt_for(reference_caption(sample.captions)) for sample in samples]
    phi = save_phi(folder / "phi", prompts, device, layers=1 if small else 32)
    tokens = 4 if small else ANSWER_TOKENS
    for batch in (2,) if small else (128, 256):
        asked = [*phrased, *(replace(sample, key=f"{sample.key}x") for sample in phrased)][: 2 * batch]
        writer = opening(ModelWriter, phi, batch=batch, max_new_tokens=tokens)
        yield from timed(f"questions: Phi-3.5-mini's size, batch {batch}", Questions(writer), asked, device, batch)


def opening(kind: Any, folder: Path, **settings: int) -> Callable[[str], Any]:
    def opened(device: str) -> Any:
        return kind(str(folder), device, **settings)

    return opened


def timed(
    name: str, stage: Stage, samples: Sequence[Sample], device: str, batch: int
) -> Iterator[tuple[str, int, float]]:
    work = stage.open(device)
    work(samples[:batch], Counter())
    synchronize(device)
    counts: Counter[str] = Counter()
    started = time.perf_counter()
    made = work(samples, counts)
    synchronize(device)
    halved = f", halved {counts['out of memory: batch halved']} times" if counts["out of memory: batch halved"] else ""
    yield name + halved, len(made), time.perf_counter() - started


def parts_of_the_detector(
    folder: Path, samples: Sequence[Sample], device: str, batch: int
) -> Iterator[tuple[str, int, float]]:
    """Where a batch's time goes."""
    finder: Any = Owlv2(str(folder), device, batch)
    pixels = [decode_image(sample.image).to(device) for sample in samples[:batch]]
    phrases = [["a dog"] * 8 for _ in pixels]
    process = partial(finder.processor.image_processor, pixels, return_tensors="pt", device=torch.device(device))
    for name, work in (
        ("… its image processor", process),
        ("… processor and model", partial(finder._answers, pixels, phrases)),
        ("… and regions", partial(finder.detect, pixels, phrases)),
    ):
        yield name, batch, best(partial(ended, work, device), 3, time.perf_counter)


@torch.inference_mode()
def ended(work: Callable[[], object], device: str) -> None:
    with torch.autocast("cuda", torch.float16, enabled=device == "cuda"):
        work()
    synchronize(device)


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


# --- how good phrases are -------------------------------------------------------------------------------------------


def read_by_people(table: Path) -> dict[str, dict[str, list[str]]]:
    """By sample: caption -> phrases. The tests keep the phrases, and the name of each photo and caption."""
    tests = Path(__file__).parents[1] / "tests" / "prepare"
    written = json.loads((tests / "phrases_written.json").read_text())
    wanted = json.loads((tests / "phrases_flickr8k.json").read_text())
    number, flickr = Counter[str](), dict[str, list[str]]()
    with open(table, encoding="utf-8", newline="") as file:
        for image, caption in csv.reader(file):
            if phrases := wanted.get(f"{image}#{number[image]}"):
                flickr[caption] = phrases
            number[image] += 1
    return {
        "Flickr8k": flickr,
        "LLaVA's manner": {item["caption"]: item["phrases"] for item in written},
    }


def agreement(name: str, captions: Mapping[str, Sequence[str]]) -> tuple[float, float]:
    """Precision and recall of one chunker."""
    chunks, right, found, wanted = chunker(name), 0, 0, 0
    for caption, phrases in captions.items():
        got = {item.phrase for item in find_phrases([caption], chunks)}
        right, found, wanted = right + len(got & set(phrases)), found + len(got), wanted + len(set(phrases))
    return right / found, right / wanted


def show_agreement(table: Path) -> None:
    shown = Table(title="phrases against what people read")
    for column in ("captions", "number", "chunker", "precision", "recall"):
        shown.add_column(column, justify="left" if column in ("captions", "chunker") else "right")
    for source, captions in read_by_people(table).items():
        for name in dict.fromkeys(("rules", resolve("auto"))):
            precision, recall = agreement(name, captions)
            shown.add_row(source, f"{len(captions):,}", name, f"{precision:.3f}", f"{recall:.3f}")
    Console(width=100).print(shown)


def said_of_peak(rows: Sequence[tuple[str, int, float]]) -> str:
    """What the plan's constants are set by."""
    device = device_like(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
    if device is None:
        return ""
    boxes = max(records / seconds for name, records, seconds in rows if name.startswith("boxes"))
    share = boxes * DETECTORS["owlv2-base"].flops(8) / 1e12 / device.teraflops
    answers = max(records / seconds for name, records, seconds in rows if name.startswith("questions: Phi"))
    return f"detector: {share:.2f} of the {device.name}'s peak; writer: {answers * ANSWER_TOKENS:,.0f} tokens/s"


def show(title: str, rows: Sequence[tuple[str, int, float]]) -> None:
    table = Table(title=title)
    for column in ("stage", "records", "seconds", "records/s"):
        table.add_column(column, justify="left" if column == "stage" else "right")
    for name, records, seconds in rows:
        table.add_row(name, f"{records:,}", f"{seconds:.2f}", f"{records / seconds:,.0f}")
    Console(width=100).print(table)


def main(
    count: int = 512, rounds: int = 3, models: bool = False, small: bool = False, captions: Path | None = None
) -> None:
    """Measure.

    Args:
        count: Samples.
        rounds: Of everything without a model; the best counts.
        models: Also boxes and questions, with models of the real sizes.
        small: Models of one layer, to see that all of it runs.
        captions: Flickr8k's, image and caption; nothing is timed then, phrases are judged.
    """
    if captions:
        show_agreement(captions)
        return
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        samples = made_samples(count)
        show("without models, one core", list(without_models(samples, Path(folder), rounds)))
        if models:
            torch.set_num_threads(len(os.sched_getaffinity(0)))
            rows = list(with_models(samples, Path(folder), device, small))
            show(f"with models, on {torch.cuda.get_device_name() if device == 'cuda' else 'the CPU'}", rows)
            print(said_of_peak(rows))


if __name__ == "__main__":
    tyro.cli(main)
