from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldiclip import recipes
from goldiclip.config import Config
from goldiclip.data.tasks import box_in_crop, box_text, parse_box, prompt_tokens, task_texts
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.types import DECODER_TASKS, Box, Caption, Question, Region, Sample, Texts

CONFIG = recipes.recipe("cc3m")
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
TOKENIZER = Tokenizer()

SAMPLE = Sample(
    key="1",
    image=b"",
    captions=(
        Caption("raw words", "raw"),
        Caption("A short one. In two sentences", "short"),
        Caption("First of long. Second of long", "long"),
    ),
    regions=(Region("red car", (0.25, 0.5, 0.5, 1.0), "A red car is parked", 0.9),),
    questions=(Question("How many cars?", "one", "count"),),
)


def texts_of(
    sample: Sample, crop: Box = WHOLE, config: Config = CONFIG, seed: int = 0, tokenizer: Tokenizer = TOKENIZER
) -> tuple[tuple[str, ...], Texts, dict[str, int]]:
    return task_texts(sample, crop, config, 224, tokenizer, np.random.default_rng(seed))


def said(sample: Sample, crop: Box = WHOLE, seed: int = 0) -> dict[str, tuple[str, str]]:
    """(prompt, target) of each task, decoded."""
    names, texts, _ = texts_of(sample, crop, seed=seed)
    assert texts.target_start is not None
    rows = zip(texts.rows(), texts.target_start.tolist())
    parts = [(TOKENIZER.decode(row[:start]), TOKENIZER.decode(row[start:])) for row, start in rows]
    return dict(zip(names, parts, strict=True))


# --- the four tasks -------------------------------------------------------------------------------------------------


def test_each_task_has_its_prompt_and_its_target() -> None:
    assert said(SAMPLE) == {
        "cap": ("cap caption is", "a short one. in two sentences"),
        "ref": ("ref red car, box is", "[56, 112, 112, 223]"),
        "grd": ("obgr [56, 112, 112, 223], grounded caption is", "a red car is parked"),
        "vqa": ("vqa how many cars?, answer is", "one"),
    }


def test_rows_begin_and_end_with_their_marks_and_the_target_starts_where_it_says() -> None:
    names, texts, counts = texts_of(SAMPLE)
    assert names == DECODER_TASKS
    assert counts == {}
    assert not texts.truncated.any()
    assert texts.target_start is not None
    for name, row, start in zip(names, texts.rows(), texts.target_start.tolist()):
        assert row[0] == TOKENIZER.sot
        assert row[-1] == TOKENIZER.eot
        assert 1 < start < len(row) - 1
        assert TOKENIZER.eot not in row[:-1], name


def test_generation_starts_from_the_prompt_that_was_trained_on() -> None:
    _, texts, _ = texts_of(SAMPLE)
    assert texts.target_start is not None
    rows = [row[:start] for row, start in zip(texts.rows(), texts.target_start.tolist())]
    assert rows == [
        prompt_tokens(TOKENIZER, "cap"),
        prompt_tokens(TOKENIZER, "ref", "red car"),
        prompt_tokens(TOKENIZER, "grd", "[56, 112, 112, 223]"),
        prompt_tokens(TOKENIZER, "vqa", "How many cars?"),
    ]
    written = ["CAP caption is", "REF red car, box is"]
    written += ["OBGR [56, 112, 112, 223], grounded caption is", "VQA How many cars?, answer is"]
    assert rows == [row[:-1] for row in TOKENIZER.encode(written).rows()]


def test_a_sample_without_a_tasks_data_is_left_out_of_that_task() -> None:
    assert set(said(replace(SAMPLE, regions=()))) == {"cap", "vqa"}
    assert set(said(replace(SAMPLE, questions=()))) == {"cap", "ref", "grd"}
    assert set(said(replace(SAMPLE, captions=()))) == {"ref", "grd", "vqa"}
    names, texts, _ = texts_of(Sample("1", b""))
    assert names == ()
    assert len(texts) == 0
    assert texts.target_start is not None


def test_a_term_without_weight_has_no_text_and_moves_no_other() -> None:
    sample = replace(SAMPLE, captions=tuple(Caption(word, "short") for word in "abcdefgh"))
    every, _, _ = texts_of(sample, seed=4)
    _, with_all, _ = texts_of(sample, seed=4)
    names, without, _ = texts_of(sample, config=recipes.without_term(CONFIG, "cap", "grd"), seed=4)
    assert every == DECODER_TASKS
    assert names == ("ref", "vqa")
    assert without.rows() == [with_all.rows()[1], with_all.rows()[3]]


