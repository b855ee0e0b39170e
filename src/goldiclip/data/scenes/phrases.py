"""Groups as noun phrases: "a large red striped umbrella", "three blue apples with dots", "the green car"."""

from __future__ import annotations

from random import Random

from goldiclip.data.scenes.graph import Group, Scene
from goldiclip.data.scenes.statements import Claim
from goldiclip.data.scenes.vocabulary import SIZE_WORDS, TEXTURES
from goldiclip.data.scenes.words import MASS, NAMES, PLURAL, UNIQUE, indefinite, is_plural, number, plural

# How often an attribute is mentioned at full detail.
CHANCES = {"colour": 0.92, "texture": 0.75, "shape": 0.8, "size": 0.45}


def mention(scene: Scene, index: int, random: Random, detail: float = 1.0) -> tuple[str, Claim]:
    """A phrase that brings the group in, with enough said to tell it from the scene's other groups."""
    group = scene.groups[index]
    said = {name for name, chance in CHANCES.items() if random.random() < chance * detail}
    if has_rival(scene, index):
        said.add("colour")
    return _phrase(group, said, random, definite=False)


def reference(scene: Scene, index: int, random: Random, but: str = "") -> tuple[str, Claim]:
    """A phrase that comes back to the group, as short as it can be, sometimes with its colour; never naming `but`."""
    said = {"colour"} if has_rival(scene, index) or random.random() < 0.3 else set()
    return _phrase(scene.groups[index], said - {but}, random, definite=True)


def has_rival(scene: Scene, index: int) -> bool:
    """Whether another group is of the same kind."""
    return sum(group.kind == scene.groups[index].kind for group in scene.groups) > 1


def verb(group: Group, singular: str = "is", many: str = "are") -> str:
    return many if is_plural(group.kind, group.count) else singular


def _phrase(group: Group, said: set[str], random: Random, definite: bool) -> tuple[str, Claim]:
    look = group.look
    values = {"size": group.size, "shape": look.shape, "colour": look.colour, "texture": look.texture}
    claimed = {name: value for name, value in values.items() if name in said and value}
    if claimed.get("size") == "medium" or claimed.get("texture") == "plain":
        for name in [name for name, value in claimed.items() if value in ("medium", "plain") and random.random() < 0.7]:
            del claimed[name]
    words = [random.choice(SIZE_WORDS[claimed["size"]])] if "size" in claimed else []
    words += [claimed[name] for name in ("shape", "colour") if name in claimed]
    texture, after = claimed.get("texture", ""), ""
    if texture and not definite and random.random() < 0.3:
        after = f" {TEXTURES[texture][0]}"
    elif texture:
        words.insert(len(words) - (texture == "plain" and "colour" in claimed), texture)
    noun = plural(group.kind) if group.count > 1 else group.kind
    return _determined(group, " ".join([*words, noun]) + after, definite), Claim(
        kind=look.kind, count=group.count, **claimed
    )


def _determined(group: Group, phrase: str, definite: bool) -> str:
    """The phrase behind its article or number."""
    if group.count > 1:
        return f"{'the ' if definite else ''}{number(group.count)} {phrase}"
    if group.kind in NAMES:
        return phrase
    if definite or group.kind in UNIQUE:
        return f"the {phrase}"
    return f"some {phrase}" if group.kind in MASS or group.kind in PLURAL else indefinite(phrase)
