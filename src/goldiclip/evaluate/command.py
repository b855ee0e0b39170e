"""`goldiclip evaluate` and `goldiclip compare`: words in, numbers in the terminal and in files out."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console

from goldiclip.config import ConfigError
from goldiclip.evaluate.compare import Table, ablation_table, against
from goldiclip.evaluate.options import Options
from goldiclip.evaluate.page import PAGE, cards, whole, write_page
from goldiclip.evaluate.results import FILE, find_results, read_results
from goldiclip.evaluate.run import evaluate
from goldiclip.evaluate.show import to_markdown, to_terminal
from goldiclip.inference.load import load_engine
from goldiclip.types import Alone, Ranks

RUN_FOLDER = "evaluation"  # where a run keeps its results


def run(
    model: str,
    data: Path | None,
    options: Options,
    *,
    out: Path | None = None,
    device: torch.device | str = "auto",
    precision: str = "",
    batch: int = 64,
    ranks: Ranks | None = None,
) -> Path:
    """Load, evaluate, write; returns the file of results."""
    ranks = ranks or Alone()
    on_gpu = torch.device(device).type == "cuda" if device != "auto" else torch.cuda.is_available()
    precision = precision or ("bf16" if on_gpu else "fp32")
    engine = load_engine(model, device=device, precision=precision, batch=batch)
    folder = out or default_folder(model)
    results = evaluate(
        engine,
        data,
        options,
        out=folder,
        name=model,
        command=shlex.join(["goldiclip", *sys.argv[1:]]),
        ranks=ranks,
    )
    if ranks.rank == 0:
        for name, about in results.missing.items():
            print(f"not there: {name}: {about['title']}; {about['licence']}; {about['source']}; {about['layout']}")
        print(folder / FILE)
        print(folder / PAGE)
    return folder / FILE


def run_of(file: Path) -> Path | None:
    """The training run whose results a file holds, if they are a run's."""
    run = file.parent.parent
    return run if file.parent.name == RUN_FOLDER and (run / "log.jsonl").is_file() else None


def page_of_evaluation(folder: Path) -> Path | None:
    """Write once more the page of results that belong to no run; None where there is a run, or nothing."""
    if (folder / "config.yaml").is_file():
        return None
    try:
        file = find_results(folder)
    except FileNotFoundError:
        return None
    return write_page(read_results(file), file.parent)


def default_folder(model: str) -> Path:
    """Beside the model where that is a folder, else here under its name."""
    folder = Path(model)
    if not folder.is_dir():
        return Path(RUN_FOLDER) / "".join(one if one.isalnum() or one in "-_." else "-" for one in model)
    is_inside_run = folder.name == "encoder" and (folder.parent / "config.yaml").is_file()
    return (folder.parent if is_inside_run else folder) / RUN_FOLDER


def options(
    only: str, mode: str, segmentation: str, custom: Sequence[Path], shortlist: int, **others: object
) -> Options:
    """Options from words: lists are parted by commas."""
    if shortlist < 0:
        raise ConfigError(f"--shortlist is {shortlist}; allowed: 0 (none) or more")
    return Options(
        only=_listed(only),
        modes=_listed(mode),
        segmentation=_listed(segmentation),
        custom=tuple(custom),
        shortlist=shortlist,
        **others,  # type: ignore[arg-type]
    )


def _listed(words: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in words.split(",") if word.strip())


# --- compare --------------------------------------------------------------------------------------------------------


def compare(runs: Sequence[Path], rival: str = "", method: str = "GoldiCLIP", data: str = "30M") -> list[Path]:
    """One run against `paper` or another run; several against each other. Prints, and writes pages beside results."""
    if rival and len(runs) != 1:
        raise ConfigError(f"--against takes one run, found {len(runs)}")
    if rival:
        tables = against(read_results(runs[0]), rival, method, data)
        name = f"against-{Path(rival).name}"
    elif len(runs) > 1:
        tables, name = [ablation_table(_named(runs))], "ablation"
    else:
        raise ConfigError("nothing to compare with: give --against paper, --against RUN, or several runs")
    pages = write_pages(tables, find_results(runs[0]).parent, name) if tables else []
    console = Console(width=None if sys.stdout.isatty() else 200)
    if not tables:
        console.print(f"{runs[0]}: no number that {rival} has too")
    for table in tables:
        console.print(*to_terminal(table), sep="\n")
    return pages


def _named(runs: Sequence[Path]) -> dict[str, Path]:
    """Runs by the recipe they were made from; of one recipe, by their folders too."""
    recipes = [_run_name(folder) for folder in runs]
    names = [name if recipes.count(name) == 1 else f"{name} {folder}" for name, folder in zip(recipes, runs)]
    return dict(zip(names, runs))


def _run_name(folder: Path) -> str:
    """The recipe a run was made from where it says so, else its folder's name."""
    config = folder / "config.yaml"
    if config.is_file():
        for line in config.read_text().splitlines():
            if line.startswith("recipe:"):
                return line.partition(":")[2].strip().strip("'\"") or folder.name
    return folder.name


def write_pages(tables: Sequence[Table], folder: Path, name: str) -> list[Path]:
    """The tables as Markdown and as a page that needs nothing else."""
    markdown, page = folder / f"{name}.md", folder / f"{name}.html"
    markdown.write_text("\n".join(map(to_markdown, tables)), encoding="utf-8")
    page.write_text(whole(name, cards(tables)), encoding="utf-8")
    return [markdown, page]
