"""Object-centric phrases of a caption: what a detector is asked to find, each with the sentence it stands in.

    "A man in a red shirt rides a horse on the beach."  ->  man, red shirt, horse, beach

Noun chunks come from rules or from a spaCy pipeline (`chunks`); here determiners and numbers fall away from them, and
so do chunks without an object: pronouns, abstract heads, measures before "of", and what a caption says is absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from goldiclip.prepare import lexicon, tags
from goldiclip.prepare.chunks import Chunk, Chunker
from goldiclip.types import Caption

MAX_PHRASES = 10
MAX_WORDS = 8
SOURCES = ("long", "short", "raw")
MAX_SENTENCES = 60
MAX_SENTENCE_CHARACTERS = 1_000

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+|\n+|</s>")


@dataclass(frozen=True, slots=True)
class Phrase:
    phrase: str
    sentence: str


def find_phrases(texts: Iterable[str], chunker: Chunker, limit: int = MAX_PHRASES) -> list[Phrase]:
    """The first `limit` different phrases of some captions, in the order in which they are read."""
    sentences = list(islice(split_sentences(texts), MAX_SENTENCES))
    found: dict[str, Phrase] = {}
    for sentence, chunks in zip(sentences, chunker(sentences)):
        for phrase in filter(None, map(clean, chunks)):
            found.setdefault(phrase, Phrase(phrase, sentence))
        if len(found) >= limit:
            break
    return list(found.values())[:limit]


def caption_order(captions: Sequence[Caption]) -> list[str]:
    """Texts to take phrases from: long captions first, the last of them leading.

    DreamLIP's last long caption is LLaVA's, which the paper takes.
    """
    long, short, raw = ([caption.text for caption in captions if caption.source == name] for name in SOURCES)
    return long[::-1] + short[::-1] + raw


def split_sentences(texts: Iterable[str]) -> Iterator[str]:
    """Sentences with their full stop, so that "St." inside one costs a chunk and not a word."""
    for text in texts:
        for part in _SENTENCE_END.split(text):
            if part and (sentence := part.strip()[:MAX_SENTENCE_CHARACTERS]):
                yield sentence


def clean(chunk: Chunk) -> str:
    """The phrase a detector can look for, or "" when the chunk names no object."""
    words = [word.lower() for word in chunk.words]
    if words[0] == "no" or chunk.before in ("without", "no", "not"):
        return ""  # what the caption says is not there
    if words[0] in lexicon.SPORTS and tags.verb_form(chunk.before)[0] == "play":
        return ""
    while words and (_is_quantifier(words[0]) or words[0] in lexicon.INTENSIFIERS):
        words.pop(0)
    if not words or len(words) > MAX_WORDS:
        return ""
    head = words[-1]
    if head in lexicon.PRONOUNS or not any(letter.isalpha() for letter in head) or len(head) < 2:
        return ""
    if chunk.after == "of" and head in lexicon.QUANTITIES:
        return ""
    if head in lexicon.ABSTRACT and not _is_concrete(words):
        return ""
    return " ".join(words).replace(" 's", "'s").replace(" ,", ",")


def _is_concrete(words: list[str]) -> bool:
    """Whether the words before an abstract head make an object of it: "picnic area", "finish line"."""
    named = len(words) > 1 and words[-1] in lexicon.CONCRETE_WHEN_NAMED
    return named and (words[-1] in lexicon.PLACES or words[-2] not in lexicon.ADJECTIVES)


def _is_quantifier(word: str) -> bool:
    return word in lexicon.DETERMINERS or word in lexicon.CARDINALS or word == "," or word.isdigit()
