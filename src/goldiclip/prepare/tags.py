"""Word classes of a caption by rule: closed classes, endings, and the words before and after.

    D determiner or number   A adjective   N noun    K participle of a compound ("snow covered")   Q 's
    V verb   X auxiliary   P preposition   C conjunction   R pronoun   W relative   M adverb   and , .

Classes in lower case waver, and their place decides:

    b run, wave   s runs, waves   v wears   i wear   g wearing, swimming   n building, painting   e covered, dressed
"""

from __future__ import annotations

import re
from functools import lru_cache

from goldiclip.prepare import lexicon

_WORD = re.compile(r"\d+(?:[.,]\d+)*|['’]s\b|[^\W\d_]+(?:[-'’](?!s\b)[^\W_]+)*|[,;:.!?()\"“”]|\S")
_STOPS = frozenset('.;:!?()"“”')
_COPULAS = frozenset(("is", "are", "was", "were", "be"))
_QUANTIFIERS = frozenset(("some", "others", "all", "both", "many", "several"))
_ADJECTIVE_ENDINGS = ("ful", "ous", "less", "ish", "able", "ible", "like", "esque", "-style", "-sized", "-shaped")
_LEXICAL: tuple[tuple[frozenset[str], str], ...] = (
    (lexicon.PREPOSITIONS, "P"),
    (lexicon.CONJUNCTIONS, "C"),
    (lexicon.DETERMINERS | lexicon.CARDINALS, "D"),
    (lexicon.RELATIVES, "W"),
    (lexicon.PRONOUNS, "R"),
    (lexicon.AUXILIARIES, "X"),
    (lexicon.ODD_NOUNS, "N"),
    (lexicon.ING_NOUNS, "n"),
    (lexicon.NOUN_VERBS - lexicon.ADJECTIVES, "b"),
    (lexicon.ADJECTIVES, "A"),
    (lexicon.ADVERBS | lexicon.INTENSIFIERS, "M"),
)


def split_words(sentence: str) -> list[str]:
    return [word.replace("’", "'") for word in _WORD.findall(sentence)]


def tag(words: list[str]) -> list[str]:
    """One class per word, settled from left to right."""
    lower = [word.lower() for word in words]
    clause = _Clause(lower, [_raw(word) for word in lower])
    for at in range(len(words)):
        clause.settle(at)
    return clause.classes


# --- a word by itself -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 16)
def _raw(word: str) -> str:
    if word in (",", "'s"):
        return "," if word == "," else "Q"
    if not word[0].isalpha():
        return "D" if word[0].isdigit() else "."
    for words, kind in _LEXICAL:
        if word in words:
            return kind
    return _by_ending(word)


def _by_ending(word: str) -> str:
    base, form = verb_form(word)
    if form == "ing" or (word.endswith("ing") and len(word) > 5):
        return "g"
    if form == "ed":
        return "e"
    if base:
        return "i" if form == "base" else ("s" if base in lexicon.NOUN_VERBS else "v")
    if word.endswith("ed") and len(word) > 4:
        return "A" if "-" in word else "e"
    if word.endswith("ly") and len(word) > 4:
        return "M"
    if word.endswith(_ADJECTIVE_ENDINGS) and len(word) > 5:
        return "A"
    return "N"


@lru_cache(maxsize=1 << 14)
def verb_form(word: str) -> tuple[str, str]:
    """(base, "base" | "s" | "ing" | "ed") of a known verb, or ("", "")."""
    if word in lexicon.IRREGULAR:
        return lexicon.IRREGULAR[word], "ing" if word.endswith("ing") else "ed"
    if word in lexicon.VERBS or word in lexicon.NOUN_VERBS:
        return word, "base"
    for ending, form in (("ing", "ing"), ("ed", "ed"), ("es", "s"), ("s", "s")):
        if word.endswith(ending) and (base := _base(word[: -len(ending)])):
            return base, form
    return "", ""


def _base(stem: str) -> str:
    candidates = [stem, stem + "e"]
    if stem.endswith("i"):
        candidates.append(stem[:-1] + "y")
    if len(stem) > 2 and stem[-1] == stem[-2]:
        candidates.append(stem[:-1])
    return next((base for base in candidates if base in lexicon.VERBS or base in lexicon.NOUN_VERBS), "")


# --- a word in its place --------------------------------------------------------------------------------------------


