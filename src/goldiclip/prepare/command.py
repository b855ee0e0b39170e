"""What the commands under `goldiclip prepare` do: check what was asked, run it, say what came of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from goldiclip.config import ConfigError
from goldiclip.data.shards import Shards
from goldiclip.prepare.blocks import FOLDER, LEFT_OUT, Job, disk_full
from goldiclip.prepare.exclusion import exclude
from goldiclip.prepare.images import units
from goldiclip.prepare.join import JoinLimits, JoinReport, join, open_captions
from goldiclip.prepare.pipeline import MAX_SHARES, Report, annotate
from goldiclip.prepare.stages import Stage
from goldiclip.prepare.store import CaptionStore
from goldiclip.prepare.tables import By, find_columns, tables_in

# Tables, the column that names the image, by what it names it, NAME=SOURCE of the columns with captions.
Tables = tuple[Sequence[Path], str, "By | str", Sequence[str]]


MAX_PROBLEMS = 10  # of archives, that are named


@dataclass(frozen=True)
class Machine:
    """Where stages run, and how."""

    workers: int = 0
    device: str = "auto"
    ray: str = ""
    block: int = 512
    max_failed: float | None = None

    @property
    def max_shares(self) -> Mapping[str, float]:
        return MAX_SHARES if self.max_failed is None else dict.fromkeys(MAX_SHARES, self.max_failed)

    def devices(self) -> tuple[str, ...]:
        """Every GPU, or the CPU, unless some are named."""
        if self.device != "auto":
            return tuple(_device(name.strip()) for name in self.device.split(","))
        return tuple(f"cuda:{number}" for number in range(torch.cuda.device_count())) or ("cpu",)

    def processes(self, stages: Sequence[Stage]) -> int:
        """One per GPU for a model; for a model on the CPU one, which takes all cores; one per core without models."""
        if self.workers:
            return self.workers
        if any(stage.needs_device for stage in stages):
            return len(self.devices())
        return len(os.sched_getaffinity(0))


def _device(name: str) -> str:
    try:
        found = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"--device {name}: expected auto, cpu, cuda, cuda:1 …, parted by commas") from error
    if found.type == "cuda" and (found.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"--device {name}: torch sees {torch.cuda.device_count()} CUDA devices; `goldiclip doctor`")
    return name


def require(option: str, value: float | None, least: float, most: float = float("inf")) -> None:
    if value is not None and not least <= value <= most:
        allowed = f"{least:g} or more" if most == float("inf") else f"{least:g} to {most:g}"
        raise ConfigError(f"{option} is {value:g}; expected {allowed}")


# --- annotation -----------------------------------------------------------------------------------------------------


def run_stages(paths: Sequence[str], stages: Sequence[Stage], out: Path, machine: Machine) -> None:
    """Some stages over some shards; what an earlier `annotate` left out stays out."""
    require("--workers", machine.workers, 0)
    require("--block", machine.block, 1)
    require("--max-failed", machine.max_failed, 0, 1)
    shards = Shards(paths)
    for path, reason, count in islice(shards.problems(), MAX_PROBLEMS):
        print(f"{path}: {count:,} × {reason}; `goldiclip shards check` says more", file=sys.stderr)
    report = annotate(
        shards,
        Job(out, tuple(stages), machine.block),
        workers=0 if machine.ray else machine.processes(stages),
        devices=machine.devices(),
        ray=machine.ray,
        max_shares=machine.max_shares,
    )
    show_report(report, out)


def run_annotate(
    paths: Sequence[str],
    stages: Sequence[Stage],
    out: Path,
    machine: Machine,
    *,
    near_duplicates: bool,
    decontaminate: Sequence[str],
) -> None:
    """`goldiclip prepare annotate`: first what to leave out, then all stages."""
    require("--workers", machine.workers, 0)
    try:
        excluded = exclude(
            Shards(paths), out, near_duplicates=near_duplicates, evaluation=decontaminate, workers=machine.workers
        )
    except OSError as error:
        raise disk_full(error, out) or error from error
    for reason, count in excluded.items():
        print(f"leaving out {count:,} × {reason}; {out / FOLDER / 'excluded.jsonl'} says of what")
    run_stages(paths, stages, out, machine)


def show_report(report: Report, out: Path, console: Console | None = None) -> None:
    """What was made, then what was not, by reason."""
    console = console or Console(highlight=False)
    skipped = f", {report.skipped:,} of them done before" if report.skipped else ""
    console.print(
        f"{report.samples:,} samples in {report.shards:,} shards of {escape(str(out))}{skipped}", soft_wrap=True
    )
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right")
    for reason, count in sorted(report.counts.items(), key=lambda item: (item[0].startswith(LEFT_OUT), -item[1])):
        if count:
            table.add_row(f"{count:,}", escape(reason), f"{count / max(report.samples, 1):.2f} per sample")
    console.print(table)


# --- joining --------------------------------------------------------------------------------------------------------


def run_join(
    images: Sequence[str],
    tables: Tables,
    out: Path,
    limits: JoinLimits,
    *,
    keep_unmatched: bool,
    per_shard: int,
    workers: int,
) -> None:
    """`goldiclip prepare join`."""
    require("--per-shard", per_shard, 1)
    require("--workers", workers, 0)
    for name, share in vars(limits).items():
        require(f"--max-{name}", share, 0, 1)
    found = units(images, per_shard)
    try:
        store = _store(tables, out)
        report = join(found, store, out, limits=limits, keep_unmatched=keep_unmatched, workers=workers)
    except OSError as error:
        raise disk_full(error, out) or error from error
    show_join(report, store, out)


def _store(tables: Tables, out: Path) -> CaptionStore | None:
    paths, key, by, words = tables
    if not paths:
        if key or words:
            raise ConfigError("--key-column and --caption-columns are about a table: say which with --captions")
        return None
    columns = dict(_column(word) for word in words)
    files = tables_in(paths)
    return open_captions(files, find_columns(files[0], key, by, columns), out / FOLDER / "captions")  # type: ignore[arg-type]


def _column(word: str) -> tuple[str, str]:
    name, sign, source = word.rpartition("=")
    if not sign:
        raise ConfigError(f"--caption-columns {word}: expected NAME=SOURCE, such as {word}=raw")
    return name, source


def show_join(report: JoinReport, store: CaptionStore | None, out: Path, console: Console | None = None) -> None:
    """Matched, missing, duplicate, absent and suspicious, each with its share; nothing of a kind is said too."""
    console = console or Console(highlight=False)
    before = f", {report.skipped:,} of them done before" if report.skipped else ""
    console.print(
        f"{report.matched:,} samples in {report.shards:,} shards of {escape(str(out))}{before}", soft_wrap=True
    )
    always = dict.fromkeys(("matched", "image without captions", f"{LEFT_OUT}duplicate key", "repeated caption"), 0)
    counts = always | dict(report.counts.most_common())
    counts |= {} if any("suspicious" in reason for reason in counts) else {"suspicious": 0}
    rows = [(count, report.images, f"{what} (of images)") for what, count in counts.items() if what != "images"]
    if store is not None:
        said = {"row no image asked for": report.unused, **store.about["counts"]}
        said |= {f"NaN or empty in {column!r}": count for column, count in report.absent.items()}
        rows += [(count, report.rows, f"{what} (of rows)") for what, count in said.items()]
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in range(2):
        table.add_column(justify="right")
    for count, total, what in rows:
        table.add_row(f"{count:,}", f"{count / max(total, 1):.2%}", escape(what))
    console.print(table)
    if store is not None:
        console.print(
            f"{report.images:,} images, {report.rows:,} rows of captions, joined by {store.about['by']}", soft_wrap=True
        )
