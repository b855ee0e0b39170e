"""What a corpus is made with: the numbers that decide every byte of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from goldiclip.config import ConfigError


@dataclass(frozen=True)
class Settings:
    count: int = 20_000
    """Scenes to train on."""
    held_out: int = 1_000
    """Scenes of the evaluation gallery: things in combinations that training never shows."""
    size: int = 128
    """Width and height of every image, in pixels."""
    seed: int = 0
    max_objects: int = 4
    """Different things in one scene, at most; fewer is easier."""
    kinds: int = 0
    """How many kinds of things there are; 0 takes all of them, fewer is easier."""
    repeats: float = 0.25
    """Share of things that come several at a time, up to five."""
    zoom: float = 1.0
    """How large things are, relative to what is usual; larger is easier."""
    occlusion: float = 0.35
    """Share of scenes in which one thing partly hides another."""
    rivals: float = 0.12
    """Share of things whose neighbour is of the same kind in another colour."""
    cutouts: Path | None = None
    """Folder of named RGBA cut-outs to compose from, in place of drawings."""
    backgrounds: Path | None = None
    """Folder or tar of photographs to lay behind cut-outs, in place of drawn grounds."""
    per_shard: int = 500

    def __post_init__(self) -> None:
        limits: dict[str, tuple[float, float]] = {
            "count": (0, 10**9),
            "held_out": (0, 10**6),
            "size": (48, 1_024),
            "max_objects": (1, 8),
            "kinds": (0, 10**6),
            "repeats": (0, 1),
            "zoom": (0.5, 1.5),
            "occlusion": (0, 1),
            "rivals": (0, 1),
            "per_shard": (1, 10**6),
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"scenes: {name} is {value}; allowed: {low:g} to {high:g}")
        if self.backgrounds and not self.cutouts:
            raise ConfigError("scenes: backgrounds are for cut-outs; give cutouts too")

    def alone(self) -> Settings:
        """The same with a single thing in every scene."""
        return replace(self, max_objects=1, repeats=0.0, rivals=0.0)
