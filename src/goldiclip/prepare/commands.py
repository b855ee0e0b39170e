"""The commands under `goldiclip prepare`, one short function each; what they need is imported when they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

Shards = Positional[tuple[str, ...]]


def join(
    images: Shards,
    *,
    out: Path,
    captions: tuple[Path, ...] = (),
    by: Literal["auto", "url", "key", "name", "sha256"] = "auto",
    key_column: str = "",
    caption_columns: tuple[str, ...] = (),
    keep_unmatched: bool = False,
    per_shard: int = 5_000,
    max_missing: float = 0.1,
    max_absent: float = 0.2,
    max_suspicious: float = 0.05,
    max_repeated: float = 0.05,
    workers: int = 0,
) -> None:
    """Join captions to images, as shards: `goldiclip prepare join photos --captions captions.csv --out shards`.

    Args:
        images: Folders of images, img2dataset or webdataset shards, parquet files with bytes or paths.
        out: Folder of the shards. Run again, what is joined already is left as it is.
        captions: Tables, or folders of them: CSV, TSV, JSONL, parquet, COCO's JSON. None: images keep their own.
        by: How a table names its images; its header usually says.
        key_column: The column that names the image, where its name does not say so.
        caption_columns: NAME=SOURCE for each column to take; sources are raw, short, long.
        keep_unmatched: Keep images without a row in the tables, with the captions they bring along.
        per_shard: Images per shard made of folders and parquet files; shards stay as they are cut.
        max_missing: Stop when a larger share of images has no caption.
        max_absent: Stop when a larger share of any caption column is NaN, null or empty.
        max_suspicious: Stop when a larger share of samples raises one and the same doubt about its captions.
        max_repeated: Stop when one caption stands in a larger share of rows.
        workers: Processes; 0 takes the cores there are.
    """
    from goldiclip.prepare.command import run_join
    from goldiclip.prepare.join import JoinLimits

    limits = JoinLimits(max_missing, max_absent, max_suspicious, max_repeated)
    tables = (captions, key_column, by, caption_columns)
    run_join(images, tables, out, limits, keep_unmatched=keep_unmatched, per_shard=per_shard, workers=workers)


def phrases(
    shards: Shards, *, out: Path, source: str = "auto", limit: int = 10, block: int = 512, workers: int = 0
) -> None:
    """Find object-centric phrases and their sentences in the long captions.

    Args:
        shards: Paths, folders, globs, brace ranges or URLs.
        out: Folder of the annotated shards; other than the input's.
        source: rules, spacy:PIPELINE, or auto: the best English spaCy pipeline that is installed, else rules.
        limit: Phrases per image, at most.
        block: Samples that are worked on and stored at a time.
        workers: Processes; 0 takes the cores there are.
    """
    from goldiclip.prepare.chunks import resolve
    from goldiclip.prepare.command import Machine, run_stages
    from goldiclip.prepare.stages import Phrases

    run_stages(shards, (Phrases(resolve(source), limit),), out, Machine(workers, block=block))


def boxes(
    shards: Shards,
    *,
    out: Path,
    detector: str = "owlv2",
    min_score: float = 0.1,
    max_overlap: float = 0.5,
    per_phrase: int = 3,
    per_image: int = 10,
    batch: int = 16,
    replace: bool = False,
    block: int = 512,
    workers: int = 0,
    device: str = "auto",
    ray: str = "",
) -> None:
    """Find each phrase in its image, with an open-vocabulary detector.

    Args:
        shards: Shards that `prepare phrases` has been over.
        out: Folder of the annotated shards; other than the input's.
        detector: owlv2 or grounding-dino; with another model of that kind after a colon, a folder or on the hub.
        min_score: Boxes below are not stored; training draws from 0.3 upward.
        max_overlap: Of two boxes of one phrase that overlap more, the weaker goes.
        per_phrase: Boxes per phrase, at most.
        per_image: Boxes per image, at most.
        batch: Images at once; halved as long as they do not fit into memory.
        replace: Also where regions are that no stage made.
        block: Samples that are worked on and stored at a time.
        workers: Processes; 0 takes one per GPU.
        device: auto, cpu, cuda, cuda:1 …; several parted by commas.
        ray: A Ray cluster's address, auto, or local for one on this machine.
    """
    from goldiclip.prepare.boxes import BoxLimits
    from goldiclip.prepare.command import Machine, run_stages
    from goldiclip.prepare.stages import Boxes

    stage = Boxes(detector, BoxLimits(min_score, max_overlap, per_phrase, per_image), batch, replace)
    run_stages(shards, (stage,), out, Machine(workers, device, ray, block))


def questions(
    shards: Shards,
    *,
    out: Path,
    writer: str = "microsoft/Phi-3.5-mini-instruct",
    batch: int = 128,
    replace: bool = False,
    block: int = 512,
    workers: int = 0,
    device: str = "auto",
    ray: str = "",
) -> None:
    """Make questions and answers from captions; what a caption does not support is rejected and counted.

    Args:
        shards: Paths, folders, globs, brace ranges or URLs.
        out: Folder of the annotated shards; other than the input's.
        writer: An instruct model, a folder or on the hub; http://HOST:PORT/v1#MODEL for a server; or templates.
        batch: Captions at once; halved as long as they do not fit into memory.
        replace: Also where questions are that no stage made.
        block: Samples that are worked on and stored at a time.
        workers: Processes; 0 takes one per GPU, or the cores there are when no model runs here.
        device: auto, cpu, cuda, cuda:1 …; several parted by commas.
        ray: A Ray cluster's address, auto, or local for one on this machine.
    """
    from goldiclip.prepare.command import Machine, run_stages
    from goldiclip.prepare.stages import Questions

    run_stages(shards, (Questions(writer, batch, replace),), out, Machine(workers, device, ray, block))


def annotate(
    shards: Shards,
    *,
    out: Path,
    stages: tuple[str, ...] = ("phrases", "boxes", "questions"),
    phrases: str = "auto",
    detector: str = "owlv2",
    writer: str = "microsoft/Phi-3.5-mini-instruct",
    detector_batch: int = 16,
    writer_batch: int = 128,
    replace: bool = False,
    near_duplicates: bool = False,
    decontaminate: tuple[str, ...] = (),
    block: int = 512,
    max_failed: float | None = None,
    workers: int = 0,
    device: str = "auto",
    ray: str = "",
) -> None:
    """Phrases, boxes, questions in one run: `goldiclip prepare annotate shards --out annotated`. Run again, it goes on.

    Args:
        shards: Paths, folders, globs, brace ranges or URLs.
        out: Folder of the annotated shards; other than the input's.
        stages: Which ones; each takes up what earlier runs left in the shards.
        phrases: rules, spacy:PIPELINE, or auto.
        detector: owlv2 or grounding-dino; with another model of that kind after a colon.
        writer: An instruct model; http://HOST:PORT/v1#MODEL for a server; or templates, which need no model.
        detector_batch: Images at once.
        writer_batch: Captions at once.
        replace: Also make anew what regions and questions no stage made.
        near_duplicates: Leave out images that look like an earlier one.
        decontaminate: Folders, shards or parquet files of evaluation images: what looks like one of them is left out.
        block: Samples that are worked on and stored at a time; a killed worker loses one such block.
        max_failed: Stop when a larger share of samples fails; 0.05 for bad samples, 0.2 for a server's answers.
        workers: Processes; 0 takes one per GPU, or the cores there are when no model runs here.
        device: auto, cpu, cuda, cuda:1 …; several parted by commas.
        ray: A Ray cluster's address, auto, or local for one on this machine.
    """
    from goldiclip.prepare.command import Machine, run_annotate
    from goldiclip.prepare.stages import stages_named

    chosen = stages_named(
        stages,
        phrases=phrases,
        detector=detector,
        writer=writer,
        detector_batch=detector_batch,
        writer_batch=writer_batch,
        replace=replace,
    )
    machine = Machine(workers, device, ray, block, max_failed)
    run_annotate(shards, chosen, out, machine, near_duplicates=near_duplicates, decontaminate=decontaminate)


def check(
    shards: Shards, *, fast: bool = False, workers: int = 0, examples: int = 3, max_bad_share: float = 0.01
) -> int:
    """Read annotated shards as training would: also what is wrong with phrases, boxes, questions, unfinished runs.

    Args:
        shards: Paths, folders, globs, brace ranges or URLs.
        fast: Read the headers of images only.
        workers: Processes; 0 takes the cores there are.
        examples: How many to name for each reason.
        max_bad_share: The share of bad samples that training is going to allow.
    """
    from goldiclip.prepare.check import check as examine

    return examine(shards, fast=fast, workers=workers, num_examples=examples, max_bad_share=max_bad_share)


def show(shards: Shards, *, out: Path = Path("annotations.png"), count: int = 8, position: int | None = None) -> None:
    """Draw a contact sheet: images with boxes and phrases, captions, questions and answers.

    Args:
        shards: Paths, folders, globs, brace ranges or URLs.
        out: Where to draw it.
        count: How many samples.
        position: The first of that many neighbours; evenly spread over all shards unless you say one.
    """
    from goldiclip.data.shards import Shards as Opened
    from goldiclip.prepare.show import draw_sheet

    print(draw_sheet(Opened(shards), out, count, position))


COMMANDS: dict[str, Callable[..., int | None]] = {
    "join": join,
    "phrases": phrases,
    "boxes": boxes,
    "questions": questions,
    "annotate": annotate,
    "check": check,
    "show": show,
}
