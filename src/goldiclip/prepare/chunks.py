"""Noun chunks of a sentence, from word classes by rule or from a spaCy pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from goldiclip.config import ConfigError
from goldiclip.prepare import lexicon, tags


@dataclass(frozen=True, slots=True)
class Chunk:
    """The words of a noun chunk as they stand, and the words around it."""

    words: tuple[str, ...]
    before: str = ""
    after: str = ""


# Sentences -> the noun chunks of each, in order.
Chunker = Callable[[Iterable[str]], Iterable[list[Chunk]]]


def chunker(name: str) -> Chunker:
    """ "rules", or "spacy:NAME" with an installed pipeline; `resolve` says which one "auto" means here."""
    name = resolve(name)
    if name == "rules":
        return lambda sentences: map(rule_chunks, sentences)
    return SpacyChunks(name.removeprefix("spacy:"))


def resolve(name: str) -> str:
    """The chunker that `name` means on this machine: "auto" prefers an installed English spaCy pipeline."""
    if name == "rules":
        return name
    installed = _installed_pipelines()
    if name == "auto":
        return f"spacy:{installed[0]}" if installed else "rules"
    if name.startswith("spacy:"):
        return name
    found = ", ".join(installed) or "none"
    raise ConfigError(f"phrases {name!r}: expected rules, auto or spacy:NAME; installed pipelines: {found}")


def _installed_pipelines() -> list[str]:
    """English spaCy pipelines, the best first."""
    try:
        from spacy.util import get_installed_models
    except ImportError:
        return []
    names = {name for name in get_installed_models() if name.startswith("en_core_web_")}
    return [f"en_core_web_{size}" for size in ("trf", "lg", "md", "sm") if f"en_core_web_{size}" in names]


# --- spaCy ----------------------------------------------------------------------------------------------------------


class SpacyChunks:
    """Noun chunks and named entities of a spaCy pipeline, in order; an entity inside a chunk adds nothing."""

    def __init__(self, name: str = "", pipeline: Any = None) -> None:
        if pipeline is None:
            try:
                import spacy

                pipeline = spacy.load(name)
            except (ImportError, OSError) as error:
                said = f"spaCy pipeline {name!r} cannot be loaded: {error}"
                raise ConfigError(f"{said}; install it, or use --phrases rules") from error
        self.pipeline = pipeline

    def __call__(self, sentences: Iterable[str]) -> Iterator[list[Chunk]]:
        for document in self.pipeline.pipe(sentences):
            yield [_spacy_chunk(document, start, end) for start, end in sorted(_spans(document))]


_OBJECT_ENTITIES = frozenset(("PERSON", "NORP", "FAC", "ORG", "GPE", "LOC", "PRODUCT", "WORK_OF_ART", "EVENT"))


def _spans(document: Any) -> set[tuple[int, int]]:
    chunks = {(chunk.start, chunk.end) for chunk in document.noun_chunks}
    covered = {at for start, end in chunks for at in range(start, end)}
    entities = {(entity.start, entity.end) for entity in document.ents if entity.label_ in _OBJECT_ENTITIES}
    return chunks | {(start, end) for start, end in entities if not covered & set(range(start, end))}


def _spacy_chunk(document: Any, start: int, end: int) -> Chunk:
    words = tuple(token.text for token in document[start:end] if not token.is_space)
    before = document[start - 1].text.lower() if start else ""
    return Chunk(words, before, document[end].text.lower() if end < len(document) else "")


# --- rules ----------------------------------------------------------------------------------------------------------


def rule_chunks(sentence: str) -> list[Chunk]:
    """Determiners, then modifiers, then nouns."""
    words = tags.split_words(sentence)
    classes = tags.tag(words)
    chunks, start = [], 0
    while start < len(words):
        end = _chunk_end(words, classes, start)
        if end > start:
            chunks.append(Chunk(tuple(words[start:end]), _word(words, start - 1), _word(words, end)))
        start = max(end, start + 1)
    return chunks


def _chunk_end(words: list[str], classes: list[str], start: int) -> int:
    """Where the chunk that begins at `start` ends; `start` itself when none begins there."""
    at = start
    while _class(classes, at) == "D":
        at += 1
    at = nouns = _after_modifiers(words, classes, at)
    while at < len(words) and (classes[at] == "N" or (at > nouns and _continues(classes, at))):
        at += 1
    if at == nouns and at > start and _word(words, at - 1) in lexicon.NOMINAL_ADJECTIVES:
        return at  # adjectives that stand for their noun: "an adult", "on gravel"
    return at if at > nouns else start


def _after_modifiers(words: list[str], classes: list[str], at: int) -> int:
    """Past the adjectives, and past what joins them when a noun follows: "red, white and gold costumes"."""
    while at < len(words):
        is_adverb = classes[at] == "M" and _word(words, at).endswith("ly") and _class(classes, at + 1) in "AM"
        is_joint = classes[at] in ",C" and at > 0 and classes[at - 1] == "A" and _reaches_noun(classes, at + 1)
        if not (classes[at] in "AD" or is_adverb or is_joint):
            break
        at += 1
    return at


def _reaches_noun(classes: list[str], at: int) -> bool:
    """Whether adjectives, and nothing else, lead from here to a noun."""
    while _class(classes, at) in ",C":
        at += 1
    is_adjective = _class(classes, at) == "A"
    while _class(classes, at) in "A,C":
        at += 1
    return is_adjective and _class(classes, at) == "N"


def _continues(classes: list[str], at: int) -> bool:
    """What may stand between two nouns of one chunk: a possessive, a compound's participle, adjectives after either."""
    leads_on = _class(classes, at + 1) in "NA"
    return leads_on and (classes[at] in "QK" or (classes[at] == "A" and classes[at - 1] in "QKA"))


def _word(words: list[str], at: int) -> str:
    return words[at].lower() if 0 <= at < len(words) else ""


def _class(classes: list[str], at: int) -> str:
    return classes[at] if at < len(classes) else "."
