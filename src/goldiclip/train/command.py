"""What the commands `train` and `plan` do with their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from goldiclip import plan
from goldiclip.config import Config, ConfigError, from_yaml, override, resolve
from goldiclip.recipes import recipe as named

# Samples of one epoch of the sets that recipes are named after, for plans made before the data is at hand.
KNOWN_SAMPLES = {"cc3m": 2_823_019, "open30m": 30_000_000}


def requested(recipe: str, words: Sequence[str], resume: Path | None = None) -> Config:
    """The configuration that a recipe or a YAML file and some key=value words ask for."""
    if "=" in recipe:
        recipe, words = "", [recipe, *words]
    if recipe.endswith((".yaml", ".yml")):
        config = _read(Path(recipe))
    elif recipe:
        config = named(recipe)
    elif resume is not None:
        config = _read(resume / "config.yaml")
    else:
        raise ConfigError("say which recipe to train (`goldiclip recipes` lists them) or which run to --resume")
    return resolve(override(config, words))


def _read(path: Path) -> Config:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected a configuration, or the folder of a run")
    return from_yaml(path.read_text(), str(path))


def run(
    recipe: str,
    words: Sequence[str],
    *,
    out: Path | None,
    resume: Path | None,
    init: str,
    requeue: bool,
    dry_run: bool,
) -> None:
    """`goldiclip train`."""
    from goldiclip.data.loader import LoaderStopped, TooManyBad
    from goldiclip.train.loop import train

    if resume is not None and (init or out is not None):
        raise ConfigError("--resume goes on with a run; --init and --out begin a new one: give one or the other")
    config = requested(recipe, words, resume)
    try:
        if dry_run:
            from goldiclip.train.dry import dry_run as rehearse

            rehearse(config, init=init or None)
        else:
            train(config, out=out, resume=resume, init=init or None, requeue=requeue)
    except (TooManyBad, LoaderStopped) as error:
        raise ConfigError(str(error)) from error


def show_plan(
    recipe: str, words: Sequence[str], *, gpus: int, gpu: str, samples: int, dollars_per_hour: float | None
) -> None:
    """`goldiclip plan`."""
    config = requested(recipe, words)
    if gpus < 1 or gpus > config.run.batch:
        raise ConfigError(f"--gpus is {gpus}; allowed: 1 to run.batch, {config.run.batch}")
    device = plan.device_named(gpu)
    length = run_length(config, samples)
    found = plan.estimate(config, device, gpus, length, dollars_per_hour=dollars_per_hour)
    plan.show(found)
    if not found.fits and found.largest_micro_batch:
        run_settings = replace(config.run, micro_batch=found.even_micro_batch)
        fitting = replace(config, run=run_settings)
        print(f"\nwith run.micro_batch={found.even_micro_batch}:\n")
        plan.show(plan.estimate(fitting, device, gpus, length, dollars_per_hour=dollars_per_hour))


def run_length(config: Config, samples: int) -> int:
    """Samples of the whole run: counted in the shards where they are at hand, else as said, else as known."""
    if config.run.samples:
        return config.run.samples
    if not samples and config.data.train:
        from goldiclip.data.loader import open_sources

        samples = sum(int(sum(source.lengths)) for source in open_sources(config))
    samples = samples or KNOWN_SAMPLES.get(config.recipe.split("/")[0], 0)
    if not samples:
        raise ConfigError("how long is an epoch? give data.train=SHARDS, --samples N or run.samples=N")
    return round(config.run.epochs * samples)
