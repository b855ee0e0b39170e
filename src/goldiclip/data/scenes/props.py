"""Where a scene's things and grounds come from: drawn here, or cut out elsewhere (`cutouts`).

The held-out split is a partition of what can be drawn. Of every kind one colour is never trained on, and of every kind
in every other colour one texture. Which ones depends on the names alone, so that no seed or setting moves the border.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np
from PIL import Image

from goldiclip.data.scenes import backgrounds
from goldiclip.data.scenes.built import SHAPED
from goldiclip.data.scenes.draw import sprite
from goldiclip.data.scenes.graph import Look, Split
from goldiclip.data.scenes.vocabulary import AIRBORNE, COLOURS, KINDS, SHAPES, TEXTURES

PLAIN_SHARE = 0.4  # of the things in training
UNSEEN_COLOUR_SHARE = 0.3  # of the things in held-out scenes


@dataclass(frozen=True, slots=True)
class Ground:
    """What is behind the things; `horizon` is None where there is no up and down."""

    name: str
    image: Image.Image
    horizon: float | None = None


class Props(Protocol):
    """A store of things and grounds. Everything is a function of the random numbers handed in."""

    def kinds(self, split: Split) -> Sequence[str]: ...

    def choose(self, kind: str, split: Split, random: Random, but: Sequence[str] = ()) -> Look | None:
        """A look of that kind, in none of the colours `but`; None when there is no such thing."""
        ...

    def picture(self, look: Look, pixels: int, degrees: float, flip: bool) -> Image.Image: ...

    def ground(self, size: int, split: Split, random: Random) -> Ground: ...

    def is_airborne(self, kind: str) -> bool: ...

    @property
    def fingerprint(self) -> str:
        """Changes when what is drawn changes."""
        ...


def is_held_out(kind: str, colour: str, texture: str) -> bool:
    """Whether this combination is kept from training."""
    return colour == unseen_colour(kind) or texture == unseen_texture(kind, colour)


def unseen_colour(kind: str) -> str:
    return tuple(COLOURS)[zlib.crc32(kind.encode()) % len(COLOURS)]


def unseen_texture(kind: str, colour: str) -> str:
    return tuple(TEXTURES)[zlib.crc32(f"{kind}, {colour}".encode()) % len(TEXTURES)]


class Drawn:
    """Things drawn by `draw` before the grounds of `backgrounds`."""

    def __init__(self, num_kinds: int = 0) -> None:
        self._kinds = KINDS[: num_kinds or len(KINDS)]

    def kinds(self, split: Split) -> Sequence[str]:
        return self._kinds

    def choose(self, kind: str, split: Split, random: Random, but: Sequence[str] = ()) -> Look | None:
        colours = [colour for colour in COLOURS if colour not in but]
        unseen = unseen_colour(kind)
        if split == "held_out" and unseen not in but and random.random() < UNSEEN_COLOUR_SHARE:
            colours = [unseen]
        elif unseen in colours:
            colours.remove(unseen)
        colour = random.choice(colours)
        shape = random.choice(SHAPES) if kind in SHAPED else ""
        return Look(kind, colour, _texture(kind, colour, split, random), shape)

    def picture(self, look: Look, pixels: int, degrees: float, flip: bool) -> Image.Image:
        return sprite(look.kind, look.colour, look.texture, look.shape, pixels, degrees, flip)

    def ground(self, size: int, split: Split, random: Random) -> Ground:
        draw = np.random.default_rng(random.getrandbits(64))
        name = random.choice((*backgrounds.LANDSCAPES, *backgrounds.FLATS))
        if name in backgrounds.FLATS:
            return Ground(name, backgrounds.flat(name, size, draw))
        horizon = random.uniform(0.36, 0.58)
        return Ground(name, backgrounds.landscape(name, size, horizon, draw), horizon)

    def is_airborne(self, kind: str) -> bool:
        return kind in AIRBORNE

    @property
    def fingerprint(self) -> str:
        return f"{len(self._kinds)} drawn kinds"


def _texture(kind: str, colour: str, split: Split, random: Random) -> str:
    """One that the split allows, plain more often than the rest."""
    unseen = unseen_texture(kind, colour)
    if split == "held_out" and colour != unseen_colour(kind):
        return unseen
    figured = [texture for texture in TEXTURES if texture != "plain" and (texture != unseen or split == "held_out")]
    if random.random() < PLAIN_SHARE and (unseen != "plain" or split == "held_out"):
        return "plain"
    return random.choice(figured)
