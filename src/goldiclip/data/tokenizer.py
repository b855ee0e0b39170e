"""CLIP's tokenizer: text to packed ids, equal to open_clip's on any Unicode text and several times as fast.

The vocabulary comes out of the installed open_clip package, which itself is never imported here (that takes seconds).
Rust `tokenizers` merges the bytes of a word it has not met; met words are looked up. Text that is plain ASCII skips the
repairs (mojibake, HTML entities, Unicode spaces), which cannot change it.

A tokenizer may keep some of the merges alone (those that a corpus uses: `data/vocabulary.py`) and number its tokens
anew. Bytes are always kept, so that any text has tokens; a word all of whose merges are kept has the same ones.
"""

from __future__ import annotations

import gzip
import html
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from goldiclip.config import BYTE_TOKENS, CLIP_TOKENS, Text
from goldiclip.types import Texts

START, END = "<start_of_text>", "<end_of_text>"

# Nothing that the repairs look at: no entity, no control character, no byte above 126.
_PLAIN = re.compile(r"[\t\n\x20-\x25\x27-\x7e]*")
_PLAIN_WORDS = re.compile(rf"{START}|{END}|'s|'t|'re|'ve|'m|'ll|'d|[a-z]+|[0-9]|[^\sa-z0-9]+")
_WORDS = rf"{START}|{END}|'s|'t|'re|'ve|'m|'ll|'d|[\p{{L}}]+|[\p{{N}}]|[^\s\p{{L}}\p{{N}}]+"
# Words kept at hand: enough for English, and a bound on a stream of noise.
_MAX_WORDS, _MAX_WORD_CHARACTERS = 1 << 16, 32

_BETWEEN_DIGITS = re.compile(r"(?<=\d) (?=\d)")
_BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_]) - (?=[^\W\d_])")
_BEFORE_MARK = re.compile(r"(?<=\w) (?=[,.;:!?)\]])")
_AFTER_BRACKET = re.compile(r"(?<=[(\[]) (?=\w)")


class Tokenizer:
    """`context` is the longest row, start and end included; what does not fit is cut as open_clip cuts it, and said."""

    def __init__(self, context: int = 77, merged: Sequence[int] = ()) -> None:
        """`merged`: CLIP's ids of the merged tokens to keep, in order; by default all of them."""
        if context < 3:
            raise ValueError(f"context is {context}; a text needs at least 3 tokens: start, one of its own, end")
        self.context, self.merged = context, tuple(merged)
        self.vocabulary = BYTE_TOKENS + len(self.merged) + 2 if merged else CLIP_TOKENS
        self.sot, self.eot = self.vocabulary - 2, self.vocabulary - 1
        self._words = _Words(self)

    @classmethod
    def of(cls, text: Text) -> Tokenizer:
        """The one that a text tower was configured for."""
        return cls(text.context, text.tokens)

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.context, self.merged)

    def encode(self, texts: Sequence[str]) -> Texts:
        """Each text as one row `start … end` of at most `context` tokens."""
        if isinstance(texts, str):
            raise TypeError("Tokenizer.encode takes a list of texts; one text is [text]")
        room = self.context - 2
        rows, truncated = [], []
        for text in texts:
            ids = self.tokens(text)
            truncated.append(len(ids) > room)
            rows.append([self.sot, *ids[:room], self.eot])
        return Texts.pack(rows, truncated)

    def tokens(self, text: str) -> list[int]:
        """The ids of one text in full, without start and end."""
        ids: list[int] = []
        words = self._words
        for word in split_words(text):
            ids += words[word]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text up to the first end mark, lower case: digits (1 1 0: 110) and compounds rejoined, marks set to words."""
        pieces = _pieces(self.merged)
        data = bytearray()
        for token in map(int, ids):
            if token == self.eot:
                break
            if not 0 <= token < self.vocabulary:
                raise ValueError(f"token {token} is none of the vocabulary's {self.vocabulary:,}")
            if token != self.sot:
                data += pieces[token]
        text = _BETWEEN_DIGITS.sub("", data.decode("utf-8", errors="replace"))
        text = _BETWEEN_LETTERS.sub("-", text)
        return _AFTER_BRACKET.sub("", _BEFORE_MARK.sub("", text)).strip()


def split_words(text: str) -> list[str]:
    """Cleaned and cut where no merge may cross: letters, single digits, runs of anything else."""
    if _PLAIN.fullmatch(text):
        return _PLAIN_WORDS.findall(text.lower())
    import ftfy

    text = html.unescape(html.unescape(ftfy.fix_text(text))).strip()
    return _any_words().findall(" ".join(text.split()).lower())


class _Words(dict[str, list[int]]):
    """Word to ids, filled as words are met."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__({START: [tokenizer.sot], END: [tokenizer.eot]})
        self.merged = tokenizer.merged

    def __missing__(self, word: str) -> list[int]:
        letters, merger = _byte_letters(), _merger(self.merged)
        ids = [token.id for token in merger.tokenize("".join([letters[byte] for byte in word.encode("utf-8")]))]
        if len(self) < _MAX_WORDS and len(word) <= _MAX_WORD_CHARACTERS:
            self[word] = ids
        return ids


