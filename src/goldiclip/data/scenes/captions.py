"""What is said about a scene: an alt-text, three short captions and three long ones, each with its statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from goldiclip.data.scenes.graph import Scene, is_beside, place, relation
from goldiclip.data.scenes.phrases import has_rival, mention, reference, verb
from goldiclip.data.scenes.statements import Claim, Mention, Statement, stands
from goldiclip.data.scenes.vocabulary import BACKGROUNDS, PLACES, RELATIONS, TEXTURES
from goldiclip.data.scenes.words import is_countable, listing, number, opening, plural
from goldiclip.types import CaptionSource

NUM_SHORT = NUM_LONG = 3
MAX_WORDS = 66  # words and marks of a long caption: with the two ends and a split word or two it fits 77 tokens


@dataclass(frozen=True, slots=True)
class Passage:
    """A caption as statements; its text is their sentences."""

    source: CaptionSource
    statements: tuple[Statement, ...]

    @property
    def text(self) -> str:
        sentences = [statement.text for statement in self.statements]
        return f"{'. '.join(sentences)}." if self.source == "long" else ". ".join(sentences)


def passages(scene: Scene, random: Random) -> tuple[Passage, ...]:
    """One raw, three short and three long captions, no two alike."""
    short = _different(lambda: random.choice(SHORT)(scene, random), NUM_SHORT)
    long = [_long(scene, style, random) for style in random.sample(LONG, NUM_LONG)]
    raw = Passage("raw", (_alt_text(scene, random),))
    return (
        raw,
        *(Passage("short", (statement,)) for statement in short),
        *(Passage("long", tuple(part)) for part in long),
    )


def _different(draw: Callable[[], Statement], count: int) -> list[Statement]:
    """`count` statements, different ones as far as forty draws find them."""
    found: dict[str, Statement] = {}
    for _ in range(40):
        statement = draw()
        found.setdefault(statement.text, statement)
        if len(found) == count:
            break
    return list(found.values())


# --- raw ------------------------------------------------------------------------------------------------------------


def _alt_text(scene: Scene, random: Random) -> Statement:
    """What people leave in an alt attribute: incomplete, out of order, with a file name or an advertisement."""
    groups = random.sample(range(len(scene.groups)), min(len(scene.groups), random.randint(1, 2)))
    names = [_keyword(scene, i, random) for i in groups]
    place_name = BACKGROUNDS[scene.background][1] if scene.background and random.random() < 0.4 else ""
    words = ", ".join([*names, *filter(None, [place_name])])
    text = random.choice(
        (
            f"{words}",
            f"{opening(words)} | free picture",
            f"IMG_{random.randint(1000, 9999)} {' '.join(names)}",
            f"{words} clip art",
            f"{opening(words)} (vector illustration)",
            f"Stock picture: {words}",
            f"{' '.join(names)} {random.randint(1, 99):02d}",
        )
    )
    return Statement(text, tuple(Claim(kind=scene.groups[i].kind) for i in groups))


def _keyword(scene: Scene, index: int, random: Random) -> str:
    group = scene.groups[index]
    colour = f"{group.look.colour} " if group.look.colour and random.random() < 0.5 else ""
    return colour + (plural(group.kind) if group.count > 1 else group.kind)


# --- short ----------------------------------------------------------------------------------------------------------


def _enumeration(scene: Scene, random: Random) -> Statement:
    """a red cup, two dogs and a tree in a meadow"""
    chosen = list(range(len(scene.groups)))
    if len(chosen) > 2:
        chosen = random.sample(chosen, random.randint(2, min(3, len(chosen))))
    random.shuffle(chosen)
    said = [mention(scene, i, random, 0.8) for i in chosen]
    background = scene.background if random.random() < 0.6 else ""
    where = f" {BACKGROUNDS[background][0]}" if background else ""
    lead = random.choice(("", "", "", "a picture of ", "an image of "))
    text = opening(f"{lead}{listing([phrase for phrase, _ in said])}{where}")
    mentions = tuple(Mention(phrase, i) for (phrase, _), i in zip(said, chosen, strict=True))
    return Statement(text, tuple(claim for _, claim in said), background=background, mentions=mentions)


def _pair(scene: Scene, random: Random) -> Statement:
    """a red cup to the left of two dogs"""
    related = list(_relations(scene))
    if not related:
        return _single(scene, random)
    name, i, j = random.choice(related)
    (one, claim), (other, other_claim) = mention(scene, i, random, 0.8), mention(scene, j, random, 0.8)
    text = opening(f"{one} {RELATIONS[name]} {other}")
    return Statement(text, (claim, other_claim), name, mentions=(Mention(one, i), Mention(other, j)))


def _single(scene: Scene, random: Random) -> Statement:
    """a small red cup in the top left corner, on lined paper"""
    i = random.randrange(len(scene.groups))
    phrase, claim = mention(scene, i, random)
    where = place(scene.groups[i]) if random.random() < 0.6 else ""
    background = scene.background if random.random() < 0.6 or not where else ""
    text = f"{phrase} {PLACES[where]}" if where else phrase
    if background:
        text += f"{',' if where else ''} {BACKGROUNDS[background][0]}"
    claims, mentions = (replace(claim, place=where),), (Mention(phrase, i),)
    return Statement(opening(text), claims, background=background, mentions=mentions)


SHORT = (_enumeration, _enumeration, _pair, _single)


# --- long -----------------------------------------------------------------------------------------------------------

Style = Callable[[Scene, Random], Iterator[Statement]]


def _long(scene: Scene, style: Style, random: Random) -> list[Statement]:
    """As many of a style's sentences as fit the text tower's context."""
    kept: list[Statement] = []
    words = 0
    for statement in style(scene, random):
        length = len(re.findall(r"\w+|[^\w\s]", statement.text)) + 1
        if words + length <= MAX_WORDS and all(statement.text != other.text for other in kept):
            kept.append(statement)
            words += length
    return kept


def _by_place(scene: Scene, random: Random) -> Iterator[Statement]:
    """The ground first, then every thing where it is, then how they stand to one another."""
    if scene.background and random.random() < 0.7:
        yield _setting(scene, random)
    for i in _shuffled(scene, random):
        yield _placement(scene, i, random)
    yield from _some_relations(scene, random, 2)
    if len(scene.groups) < 3:
        for i in _shuffled(scene, random):
            yield from _description(scene, i, random)


def _by_relation(scene: Scene, random: Random) -> Iterator[Statement]:
    """All at once, then relations and what each looks like."""
    yield _overview(scene, random)
    yield from _some_relations(scene, random, 3)
    for i in _shuffled(scene, random):
        yield from _description(scene, i, random)
    if scene.background:
        yield _setting(scene, random)


def _by_look(scene: Scene, random: Random) -> Iterator[Statement]:
    """Every thing in full, comparisons, the number of things, the ground."""
    turn = random.randrange(4)
    for i in _shuffled(scene, random):
        yield _introduction(scene, i, random, turn := turn + 1)
    yield from _comparisons(scene, random)
    yield from _some_relations(scene, random, 1)
    yield from _total(scene, random)
    if scene.background:
        yield _setting(scene, random)


LONG: tuple[Style, ...] = (_by_place, _by_relation, _by_look)


def _shuffled(scene: Scene, random: Random) -> list[int]:
    return random.sample(range(len(scene.groups)), len(scene.groups))


def _overview(scene: Scene, random: Random) -> Statement:
    chosen = _shuffled(scene, random)
    said = [mention(scene, i, random, 0.7) for i in chosen]
    lead = random.choice(("The picture shows", "This is a picture of", "One can see", "The image contains"))
    text = f"{lead} {listing([phrase for phrase, _ in said])}"
    mentions = tuple(Mention(phrase, i) for (phrase, _), i in zip(said, chosen, strict=True))
    return Statement(text, tuple(claim for _, claim in said), mentions=mentions)


def _introduction(scene: Scene, index: int, random: Random, turn: int) -> Statement:
    """There is a small red cup: one of four openings by turns."""
    phrase, claim = mention(scene, index, random)
    be = verb(scene.groups[index])
    forms = (f"There {be} {phrase}", f"The picture shows {phrase}", f"{phrase} can be seen", f"One can see {phrase}")
    return Statement(opening(forms[turn % len(forms)]), (claim,), mentions=(Mention(phrase, index),))


def _placement(scene: Scene, index: int, random: Random) -> Statement:
    """In the top left corner there is a small red cup."""
    where = place(scene.groups[index])
    if not where:
        return _introduction(scene, index, random, random.randrange(4))
    phrase, claim = mention(scene, index, random)
    there, be = PLACES[where], verb(scene.groups[index])
    forms = (
        f"{phrase} {be} {there}",
        f"There {be} {phrase} {there}",
        f"{there} {be} {phrase}",
        f"{there}, there {be} {phrase}",
        f"{phrase} can be seen {there}",
    )
    return Statement(opening(random.choice(forms)), (replace(claim, place=where),), mentions=(Mention(phrase, index),))


def _setting(scene: Scene, random: Random) -> Statement:
    phrase, noun = BACKGROUNDS[scene.background]
    forms = [f"The scene is set {phrase}", f"In the background there is {noun}"]
    if scene.background != "night":
        forms += [f"The background is {noun}", f"Everything is {phrase}"]
    return Statement(random.choice(forms), background=scene.background)


def _description(scene: Scene, index: int, random: Random) -> Iterator[Statement]:
    """The umbrella is large and striped."""
    group = scene.groups[index]
    rival = has_rival(scene, index)
    subject, claim = reference(scene, index, random, but="" if rival else "colour")
    values = {"size": group.size, "shape": group.look.shape, "colour": group.look.colour, "texture": group.look.texture}
    known = [name for name, value in values.items() if value not in ("", "medium") and not getattr(claim, name)]
    if not known:
        return
    chosen = random.sample(known, min(len(known), random.randint(1, 2)))
    said: dict[str, Any] = {name: value for name, value in values.items() if name in chosen}
    texture = said.get("texture", "")
    words = [value for name, value in said.items() if name != "texture"]
    words += [TEXTURES[texture][1]] if texture not in ("", "plain") else []
    parts = [f"{verb(group)} {listing(words)}"] if words else []
    parts += [f"{verb(group, 'has', 'have')} no pattern"] if texture == "plain" else []
    yield Statement(opening(f"{subject} {listing(parts)}"), (replace(claim, **said),))


def _some_relations(scene: Scene, random: Random, most: int) -> Iterator[Statement]:
    related = list(_relations(scene))
    random.shuffle(related)
    said: set[frozenset[int]] = set()
    for name, i, j in related:
        if len(said) < most and frozenset((i, j)) not in said:
            said.add(frozenset((i, j)))
            yield _relation(scene, name, i, j, random)


def _relation(scene: Scene, name: str, i: int, j: int, random: Random) -> Statement:
    (one, claim), (other, other_claim) = reference(scene, i, random), reference(scene, j, random)
    first, second = scene.groups[i], scene.groups[j]
    forms = [f"{one} {verb(first)} {RELATIONS[name]} {other}"]
    if name == "front":
        forms.append(f"{one} partly {verb(first, 'hides', 'hide')} {other}")
        forms.append(f"{other} {verb(second)} partly hidden by {one}")
    if name == "behind":
        forms.append(f"{one} {verb(first)} partly hidden behind {other}")
    return Statement(opening(random.choice(forms)), (claim, other_claim), name)


def _relations(scene: Scene) -> Iterator[tuple[str, int, int]]:
    """Every relation that can be said of two groups, in both directions."""
    for i in range(len(scene.groups)):
        for j in range(len(scene.groups)):
            if i != j and (name := relation(scene, i, j)):
                yield name, i, j
            if i != j and is_beside(scene, i, j):
                yield "beside", i, j


def _comparisons(scene: Scene, random: Random) -> Iterator[Statement]:
    """At most one: which is larger, or what has the same colour."""
    pairs = [(i, j) for i in range(len(scene.groups)) for j in range(len(scene.groups)) if i != j]
    random.shuffle(pairs)
    for i, j in pairs:
        single = scene.groups[i].count == scene.groups[j].count == 1
        names = [name for name in ("larger", "smaller", "same colour") if single and stands(scene, name, i, j)]
        if not names:
            continue
        name = random.choice(names)
        (one, claim), (other, other_claim) = (
            reference(scene, k, random, but="colour" if name == "same colour" else "") for k in (i, j)
        )
        be = verb(scene.groups[i])
        text = f"{one} and {other} have the same colour" if name == "same colour" else f"{one} {be} {name} than {other}"
        yield Statement(opening(text), (claim, other_claim), name)
        return


def _total(scene: Scene, random: Random) -> Iterator[Statement]:
    if not all(is_countable(group.kind) for group in scene.groups):
        return
    count = sum(group.count for group in scene.groups)
    if count == 1:
        yield Statement("There is nothing else in the picture")
        return
    things = f"{number(count)} things"
    yield Statement(
        random.choice(
            (f"There are {things} in total", f"Altogether there are {things}", f"The picture contains {things}")
        )
    )
