from __future__ import annotations

import csv
import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from goldiclip.data.tokenizer import END, START, Tokenizer
from goldiclip.types import Texts


def open_clip_tokenizer() -> ModuleType:
    """The one file of open_clip, without the seconds that the whole package takes."""
    spec = importlib.util.find_spec("open_clip")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    path = Path(spec.submodule_search_locations[0]) / "tokenizer.py"
    file_spec = importlib.util.spec_from_file_location("open_clip_tokenizer_alone", path)
    assert file_spec is not None
    assert file_spec.loader is not None
    module = importlib.util.module_from_spec(file_spec)
    file_spec.loader.exec_module(module)
    return module


THEIRS = open_clip_tokenizer().SimpleTokenizer()
OURS = Tokenizer()

CAPTIONS = [
    "A child in a pink dress is climbing up a set of stairs in an entry way .",
    "It's the dogs' 3rd walk; they'll've run 1,024 m. Don't they'd say?",
    "Tom &amp;amp; Jerry&#39;s caf&eacute; &lt;b&gt; &AMP",
    "<b>bold &amp; html</b>",
    "naïve café, cafe\u0301, ﬁne ＦＵＬＬ width ½ ² ٣",
    "👩‍👩‍👧‍👦 🏳️‍🌈 ☕ smile 😀😀",
    "schÃ¶n â€œquotedâ€\x9d  non\u00a0breaking\u2003space",
    "东京 – ‘curly’ “quotes” … İstanbul ΣΊΣΥΦΟΣ ẞ ſ 'ſ K",
    "\ttabs\r\n and\x0b\x0c lines\x1c\x85\u2028end\x00\x7f\x1b[31mred\x1b[0m",
    f"{START} a {END} !{START} <Start_of_text> <ſtart_of_text>",
    "",
    "   ",
    "....!!!??? --- ((()))",
    "x" * 500,
]

# Pieces that meet the repairs and the word pattern at their seams.
PIECES = st.sampled_from(
    [
        *"aZs'9.,!&;#<> \n\té½²ſİßΣς٣五ﬁＡ\u0301\u200d\ufe0f\u00a0\u00ad\ufeff\ud83d\ude00\x85\x1b",
        "&amp;", "&#x1F600;", "&eacute", "&lt", "'s", "'LL", "'ſ", "👩‍👧", "Ã©", "â€™", START, END, "<start_of",
        "1,000",
    ]
)  # fmt: skip
PIECED = st.lists(PIECES, max_size=30).map("".join)


@pytest.mark.parametrize("text", CAPTIONS)
def test_ids_equal_open_clip(text: str) -> None:
    assert OURS.tokens(text) == THEIRS.encode(text)


def test_ids_equal_open_clip_on_real_captions(shared: Path) -> None:
    with (shared / "data/flickr8k/captions.csv").open() as file:
        captions = [row["caption"] for row in csv.DictReader(file)][::10]
    assert len(captions) > 3_000
    assert all(OURS.tokens(caption) == THEIRS.encode(caption) for caption in captions)


@settings(max_examples=400, deadline=None)
@given(st.text() | st.text(st.characters(max_codepoint=0x24F)))
@example("'\u017f")
@example("\ud800")
def test_ids_equal_open_clip_on_any_text(text: str) -> None:
    assert OURS.tokens(text) == THEIRS.encode(text)


@settings(max_examples=200, deadline=None)
@given(PIECED)
def test_ids_equal_open_clip_where_repairs_meet(text: str) -> None:
    assert OURS.tokens(text) == THEIRS.encode(text)


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(max_codepoint=127)))
def test_the_short_cut_for_plain_text_changes_nothing(text: str) -> None:
    assert OURS.tokens(text) == THEIRS.encode(text)


@settings(max_examples=100, deadline=None)
@given(st.lists(PIECED, max_size=4), st.integers(3, 20))
def test_rows_are_cut_as_open_clip_cuts_them(texts: list[str], context: int) -> None:
    encoded = Tokenizer(context).encode(texts)
    for text, row, is_cut in zip(texts, encoded.rows(), encoded.truncated.tolist(), strict=True):
        padded = row + [0] * (context - len(row))
        assert padded == THEIRS([text], context_length=context)[0].tolist()
        assert is_cut == (len(THEIRS.encode(text)) > context - 2)


def test_encode_packs_rows_without_padding() -> None:
    texts = ["a cat", "two dogs and a very long list of other animals", ""]
    encoded = OURS.encode(texts)
    assert isinstance(encoded, Texts)
    assert encoded.rows() == [[OURS.sot, *THEIRS.encode(text), OURS.eot] for text in texts]
    assert encoded.max_length == max(map(len, encoded.rows()))
    assert encoded.target_start is None
    assert encoded.ids.dtype == torch.int64


def test_decoding_rejoins_digits_and_hyphens_and_sets_marks_against_words() -> None:
    text = "box is [110, 23, 5, 223], a cup (red) of heart-shaped tea."
    assert OURS.decode(OURS.encode([text]).ids) == text


def test_decoding_stops_at_the_end_mark() -> None:
    ids = OURS.encode(["a cat", "a dog"]).ids
    assert OURS.decode(ids) == "a cat"
    assert OURS.decode(ids.tolist()) == "a cat"
    assert OURS.decode([]) == ""


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["a", "cat", "110", "7", ",", ".", "-", "[", "]", "(", ")", "café", "日本", "!"]), max_size=12
    )
)
def test_decoded_text_has_the_same_tokens_again(words: list[str]) -> None:
    ids = OURS.tokens(" ".join(words))
    assert OURS.tokens(OURS.decode(ids)) == ids


def test_decoding_half_a_character_says_so_and_goes_on() -> None:
    first_byte_of_an_emoji = OURS.tokens("😀")[0]
    assert "a" in OURS.decode([first_byte_of_an_emoji, *OURS.tokens("a")])


def test_decoding_an_unknown_id_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"49408.*49,408"):
        OURS.decode([49_408])


def test_a_single_text_in_place_of_a_list_is_an_error() -> None:
    with pytest.raises(TypeError, match=r"\[text\]"):
        OURS.encode("a cat")


def test_a_context_without_room_is_an_error() -> None:
    with pytest.raises(ValueError, match="context is 2"):
        Tokenizer(2)


def test_pickling_keeps_the_context_and_leaves_the_words_behind() -> None:
    tokenizer = Tokenizer(12)
    tokenizer.encode(["a " * 40])
    data = pickle.dumps(tokenizer)
    assert len(data) < 200
    assert pickle.loads(data).encode(["a " * 40]).rows() == tokenizer.encode(["a " * 40]).rows()


def test_a_stream_of_noise_does_not_grow_the_word_list_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goldiclip.data.tokenizer._MAX_WORDS", 100)
    tokenizer = Tokenizer()
    for i in range(1_000):
        tokenizer.tokens(f"w{i:b}".translate(str.maketrans("01", "ab")) + "q" * (i % 50))
    assert len(tokenizer._words) <= 100


def test_making_one_does_not_import_open_clip() -> None:
    code = (
        "import sys; from goldiclip.data.tokenizer import Tokenizer; "
        "Tokenizer().encode(['a cat']); sys.exit('open_clip' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
