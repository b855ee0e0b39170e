"""What a scene can be made of: kinds of things, colours, textures, shapes, sizes, places, and the words for them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from goldiclip.data.scenes.animals import ANIMALS
from goldiclip.data.scenes.built import BUILDINGS, FIGURES, SHAPED, VEHICLES
from goldiclip.data.scenes.household import HOUSEHOLD
from goldiclip.data.scenes.nature import FOOD, PLANTS, SKY

CATEGORIES: dict[str, dict[str, str]] = {
    "animal": ANIMALS,
    "household": HOUSEHOLD,
    "vehicle": VEHICLES,
    "food": FOOD,
    "shaped": SHAPED,
    "plant": PLANTS,
    "building": BUILDINGS,
    "weather": SKY,
    "figure": FIGURES,
}
DRAWINGS: dict[str, str] = {name: drawing for group in CATEGORIES.values() for name, drawing in group.items()}


def _by_turns(groups: list[list[str]]) -> Iterator[str]:
    """One of each category after the other, so that the first N kinds are a mixture for any N."""
    for row in zip_longest(*groups):
        yield from filter(None, row)


KINDS: tuple[str, ...] = tuple(_by_turns([list(group) for group in CATEGORIES.values()]))
CATEGORY: dict[str, str] = {name: category for category, group in CATEGORIES.items() for name in group}
# Categories whose name is a word for their members.
HYPERNYMS = ("animal", "vehicle", "plant", "building")

# In a landscape these are above the horizon, everything else stands on the ground.
AIRBORNE = frozenset(
    (*SKY, "airplane", "rocket", "hot-air balloon", "balloon", "kite", "butterfly", "star", "heart", "arrow")
)

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 48, 49),
    "orange": (243, 130, 33),
    "yellow": (250, 211, 58),
    "green": (62, 160, 74),
    "blue": (47, 111, 214),
    "purple": (131, 70, 180),
    "pink": (244, 140, 186),
    "brown": (133, 84, 48),
    "black": (48, 48, 56),
    "grey": (142, 147, 155),
    "white": (246, 246, 242),
}

# The word before the noun: what can stand after the noun instead, and after "is".
TEXTURES: dict[str, tuple[str, str]] = {
    "plain": ("without a pattern", "plain"),
    "striped": ("with stripes", "striped"),
    "dotted": ("with dots", "dotted"),
    "checked": ("with checks", "checked"),
    "zigzag": ("with zigzags", "patterned with zigzags"),
    "ringed": ("with rings", "ringed"),
    "two-tone": ("in two tones", "two-tone"),
}

SHAPES: tuple[str, ...] = ("round", "square", "triangular", "star-shaped", "heart-shaped", "hexagonal")

# The longer side, in fractions of the image; what lies between is never drawn, so that sizes stay apart.
SIZES: dict[str, tuple[float, float]] = {"small": (0.18, 0.21), "medium": (0.27, 0.31), "large": (0.41, 0.48)}
SIZE_WORDS: dict[str, tuple[str, ...]] = {
    "small": ("small", "little"),
    "medium": ("medium-sized",),
    "large": ("large", "big"),
}

# Where things are, and what is behind them. A photograph has neither.
BACKGROUNDS: dict[str, tuple[str, str]] = {
    "meadow": ("in a meadow", "a green meadow"),
    "beach": ("on a beach", "a sandy beach"),
    "desert": ("in a desert", "a sandy desert"),
    "snow": ("in the snow", "a snowy field"),
    "sea": ("on the sea", "the blue sea"),
    "night": ("at night", "a starry night sky"),
    "street": ("on a street", "a city street"),
    "room": ("in a room", "a room with a wooden floor"),
    "wood": ("on wooden boards", "a wooden surface"),
    "bricks": ("in front of a brick wall", "a brick wall"),
    "tiles": ("on a tiled floor", "a tiled floor"),
    "paper": ("on lined paper", "a sheet of lined paper"),
    "blackboard": ("on a blackboard", "a blackboard"),
    "pale blue": ("on a pale blue background", "a pale blue surface"),
    "pale pink": ("on a pale pink background", "a pale pink surface"),
    "pale green": ("on a pale green background", "a pale green surface"),
    "pale yellow": ("on a pale yellow background", "a pale yellow surface"),
}

PLACES: dict[str, str] = {
    "left": "on the left",
    "right": "on the right",
    "top": "at the top",
    "bottom": "at the bottom",
    "middle": "in the middle",
    "top left": "in the top left corner",
    "top right": "in the top right corner",
    "bottom left": "in the bottom left corner",
    "bottom right": "in the bottom right corner",
}

RELATIONS: dict[str, str] = {
    "left": "to the left of",
    "right": "to the right of",
    "above": "above",
    "below": "below",
    "front": "in front of",
    "behind": "behind",
    "beside": "next to",
}
