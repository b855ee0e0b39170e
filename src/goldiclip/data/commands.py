"""The commands of shards and scenes, one short function each; what they need is imported when they run."""

from __future__ import annotations

from pathlib import Path

from tyro.conf import Positional


def check(
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


def stats(
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
    zoom: float = 1.0,
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
        zoom: how large things are, relative to what is usual; larger is easier
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
        zoom=zoom,
        occlusion=occlusion,
        rivals=rivals,
        cutouts=cutouts,
        backgrounds=backgrounds,
        per_shard=per_shard,
    )
    print(write_corpus(out, settings, workers, say=print))
