"""One record beside an image: what a shard may say, read forgivingly and written strictly.

Three layouts are read: the project's own (`captions`, `regions`, `questions`), DreamLIP's and FLAIR's (`raw_caption`,
`shortIB_captions`, …), and plain img2dataset (`caption`). `docs/data.md` describes them. A damaged caption, region or
question is left out and its reason counted in `meta["dropped"]`; a record with nothing to train on is a `BadSample`.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from goldiclip.types import CAPTION_SOURCES, Box, Caption, CaptionSource, Question, Region, Sample

SCHEMA = 1

# Limits before anything is parsed or decoded: what is larger is damage or an attack, not data.
MAX_RECORD_BYTES = 4 << 20
MAX_IMAGE_BYTES = 64 << 20
MAX_TEXT_CHARACTERS = 20_000
MAX_ENTRIES = 1_000

# Detectors round: a box may stick out this far and is clipped.
BOX_TOLERANCE = 1e-3

OWN_KEYS = ("schema", "captions", "regions", "questions")
_DREAMLIP_KEY = re.compile(r"(raw|short|long)[A-Za-z0-9]*_captions?")
# What tables write for a caption they do not have.
_ABSENT = {"nan", "none", "null"}


class BadSample(ValueError):
    """A sample that cannot be trained on: `reason` is a short phrase to count by, the message says where."""

    def __init__(self, reason: str, detail: str = "", key: str = "", origin: str = "") -> None:
        super().__init__(reason, detail, key, origin)
        self.reason = reason
        self.detail = detail
        self.key = key
        self.origin = origin

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.origin, f"key {self.key}" if self.key else "") if part)
        return ": ".join(part for part in (where, self.reason, self.detail) if part)


class Record(dict[str, Any]):
    """A record as parsed, and what parsing it left out, by reason."""

    dropped: Mapping[str, int] = {}


def read_sample(key: str, image: bytes, record: Mapping[str, Any], origin: str = "") -> Sample:
    """The sample that `record` describes; raises BadSample when it has no image or no caption."""
    if not image:
        raise BadSample("no image", key=key, origin=origin)
    schema = record.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise BadSample("unknown schema", f"found {schema!r:.40}, this version reads {SCHEMA}", key, origin)
    dropped = Counter(record.dropped) if isinstance(record, Record) else Counter[str]()
    captions = tuple(_captions(record, dropped))
    if not captions:
        raise BadSample("no caption", _missing_captions(record, dropped), key, origin)
    regions = tuple(_regions(record.get("regions"), dropped))
    questions = tuple(_questions(record.get("questions"), dropped))
    meta = {str(name): value for name, value in record.items() if not _is_text_key(name) and name != "dropped"}
    if dropped:
        meta["dropped"] = dict(dropped)
    return Sample(key, image, captions, regions, questions, meta, origin)


def write_record(sample: Sample) -> dict[str, Any]:
    """The record of a sample in the project's own schema: what `read_sample` gives back as it was."""
    taken = sorted(set(sample.meta) & {*OWN_KEYS})
    if taken:
        raise ValueError(
            f"sample {sample.key}: meta has {', '.join(map(repr, taken))}, which the schema keeps for itself"
        )
    captions: dict[str, list[str]] = {source: [] for source in CAPTION_SOURCES}
    for caption in sample.captions:
        captions[caption.source].append(caption.text)
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "captions": {source: texts for source, texts in captions.items() if texts},
    }
    if sample.regions:
        record["regions"] = [_region_record(region) for region in sample.regions]
    if sample.questions:
        record["questions"] = [{"question": q.question, "answer": q.answer, "kind": q.kind} for q in sample.questions]
    return record | {name: value for name, value in sample.meta.items() if name != "dropped"}


def parse_record(payload: bytes, key: str = "", origin: str = "") -> Record:
    """JSON bytes as a mapping; whatever else they are is a BadSample. The last of equal keys counts."""
    if len(payload) > MAX_RECORD_BYTES:
        raise BadSample(
            "record too large", f"{len(payload):,} bytes of JSON, at most {MAX_RECORD_BYTES:,}", key, origin
        )
    num_repeated = 0

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal num_repeated
        found = dict(pairs)
        num_repeated += len(pairs) - len(found)
        return found

    try:
        found = json.loads(payload, object_pairs_hook=collect)
    except (ValueError, RecursionError) as error:
        raise BadSample("unreadable JSON", str(error)[:120], key, origin) from None
    if not isinstance(found, dict):
        raise BadSample("unreadable JSON", f"expected an object, found {type(found).__name__}", key, origin)
    record = Record(found)
    if num_repeated:
        record.dropped = {"key twice in the record": num_repeated}
    return record


def is_known_key(name: str) -> bool:
    """Whether the reader gives this key of a record a meaning; the rest is carried along as meta."""
    return name in OWN_KEYS or _is_text_key(name)


def _is_text_key(name: object) -> bool:
    return name in OWN_KEYS or name == "caption" or bool(isinstance(name, str) and _DREAMLIP_KEY.fullmatch(name))


# --- captions -------------------------------------------------------------------------------------------------------


