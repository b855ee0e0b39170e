"""What to leave out before annotation: near-duplicates, and images that evaluation will ask about.

Every image is hashed once, and the hashes kept in `.prepare/hashes`. Then each shard gets a list of keys that its
annotation passes over; `.prepare/excluded.jsonl` says of each key why.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from goldiclip.config import ConfigError
from goldiclip.data.decode import decode_image
from goldiclip.data.many import in_processes
from goldiclip.data.schema import BadSample
from goldiclip.data.shards import Shards
from goldiclip.prepare.blocks import FOLDER, excluded_path, write_whole
from goldiclip.prepare.duplicates import MAX_DISTANCE, Hashes, image_hash, near_pairs, repetitions
from goldiclip.prepare.images import Unit, units
from goldiclip.prepare.meter import Meter


def exclude(
    shards: Shards,
    out: Path,
    *,
    near_duplicates: bool = False,
    evaluation: Sequence[str] = (),
    max_distance: int = MAX_DISTANCE,
    workers: int = 1,
    quiet: bool = False,
) -> Counter[str]:
    """Write the lists of what annotation into `out` leaves out; how many, by reason. Without reasons: empty lists."""
    shutil.rmtree(out / FOLDER / "excluded", ignore_errors=True)
    counts: Counter[str] = Counter()
    if not near_duplicates and not evaluation:
        return counts
    hashes, places = _hashes_of(units(list(shards.paths)), out, "hashing images", workers, quiet)
    reasons: dict[int, dict[str, Any]] = {}
    if evaluation:
        known, names = _hashes_of(units(evaluation), out, "hashing evaluation images", workers, quiet)
        if not len(known):
            raise ConfigError(f"--decontaminate {' '.join(evaluation)}: no image in there")
        for row, (other, distance) in _contaminated(hashes, known, max_distance).items():
            reasons[row] = {"reason": "evaluation image", "of": ":".join(names[other]), "distance": distance}
    if near_duplicates:
        rest = np.array([row for row in range(len(hashes)) if row not in reasons], dtype=np.int64)
        for row, (other, distance) in repetitions(hashes[rest], max_distance).items():
            of = ":".join(places[rest[other]])
            reasons[int(rest[row])] = {"reason": "near-duplicate", "of": of, "distance": distance}
    _write(out, shards.paths, places, reasons)
    counts.update(reason["reason"] for reason in reasons.values())
    return counts


def _contaminated(hashes: Hashes, known: Hashes, max_distance: int) -> dict[int, tuple[int, int]]:
    """Rows of `hashes` near a known one: row -> (the nearest known row, distance)."""
    found: dict[int, tuple[int, int]] = {}
    for pairs in near_pairs(np.concatenate([known, hashes]), max_distance, split=len(known)) if len(hashes) else ():
        for one, other, distance in pairs.tolist():
            row = other - len(known)
            if row not in found or (distance, one) < found[row][::-1]:
                found[row] = (one, distance)
    return found


def _write(
    out: Path, paths: Sequence[str], places: Sequence[tuple[str, str]], reasons: dict[int, dict[str, Any]]
) -> None:
    keys: dict[str, list[str]] = {}
    lines = []
    for row in sorted(reasons):
        path, key = places[row]
        keys.setdefault(path, []).append(key)
        lines.append(json.dumps({"shard": path, "key": key, **reasons[row]}, ensure_ascii=False))
    for path in paths:
        write_whole(excluded_path(out, path), "\n".join(keys.get(path, [])).encode())
    write_whole(out / FOLDER / "excluded.jsonl", "\n".join([*lines, ""]).encode())


# --- hashes ---------------------------------------------------------------------------------------------------------


def _hashes_of(
    sources: Sequence[Unit], out: Path, what: str, workers: int, quiet: bool
) -> tuple[Hashes, list[tuple[str, str]]]:
    """The hashes of every image that can be decoded, and (where, key) of each."""
    folder = out / FOLDER / "hashes"
    folder.mkdir(parents=True, exist_ok=True)
    parts: list[Hashes] = [np.empty((0, 4), dtype=np.uint64)]
    places: list[tuple[str, str]] = []
    with Meter(what, len(sources), unit="units", quiet=quiet) as meter:
        for where, path in in_processes(_hash_unit, folder, list(sources), workers, fewest=2):
            with np.load(path) as found:
                parts.append(found["hashes"])
                places += [(where, key) for key in found["keys"].tolist()]
            meter.advance(1, {})
    return np.concatenate(parts), places


def _hash_unit(folder: Path, unit: Unit) -> tuple[str, Path]:
    """Hash the images of one unit into a file, unless it is there."""
    said = json.dumps(list(map(str, unit.stamp)))
    where = str(getattr(unit, "path", None) or getattr(unit, "root", unit.name))
    path = folder / f"{hashlib.sha256(said.encode()).hexdigest()[:24]}.npz"
    if not path.exists():
        found = list(_hashed(unit))
        keys, hashes = [key for key, _ in found], [hashed for _, hashed in found]
        part = path.with_name(f".{path.stem}.{os.getpid()}.npz")
        np.savez(part, keys=np.array(keys, dtype=np.str_), hashes=np.array(hashes, dtype=np.uint64).reshape(-1, 4))
        os.replace(part, path)
    return where, path


def _hashed(unit: Unit) -> Iterator[tuple[str, Hashes]]:
    for image in unit.images():
        if isinstance(image, BadSample):
            continue
        try:
            yield image.key, image_hash(decode_image(image.data))
        except BadSample:
            continue  # annotation counts it
