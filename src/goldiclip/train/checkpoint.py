"""Checkpoints that are whole or not there: sharded, written beside the training, renamed into place when complete.

    checkpoints/step-000001200/    a whole one: __*.distcp (torch.distributed.checkpoint), .metadata, state.json
    checkpoints/.step-000001300    one being written, or what a kill left of it; never read, removed at the next start

Tensors are kept under their full names whatever the layout was, so ranks and DDP or FSDP2 may change on resume.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import warnings
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as load_state
from torch.distributed.checkpoint.state_dict_saver import async_save

from goldiclip.config import ConfigError

SCHEMA = 1

# torch says so of every checkpoint of a run without ranks
warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")


class CheckpointError(ConfigError):
    """A checkpoint that cannot be written or read, and what to do about it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands. With the tensors, all there is to know: chance is a function of (seed, samples, rank)."""

    step: int = 0
    samples: int = 0
    seconds: float = 0.0  # spent training, over all attempts
    score: float | None = None  # held-out recall@1 of these weights, if it was measured
    best: float | None = None  # the highest score of the run so far
    start: float | None = None  # the score before the first step
    fingerprint: str = ""  # of the training data
    config: str = ""  # the run's YAML
    seed: int = 0
    ranks: int = 1
    layout: str = "ddp"
    versions: dict[str, str] = field(default_factory=dict)


def state_of(learner: nn.Module, optimizer: torch.optim.Optimizer | None) -> dict[str, Any]:
    """Every tensor of a run by its full name: student, teacher, prototypes, centres, σ, and the optimiser's moments."""
    state: dict[str, Any] = {"learner": learner.state_dict()}
    if optimizer is not None:
        names = {id(parameter): name for name, parameter in learner.named_parameters()}
        state["optimizer"] = {names[id(parameter)]: dict(held) for parameter, held in optimizer.state.items()}
    return state


def whole(folder: Path) -> list[Path]:
    """The complete checkpoints of a run's `checkpoints` folder, oldest first."""
    return sorted(path for path in folder.glob("step-*") if (path / "state.json").is_file())


def newest(run: Path) -> Path:
    """The newest checkpoint of a run folder, or the folder itself when it is one."""
    if (run / "state.json").is_file():
        return run
    found = whole(run / "checkpoints")
    if not found:
        raise FileNotFoundError(
            f"{run}: no whole checkpoint in {run / 'checkpoints'}; the run ended before its first one: "
            "begin it again with the command that started it and --requeue"
        )
    return found[-1]


def read_progress(path: Path) -> Progress:
    found = json.loads((path / "state.json").read_text())
    if found.pop("schema", None) != SCHEMA:
        raise CheckpointError(f"{path}: written by another version of goldiclip; this one reads schema {SCHEMA}")
    known = {item.name for item in fields(Progress)}
    return Progress(**{name: value for name, value in found.items() if name in known})


class Checkpoints:
    """Writes the checkpoints of one run, one at a time, while the training goes on."""

    def __init__(self, folder: Path, keep_last: int = 2, keep_best: int = 1) -> None:
        self.folder, self.keep_last, self.keep_best = folder, keep_last, keep_best
        self.is_first = not dist.is_initialized() or dist.get_rank() == 0
        # A group of its own: its exchanges happen in a thread, beside those of the training.
        self.group: Any = dist.new_group(backend="gloo") if dist.is_initialized() else None
        self.in_flight: tuple[Future[Any], Progress] | None = None
        if self.is_first:
            folder.mkdir(parents=True, exist_ok=True)
            for leftover in folder.glob(".step-*"):
                shutil.rmtree(leftover)

    def save(self, learner: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress) -> str | None:
        """Copy the state aside and write it in a thread. Returns a complaint about the one before, or None."""
        complaint = self.wait()
        path = self.folder / f".step-{progress.step:09d}"
        try:
            future: Any = async_save(
                state_of(learner, optimizer),
                storage_writer=FileSystemWriter(path),
                process_group=self.group,
                no_dist=self.group is None,
            )
        except OSError as error:
            return self._failed(progress, error)
        self.in_flight = (future, progress)
        return complaint

    def poll(self) -> str | None:
        """Put a finished checkpoint in its place; cheap enough for every step. Returns a complaint or None."""
        return self.wait() if self.in_flight and self.in_flight[0].done() else None

    def wait(self) -> str | None:
        """Finish the checkpoint being written. Returns a complaint, with what to do, or None when all is well."""
        if self.in_flight is None:
            return None
        (future, progress), self.in_flight = self.in_flight, None
        try:
            future.result()
            if self.is_first:
                self._put_in_place(progress)
        except (OSError, CheckpointException) as error:
            return self._failed(progress, error)
        return None

    def _put_in_place(self, progress: Progress) -> None:
        part = self.folder / f".step-{progress.step:09d}"
        place = self.folder / f"step-{progress.step:09d}"
        state = json.dumps({"schema": SCHEMA, **asdict(progress)}, indent=1)
        if (place / "state.json").is_file():  # the same step again: same tensors, so that nothing whole has to go first
            write_durably(place / "state.json", state)
            shutil.rmtree(part)
        else:
            write_durably(part / "state.json", state)
            part.rename(place)
            _sync(self.folder)
        self._prune()

    def _prune(self) -> None:
        found = whole(self.folder)
        scored = {path: read_progress(path).score for path in found}
        best = sorted((path for path in found if scored[path] is not None), key=lambda path: (scored[path], path))
        keep = {*found[-max(1, self.keep_last) :], *(best[-self.keep_best :] if self.keep_best else ())}
        for path in found:
            if path not in keep:
                going = path.rename(path.with_name(f".{path.name}"))
                shutil.rmtree(going)

    def _failed(self, progress: Progress, error: BaseException) -> str:
        if self.is_first:
            shutil.rmtree(self.folder / f".step-{progress.step:09d}", ignore_errors=True)
        found = whole(self.folder)
        last = f"the last whole one is {found[-1]}" if found else "there is no earlier one"
        free = shutil.disk_usage(self.folder).free / 1e9
        return (
            f"the checkpoint of step {progress.step} could not be written to {self.folder} ({_root(error)}; "
            f"{free:.1f} GB free there); {last}; nothing written before is lost; free space or mend the folder: "
            "the next one is tried when it is due"
        )


