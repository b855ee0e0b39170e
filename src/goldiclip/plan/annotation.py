"""What annotating a corpus costs: `goldiclip plan annotate --samples 30000000 --gpus 8`.

A detector's time is its arithmetic; a language model's is reading the prompts, which is arithmetic, and writing the
answers, where each step moves all weights and every sequence's keys and values through memory once.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from goldiclip.config import ConfigError
from goldiclip.plan.arithmetic import transformer
from goldiclip.plan.devices import Device, device_named


@dataclass(frozen=True, slots=True)
class DetectorSizes:
    """An open-vocabulary detector: a vision transformer over many patches, a text transformer over each phrase."""

    image: int
    patch: int
    width: int
    depth: int
    text_width: int
    text_context: int = 16

    def flops(self, phrases: float) -> float:
        """Of one image with so many phrases."""
        patches = (self.image // self.patch) ** 2
        seen = transformer(patches + 1, patches + 1, self.width, self.depth, 4 * self.width)
        stem = 2 * patches * 3 * self.patch**2 * self.width
        heads = 2 * patches * (5 * self.width**2 + self.width * self.text_width)  # boxes, classes, objectness
        read = transformer(self.text_context, self.text_context / 2, self.text_width, 12, 4 * self.text_width)
        return seen + stem + heads + phrases * read


@dataclass(frozen=True, slots=True)
class WriterSizes:
    """A decoder-only language model in bf16."""

    billions: float
    width_of_cache: int  # keys and values of one token in one layer, in numbers
    depth: int

    @property
    def weight_bytes(self) -> float:
        return 2e9 * self.billions

    @property
    def cache_bytes(self) -> float:
        """Of one token."""
        return 2.0 * self.width_of_cache * self.depth


DETECTORS = {
    "owlv2-base": DetectorSizes(960, 16, 768, 12, 512),
    "owlv2-large": DetectorSizes(1008, 14, 1024, 24, 768),
}
WRITERS = {
    "phi-3.5-mini": WriterSizes(3.82, 2 * 3072, 32),
    "7b": WriterSizes(7.6, 2 * 512, 28),  # Qwen2.5-7B-Instruct's, whose heads share keys and values
}
NONE = "none"
PAPER_SAMPLES = 30_000_000

# What of a maker's peak is reached: assumptions, on the careful side; `benchmarks/prepare.py --models` measures.
DETECTOR_SHARE = 0.35
READING_SHARE = 0.4
WRITING_SHARE = 0.45  # of the memory's bandwidth
# One core, samples a second, by `benchmarks/prepare.py`: decoding, phrases, templates, reading and writing shards.
SAMPLES_PER_CORE = 500.0


@dataclass(frozen=True, slots=True)
class Annotation:
    """What is planned. Prompt and answer are in tokens: the paper's prompt with a short caption, five short pairs."""

    detector: str = "owlv2-base"
    writer: str = "phi-3.5-mini"
    phrases: float = 8.0
    prompt: float = 130.0
    answer: float = 110.0
    batch: int = 256  # sequences in flight on one GPU

    def changed(self, words: Sequence[str]) -> Annotation:
        """With key=value words; an unknown key or model names the nearest."""
        kinds = {item.name: str if item.name in ("detector", "writer") else float for item in fields(self)}
        found = self
        for word in words:
            name, _, value = word.partition("=")
            if name not in kinds:
                near = difflib.get_close_matches(name, kinds, n=1)
                said = f"did you mean {near[0]}? " if near else ""
                raise ConfigError(f"plan annotate: {word}: {said}expected {', '.join(f'{key}=' for key in kinds)}")
            found = replace(found, **{name: _typed(kinds[name], word, value)})  # type: ignore[arg-type]
        for name, known in (("detector", DETECTORS), ("writer", WRITERS)):
            if getattr(found, name) not in (*known, NONE):
                raise ConfigError(f"plan annotate: {name}={getattr(found, name)}: expected {', '.join([*known, NONE])}")
        return found

    def seconds(self, device: Device) -> dict[str, float]:
        """GPU seconds of one sample, by stage."""
        found = {}
        if self.detector != NONE:
            found["boxes"] = DETECTORS[self.detector].flops(self.phrases) / (1e12 * device.teraflops * DETECTOR_SHARE)
        if self.writer != NONE:
            found["questions: read the prompt"] = self._reading(device)
            found["questions: write the answer"] = self._writing(device)
        return found

    def _reading(self, device: Device) -> float:
        return 2e9 * WRITERS[self.writer].billions * self.prompt / (1e12 * device.teraflops * READING_SHARE)

    def _writing(self, device: Device) -> float:
        """As many steps as tokens, each for a whole batch: limited by memory, or by arithmetic for a large one."""
        writer = WRITERS[self.writer]
        moved = writer.weight_bytes + self.batch * writer.cache_bytes * (self.prompt + self.answer / 2)
        memory = moved / (1e12 * device.terabytes_per_second * WRITING_SHARE)
        arithmetic = 2e9 * writer.billions * self.batch / (1e12 * device.teraflops * READING_SHARE)
        return self.answer * max(memory, arithmetic) / self.batch


def _typed(kind: type, word: str, value: str) -> str | float:
    try:
        found: str | float = kind(value)
    except ValueError as error:
        raise ConfigError(f"plan annotate: {word}: expected a number") from error
    if isinstance(found, float) and not (found > 0 and math.isfinite(found)):
        raise ConfigError(f"plan annotate: {word}: expected a number above 0")
    return found


def plan_annotation(words: Sequence[str], *, gpus: int, gpu: str, samples: int, dollars_per_hour: float | None) -> None:
    """`goldiclip plan annotate`."""
    if gpus < 1 or samples < 0:
        raise ConfigError(f"--gpus is {gpus}, --samples is {samples}; expected at least 1 and 0")
    plan = Annotation().changed(words)
    show_annotation(plan, device_named(gpu), gpus, samples or PAPER_SAMPLES, dollars_per_hour)


def show_annotation(
    plan: Annotation,
    device: Device,
    gpus: int,
    samples: int,
    dollars_per_hour: float | None = None,
    console: Console | None = None,
) -> None:
    """By stage: GPU seconds, rate, hours, money; then the whole, and the cores that keep up with it."""
    console = console or Console()
    price = device.dollars_per_hour if dollars_per_hour is None else dollars_per_hour
    seconds = plan.seconds(device)
    console.print(Text(f"annotating {samples:,} samples on {gpus} × {device.name} (a prediction)\n", style="bold"))
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for number, column in enumerate(("stage", "ms/sample and GPU", "samples/s", "hours", "cost")):
        table.add_column(column, justify="left" if number == 0 else "right")
    for name, each in [*seconds.items(), ("all", sum(seconds.values()))]:
        hours = samples * each / gpus / 3600
        rate = f"{gpus / each:,.0f}" if each else "–"
        table.add_row(name, f"{1e3 * each:.2f}", rate, f"{hours:,.1f}", f"${hours * gpus * price:,.0f}")
    console.print(table)
    console.print(_cores(sum(seconds.values()), gpus, samples))


def _cores(each: float, gpus: int, samples: int) -> str:
    """What runs without a model: decoding, phrases, reading and writing."""
    alone = samples / SAMPLES_PER_CORE / 3600
    said = f"\nwithout models: {alone:,.0f} core-hours at {SAMPLES_PER_CORE:.0f} samples/s and core"
    return f"{said}; to keep up with the GPUs: {math.ceil(gpus / each / SAMPLES_PER_CORE):,}" if each else said
