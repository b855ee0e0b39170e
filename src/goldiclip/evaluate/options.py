"""How to evaluate, and what of it an encoder can do."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from goldiclip.config import ConfigError
from goldiclip.inference.engine import Engine
from goldiclip.inference.pictures import Fit
from goldiclip.inference.segment import MODES as SEGMENTATION
from goldiclip.inference.segment import segmentation_modes
from goldiclip.model.encoders import OpenClip


@dataclass(frozen=True)
class Options:
    """How to evaluate; the defaults are the paper's."""

    only: tuple[str, ...] = ()
    """Sets by name; empty: all that are there."""
    custom: tuple[Path, ...] = ()
    """Files and folders of your own."""
    modes: tuple[str, ...] = ()
    """tc, ta; empty: those the encoder has."""
    segmentation: tuple[str, ...] = ("value",)
    """value, sink, attention."""
    shortlist: int = 0
    """Also text-conditioned re-ranking of this many text-agnostic candidates; 0 leaves it out."""
    fit: Fit | None = None
    """crop: resize the shorter side and crop the centre; whole: squeeze into the square; None: what the model saw."""
    spaced: bool = False
    """Segmentation class names with their spaces back."""
    overlays: int = 8
    """Segmentations of each set saved to look at."""
    strict: bool = False
    """Stop at the first problem of the data, and at a set in `only` that is not there."""


def settled(engine: Engine, options: Options) -> Options:
    """What is left open becomes what the encoder has; what it lacks is an error, but for kinds of segmentation."""
    for mode in options.segmentation:
        require_known("kind of segmentation", mode, SEGMENTATION)
    kinds = tuple(mode for mode in options.segmentation if mode in segmentation_modes(engine))
    return replace(options, modes=_modes(engine, options), segmentation=kinds)


def own_fit(engine: Engine) -> Fit:
    """How the model was shown its images."""
    return "whole" if isinstance(engine.model, OpenClip) and engine.model.squeezes else "crop"


def _modes(engine: Engine, options: Options) -> tuple[str, ...]:
    known = tuple(mode for mode in ("tc", "ta") if mode in engine.modes)
    for mode in options.modes:
        if mode not in known:
            raise ConfigError(f"mode {mode!r}: this encoder has {', '.join(known)}")
    if options.shortlist and "tc" not in known:
        raise ConfigError(f"a shortlist is re-ranked by tc, which this encoder lacks; it has {', '.join(known)}")
    return options.modes or known


def require_known(what: str, name: str, known: Sequence[str]) -> None:
    """An unknown name is said with its neighbours."""
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
        raise ConfigError(f"{name!r} is no {what}; nearest: {', '.join(near) or 'none'}; all: {', '.join(known)}")
