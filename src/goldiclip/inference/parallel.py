"""One index built by many processes: Ray workers with an encoder each, appending to the same Lance table."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from typing import Any

from goldiclip.config import ConfigError
from goldiclip.inference.header import is_lance
from goldiclip.inference.index import Added, Index
from goldiclip.inference.sources import sources


def add_with_ray(
    uri: str,
    encoder: str,
    names: Sequence[str],
    workers: int,
    *,
    device: str = "auto",
    update: bool = False,
    **options: Any,
) -> Added:
    """Add the pictures of folders and shards; what is there already is left as it is, so a killed build goes on.

    Each worker reads its share itself: paths must mean the same on every machine. Which share a picture is of, its id
    decides: two of one id meet in one worker, who tells of it.
    """
    if not is_lance(uri):
        raise ConfigError(f"{uri}: a folder has one writer; for several give a path ending in .lance, or a URL")
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError("several workers take ray: pip install 'goldiclip[prepare]'") from error
    is_mine = not ray.is_initialized()
    if is_mine:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "lance is not fork-safe")  # Ray's forks become other programs at once
            ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
    try:
        task = ray.remote(num_cpus=1, num_gpus=1 if device.startswith("cuda") else 0)(add_share)
        shares = range(workers)
        parts = [task.remote(uri, encoder, list(names), one, workers, device, update, options) for one in shares]
        return _together(ray.get(parts))
    finally:
        if is_mine:
            ray.shutdown()


def add_share(
    uri: str,
    encoder: str,
    names: Sequence[str],
    rank: int,
    workers: int,
    device: str,
    update: bool,
    options: dict[str, Any],
) -> Added:
    """What one worker does."""
    import torch

    from goldiclip.inference.load import load_engine

    torch.set_num_threads(1)
    index = Index.open(uri, load_engine(encoder, device=device), **options)
    return index.add(sources(names, rank, workers), update=update)


def _together(parts: Sequence[Added]) -> Added:
    failed = {id: reason for part in parts for id, reason in part.failed.items()}
    return Added(sum(part.added for part in parts), sum(part.present for part in parts), failed)
