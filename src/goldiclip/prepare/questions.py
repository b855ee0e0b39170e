"""Questions a caption answers: the prompt that asks for them, and what a pair must hold to be believed.

A language model invents; `fault_of` says why a pair cannot be used. It is pure, so that every rejection is counted by
reason and nothing depends on the model.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from goldiclip.prepare import lexicon, tags
from goldiclip.prepare.replies import parse_pairs
from goldiclip.types import Caption, Question

MAX_QUESTIONS = 5
MAX_QUESTION_WORDS = 25
MAX_ANSWER_WORDS = 8

# The paper's, word for word.
PROMPT = """Given the following image caption:
"{caption}"
Please generate five short questions and corresponding short answers that someone might ask about this image. \
The questions should be relevant to the content of the caption, and the answers be very short, concise, and factual \
based on the caption. Only generate questions and answers that are strictly answerable using the provided caption. \
Do not invent details or use outside knowledge."""


def prompt_for(caption: str) -> str:
    return PROMPT.format(caption=" ".join(caption.split()).replace('"', "'"))


def reference_caption(captions: Sequence[Caption]) -> str:
    """The short caption questions are made from: of DreamLIP's three the middle one, ShareGPT4V's, as in the paper."""
    by_source = {
        name: [caption.text for caption in captions if caption.source == name] for name in ("short", "raw", "long")
    }
    short = by_source["short"]
    return short[1 if len(short) == 3 else 0] if short else next(iter(by_source["raw"] + by_source["long"]), "")


def read_questions(reply: str, caption: str, counts: Counter[str]) -> tuple[Question, ...]:
    """The pairs of a reply that hold, at most five; every other one is counted by reason."""
    kept: dict[str, Question] = {}
    pairs = parse_pairs(reply)
    if not pairs:
        counts["reply without questions"] += 1
    for question, answer in pairs:
        fault = fault_of(question, answer, caption) or ("repeated question" if question.lower() in kept else "")
        if fault:
            counts[fault] += 1
        else:
            kept[question.lower()] = Question(question, answer, kind_of(question))
    return tuple(kept.values())[:MAX_QUESTIONS]


# --- what a pair must hold ------------------------------------------------------------------------------------------

_UNANSWERABLE = re.compile(
    r"not (?:specif|mention|stat|given|provid|clear|describ|known|avail|applic|indicat|possible|visible|enough)"
    r"|\b(?:unknown|unspecified|unclear|unsure|undetermined|cannot|can't|n/?a|unanswerable)\b"
    r"|no (?:information|mention|answer|details?)\b|does(?: not|n't) (?:say|mention|specify|state|provide)|depends",
    re.I,
)
_ABOUT_THE_TEXT = re.compile(
    r"\b(?:caption|description|passage|text above|prompt|sentence|this text|question)s?\b", re.I
)
_NUMBERS = {word: str(number) for number, word in enumerate(("zero", *lexicon.SMALL_NUMBERS))} | {
    "a": "1",
    "an": "1",
    "single": "1",
    "pair": "2",
    "couple": "2",
    "dozen": "12",
}
_NEGATIONS = frozenset(("no", "not", "without", "never", "none", "nobody", "nothing", "empty", "isn't", "aren't"))
_SCAFFOLD = lexicon.word_set(
    """
    any appear color colour depicted do doing happening how image kind like located look main many much photo photograph
    picture present scene see seen show shown there type visible what when where which who why
    """
)
_EMPTY = (
    (lexicon.DETERMINERS | lexicon.PREPOSITIONS | lexicon.AUXILIARIES | lexicon.PRONOUNS | lexicon.CONJUNCTIONS)
    | lexicon.RELATIVES
    | frozenset(("it's", "yes", "no"))
)


def fault_of(question: str, answer: str, caption: str) -> str:
    """Why this pair cannot be used, or "" when nothing speaks against it."""
    words, answer_words = tags.split_words(question), tags.split_words(answer)
    if not question.endswith("?") or len(words) < 4 or not answer_words or not question.isprintable():
        return "malformed question"
    if not answer.isprintable() or "?" in answer or not any(letter.isalnum() for letter in answer):
        return "malformed answer"
    if len(words) > MAX_QUESTION_WORDS or len(answer_words) > MAX_ANSWER_WORDS:
        return "too long"
    if _UNANSWERABLE.search(answer):
        return "unanswerable"
    if _ABOUT_THE_TEXT.search(question) or _ABOUT_THE_TEXT.search(answer):
        return "asks about the caption"
    if _is_leaked(words, answer_words):
        return "leaked answer"
    return "" if _is_supported(words, answer_words, caption) else "unsupported answer"


def _is_leaked(question: list[str], answer: list[str]) -> bool:
    """The question gives its answer away; naming a choice ("red or blue?") does not."""
    given, wanted = _content(question), _content(answer)
    return (
        bool(wanted) and "or" not in (word.lower() for word in question) and all(_among(word, given) for word in wanted)
    )


def _is_supported(question: list[str], answer: list[str], caption: str) -> bool:
    words = tags.split_words(caption)
    said = _content(words, everything=True)
    first = answer[0].lower()
    if first in ("no", "none"):
        return any(word.lower() in _NEGATIONS for word in words)
    wanted = _content(answer)
    if first == "yes":
        wanted = [word for word in _content(question) + wanted if word not in _SCAFFOLD]
    return all(_among(word, said) for word in wanted or _content(answer, everything=True))


def _content(words: Iterable[str], everything: bool = False) -> list[str]:
    """Stems of the words that carry meaning; numbers as digits."""
    stems = []
    for word in map(str.lower, words):
        if not word[0].isalnum():
            continue
        if word in _NUMBERS and (everything or word not in ("a", "an")):
            stems.append(_NUMBERS[word])
        if everything or (word not in _EMPTY and word not in _NUMBERS):
            stems.append(_stem(word))
    return stems


def _stem(word: str) -> str:
    word = word.removesuffix("'s")
    base, _ = tags.verb_form(word)
    if base:
        return base
    for ending, other in (("ies", "y"), ("sses", "ss"), ("shes", "sh"), ("ches", "ch"), ("xes", "x"), ("s", "")):
        if word.endswith(ending) and len(word) > len(ending) + 2 and not word.endswith("ss"):
            return word[: -len(ending)] + other
    return _SAME.get(word, word)


_SAME = {"men": "man", "women": "woman", "children": "child", "people": "person", "feet": "foot", "grey": "gray"}
_SAME |= dict.fromkeys(("big", "huge", "giant", "enormous"), "large")
_SAME |= dict.fromkeys(("little", "tiny", "miniature"), "small")


def _among(stem: str, stems: Iterable[str]) -> bool:
    """Whether a stem is there, or a relative of it that begins alike: wood and wooden, snow and snowy."""
    return any(stem == other or _is_relative(stem, other) for other in stems)


def _is_relative(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return len(short) >= 4 and len(long) - len(short) <= 3 and long.startswith(short)


# --- kinds ----------------------------------------------------------------------------------------------------------

# RetVQA's five, in the order in which they are told apart.
KINDS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("count", re.compile(r"^how many\b|\bnumber of\b", re.I)),
    ("color", re.compile(r"\bcolou?rs?\b", re.I)),
    ("shape", re.compile(r"\bshapes?d?\b", re.I)),
    (
        "relation",
        re.compile(
            r"^(?:where|who|what) (?:is|are)\b.*\b(?:on|in|under|behind|beside|near|next to|in front of|above|below|"
            r"left|right|holding|wearing|riding|carrying)\b|^where\b|\bleft or\b|\babove or\b",
            re.I,
        ),
    ),
    (
        "object-attributes",
        re.compile(r"\bmade of\b|\bmaterial\b|\bpattern\b|\bsize\b|\bwhat (?:kind|type)\b|\blarge or\b", re.I),
    ),
)


def kind_of(question: str) -> str:
    return next((kind for kind, pattern in KINDS if pattern.search(question)), "other")
