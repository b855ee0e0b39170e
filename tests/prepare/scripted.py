"""A detector and a writer with known answers, and ways for a worker to die: importable by processes and actors."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from goldiclip.types import Region


@dataclass(frozen=True)
class ScriptedDetector:
    """Finds every phrase where its letters say, in every image."""

    fingerprint: Mapping[str, Any]

    def detect(self, images: Sequence[Tensor], phrases: Sequence[Sequence[str]]) -> list[list[Region]]:
        return [[Region(text, box_of(text), "", 0.9) for text in texts] for texts in phrases]


def box_of(phrase: str) -> tuple[float, float, float, float]:
    x, y = len(phrase) % 5 / 10, sum(map(ord, phrase)) % 5 / 10
    return (x, y, x + 0.25, y + 0.5)


def find_by_script(device: str) -> ScriptedDetector:
    return ScriptedDetector({"detector": "scripted"})


@dataclass(frozen=True)
class ScriptedWriter:
    """Asks what the caption begins with."""

    fingerprint: Mapping[str, Any]

    def write(self, prompts: Sequence[str], counts: Counter[str]) -> list[str | None]:
        captions = [prompt.split('"')[1] for prompt in prompts]
        return [f"Q: What does this show first?\nA: {' '.join(caption.split()[:2])}" for caption in captions]


def write_by_script(device: str) -> ScriptedWriter:
    return ScriptedWriter({"writer": "scripted"})


@dataclass(frozen=True)
class DieOnce:
    """A stage that kills its own process at the first sample whose key ends so, but only the first `times` times."""

    suffix: str
    marks: Path
    times: int = 1
    name: str = "die"
    needs_device: bool = False

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return {"version": 1}

    def open(self, device: str) -> Any:
        def work(samples: Sequence[Any], counts: Counter[str]) -> list[Any]:
            if any(sample.key.endswith(self.suffix) for sample in samples):
                for number in range(self.times):
                    mark = self.marks / f"died-{number}"
                    if not mark.exists():
                        mark.touch()
                        os.kill(os.getpid(), signal.SIGKILL)
            return list(samples)

        return work


@dataclass(frozen=True)
class Fail:
    """A stage that raises what it is told to."""

    error: type[Exception]
    message: str = ""
    number: int = 0
    name: str = "fail"
    needs_device: bool = False

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return {"version": 1}

    def open(self, device: str) -> Any:
        def work(samples: Sequence[Any], counts: Counter[str]) -> list[Any]:
            raise self.error(self.number, self.message) if self.number else self.error(self.message)

        return work


@dataclass(frozen=True)
class WhereItRuns:
    """A stage that notes on which node of a cluster it works, and takes a little while."""

    marks: Path
    name: str = "where"
    needs_device: bool = False

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return {"version": 1}

    def open(self, device: str) -> Any:
        import ray

        (self.marks / f"node-{ray.get_runtime_context().get_node_id()}").touch()
        return lambda samples, counts: list(samples)
