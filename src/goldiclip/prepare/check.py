"""The shards' doctor, extended to annotations: do phrases, boxes and questions belong to their captions, is a run done?

Foundation's doctor reads every sample; this looks over its shoulder at what the stages wrote, and at the manifests that
a run left beside the shards. What no stage made is not judged: regions and questions may come from people.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from goldiclip.data.doctor import Diagnosis, diagnose
from goldiclip.data.doctor_report import show
from goldiclip.data.shard_paths import is_remote
from goldiclip.data.shards import Shards
from goldiclip.prepare import tags
from goldiclip.prepare.blocks import FOLDER
from goldiclip.prepare.boxes import overlap
from goldiclip.prepare.phrases import MAX_PHRASES
from goldiclip.prepare.questions import MAX_QUESTIONS, fault_of
from goldiclip.prepare.stages import marks, phrases_of
from goldiclip.types import Region, Sample

STAGES = ("phrases", "boxes", "questions")
TRAINED_SCORE = 0.3  # training draws regions from here on
WHOLE_IMAGE, SAME_BOX = 0.98, 0.95
_SIDES = frozenset(("left", "right", "above", "below"))

# What to do about each thing that can be wrong.
REMEDIES = {
    "phrases are no object of lists": "another program wrote meta.phrases: run `goldiclip prepare phrases` anew",
    "phrase of no caption": "the captions changed after the phrases were found: run `goldiclip prepare annotate` anew",
    "more phrases than asked for": "harmless to training; a stage of ours keeps ten",
    "region of no phrase": "the phrases changed after the boxes were found: run `goldiclip prepare boxes` anew",
    "region's sentence in no caption": "grd would teach a text of another image: run `goldiclip prepare boxes` anew",
    "box of the whole image": "it teaches nothing about where: raise --min-score, or use a stronger detector",
    "two boxes of one phrase in one place": "lower --max-overlap",
    "no box good enough to train on": f"training draws from a score of {TRAINED_SCORE} upward: ref and grd skip it",
    "question repeated": "run `goldiclip prepare questions --replace` anew",
    "more questions than asked for": "harmless to training; a stage of ours keeps five",
    "shard not finished": "its run was interrupted: run the same `goldiclip prepare` command again",
    "shard changed since it was annotated": "run the same `goldiclip prepare` command again, or annotate it anew",
    "shards annotated in different ways": "run one `goldiclip prepare annotate` command over all of them",
}
_QUESTION_REMEDY = "run `goldiclip prepare questions` anew with this version, which rejects such a pair"


def check(paths: Sequence[str], *, fast: bool, workers: int, num_examples: int, max_bad_share: float) -> int:
    """`goldiclip prepare check`: 1 when training would stop on these shards, or a run over them is not finished."""
    shards = Shards(paths)
    diagnosis = examine(shards, fast=fast, workers=workers, num_examples=num_examples)
    console = Console(highlight=False)
    _print_annotations(console, diagnosis)
    status = show(shards, diagnosis, max_bad_share, console)
    broken = [
        reason
        for reason in ("shard not finished", "shard changed since it was annotated")
        if reason in diagnosis.findings
    ]
    for reason in broken:
        console.print(f"[bold red]Annotation is not whole[/]: {diagnosis.findings[reason].count:,} × {reason}.")
    return 1 if broken else status


def examine(shards: Shards, *, fast: bool = False, workers: int = 0, num_examples: int = 3) -> Diagnosis:
    """The doctor's diagnosis, with what is wrong with annotations among its findings."""
    diagnosis = diagnose(shards, fast=fast, workers=workers, num_examples=num_examples, also=examine_annotations)
    _examine_manifests(shards, diagnosis)
    for reason, found in diagnosis.findings.items():
        found.remedy = REMEDIES.get(reason, _QUESTION_REMEDY if reason.startswith("question: ") else "")
    return diagnosis


def examine_annotations(sample: Sample, diagnosis: Diagnosis) -> None:
    """One sample's phrases, boxes and questions, as far as stages made them."""
    made = marks(sample)
    diagnosis.has.update(f"{stage} made" for stage in STAGES if stage in made)
    diagnosis.has["boxes in all"] += len(sample.regions)
    diagnosis.has["questions in all"] += len(sample.questions)
    faults = Counter(fault for stage in STAGES if stage in made for fault in _FAULTS[stage](sample))
    for fault, count in faults.items():
        diagnosis.find("note", fault, f"{sample.origin}, key {sample.key}", count)


