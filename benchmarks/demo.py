"""The demo over several seeds: what it reaches beside chance, the best constant answer and the contrastive baseline.

    python benchmarks/demo.py                            three seeds of the default demo on two cores each, no GPU
    python benchmarks/demo.py --minutes 2 --gpu          one after the other on the GPU there is
    python benchmarks/demo.py --read runs/seeds          the table of demos that are there

Demos on cores run side by side, each bound to cores of its own, as many as the machine has room for. A number is the
mean over the seeds; in brackets are the lowest and the highest end of their 95 % intervals. `holds` counts the seeds in
which even the lower end is above what has to be beaten.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import tyro
from rich.console import Console
from rich.table import Table

from goldiclip.evaluate.results import Results, Row, read_results

Interval = tuple[float, float, float]  # value, low, high
RECALL = "text_to_image/recall@1"


@dataclass(frozen=True)
class Finished:
    """One demo: both models' results, and what the decoder said."""

    ours: Results
    baseline: Results
    spoken: dict[str, list[float]]
    seconds: float

    @classmethod
    def read(cls, out: Path) -> Finished:
        spoken = json.loads((out / "run/evaluation/spoken.json").read_text())
        seconds = (out / "seconds.txt").read_text() if (out / "seconds.txt").is_file() else "nan"
        return cls(read_results(out / "run"), read_results(out / "baseline"), spoken, float(seconds))


def interval(results: Results, name: str, metric: str, mode: str) -> Interval:
    row = next(row for row in results.rows if (row.set, row.metric, row.mode) == (name, metric, mode))
    return row.value, *_bounds(row)


def _bounds(row: Row) -> tuple[float, float]:
    return (row.low if row.low is not None else math.nan), (row.high if row.high is not None else math.nan)


def count(results: Results, name: str, what: str) -> int:
    return next(row.counts[what] for row in results.rows if row.set == name)


# Of every line of the table: what is measured, and what it has to beat.
Line = tuple[str, Callable[[Finished], Interval], Callable[[Finished], float], str]


def lines(first: Finished) -> Iterator[Line]:
    for title, name in (("short captions", "scenes_short"), ("sentences", "scenes_fine_grained")):
        for mode in ("tc", "ta"):
            yield (
                f"{title}: recall@1, {mode}",
                lambda one, name=name, mode=mode: interval(one.ours, name, RECALL, mode),  # type: ignore[misc]
                lambda one, name=name: 20 / count(one.ours, name, "images"),  # type: ignore[misc]
                "20 × chance",
            )
        yield (
            f"{title}: recall@1, tc",
            lambda one, name=name: interval(one.ours, name, RECALL, "tc"),  # type: ignore[misc]
            lambda one, name=name: interval(one.baseline, name, RECALL, "tc")[0],  # type: ignore[misc]
            "contrastive alone",
        )
    yield (
        "sentences: recall@1, tc",
        lambda one: interval(one.ours, "scenes_fine_grained", RECALL, "tc"),
        lambda one: interval(one.ours, "scenes_fine_grained", RECALL, "ta")[0],
        "ta",
    )
    yield (
        "segmentation: mean IoU",
        lambda one: interval(one.ours, "scenes_segmentation", "mean_iou", "value"),
        lambda one: 1 / (2 * count(one.ours, "scenes_segmentation", "classes") - 1),
        "an even guess",
    )
    yield (
        "segmentation: mean IoU",
        lambda one: interval(one.ours, "scenes_segmentation", "mean_iou", "value"),
        lambda one: interval(one.baseline, "scenes_segmentation", "mean_iou", "value")[0],
        "contrastive alone",
    )
    yield (
        "classification: top-1, tc",
        lambda one: interval(one.ours, "scenes_classification", "top1", "tc"),
        lambda one: 1 / count(one.ours, "scenes_classification", "classes"),
        "chance",
    )
    yield "captions: every word true", lambda one: _spoken(one, "caption/right"), lambda one: 0.5, "half"
    yield "boxes: mean IoU", lambda one: _spoken(one, "locate/mean_iou"), lambda one: 0.5, "0.5"
    kinds = sorted({name.split("/")[1] for name in first.spoken if name.count("/") == 2})
    for kind in ("", *(f"{kind}/" for kind in kinds)):
        yield (
            f"questions, {kind.rstrip('/') or 'all'}: right",
            lambda one, kind=kind: _spoken(one, f"ask/{kind}accuracy"),  # type: ignore[misc]
            lambda one, kind=kind: one.spoken[f"ask/{kind}majority"][0],  # type: ignore[misc]
            "best constant answer",
        )


