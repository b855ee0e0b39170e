"""Everything that only a GPU can say, in ten minutes: kernels' tests, steps, a real run, its curve, scoring.

    python benchmarks/gpu_session.py OUT                     all of it; the short table comes last
    python benchmarks/gpu_session.py OUT --only step run     some of it
    python benchmarks/gpu_session.py OUT --rest              what a second ten minutes are for: sizes, and more variants
    python benchmarks/gpu_session.py OUT --tiny              the same commands at toy sizes, to see that they run

Each part is a process of its own with its own limit: one that fails or hangs costs the others nothing. What a part says
goes to OUT/PART.txt; numbers to OUT/*.json and OUT/session.json.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import tyro

from goldiclip.train.log import read_log

HERE = Path(__file__).resolve().parent
FIRST = ("everything", "12 × accumulated", "12 ranks", "naive", "negatives: all", "no kernels", "eager", "fp8")
GOLDICLIP = ("-c", "from goldiclip.cli import main; raise SystemExit(main())")
STEPS = 200  # of the curve
Fact = tuple[str, str, str]  # what, found, wanted


@dataclass(frozen=True)
class Part:
    """Commands that end within so many seconds, and what is read off the files they leave."""

    seconds: float
    commands: tuple[tuple[str, ...], ...]
    read: Callable[[Path], Iterator[Fact]]


def parts(out: Path, tiny: bool, rest: bool) -> dict[str, Part]:
    scenes = str(out / "scenes")
    shards = f"data.train={scenes}/train/*.tar"
    sized = ("--device", "cpu", "--recipe", "tiny", "--batch", "8", "--rounds", "1") if tiny else ()
    step = (str(HERE / "step.py"), *sized, "--json", str(out / "step.json"))
    if rest:
        sizes = ("8", "16") if tiny else ("128", "256", "1024", "2048", "6400")
        more = (str(HERE / "step.py"), *sized, "--no-parts", "--json")
        others = ("plain scoring", "plain text_attention", "plain view_attention", "ViT-S", "ViT-L", "checkpointed")
        return {
            "sizes": Part(290, ((*more, str(out / "sizes.json"), "--sizes", *sizes),), read_sizes),
            "variants": Part(290, ((*more, str(out / "more.json"), "--variants", *others),), read_variants),
        }
    recipe, batch = (("tiny", "tiny"), (8, 8)) if tiny else (("cc3m", "demo_gpu"), (512, 256))
    real = recipe[0], f"run.batch={batch[0]}", f"run.samples={batch[0] * (5 if tiny else 40)}"
    curve = recipe[1], f"run.batch={batch[1]}", f"run.samples={batch[1] * (10 if tiny else STEPS)}"
    fast = (*curve, "run.precision=bf16", "run.compile=True")
    slow = (*curve, "run.precision=fp32", "run.compile=False")
    workers = f"data.workers={2 if tiny else 15}"
    kept = "run.sinks=", "run.save_every_minutes=0", "optim.warmup_steps=20", workers
    drawn = ("120", "0", "64") if tiny else ("6000", "0", "224")
    draw = ("scenes", scenes, "--count", drawn[0], "--held-out", drawn[1], "--size", drawn[2])
    tests = (
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "gpu", "-k", "not compiled"),
        *("tests/kernels", "tests/model/test_layers.py"),
    )
    return {
        "tests": Part(110, (tests,), read_tests),
        "step": Part(240, ((*step, "--seconds", "190", "--variants", *FIRST, "--profile-top", "25"),), read_steps),
        "run": Part(
            120,
            ((*GOLDICLIP, *draw), (*GOLDICLIP, "train", *real, shards, *kept, "--out", str(out / "real"))),
            read_run,
        ),
        "curve": Part(
            90,
            (
                (*GOLDICLIP, "train", *fast, shards, *kept, "--out", str(out / "fast")),
                (*GOLDICLIP, "train", *slow, shards, *kept, "--out", str(out / "slow")),
            ),
            read_curve,
        ),
        "scoring": Part(40, ((str(HERE / "scoring.py"), *(("--device", "cpu") if tiny else ())),), read_scoring),
    }


def run(name: str, part: Part, out: Path) -> str:
    """What went wrong; empty if nothing did."""
    ends = time.monotonic() + part.seconds
    with (out / f"{name}.txt").open("w") as said:
        for command in part.commands:
            left = max(1.0, ends - time.monotonic())
            try:
                ended = subprocess.run(
                    [sys.executable, *command], cwd=HERE.parent, stdout=said, stderr=subprocess.STDOUT, timeout=left
                )
            except subprocess.TimeoutExpired:
                return f"stopped after {part.seconds:.0f} s"
            if ended.returncode:
                return f"exit {ended.returncode}: see {name}.txt"
    return ""


# --- what each part has found -----------------------------------------------------------------------------------------


def read_tests(out: Path) -> Iterator[Fact]:
    yield "kernels' tests", (out / "tests.txt").read_text().strip().splitlines()[-1].strip("= "), "no failure"


def read_steps(out: Path) -> Iterator[Fact]:
    found = json.loads((out / "step.json").read_text())
    rows = {row["name"]: row for row in found["rows"]}

    def speed(name: str) -> float:
        return rows.get(name, {}).get("images_per_second", math.nan)

    whole = speed("everything")
    yield "all six losses, images/s", f"{whole:,.0f}", "≥ 1,150; floor 850"
    yield "  in GiB", f"{rows['everything']['gigabytes']:.0f}", "≤ 100"
    yield "  × the naive assembly", f"{whole / speed('naive'):.2f}", "≥ 4.1"
    yield "time per image, 12 × accumulated", f"{whole / speed('12 × accumulated'):.2f} ×", "≤ 1.15"
    yield "time per image, 12 ranks of texts", f"{whole / speed('12 ranks'):.2f} ×", "≤ 1.25"
    yield "negatives: all", f"{whole / speed('negatives: all'):.2f} ×", "≤ 1.5"
    for name in ("no kernels", "eager", "fp8"):
        yield f"speed: {name}", f"{speed(name) / whole:.2f} ×", ""
    for part in found["parts"]:
        floor = part["arithmetic"] + part["traffic"]
        yield f"  {part['part']}, ms", f"{part['milliseconds']:.1f}", f"roofline {floor:.1f}"


def read_sizes(out: Path) -> Iterator[Fact]:
    yield from _listed(out / "sizes.json")


def read_variants(out: Path) -> Iterator[Fact]:
    yield from _listed(out / "more.json")


def _listed(path: Path) -> Iterator[Fact]:
    for row in json.loads(path.read_text())["rows"]:
        yield row["name"], f"{row['images_per_second']:,.0f} images/s, {row['gigabytes']:.0f} GiB", row["problem"]


def read_run(out: Path) -> Iterator[Fact]:
    records = [record for record in read_log(out / "real/log.jsonl") if "images_per_second" in record]
    settled = records[len(records) // 2 :]
    yield "a real run, images/s", f"{median(record['images_per_second'] for record in settled):,.0f}", ""
    yield "  waiting for data", f"{fmean(record['data_wait'] for record in settled):.1%}", "< 2 %"


def read_curve(out: Path) -> Iterator[Fact]:
    fast, slow = (losses(out / name / "log.jsonl") for name in ("fast", "slow"))
    apart = max(abs(a - b) / b for a, b in zip(smooth(fast), smooth(slow), strict=True))
    yield f"bf16 and compiled beside float32, {len(fast)} steps", f"{apart:.1%} apart at most", "overlays"
    yield "  first and last loss", f"{slow[0]:.2f} → {slow[-1]:.2f}", f"{fast[0]:.2f} → {fast[-1]:.2f}"


def losses(path: Path) -> list[float]:
    """Of every step, the six terms as they are: learned weights drift with the rounding of the terms."""
    return [sum(record["terms"].values()) for record in read_log(path) if "terms" in record]


def smooth(values: Sequence[float], width: int = 10) -> list[float]:
    return [fmean(values[max(0, i - width) : i + 1]) for i in range(len(values))]


def read_scoring(out: Path) -> Iterator[Fact]:
    for line in (out / "scoring.txt").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("│") if cell.strip()]
        if cells and cells[0].startswith("score tc"):
            yield f"{cells[0]}, M pairs/s", cells[2], "≥ 40"


# --- all of it --------------------------------------------------------------------------------------------------------


def main(out: tyro.conf.Positional[Path], only: tuple[str, ...] = (), rest: bool = False, tiny: bool = False) -> None:
    """Run the parts one after the other and print one table.

    Args:
        out: Where everything said and measured goes.
        only: Parts to run: tests, step, run, curve, scoring.
        rest: The second session's parts instead: sizes, variants.
        tiny: Toy sizes on a CPU.
    """
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    facts: list[Fact] = []
    for name, part in parts(out, tiny, rest).items():
        if only and name not in only:
            continue
        started = time.monotonic()
        problem = run(name, part, out)
        try:
            facts += part.read(out)
        except (OSError, KeyError, IndexError, ValueError) as error:
            problem = problem or f"{type(error).__name__}: {error}"
        if problem:
            facts.append((name, "FAILED", problem))
        print(f"{name}: {time.monotonic() - started:.0f} s {problem}", flush=True)
    (out / "session.json").write_text(json.dumps(facts, indent=1, ensure_ascii=False))
    widths = [max(len(fact[i]) for fact in facts) for i in range(2)]
    for what, found, wanted in facts:
        print(f"{what:{widths[0]}}  {found:>{widths[1]}}  {wanted}")


if __name__ == "__main__":
    tyro.cli(main)
