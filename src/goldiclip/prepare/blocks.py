"""The unit of work: a few hundred samples of one shard, through all stages, into a file of their own.

    shard -> blocks -> stages -> OUT/.prepare/blocks/NAME-FINGERPRINT/START.tar -> OUT/NAME.tar + OUT/.prepare/NAME.json

Every file appears whole or not at all, so a run that dies loses what was in hand and nothing else. A shard's manifest
says what went in (hash, stages) and what came out; a shard whose manifest still holds is not touched again.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

from goldiclip.config import ConfigError
from goldiclip.data.schema import BadSample
from goldiclip.data.shard_paths import is_remote
from goldiclip.data.shard_writer import safe_key
from goldiclip.data.shards import Shards, write_shard
from goldiclip.prepare.stages import Stage, Work
from goldiclip.types import Sample

LEFT_OUT = "left out: "
FOLDER = ".prepare"


@dataclass(frozen=True)
class Job:
    """What is done to every shard; it travels to each worker once."""

    out: Path
    stages: tuple[Stage, ...]
    block: int = 512

    def fingerprint(self, shard: str) -> str:
        """What a shard's output depends on, besides its input: the stages, and the keys that are left out of it."""
        said = {"stages": self.fingerprints(), "excluded": sorted(excluded_keys(excluded_path(self.out, shard)))}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]

    def fingerprints(self) -> dict[str, Mapping[str, Any]]:
        return {stage.name: stage.fingerprint for stage in self.stages}


@dataclass(frozen=True)
class Plan:
    """One input shard and where its output goes."""

    shard: str
    rows: int
    out: Path
    fingerprint: str
    size: int
    changed_ns: int

    @property
    def target(self) -> Path:
        return self.out / Path(self.shard).name

    @property
    def manifest(self) -> Path:
        return self.out / FOLDER / f"{self.target.stem}.json"

    @property
    def excluded(self) -> frozenset[str]:
        """Keys to leave out: duplicates, contamination."""
        return excluded_keys(excluded_path(self.out, self.shard))

    @property
    def folder(self) -> Path:
        """Where its blocks wait to be joined; another input under the same name has another folder."""
        said = f"{self.fingerprint} {self.size} {self.changed_ns}"
        return self.out / FOLDER / "blocks" / f"{self.target.stem}-{hashlib.sha256(said.encode()).hexdigest()[:16]}"

    def blocks(self, length: int) -> list[Block]:
        starts = range(0, self.rows, length)
        return [Block(self, start, min(start + length, self.rows)) for start in starts]


@dataclass(frozen=True)
class Block:
    plan: Plan
    start: int
    stop: int

    @property
    def path(self) -> Path:
        return self.plan.folder / f"{self.start:08d}-{self.stop:08d}.tar"

    @property
    def counts_path(self) -> Path:
        """Written after the samples: where it stands, the block is done."""
        return self.path.with_suffix(".json")

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"{self.plan.shard}, samples {self.start:,} to {self.stop:,}"


def plan_shards(shards: Shards, job: Job) -> list[Plan]:
    """A plan for every shard; two inputs of one name would overwrite each other's output."""
    plans = [_plan(path, int(rows), job) for path, rows in zip(shards.paths, shards.lengths)]
    names = Counter(plan.target for plan in plans)
    for plan in plans:
        if names[plan.target] > 1:
            same = [other.shard for other in plans if other.target == plan.target]
            raise ConfigError(
                f"{' and '.join(same[:2])} would both become {plan.target}; annotate them into two folders"
            )
        if not is_remote(plan.shard) and plan.target.exists() and os.path.samefile(plan.shard, plan.target):
            raise ConfigError(f"{plan.shard}: input and output are the same file; choose another folder than {job.out}")
    return plans


def _plan(shard: str, rows: int, job: Job) -> Plan:
    status = None if is_remote(shard) else os.stat(shard)
    size, changed = (status.st_size, status.st_mtime_ns) if status else (rows, 0)
    return Plan(shard, rows, job.out, job.fingerprint(shard), size, changed)


# --- manifests ------------------------------------------------------------------------------------------------------


def read_manifest(plan: Plan) -> dict[str, Any] | None:
    """What a finished shard's manifest says, if it is about this input, these stages and the output that is there."""
    try:
        found = json.loads(plan.manifest.read_text())
        said, output = found["input"], found["output"]
        if found["fingerprint"] != plan.fingerprint or said["size"] != plan.size:
            return None
        if said["changed_ns"] != plan.changed_ns and (is_remote(plan.shard) or said["sha256"] != sha256(plan.shard)):
            return None
        size = plan.target.stat().st_size if plan.target.exists() else 0
        return found if size == output["size"] else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _write_manifest(plan: Plan, job: Job, samples: int, counts: Mapping[str, int]) -> dict[str, Any]:
    remote = is_remote(plan.shard)
    said = {
        "fingerprint": plan.fingerprint,
        "input": {
            "path": plan.shard,
            "sha256": "" if remote else sha256(plan.shard),
            "size": plan.size,
            "changed_ns": plan.changed_ns,
            "samples": plan.rows,
        },
        "output": {
            "samples": samples,
            "size": plan.target.stat().st_size if samples else 0,
            "sha256": sha256(str(plan.target)) if samples else "",
        },
        "stages": job.fingerprints(),
        "excluded": len(plan.excluded),
        "counts": dict(sorted(counts.items())),
        "versions": versions(),
    }
    write_whole(plan.manifest, json.dumps(said, indent=1, default=str).encode())
    return said