@pytest.mark.parametrize(
    ("captions", "target"),
    [
        ([Caption("long one. More", "long"), Caption("raw. two", "raw"), Caption("short. two", "short")], "short. two"),
        ([Caption("long one. More", "long"), Caption("raw. two", "raw")], "raw. two"),
        ([Caption("long one. More", "long")], "long one"),
        ([Caption(" ", "short"), Caption("\n. .", "long")], None),
    ],
)
def test_a_caption_is_short_or_else_raw_or_else_the_first_sentence_of_a_long_one(
    captions: list[Caption], target: str | None
) -> None:
    found = said(Sample("1", b"", tuple(captions)))
    assert found.get("cap", ("", None))[1] == target


def test_every_short_caption_is_drawn_equally_often() -> None:
    sample = Sample("1", b"", tuple(Caption(word, "short") for word in ("one", "two", "three")))
    counts = Counter(said(sample, seed=seed)["cap"][1] for seed in range(600))
    assert min(counts.values()) > 150


# --- regions --------------------------------------------------------------------------------------------------------


def test_a_phrase_is_asked_for_its_best_box() -> None:
    regions = tuple(
        Region("Cat" if i else "cat", (0.1 * i, 0.1, 0.1 * i + 0.2, 0.5), "", 0.4 + 0.1 * i) for i in range(4)
    )
    for seed in range(10):
        assert said(replace(SAMPLE, regions=regions), seed=seed)["ref"][1] == "[67, 22, 112, 112]"


def test_a_phrase_whose_best_box_is_out_of_view_is_not_asked_for() -> None:
    regions = (Region("cat", (0.0, 0.0, 0.1, 0.1), "s", 0.9), Region("cat", (0.5, 0.5, 0.9, 0.9), "s", 0.5))
    found = said(replace(SAMPLE, regions=regions), crop=(0.4, 0.4, 1.0, 1.0))
    assert "ref" not in found
    assert "grd" in found  # the box that is in view can still be described


def test_regions_out_of_view_are_counted() -> None:
    names, _, counts = texts_of(SAMPLE, crop=(0.6, 0.0, 1.0, 1.0))
    assert names == ("cap", "vqa")
    assert counts == {"ref out of view": 1, "grd out of view": 1}


def test_regions_below_the_score_are_never_drawn() -> None:
    names, _, counts = texts_of(replace(SAMPLE, regions=(Region("cat", WHOLE, "a cat", 0.29),)))
    assert names == ("cap", "vqa")
    assert counts == {}


def test_a_region_without_a_sentence_is_described_by_its_phrase() -> None:
    assert said(replace(SAMPLE, regions=(Region("red car", WHOLE),)))["grd"][1] == "red car"


@pytest.mark.parametrize(
    "box", [(0.5, 0.5, 0.5, 0.9), (0.9, 0.1, 0.2, 0.4), (float("nan"), 0.0, 1.0, 1.0), (2.0, 2.0, 3.0, 3.0)]
)
def test_boxes_that_are_none_are_never_drawn(box: Box) -> None:
    names, _, _ = texts_of(replace(SAMPLE, regions=(Region("cat", box, "a cat"),)))
    assert names == ("cap", "vqa")


def test_a_box_follows_the_crop_in_integers_of_the_view() -> None:
    assert box_in_crop(WHOLE, WHOLE, 224, 0.5) == (0, 0, 223, 223)
    assert box_in_crop((0.25, 0.25, 0.75, 0.75), (0.25, 0.0, 0.75, 0.5), 100, 0.5) == (0, 50, 99, 99)
    assert box_in_crop((0.25, 0.25, 0.75, 0.76), (0.25, 0.0, 0.75, 0.5), 100, 0.5) is None  # just under a half
    assert box_in_crop((0.109, 0.2, 0.305, 0.4), WHOLE, 100, 0.5) == (10, 20, 30, 40)  # floor


def test_a_box_thinner_than_a_pixel_is_dropped() -> None:
    assert box_in_crop((0.5, 0.1, 0.5001, 0.9), WHOLE, 224, 0.5) is None


UNIT = st.floats(0, 1, width=32)


@settings(max_examples=300, deadline=None)
@given(st.tuples(UNIT, UNIT, UNIT, UNIT), st.tuples(UNIT, UNIT, UNIT, UNIT), st.integers(2, 500), UNIT)
def test_a_box_in_the_crop_is_ordered_inside_and_visible_enough(
    box: Box, crop: Box, size: int, min_visible: float
) -> None:
    box, crop = (
        tuple(sorted(b[::2])[:1] + sorted(b[1::2])[:1] + sorted(b[::2])[1:] + sorted(b[1::2])[1:]) for b in (box, crop)
    )
    if crop[2] - crop[0] < 1e-3 or crop[3] - crop[1] < 1e-3:
        return
    found = box_in_crop(box, crop, size, min_visible)
    width = max(0.0, min(box[2], crop[2]) - max(box[0], crop[0]))
    height = max(0.0, min(box[3], crop[3]) - max(box[1], crop[1]))
    visible = width * height / max((box[2] - box[0]) * (box[3] - box[1]), 1e-300)
    if found is None:
        is_thin = min(width / (crop[2] - crop[0]), height / (crop[3] - crop[1])) * size < 1.01
        assert visible < min_visible or is_thin
    else:
        assert 0 <= found[0] < found[2] < size
        assert 0 <= found[1] < found[3] < size
        assert visible >= min_visible * (1 - 1e-6)
        assert parse_box(box_text(found)) == found


