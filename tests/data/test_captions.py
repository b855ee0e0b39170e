from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldiclip.data.captions import sample_captions, split_sentences
from goldiclip.data.schema import BadSample
from goldiclip.types import Caption

EQUAL = (1.0, 1.0, 1.0)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def drawn(
    captions: list[Caption], num: int, most: int = 3, weights: tuple[float, float, float] = EQUAL
) -> list[list[str]]:
    """`num` texts, each as its sentences."""
    return [text.split(". ") for text in sample_captions(captions, num, most, weights, rng())]


def test_sentences_end_at_points_line_ends_and_end_marks() -> None:
    assert split_sentences(" A cat. Two dogs\nrun </s>fast..  .\n") == ["A cat", "Two dogs", "run", "fast"]
    assert split_sentences("...") == []


@settings(deadline=None)
@given(st.text(st.sampled_from("ab .\n</s>")))
def test_no_sentence_is_empty_or_padded_or_has_an_end_in_it(text: str) -> None:
    for sentence in split_sentences(text):
        assert sentence
        assert sentence == sentence.strip()
        assert not {".", "\n"} & set(sentence)
        assert "</s>" not in sentence


LETTERS = [Caption("a. b. c", "raw"), Caption("d. e", "short"), Caption("f. g. h", "long")]


def test_every_text_has_one_to_three_sentences_equally_often() -> None:
    lengths = Counter(len(text) for text in drawn(LETTERS, 6_000))
    assert set(lengths) == {1, 2, 3}
    assert all(abs(count - 2_000) < 5 * math.sqrt(2_000) for count in lengths.values())


def test_half_of_the_longer_texts_are_consecutive_and_the_rest_are_not() -> None:
    """A random pair of eight sentences is in order and adjacent with chance 7/56."""
    pairs = [text for text in drawn(LETTERS, 12_000) if len(text) == 2]
    adjacent = sum(ord(b) - ord(a) == 1 for a, b in pairs) / len(pairs)
    assert adjacent == pytest.approx(0.5 + 0.5 * 7 / 56, abs=0.03)


def test_every_window_is_drawn_the_last_one_too() -> None:
    triples = Counter("".join(text) for text in drawn(LETTERS, 20_000) if len(text) == 3)
    windows = ["abc", "bcd", "cde", "def", "efg", "fgh"]
    counts = [triples[window] for window in windows]
    assert min(counts) > 0.75 * max(counts)


def test_random_sentences_are_different_and_in_any_order() -> None:
    texts = [text for text in drawn(LETTERS, 5_000) if len(text) == 3]
    assert all(len(set(text)) == 3 for text in texts)
    assert any(text != sorted(text) for text in texts)


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(0, 99))
def test_an_image_with_few_sentences_gives_what_it_has(num_sentences: int, most: int, seed: int) -> None:
    captions = [Caption(". ".join("abcd"[:num_sentences]))]
    for text in sample_captions(captions, 8, most, EQUAL, rng(seed)):
        parts = text.split(". ")
        assert 1 <= len(parts) <= min(most, num_sentences)
        assert set(parts) <= set("abcd"[:num_sentences])
        assert len(set(parts)) == len(parts)


def test_a_sentence_is_drawn_in_proportion_to_the_weight_of_its_source() -> None:
    weights = (1.0, 2.0, 0.5)
    singles = Counter(text[0] for text in drawn(LETTERS, 20_000, most=1, weights=weights))
    share = {letter: weight for letters, weight in zip(["abc", "de", "fgh"], weights) for letter in letters}
    for letter, weight in share.items():
        expected = 20_000 * weight / sum(share.values())
        assert abs(singles[letter] - expected) < 5 * math.sqrt(expected)


def test_a_source_without_weight_is_never_drawn() -> None:
    texts = drawn(LETTERS, 2_000, weights=(0.0, 1.0, 1.0))
    assert {sentence for text in texts for sentence in text} == set("defgh")


def test_a_window_may_cross_from_one_caption_into_the_next() -> None:
    assert ["c", "d", "e"] in drawn(LETTERS, 2_000)


def test_a_string_is_split_into_sentences_never_into_characters() -> None:
    texts = sample_captions([Caption("one long caption without an end")], 5, 3, EQUAL, rng())
    assert texts == ["one long caption without an end"] * 5


def test_the_same_seed_draws_the_same_texts() -> None:
    first, again, other = (sample_captions(LETTERS, 8, 3, EQUAL, rng(seed)) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("captions", [[], [Caption("..."), Caption(" \n ")]])
def test_nothing_to_say_is_a_bad_sample(captions: list[Caption]) -> None:
    with pytest.raises(BadSample, match="no caption"):
        sample_captions(captions, 8, 3, EQUAL, rng())


def test_only_captions_of_a_source_without_weight_are_a_bad_sample() -> None:
    with pytest.raises(BadSample, match="weight above 0"):
        sample_captions([Caption("a", "raw")], 8, 3, (0.0, 1.0, 1.0), rng())


def test_a_huge_caption_is_cut_to_what_any_context_could_hold() -> None:
    texts = sample_captions([Caption("word " * 2_000_000)], 8, 3, EQUAL, rng())
    assert all(len(text) <= 4_000 for text in texts)