def _root(error: BaseException) -> str:
    """The innermost reason: torch wraps what each rank met."""
    if isinstance(error, CheckpointException) and error.failures:
        rank, (inner, _) = next(iter(error.failures.items()))
        return f"rank {rank}: {_root(inner)}"
    return str(error) or type(error).__name__


def load(path: Path, learner: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> Progress:
    """Read a checkpoint into `learner` and `optimizer`, in place, whatever layout wrote it."""
    state = state_of(learner, optimizer)
    reader = TensorReader(path)
    _check_sizes(path, state, reader.read_metadata())
    load_state(state, storage_reader=reader, no_dist=not dist.is_initialized())
    learner.load_state_dict(state["learner"])
    return read_progress(path)


def load_tensors(path: Path, prefix: str) -> dict[str, Tensor]:
    """The tensors of a checkpoint whose names begin with `prefix`, on the CPU, without building what they belong to."""
    reader = TensorReader(path)
    held = _tensors(reader.read_metadata())
    sizes = {name: item for name, item in held.items() if name.startswith(prefix)}
    tensors = {name: torch.empty(item.size, dtype=item.properties.dtype) for name, item in sizes.items()}
    load_state(tensors, storage_reader=reader, no_dist=True)
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def _tensors(metadata: Metadata) -> dict[str, TensorStorageMetadata]:
    held = metadata.state_dict_metadata
    return {name: item for name, item in held.items() if isinstance(item, TensorStorageMetadata)}


def _check_sizes(path: Path, state: dict[str, Any], metadata: Metadata) -> None:
    held = {name: tuple(item.size) for name, item in _tensors(metadata).items()}
    wanted = {name: tuple(tensor.shape) for name, tensor in _flat(state)}
    differs = [name for name, size in wanted.items() if held.get(name, size) != size]
    other = [f"{name} is {held[name]} there and {wanted[name]} here" for name in differs]
    missing = [f"{name} is missing there" for name in wanted if name not in held]
    extra = [f"{name} has no place here" for name in held if name not in wanted and name.startswith("learner.")]
    found = [*other, *missing, *extra]
    if found:
        raise CheckpointError(
            f"{path} was written by a model of other sizes or parts: {'; '.join(found[:3])}"
            f"{f' and {len(found) - 3} more' if len(found) > 3 else ''}; "
            "resume with the recipe of the run that wrote it (its config.yaml), or start a new run from it with --init"
        )


def _flat(state: dict[str, Any], prefix: str = "") -> list[tuple[str, Tensor]]:
    pairs: list[tuple[str, Tensor]] = []
    for name, value in state.items():
        pairs += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(f"{prefix}{name}", value)]
    return pairs


class TensorReader(FileSystemReader):
    """Reads tensors alone, and unpickles nothing but the names and sizes it expects: a foreign folder runs no code."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        path = Path(self.path) / ".metadata"
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing: {Path(self.path)} is no whole checkpoint")
        with path.open("rb") as file:
            metadata = _NamesAndSizes(file).load()
        if foreign := metadata.state_dict_metadata.keys() - _tensors(metadata).keys():
            raise CheckpointError(
                f"{path} holds {min(foreign)}, which is no tensor; goldiclip writes none such: not read"
            )
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class _NamesAndSizes(pickle.Unpickler):
    MODULES = ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")
    NAMES = (
        ("torch", "Size"),
        ("pathlib", "PosixPath"),
        ("pathlib", "WindowsPath"),
        ("torch.serialization", "_get_layout"),
    )

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):
            return _member
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_dtype or (module, name) in self.NAMES or (module in self.MODULES and "." not in name):
            return super().find_class(module, name)
        raise CheckpointError(f"a checkpoint's .metadata asks for {module}.{name}, which none of ours needs: not read")


def _member(owner: Any, name: str) -> Enum:
    """How early Pythons 3.11 pickle a member of an enumeration: by getattr, which here reaches nothing else."""
    if isinstance(owner, type) and issubclass(owner, Enum) and name in owner.__members__:
        return owner[name]
    raise CheckpointError(f"a checkpoint's .metadata asks for {name} of {owner}, which none of ours needs: not read")


def write_durably(path: Path, text: str) -> None:
    """Write a file whole or not at all: beside its place, synced, renamed."""
    part = path.with_name(f".{path.name}.part")
    with part.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
