"""What this machine has, what it lacks, for which command, and how to get it. Imports only what it asks about."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Verdict = Literal["good", "missing", "bad"]


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `bad` stops everything; `missing` stops only the commands that `remedy` names."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


REQUIRED = ("torch", "torchvision", "timm", "open_clip_torch", "safetensors", "tokenizers", "tyro", "rich")
LEAST_MEMORY_GIB = 4

# Optional packages: what they are for, and the extra that brings them.
OPTIONAL = {
    "ray": ("prepare annotate on a cluster, index --workers, Ray Train", "prepare"),
    "transformers": ("prepare boxes and questions, CLIPModel export", "prepare"),
    "spacy": ("prepare phrases by a parser", "prepare"),
    "fastapi": ("serve", "serve"),
    "faiss": ("quick search among more than 4,096 pictures", "serve"),
    "lance": ("an index on object storage", "serve"),
    "scipy": ("evaluate on Stanford Cars and Oxford Flowers", "evaluate"),
    "onnxruntime": ("export to ONNX with a parity report", "export"),
    "pytest": ("make test", "dev"),
    "playwright": ("the tests of pages in a browser", "oracles"),
}


def examine(folder: Path = Path()) -> Iterator[Finding]:
    """Everything worth knowing before a run, one finding after the other."""
    yield _python()
    minimums = _minimums()
    yield from (_required(name, minimums.get(name, "0")) for name in REQUIRED)
    yield _memory()
    yield _device()
    yield _triton()
    yield from (_optional(module, *row) for module, row in OPTIONAL.items())
    yield _disk(folder)
    yield _shared_memory()
    yield _open_files()


def _python() -> Finding:
    version = platform.python_version()
    good = sys.version_info >= (3, 11)
    return Finding(
        "Python",
        "good" if good else "bad",
        f"{version} on {platform.platform()}",
        "" if good else "install Python 3.11 or newer",
    )


def _minimums() -> dict[str, str]:
    """The oldest versions that goldiclip itself asks for; none where it runs without being installed."""
    try:
        asked = importlib.metadata.requires("goldiclip") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = (re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\d.]+)(?!.*extra ==)", line) for line in asked)
    return {match[1]: match[2] for match in found if match}


def _required(name: str, minimum: str) -> Finding:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Finding(name, "bad", "not installed", f"pip install '{name}>={minimum}'")
    if _numbers(version) < _numbers(minimum):
        return Finding(name, "bad", f"{version}; expected {minimum} or newer", f"pip install '{name}>={minimum}'")
    return Finding(name, "good", version)


def _numbers(version: str) -> tuple[int, ...]:
    """2.15.0+cu130 as (2, 15, 0)."""
    return tuple(int(number) for number in re.findall(r"\d+", version.split("+")[0])[:3])


def _optional(module: str, purpose: str, extra: str) -> Finding:
    if importlib.util.find_spec(module) is None:
        return Finding(module, "missing", "not installed", f"for {purpose}: pip install 'goldiclip[{extra}]'")
    return Finding(module, "good", f"for {purpose}")


def _memory() -> Finding:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return Finding("processor", "good", f"{cores} cores")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    good = memory >= LEAST_MEMORY_GIB
    remedy = "" if good else f"the demo wants {LEAST_MEMORY_GIB} GiB; close what else is running"
    return Finding("processor", "good" if good else "missing", f"{cores} cores, {memory:.0f} GiB of memory", remedy)


def _device() -> Finding:
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: one of its libraries is not there
        return Finding("GPU", "bad", f"torch cannot be imported: {error}", "pip install --force-reinstall torch")
    if torch.cuda.is_available():
        names = {torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())}
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        return Finding(
            "GPU", "good", f"{torch.cuda.device_count()} × {', '.join(sorted(names))}, {memory:.0f} GiB each"
        )
    built = torch.version.cuda or torch.version.hip
    remedy = "training beyond the demo wants one; " + (
        "no driver was found" if built else "this torch is built for CPUs alone"
    )
    return Finding("GPU", "missing", f"none; {os.cpu_count()} CPU cores", remedy)


def _triton() -> Finding:
    if importlib.util.find_spec("triton") is None:
        return Finding(
            "Triton", "missing", "not installed", "fused kernels fall back to plain ones; pip install triton (Linux)"
        )
    return Finding("Triton", "good", importlib.metadata.version("triton"))


def _disk(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free / 2**30
    good = free >= 5
    remedy = "" if good else "a run keeps several checkpoints: free some room, or use --out elsewhere"
    return Finding("disk", "good" if good else "missing", f"{free:.0f} GiB free in {folder.resolve()}", remedy)


def _shared_memory() -> Finding:
    path = Path("/dev/shm")
    if not path.exists():
        return Finding("shared memory", "good", "not a Linux machine: workers use files")
    free = shutil.disk_usage(path).free / 2**30
    good = free >= 1
    remedy = "" if good else "loader workers pass batches through it: docker run --shm-size=16g, or data.workers=0"
    return Finding("shared memory", "good" if good else "missing", f"{free:.1f} GiB free", remedy)


def _open_files() -> Finding:
    try:
        import resource
    except ImportError:
        return Finding("open files", "good", "no limit on this system")
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    good = limit >= 1024
    return Finding("open files", "good" if good else "missing", f"{limit} at once", "" if good else "ulimit -n 4096")


def show(findings: list[Finding]) -> int:
    """Print a table of findings; 1 when something must be mended before anything runs."""
    from rich.console import Console
    from rich.table import Table

    marks = {"good": "[green]✓[/]", "missing": "[yellow]–[/]", "bad": "[red]✗[/]"}
    table = Table(box=None, pad_edge=False)
    for heading in ("", "what", "found", "what to do"):
        table.add_column(heading, overflow="fold")
    for finding in findings:
        table.add_row(marks[finding.verdict], finding.name, finding.found, finding.remedy)
    Console().print(table)
    return int(any(finding.verdict == "bad" for finding in findings))