def _captions(record: Mapping[str, Any], dropped: Counter[str]) -> Iterator[Caption]:
    found: dict[CaptionSource, list[str]] = {source: [] for source in CAPTION_SOURCES}
    own = record.get("captions")
    if isinstance(own, Mapping):
        for source, value in own.items():
            if source in found:
                found[source] += _texts(value, "caption", dropped)
            else:
                dropped["unknown caption source"] += 1
    else:
        found["raw"] += _texts(own, "caption", dropped)
    for name, value in record.items():
        match = _DREAMLIP_KEY.fullmatch(name) if isinstance(name, str) else None
        if match:
            found[match[1]] += _texts(value, "caption", dropped)  # type: ignore[index]
    if not found["raw"]:  # img2dataset repeats the raw caption under this name
        found["raw"] += _texts(record.get("caption"), "caption", dropped)
    for source, texts in found.items():
        yield from (Caption(text, source) for text in texts)


def _texts(value: Any, name: str, dropped: Counter[str]) -> Iterator[str]:
    """A list's entries. A string is one text, whose sentences are split when captions are drawn."""
    if value is None:
        return
    entries = value if isinstance(value, list) else [value]
    if len(entries) > MAX_ENTRIES:
        dropped[f"more than {MAX_ENTRIES:,} {name}s"] += len(entries) - MAX_ENTRIES
    for entry in entries[:MAX_ENTRIES]:
        text = _text(entry)
        if text and text.lower() not in _ABSENT:
            yield text
        elif text is None:
            dropped[f"{name} not a text"] += 1
        elif isinstance(entry, str) and len(entry) > MAX_TEXT_CHARACTERS:
            dropped[f"{name} too long"] += 1
        else:
            dropped[f"{name} empty"] += 1


def _text(value: Any) -> str | None:
    """A clean text; "" when there is nothing in it or far too much; None when it is something else."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if not isinstance(value, str):
        return None
    if len(value) > MAX_TEXT_CHARACTERS:
        return ""
    if not value.isascii():
        value = value.encode("utf-8", "replace").decode("utf-8")  # lone surrogates are no text
    return value.replace("\0", " ").strip()


def _missing_captions(record: Mapping[str, Any], dropped: Counter[str]) -> str:
    if dropped:
        return ", ".join(f"{count} {reason}" for reason, count in dropped.items())
    return f"keys found: {', '.join(sorted(map(str, record)))[:120] or 'none'}"


# --- regions and questions ------------------------------------------------------------------------------------------


def _regions(value: Any, dropped: Counter[str]) -> Iterator[Region]:
    for entry in _entries(value, "region", dropped):
        box, fault = _box(entry.get("box"))
        phrase, sentence, score = (
            _text(entry.get("phrase")),
            _text(entry.get("sentence")),
            _number(entry.get("score", 1.0)),
        )
        if box is None:
            dropped[fault] += 1
        elif not phrase:
            dropped["region without phrase"] += 1
        elif score is None:
            dropped["score not a number"] += 1
        else:
            yield Region(phrase, box, sentence or "", score)


def _box(value: Any) -> tuple[Box | None, str]:
    """A box as fractions in order, or the reason why it is none."""
    numbers = [_number(corner) for corner in value] if isinstance(value, list | tuple) and len(value) == 4 else []
    if not numbers:
        return None, "box not four numbers"
    x0, y0, x1, y1 = numbers
    if x0 is None or y0 is None or x1 is None or y1 is None:
        return None, "box not four numbers"
    if min(x0, y0, x1, y1) < -BOX_TOLERANCE or max(x0, y0, x1, y1) > 1 + BOX_TOLERANCE:
        return None, "box outside the image"
    if x0 > x1 or y0 > y1:
        return None, "box reversed"
    x0, y0, x1, y1 = (min(max(corner, 0.0), 1.0) for corner in (x0, y0, x1, y1))
    if x0 == x1 or y0 == y1:
        return None, "box without area"
    return (x0, y0, x1, y1), ""


def _questions(value: Any, dropped: Counter[str]) -> Iterator[Question]:
    for entry in _entries(value, "question", dropped):
        question, answer, kind = _text(entry.get("question")), _answer(entry.get("answer")), _text(entry.get("kind"))
        if not question:
            dropped["question without text"] += 1
        elif not answer:
            dropped["question without answer"] += 1
        else:
            yield Question(question, answer, kind or "")


def _answer(value: Any) -> str | None:
    """An answer may be a number: counts often are."""
    return _text(value) if _number(value) is None else str(value)


def _entries(value: Any, name: str, dropped: Counter[str]) -> Iterator[Mapping[str, Any]]:
    if value is None:
        return
    if not isinstance(value, list):
        dropped[f"{name}s not a list"] += 1
        return
    if len(value) > MAX_ENTRIES:
        dropped[f"more than {MAX_ENTRIES:,} {name}s"] += len(value) - MAX_ENTRIES
    for entry in value[:MAX_ENTRIES]:
        if isinstance(entry, Mapping):
            yield entry
        else:
            dropped[f"{name} not an object"] += 1


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _region_record(region: Region) -> dict[str, Any]:
    return {"phrase": region.phrase, "sentence": region.sentence, "box": list(region.box), "score": region.score}
