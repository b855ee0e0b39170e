"""Train, evaluate, use: `goldiclip COMMAND --help` says what a command takes."""

# One short function per command. Each imports what it needs when it runs, so that `--help` is immediate.

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from tyro.conf import Positional

from goldiclip.config import ConfigError
from goldiclip.data import commands as data
from goldiclip.dispatch import dispatch, settings_first
from goldiclip.inference import commands as use
from goldiclip.prepare.commands import COMMANDS as PREPARE

# --- the first ten minutes --------------------------------------------------------------------------------------------


def demo(minutes: float = 8.0, out: Path = Path("runs/demo"), seed: int = 0) -> None:
    """Draw a corpus, train on it, measure, index and tell the story on one page. Run again, it goes on.

    Args:
        minutes: About how long; everything scales to the machine and to this.
        out: Folder of everything it writes.
        seed: Another seed, another corpus and another run.
    """
    from goldiclip.demo import demo as run

    run(out, minutes, seed)


# --- runs -----------------------------------------------------------------------------------------------------------


def recipes() -> None:
    """List the recipes, with what each one trains."""
    from goldiclip.recipes import RUNS, VARIANTS

    for name, build in RUNS.items():
        print(f"{name:18} {(build.__doc__ or '').splitlines()[0]}")
    for name, change in VARIANTS.items():
        print(f"…/{name:16} {(change.__doc__ or '').splitlines()[0]}")


def config(recipe: Positional[str], overrides: Positional[tuple[str, ...]] = ()) -> None:
    """Print a recipe's resolved configuration: `goldiclip config cc3m optim.lr=1e-3`.

    Args:
        recipe: A recipe's name.
        overrides: Settings to change, as key=value.
    """
    from goldiclip.config import override, resolve, to_yaml
    from goldiclip.recipes import recipe as named

    print(to_yaml(resolve(override(named(recipe), overrides))), end="")


def train(
    recipe: Positional[str] = "",
    overrides: Positional[tuple[str, ...]] = (),
    *,
    out: Path | None = None,
    resume: Path | None = None,
    init: str = "",
    requeue: bool = False,
    dry_run: bool = False,
) -> None:
    """Train: `goldiclip train demo data.train="scenes/train/*.tar" --out runs/first`.

    Args:
        recipe: A recipe's name, or a config.yaml. With --resume it may be left out.
        overrides: Settings to change, as key=value.
        out: Folder of a new run; runs/RECIPE unless you say otherwise.
        resume: Folder of a run to go on with, from its newest checkpoint.
        init: Weights to begin from: an encoder, run or checkpoint folder, or flair:, open_clip:, cosmos:, timm:FILE.
        requeue: Go on with the run in --out if there is one: for launchers that start the same command again.
        dry_run: Two steps on real batches, what each term should be, and the plan; nothing is written.
    """
    from goldiclip.train.command import run

    run(recipe, overrides, out=out, resume=resume, init=init, requeue=requeue, dry_run=dry_run)


def replay(file: Positional[Path], *, precision: str = "", micro_batch: int = 0) -> int:
    """Repeat on a CPU the step that stopped a run: which term and which module first were not finite.

    Args:
        file: RUN/failure-step-….safetensors
        precision: bf16 or fp32 instead of the run's.
        micro_batch: Images at once, for a step larger than memory.
    """
    from goldiclip.train.replay import replay as repeat

    found = repeat(file, precision=precision, micro_batch=micro_batch)
    print("\n".join(found.lines()))
    return 0 if found.is_reproduced else 1