class _Clause:
    """Reading position in a sentence: what is settled so far, and whether the clause has its verb."""

    def __init__(self, words: list[str], raw: list[str]) -> None:
        self.words = words
        self.raw = raw
        self.classes: list[str] = []
        self.has_verb = False
        self.is_joined = False  # "a boy and a girl play": what is joined is plural
        self.rules = {
            "b": self._base_form,
            "s": self._s_form,
            "v": self._finite,
            "i": self._infinitive,
            "g": self._ing,
            "n": self._ing_noun,
            "e": self._past,
            "A": self._adjective,
            "N": self._noun,
            "D": self._determiner,
            "Q": self._apostrophe,
        }

    def settle(self, at: int) -> None:
        kind = self.raw[at]
        self.classes.append(self.rules[kind](at) if kind in self.rules else self._closed(at, kind))

    @property
    def before(self) -> str:
        return self.classes[-1] if self.classes else "."

    def word(self, at: int) -> str:
        return self.words[at] if 0 <= at < len(self.words) else ""

    def next(self, at: int) -> str:
        return self.raw[at + 1] if at + 1 < len(self.raw) else "."

    def _closed(self, at: int, kind: str) -> str:
        if kind in ".W":
            self.has_verb = self.is_joined = False
        elif kind == "C":
            self.is_joined = self.is_joined or self.before == "N"
            self.has_verb = self.has_verb and self.next(at) not in "DNAn"  # "runs and jumps", "sits and a dog runs"
        elif kind == "X":
            self.has_verb = True
        return kind

    def _noun(self, at: int) -> str:
        is_predicate = self.before == "X" and self.word(at - 1) in _COPULAS and self.next(at) in ".,CW"
        return "A" if is_predicate else "N"  # "his hands are sticky"

    def _adjective(self, at: int) -> str:
        if self.words[at] not in lexicon.NOMINAL_ADJECTIVES:
            return "A"
        stands_alone = self.before == "D" and self.next(at) in "svXPCW,.eigM"
        return "N" if self.before == "N" or stands_alone else "A"

    def _determiner(self, at: int) -> str:
        word = self.words[at]
        if word == "one" and self.next(at) in "PWX,.CMg":
            return "R"
        if word in ("that", "which") and self.before in "N,":
            return self._closed(at, "W")
        return "D"

    def _apostrophe(self, at: int) -> str:
        if self.before in "NR" and self.next(at) in "gDPM":
            self.has_verb = True
            return "X"
        return "Q"

    def _verb(self) -> str:
        self.has_verb = True
        return "V"

    def _base_form(self, at: int) -> str:
        """run, walk, swing"""
        before, last = self.before, self.word(at - 1)
        if before in "XRW" or last == "to":
            return "N" if last in ("has", "have", "had") else self._verb()
        if before == "N" and not self.has_verb and (_is_plural(last) or self.is_joined):
            return self._verb()
        if before == "M" and not self.has_verb:
            return self._verb()
        if before in "C," and self._had_verb() and self.next(at) in "DPMRX":
            return self._verb()
        return self._verb() if before in ".C" and self.next(at) == "D" else "N"

    def _s_form(self, at: int) -> str:
        """runs, walks, swings"""
        before = self.before
        if before in "RW":
            return self._verb()
        if before in "NM" or (before == "A" and self._is_bare_colour(at - 1)):
            return "N" if self.has_verb else self._verb()
        if before in "C," and self.next(at) in "ADPMR" and self._had_verb():
            return self._verb()
        return "N"

    def _finite(self, at: int) -> str:
        """rides, wears: no noun has this form"""
        return "N" if self.before == "D" and self.next(at) not in "DP" else self._verb()

    def _infinitive(self, at: int) -> str:
        return "N" if self.before == "D" and self.word(at - 1) not in _QUANTIFIERS else self._verb()

    def _ing(self, at: int) -> str:
        """A modifier ("a smiling boy", "swimming pool"), else a participle."""
        before, follows, word, last = self.before, self.next(at), self.words[at], self.word(at - 1)
        is_nominal = follows in "NAbsgen"
        is_transitive = word in lexicon.TRANSITIVE_ING
        if before == "D" and last in _QUANTIFIERS:
            return "V"
        if before in "DAQ" and not self._is_bare_colour(at - 1):
            return "A" if is_nominal else ("N" if before == "D" else "V")
        if before in "APVCM,." and self.word(at + 1) in lexicon.ING_HEADS and not is_transitive:
            return "A"
        if before == "N" and last in ("rock", "ice") and word == "climbing" and follows in "Nbn":
            return "N"
        return "A" if before == "." and is_nominal and not is_transitive else "V"

    def _ing_noun(self, at: int) -> str:
        """ "a painting", but "is painting the wall" """
        is_action = verb_form(self.words[at])[1] == "ing" and self.next(at) in "DR"
        return "V" if is_action and self.before in "XN" else "N"

    def _past(self, at: int) -> str:
        """An adjective before its noun, the end of a compound one, else a verb."""
        before, follows, word = self.before, self.next(at), self.words[at]
        is_nominal = follows in "NAbsgn"
        if before == "N" and word in lexicon.COMPOUND_PARTICIPLES and is_nominal:
            return "K"
        if before in "DAQ" and not self._is_bare_colour(at - 1):
            return "A" if is_nominal or follows in ",C" else ("N" if before == "D" else "V")
        return "A" if before in "PVCM,." and is_nominal and word not in lexicon.IRREGULAR else "V"

    def _had_verb(self) -> bool:
        return "V" in self.classes or "X" in self.classes

    def _is_bare_colour(self, at: int) -> bool:
        """The colour in "a man in red holding a flag" stands for clothes: nothing before it but "in" or "wearing"."""
        if self.word(at) not in lexicon.COLOURS:
            return False
        while at > 0 and (self.word(at - 1) in lexicon.COLOURS or self.word(at - 1) in ("and", ",", "all")):
            at -= 1
        return self.word(at - 1) in ("in", "wearing", "wears")


def _is_plural(word: str) -> bool:
    return (word.endswith("s") and not word.endswith("ss")) or word in lexicon.PLURALS