def versions() -> dict[str, str]:
    """Of what takes part; recorded, but no reason to do finished work again."""
    found = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("goldiclip", "torch", "transformers", "spacy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_whole(path: Path, payload: bytes) -> None:
    """A small file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(payload)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


# --- keys to leave out ----------------------------------------------------------------------------------------------


def excluded_path(out: Path, shard: str) -> Path:
    return out / FOLDER / "excluded" / f"{Path(shard).stem}.txt"


def excluded_keys(path: Path) -> frozenset[str]:
    return _keys_in(path, path.stat().st_mtime_ns) if path.exists() else frozenset()


@lru_cache(maxsize=4)
def _keys_in(path: Path, changed_ns: int) -> frozenset[str]:
    return frozenset(path.read_text().splitlines())


# --- one block ------------------------------------------------------------------------------------------------------


def run_block(block: Block, works: Sequence[Work]) -> Counter[str]:
    """Read, annotate and store one block; what was counted on the way."""
    counts: Counter[str] = Counter()
    samples = read_block(block, counts)
    for work in works:
        samples = work(samples, counts)
    store_block(block, samples, counts)
    return counts


def read_block(block: Block, counts: Counter[str]) -> list[Sample]:
    """The samples of a block that can be used; every other one is counted by reason."""
    samples = []
    excluded = block.plan.excluded
    shards = open_shards(block.plan.shard)
    for row in range(block.start, block.stop):
        try:
            sample = shards.read(0, row)
        except BadSample as bad:
            counts[LEFT_OUT + bad.reason] += 1
            continue
        if sample.key in excluded:
            counts["excluded"] += 1
        else:
            samples.append(replace(sample, key=safe_key(sample.key), meta=finite(sample.meta)))
    return samples


def store_block(block: Block, samples: Sequence[Sample], counts: Mapping[str, int]) -> None:
    write_shard(samples, block.path)
    write_whole(block.counts_path, json.dumps({"samples": len(samples), "counts": dict(counts)}).encode())


def is_stored(block: Block) -> bool:
    return block.counts_path.exists() and block.path.exists()


_opened: dict[str, Shards] = {}


def open_shards(path: str) -> Shards:
    """The shard, kept open until another one is asked for: blocks come in order."""
    if path not in _opened:
        _opened.clear()
        _opened[path] = Shards([path])
    return _opened[path]


def finite(value: Any) -> Any:
    """What a record carries along, with null in place of numbers that JSON does not have."""
    if isinstance(value, Mapping):
        return {str(name): finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and value - value != 0 else value


# --- a whole shard --------------------------------------------------------------------------------------------------


def assemble(plan: Plan, job: Job) -> dict[str, Any]:
    """Join a shard's blocks, write its manifest, remove the blocks; the manifest."""
    blocks = plan.blocks(job.block)
    counts: Counter[str] = Counter()
    samples = 0
    for block in blocks:
        said = json.loads(block.counts_path.read_text())
        counts.update(said["counts"])
        samples += said["samples"]
    if samples:
        repeated: Counter[str] = Counter()
        write_shard(_joined(blocks, repeated), plan.target)
        counts.update(repeated)
        samples -= sum(repeated.values())
    else:
        plan.target.unlink(missing_ok=True)
    plan.target.with_name(plan.target.name + ".index").unlink(missing_ok=True)
    manifest = _write_manifest(plan, job, samples, counts)
    for folder in plan.folder.parent.glob(f"{glob.escape(plan.target.stem)}-{'?' * 16}"):
        shutil.rmtree(folder, ignore_errors=True)  # also those of earlier stages that were never finished
    return manifest


def _joined(blocks: Sequence[Block], repeated: Counter[str]) -> Iterator[Sample]:
    seen: set[str] = set()
    for block in blocks:
        if json.loads(block.counts_path.read_text())["samples"]:
            for sample in Shards([str(block.path)]):
                if sample.key in seen:
                    repeated[f"{LEFT_OUT}duplicate key"] += 1
                else:
                    seen.add(sample.key)
                    yield sample


def disk_full(error: BaseException, out: Path) -> ConfigError | None:
    """What to say when there is no room; None when that is not what happened."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        said = f"{out}: {os.strerror(error.errno)}"
        return ConfigError(f"{said}; what is finished stays: make room and run the same command again")
    return None
