"""Train, evaluate, use: `goldiclip COMMAND --help` says what a command takes."""

# One short function per command. Each imports what it needs when it runs, so that `--help` is immediate.

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro
from tyro.conf import Positional

from goldiclip.config import ConfigError
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


# --- shards ---------------------------------------------------------------------------------------------------------


def shards_check(
    paths: Positional[tuple[str, ...]],
    *,
    fast: bool = False,
    workers: int = 0,
    examples: int = 3,
    max_bad_share: float = 0.01,
) -> int:
    """Read shards as training would, count what is wrong by reason, say how to mend it. Fails if training would stop.

    Args:
        paths: Paths, folders, globs, brace ranges or URLs.
        fast: Read the headers of images only.
        workers: Processes; 0 takes the cores there are.
        examples: How many to name for each reason.
        max_bad_share: The share of bad samples that training is going to allow.
    """
    from goldiclip.data.doctor import diagnose
    from goldiclip.data.doctor_report import show
    from goldiclip.data.shards import Shards

    shards = Shards(paths)
    return show(shards, diagnose(shards, fast=fast, workers=workers, num_examples=examples), max_bad_share)


def shards_stats(
    paths: Positional[tuple[str, ...]],
    *,
    out: Path = Path("shards-stats.png"),
    samples: int = 20_000,
    workers: int = 0,
) -> None:
    """Captions, their lengths in tokens, images, boxes and questions: in numbers, and as a plot.

    Args:
        paths: Paths, folders, globs, brace ranges or URLs.
        out: Where to draw the plot.
        samples: How many to measure, evenly spread; 0 measures all.
        workers: Processes; 0 takes the cores there are.
    """
    from goldiclip.data.shards import Shards
    from goldiclip.data.statistics import measure, show
    from goldiclip.data.statistics_plot import plot

    shards = Shards(paths)
    statistics = measure(shards, samples, workers)
    show(shards, statistics)
    if statistics.samples:
        print(plot(statistics, out))


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


# --- the embedded corpus --------------------------------------------------------------------------------------------


def scenes(
    out: Positional[Path],
    count: int = 20_000,
    held_out: int = 1_000,
    size: int = 128,
    seed: int = 0,
    workers: int = 0,
    max_objects: int = 4,
    kinds: int = 0,
    repeats: float = 0.25,
    occlusion: float = 0.35,
    rivals: float = 0.12,
    per_shard: int = 500,
    cutouts: Path | None = None,
    backgrounds: Path | None = None,
) -> None:
    """Draw a corpus: training shards, held-out shards and six evaluation sets. Run again, it goes on where it stopped.

    Args:
        out: the folder to write
        count: scenes to train on
        held_out: scenes of the evaluation gallery, all of them things in combinations that training never shows
        size: width and height of every image, in pixels
        seed: another seed, another corpus
        workers: processes; 0 takes the cores there are
        max_objects: different things in one scene, at most; fewer is easier
        kinds: how many kinds of things there are; 0 takes all of them, fewer is easier
        repeats: share of things that come several at a time
        occlusion: share of scenes in which one thing partly hides another
        rivals: share of things whose neighbour is of the same kind in another colour
        per_shard: scenes in a shard
        cutouts: folder of named RGBA cut-outs to compose from, in place of drawings
        backgrounds: folder or tar of photographs to lay behind cut-outs
    """
    from goldiclip.data.scenes import Settings, write_corpus

    settings = Settings(
        count=count,
        held_out=held_out,
        size=size,
        seed=seed,
        max_objects=max_objects,
        kinds=kinds,
        repeats=repeats,
        occlusion=occlusion,
        rivals=rivals,
        cutouts=cutouts,
        backgrounds=backgrounds,
        per_shard=per_shard,
    )
    print(write_corpus(out, settings, workers, say=print))


# --- evaluation -----------------------------------------------------------------------------------------------------


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


# --- use ------------------------------------------------------------------------------------------------------------