def _spoken(one: Finished, name: str) -> Interval:
    value, low, high = one.spoken[name]
    return value, low, high


def table(found: Sequence[Finished], title: str) -> Table:
    shown = Table(title=title, title_justify="left", box=None)
    for heading in ("", "%", "to beat", "", "holds"):
        shown.add_column(heading, justify="left" if not heading else "right")
    for name, value, bar, what in lines(found[0]):
        values, bars = [value(one) for one in found], [bar(one) for one in found]
        low, high = min(low for _, low, _ in values), max(high for _, _, high in values)
        holds = sum(low > least for (_, low, _), least in zip(values, bars))
        number = f"{100 * mean(one for one, _, _ in values):.1f} ({100 * low:.0f}–{100 * high:.0f})"
        shown.add_row(name, number, f"{100 * mean(bars):.1f}", what, f"{holds}/{len(found)}")
    return shown


# --- running --------------------------------------------------------------------------------------------------------


def run_all(out: Path, seeds: Sequence[int], minutes: float, cores: int, gpu: bool) -> None:
    """Start demos while there are cores for them, and wait for all."""
    mine = sorted(os.sched_getaffinity(0))
    places = [mine] if gpu else [mine[i : i + cores] for i in range(0, len(mine) - cores + 1, cores)]
    waiting, running = list(seeds), dict[int, tuple[subprocess.Popen[bytes], int, float]]()
    while waiting or running:
        for place in range(len(places)):
            if place not in running and waiting:
                seed = waiting.pop(0)
                running[place] = (start(out / str(seed), seed, minutes, places[place], gpu), seed, time.monotonic())
        time.sleep(0.2)
        for place, (demo, seed, began) in list(running.items()):
            if demo.poll() is not None:
                del running[place]
                (out / str(seed) / "seconds.txt").write_text(f"{time.monotonic() - began:.0f}")
                print(f"seed {seed}: {'done' if demo.returncode == 0 else 'FAILED'}, {out / str(seed)}.log", flush=True)


def start(out: Path, seed: int, minutes: float, cores: Sequence[int], gpu: bool) -> subprocess.Popen[bytes]:
    out.parent.mkdir(parents=True, exist_ok=True)
    words = ["demo", "--minutes", str(minutes), "--seed", str(seed), "--out", str(out)]
    environment = os.environ | ({} if gpu else {"CUDA_VISIBLE_DEVICES": ""})
    with Path(f"{out}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "goldiclip.cli", *words],
            stdout=log,
            stderr=log,
            env=environment,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )


def main(
    minutes: float = 8.0,
    seeds: tuple[int, ...] = (0, 1, 2),
    cores: int = 2,
    gpu: bool = False,
    out: Path = Path("runs/seeds"),
    read: Path | None = None,
) -> None:
    """Run and show, or show alone.

    Args:
        minutes: Of each demo.
        seeds: One demo each.
        cores: Of each demo, where there is no GPU.
        gpu: Use the GPU, and all cores.
        out: A folder; each seed gets one of its own in it.
        read: Show the demos of this folder instead.
    """
    if read is None:
        run_all(out, seeds, minutes, cores, gpu)
    folders = sorted(path.parent.parent.parent for path in (read or out).glob("*/run/evaluation/spoken.json"))
    found = [Finished.read(folder) for folder in folders]
    if not found:
        raise SystemExit(f"{read or out}: no finished demo in it")
    budget = json.loads((folders[0] / "demo.json").read_text())
    slowest = max(one.seconds for one in found)
    title = (
        f"{len(found)} seeds, {budget['minutes']:g} minutes on {budget['device']}: {budget['scenes']:,} scenes, "
        f"{budget['samples']:,} samples ({budget['baseline_samples']:,} of the baseline), {slowest:.0f} s at most"
    )
    Console(width=120).print(table(found, title))


if __name__ == "__main__":
    tyro.cli(main)
