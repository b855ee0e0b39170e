"""Captions to images: two sources that name each other, joined into shards, with every doubt counted.

    captions (a table of any size) -> CaptionStore
    images (a unit at a time)      -> look up -> judge -> one shard

A join that goes wrong trains a model on other images' captions and says nothing; so what does not fit is counted by
reason, compared with what the images themselves say, and above a share the join stops.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from goldiclip.config import ConfigError
from goldiclip.data.decode import image_size
from goldiclip.data.many import in_processes
from goldiclip.data.schema import BadSample, is_known_key, read_sample
from goldiclip.data.shards import write_shard
from goldiclip.prepare.blocks import FOLDER, LEFT_OUT, disk_full, finite, write_whole
from goldiclip.prepare.doubts import doubts_about
from goldiclip.prepare.images import Image, Unit
from goldiclip.prepare.meter import Meter
from goldiclip.prepare.store import CaptionStore, build_store
from goldiclip.prepare.tables import By, Captions, Columns, Reading, normal_key, read_table
from goldiclip.types import Sample

NO_CAPTION = f"{LEFT_OUT}no caption"
MIN_IMAGES = 1_000
ROWS_AT_ONCE = 4_096


@dataclass(frozen=True)
class JoinLimits:
    """Shares above which a join stops."""

    missing: float = 0.1
    """Images without captions, or left out for any one reason."""
    absent: float = 0.2
    """Captions that are NaN, null or empty, in any one column; rows of no use for any one reason."""
    suspicious: float = 0.05
    """Images with any one doubt about their captions."""
    repeated: float = 0.05
    """Rows with the same caption."""


@dataclass
class JoinReport:
    images: int = 0
    matched: int = 0
    shards: int = 0
    skipped: int = 0
    rows: int = 0
    unused: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    of_rows: Counter[str] = field(default_factory=Counter)
    absent: Mapping[str, int] = field(default_factory=dict)
    repeated: tuple[str, float] = ("", 0.0)

    def add(self, counts: Mapping[str, int]) -> None:
        self.counts.update(counts)
        self.images, self.matched = self.counts["images"], self.counts["matched"]

    def share(self, count: int) -> float:
        return count / max(self.images, 1)


def open_captions(tables: Sequence[Path], columns: Columns, folder: Path, *, quiet: bool = False) -> CaptionStore:
    """The tables as a store in `folder`, built once for the same tables and columns."""
    reading = Reading()
    stamps = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in tables]
    said = [stamps, columns.key, columns.by, dict(columns.captions), 1]
    fingerprint = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]

    def rows() -> Iterator[tuple[str, Captions]]:
        with Meter("reading captions", sum(path.stat().st_size for path in tables), unit="bytes", quiet=quiet) as meter:
            for path in tables:
                before, reading.position = meter.done, lambda: 0
                for number, row in enumerate(read_table(path, columns, reading)):
                    yield row
                    if not number % ROWS_AT_ONCE:
                        meter.reach(before + reading.position(), reading.counts)
                meter.reach(before + path.stat().st_size, reading.counts)

    def about() -> dict[str, Any]:
        found = {"rows": reading.rows, "counts": dict(reading.counts), "absent": dict(reading.absent)}
        return {**found, "by": columns.by}

    return build_store(rows(), folder, fingerprint, about)


def join(
    units: Sequence[Unit],
    store: CaptionStore | None,
    out: Path,
    *,
    limits: JoinLimits | None = None,
    keep_unmatched: bool = False,
    workers: int = 1,
    quiet: bool = False,
) -> JoinReport:
    """Every unit into a shard of `out`; without a store, images keep the captions they bring along."""
    limits = limits or JoinLimits()
    _refuse_onto_itself(units, out)
    report = JoinReport(rows=len(store) if store else 0)
    if store:
        report.absent, report.repeated = store.about["absent"], tuple(store.about["repeated"])
        report.rows, report.of_rows = store.about["rows"], Counter(store.about["counts"])
        _check_table(report, limits)
    work = partial(_join_unit, keep_unmatched=keep_unmatched)
    with Meter("joining", len(units), unit="shards", quiet=quiet) as meter:
        try:
            for was_there, counts in in_processes(work, (store, out), list(units), workers, fewest=2):
                report.add(counts)
                report.shards += 1
                report.skipped += was_there
                meter.advance(1, report.counts)
                if report.images >= MIN_IMAGES:
                    check(report, limits)
        except OSError as error:
            raise disk_full(error, out) or error from error
    report.unused = store.unused if store else 0
    check(report, limits)
    if not report.matched:
        said = ", ".join(f"{count:,} × {reason}" for reason, count in report.counts.items() if reason != "images")
        raise ConfigError(f"{out}: not one of {report.images:,} images became a sample ({said or 'no image'})")
    return report


def _refuse_onto_itself(units: Sequence[Unit], out: Path) -> None:
    """A shard is read while another is written: not in its own place."""
    inputs = {os.path.realpath(path) for unit in units if (path := unit.path_of_shard)}
    for unit in units:
        if os.path.realpath(out / f"{unit.name}.tar") in inputs:
            raise ConfigError(f"{out / unit.name}.tar is an input; choose another --out than {out}")


def _check_table(report: JoinReport, limits: JoinLimits) -> None:
    for column, count in report.absent.items():
        _stop_above(limits.absent, count / max(report.rows, 1), f"column {column!r} holds no caption", "--max-absent")
    for reason, count in report.of_rows.items():
        _stop_above(
            limits.absent, count / max(report.rows + report.of_rows["malformed row"], 1), reason, "--max-absent"
        )
    text, share = report.repeated
    _stop_above(limits.repeated, share, f"one caption is repeated: {text[:80]!r}", "--max-repeated")


def check(report: JoinReport, limits: JoinLimits) -> None:
    """Stop where a share is above its limit, and say which."""
    missing = report.counts["image without captions"] + report.counts[NO_CAPTION]
    why = "the wrong --by?" if report.rows else "a table is given by --captions"
    _stop_above(limits.missing, report.share(missing), f"images without captions ({why})", "--max-missing")
    for reason, count in report.counts.items():
        if reason.startswith(LEFT_OUT):
            _stop_above(limits.missing, report.share(count), f"images {reason}", "--max-missing")
        if reason.startswith("suspicious: "):
            _stop_above(limits.suspicious, count / max(report.matched, 1), reason, "--max-suspicious")


def _stop_above(limit: float, share: float, what: str, option: str) -> None:
    if share > limit:
        raise ConfigError(f"{what}: {share:.1%}, {limit:.0%} may be; look at some, then allow more with {option}")


# --- one unit -------------------------------------------------------------------------------------------------------


def _join_unit(
    context: tuple[CaptionStore | None, Path], unit: Unit, keep_unmatched: bool
) -> tuple[bool, dict[str, int]]:
    """(whether it was there already, counts)."""
    store, out = context
    target, manifest = out / f"{unit.name}.tar", out / FOLDER / "join" / f"{unit.name}.json"
    said = [list(map(str, unit.stamp)), store.about["fingerprint"] if store else "", keep_unmatched]
    fingerprint = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
    known = _read_counts(manifest, fingerprint, target)
    if known is not None:
        return True, known
    counts: Counter[str] = Counter()
    samples = _samples(unit, store, keep_unmatched, counts)
    first = next(samples, None)
    if first is None:
        target.unlink(missing_ok=True)
    else:
        write_shard(_chain(first, samples), target)
    size = target.stat().st_size if first else 0
    write_whole(manifest, json.dumps({"fingerprint": fingerprint, "size": size, "counts": counts}).encode())
    return False, counts


def _chain(first: Sample, rest: Iterator[Sample]) -> Iterator[Sample]:
    yield first
    yield from rest


def _read_counts(manifest: Path, fingerprint: str, target: Path) -> dict[str, int] | None:
    try:
        found = json.loads(manifest.read_text())
        size = target.stat().st_size if found["size"] else 0
        return dict(found["counts"]) if (found["fingerprint"], found["size"]) == (fingerprint, size) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _samples(unit: Unit, store: CaptionStore | None, keep_unmatched: bool, counts: Counter[str]) -> Iterator[Sample]:
    keys: set[str] = set()
    for image in unit.images():
        counts["images"] += 1
        try:
            if isinstance(image, BadSample):
                raise image
            sample = _joined(image, store, keep_unmatched, counts)
        except BadSample as bad:
            counts[LEFT_OUT + bad.reason] += 1
            continue
        if sample is None:
            continue
        if sample.key in keys:
            counts[f"{LEFT_OUT}duplicate key"] += 1
            continue
        keys.add(sample.key)
        counts["matched"] += 1
        counts.update(f"suspicious: {doubt}" for doubt in doubts_about(sample, image.record))
        yield sample


def _joined(image: Image, store: CaptionStore | None, keep_unmatched: bool, counts: Counter[str]) -> Sample | None:
    image_size(image.data)  # a header that is no image's raises
    record = dict(image.record)
    if store is not None:
        names = map(partial(normal_key, store.about["by"]), _names_of(image, store.about["by"]))
        rows = next(filter(None, map(store.find, filter(None, names))), [])
        if not rows and not keep_unmatched:
            counts["image without captions"] += 1
            return None
        if rows:
            record = {name: value for name, value in record.items() if not is_known_key(name)}
            record |= {"captions": _merged(rows, counts)}
    return read_sample(image.key, image.data, finite(record), "")


def _names_of(image: Image, by: By) -> Iterator[Any]:
    """How the image may be called in the table's way: as it came first, then as it lies here."""
    record = image.record
    if by == "sha256":
        yield record.get("sha256")  # img2dataset's, of what it downloaded
        yield hashlib.sha256(image.data).hexdigest()
    elif by == "url":
        yield record.get("url") or record.get("coco_url")
    elif by == "name":
        yield record.get("file_name")
        yield image.name
        yield str(record.get("url") or "").partition("?")[0]
    else:
        yield record.get("key") or image.key


def _merged(rows: Sequence[Captions], counts: Counter[str]) -> Captions:
    """All rows of one image as one: each caption once, in order."""
    counts["rows joined to another of the same image"] += len(rows) - 1
    merged: dict[str, list[str]] = {}
    for row in rows:
        for source, texts in row.items():
            known = merged.setdefault(source, [])
            for text in texts:
                counts["repeated caption"] += text in known
                if text not in known:
                    known.append(text)
    return merged
