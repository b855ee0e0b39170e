"""One command, every number: find what lies under a folder, say what does not, measure the rest, write it down."""

from __future__ import annotations

import datetime
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from goldiclip.config import ConfigError
from goldiclip.evaluate.classification import classification
from goldiclip.evaluate.datasets import READERS, benchmarks, partial
from goldiclip.evaluate.datasets.custom import read_custom
from goldiclip.evaluate.datasets.items import Gallery, Items, Labelled, Masked, Questions
from goldiclip.evaluate.datasets.segments import space
from goldiclip.evaluate.options import Options, own_fit, require_known, settled
from goldiclip.evaluate.page import write_page
from goldiclip.evaluate.problems import BadData, Problems
from goldiclip.evaluate.questions import questions
from goldiclip.evaluate.results import Results, Row, counted, with_earlier, write_results
from goldiclip.evaluate.retrieval import retrieval
from goldiclip.evaluate.rows import Measured, as_rows, deviations
from goldiclip.evaluate.segmentation import segmentation
from goldiclip.inference.engine import Engine
from goldiclip.inference.load import weights_hash
from goldiclip.inference.segment import segmentation_modes
from goldiclip.types import Alone, Ranks

__all__ = ["Options", "evaluate", "find_sets", "measure"]


def evaluate(
    engine: Engine,
    root: Path | None,
    options: Options | None = None,
    *,
    out: Path | None = None,
    name: str = "",
    command: str = "",
    ranks: Ranks | None = None,
    say: Callable[[str], None] = print,
) -> Results:
    """Measure every set found; rank 0 writes results.json, results.md, results.html and overlays under `out`.

    A set that cannot be read is said and the others go on; under `strict` it ends the evaluation, as it does when there
    is no other.
    """
    ranks = ranks or Alone()
    say = say if ranks.rank == 0 else _silent
    options = settled(engine, options or Options())
    sets, missing = find_sets(root, options)
    if not sets:
        raise ConfigError(_nothing_found(root, missing))
    results = Results(name, weights_hash(engine), engine.modes, command, _made(engine, ranks), missing=missing)
    for set_name, read in sets.items():
        problems = Problems(options.strict, ranks, engine.device)
        try:
            items = _read(set_name, read, problems)
            _require_segmentation(set_name, engine, items, options)
        except ConfigError as error:
            if options.strict or len(sets) == 1:
                raise
            results.problems[set_name] = [str(error), *problems.of_all()]
            say(f"left out: {error}")
        else:
            _measure_into(results, set_name, items, engine, options, out, ranks, problems, say)
        if out and results.rows and ranks.rank == 0:  # after every set, so that nothing is lost
            write_all(results, out)
    if not results.rows:
        raise BadData(next(iter(results.problems.values()))[0])
    return results


def write_all(results: Results, folder: Path) -> None:
    """Beside what the folder holds of the same weights on other sets: as JSON, as Markdown and as a page."""
    results = with_earlier(results, folder)
    write_results(results, folder)
    write_page(results, folder)


def _measure_into(
    results: Results,
    name: str,
    items: Items,
    engine: Engine,
    options: Options,
    out: Path | None,
    ranks: Ranks,
    problems: Problems,
    say: Callable[[str], None],
) -> None:
    started = time.perf_counter()
    say(f"{name}: {len(items.pictures):,} images")
    overlays = out / "overlays" / name if out and options.overlays else None
    rows, details = as_rows(name, items, measure(engine, items, options, overlays, ranks, problems), results)
    deviating = (*items.deviations, *deviations(engine, items, options))
    rows = [replace(row, deviations=tuple(filter(None, (partial(name, row.counts), *deviating)))) for row in rows]
    results.rows += rows
    results.details |= {name: details} if details else {}
    results.problems |= {name: problems.of_all()} if problems.of_all() else {}
    results.seconds[name] = round(time.perf_counter() - started, 3)
    for line in _summary(rows, results.problems.get(name, [])):
        say(line)


