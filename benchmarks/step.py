"""A whole training step on one GPU: images a second, memory, and where the time goes, all variants in one run.

    python benchmarks/step.py                                  cc3m's step at 512 images: its parts, and variants of it
    python benchmarks/step.py --variants everything naive      some of them
    python benchmarks/step.py --sizes 128 512 2048             how cost grows with the batch
    python benchmarks/step.py --profile-top 30                 the kernels of one step, by what they do
    python benchmarks/step.py --device cpu --recipe tiny --batch 16     the same code at toy sizes

The real `Learner`, optimiser and update on synthetic batches (`training_step.py`). A variant is the step with one thing
changed; `naive` is what the paper's listing makes of the same modules: eager, every text padded to the context, every
conditioned embedding and every logit whole. The target row is what 60 % of the arithmetic limit would be.
"""

from __future__ import annotations

import json
import math
import statistics
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console
from rich.table import Table

from goldiclip import recipes
from goldiclip.config import Config, override, resolve
from goldiclip.kernels.switch import FUSED, without
from goldiclip.plan import flops_per_image
from step_parts import CEILING_TFLOPS, forget, measure_parts, profile, seconds, wait
from training_step import Step, written_down_plainly

LARGEST_BATCH = 512  # images held at once where a size is accumulated
TARGET = (1_150.0, 100.0)  # images a second in so many GiB
OTHERS = 12  # micro-batches, or ranks, of the rows that show growth


@dataclass(frozen=True)
class Variant:
    """One step: settings beside the recipe's, kernels that run plain, and whether it is the listing taken literally."""

    settings: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    is_naive: bool = False
    times: float = 1.0  # the batch, of that which was asked for
    held: float = 1.0  # the images at once, of the same
    ranks: int = 1  # that bring texts, of which one is here

    def like(self, other: Variant) -> bool:
        """Whether both are the same learner, on other batches."""
        return replace(self, times=1, held=1, ranks=1) == replace(other, times=1, held=1, ranks=1)


# The first rows say most: a session that runs out of time has them.
VARIANTS: dict[str, Variant] = {
    "everything": Variant(),
    f"{OTHERS} × accumulated": Variant(times=OTHERS),
    f"{OTHERS} ranks": Variant(ranks=OTHERS),
    "naive": Variant(settings=("run.compile=False",), plain=FUSED, is_naive=True, times=0.25),
    "negatives: all": Variant(settings=("objective.retrieval.negatives=all",)),
    "no kernels": Variant(plain=FUSED),
    "eager": Variant(settings=("run.compile=False",)),
    "fp8": Variant(settings=("run.fp8=True",)),
    "retrieval alone": Variant(
        settings=tuple(f"objective.weights.{term}=0" for term in ("cap", "ref", "grd", "vqa", "sd"))
    ),
    **{f"plain {name}": Variant(plain=(name,)) for name in FUSED},
    "checkpointed": Variant(settings=("run.checkpoint_activations=True",)),
    "ViT-S": Variant(settings=("model.vision.name=vit_small_patch16_224",)),
    "ViT-L": Variant(settings=("model.vision.name=vit_large_patch16_224",), held=0.5),
}


# --- measuring --------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    name: str
    images: int
    milliseconds: float = math.nan
    gigabytes: float = math.nan
    gflops_per_image: float = math.nan
    preparing_seconds: float = math.nan  # building, compiling, first steps
    problem: str = ""

    @property
    def speed(self) -> float:
        return 1e3 * self.images / self.milliseconds

    @property
    def teraflops(self) -> float:
        return self.speed * self.gflops_per_image / 1e3


@dataclass
class Bench:
    """Measures one variant after the other; a learner is kept for as long as the next one is the same."""

    config: Config
    device: torch.device
    rounds: int
    step: Step | None = None
    variant: Variant | None = None

    def measure(self, name: str, variant: Variant) -> Row:
        """A row of the table; what goes wrong is told there, and the next variant has its turn."""
        row = Row(name, max(1, int(self.config.run.batch * variant.times)))
        try:
            self.fill(row, variant)
        except torch.cuda.OutOfMemoryError:
            row.problem = "does not fit"
        except Exception as error:
            row.problem = f"{type(error).__name__}: {error}".splitlines()[0]
            traceback.print_exc()
        if row.problem:
            self.step = None
        return row

    def fill(self, row: Row, variant: Variant) -> None:
        """The median over rounds of a few steps each."""
        here = resolve(override(self.config, variant.settings))
        seen = replace(here, run=replace(here.run, batch=row.images * variant.ranks, micro_batch=0))
        row.gflops_per_image = flops_per_image(seen) / 1e9
        started = time.perf_counter()
        with without(*variant.plain) if variant.plain else ExitStack(), written_down_plainly(variant.is_naive):
            step = self.prepared(here, variant, row.images)
            for _ in range(len(step.batches) + 1):
                step()
            wait(self.device)
            row.preparing_seconds = time.perf_counter() - started
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            turns = len(step.batches)
            times = [seconds(lambda: [step() for _ in range(turns)], self.device) for _ in range(self.rounds)]
            row.milliseconds = 1e3 * statistics.median(times) / turns
            if self.device.type == "cuda":
                row.gigabytes = torch.cuda.max_memory_allocated() / 2**30

    def prepared(self, config: Config, variant: Variant, images: int) -> Step:
        held = int(self.config.run.batch * variant.held)
        micro_batch = held if images > held else 0
        if self.step is None or self.variant is None or not self.variant.like(variant):
            self.step = None
            forget()
            made = replace(config, run=replace(config.run, batch=images, micro_batch=micro_batch))
            self.step, self.variant = Step.make(made, self.device, pads=variant.is_naive), variant
        self.step.draw(images, micro_batch, variant.ranks, pads=variant.is_naive)
        return self.step


