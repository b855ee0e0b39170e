"""A vocabulary of a corpus's own: fewer tokens, the same text."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from goldiclip.config import BYTE_TOKENS, CLIP_TOKENS, Config, ConfigError, from_yaml, resolve, to_yaml, validate
from goldiclip.data.tokenizer import Tokenizer, merged_tokens, vocabulary_and_merges
from goldiclip.data.vocabulary import corpus_texts, with_vocabulary

TEXTS = ["a striped giraffe left of two small houses", "VQA how many dogs are there?, answer is", "[12, 3, 45, 67]"]
MERGED = merged_tokens(TEXTS)
CLIP, COMPACT = Tokenizer(), Tokenizer(merged=MERGED)


def in_clips_ids(ids: list[int]) -> list[int]:
    kept = [*range(BYTE_TOKENS), *MERGED, CLIP.sot, CLIP.eot]
    return [kept[token] for token in ids]


@pytest.mark.parametrize("text", TEXTS)
def test_the_corpus_has_clips_very_tokens(text: str) -> None:
    ids = COMPACT.tokens(text)
    assert in_clips_ids(ids) == CLIP.tokens(text)
    assert max(ids) < COMPACT.sot == COMPACT.vocabulary - 2 == BYTE_TOKENS + len(MERGED)
    assert COMPACT.decode(ids) == CLIP.decode(CLIP.tokens(text))


def test_what_was_not_met_falls_into_smaller_pieces() -> None:
    ids = COMPACT.tokens("zebra")
    assert len(ids) > len(CLIP.tokens("zebra")) == 1
    assert COMPACT.decode(ids) == "zebra"
    assert set(in_clips_ids(ids)) <= {*range(BYTE_TOKENS), *MERGED}


@settings(max_examples=300, deadline=None)
@given(st.text())
@example("\ud800")
@example("👩‍👩‍👧‍👦 ½ ſ İ 东京 naïve")
def test_any_text_has_tokens_and_says_the_same(text: str) -> None:
    ids = COMPACT.tokens(text)
    assert all(0 <= token < COMPACT.vocabulary for token in ids)
    assert COMPACT.decode(ids) == CLIP.decode(CLIP.tokens(text))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(st.characters(max_codepoint=0x24F)), max_size=5))
def test_kept_tokens_are_closed_under_merging(texts: list[str]) -> None:
    merged = merged_tokens(texts)
    id_of, merges = vocabulary_and_merges()
    needed = {id_of[part] for token in merged for part in merges[token - BYTE_TOKENS]}
    assert needed <= {*range(BYTE_TOKENS), *merged}
    compact = Tokenizer(merged=merged)
    if merged:
        kept = [*range(BYTE_TOKENS), *merged, CLIP.sot, CLIP.eot]
        assert [[kept[token] for token in compact.tokens(text)] for text in texts] == [*map(CLIP.tokens, texts)]


def test_rows_begin_and_end_with_the_new_marks_and_travel_to_workers() -> None:
    rows = pickle.loads(pickle.dumps(COMPACT)).encode(TEXTS).rows()
    assert all((row[0], row[-1]) == (COMPACT.sot, COMPACT.eot) for row in rows)
    assert rows == COMPACT.encode(TEXTS).rows()


def test_an_id_beyond_the_vocabulary_is_an_error() -> None:
    with pytest.raises(ValueError, match=f"{COMPACT.vocabulary:,}"):
        COMPACT.decode([COMPACT.vocabulary])


# --- in the configuration ---------------------------------------------------------------------------------------------


def test_the_corpus_decides_where_the_configuration_asks(scene_config: Config) -> None:
    assert with_vocabulary(scene_config) is scene_config
    asking = replace(scene_config, data=replace(scene_config.data, vocabulary="corpus"))
    chosen = with_vocabulary(asking)
    text = chosen.model.text
    assert BYTE_TOKENS < text.vocabulary == BYTE_TOKENS + len(text.tokens) + 2 < CLIP_TOKENS // 10
    assert with_vocabulary(chosen) is chosen
    assert from_yaml(to_yaml(chosen)) == chosen
    ours = Tokenizer.of(text)
    assert all(len(ours.tokens(said)) == len(CLIP.tokens(said)) for said in corpus_texts(chosen))


def test_tokens_that_cannot_be_are_refused(scene_config: Config) -> None:
    def changed(**values: object) -> Config:
        text = replace(scene_config.model.text, **values)  # type: ignore[arg-type]
        return replace(scene_config, model=replace(scene_config.model, text=text))

    for tokens in ((600, 600), (700, 600), (3,), (CLIP_TOKENS - 1,)):
        with pytest.raises(ConfigError, match=r"model\.text\.tokens.*ascending"):
            resolve(changed(tokens=tokens))
    with pytest.raises(ConfigError, match=r"model\.text\.vocabulary is 77.*516"):
        validate(changed(tokens=(600, 700), vocabulary=77))


@pytest.fixture
def scene_config(tiny: Config, tmp_path: Path) -> Config:
    from goldiclip.data.scenes import Settings, write_corpus

    corpus = write_corpus(tmp_path / "corpus", Settings(count=20, held_out=0, size=48, per_shard=10))
    return replace(tiny, data=replace(tiny.data, train=(str(corpus / "train" / "*.tar"),)))


def test_weights_of_all_of_clips_tokens_start_a_model_of_some(tiny: Config) -> None:
    from goldiclip.model.goldiclip import GoldiCLIP
    from goldiclip.model.weights import Report, fill

    whole = GoldiCLIP(tiny.model)
    text = replace(tiny.model.text, tokens=MERGED, vocabulary=COMPACT.vocabulary)
    some = GoldiCLIP(replace(tiny.model, text=text), seed=1)
    report = Report("test")
    fill(some, whole.state_dict(), report)
    assert any("tokens that this model knows" in note for note in report.notes)
    ours = some.encode_text(COMPACT.encode(TEXTS)).embedding
    torch.testing.assert_close(ours, whole.encode_text(CLIP.encode(TEXTS)).embedding)
