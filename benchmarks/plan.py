"""The plan beside real steps: seconds, gigabytes, and how far off `goldiclip plan` is, in percent.

    python benchmarks/plan.py --out measured.json      every row on the GPU there is
    python benchmarks/plan.py --rows tiny              one row; on a CPU its seconds alone
    python benchmarks/plan.py --fit measured.json      the constants of src/goldiclip/plan/calibration.py that fit best

Rows marked "check" are left out of the fit: their error is what a recipe of your own can expect. Memory is the most
that torch had allocated, plus what the driver and the libraries hold besides.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import math
import statistics
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from goldiclip import recipes
from goldiclip.config import Config, override, resolve
from goldiclip.plan import Estimate, device_named, estimate
from goldiclip.plan.calibration import H200, Calibration
from goldiclip.train.dry import device_here
from training_step import Step

GPU = ("run.precision=bf16", "run.compile=True")
SMALL = ("model.vision.name=vit_small_patch16_224",)
LARGE = ("model.vision.name=vit_large_patch16_224",)
# 192 wide, under the whole vocabulary: towers so small that what surrounds them decides
NARROW = (
    *("data.vocabulary=clip", "data.captions=4", "data.max_sentences=3", "objective.distill.prototypes=1024"),
    *("model.vision.patch_size=16", "model.vision.width=192", "model.vision.heads=3"),
    *("model.text.width=192", "model.text.depth=3", "model.text.heads=3"),
    *("model.embedding=192", "model.pooling_heads=3", "model.decoder_heads=3"),
    *GPU,
)
# name: recipe, settings, whether the row only checks the fit
ROWS: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "cc3m, 256 of 1,024": ("cc3m", ("run.batch=1024", "run.micro_batch=256"), False),
    "cc3m, 64 of 1,024": ("cc3m", ("run.batch=1024", "run.micro_batch=64"), False),
    "cc3m, 128 of 1,024": ("cc3m", ("run.batch=1024", "run.micro_batch=128"), True),
    "cc3m, 512 of 1,024": ("cc3m", ("run.batch=1024", "run.micro_batch=512"), False),
    "cc3m, 256": ("cc3m", ("run.batch=256",), False),
    "cc3m, 512": ("cc3m", ("run.batch=512",), True),
    "cc3m/ca, 1,024": ("cc3m/ca", ("run.batch=1024",), False),
    "cc3m/un, 512": ("cc3m/un", ("run.batch=512",), False),
    "cc3m/flair, 512 of 2,560": ("cc3m/flair", ("run.batch=2560", "run.micro_batch=512"), True),
    "ViT-S, 512 of 1,024": ("cc3m", ("run.batch=1024", "run.micro_batch=512", *SMALL), False),
    "192 wide, 128": ("demo", ("run.batch=128", *NARROW), False),
    "192 wide, 1,024": ("demo", ("run.batch=1024", "data.views.num_local=6", *NARROW), True),
    "cc3m, eager, 256 of 512": ("cc3m", ("run.batch=512", "run.micro_batch=256", "run.compile=False"), False),
    "cc3m, checkpointed, 512": ("cc3m", ("run.batch=512", "run.checkpoint_activations=True"), True),
    "ViT-L, eager, 128 of 256": (
        "cc3m",
        ("run.batch=256", "run.micro_batch=128", "run.compile=False", *LARGE),
        True,
    ),
    "tiny": ("tiny", ("run.batch=32", "run.micro_batch=16"), True),
}


@dataclass
class Row:
    name: str
    seconds: float = math.nan  # of a step
    gigabytes: float = math.nan
    reserved: float = math.nan  # what torch's allocator had taken for it
    first_seconds: float = math.nan  # of the first step, compilation included
    problem: str = ""


def config_of(name: str) -> Config:
    recipe, words, _ = ROWS[name]
    return resolve(override(recipes.recipe(recipe), words))


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(name: str, device: torch.device, steps: int) -> Row:
    """The median of some steps after the first few."""
    config, row, on_gpu = config_of(name), Row(name), device.type == "cuda"
    config = config if on_gpu else replace(config, run=replace(config.run, compile=False))
    try:
        step = Step.make(config, device)
        row.first_seconds = seconds_of(step, 1, device)
        seconds_of(step, 3, device)
        if on_gpu:
            torch.cuda.reset_peak_memory_stats()
        row.seconds = statistics.median(seconds_of(step, 1, device) for _ in range(steps))
        if on_gpu:
            row.gigabytes = (torch.cuda.max_memory_allocated() + beside_torch()) / 1e9
            row.reserved = (torch.cuda.max_memory_reserved() + beside_torch()) / 1e9
    except torch.cuda.OutOfMemoryError:
        row.problem = "does not fit"
    return row


def seconds_of(step: Step, count: int, device: torch.device) -> float:
    started = time.perf_counter()
    for _ in range(count):
        step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / count


def beside_torch() -> int:
    """Bytes of the device that are neither free nor torch's: CUDA's context and its libraries."""
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def forget() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.compiler.reset()
        torch.cuda.empty_cache()


# --- beside the plan --------------------------------------------------------------------------------------------------


def planned(name: str, device_name: str, calibration: Calibration = H200) -> Estimate:
    """What `goldiclip plan` says of a row; of a device that is not in its table, what it measures of this machine."""
    config = config_of(name)
    if device_name == "cpu":
        config = replace(config, run=replace(config.run, compile=False))
        return estimate(config, device_here(torch.device("cpu")), calibration=calibration)
    return estimate(config, device_named(device_name), calibration=calibration)


def show(rows: list[Row], device_name: str, calibration: Calibration = H200, title: str = "") -> None:
    table = Table(title=title or f"real steps beside the plan, on {device_name}")
    heads = ("row", "ms/step", "planned", "off", "images/s", "GB", "planned", "off", "reserved", "first step, s", "")
    for head in heads:
        table.add_column(head, justify="left" if head in ("row", "") else "right")
    for row in rows:
        found, batch = planned(row.name, device_name, calibration), config_of(row.name).run.batch
        gigabytes = sum(found.gigabytes.values())
        table.add_row(
            row.name,
            number(1e3 * row.seconds),
            number(1e3 * found.step_seconds),
            off(found.step_seconds, row.seconds),
            number(batch / row.seconds),
            number(row.gigabytes),
            number(gigabytes),
            off(gigabytes, row.gigabytes),
            number(row.reserved),
            number(row.first_seconds),
            row.problem or ("check" if ROWS[row.name][2] else ""),
        )
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def number(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def off(plan: float, real: float) -> str:
    return "–" if math.isnan(real) else f"{plan / real - 1:+.0%}"


# --- fitting ----------------------------------------------------------------------------------------------------------


def fitted(rows: list[Row], device_name: str, pull: float = 0.03) -> Calibration:
    """The constants with the least squared relative errors, drawn a little to what they were where rows are silent."""
    from scipy.optimize import least_squares

    names = [field.name for field in dataclasses.fields(Calibration)]
    before = np.log([getattr(H200, name) for name in names])
    used = [row for row in rows if not ROWS[row.name][2] and not row.problem]

    def errors(logs: np.ndarray) -> np.ndarray:
        calibration = Calibration(**dict(zip(names, np.exp(logs).tolist())))
        found = [planned(row.name, device_name, calibration) for row in used]
        seconds = [math.log(one.step_seconds / row.seconds) for one, row in zip(found, used)]
        sizes = [
            math.log(sum(one.gigabytes.values()) / row.gigabytes)
            for one, row in zip(found, used)
            if not math.isnan(row.gigabytes)
        ]
        return np.concatenate([seconds, sizes, pull * (logs - before)])

    best = least_squares(errors, before, bounds=(before - 3, before + 3), diff_step=1e-3)
    return Calibration(**{name: float(f"{value:.3g}") for name, value in zip(names, np.exp(best.x).tolist())})


def fit(path: Path) -> None:
    """Print the constants that fit a measured table best, and the table beside them."""
    found = json.loads(path.read_text())
    rows = [Row(**row) for row in found["rows"]]
    calibration = fitted(rows, found["device"])
    show(rows, found["device"], calibration, "with the constants fitted to it")
    print("H200 = Calibration(")
    for field in dataclasses.fields(Calibration):
        print(f"    {field.name}={getattr(calibration, field.name):g},")
    print(")")


def main(
    rows: tuple[str, ...] = (), steps: int = 5, seconds: float = 420.0, out: Path | None = None, fit: Path | None = None
) -> None:
    """Measure rows beside the plan, or fit the plan to what was measured.

    Args:
        rows: Which, by the beginning of their names; all unless you say otherwise.
        steps: Timed steps of each row.
        seconds: Begin no row after this long; what was left out is named.
        out: Write what was measured here.
        fit: Fit the plan's constants to such a file instead.
    """
    if fit is not None:
        fit_to(fit)
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    place = device_here(device).name if device.type == "cuda" else "cpu"
    chosen = [name for name in ROWS if any(name.startswith(row) for row in rows or ("",))]
    started, found = time.monotonic(), []
    for name in chosen:
        if time.monotonic() - started > seconds:
            print(f"no time left for {name}", flush=True)
            continue
        found.append(measure(name, device, steps))
        forget()
        print(f"{time.monotonic() - started:4.0f} s  {found[-1]}", flush=True)
        if out is not None:
            written = {"device": place, "rows": [dataclasses.asdict(row) for row in found]}
            out.write_text(json.dumps(written, indent=1))
    show(found, place)


fit_to = fit

if __name__ == "__main__":
    tyro.cli(main)