def index(
    images: Positional[tuple[str, ...]],
    *,
    encoder: str,
    out: str = "images.index",
    precision: Literal["int8", "float16", "none"] = "int8",
    tokens: int = 0,
    update: bool = False,
    workers: int = 1,
    device: str = "auto",
) -> None:
    """Index pictures for search: `goldiclip index photos --encoder runs/first`. Run again, it goes on where it stopped.

    Args:
        images: Folders of images, image files, or shards.
        encoder: An encoder folder, a run, owner/model on the hub, or flair:, cosmos:, open_clip:FILE.
        out: A folder; or a path ending in .lance or a URL such as s3://bucket/index, for a Lance table.
        precision: Of the patches kept for the second look; none keeps nothing and reads the pictures again.
        tokens: Patches kept of each picture, as means of neighbours; 0 keeps them all.
        update: Replace what is there already.
        workers: Ray workers that build together; for Lance tables.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import build

    build(images, encoder, out, precision=precision, tokens=tokens, update=update, workers=workers, device=device)


def search(
    query: Positional[str] = "",
    *,
    index: str = "images.index",
    k: int = 10,
    image: Path | None = None,
    shortlist: int = 200,
    where: tuple[str, ...] = (),
    encoder: str = "",
    device: str = "auto",
) -> None:
    """Search an index: `goldiclip search "a red umbrella left of a dog" --k 10`.

    Args:
        query: What to look for; may be left out with --image.
        index: Where the index is.
        k: How many to show.
        image: A picture to look for, alone or together with the words.
        shortlist: How many of the first stage the second one looks at; 0 trusts the first.
        where: Only pictures whose records say so, as key=value, such as folder=holidays.
        encoder: The encoder, if it is no longer where it was when the index was made.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import open_index, parse_where, show_hits

    if not query and image is None:
        raise ConfigError("search: say what to look for, in words or with --image")
    found = open_index(index, encoder, device)
    print(show_hits(found.search(query or None, k, image=image, shortlist=shortlist, where=parse_where(where))))


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


def heatmap(
    image: Positional[Path],
    phrases: Positional[tuple[str, ...]],
    *,
    encoder: str,
    out: Path = Path("heatmap.png"),
    title: str = "",
    device: str = "auto",
) -> None:
    """Colour phrases over a picture, with and without the attention sink: `goldiclip heatmap dog.jpg "a dog" "grass"`.

    Args:
        image: A picture.
        phrases: What to look for in it.
        encoder: An encoder folder, a run, owner/model on the hub, or flair:FILE.
        out: Where to write the PNG.
        title: A line above.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import engine
    from goldiclip.inference.heatmap import draw_phrases, phrase_maps

    if not phrases:
        raise ConfigError("heatmap: name a phrase or several after the picture")
    draw_phrases(image, phrase_maps(engine(encoder, device), image, phrases), title).save(out)
    print(out)


def segment(
    image: Positional[Path],
    classes: Positional[tuple[str, ...]],
    *,
    encoder: str,
    out: Path = Path("segments.png"),
    mode: str = "",
    short_side: int = 336,
    title: str = "",
    device: str = "auto",
) -> None:
    """Divide a picture among classes, without training: `goldiclip segment beach.jpg sky sea sand "person, people"`.

    Args:
        image: A picture.
        classes: Names; synonyms of one class are parted by commas.
        encoder: An encoder folder, a run, owner/model on the hub, or flair:, cosmos:, open_clip:FILE.
        out: Where to write the PNG.
        mode: value, sink or attention; the first that the encoder has unless you say otherwise.
        short_side: What the picture's shorter side is resized to, for an encoder that sees 224 pixels.
        title: A line above.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import engine
    from goldiclip.inference.heatmap import draw_segments

    if not classes:
        raise ConfigError("segment: name two classes or more after the picture")
    found = engine(encoder, device).segment(image, classes, mode or None, short_side)
    draw_segments(image, found, title).save(out)
    for name, share in sorted(zip(found.names, found.shares), key=lambda pair: -pair[1]):
        print(f"{share:6.1%}  {name}")
    print(out)


def caption(images: Positional[tuple[Path, ...]], *, encoder: str, beams: int = 3, device: str = "auto") -> None:
    """Caption pictures, with the confidence of each.

    Args:
        images: Pictures.
        encoder: An encoder folder with its decoder, or a run.
        beams: Sentences followed side by side; 1 is greedy.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import engine

    if not images:
        raise ConfigError("caption: name a picture or several")
    for image, said in zip(images, engine(encoder, device).caption(images, beams)):
        print(f"{said.confidence:6.1%}  {image}  {said.text}")


def ask(
    image: Positional[Path], question: Positional[str], *, encoder: str, beams: int = 3, device: str = "auto"
) -> None:
    """Ask about a picture: `goldiclip ask dog.jpg "what colour is the dog?"`.

    Args:
        image: A picture.
        question: What to ask.
        encoder: An encoder folder with its decoder, or a run.
        beams: Answers followed side by side; 1 is greedy.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import engine

    (said,) = engine(encoder, device).ask(image, question, beams)
    print(f"{said.confidence:6.1%}  {said.text}")