@lru_cache(maxsize=1)
def _any_words() -> Any:
    import regex

    return regex.compile(_WORDS, regex.IGNORECASE)  # case folding reaches the long s, as it does in open_clip


@lru_cache(maxsize=1)
def _byte_letters() -> list[str]:
    """The printable letter that stands for each byte in the vocabulary."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


@lru_cache(maxsize=1)
def _merges() -> list[tuple[str, str]]:
    spec = find_spec("open_clip")  # finds the package without running it
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError('CLIP\'s vocabulary comes with open_clip; run "pip install open_clip_torch"')
    path = Path(spec.submodule_search_locations[0]) / "bpe_simple_vocab_16e6.txt.gz"
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").split("\n")
    first, _, second = zip(*(line.partition(" ") for line in lines[1 : CLIP_TOKENS - 512 - 2 + 1]))
    return list(zip(first, second))


@lru_cache(maxsize=1)
def _tokens() -> list[str]:
    """The vocabulary in order: bytes in the order CLIP met them, the same ending a word, merges, the two marks."""
    letters = sorted(_byte_letters(), key=lambda letter: (ord(letter) >= 256, ord(letter)))
    return [*letters, *(f"{letter}</w>" for letter in letters), *map("".join, _merges()), START, END]


def vocabulary_and_merges(merged: tuple[int, ...] = ()) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """What another library needs to build the same tokenizer."""
    names, merges = _tokens(), _merges()
    if merged:
        names = [*names[:BYTE_TOKENS], *(names[token] for token in merged), START, END]
        merges = [merges[token - BYTE_TOKENS] for token in merged]
    return {token: i for i, token in enumerate(names)}, merges


@lru_cache(maxsize=4)
def _merger(merged: tuple[int, ...]) -> Any:
    from tokenizers import models

    return models.BPE(*vocabulary_and_merges(merged), end_of_word_suffix="</w>")


@lru_cache(maxsize=4)
def _pieces(merged: tuple[int, ...]) -> list[bytes]:
    """The bytes each token stands for; one that ends a word brings its space."""
    byte_of = {letter: byte for byte, letter in enumerate(_byte_letters())}
    pieces = []
    for token in list(vocabulary_and_merges(merged)[0])[:-2]:
        word = token.removesuffix("</w>")
        pieces.append(bytes(byte_of[letter] for letter in word) + (b" " if word != token else b""))
    return [*pieces, b"", b""]


# --- a vocabulary of one's own --------------------------------------------------------------------------------------


def merged_tokens(texts: Iterable[str]) -> tuple[int, ...]:
    """CLIP's ids of the merged tokens that these texts need, each with the two it was merged from, and so on down."""
    tokenizer, (id_of, merges) = Tokenizer(), vocabulary_and_merges()
    wanted, needed = {token for text in texts for token in tokenizer.tokens(text)}, set[int]()
    while wanted:
        token = wanted.pop()
        if BYTE_TOKENS <= token < tokenizer.sot and token not in needed:
            needed.add(token)
            wanted.update(id_of[part] for part in merges[token - BYTE_TOKENS])
    return tuple(sorted(needed))