def _phrase_faults(sample: Sample) -> Iterator[str]:
    found = phrases_of(sample)
    kept = sample.meta.get("phrases")
    if not isinstance(kept, dict) or sum(len(part) for part in kept.values() if isinstance(part, list)) != len(found):
        yield "phrases are no object of lists"
    said = [caption.text for caption in sample.captions]
    for sentence, phrase in found:
        if not _is_said(sentence, phrase, said):
            yield "phrase of no caption"
    if len(found) > MAX_PHRASES:
        yield "more phrases than asked for"


def _is_said(sentence: str, phrase: str, captions: Sequence[str]) -> bool:
    """Whether a caption holds the sentence, and the sentence the phrase's words."""
    words = {word.lower() for word in tags.split_words(sentence)}
    return any(sentence in text for text in captions) and all(word in words for word in tags.split_words(phrase))


def _region_faults(sample: Sample) -> Iterator[str]:
    phrases = {phrase for _, phrase in phrases_of(sample)}
    for at, region in enumerate(sample.regions):
        if region.phrase not in phrases:
            yield "region of no phrase"
        if region.sentence and not any(region.sentence in caption.text for caption in sample.captions):
            yield "region's sentence in no caption"
        if _area(region) > WHOLE_IMAGE:
            yield "box of the whole image"
        earlier = (other for other in sample.regions[:at] if other.phrase == region.phrase)
        if any(overlap(region.box, other.box) > SAME_BOX for other in earlier):
            yield "two boxes of one phrase in one place"
    if sample.regions and max(region.score for region in sample.regions) < TRAINED_SCORE:
        yield "no box good enough to train on"


def _area(region: Region) -> float:
    x0, y0, x1, y1 = region.box
    return (x1 - x0) * (y1 - y0)


def _question_faults(sample: Sample) -> Iterator[str]:
    captions = [caption.text for caption in sample.captions]
    asked = Counter(item.question.lower() for item in sample.questions)
    for item in sample.questions:
        is_of_boxes = item.answer in _SIDES and " or " in item.question
        faults = [fault_of(item.question, item.answer, caption) for caption in captions]
        if not is_of_boxes and all(faults):
            yield f"question: {faults[0]}"
    for count in asked.values():
        yield from ["question repeated"] * (count - 1)
    if len(sample.questions) > MAX_QUESTIONS:
        yield "more questions than asked for"


_FAULTS = {"phrases": _phrase_faults, "boxes": _region_faults, "questions": _question_faults}


# --- what runs left behind ------------------------------------------------------------------------------------------


def _examine_manifests(shards: Shards, diagnosis: Diagnosis) -> None:
    """Manifests beside the shards: blocks still waiting to be joined, other sizes than were written, several ways."""
    ways: Counter[str] = Counter()
    for folder in sorted({Path(path).parent for path in shards.paths if not is_remote(path)}):
        for waiting in sorted((folder / FOLDER / "blocks").glob("*")):
            diagnosis.find("archive", "shard not finished", f"{folder / waiting.name.rpartition('-')[0]}.tar")
    for path in map(Path, (path for path in shards.paths if not is_remote(path))):
        manifest = _manifest(path)
        if manifest is None:
            continue
        ways[json.dumps(manifest.get("stages"), sort_keys=True)] += 1
        if manifest.get("output", {}).get("size") != path.stat().st_size:
            diagnosis.find("archive", "shard changed since it was annotated", str(path))
    if len(ways) > 1:
        said = ", ".join(f"{count:,} shards" for count in ways.values())
        diagnosis.find("note", "shards annotated in different ways", said, len(ways))


def _manifest(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((path.parent / FOLDER / f"{path.stem}.json").read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("output"), dict) else None


def _print_annotations(console: Console, diagnosis: Diagnosis) -> None:
    good = max(diagnosis.samples - diagnosis.bad, 1)
    has = diagnosis.has
    console.print("[bold]Annotations[/]")
    for stage in STAGES:
        console.print(f"  {stage}: a stage has been over {has[f'{stage} made'] / good:.0%} of the samples")
    console.print(
        f"  {has['boxes in all'] / good:.2f} boxes and {has['questions in all'] / good:.2f} questions per sample\n"
    )
