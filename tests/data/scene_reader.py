"""A second reading of the embedded corpus: what captions and questions say, from their words and the pixels alone.

Nothing here uses the corpus's own statements, relations or places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations

import numpy as np

from goldiclip.data.scenes.graph import Scene
from goldiclip.data.scenes.vocabulary import BACKGROUNDS, CATEGORY, COLOURS, KINDS, PLACES, SHAPES, TEXTURES
from goldiclip.data.scenes.words import plural

COUNTS = {"a": 1, "an": 1, "the": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
SIZES = {"small": "small", "little": "small", "medium-sized": "medium", "large": "large", "big": "large"}
ADJECTIVES = {
    **{word: ("size", value) for word, value in SIZES.items()},
    **{word: ("colour", word) for word in COLOURS},
    **{word: ("texture", word) for word in TEXTURES},
    **{word: ("shape", word) for word in SHAPES},
}
AFTER = {words: name for name, (words, _) in TEXTURES.items()}
NOUNS = {**{kind: (kind, False) for kind in KINDS}, **{plural(kind): (kind, True) for kind in KINDS}}
RELATIONS = {
    "to the left of": "left",
    "to the right of": "right",
    "in front of": "front",
    "partly hides": "front",
    "partly hide": "front",
    "partly hidden by": "behind",
    "partly hidden behind": "behind",
    "above": "above",
    "below": "below",
    "behind": "behind",
    "next to": "beside",
    "larger than": "larger",
    "smaller than": "smaller",
}


def _any(words: object) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))  # type: ignore[call-overload]


ADJECTIVE = rf"(?:{_any(ADJECTIVES)})"
PHRASE = re.compile(
    rf"\b(?:(?P<the>the) )?(?:(?P<count>{_any(COUNTS)}) )?(?P<adjectives>(?:{ADJECTIVE} )*)"
    rf"(?P<noun>{_any(NOUNS)})(?![-\w])(?: (?P<after>{_any(AFTER)}))?",
    re.IGNORECASE,
)


@dataclass
class Said:
    """A noun phrase: what, how many, and how it looks."""

    kind: str
    count: int
    looks: dict[str, str]
    is_plural: bool
    text: str
    span: tuple[int, int] = (0, 0)
    place: str = ""


@dataclass
class Sentence:
    phrases: list[Said]
    relation: str = ""
    background: str = ""
    predicate: dict[str, str] = field(default_factory=dict)  # the cup *is red and striped*
    same_colour: bool = False


def phrases(text: str) -> list[Said]:
    found = []
    for match in PHRASE.finditer(text):
        kind, is_plural = NOUNS[match["noun"].lower()]
        looks = dict(ADJECTIVES[word.lower()] for word in match["adjectives"].split())
        if match["after"]:
            looks["texture"] = AFTER[match["after"]]
        count = COUNTS[(match["count"] or "one").lower()]
        found.append(Said(kind, count, looks, is_plural, match[0], match.span()))
    return found


def read(text: str) -> Sentence:
    """What one sentence of a caption says."""
    said = Sentence(phrases(text))
    rest = text[said.phrases[-1].span[1] :] if said.phrases else text
    for name, (where, what) in BACKGROUNDS.items():
        if rest.endswith(where) or (not said.phrases and (what in text or where in text)):
            said.background = name
    if len(said.phrases) == 2:
        between = text[said.phrases[0].span[1] : said.phrases[1].span[0]]
        said.relation = next((name for words, name in RELATIONS.items() if words in between), "")
        said.same_colour = "have the same colour" in rest
    if len(said.phrases) == 1:
        around = (text[: said.phrases[0].span[0]] + "|" + rest).lower()
        places = [name for name, words in PLACES.items() if words in around]
        said.phrases[0].place = max(places, key=len, default="")
        if re.match(r" (is|are|has|have) ", rest) and not places and "can be" not in rest:
            said.predicate = _predicate(rest)
    return said


def _predicate(text: str) -> dict[str, str]:
    looks = dict(ADJECTIVES[word] for word in re.findall(rf"\b{ADJECTIVE}(?![-\w])", text))
    if "patterned with zigzags" in text:
        looks["texture"] = "zigzag"
    if "no pattern" in text:
        looks["texture"] = "plain"
    return looks


# --- the scene, from its pixels -------------------------------------------------------------------------------------


def centre(scene: Scene, index: int) -> tuple[float, float]:
    rows, columns = np.nonzero(scene.owner == index + 1)
    size = scene.owner.shape[0]
    return (columns.min() + columns.max() + 1) / 2 / size, (rows.min() + rows.max() + 1) / 2 / size


def fits(said: Said, scene: Scene, index: int, exact: bool) -> bool:
    """Whether a phrase may be said of a group; loosely, "a cup" is also said of one of three."""
    group = scene.groups[index]
    if said.kind != group.kind:
        return False
    if said.count != group.count and (exact or said.count != 1):
        return False
    looks = {"size": group.size, "colour": group.look.colour, "texture": group.look.texture, "shape": group.look.shape}
    if any(looks[name] != value for name, value in said.looks.items()):
        return False
    return not said.place or is_at(scene, index, said.place)


def is_at(scene: Scene, index: int, place: str) -> bool:
    x, y = centre(scene, index)
    if place == "middle":
        return abs(x - 0.5) < 0.2 and abs(y - 0.5) < 0.2
    halves = {"left": x < 0.5, "right": x > 0.5, "top": y < 0.5, "bottom": y > 0.5}
    return all(halves[word] for word in place.split())


def relates(scene: Scene, name: str, one: int, other: int) -> bool:
    (x, y), (u, v) = centre(scene, one), centre(scene, other)
    sizes = [("small", "medium", "large").index(scene.groups[i].size) for i in (one, other)]
    return {
        "left": x < u,
        "right": x > u,
        "above": y < v,
        "below": y > v,
        "front": (one, other) in scene.covers,
        "behind": (other, one) in scene.covers,
        "beside": True,
        "larger": sizes[0] > sizes[1],
        "smaller": sizes[0] < sizes[1],
        "": True,
    }[name]


def is_true(said: Sentence, scene: Scene, exact: bool = True) -> bool:
    """Whether some choice of groups makes the sentence true."""
    if said.background not in ("", scene.background):
        return False
    for chosen in permutations(range(len(scene.groups)), len(said.phrases)):
        if not all(fits(phrase, scene, i, exact) for phrase, i in zip(said.phrases, chosen, strict=True)):
            continue
        if said.relation and not relates(scene, said.relation, *chosen):
            continue
        if said.same_colour and len({scene.groups[i].look.colour for i in chosen}) > 1:
            continue
        predicate = Said(said.phrases[0].kind, said.phrases[0].count, said.predicate, False, "") if chosen else None
        if predicate is None or fits(predicate, scene, chosen[0], exact):
            return True
    return False


# --- questions ------------------------------------------------------------------------------------------------------


def answers(question: str, scene: Scene) -> set[str]:
    """Every answer the scene gives to a question; none when the question does not apply to it."""
    text = question.rstrip("?")
    for form, reply in FORMS.items():
        if match := re.fullmatch(form, text):
            return set(reply(scene, *match.groups()))
    raise AssertionError(f"no form for {question!r}")


def _subjects(scene: Scene, words: str) -> list[int]:
    """The groups that "the red cup to the left of the dog" may point at."""
    said = read(words)
    indices = range(len(scene.groups))
    if len(said.phrases) == 2:
        first, second = said.phrases
        return [
            i
            for i in indices
            for j in indices
            if i != j
            and fits(first, scene, i, False)
            and fits(second, scene, j, False)
            and relates(scene, said.relation, i, j)
        ]
    size = re.match(r"the medium ", words)
    assert not size
    return [i for i in indices if fits(said.phrases[0], scene, i, False)]


def _look(name: str):
    def reply(scene: Scene, subject: str) -> Iterator[str]:
        for i in _subjects(scene, subject):
            value = scene.groups[i].size if name == "size" else getattr(scene.groups[i].look, name)
            yield "none" if value == "plain" else value

    return reply


NUMBERS = (
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
)


def _count(scene: Scene, words: str) -> Iterator[str]:
    *looks, noun = words.split(" ", 1) if words.split(" ")[0] in COLOURS else [words]
    categories = {plural(name): name for name in CATEGORY.values()}
    total = sum(
        group.count
        for group in scene.groups
        if (NOUNS.get(noun, ("",))[0] == group.kind or CATEGORY[group.kind] == categories.get(noun))
        and (not looks or group.look.colour == looks[0])
    )
    if total:
        yield NUMBERS[total - 1]


def _what(scene: Scene, words: str, anchor: str) -> Iterator[str]:
    name = RELATIONS[words]
    for i in range(len(scene.groups)):
        for j in _subjects(scene, anchor):
            if i != j and relates(scene, name, i, j):
                yield _named(scene, i)


def _named(scene: Scene, index: int) -> str:
    group = scene.groups[index]
    return plural(group.kind) if group.count > 1 else group.kind


def _where(scene: Scene, subject: str) -> Iterator[str]:
    for i in _subjects(scene, subject):
        yield from (words for name, words in PLACES.items() if is_at(scene, i, name))


def _side(*names: str):
    def reply(scene: Scene, one: str, other: str) -> Iterator[str]:
        for i in _subjects(scene, one):
            for j in _subjects(scene, other):
                yield from (
                    name for name in names if i != j and relates(scene, {"in front": "front"}.get(name, name), i, j)
                )

    return reply


FORMS = {
    r"How many (.*) (?:are there|can you see)": _count,
    r"What (?:colour (?:is|are)|is the colour of) (.*)": _look("colour"),
    r"What (?:shape (?:is|are)|is the shape of) (.*)": _look("shape"),
    r"What pattern (?:does|do) (.*) have": _look("texture"),
    r"How large (?:is|are) (.*)": _look("size"),
    r"Where in the picture (?:is|are) (.*)": _where,
    r"(?:Is|Are) (.*) to the left or to the right of (.*)": _side("left", "right"),
    r"(?:Is|Are) (.*) above or below (.*)": _side("above", "below"),
    r"(?:Is|Are) (.*) in front of or behind (.*)": _side("in front", "behind"),
    rf"What is ({_any(RELATIONS)}) (.*)": _what,
}
