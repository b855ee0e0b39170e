"""Questions: replies in any layout are read, garbage is survived, and what the caption does not say is rejected."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldiclip.prepare.questions import (
    MAX_QUESTIONS,
    PROMPT,
    fault_of,
    kind_of,
    prompt_for,
    read_questions,
    reference_caption,
)
from goldiclip.prepare.replies import parse_pairs
from goldiclip.types import Caption

Pairs = Sequence[tuple[str, str]]
PAIRS = [
    ("What color is the bus?", "Red"),
    ("How many dogs are on the beach?", "Two"),
    ("Who is holding the umbrella?", "A woman in a coat"),
    ("Where is the cat sleeping?", "On the wooden bench"),
    ("What is the man riding?", "A horse"),
]

LAYOUTS: dict[str, Callable[[Pairs], str]] = {
    "labels": lambda pairs: "\n\n".join(f"Q: {q}\nA: {a}" for q, a in pairs),
    "numbered labels": lambda pairs: "\n".join(f"Q{n}: {q}\nA{n}: {a}" for n, (q, a) in enumerate(pairs, 1)),
    "numbers and words": lambda pairs: "\n".join(
        f"{n}. Question: {q}\n   Answer: {a}." for n, (q, a) in enumerate(pairs, 1)
    ),
    "markdown": lambda pairs: "\n".join(
        f"{n}. **Question:** {q}\n   **Answer:** {a}" for n, (q, a) in enumerate(pairs, 1)
    ),
    "bold lines": lambda pairs: "\n".join(f"**{n}. {q}**\n*{a}*" for n, (q, a) in enumerate(pairs, 1)),
    "one line": lambda pairs: "\n".join(f"{n}) {q} {a}." for n, (q, a) in enumerate(pairs, 1)),
    "one line, dash": lambda pairs: "\n".join(f"- {q} - {a}" for q, a in pairs),
    "one line, labels": lambda pairs: "\n".join(f"Q: {q} A: {a}" for q, a in pairs),
    "one line, brackets": lambda pairs: "\n".join(f"{n}. {q} (Answer: {a})" for n, (q, a) in enumerate(pairs, 1)),
    "arrows": lambda pairs: "\n".join(f"{q} -> {a}" for q, a in pairs),
    "bullets": lambda pairs: "\n".join(f"• {q}\n  – {a}" for q, a in pairs),
    "preamble": lambda pairs: (
        "Sure! Here are five questions:\n\n" + "\n".join(f"{n}. {q}\n{a}" for n, (q, a) in enumerate(pairs, 1))
    ),
    "table": lambda pairs: "| Question | Answer |\n|---|---|\n" + "\n".join(f"| {q} | {a} |" for q, a in pairs),
    "sections": lambda pairs: (
        "Questions:\n"
        + "\n".join(f"{n}. {q}" for n, (q, _) in enumerate(pairs, 1))
        + "\n\nAnswers:\n"
        + "\n".join(f"{n}. {a}" for n, (_, a) in enumerate(pairs, 1))
    ),
    "all on one line": lambda pairs: " ".join(f"{n}. {q} {a}." for n, (q, a) in enumerate(pairs, 1)),
    "all labelled on one line": lambda pairs: "; ".join(
        f"{n}. Question: {q} Answer: {a}" for n, (q, a) in enumerate(pairs, 1)
    ),
    "json": lambda pairs: json.dumps([{"question": q, "answer": a} for q, a in pairs]),
    "json in a fence": lambda pairs: (
        "```json\n" + json.dumps({"qa": [{"q": q, "a": a} for q, a in pairs]}, indent=1) + "\n```"
    ),
    "json keyed by question": lambda pairs: json.dumps(dict(pairs)),
    "windows": lambda pairs: "\r\n".join(f"Q: {q}\r\nA: {a}" for q, a in pairs),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_five_pairs_are_read_from_this_layout(layout: str) -> None:
    assert parse_pairs(LAYOUTS[layout](PAIRS)) == PAIRS


WORDS = st.lists(
    st.sampled_from(("red", "bus", "dog", "river", "tall", "seven", "under", "blue")), min_size=1, max_size=4
)


@given(
    st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=5, unique_by=lambda pair: tuple(pair[0])),
    st.sampled_from(sorted(LAYOUTS)),
)
def test_any_pairs_survive_any_layout(drawn: list[tuple[list[str], list[str]]], layout: str) -> None:
    pairs = [(f"What is {' '.join(question)}?", " ".join(answer)) for question, answer in drawn]
    assert parse_pairs(LAYOUTS[layout](pairs)) == pairs


def test_an_answer_goes_to_the_question_right_before_it() -> None:
    assert parse_pairs("1. What is this thing?\n2. What is that thing?\nA dog") == [("What is that thing?", "A dog")]


def test_a_reply_cut_in_the_middle_gives_its_whole_pairs() -> None:
    reply = LAYOUTS["numbered labels"](PAIRS)
    for length in range(len(reply)):
        pairs = parse_pairs(reply[:length])
        assert pairs[:-1] == PAIRS[: max(len(pairs) - 1, 0)]


@given(st.one_of(st.text(max_size=400), st.text('Qa:?\n[]{}"1. -|*', max_size=400)), st.text(max_size=100))
def test_garbage_is_survived_and_counted(reply: str, caption: str) -> None:
    counts: Counter[str] = Counter()
    questions = read_questions(reply, caption, counts)
    assert len(questions) <= MAX_QUESTIONS
    assert questions or counts
    for item in questions:
        assert item.question.endswith("?")
        assert item.answer.strip()


@pytest.mark.parametrize(
    "reply", ["[" * 20_000, " " * 20_000, "{" * 9_000 + "?", "Q: " * 6_000, "- " * 10_000, "?" * 20_000]
)
def test_a_hostile_reply_is_read_in_no_time(reply: str) -> None:
    import time

    start = time.perf_counter()
    read_questions(reply, "A dog.", Counter())
    assert time.perf_counter() - start < 2.0


CAPTION = "A woman in a red coat walks two dogs along a snowy street, and a man without a hat sits on a wooden bench."


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("What color is the woman's coat?", "Red"),
        ("How many dogs are there?", "2"),
        ("How many women are there?", "One"),
        ("What is the bench made of?", "Wood"),
        ("What covers the street?", "Snow"),
        ("Is the woman walking the dogs?", "Yes"),
        ("Is the man wearing a hat?", "No"),
        ("Is the bench wooden or metal?", "Wooden"),
        ("Where is the man sitting?", "On a bench"),
    ],
)
def test_what_the_caption_says_is_kept(question: str, answer: str) -> None:
    assert fault_of(question, answer, CAPTION) == ""


@pytest.mark.parametrize(
    ("question", "answer", "fault"),
    [
        ("What color is the woman's coat?", "Blue", "unsupported answer"),
        ("How many dogs are there?", "Three", "unsupported answer"),
        ("Is the cat walking the dogs?", "Yes", "unsupported answer"),
        ("Who is driving the car?", "Not specified", "unanswerable"),
        ("What is her name?", "It is unknown", "unanswerable"),
        ("What breed are the dogs?", "The caption does not say", "unanswerable"),
        ("What color is the red coat?", "Red", "leaked answer"),
        ("What does the caption describe first?", "A woman", "asks about the caption"),
        ("Name the animal", "Dogs", "malformed question"),
        ("What color is the coat?", "What coat?", "malformed answer"),
        ("What color is the coat?", "...", "malformed answer"),
        ("What is the woman in the coat doing?", "She walks two dogs along a snowy street near a bench", "too long"),
    ],
)
def test_what_it_does_not_say_is_rejected(question: str, answer: str, fault: str) -> None:
    assert fault_of(question, answer, CAPTION) == fault


def test_every_rejection_is_counted_by_reason() -> None:
    reply = "\n".join(
        [
            "1. What color is the coat? Red",
            "2. What color is the coat? Red",
            "3. What color is the car? Green",
            "4. Who made the coat? Unknown",
        ]
    )
    counts: Counter[str] = Counter()
    assert [item.answer for item in read_questions(reply, CAPTION, counts)] == ["Red"]
    assert counts == {"repeated question": 1, "unsupported answer": 1, "unanswerable": 1}


def test_more_than_five_questions_are_cut() -> None:
    reply = "\n".join(f"{n}. Where does person {name} walk? Along a street" for n, name in enumerate("abcdefg"))
    assert len(read_questions(reply, CAPTION, Counter())) == 5


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("How many dogs are there?", "count"),
        ("What color is the bus?", "color"),
        ("What is the shape of the sign?", "shape"),
        ("Who is sitting on the bench?", "relation"),
        ("What is the fence made of?", "object-attributes"),
        ("What is happening?", "other"),
    ],
)
def test_questions_have_kinds(question: str, kind: str) -> None:
    assert kind_of(question) == kind


def test_the_prompt_is_the_papers() -> None:
    text = prompt_for('A "big"\n dog')
    assert text.startswith(
        "Given the following image caption:\n\"A 'big' dog\"\nPlease generate five short questions and "
    )
    assert text.endswith("Do not invent details or use outside knowledge.")
    assert "strictly answerable using the provided caption" in PROMPT


def test_the_prompt_equals_the_papers_text(shared: object) -> None:
    from pathlib import Path

    tex = (Path(str(shared)) / "paper.tex").read_text()
    start = tex.index("Given the following image caption:")
    words = (
        tex[start : tex.index(r"\end{quote}", start)]
        .replace("\\\\", " ")
        .replace(r"\texttt{ref\_caption}", "{caption}")
    )
    assert words.replace("``", '"').replace("''", '"').split() == PROMPT.split()


def test_the_reference_is_the_second_of_three_short_captions() -> None:
    three = [Caption("ib", "short"), Caption("sv", "short"), Caption("lla", "short"), Caption("raw", "raw")]
    assert reference_caption(three) == "sv"
    assert reference_caption(three[:1] + three[3:]) == "ib"
    assert reference_caption(three[3:]) == "raw"
    assert reference_caption([]) == ""
