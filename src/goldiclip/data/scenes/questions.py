"""Questions about a scene with their answers, in five kinds: count, color, object-attributes, shape, relation.

A question keeps what it takes for granted (`about`): an image is relevant to it when that holds, and a safe distractor
when it does not hold even in the wide reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from goldiclip.data.scenes.graph import Group, Scene, place, relation
from goldiclip.data.scenes.phrases import has_rival, verb
from goldiclip.data.scenes.statements import Claim, Statement, matches
from goldiclip.data.scenes.vocabulary import CATEGORY, HYPERNYMS, PLACES, RELATIONS
from goldiclip.data.scenes.words import is_countable, number, opening, plural

QUESTION_KINDS = ("count", "color", "object-attributes", "shape", "relation")
PER_SCENE = 8
ONES = 0.2  # share of the counts of one thing that are asked
SIDES = {
    ("left", "right"): "to the left or to the right of",
    ("above", "below"): "above or below",
    ("front", "behind"): "in front of or behind",
}


@dataclass(frozen=True, slots=True)
class Asked:
    question: str
    answer: str
    kind: str
    about: Statement


def some_questions(scene: Scene, random: Random) -> tuple[Asked, ...]:
    """Up to eight questions, the kinds by turns; few whose answer is "one", or that would be the answer to give."""
    by_kind: dict[str, list[Asked]] = {}
    for asked in all_questions(scene):
        if asked.answer == "one" and random.random() > ONES:
            continue
        by_kind.setdefault(asked.kind, []).append(asked)
    queues = [random.sample(group, len(group)) for group in by_kind.values()]
    random.shuffle(queues)
    chosen: list[Asked] = []
    while queues and len(chosen) < PER_SCENE:
        queues = [queue for queue in queues if queue]
        chosen += [queue.pop() for queue in queues]
    return tuple(chosen[:PER_SCENE])


def all_questions(scene: Scene) -> Iterator[Asked]:
    """Every question that has one answer."""
    yield from _counts(scene)
    for i in range(len(scene.groups)):
        for subject, about in _subjects(scene, i):
            yield from _looks(scene.groups[i], subject, about)
    yield from _places(scene)
    yield from _relations(scene)


def _subjects(scene: Scene, index: int) -> Iterator[tuple[str, Statement]]:
    """Ways to point at a single thing: by its kind, by an attribute, by how it stands to another."""
    group = scene.groups[index]
    if group.count > 1:
        return
    alone = not has_rival(scene, index)
    if alone:
        yield f"the {group.kind}", Statement("", (Claim(group.kind),))
    for name, value in {"colour": group.look.colour, "texture": group.look.texture, "size": group.size}.items():
        attribute: dict[str, Any] = {name: value}
        claim = Claim(group.kind, **attribute)
        if value not in ("", "medium") and sum(matches(claim, other) for other in scene.groups) == 1:
            yield f"the {value} {group.kind}", Statement("", (claim,))
    for j, other in enumerate(scene.groups):
        name = relation(scene, index, j) if j != index else ""
        if name and alone and other.count == 1 and not has_rival(scene, j):
            about = Statement("", (Claim(group.kind), Claim(other.kind)), name)
            yield f"the {group.kind} {RELATIONS[name]} the {other.kind}", about


def _looks(group: Group, subject: str, about: Statement) -> Iterator[Asked]:
    """What one thing looks like, except for what the question itself says of it."""
    be, has = verb(group), verb(group, "does", "do")
    look, said = group.look, about.claims[0]
    if look.colour and not said.colour:
        yield Asked(f"What colour {be} {subject}?", look.colour, "color", about)
        yield Asked(f"What is the colour of {subject}?", look.colour, "color", about)
    if look.shape and not said.shape:
        yield Asked(f"What shape {be} {subject}?", look.shape, "shape", about)
        yield Asked(f"What is the shape of {subject}?", look.shape, "shape", about)
    if look.texture and not said.texture:
        yield Asked(
            f"What pattern {has} {subject} have?",
            "none" if look.texture == "plain" else look.texture,
            "object-attributes",
            about,
        )
    if not said.size:
        yield Asked(f"How large {be} {subject}?", group.size, "object-attributes", about)


def _counts(scene: Scene) -> Iterator[Asked]:
    for kind in {group.kind: None for group in scene.groups}:
        if not is_countable(kind):
            continue
        groups = [group for group in scene.groups if group.kind == kind]
        total = number(sum(group.count for group in groups))
        about = Statement("", (Claim(kind),))
        yield Asked(f"How many {plural(kind)} are there?", total, "count", about)
        yield Asked(f"How many {plural(kind)} can you see?", total, "count", about)
        for group in groups:
            if group.look.colour:
                about = Statement("", (Claim(kind, colour=group.look.colour),))
                text = f"How many {group.look.colour} {plural(kind)} are there?"
                yield Asked(text, number(group.count), "count", about)
    for category in HYPERNYMS:
        count = sum(group.count for group in scene.groups if CATEGORY.get(group.kind) == category)
        if count:
            about = Statement("", (Claim(category=category),))
            yield Asked(f"How many {plural(category)} are there?", number(count), "count", about)


def _places(scene: Scene) -> Iterator[Asked]:
    """Where in the picture a thing is."""
    for i, group in enumerate(scene.groups):
        where = place(group)
        if where and group.count == 1 and not has_rival(scene, i):
            about = Statement("", (Claim(group.kind),))
            yield Asked(f"Where in the picture {verb(group)} the {group.kind}?", PLACES[where], "relation", about)


def _relations(scene: Scene) -> Iterator[Asked]:
    """What is to the left of a thing, and on which side of another a thing is."""
    clear = [i for i in range(len(scene.groups)) if not has_rival(scene, i)]
    for i, j in ((i, j) for i in clear for j in clear if i != j):
        name = relation(scene, i, j)
        if not name:
            continue
        group, anchor = scene.groups[i], _named(scene.groups[j])
        if sum(relation(scene, k, j) == name for k in range(len(scene.groups)) if k != j) == 1:
            about = Statement("", (Claim(), Claim(scene.groups[j].kind)), name)
            yield Asked(f"What is {RELATIONS[name]} the {anchor}?", _named(group), "relation", about)
        about = Statement("", (Claim(group.kind), Claim(scene.groups[j].kind)))
        side = next(words for names, words in SIDES.items() if name in names)
        answer = "in front" if name == "front" else name
        yield Asked(f"{opening(verb(group))} the {_named(group)} {side} the {anchor}?", answer, "relation", about)


def _named(group: Group) -> str:
    return plural(group.kind) if group.count > 1 else group.kind
