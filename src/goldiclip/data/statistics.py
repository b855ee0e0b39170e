"""What shards hold, in numbers: captions and their lengths in tokens, images, boxes, questions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from goldiclip.data.captions import split_sentences
from goldiclip.data.decode import image_size
from goldiclip.data.many import in_processes, progress
from goldiclip.data.schema import BadSample
from goldiclip.data.shards import Shards
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.types import CAPTION_SOURCES, Sample

CONTEXT = 77
CHUNK = 256
_MOST_COMMON = 2_000  # distinct phrases and answers each part reports


@dataclass
class Statistics:
    """Plain lists of measurements; two of them add up to one."""

    bad: Counter[str] = field(default_factory=Counter)
    sizes: list[tuple[int, int]] = field(default_factory=list)  # width, height
    image_bytes: list[int] = field(default_factory=list)
    num_captions: dict[str, list[int]] = field(default_factory=lambda: {source: [] for source in CAPTION_SOURCES})
    sentences: dict[str, list[int]] = field(default_factory=lambda: {source: [] for source in CAPTION_SOURCES})
    tokens: dict[str, list[int]] = field(default_factory=lambda: {source: [] for source in CAPTION_SOURCES})
    caption_hashes: list[bytes] = field(default_factory=list)
    num_regions: list[int] = field(default_factory=list)
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    phrases: Counter[str] = field(default_factory=Counter)
    num_questions: list[int] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)

    @property
    def samples(self) -> int:
        return len(self.sizes)

    def add(self, other: Statistics) -> None:
        for name, mine in vars(self).items():
            theirs = getattr(other, name)
            if isinstance(mine, list):
                mine.extend(theirs)
            elif isinstance(mine, Counter):
                mine.update(theirs)
            else:
                for source, values in theirs.items():
                    mine[source].extend(values)

    def truncated(self, source: str) -> float:
        """The share of a source's captions that lose tokens when encoded whole."""
        return float(np.mean(np.array(self.tokens[source]) > CONTEXT)) if self.tokens[source] else 0.0

    @property
    def repeated(self) -> float:
        """The share of captions whose text stands elsewhere too."""
        times = Counter(self.caption_hashes)
        return sum(count for count in times.values() if count > 1) / max(len(self.caption_hashes), 1)


def measure(shards: Shards, num_samples: int = 0, workers: int = 0) -> Statistics:
    """Statistics of `num_samples` samples evenly spread over the shards; of all of them when 0."""
    rows = np.arange(len(shards))
    if 0 < num_samples < len(shards):
        rows = np.linspace(0, len(shards) - 1, num_samples).round().astype(np.int64)
    chunks = [rows[first : first + CHUNK] for first in range(0, len(rows), CHUNK)]
    total = Statistics()
    for part in progress(in_processes(_measure_rows, shards, chunks, workers), "measuring", len(chunks)):
        total.add(part)
    return total


def _measure_rows(shards: Shards, rows: NDArray[np.int64]) -> Statistics:
    statistics = Statistics()
    for row in rows.tolist():
        try:
            sample = shards[row]
            size = image_size(sample.image)
        except BadSample as error:
            statistics.bad[error.reason] += 1
            continue
        statistics.sizes.append(size)
        _measure_sample(sample, statistics)
    for counter in (statistics.phrases, statistics.answers):
        if len(counter) > _MOST_COMMON:
            kept = counter.most_common(_MOST_COMMON)
            counter.clear()
            counter.update(dict(kept))
    return statistics


