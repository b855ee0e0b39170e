"""What a record may say, and what is left of it when parts are damaged."""

from __future__ import annotations

import json
import math
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldiclip.data import schema
from goldiclip.data.schema import BadSample, parse_record, read_sample, write_record
from goldiclip.types import Caption, Question, Region, Sample

IMAGE = b"\xff\xd8 any bytes"


def read(**record: object) -> Sample:
    return read_sample("k", IMAGE, {"captions": {"raw": ["a dog"]}, **record}, "x.tar")


def texts(sample: Sample) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for caption in sample.captions:
        found.setdefault(caption.source, []).append(caption.text)
    return found


def test_a_full_record_is_read_as_it_was_written():
    sample = Sample(
        key="k",
        image=IMAGE,
        captions=(Caption("a dog", "raw"), Caption("Hund — 犬 🐕", "short"), Caption("One. Two.", "long")),
        regions=(Region("a dog", (0.0, 0.25, 0.5, 1.0), "a dog sits", 0.75),),
        questions=(Question("how many?", "2", "count"),),
        meta={"url": "http://x/y.jpg", "width": 7, "nested": {"a": [1, None]}},
        origin="x.tar",
    )
    assert read_sample("k", IMAGE, json.loads(json.dumps(write_record(sample))), "x.tar") == sample


def test_dreamlip_fields_are_read_whether_strings_or_lists():
    record = {
        "raw_caption": "raw text",
        "shortIB_captions": "A cat. On a mat.",
        "longIB_captions": ["First.", "Second."],
        "shortSV_captions": None,
        "longLLA_captions": "Long one. It goes on.",
        "url": "u",
    }
    sample = read_sample("k", IMAGE, record)
    assert texts(sample) == {
        "raw": ["raw text"],
        "short": ["A cat. On a mat."],
        "long": ["First.", "Second.", "Long one. It goes on."],
    }
    assert sample.meta == {"url": "u"}


def test_img2dataset_caption_is_raw_and_is_not_repeated_beside_a_raw_caption():
    assert texts(read_sample("k", IMAGE, {"caption": "c", "sha256": "s"})) == {"raw": ["c"]}
    assert texts(read_sample("k", IMAGE, {"caption": "c", "raw_caption": "c"})) == {"raw": ["c"]}


@pytest.mark.parametrize("value", ["three words here", ["three words here"], {"raw": "three words here"}])
def test_a_string_where_a_list_is_expected_is_one_text_and_never_characters(value):
    assert texts(read_sample("k", IMAGE, {"captions": value})) == {"raw": ["three words here"]}


@pytest.mark.parametrize(
    "value", [None, math.nan, "", "  ", "nan", "None", [], {}, {"raw": None}, {"raw": [None, ""]}, 5, [["a"]], True]
)
def test_a_record_without_a_caption_is_a_bad_sample(value):
    with pytest.raises(BadSample) as caught:
        read_sample("000193", IMAGE, {"captions": value, "url": "u"}, "x.tar")
    assert caught.value.reason == "no caption"
    assert str(caught.value).startswith("x.tar, key 000193: no caption")


def test_damaged_captions_are_left_out_and_counted():
    long = "x" * (schema.MAX_TEXT_CHARACTERS + 1)
    sample = read(captions={"raw": ["fine", None, 3, long, "nan"], "medium": ["m"]})
    assert texts(sample) == {"raw": ["fine"]}
    assert sample.meta["dropped"] == {
        "caption empty": 2,
        "caption not a text": 1,
        "caption too long": 1,
        "unknown caption source": 1,
    }


def test_lone_surrogates_and_nuls_do_not_reach_the_tokenizer():
    text = read(captions="a\0b \ud800").captions[0].text
    assert text.encode() == b"a b ?"


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        ([0.5, 0.1, 0.4, 0.2], "box reversed"),
        ([0.1, 0.5, 0.2, 0.4], "box reversed"),
        ([0.1, 0.1, 0.1, 0.4], "box without area"),
        ([1.0, 0.1, 1.0005, 0.4], "box without area"),
        ([-0.1, 0.1, 0.4, 0.4], "box outside the image"),
        ([10, 20, 110, 220], "box outside the image"),
        ([math.nan, 0.1, 0.4, 0.4], "box not four numbers"),
        ([0.1, 0.1, math.inf, 0.4], "box not four numbers"),
        ([0.1, 0.1, 0.4], "box not four numbers"),
        (["0", "0", "1", "1"], "box not four numbers"),
        ([False, False, True, True], "box not four numbers"),
        ([0.1, 0.1, 10**400, 0.4], "box not four numbers"),
        (None, "box not four numbers"),
        ({"x": 1}, "box not four numbers"),
    ],
)
def test_a_bad_box_is_left_out_and_its_reason_counted(box, reason):
    good = {"phrase": "g", "box": [0.1, 0.2, 0.3, 0.4]}
    sample = read(regions=[{"phrase": "p", "box": box}, good])
    assert [region.phrase for region in sample.regions] == ["g"]
    assert sample.meta["dropped"] == {reason: 1}


