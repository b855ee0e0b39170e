"""One command, every number: find what lies under a folder, say what does not, measure the rest, write it down."""

from __future__ import annotations

import datetime
import difflib
import hashlib
import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from goldiclip.config import ConfigError
from goldiclip.evaluate.classification import classification
from goldiclip.evaluate.datasets import READERS, benchmarks
from goldiclip.evaluate.datasets.custom import read_custom
from goldiclip.evaluate.datasets.items import Gallery, Items, Labelled, Masked, Questions
from goldiclip.evaluate.datasets.segments import space
from goldiclip.evaluate.metrics import Estimate
from goldiclip.evaluate.problems import BadData, Problems
from goldiclip.evaluate.questions import questions
from goldiclip.evaluate.results import Results, Row, write_results
from goldiclip.evaluate.retrieval import retrieval
from goldiclip.evaluate.segmentation import segmentation
from goldiclip.inference.engine import Engine
from goldiclip.inference.load import weights_hash
from goldiclip.inference.pictures import Fit
from goldiclip.inference.segment import PROTOCOL_SIZE, segmentation_modes
from goldiclip.types import Alone, Ranks

Measured = Iterator[tuple[str, float]]


@dataclass(frozen=True)
class Options:
    """How to evaluate; the defaults are the paper's."""

    only: tuple[str, ...] = ()
    """Sets by name; empty: all that are there."""
    custom: tuple[Path, ...] = ()
    """Files and folders of your own."""
    modes: tuple[str, ...] = ()
    """tc, ta; empty: those the encoder has."""
    segmentation: tuple[str, ...] = ("value",)
    """value, sink, attention."""
    shortlist: int = 0
    """Also text-conditioned re-ranking of this many text-agnostic candidates; 0 leaves it out."""
    fit: Fit = "crop"
    """Resize the shorter side and crop the centre, or squeeze the whole image into the square."""
    spaced: bool = False
    """Segmentation class names with their spaces back."""
    overlays: int = 8
    """Segmentations of each set saved to look at."""
    strict: bool = False
    """Stop at the first problem of the data, and at a set in `only` that is not there."""


def evaluate(
    engine: Engine,
    root: Path | None,
    options: Options = Options(),
    *,
    out: Path | None = None,
    name: str = "",
    command: str = "",
    ranks: Ranks | None = None,
    say: Callable[[str], None] = print,
) -> Results:
    """Measure every set found; rank 0 writes results.json, results.md and overlays under `out`."""
    ranks = ranks or Alone()
    say = say if ranks.rank == 0 else _silent
    options = replace(options, modes=_modes(engine, options))
    sets, missing = find_sets(root, options)
    if not sets:
        raise ConfigError(_nothing_found(root, missing))
    results = Results(name, weights_hash(engine), engine.modes, command, _made(engine), missing=missing)
    for set_name, read in sets.items():
        started = time.perf_counter()
        problems = Problems(options.strict, ranks, engine.device)
        items = _read(set_name, read, problems)
        say(f"{set_name}: {len(items.pictures):,} images")
        overlays = out / "overlays" / set_name if out and options.overlays else None
        rows, details = _rows(set_name, items, measure(engine, items, options, overlays, ranks, problems), results)
        rows = [replace(row, deviations=(*items.deviations, *deviations(engine, items, options))) for row in rows]
        results.rows += rows
        results.details |= {set_name: details} if details else {}
        results.problems |= {set_name: problems.of_all()} if problems.of_all() else {}
        results.seconds[set_name] = round(time.perf_counter() - started, 3)
        for line in _summary(rows, results.problems.get(set_name, [])):
            say(line)
        if out and ranks.rank == 0:  # after every set, so that nothing is lost
            write_results(results, out)
    return results


def measure(
    engine: Engine, items: Items, options: Options, overlays: Path | None, ranks: Ranks, problems: Problems
) -> Measured:
    """The evaluation of whatever kind of set this is."""
    shared: dict[str, Any] = {"ranks": ranks, "problems": problems}
    if isinstance(items, Gallery):
        yield from retrieval(engine, items, modes=options.modes, shortlist=options.shortlist, how=options.fit, **shared)
    elif isinstance(items, Questions):
        yield from questions(engine, items, modes=options.modes, how=options.fit, **shared)
    elif isinstance(items, Labelled):
        yield from classification(engine, items, modes=options.modes, how=options.fit, **shared)
    elif isinstance(items, Masked):
        known = segmentation_modes(engine)
        modes = [mode for mode in options.segmentation if mode in known] if known else []
        items = replace(items, classes=space(items.classes)) if options.spaced else items
        yield from segmentation(engine, items, modes=modes, overlays=overlays, num_overlays=options.overlays, **shared)


# --- which sets -----------------------------------------------------------------------------------------------------

Read = Callable[[Problems], Items]


def find_sets(root: Path | None, options: Options) -> tuple[dict[str, Read], dict[str, dict[str, str]]]:
    """The sets that are there, each with its reader, and what the others are and where they come from."""
    if root is not None and not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    _require_known(options.only)
    found: dict[str, Read] = {}
    missing = {}
    for name, benchmark in benchmarks().items():
        home = benchmark.find(root) if root is not None else None
        if options.only and name not in options.only:
            continue
        if home is not None:
            found[name] = _reader(name, home)
        else:
            about = ("family", "title", "licence", "source", "layout")
            missing[name] = {one: getattr(benchmark, one) for one in about}
    if options.strict and options.only and missing:
        name, about_it = next(iter(missing.items()))
        raise BadData(f"{root}: {name} is not there; expected {about_it['layout']} (from {about_it['source']})")
    for path in options.custom:
        found[path.stem] = _custom_reader(path)
    return found, missing if root is not None else {}


