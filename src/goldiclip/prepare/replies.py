"""Reading what a language model wrote: question and answer pairs in whatever layout it chose."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MAX_REPLY_CHARACTERS = 20_000
MAX_LINE_CHARACTERS = 1_000
MAX_JSON_STARTS = 50

Pair = tuple[str, str]

_JSON_START = re.compile(r"[\[{]")
_DECORATION = re.compile(r"^[\s>#•·–—*\-+|]+|(?:\*\*|__|`+|~~)")
_NUMBER = re.compile(r"^(?:\(?(\d{1,2})[.):\]]+\s*|\(?[a-e][.)]\s+)")
_LABEL = re.compile(
    r"^(?:(q|question|que|prompt)|(a|answer|ans|response))\s*#?\s*(\d{0,2})\s*(?:[:.)\]=]+|[-–—]+\s)\s*", re.I
)
_INLINE_ANSWER = re.compile(
    r"[\s|;,(\[–—-]*\b(?:answer|ans|a)\s*\d{0,2}\s*[:=]+\s*|\s*[|→]\s*|\s*(?:->|=>|--+)\s*", re.I
)
_ANSWERS_HEADING = re.compile(r"^(?:short\s+|corresponding\s+)*answers?\s*:?$", re.I)
# Where another pair begins in the middle of a line.
_NEXT_PAIR = re.compile(
    r"[\s;,]+(?=(?:\d{1,2}[.)]\s*)?\**q(?:uestion)?\s?\d{0,2}\**[:.)]|\d{1,2}[.)]\s+[A-Z][^?]{3,150}\?)", re.I
)
_QUESTION_KEYS = ("question", "q", "query")
_ANSWER_KEYS = ("answer", "a", "response")


def parse_pairs(reply: str) -> list[Pair]:
    """Question and answer pairs in whatever layout: labelled, numbered, bulleted, on one line or two, tabled, JSON."""
    reply = reply[:MAX_REPLY_CHARACTERS]
    pairs = _json_pairs(reply) or list(_line_pairs(reply))
    cleaned = ((_clean_question(question), _clean_answer(answer)) for question, answer in pairs)
    return [(question, answer) for question, answer in cleaned if question and answer]


def _json_pairs(reply: str) -> list[Pair]:
    """Pairs of whatever JSON stands in the reply, with prose around it or not."""
    pairs: list[Pair] = []
    decoder = json.JSONDecoder()
    at = 0
    for _ in range(MAX_JSON_STARTS):
        match = _JSON_START.search(reply, at)
        if not match:
            break
        try:
            value, at = decoder.raw_decode(reply, match.start())
        except (ValueError, RecursionError):
            at = match.end()
            continue
        pairs += _pairs_in(value)
    return pairs


def _pairs_in(value: Any, depth: int = 0) -> Iterator[Pair]:
    if isinstance(value, list) and depth < 4:
        if len(value) == 2 and all(isinstance(item, str) for item in value) and value[0].rstrip().endswith("?"):
            yield value[0], value[1]
        else:
            for item in value:
                yield from _pairs_in(item, depth + 1)
    elif isinstance(value, dict):
        lower = {str(key).lower().rstrip("0123456789_ "): item for key, item in value.items()}
        question = next((lower[key] for key in _QUESTION_KEYS if isinstance(lower.get(key), str)), None)
        answer = next((lower[key] for key in _ANSWER_KEYS if isinstance(lower.get(key), str | int)), None)
        if question is not None and answer is not None and len(value) <= 4:
            yield question, str(answer)
            return
        for key, item in value.items():
            if str(key).rstrip().endswith("?") and isinstance(item, str | int):
                yield str(key), str(item)
            elif depth < 4:
                yield from _pairs_in(item, depth + 1)


def _line_pairs(reply: str) -> Iterator[Pair]:
    """Walk the lines; an answer belongs to the question before it, or, under a heading "Answers", to that number."""
    waiting: list[tuple[str, str]] = []  # number and question without an answer yet
    under_heading = False
    for line in _lines(reply):
        text, number, label = _undress(line)
        if _ANSWERS_HEADING.match(text) or (label == "a" and not text):
            under_heading = under_heading or len(waiting) > 1
            continue
        if not text:
            continue
        question, answer = ("", text) if label == "a" else _split_line(text, label)
        if question and answer:
            yield question, answer
            waiting = []
        elif question:
            waiting.append((number, question))
        elif answer and waiting:
            yield _take(waiting, number, under_heading), answer


def _lines(reply: str) -> Iterator[str]:
    for line in reply.splitlines():
        yield from _NEXT_PAIR.split(line[:MAX_LINE_CHARACTERS])


def _undress(line: str) -> tuple[str, str, str]:
    """A line without bullets, marks, number and label: (text, number, "q" | "a" | "")."""
    text = _DECORATION.sub("", line).strip()
    text = _DECORATION.sub("", text).strip()
    number = ""
    if match := _NUMBER.match(text):
        number, text = match[1] or "", text[match.end() :]
    if match := _LABEL.match(text):
        return text[match.end() :].strip(), match[3] or number, "q" if match[1] else "a"
    return text.strip(), number, ""


def _split_line(text: str, label: str) -> Pair:
    """A line that is no answer by its label: question, or both, or, without a question mark, an answer."""
    head, mark, rest = text.partition("?")
    if not mark:
        match = _INLINE_ANSWER.search(text) if label == "q" else None
        if match:
            return text[: match.start()], text[match.end() :]
        return (text, "") if label == "q" else ("", text)
    while rest[:1] in ("?", "!", '"', "'", "”", "*", ")"):
        rest = rest[1:]
    if match := _INLINE_ANSWER.match(rest):
        rest = rest[match.end() :]
    return head + "?", rest.strip(" \t-–—:|()[]")


def _take(waiting: list[tuple[str, str]], number: str, under_heading: bool) -> str:
    """The question that an answer belongs to; it waits no longer."""
    if under_heading:
        at = next((at for at, (name, _) in enumerate(waiting) if number and name == number), 0)
        return waiting.pop(at)[1]
    question = waiting[-1][1]
    waiting.clear()
    return question


def _clean_question(text: str) -> str:
    text = " ".join(text.replace("**", "").split()).strip(" \"'“”`*_")
    return text[:1].upper() + text[1:]


def _clean_answer(text: str) -> str:
    text = " ".join(text.replace("**", "").split()).strip(" \"'“”`*_|")
    return text.rstrip(".!;,").strip(" \"'“”`*_()")
