"""A run's folder, and the rules that keep two runs from being taken for one.

    RUN/config.yaml   log.jsonl   checkpoints/   encoder/   report.html

A new run never enters a folder that holds one. A resumed run keeps its recipe; only what touches no number may change.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError

from goldiclip.config import Config, ConfigError, flatten, from_yaml, to_yaml
from goldiclip.train.checkpoint import newest, write_durably
from goldiclip.train.launch import is_restarted

# What a resumed run may change: how it computes, saves and shows, never what it learns from what.
CHANGEABLE = (
    "run.name",
    "run.micro_batch",
    "run.compile",
    "run.checkpoint_activations",
    "run.layout",
    "run.save_",
    "run.keep_",
    "run.evaluate_every_steps",
    "run.alarm_drop",
    "run.log_every_steps",
    "run.sinks",
    "data.workers",
    "data.cache_gigabytes",
    "data.train",  # the folder may have moved: the fingerprint tells whether the data did
    "data.held_out",
)


@dataclass(frozen=True, slots=True)
class RunFolder:
    path: Path
    resumes: bool

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def log(self) -> Path:
        return self.path / "log.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def start(self) -> Path:
        """The weights the run began from, where it needs them again at its end."""
        return self.path / "start"

    @property
    def encoder(self) -> Path:
        return self.path / "encoder"


def open_folder(
    config: Config, out: Path | None, resume: Path | None, requeue: bool = False
) -> tuple[RunFolder, Config]:
    """The folder of this run and the configuration it goes on with; an error when two runs would be mixed."""
    if resume is not None:
        return _resumed(resume, config)
    path = out or Path("runs") / (config.run.name or config.recipe.replace("/", "-") or "run")
    if (path / "config.yaml").exists():
        if requeue or (is_restarted(os.environ) and launched(path, "token") == launch_token(os.environ)):
            return _continued(path, config)
        raise FileExistsError(
            f"{path} holds a run already: continue it with --resume {path}, or name another folder with --out"
        )
    if path.exists() and any(entry.name != "launch.json" for entry in path.iterdir()):
        raise FileExistsError(f"{path} is not empty and holds no run: name another folder with --out")
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
        facts = {"token": launch_token(os.environ), "id": secrets.token_hex(4), "versions": versions()}
        write_durably(path / "launch.json", json.dumps(facts))
        write_durably(path / "config.yaml", to_yaml(config))
    return RunFolder(path, resumes=False), config


def _resumed(path: Path, config: Config) -> tuple[RunFolder, Config]:
    if (path / "model.safetensors").is_file():
        raise ConfigError(f"{path} is an encoder, no run: begin a new run from it with --init {path}")
    if not (path / "config.yaml").is_file():
        raise FileNotFoundError(f"{path} holds no run (no config.yaml): --resume takes the folder of an earlier run")
    newest(path)
    return _continued(path, config)


def _continued(path: Path, config: Config) -> tuple[RunFolder, Config]:
    """Go on in `path`: from its newest checkpoint, or from the start when it was stopped before the first."""
    before = from_yaml((path / "config.yaml").read_text(), str(path / "config.yaml"))
    changed = changes(before, config)
    forbidden = [name for name in changed if not name.startswith(CHANGEABLE)]
    if forbidden:
        told = "; ".join(f"{name} was {changed[name][0]} and is {changed[name][1]}" for name in forbidden[:4])
        raise ConfigError(
            f"{path / 'config.yaml'}: {told}: a resumed run keeps its recipe; leave that out, "
            f"or start a new run from these weights: --init {path} --out ANOTHER"
        )
    if not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise ConfigError(f"{path} cannot be written: mend it, or copy the run to a folder that can")
    return RunFolder(path, resumes=bool(list((path / "checkpoints").glob("step-*/state.json")))), config


def keep_config(folder: RunFolder, config: Config) -> None:
    """The settings that a resumed run goes on with, once its data and checkpoint have proven to fit them."""
    if folder.config.read_text() != (text := to_yaml(config)):
        write_durably(folder.config, text)


@contextmanager
def kept_once_begun(folder: RunFolder) -> Iterator[None]:
    """What goes wrong before the first record leaves no folder in the way of the next attempt. For the first rank."""
    try:
        yield
    except BaseException:
        if not folder.log.exists():
            for name in (folder.config.name, "launch.json"):
                (folder.path / name).unlink(missing_ok=True)
            for path in (folder.start, folder.checkpoints):
                shutil.rmtree(path, ignore_errors=True)
            with suppress(OSError):
                folder.path.rmdir()
        raise


@contextmanager
def writing(path: Path, remedy: str = "mend it, or name another folder with --out") -> Iterator[None]:
    """Say what cannot be written and what to do about it."""
    try:
        yield
    except (OSError, SafetensorError) as error:  # safetensors wraps the operating system's errors in its own kind
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be written ({reason}): {remedy}") from error


def changes(before: Config, after: Config) -> dict[str, tuple[object, object]]:
    """The settings in which two configurations differ."""
    was = dict(flatten(before))
    return {name: (was[name], value) for name, value in flatten(after) if was[name] != value}


def launched(path: Path, what: str) -> str | None:
    """What the launch that began a run left of itself: its job's `token`, and the run's own `id`."""
    file = path / "launch.json"
    return json.loads(file.read_text()).get(what) if file.is_file() else None


def launch_token(environment: Mapping[str, str]) -> str:
    """What a job's restarts have in common and two jobs have not."""
    run = environment.get("TORCHELASTIC_RUN_ID", "none")
    job = environment.get("SLURM_JOB_ID") or (run if run != "none" else None)
    return job or f"{socket.gethostname()}:{os.getppid()}"


def versions() -> dict[str, str]:
    """What wrote a run: kept in its checkpoints and its report."""
    return {
        "goldiclip": importlib.metadata.version("goldiclip"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
