"""Phrases: what the rules find in real captions, what is left out, and that spaCy's chunks take the same way."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goldiclip.config import ConfigError
from goldiclip.prepare.chunks import Chunk, SpacyChunks, chunker, resolve, rule_chunks
from goldiclip.prepare.phrases import MAX_PHRASES, MAX_WORDS, caption_order, clean, find_phrases
from goldiclip.prepare.stages import Phrases
from goldiclip.prepare.tags import split_words, tag, verb_form
from goldiclip.types import Caption, Sample

HERE = Path(__file__).parent
RULES = chunker("rules")


def phrases(*texts: str, limit: int = MAX_PHRASES) -> list[str]:
    return [found.phrase for found in find_phrases(texts, RULES, limit)]


def precision_and_recall(captions: Mapping[str, str], gold: Mapping[str, Sequence[str]]) -> tuple[float, float]:
    right = found = wanted = 0
    for key, expected in gold.items():
        got = set(phrases(captions[key]))
        right, found, wanted = right + len(got & set(expected)), found + len(got), wanted + len(set(expected))
    return right / found, right / wanted


def test_the_rules_find_what_a_reader_finds_in_real_captions(shared: Path) -> None:
    """120 captions read by hand; no rule was made by looking at them. Measured: 0.956 and 0.982."""
    with open(shared / "data/flickr8k/captions.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    captions: dict[str, str] = {}
    for image, caption in rows:
        number = next(n for n in range(9) if f"{image}#{n}" not in captions)
        captions[f"{image}#{number}"] = caption
    gold = json.loads((HERE / "phrases_flickr8k.json").read_text())
    precision, recall = precision_and_recall(captions, gold)
    assert len(gold) == 120
    assert precision >= 0.94
    assert recall >= 0.96


def test_the_rules_find_what_a_reader_finds_in_written_captions() -> None:
    """40 captions in the manner of LLaVA, written for this. Measured: 0.993 and 0.993."""
    items = json.loads((HERE / "phrases_written.json").read_text())
    captions = {item["caption"]: item["caption"] for item in items}
    precision, recall = precision_and_recall(captions, {item["caption"]: item["phrases"] for item in items})
    assert precision >= 0.97
    assert recall >= 0.97


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A man rides two horses.", ["man", "horses"]),
        ("Red, white and gold costumes hang on a wall.", ["red, white and gold costumes", "wall"]),
        ("A man in red holding a flag walks.", ["man", "flag"]),
        ("A snow covered hill near a swimming pool.", ["snow covered hill", "swimming pool"]),
        ("The woman's dog has no collar.", ["woman's dog"]),
        ("A man without a shirt plays soccer.", ["man"]),
        ("A group of people on top of a bus.", ["people", "bus"]),
        ("A woman is painting a painting.", ["woman", "painting"]),
        ("It is.", []),
        ("", []),
    ],
)
def test_a_caption_gives_these_phrases(caption: str, expected: list[str]) -> None:
    assert phrases(caption) == expected


def test_each_phrase_keeps_its_sentence_and_comes_once() -> None:
    found = find_phrases(["A dog runs. The dog chases a red ball.", "A cat and a dog."], RULES)
    assert [(item.phrase, item.sentence) for item in found] == [
        ("dog", "A dog runs."),
        ("red ball", "The dog chases a red ball."),
        ("cat", "A cat and a dog."),
    ]


def test_at_most_ten_phrases() -> None:
    text = " ".join(f"A lamp{number} stands near a chair{number}." for number in "abcdefghij")
    assert len(phrases(text)) == 10
    assert phrases(text, limit=3) == ["lampa", "chaira", "lampb"]


def test_long_captions_are_read_first_and_the_last_of_them_leads() -> None:
    captions = [Caption("raw", "raw"), Caption("s1", "short"), Caption("l1", "long"), Caption("l2", "long")]
    assert caption_order(captions) == ["l2", "l1", "s1", "raw"]


@given(st.lists(st.text(max_size=200), max_size=4))
def test_any_text_gives_clean_phrases(texts: list[str]) -> None:
    found = find_phrases(texts, RULES)
    assert len({item.phrase for item in found}) == len(found) <= MAX_PHRASES
    for item in found:
        assert item.phrase == item.phrase.strip().lower() == " ".join(item.phrase.split())
        assert 1 <= len(item.phrase.split()) <= MAX_WORDS
        assert any(item.sentence in text for text in texts)
    assert found == find_phrases(texts, RULES)


@given(st.text(max_size=200))
def test_every_word_has_a_class(text: str) -> None:
    words = split_words(text)
    classes = tag(words)
    assert len(classes) == len(words)
    assert set("".join(classes)) <= set("DANKQVXPCRWM,.")


@pytest.mark.parametrize(
    ("word", "form"),
    [
        ("running", ("run", "ing")),
        ("carries", ("carry", "s")),
        ("danced", ("dance", "ed")),
        ("wore", ("wear", "ed")),
        ("table", ("", "")),
    ],
)
def test_verb_forms_lead_to_their_base(word: str, form: tuple[str, str]) -> None:
    assert verb_form(word) == form


# --- spaCy ----------------------------------------------------------------------------------------------------------


def parsed_dog(words: Sequence[str]) -> object:
    """What a parser would say of "The brown dog of Fluffy has no collar", as a real spaCy document."""
    spacy = pytest.importorskip("spacy")
    from spacy.tokens import Doc, Span

    vocab = spacy.blank("en").vocab
    document = Doc(
        vocab,
        words=list(words),
        pos=["DET", "ADJ", "NOUN", "ADP", "PROPN", "VERB", "DET", "NOUN"],
        heads=[2, 2, 5, 2, 3, 5, 7, 5],
        deps=["det", "amod", "nsubj", "prep", "pobj", "ROOT", "det", "dobj"],
    )
    document.ents = [Span(document, 4, 5, label="PERSON")]
    return document


class Pipeline:
    """The one method of a spaCy pipeline that is used."""

    def pipe(self, sentences: Iterable[str]) -> Iterable[object]:
        return [parsed_dog(sentence.split()) for sentence in sentences]


def test_chunks_of_a_spacy_pipeline_are_cleaned_the_same_way() -> None:
    chunks = SpacyChunks(pipeline=Pipeline())
    found = find_phrases(["The brown dog of Fluffy has no collar"], chunks)
    assert [item.phrase for item in found] == ["brown dog", "fluffy"]


# Sentence -> word classes, dependencies, heads.
PARSED = {
    "The brown dog chases a red ball": (
        "DET ADJ NOUN VERB DET ADJ NOUN",
        "det amod nsubj ROOT det amod dobj",
        "2233663",
    ),
    "A man rides the old horse": ("DET NOUN VERB DET ADJ NOUN", "det nsubj ROOT det amod dobj", "122552"),
    "Two cats watch the bird": ("NUM NOUN VERB DET NOUN", "nummod nsubj ROOT det dobj", "12242"),
}


def test_a_pipeline_that_was_installed_as_a_folder_finds_the_chunks_of_its_parser(tmp_path: Path) -> None:
    """A real tagger and parser, taught three sentences: written, loaded by name, and asked twice."""
    spacy = pytest.importorskip("spacy")
    from spacy.training import Example

    spacy.util.fix_random_seed(0)
    pipeline = spacy.blank("en")
    pipeline.add_pipe("morphologizer")
    pipeline.add_pipe("parser", config={"min_action_freq": 1})
    told = [
        {"pos": pos.split(), "deps": dependencies.split(), "heads": [int(head) for head in heads]}
        for pos, dependencies, heads in PARSED.values()
    ]
    examples = [Example.from_dict(pipeline.make_doc(text), said) for text, said in zip(PARSED, told)]
    optimiser = pipeline.initialize(lambda: examples)
    for _ in range(60):
        pipeline.update(examples, sgd=optimiser)
    pipeline.to_disk(tmp_path / "pipeline")
    samples = [Sample(f"{number}", b"", (Caption(text),)) for number, text in enumerate(PARSED)]
    name = f"spacy:{tmp_path / 'pipeline'}"
    once, again = (Phrases(name).open("cpu")(samples, Counter()) for _ in range(2))
    assert once == again
    found = [phrases for sample in once for phrases in sample.meta["phrases"].values()]
    assert found == [["brown dog", "red ball"], ["man", "old horse"], ["cats", "bird"]]


def test_an_entity_outside_all_chunks_is_one_itself() -> None:
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    pipeline.add_pipe("entity_ruler").add_patterns([{"label": "FAC", "pattern": "Golden Gate Bridge"}])

    def without_noun_chunks(document: object) -> Iterable[object]:
        return iter(())

    pipeline.vocab.get_noun_chunks = without_noun_chunks
    found = find_phrases(["Under the Golden Gate Bridge"], SpacyChunks(pipeline=pipeline))
    assert [item.phrase for item in found] == ["golden gate bridge"]


def test_auto_means_the_best_installed_pipeline_and_rules_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    util = pytest.importorskip("spacy.util")
    monkeypatch.setattr(util, "get_installed_models", lambda: ["en_core_web_sm", "de_core_news_sm", "en_core_web_lg"])
    assert resolve("auto") == "spacy:en_core_web_lg"
    monkeypatch.setattr(util, "get_installed_models", list)
    assert resolve("auto") == "rules"


def test_an_unknown_source_of_phrases_is_named() -> None:
    with pytest.raises(ConfigError, match="rules, auto or spacy:NAME"):
        chunker("magic")
    with pytest.raises(ConfigError, match="en_core_web_none"):
        chunker("spacy:en_core_web_none")


def test_clean_drops_what_is_no_object() -> None:
    for words in (["it"], ["the", "front"], ["7"], ["a", "couple"], ["x"] * 12):
        assert clean(Chunk(tuple(words), after="of")) == "", words


def test_a_chunk_knows_its_neighbours() -> None:
    chunk = rule_chunks("sits beside two big dogs of hers")[0]
    assert chunk == Chunk(("two", "big", "dogs"), before="beside", after="of")
