"""Questions without a model: filled from what captions say of their objects, and from where boxes lie.

    "Two dogs chase a red ball on the grass."  ->  How many dogs are there? two · What color is the ball? red
                                                   What is on the grass? ball

A question is asked only where it has one answer: the object is named once, its box is one. Which of the possible ones
are taken, and whether "left or right" is asked of one object or of the other, is a function of the sample's key.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from goldiclip.prepare import lexicon, tags
from goldiclip.prepare.chunks import Chunk, rule_chunks
from goldiclip.prepare.phrases import clean, split_sentences
from goldiclip.prepare.questions import MAX_QUESTIONS, reference_caption
from goldiclip.types import Question, Region, Sample

MIN_SCORE = 0.3  # below it a box may be about something else

COLOURS = lexicon.word_set("red green blue yellow orange purple pink brown black white grey gray beige gold silver")
MATERIALS = {
    "wooden": "wood", "metal": "metal", "metallic": "metal", "plastic": "plastic", "brick": "brick", "stone": "stone",
    "leather": "leather", "concrete": "concrete", "glass": "glass", "paper": "paper", "wicker": "wicker",
    "ceramic": "ceramic", "marble": "marble", "rubber": "rubber", "gravel": "gravel",
}  # fmt: skip
SHAPES = lexicon.word_set("round square rectangular oval triangular circular spherical")
PATTERNS = lexicon.word_set("striped plaid checkered spotted floral polka-dotted dotted")
SIZES = dict.fromkeys(("large", "big", "huge", "giant", "enormous"), "large")
SIZES |= dict.fromkeys(("small", "little", "tiny", "miniature"), "small")
PLACES = frozenset(
    ("on", "in", "under", "beside", "near", "behind", "above", "below", "underneath", "inside", "against")
)
PEOPLE = lexicon.word_set(
    """
    man woman boy girl child person lady guy kid baby toddler player men women boys girls children people kids adult
    family couple crowd group team police chef bride groom teenager cyclist biker surfer skier musician
    """
)
# They end as those who act do.
TOOLS = frozenset(
    ("container", "counter", "trailer", "roller", "sprinkler", "holder", "cooker", "folder", "poster", "marker")
)


@dataclass(frozen=True, slots=True)
class Thing:
    """One object of a caption: its head, what is said of it, how many there are."""

    words: tuple[str, ...]
    number: str = ""

    @property
    def head(self) -> str:
        return self.words[-1]

    @property
    def is_plural(self) -> bool:
        return self.head in lexicon.PLURALS or (self.head.endswith("s") and not self.head.endswith("ss"))

    def without(self, word: str) -> str:
        return " ".join(part for part in self.words if part != word)


def template_questions(sample: Sample, limit: int = MAX_QUESTIONS) -> tuple[Question, ...]:
    """At most `limit` questions on a sample, of as many kinds as it allows."""
    found = [*caption_questions(reference_caption(sample.captions)), *box_questions(sample.regions, sample.key)]
    unique = {item.question.lower(): item for item in found}
    by_kind: dict[str, list[Question]] = {}
    for item in sorted(unique.values(), key=lambda item: _draw(sample.key, item.question)):
        by_kind.setdefault(item.kind, []).append(item)
    rounds = [(place, kind, item) for kind, items in by_kind.items() for place, item in enumerate(items)]
    rounds.sort(key=lambda entry: (entry[0], _draw(sample.key, entry[1])))
    return tuple(item for _, _, item in rounds[:limit])


def _draw(key: str, text: str) -> bytes:
    """A number for an order that looks random and is the same every time."""
    return hashlib.sha256(f"{key}\0{text}".encode()).digest()


# --- from words -----------------------------------------------------------------------------------------------------


def caption_questions(caption: str) -> Iterator[Question]:
    sentences = list(split_sentences([caption]))
    chunks = [rule_chunks(sentence) for sentence in sentences]
    heads = Counter(_kind_word(phrase) for phrase in (clean(chunk) for found in chunks for chunk in found) if phrase)
    for thing in filter(None, (_thing(chunk) for found in chunks for chunk in found)):
        if heads[_kind_word(thing.head)] == 1:
            yield from _about(thing)
    for sentence, found in zip(sentences, chunks):
        yield from _relation(sentence, found, heads)


def _kind_word(phrase: str) -> str:
    """What a phrase names, in the singular: "two brown dogs" and "a dog" name the same kind."""
    return phrase.split()[-1].removesuffix("s")


def _thing(chunk: Chunk) -> Thing | None:
    phrase = clean(chunk)
    if not phrase or "," in phrase or "'" in phrase or " and " in phrase:
        return None
    numbers = [word.lower() for word in chunk.words[:2] if word.lower() in lexicon.CARDINALS]
    return Thing(tuple(phrase.split()), numbers[0] if numbers else "")


def _about(thing: Thing) -> Iterator[Question]:
    """Count, colour, shape, material, pattern and size, as far as the caption says them."""
    be = "are" if thing.is_plural else "is"
    if thing.number and thing.number != "one" and thing.is_plural:
        yield Question(f"How many {' '.join(thing.words)} are there?", thing.number, "count")
    for word in thing.words[:-1]:
        rest = thing.without(word)
        if word in COLOURS and sum(part in lexicon.COLOURS for part in thing.words) == 1:
            yield Question(f"What color {be} the {rest}?", word, "color")
        elif word in SHAPES:
            yield Question(f"What shape {be} the {rest}?", word, "shape")
        elif word in MATERIALS and word == thing.words[-2]:
            yield Question(f"What {be} the {rest} made of?", MATERIALS[word], "object-attributes")
        elif word in PATTERNS:
            yield Question(
                f"What pattern {'do' if thing.is_plural else 'does'} the {rest} have?", word, "object-attributes"
            )
        elif word in SIZES and word == thing.words[0] and thing.head not in PEOPLE:
            yield Question(f"{be.capitalize()} the {rest} large or small?", SIZES[word], "object-attributes")


def _relation(sentence: str, chunks: Sequence[Chunk], heads: Counter[str]) -> Iterator[Question]:
    """ "A cat (is) (sitting) on a bench": who or what is (sitting) on the bench? Of the first object alone, which is
    the one that what follows is about."""
    if len(chunks) < 2:
        return
    subject, place = _thing(chunks[0]), _thing(chunks[1])
    if not subject or not place or subject.number or place.number:
        return
    if max(heads[_kind_word(subject.head)], heads[_kind_word(place.head)]) > 1:
        return
    between = [word for word in _between(sentence, chunks[0], chunks[1]) if word not in ("is", "are")]
    *verb, preposition = between or [""]
    if preposition in PLACES and len(verb) <= 1 and all(tags.verb_form(word)[1] == "ing" for word in verb):
        asked = [_who_or_what(subject), "is", *verb, preposition, "the", *place.words]
        yield Question(" ".join(asked) + "?", " ".join(subject.words), "relation")


def _between(sentence: str, one: Chunk, other: Chunk) -> list[str]:
    words = [word.lower() for word in tags.split_words(sentence)]
    start = _find(words, one, 0) + len(one.words)
    return words[start : _find(words, other, start)]


def _find(words: list[str], chunk: Chunk, start: int) -> int:
    wanted = [word.lower() for word in chunk.words]
    return next(at for at in range(start, len(words)) if words[at : at + len(wanted)] == wanted)


def _who_or_what(thing: Thing) -> str:
    head = thing.head
    acts = head.endswith("er") and (tags.verb_form(head[:-1])[0] or tags.verb_form(head[:-2])[0])
    return "Who" if head in PEOPLE or head.endswith(("man", "men")) or (acts and head not in TOOLS) else "What"


# --- from boxes -----------------------------------------------------------------------------------------------------


def box_questions(regions: Sequence[Region], key: str) -> Iterator[Question]:
    """Left or right, above or below: of two objects with one box each that lie clear of one another."""
    sure = [region for region in regions if region.score >= MIN_SCORE]
    number = Counter(region.phrase for region in sure)
    alone = [
        region for region in sure if number[region.phrase] == 1 and not Thing(tuple(region.phrase.split())).is_plural
    ]
    for at, one in enumerate(alone):
        for other in alone[at + 1 :]:
            if one.phrase.split()[-1] != other.phrase.split()[-1]:
                yield from _side(one, other, key)


def _side(one: Region, other: Region, key: str) -> Iterator[Question]:
    if _draw(key, f"{one.phrase}\0{other.phrase}")[0] & 1:
        one, other = other, one
    across, down = _gap(one.box[0::2], other.box[0::2]), _gap(one.box[1::2], other.box[1::2])
    if across and not down:
        asked = f"Is the {one.phrase} to the left or to the right of the {other.phrase}?"
        yield Question(asked, "left" if across < 0 else "right", "relation")
    elif down and not across:
        yield Question(
            f"Is the {one.phrase} above or below the {other.phrase}?", "above" if down < 0 else "below", "relation"
        )


def _gap(one: Sequence[float], other: Sequence[float]) -> int:
    """-1 when one ends before other begins, 1 the other way round, 0 when they meet."""
    if one[1] <= other[0]:
        return -1
    return 1 if other[1] <= one[0] else 0