def plan(
    recipe: Positional[str],
    overrides: Positional[tuple[str, ...]] = (),
    *,
    gpus: int = 1,
    gpu: str = "h200",
    samples: int = 0,
    dollars_per_hour: float | None = None,
) -> None:
    """Say before a run what it will need: FLOPs, memory, time, money, network, loader cores, the micro-batch that fits.

    Args:
        recipe: A recipe's name, or a config.yaml; or `annotate`: what `prepare annotate` will cost.
        overrides: Settings to change, as key=value; of annotate: detector, writer, phrases, prompt, answer, batch.
        gpus: How many.
        gpu: h200, h100, b200, a100, a100-40gb, mi300x, l40s or rtx4090.
        samples: Samples of one epoch, where the shards are not at hand to be counted.
        dollars_per_hour: Price of one GPU, instead of a rough list price.
    """
    from goldiclip.plan.annotation import plan_annotation
    from goldiclip.train.command import show_plan

    if recipe == "annotate":
        plan_annotation(overrides, gpus=gpus, gpu=gpu, samples=samples, dollars_per_hour=dollars_per_hour)
        return
    show_plan(recipe, overrides, gpus=gpus, gpu=gpu, samples=samples, dollars_per_hour=dollars_per_hour)


def report(runs: Positional[tuple[Path, ...]], *, against: str = "") -> None:
    """Write RUN/report.html: curves, task weights, throughput, configuration, evaluations and pictures on one page.

    Args:
        runs: Folders of runs, or of evaluations; several also make an ablation table, in their order.
        against: paper, or another run: show the evaluations beside it, here too.
    """
    from goldiclip.evaluate.command import page_of_evaluation
    from goldiclip.train.report import write_report

    if not runs:
        raise ConfigError("report: name the folder of a run")
    for run in runs if against else ():
        compare((run,), against=against)
    if len(runs) > 1:
        compare(runs)
    for run in runs:
        print(page_of_evaluation(run) or write_report(run, against or "paper"))


def doctor() -> int:
    """Say what this machine has, what it lacks for which command, and how to get it."""
    from goldiclip.doctor import examine, show

    return show(list(examine()))


# --- what needs several parts of the house --------------------------------------------------------------------------


def evaluate(
    model: Positional[str],
    *,
    data: Path | None = None,
    only: str = "",
    mode: str = "",
    out: Path | None = None,
    custom: tuple[Path, ...] = (),
    shortlist: int = 0,
    segmentation: str = "value,sink",
    spaced: bool = False,
    fit: Literal["own", "crop", "whole"] = "own",
    overlays: int = 8,
    strict: bool = False,
    precision: str = "",
    batch: int = 64,
) -> None:
    """Measure a model on every set found: `goldiclip evaluate runs/first --data sets`. Under torchrun, on all ranks.

    Args:
        model: An encoder folder, a run, a hub name, flair:FILE, cosmos:FILE, open_clip:FILE or open_clip:MODEL/TAG.
        data: Folder that holds the sets. What is missing is listed with its licence, source and layout.
        only: Sets by name, parted by commas, such as coco,docci_fg.
        mode: tc, ta, or both; those the model has unless you say otherwise.
        out: Folder for results and overlays; evaluation/ beside the model unless you say otherwise.
        custom: CSV and JSONL files and folders of your own.
        shortlist: Also two-stage retrieval: this many candidates by ta, ordered by tc.
        segmentation: value, the paper's; sink; attention; parted by commas. A model is measured in those that it has.
        spaced: Segmentation class names with their spaces back.
        fit: Crop the centre, squeeze in the whole image, or what the model itself was made for.
        overlays: Segmentations of each set saved to look at.
        strict: Stop at the first problem of the data instead of leaving it out.
        precision: fp32 or bf16; bf16 on a GPU unless you say otherwise.
        batch: Images in a block.
    """
    from goldiclip.evaluate import command
    from goldiclip.train.launch import seated
    from goldiclip.train.parallel import current_ranks
    from goldiclip.train.report import write_report

    how = {"fit": None if fit == "own" else fit, "spaced": spaced, "overlays": overlays, "strict": strict}
    options = command.options(only, mode, segmentation, custom, shortlist, **how)
    with seated() as seat:
        given: dict[str, Any] = {"device": seat.device, "precision": precision, "batch": batch}
        file = command.run(model, data, options, out=out, ranks=current_ranks(), **given)
        run = command.run_of(file)
        if run is not None and seat.is_first:
            print(write_report(run))


