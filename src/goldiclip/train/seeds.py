"""Chance inside a step: a function of the run's seed, the place in the data and the rank, so nobody has to store it."""

from __future__ import annotations

import hashlib

import torch


def seed_step(seed: int, samples: int, rank: int) -> None:
    """Seed whatever the step draws on its device (drop path), before it begins."""
    torch.manual_seed(int.from_bytes(hashlib.sha256(f"{seed}:{samples}:{rank}".encode()).digest()[:7], "big"))