# --- room -----------------------------------------------------------------------------------------------------------

LONG = " ".join(["word"] * 200)


def test_a_long_question_gives_way_to_its_answer() -> None:
    sample = replace(SAMPLE, questions=(Question(LONG, "a blue bicycle"),))
    names, texts, counts = texts_of(sample)
    row, start = texts.rows()[names.index("vqa")], int(texts.target_start[names.index("vqa")])  # type: ignore[index]
    assert len(row) == 77
    assert row[-1] == TOKENIZER.eot
    assert TOKENIZER.decode(row[start:]) == "a blue bicycle"
    assert TOKENIZER.decode(row[:start]).startswith("vqa word word")
    assert TOKENIZER.decode(row[:start]).endswith(", answer is")
    assert texts.truncated.tolist() == [False, False, False, True]
    assert counts == {"vqa prompt cut": 1}


def test_a_long_phrase_gives_way_to_its_box() -> None:
    names, texts, counts = texts_of(replace(SAMPLE, regions=(Region(LONG, (0.25, 0.5, 0.5, 1.0), "s"),)))
    row = texts.rows()[names.index("ref")]
    assert len(row) == 77
    assert parse_box(TOKENIZER.decode(row)) == (56, 112, 112, 223)
    assert row[-1] == TOKENIZER.eot
    assert counts["ref prompt cut"] == 1


@pytest.mark.parametrize("name", ["cap", "grd"])
def test_a_target_that_is_cut_has_no_end_mark(name: str) -> None:
    sample = replace(SAMPLE, captions=(Caption(LONG, "short"),), regions=(Region("car", WHOLE, LONG),))
    names, texts, counts = texts_of(sample)
    row = texts.rows()[names.index(name)]
    assert len(row) == 77
    assert TOKENIZER.eot not in row
    assert texts.truncated[names.index(name)]
    assert counts == {"cap target cut": 1, "grd target cut": 1}


def test_an_answer_that_does_not_fit_is_dropped() -> None:
    names, _, counts = texts_of(replace(SAMPLE, questions=(Question("why?", LONG),)))
    assert "vqa" not in names
    assert counts == {"vqa without room": 1}


def test_a_box_that_does_not_fit_is_dropped() -> None:
    names, _, counts = texts_of(SAMPLE, tokenizer=Tokenizer(16))
    assert names == ("cap", "vqa")
    assert counts == {"ref without room": 1, "grd without room": 1}


@settings(max_examples=150, deadline=None)
@given(st.integers(3, 40), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_no_row_is_longer_than_the_context_and_every_row_has_something_to_learn(
    context: int, num_question: int, num_answer: int, num_caption: int
) -> None:
    sample = replace(
        SAMPLE,
        captions=(Caption(" ".join(["word"] * num_caption), "short"),),
        questions=(Question(" ".join(["why"] * num_question), " ".join(["so"] * num_answer)),),
    )
    _, texts, _ = texts_of(sample, tokenizer=Tokenizer(context))
    assert texts.target_start is not None
    for row, start, is_cut in zip(texts.rows(), texts.target_start.tolist(), texts.truncated.tolist()):
        assert start < len(row) <= context
        assert row[start] != TOKENIZER.eot
        assert is_cut or row[-1] == TOKENIZER.eot


# --- boxes read back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("[1, 22, 110, 223]", (1, 22, 110, 223)),
        ("ref a cat, box is [ 1 , 22 , 110 , 223 ]", (1, 22, 110, 223)),
        ("[1,2,3,4] [5,6,7,8]", (1, 2, 3, 4)),
        ("[1, 2, 3]", None),
        ("[1, 2, 3, 4, 5]", None),
        ("[1, 2, 3, x]", None),
        ("[9, 2, 3, 4]", None),
        ("", None),
    ],
)
def test_a_box_is_read_from_decoded_text_or_it_is_none(text: str, box: tuple[int, ...] | None) -> None:
    assert parse_box(text) == box


@given(st.tuples(st.integers(0, 150), st.integers(0, 150), st.integers(0, 200), st.integers(0, 200)))
def test_a_box_survives_the_tokenizer(corners: tuple[int, int, int, int]) -> None:
    box = (corners[0], corners[1], corners[0] + corners[2], corners[1] + corners[3])
    assert parse_box(TOKENIZER.decode(TOKENIZER.tokens(box_text(box)))) == box
