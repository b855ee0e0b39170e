"""The shards' doctor: reads everything a training would read, and says beforehand what it would choke on."""

from __future__ import annotations

import difflib
import hashlib
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from goldiclip.data.captions import split_sentences
from goldiclip.data.decode import MAX_PIXELS, MIN_SIDE, decode_image, image_size
from goldiclip.data.many import in_processes, progress
from goldiclip.data.schema import OWN_KEYS, BadSample
from goldiclip.data.shards import Shards
from goldiclip.types import Sample

# sample: training takes another in its place. part: training goes on without it. archive: of a shard as a whole.
Severity = Literal["sample", "part", "archive", "note"]

CHUNK = 256
_MAX_META_KEYS = 200
_TEXT_KEYS = (*OWN_KEYS, "caption", "raw_caption")


@dataclass
class Finding:
    """One thing found wrong: how often, and where the first few are."""

    severity: Severity
    count: int = 0
    examples: list[str] = field(default_factory=list)
    remedy: str = ""  # what to do about it, where the doctor's book does not know


@dataclass
class Diagnosis:
    """What was found in some samples; two of them add up to one."""

    num_examples: int = 3
    samples: int = 0
    bad: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)
    has: Counter[str] = field(default_factory=Counter)  # good samples with each kind of supervision
    meta_keys: Counter[str] = field(default_factory=Counter)
    key_hashes: list[bytes] = field(default_factory=list)  # eight bytes a sample, in order

    def find(self, severity: Severity, reason: str, example: str, count: int = 1) -> None:
        found = self.findings.setdefault(reason, Finding(severity))
        found.count += count
        if len(found.examples) < self.num_examples:
            found.examples.append(example)

    def add(self, other: Diagnosis) -> None:
        self.samples += other.samples
        self.bad += other.bad
        self.has += other.has
        self.meta_keys += other.meta_keys
        self.key_hashes.append(b"".join(other.key_hashes))
        for reason, found in other.findings.items():
            for example in found.examples:
                self.find(found.severity, reason, example, 0)
            self.findings[reason].count += found.count

    def chokes(self, max_bad_share: float) -> str:
        """Why training on these shards would stop; empty when it would not."""
        if self.bad == self.samples:
            return "not one sample is good"
        if self.bad > max_bad_share * self.samples:
            share = self.bad / self.samples
            return f"{share:.2%} of the samples are bad, and data.max_bad_share allows {max_bad_share:.2%}"
        return ""

    @property
    def terms(self) -> dict[str, int]:
        """For each training signal, how many samples can feed it."""
        every = self.samples - self.bad
        regions = self.has["regions"]
        return {"ret": every, "cap": every, "ref": regions, "grd": regions, "vqa": self.has["questions"], "sd": every}


def diagnose(
    shards: Shards,
    *,
    fast: bool = False,
    workers: int = 0,
    num_examples: int = 3,
    also: Callable[[Sample, Diagnosis], None] | None = None,
) -> Diagnosis:
    """Read every sample; decode every image unless `fast`. `workers` 0 takes as many as there are cores to use.

    `also` looks at every good sample too, and adds what it finds.
    """
    diagnosis = Diagnosis(num_examples)
    _examine_archives(shards, diagnosis)
    chunks = list(_chunks(shards.lengths.tolist()))
    examine = partial(_examine_rows, fast=fast, num_examples=num_examples, also=also)
    for part in progress(in_processes(examine, shards, chunks, workers), "reading shards", len(chunks)):
        diagnosis.add(part)
    _examine_meta_keys(diagnosis)
    _examine_keys(shards, diagnosis)
    return diagnosis


# --- what is looked at ----------------------------------------------------------------------------------------------


def _examine_archives(shards: Shards, diagnosis: Diagnosis) -> None:
    for path, reason, count in shards.problems():
        diagnosis.find("archive", reason, path, count)
    for path, length in zip(shards.paths, shards.lengths):
        if not length:
            diagnosis.find("archive", "no sample", path)
    for path, count in Counter(shards.paths).items():
        if count > 1:
            diagnosis.find("archive", "shard listed twice", path)