def _reader(name: str, home: Path) -> Read:
    return lambda problems: READERS[name](home, problems)


def _custom_reader(path: Path) -> Read:
    return lambda problems: read_custom(path, problems)


def _read(name: str, read: Read, problems: Problems) -> Items:
    try:
        items = read(problems)
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise BadData(
            f"{name}: its annotations are not of the form expected ({type(error).__name__}: {error})"
        ) from error
    problems.settle()
    if not items.pictures:
        raise BadData(f"{name}: no usable image; the first problem: {next(iter(problems.of_all()), 'no entry at all')}")
    return items


def _require_known(only: tuple[str, ...]) -> None:
    for name in only:
        if name not in benchmarks():
            near = difflib.get_close_matches(name, benchmarks(), n=3, cutoff=0.4)
            raise ConfigError(
                f"{name!r} is no set; nearest: {', '.join(near) or 'none'}; all: {', '.join(benchmarks())}"
            )


def _nothing_found(root: Path | None, missing: dict[str, dict[str, str]]) -> str:
    if root is None:
        return "nothing to evaluate on: give a folder of sets (--data) or files of your own (--custom)"
    shown = "; ".join(f"{name}: {about['layout']}" for name, about in list(missing.items())[:3])
    return f"{root}: none of {len(missing)} sets is there. Expected, for example, {shown}. docs/evaluation.md lists all"


def _modes(engine: Engine, options: Options) -> tuple[str, ...]:
    known = tuple(mode for mode in ("tc", "ta") if mode in engine.modes)
    for mode in options.modes:
        if mode not in known:
            raise ConfigError(f"mode {mode!r}: this encoder has {', '.join(known)}")
    if options.shortlist and "tc" not in known:
        raise ConfigError(f"a shortlist is re-ranked by tc, which this encoder lacks; it has {', '.join(known)}")
    return options.modes or known


# --- rows -----------------------------------------------------------------------------------------------------------


def _rows(name: str, items: Items, measured: Measured, results: Results) -> tuple[list[Row], dict[str, float]]:
    """Numbers as rows. `counts/…` go into every row; the IoU of each class goes into details."""
    counts, details, numbers = {}, {}, {}
    for key, value in measured:
        if key.startswith("counts/"):
            counts[key.removeprefix("counts/")] = int(value)
        elif "/iou/" in key:
            details[key] = value
        else:
            numbers[key] = value
    start = Row(
        set=name,
        family=benchmarks()[name].family if name in benchmarks() else "custom",
        split=items.split,
        mode="",
        metric="",
        value=math.nan,
        low=math.nan,
        high=math.nan,
        counts=counts,
        annotations=annotation_hash(items),
        model=results.model_hash,
        command=results.command,
    )
    rows = []
    for key, value in numbers.items():
        mode, _, metric = key.partition("/")
        low, high = (value.low, value.high) if isinstance(value, Estimate) else (math.nan, math.nan)
        rows.append(replace(start, mode=mode, metric=metric, value=float(value), low=low, high=high))
    return rows, details


def annotation_hash(items: Items) -> str:
    """SHA-256 of the annotation files one after another, 16 digits: of one file, what sha256sum says.

    Masks count by name and size, pictures that no file lists by name.
    """
    digest = hashlib.sha256()
    for path in items.annotations:
        digest.update(path.read_bytes() if path.is_file() else path.name.encode())
    if isinstance(items, Masked):
        for mask in items.masks:
            digest.update(f"{mask.name} {mask.stat().st_size}\n".encode())
    elif not items.annotations:
        digest.update("\n".join(Path(str(picture)).name for picture in items.pictures).encode())
    return digest.hexdigest()[:16]


def deviations(engine: Engine, items: Items, options: Options) -> tuple[str, ...]:
    """Where this evaluation is not to the letter the published one, by name."""
    named = []
    if isinstance(items, Masked):
        if engine.image_size != PROTOCOL_SIZE:
            named.append(f"windows of {engine.image_size} pixels, images scaled alike (published: {PROTOCOL_SIZE})")
        if options.spaced:
            named.append("class names with their spaces (published: run together)")
    else:
        named.append("bicubic resizing of uint8 tensors, antialiased (published: Pillow's)")
        if options.fit != "crop":
            named.append("images squeezed to a square (published: shorter side resized, centre cropped)")
        named.append("ties in expectation (published: as the sort leaves them)")
    if engine.precision != "fp32":
        named.append(f"{engine.precision} autocast")
    return tuple(named)


def _summary(rows: list[Row], problems: list[str]) -> Iterator[str]:
    for row in rows:
        interval = f"  ({100 * row.low:5.1f} – {100 * row.high:5.1f})" if row.low == row.low else ""
        yield f"  {row.mode:10} {row.metric:32} {100 * row.value:6.2f}{interval}"
    for problem in problems[:3]:
        yield f"  left out: {problem}"
    if len(problems) > 3:
        yield f"  … and {len(problems) - 3} more problems"


def _made(engine: Engine) -> dict[str, str]:
    device = torch.cuda.get_device_name(engine.device) if engine.device.type == "cuda" else engine.device.type
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": device,
        "precision": engine.precision,
        "goldiclip": version("goldiclip"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _silent(_: str) -> None:
    return
