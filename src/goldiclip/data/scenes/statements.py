"""What a sentence says, kept beside its words, so that it can be held against any scene.

Captions and questions are written together with their statements. The evaluation galleries ask which other scenes a
caption or a question might be about: that is how captions come to be unique and distractors safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from goldiclip.data.scenes.graph import Group, Scene, is_beside, may_be_at, may_relate, place, relation
from goldiclip.data.scenes.vocabulary import CATEGORY, SIZES

SIZE_ORDER = tuple(SIZES)


@dataclass(frozen=True, slots=True)
class Claim:
    """What is said of one group; "" and 0 are left unsaid."""

    kind: str = ""
    category: str = ""
    colour: str = ""
    texture: str = ""
    shape: str = ""
    size: str = ""
    count: int = 0
    place: str = ""


@dataclass(frozen=True, slots=True)
class Mention:
    """A phrase that brings in a group: "a red striped umbrella"."""

    phrase: str
    group: int


@dataclass(frozen=True, slots=True)
class Statement:
    """A sentence (without its full stop), and what must hold of a scene for it to be true."""

    text: str
    claims: tuple[Claim, ...] = ()
    relation: str = ""  # of the first claim's group to the second's
    background: str = ""
    mentions: tuple[Mention, ...] = ()


def holds(statement: Statement, scene: Scene, wide: bool = False) -> bool:
    """Whether the statement is true of the scene, or in the wide reading: whether a viewer might let it pass."""
    if statement.background and scene.background not in (
        {statement.background, ""} if wide else {statement.background}
    ):
        return False
    return any(
        not statement.relation or stands(scene, statement.relation, chosen[0], chosen[1], wide)
        for chosen in _assignments(statement.claims, scene, wide)
    )


def _assignments(
    claims: tuple[Claim, ...], scene: Scene, wide: bool, taken: tuple[int, ...] = ()
) -> Iterator[tuple[int, ...]]:
    """Every way to find a group of its own for each claim."""
    if len(taken) == len(claims):
        yield taken
        return
    for i, group in enumerate(scene.groups):
        if i not in taken and matches(claims[len(taken)], group, wide):
            yield from _assignments(claims, scene, wide, (*taken, i))


def matches(claim: Claim, group: Group, wide: bool = False) -> bool:
    look = group.look
    if claim.kind not in ("", look.kind) or claim.category not in ("", CATEGORY.get(look.kind, "")):
        return False
    for said, is_so in ((claim.colour, look.colour), (claim.texture, look.texture), (claim.shape, look.shape)):
        if said and is_so != said and (is_so or not wide):
            return False
    if claim.size not in ("", group.size):
        return False
    if claim.count and claim.count != group.count and not (wide and claim.count == 1):
        return False
    if not claim.place:
        return True
    return may_be_at(group, claim.place) if wide else place(group) == claim.place


def stands(scene: Scene, name: str, first: int, second: int, wide: bool = False) -> bool:
    """Whether one group stands so to the other: in space, in size or in colour."""
    one, other = scene.groups[first], scene.groups[second]
    if name in ("larger", "smaller"):
        step = SIZE_ORDER.index(one.size) - SIZE_ORDER.index(other.size)
        return step > 0 if name == "larger" else step < 0
    if name == "same colour":
        return one.look.colour == other.look.colour and (bool(one.look.colour) or wide)
    if wide:
        return may_relate(scene, name, first, second)
    return is_beside(scene, first, second) if name == "beside" else relation(scene, first, second) == name


class Gallery:
    """Scenes among which a statement is looked up."""

    def __init__(self, scenes: list[Scene]) -> None:
        self.scenes = scenes
        self._with_kind: dict[str, set[int]] = {}
        for i, scene in enumerate(scenes):
            for group in scene.groups:
                for name in (group.kind, CATEGORY.get(group.kind, "")):
                    self._with_kind.setdefault(name, set()).add(i)
        self._found = lru_cache(maxsize=1 << 18)(self._look_up)

    def about(self, statement: Statement) -> frozenset[int]:
        """The scenes of which a viewer might let the statement pass."""
        return self._found(statement.claims, statement.relation, statement.background)

    def _look_up(self, claims: tuple[Claim, ...], relation: str, background: str) -> frozenset[int]:
        statement = Statement("", claims, relation, background)
        names = [name for claim in claims for name in (claim.kind, claim.category) if name]
        sets = sorted((self._with_kind.get(name, set()) for name in names), key=len)
        candidates = set.intersection(*sets) if sets else set(range(len(self.scenes)))
        return frozenset(i for i in candidates if holds(statement, self.scenes[i], wide=True))