def compare(
    runs: Positional[tuple[Path, ...]], *, against: str = "", method: str = "GoldiCLIP", size: str = "30M"
) -> None:
    """Show a run's numbers beside the paper's or another run's, or several runs as an ablation table.

    Args:
        runs: Folders with results of `goldiclip evaluate`; several make an ablation table, in their order.
        against: paper, or another run.
        method: Of the paper's rows, the one differences are to.
        size: That row's training data: 3M, 30M, 2B, 10B, CC3M-recap, …
    """
    from goldiclip.evaluate.command import compare as show

    for page in show(runs, against, method, size):
        print(page)


def shards_show(
    words: Positional[tuple[str, ...]],
    *,
    recipe: str = "cc3m",
    out: Path = Path("shards.png"),
    count: int = 6,
    position: int = 0,
) -> None:
    """Draw a contact sheet: samples with their boxes, and the crops, captions and task texts a run draws from them.

    Args:
        words: Paths of shards, and settings to change as key=value.
        recipe: The run whose crops and tasks to draw.
        out: Where to draw it.
        count: How many samples.
        position: Where in the run to begin, in samples seen.
    """
    from goldiclip.config import override, resolve
    from goldiclip.data.contact_sheet import contact_sheet
    from goldiclip.data.shards import Shards
    from goldiclip.recipes import recipe as named

    settings = [word for word in words if re.match(r"[a-z_]+(\.[a-z_0-9]+)+=", word)]
    shards = Shards([word for word in words if word not in settings])
    print(contact_sheet(shards, resolve(override(named(recipe), settings)), out, count, position))


def serve(
    index: Positional[str] = "images.index",
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    encoder: str = "",
    device: str = "auto",
    workers: int = 2,
) -> None:
    """Serve an index as a web page and an HTTP API: search, heatmaps, masks, captions, answers, boxes.

    Args:
        index: Where the index is.
        host: Another address than this machine's own lets everybody who reaches it search; there is no password.
        port: Of the page; the API is documented under /docs there.
        encoder: The encoder, if it is no longer where it was when the index was made.
        device: auto, cpu, cuda, mps.
        workers: Requests computed at once; others wait, and beyond that are sent away with 503.
    """
    from goldiclip.inference.command import open_index
    from goldiclip.prepare.chunks import chunker
    from goldiclip.prepare.phrases import find_phrases
    from goldiclip.web.serve import run

    rules = chunker("rules")

    def phrases(text: str) -> list[str]:
        return [found.phrase for found in find_phrases([text], rules)]

    run(open_index(index, encoder, device), phrases, host=host, port=port, workers=workers)


# --- dispatch -------------------------------------------------------------------------------------------------------

# A command, or a group of commands as a dict of its own.
COMMANDS: dict[str, Callable[..., int | None] | dict[str, Callable[..., int | None]]] = {
    "demo": demo,
    "recipes": recipes,
    "config": config,
    "scenes": data.scenes,
    "train": train,
    "replay": replay,
    "plan": plan,
    "evaluate": evaluate,
    "compare": compare,
    "report": report,
    "index": use.index,
    "search": use.search,
    "serve": serve,
    "heatmap": use.heatmap,
    "segment": use.segment,
    "caption": use.caption,
    "ask": use.ask,
    "locate": use.locate,
    "export": use.export,
    "doctor": doctor,
    "shards": {"check": data.check, "stats": data.stats, "show": shards_show},
    "prepare": PREPARE,
}


def main(words: list[str] | None = None) -> int:
    """Run one command; what the user can mend is said in a line, without a traceback."""
    words = sys.argv[1:] if words is None else words
    sys.argv[1:] = words  # results say which command made them, however it was called
    try:
        if words == ["--version"]:
            print(f"goldiclip {version('goldiclip')}")
            return 0
        return dispatch(COMMANDS, settings_first(words), "goldiclip", __doc__ or "") or 0
    except BrokenPipeError:  # whoever was reading has seen enough
        sys.stdout = None
        return 0
    except (FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        is_systems = error.strerror and error.filename is not None
        print(f"goldiclip: {f'{error.filename}: {error.strerror}' if is_systems else error}", file=sys.stderr)
        return 2
    except ConfigError as error:
        print(f"goldiclip: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