def _examine_rows(
    shards: Shards,
    chunk: tuple[int, int, int],
    *,
    fast: bool,
    num_examples: int,
    also: Callable[[Sample, Diagnosis], None] | None,
) -> Diagnosis:
    shard, first, last = chunk
    diagnosis = Diagnosis(num_examples)
    for row in range(first, last):
        diagnosis.samples += 1
        key = _key(shards, shard, row)
        diagnosis.key_hashes.append(hashlib.blake2b(key.encode("utf-8", "replace"), digest_size=8).digest())
        try:
            sample = shards.read(shard, row)
            _examine_image(sample, fast)
            _examine_good(sample, diagnosis)
            if also:
                also(sample, diagnosis)
        except BadSample as error:
            diagnosis.bad += 1
            where = f"{shards.paths[shard]}, key {key}"
            diagnosis.find("sample", error.reason, f"{where}: {error.detail}" if error.detail else where)
    return diagnosis


def _examine_image(sample: Sample, fast: bool) -> None:
    try:
        if not fast:
            decode_image(sample.image)
            return
        width, height = image_size(sample.image)
        if width * height > MAX_PIXELS or min(width, height) < MIN_SIDE:
            decode_image(sample.image)  # refuses before it decodes
    except BadSample as error:
        raise BadSample(error.reason, error.detail, sample.key, sample.origin) from error


def _examine_good(sample: Sample, diagnosis: Diagnosis) -> None:
    where = f"{sample.origin}, key {sample.key}"
    if not any(split_sentences(caption.text) for caption in sample.captions):
        raise BadSample("no caption", "no sentence in any of them", sample.key, sample.origin)
    diagnosis.has.update({caption.source for caption in sample.captions})
    diagnosis.has["regions"] += bool(sample.regions)
    diagnosis.has["questions"] += bool(sample.questions)
    for reason, count in sample.meta.get("dropped", {}).items():
        diagnosis.find("part", reason, where, count)
    if len(diagnosis.meta_keys) < _MAX_META_KEYS:
        diagnosis.meta_keys.update(name[:80] for name in sample.meta if name != "dropped")


def _examine_meta_keys(diagnosis: Diagnosis) -> None:
    """A key that nearly is one of ours was probably meant to be."""
    for name, count in diagnosis.meta_keys.items():
        near = difflib.get_close_matches(name.lower(), _TEXT_KEYS, n=1, cutoff=0.8)
        if near:
            diagnosis.find(
                "note", f"unknown key {name!r}", f"did you mean {near[0]!r}? It is carried along unread", count
            )


def _key(shards: Shards, shard: int, row: int) -> str:
    try:
        return shards.key(shard, row)
    except (OSError, ValueError, struct.error):  # the shard changed or went away
        return f"of row {row} of shard {shard}"


def _examine_keys(shards: Shards, diagnosis: Diagnosis) -> None:
    """Keys that stand in more than one shard."""
    hashes = np.frombuffer(b"".join(diagnosis.key_hashes), dtype="<u8")
    order = np.argsort(hashes, kind="stable")
    again = np.flatnonzero(hashes[order][1:] == hashes[order][:-1])
    for earlier, later in zip(order[again].tolist(), order[again + 1].tolist()):
        (first, _), (second, row) = shards.locate(earlier), shards.locate(later)
        if shards.paths[first] != shards.paths[second]:
            where = f"{shards.paths[first]} and {shards.paths[second]}: key {_key(shards, second, row)}"
            diagnosis.find("note", "key in several shards", where)


# --- in many processes ----------------------------------------------------------------------------------------------


def _chunks(lengths: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    for shard, length in enumerate(lengths):
        for first in range(0, length, CHUNK):
            yield shard, first, min(first + CHUNK, length)
