"""English in small: articles, plurals, agreement, lists. Nothing here knows of scenes."""

from __future__ import annotations

import re
from collections.abc import Sequence

NUMBERS = (
    *("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)

# Spelt with a vowel and spoken without one, and the reverse.
CONSONANT_SOUND = re.compile(r"(?:uni(?!n)|use|ufo|usu|euro|eucal|ewe\b|ukulele|uk\b|one\b|once)")
VOWEL_SOUND = re.compile(r"(?:hour|honest|heir|herb\b|[fhlmnrsx](?:-|\b)|mp3)")


def _nouns(text: str) -> frozenset[str]:
    return frozenset(" ".join(text.split()).split(", "))


IRREGULAR = {
    "cactus": "cacti",
    "child": "children",
    "die": "dice",
    "foot": "feet",
    "goose": "geese",
    "knife": "knives",
    "leaf": "leaves",
    "loaf": "loaves",
    "man": "men",
    "mouse": "mice",
    "ox": "oxen",
    "person": "people",
    "scarf": "scarves",
    "shelf": "shelves",
    "tooth": "teeth",
    "wolf": "wolves",
    "woman": "women",
}
ENDING_IN_OES = _nouns("potato, tomato, mango, volcano, tornado, echo, hero")
UNCHANGED = _nouns("""
    aircraft, bison, blowfish, buffalo, crawfish, deer, fish, jellyfish, moose, salmon, series, sheep, shrimp,
    spacecraft, squid, starfish, trout
""")
# Never with a number: "some bread is", "some scissors are".
MASS = _nouns("""
    aerobics, american football, art, bacon, badminton, bowling, boxing, bread, broccoli, butter, camping, canned
    food, cheese, chess, chocolate milk, clothing, coffee, construction, cooking, coral, corn, dna, equipment,
    experience, fencing, field hockey, fire, fitness, flour, fog, fondue, food, french toast, fruit, furniture,
    garlic, grass, ham, hay, hiking, honey, ice, ice hockey, jewelry, juice, jumping, knitting, lacrosse, liberty,
    lotion, luggage, mate, meat, metro, milk, money, music, pepper, popcorn, rain, reaching, reading, rice, rugby
    football, running, sailing, sake, salt, sand, singing, skiing, sleeping, snow, soap, spaghetti, sugar, surfing,
    sushi, swimming, table tennis, tea, tennis, thread, toast, water, wind, wood, wool, working, wrestling, yarn
""")
PLURAL = _nouns("""
    beads, binoculars, braces, briefs, chains, crossbones, eyes, french fries, fries, gallows, glasses, goggles,
    hands, headphones, hot springs, jeans, leggings, overalls, pants, papers, peanuts, people, performing arts,
    pliers, prayer beads, pyjamas, rings, scissors, shorts, stairs, steps, sunglasses, tails, tights, tongs,
    trousers, tweezers, wings
""")
NAMES = _nouns("eris, mars, mount fuji, santa claus, tux, uranus, venus")
UNIQUE = _nouns("eiffel tower, fountain of youth, kaaba, statue of liberty")


def is_countable(noun: str) -> bool:
    return not ({noun} & MASS or {noun} & PLURAL or {noun} & NAMES or {noun} & UNIQUE)


def is_plural(noun: str, count: int) -> bool:
    """Whether its verb is in the plural."""
    return count > 1 or noun in PLURAL


def plural(noun: str) -> str:
    """The plural of a noun of one or more words: its head is the last one, or the one before "of"."""
    head, of, rest = noun.partition(" of ")
    if of:
        return f"{plural(head)} of {rest}"
    if " and " in noun:
        return " and ".join(plural(part) for part in noun.split(" and "))
    *before, last = noun.split(" ")
    return " ".join([*before, _plural_word(last)])


def _plural_word(word: str) -> str:
    if word in UNCHANGED or word in PLURAL:
        return word
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word in ENDING_IN_OES or re.search(r"(?:s|x|z|ch|sh)$", word):
        return f"{word}es"
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    if re.search(r"(?<!hu)man$", word):
        return f"{word[:-3]}men"
    return f"{word}s"


def indefinite(phrase: str) -> str:
    """The phrase behind "a" or "an", whichever its sound asks for."""
    word = phrase.lower()
    vowel = not CONSONANT_SOUND.match(word) and (word[0] in "aeiou" or VOWEL_SOUND.match(word) is not None)
    return f"{'an' if vowel else 'a'} {phrase}"


def listing(parts: Sequence[str], word: str = "and") -> str:
    """a · a and b · a, b and c"""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def number(count: int) -> str:
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def opening(text: str) -> str:
    """The text with a capital first letter, the rest as it is."""
    return text[:1].upper() + text[1:]