def measure(
    engine: Engine, items: Items, options: Options, overlays: Path | None, ranks: Ranks, problems: Problems
) -> Measured:
    """The evaluation of whatever kind of set this is."""
    shared: dict[str, Any] = {"ranks": ranks, "problems": problems}
    asked: dict[str, Any] = {"modes": options.modes, "how": options.fit or own_fit(engine), **shared}
    if isinstance(items, Gallery):
        yield from retrieval(engine, items, shortlist=options.shortlist, **asked)
    elif isinstance(items, Questions):
        yield from questions(engine, items, **asked)
    elif isinstance(items, Labelled):
        yield from classification(engine, items, **asked)
    elif isinstance(items, Masked):
        items = replace(items, classes=space(items.classes)) if options.spaced else items
        shared |= {"overlays": overlays, "num_overlays": options.overlays}
        yield from segmentation(engine, items, modes=options.segmentation, **shared)


def _require_segmentation(name: str, engine: Engine, items: Items, options: Options) -> None:
    if isinstance(items, Masked) and not options.segmentation:
        has = ", ".join(segmentation_modes(engine)) or "none"
        raise ConfigError(f"{name}: this encoder has none of the kinds of segmentation asked for; it has {has}")


# --- which sets -----------------------------------------------------------------------------------------------------

Read = Callable[[Problems], Items]


def find_sets(root: Path | None, options: Options) -> tuple[dict[str, Read], dict[str, dict[str, str]]]:
    """The sets that are there, each with its reader, and what the others are and where they come from."""
    if root is not None and not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder")
    for name in options.only:
        require_known("set", name, list(benchmarks()))
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
        if not path.exists():
            raise FileNotFoundError(f"{path} is not there")
        if path.stem in benchmarks() or path.stem in found:
            raise ConfigError(f"{path}: another set is called {path.stem!r} already; give it another name")
        found[path.stem] = _custom_reader(path)
    return found, missing if root is not None else {}


def _reader(name: str, home: Path) -> Read:
    return lambda problems: READERS[name](home, problems)


def _custom_reader(path: Path) -> Read:
    return lambda problems: read_custom(path, problems)


def _read(name: str, read: Read, problems: Problems) -> Items:
    try:
        items = read(problems)
    except (OSError, UnicodeDecodeError) as error:
        where = error.filename if isinstance(error, OSError) and error.filename else name
        raise BadData(f"{name}: {where} cannot be read ({getattr(error, 'strerror', None) or error})") from error
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise BadData(
            f"{name}: its annotations are not of the form expected ({type(error).__name__}: {error})"
        ) from error
    problems.settle()
    if not items.pictures:
        raise BadData(f"{name}: no usable image; the first problem: {next(iter(problems.of_all()), 'no entry at all')}")
    return items


def _nothing_found(root: Path | None, missing: dict[str, dict[str, str]]) -> str:
    if root is None:
        return "nothing to evaluate on: give a folder of sets (--data) or files of your own (--custom)"
    shown = "; ".join(f"{name}: {about['layout']}" for name, about in list(missing.items())[:3])
    return f"{root}: none of {len(missing)} sets is there. Expected, for example, {shown}. docs/evaluation.md lists all"


# --- words ----------------------------------------------------------------------------------------------------------


def _summary(rows: list[Row], problems: list[str]) -> Iterator[str]:
    if rows:
        yield f"  {counted(rows[0].counts)}"
    for row in rows:
        interval = f"  ({100 * row.low:5.1f} – {100 * row.high:5.1f})" if row.low == row.low else ""
        yield f"  {row.mode:10} {row.metric:32} {100 * row.value:6.2f}{interval}"
    for problem in problems[:3]:
        yield f"  left out: {problem}"
    if len(problems) > 3:
        yield f"  … and {len(problems) - 3} more problems"


def _made(engine: Engine, ranks: Ranks) -> dict[str, str]:
    device = torch.cuda.get_device_name(engine.device) if engine.device.type == "cuda" else engine.device.type
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": f"{ranks.size} × {device}" if ranks.size > 1 else device,
        "precision": engine.precision,
        "goldiclip": version("goldiclip"),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _silent(_: str) -> None:
    return