def locate(
    image: Positional[Path],
    phrase: Positional[str],
    *,
    encoder: str,
    out: Path | None = None,
    beams: int = 3,
    device: str = "auto",
) -> None:
    """Say where a phrase is, as a box in pixels: `goldiclip locate dog.jpg "a red ball" --out box.png`.

    Args:
        image: A picture.
        phrase: What to find.
        encoder: An encoder folder with its decoder, or a run.
        out: Also draw it there.
        beams: Boxes followed side by side.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import engine
    from goldiclip.inference.heatmap import draw_box

    found = engine(encoder, device).locate(image, phrase, beams)
    print(f"{found.confidence:6.1%}  " + ", ".join(f"{corner:.0f}" for corner in found.box))
    if out is not None:
        draw_box(image, phrase, found).save(out)
        print(out)


def export(
    model: Positional[str],
    *,
    out: Path = Path("export"),
    formats: tuple[str, ...] = ("encoder", "open_clip", "transformers", "onnx"),
    index: str = "",
    pictures: Path | None = None,
) -> None:
    """Write a model for other programs, with size, parity and speed of each in a table.

    Args:
        model: An encoder folder, a run, owner/model on the hub, or flair:, open_clip:FILE.
        out: A folder; each format gets one of its own in it.
        formats: encoder (ours, without decoder), open_clip, transformers, onnx, vectors.
        index: For vectors: the index whose text-agnostic vectors to write, at 8 bits.
        pictures: A retrieval set such as corpus/eval/retrieval.json, to compare on instead of noise; tells recall too.
    """
    from goldiclip.inference.command import export_model, show_exports

    print(show_exports(export_model(model, out, formats, index, pictures)))


# --- dispatch -------------------------------------------------------------------------------------------------------

# In help: positional words by their names, switches without their opposites, no word for what is left out.
READABLE = (tyro.conf.PositionalMetavarFromFieldName, tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone)

# A command, or a group of commands as a dict of its own.
COMMANDS: dict[str, Callable[..., int | None] | dict[str, Callable[..., int | None]]] = {
    "demo": demo,
    "recipes": recipes,
    "config": config,
    "scenes": scenes,
    "train": train,
    "replay": replay,
    "plan": plan,
    "evaluate": evaluate,
    "compare": compare,
    "report": report,
    "index": index,
    "search": search,
    "serve": serve,
    "heatmap": heatmap,
    "segment": segment,
    "caption": caption,
    "ask": ask,
    "locate": locate,
    "export": export,
    "doctor": doctor,
    "shards": {"check": shards_check, "stats": shards_stats, "show": shards_show},
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
        return _dispatch(COMMANDS, settings_first(words), "goldiclip", __doc__ or "") or 0
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


def settings_first(words: list[str]) -> list[str]:
    """Settings (`optim.lr=1e-3`) may stand anywhere: here they move before the options, where tyro wants them."""
    if words[:1] not in (["train"], ["plan"]) and words[:2] != ["shards", "show"]:
        return words
    options = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    late = [word for word in words[options:] if re.match(r"\w+(\.\w+)+=", word)]
    return [*words[:options], *late, *(word for word in words[options:] if word not in late)]


def _dispatch(commands: Any, words: list[str], program: str, about: str) -> int | None:
    words = words or ["--help"]
    name = words[0]
    if name not in commands and not name.startswith("-"):
        near = difflib.get_close_matches(name, commands, n=3)
        nearest = f"nearest: {', '.join(near)}; " if near else ""
        raise ConfigError(f"{program} {name} is no command; {nearest}there are {', '.join(commands)}")
    if isinstance(commands.get(name), dict):
        group = commands[name]
        return _dispatch(group, words[1:], f"{program} {name}", f"`{program} {name} COMMAND --help` says more of each.")
    listed = {name: _listing(name, item) if isinstance(item, dict) else item for name, item in commands.items()}
    if name in commands:
        _annotate(commands[name])
    return tyro.extras.subcommand_cli_from_dict(listed, args=words, prog=program, description=about, config=READABLE)


def _annotate(command: Callable[..., int | None]) -> None:
    """In help: what may be left out has no value worth showing, and of what is needed one is enough."""
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        is_needed = parameter.default is parameter.empty
        if is_needed and "tuple[" in str(hints[name]):
            hints[name] = Annotated[hints[name], tyro.conf.arg(help_behavior_hint="(one or more)")]
        elif parameter.default in (None, "", ()):
            hints[name] = Annotated[hints[name], tyro.conf.arg(help_behavior_hint="")]
    command.__annotations__ = hints


def _listing(name: str, group: dict[str, Callable[..., int | None]]) -> Callable[[], None]:
    """A group as it stands in the list of commands."""

    def show() -> None:
        raise ConfigError(f"{name}: say which of {', '.join(group)}")

    show.__doc__ = f"A group: {', '.join(group)}."
    return show


if __name__ == "__main__":
    sys.exit(main())