# --- tables -----------------------------------------------------------------------------------------------------------


def show(rows: Sequence[Row], parts: Sequence[dict[str, float | str]], name: str) -> None:
    console = Console(width=150)
    if parts:
        console.print(table_of_parts(parts))
    if not rows:
        return
    table, limit = Table(title=f"a whole step on {name}"), 1e3 * CEILING_TFLOPS / rows[0].gflops_per_image
    for head in ("variant", "batch", "ms", "images/s", "× first", "TFLOP/s", "% of ceiling", "GiB", "made in, s", ""):
        table.add_column(head, justify="left" if head in ("variant", "") else "right")
    for row in rows:
        share, ratio = 100 * row.teraflops / CEILING_TFLOPS, row.speed / rows[0].speed
        numbers = [f"{number:.0f}" for number in (row.milliseconds, row.speed, row.teraflops, share, row.gigabytes)]
        numbers.insert(2, f"{ratio:.2f}")
        table.add_row(row.name, f"{row.images:,}", *numbers, f"{row.preparing_seconds:.0f}", row.problem)
    table.add_section()
    speed, room = TARGET
    table.add_row("target, cc3m on an H200", "≥ 512", "", f"{speed:,.0f}", "", "", "60", f"≤ {room:.0f}", "", "")
    table.add_row("arithmetic limit of the first", "", "", f"{limit:,.0f}", "", f"{CEILING_TFLOPS:.0f}", "100")
    console.print(table)


def table_of_parts(parts: Sequence[dict[str, float | str]]) -> Table:
    """With what is left once arithmetic and traffic have had the least they need on an H200."""
    table, columns = Table(title="its parts, each by itself, in ms"), ("milliseconds", "arithmetic", "traffic")
    for head in ("part", "took", "arithmetic", "traffic between", "left"):
        table.add_column(head, justify="left" if head == "part" else "right")
    whole = {"part": "sum"} | {key: sum(float(part[key]) for part in parts) for key in columns}
    for part in [*parts, whole]:
        took, arithmetic, traffic = (float(part[key]) for key in columns)
        left = took - arithmetic - traffic
        table.add_row(str(part["part"]), *(f"{number:.1f}" for number in (took, arithmetic, traffic, left)))
    return table


def chosen(variants: Sequence[str], sizes: Sequence[int], batch: int) -> dict[str, Variant]:
    if unknown := set(variants) - set(VARIANTS):
        raise SystemExit(f"no variant {', '.join(sorted(unknown))}; there are {', '.join(VARIANTS)}")
    found = {name: VARIANTS[name] for name in variants or (() if sizes else VARIANTS)}
    for size in sizes:
        found[f"batch {size:,}"] = Variant(times=size / batch, held=min(size, LARGEST_BATCH) / batch)
    return found


def main(
    recipe: str = "cc3m",
    batch: int = 512,
    variants: tuple[str, ...] = (),
    sizes: tuple[int, ...] = (),
    device: str = "",
    rounds: int = 3,
    parts: bool = True,
    profile_top: int = 0,
    seconds: float = 3_000.0,
    json_file: Annotated[Path | None, tyro.conf.arg(name="json")] = None,
) -> None:
    """Measure steps.

    Args:
        recipe: Whose step.
        batch: Images in it, unless a variant says otherwise.
        variants: Which; all, unless you name some or name sizes.
        sizes: Batches to measure besides; large ones are accumulated.
        device: Where; a GPU if there is one.
        rounds: How often each is timed.
        parts: Time the parts of a step, too.
        profile_top: List so many of the step's kernels.
        seconds: Begin nothing after this long.
        json_file: Write the numbers here as well.
    """
    place, started = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")), time.monotonic()
    config = recipes.recipe(recipe)
    on_gpu = place.type == "cuda"
    run = replace(config.run, batch=batch, precision="bf16", compile=on_gpu)
    config = resolve(replace(config, run=run))
    wanted = chosen(variants, sizes, batch)
    rows, timed, bench = [], [], Bench(config, place, rounds)
    if parts:
        try:
            timed = measure_parts(config, place)
        except Exception:  # the whole steps say more
            traceback.print_exc()
    for name, variant in wanted.items():
        if time.monotonic() - started > seconds:
            print(f"no time left for {name}", flush=True)
            continue
        rows.append(bench.measure(name, variant))
        print(f"{time.monotonic() - started:4.0f} s  {rows[-1]}", flush=True)
    bench.step = None
    forget()
    if profile_top:
        profile(config, place, profile_top)
    name = torch.cuda.get_device_name() if on_gpu else "this CPU"
    show(rows, timed, name)
    if json_file is not None:
        found = {
            "device": name,
            "parts": timed,
            "rows": [asdict(row) | {"images_per_second": row.speed} for row in rows],
        }
        json_file.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    tyro.cli(main)