def _measure_sample(sample: Sample, statistics: Statistics) -> None:
    statistics.image_bytes.append(len(sample.image))
    per_source = Counter(caption.source for caption in sample.captions)
    for source in CAPTION_SOURCES:
        statistics.num_captions[source].append(per_source[source])
    for caption in sample.captions:
        statistics.sentences[caption.source].append(len(split_sentences(caption.text)))
        statistics.tokens[caption.source].append(len(_tokenizer().tokens(caption.text)) + 2)
        statistics.caption_hashes.append(hashlib.blake2b(caption.text.encode(), digest_size=8).digest())
    statistics.num_regions.append(len(sample.regions))
    statistics.boxes.extend(region.box for region in sample.regions)
    statistics.scores.extend(region.score for region in sample.regions)
    statistics.phrases.update(region.phrase.lower() for region in sample.regions)
    statistics.num_questions.append(len(sample.questions))
    statistics.kinds.update(question.kind or "unnamed" for question in sample.questions)
    statistics.answers.update(question.answer.lower() for question in sample.questions)


@lru_cache(maxsize=1)
def _tokenizer() -> Tokenizer:
    return Tokenizer(CONTEXT)


# --- as text --------------------------------------------------------------------------------------------------------


def show(shards: Shards, statistics: Statistics, console: Console | None = None) -> None:
    """Print the numbers."""
    console = console or Console(highlight=False)
    measured = f"{statistics.samples:,} measured" if statistics.samples < len(shards) else "all measured"
    size = float(shards.sizes.sum())
    console.print(f"{len(shards):,} samples in {len(shards.paths):,} shards of {size / 1e9:.2f} GB; {measured}")
    for reason, count in statistics.bad.most_common():
        console.print(f"  [red]{count:,} × {reason}[/]; see `goldiclip shards check`")
    if not statistics.samples:
        return
    console.print(_captions_table(statistics))
    console.print(f"captions whose text stands elsewhere too: {statistics.repeated:.1%}")
    console.print(_spread_table(statistics))
    for title, counter in (
        ("phrases", statistics.phrases),
        ("questions", statistics.kinds),
        ("answers", statistics.answers),
    ):
        if counter:
            most = ", ".join(f"{name} {count:,}" for name, count in counter.most_common(10))
            console.print(f"[bold]{title}[/] {most}", markup=True)


def _table(first: str, *others: str) -> Table:
    table = Table(first, box=SIMPLE_HEAD, pad_edge=False)
    for name in others:
        table.add_column(name, justify="right")
    return table


def _captions_table(statistics: Statistics) -> Table:
    table = _table("captions", "present", "each", "sentences", "tokens", "95 %", "longest", f"over {CONTEXT}")
    for source in CAPTION_SOURCES:
        per_sample, tokens = np.array(statistics.num_captions[source]), statistics.tokens[source]
        if tokens:
            middle, high, longest = np.percentile(tokens, [50, 95, 100])
            table.add_row(
                source,
                f"{(per_sample > 0).mean():.1%}",
                f"{per_sample.mean():.2f}",
                f"{np.mean(statistics.sentences[source]):.1f}",
                *(f"{value:.0f}" for value in (middle, high, longest)),
                f"{statistics.truncated(source):.1%}",
            )
    return table


def _spread_table(statistics: Statistics) -> Table:
    table = _table("", "5 %", "median", "95 %", "mean")
    sizes = np.array(statistics.sizes)
    boxes = np.array(statistics.boxes).reshape(-1, 4)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    rows: list[tuple[str, Sequence[float] | NDArray[np.float64], str]] = [
        ("image width, pixels", sizes[:, 0], ",.0f"),
        ("image height, pixels", sizes[:, 1], ",.0f"),
        ("image, kilobytes", np.array(statistics.image_bytes) / 1e3, ",.1f"),
        ("regions per image", statistics.num_regions, ".1f"),
        ("box area, share of the image", areas, ".1%"),
        ("box score", statistics.scores, ".2f"),
        ("questions per image", statistics.num_questions, ".1f"),
    ]
    for name, values, form in rows:
        if len(values) and np.max(values) > 0:
            shown = (*np.percentile(values, [5, 50, 95]), np.mean(values))
            table.add_row(name, *(f"{value:{form}}" for value in shown))
    return table
