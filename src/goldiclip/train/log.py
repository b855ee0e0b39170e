"""The log of a run: one JSON record per step in RUN/log.jsonl, and the same numbers to whoever else listens.

A record that tells of something else (a checkpoint, a spike, held-out recall, an alarm) has the key `event`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from goldiclip.config import Config, ConfigError, flatten
from goldiclip.train.folder import launched

Record = Mapping[str, Any]
Sink = Callable[[Record], None]


class Log:
    """Appends whole lines: a record is on disk or it is not, also when the disk is full or the process is killed."""

    def __init__(self, path: Path, sinks: tuple[Sink, ...] = (), complain: Callable[[str], None] = print) -> None:
        self.path, self.sinks, self.complain = path, sinks, complain
        self.handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.size = _mend(path)
        self.lost = 0

    def write(self, record: Record) -> None:
        line = (json.dumps(_finite(record)) + "\n").encode()
        try:
            written = os.write(self.handle, line)
            if written < len(line):
                raise OSError("no room for the whole record")
            self.size += written
        except OSError as error:
            os.ftruncate(self.handle, self.size)
            self.lost += 1
            if self.lost == 1:
                self.complain(f"{self.path}: {error}; the run goes on, its records are lost until there is room")
        for sink in self.sinks:
            self._try(sink, partial(sink, record))

    def close(self) -> None:
        os.close(self.handle)
        for sink in self.sinks:
            self._try(sink, getattr(sink, "close", lambda: None))

    def _try(self, sink: Sink, act: Callable[[], None]) -> None:
        """Listeners come second: one that meets a full disk or a lost network is left behind, and the run goes on."""
        try:
            act()
        except Exception as error:
            self.sinks = tuple(other for other in self.sinks if other is not sink)
            name = getattr(sink, "__name__", type(sink).__name__)
            with contextlib.suppress(OSError):  # nor does a terminal that has gone away stop anything
                self.complain(f"{name}: {error}; the run goes on, without it from here")


def _mend(path: Path) -> int:
    """Cut off a torn last line; returns the size in bytes."""
    content = path.read_bytes()
    size = content.rfind(b"\n") + 1
    if size < len(content):
        os.truncate(path, size)
    return size


def _finite(value: Any) -> Any:
    """JSON knows no NaN and no infinity: they become words that a reader can tell from numbers."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a run, oldest first; a line still being written is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def cut_log(path: Path, step: int) -> int:
    """Take the records after `step` out of the log of a run that goes on there; log.abandoned.jsonl keeps them."""
    if not path.exists():
        return 0
    kept = 0
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n") or json.loads(line).get("step", 0) > step:
                break
            kept += len(line)
        file.seek(kept)
        tail = file.read()
    if tail:
        with path.with_name("log.abandoned.jsonl").open("ab") as abandoned:
            abandoned.write(tail)
            abandoned.flush()
            os.fsync(abandoned.fileno())
        os.truncate(path, kept)
    return tail.count(b"\n")


def open_sinks(config: Config, folder: Path, step: int) -> tuple[Sink, ...]:
    """The listeners that `run.sinks` names; `step` is where a resumed run begins."""
    makers: dict[str, Callable[[Config, Path, int], Sink]] = {
        "tensorboard": TensorBoard,
        "wandb": _wandb,
        "trackio": _trackio,
    }
    return tuple(makers[name](config, folder, step) for name in config.run.sinks)


class TensorBoard:
    """RUN/tensorboard: every number of every record, under its path in the record."""

    def __init__(self, config: Config, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1 if step else None)

    def __call__(self, record: Record) -> None:
        for name, value in numbers(record):
            self.writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self.writer.close()


def _wandb(config: Config, folder: Path, step: int) -> Sink:
    return _tracker("wandb", config, folder)


def _trackio(config: Config, folder: Path, step: int) -> Sink:
    return _tracker("trackio", config, folder)


def _tracker(package: str, config: Config, folder: Path) -> Sink:
    """W&B and trackio share their interface: init, log, finish. Folder and id make one run of all its restarts."""
    import importlib

    try:
        tracker = importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(f"run.sinks names {package}, which is not installed: pip install {package}") from error
    settings = {name: str(value) for name, value in flatten(config)}
    name = f"{folder.name}-{launched(folder, 'id')}"  # another folder of the same name is another run
    own: dict[str, Any] = {"id": name, "dir": str(folder)} if package == "wandb" else {}
    run = tracker.init(project="goldiclip", name=name, config=settings, resume="allow", **own)

    def write(record: Record) -> None:
        run.log(dict(numbers(record)), step=record["step"])

    write.__name__ = package
    write.close = run.finish  # type: ignore[attr-defined]
    return write


def numbers(record: Record, prefix: str = "") -> Iterator[tuple[str, float]]:
    """The numbers of a record as (path, value): `terms/ret`."""
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{prefix}{name}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and name not in ("step", "batch_hash"):
            yield prefix + name, float(value)