def test_a_box_that_sticks_out_by_rounding_is_clipped():
    assert read(regions=[{"phrase": "p", "box": [-0.0004, 0, 1.0004, 1]}]).regions[0].box == (0, 0, 1, 1)


def test_regions_and_questions_that_are_not_what_they_should_be_are_counted():
    box = [0.1, 0.2, 0.3, 0.4]
    sample = read(
        regions=[7, {"box": box}, {"phrase": "p", "box": box, "score": "high"}],
        questions=[{"question": "q"}, {"answer": "a"}, {"question": "how many?", "answer": 3, "kind": None}],
    )
    assert sample.regions == ()
    assert sample.questions == (Question("how many?", "3"),)
    assert sample.meta["dropped"] == {
        "region not an object": 1,
        "region without phrase": 1,
        "score not a number": 1,
        "question without answer": 1,
        "question without text": 1,
    }
    assert read(regions="x").meta["dropped"] == {"regions not a list": 1}


def test_none_is_an_answer_though_it_is_no_caption():
    assert read(questions=[{"question": "how many cats?", "answer": "none"}]).questions == (
        Question("how many cats?", "none"),
    )


def test_what_was_dropped_does_not_return_to_disk():
    sample = read(regions=[7])
    assert "dropped" not in write_record(sample)
    assert "dropped" not in read(dropped={"forged": 9}).meta


def test_of_a_key_that_stands_twice_the_last_counts_and_it_is_counted():
    record = parse_record(
        b'{"captions": "a", "captions": "b", "regions": [{"phrase": "c", "phrase": "d", "box": [0, 0, 1, 1]}]}'
    )
    found = read_sample("k", IMAGE, record)
    assert (found.captions[0].text, found.regions[0].phrase) == ("b", "d")
    assert found.meta["dropped"] == {"key twice in the record": 2}


def test_another_schema_version_is_refused():
    with pytest.raises(BadSample, match="unknown schema: found 2, this version reads 1"):
        read(schema=2)


def test_meta_must_not_shadow_the_schema():
    with pytest.raises(ValueError, match="'regions'"):
        write_record(Sample("k", IMAGE, (Caption("a"),), meta={"regions": []}))


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b'{"a": ' + b"9" * 5_000 + b"}", b"null"]
)
def test_json_that_is_no_record_is_a_bad_sample(payload):
    with pytest.raises(BadSample) as caught:
        parse_record(payload, "k")
    assert caught.value.reason == "unreadable JSON"


def test_an_enormous_record_is_not_even_parsed(monkeypatch):
    monkeypatch.setattr(schema.json, "loads", lambda *_, **__: pytest.fail("parsed"))
    with pytest.raises(BadSample, match="record too large"):
        parse_record(b" " * (schema.MAX_RECORD_BYTES + 1))


def test_no_image_is_a_bad_sample():
    with pytest.raises(BadSample, match="no image"):
        read_sample("k", b"", {"caption": "c"})


def test_a_bad_sample_survives_the_way_between_processes():
    error = pickle.loads(pickle.dumps(BadSample("no caption", "d", "k", "x.tar")))
    assert (error.reason, error.detail, error.key, error.origin) == ("no caption", "d", "k", "x.tar")
    assert str(error) == "x.tar, key k: no caption: d"


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["captions", "regions", "questions", "caption", "raw_caption", "shortSV_captions", "schema", "dropped", "url"]
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        NAMES,
        JSON
        | st.lists(st.fixed_dictionaries({"phrase": JSON, "box": JSON, "question": JSON, "answer": JSON}), max_size=2),
    )
)
def test_any_json_is_a_valid_sample_or_a_bad_one(record):
    try:
        sample = read_sample("k", IMAGE, record)
    except BadSample:
        return
    assert sample.captions
    for region in sample.regions:
        x0, y0, x1, y1 = region.box
        assert 0 <= x0 < x1 <= 1
        assert 0 <= y0 < y1 <= 1
        assert math.isfinite(region.score)
    assert all(isinstance(item.text, str) and item.text for item in sample.captions)
    again = read_sample("k", IMAGE, write_record(sample))
    assert (again.captions, again.regions, again.questions) == (sample.captions, sample.regions, sample.questions)
