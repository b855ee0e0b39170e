"""The stages of annotation. Each is a frozen record of settings; opened, it is a function from samples to samples.

    phrases    captions            -> meta["phrases"]: {sentence: [phrase, …]}
    boxes      image and phrases   -> regions
    questions  captions (and regions, for templates) -> questions

A stage is idempotent: it writes its mark into meta["prepared"] and leaves alone what carries the same mark, and it
leaves alone regions and questions that no stage made. Its fingerprint is what its answers mean (models, prompt,
limits); library versions are recorded beside it and invalidate nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from goldiclip.config import ConfigError
from goldiclip.data.decode import decode_image
from goldiclip.data.schema import BadSample
from goldiclip.prepare.boxes import BoxLimits, choose
from goldiclip.prepare.chunks import chunker, resolve
from goldiclip.prepare.detectors import Detector, detector, family_of
from goldiclip.prepare.phrases import MAX_PHRASES, caption_order, find_phrases
from goldiclip.prepare.questions import PROMPT, prompt_for, read_questions, reference_caption
from goldiclip.prepare.templates import template_questions
from goldiclip.prepare.writers import Writer, writer
from goldiclip.types import Region, Sample

# A sample and its pixels; None where nobody asks for them, BadSample where there are none.
Decoded = tuple[Sample, "Tensor | BadSample | None"]
DECODERS = 4  # threads

# Samples in, samples out; what was rejected or lost on the way is counted by reason.
Work = Callable[[Sequence[Sample], Counter[str]], list[Sample]]


class Stage(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def needs_device(self) -> bool:
        """Whether it runs a model that a GPU speeds up."""
        ...

    @property
    def fingerprint(self) -> Mapping[str, Any]: ...

    def open(self, device: str) -> Work:
        """The function itself, its models loaded."""
        ...


@dataclass(frozen=True)
class Phrases:
    source: str = "auto"
    limit: int = MAX_PHRASES
    name: str = field(default="phrases", init=False)
    needs_device: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        _require("phrases: limit", self.limit)

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return {"version": 1, "source": resolve(self.source), "limit": self.limit}

    def open(self, device: str) -> Work:
        chunks, mark = chunker(self.source), mark_of(self)

        def work(samples: Sequence[Sample], counts: Counter[str]) -> list[Sample]:
            return [one(sample, counts) for sample in samples]

        def one(sample: Sample, counts: Counter[str]) -> Sample:
            if is_marked(sample, self.name, mark):
                return sample
            by_sentence: dict[str, list[str]] = {}
            for found in find_phrases(caption_order(sample.captions), chunks, self.limit):
                by_sentence.setdefault(found.sentence, []).append(found.phrase)
            counts["phrases"] += sum(map(len, by_sentence.values()))
            counts["images without phrases"] += not by_sentence
            return marked(sample, self.name, mark, phrases=by_sentence)

        return work


@dataclass(frozen=True)
class Boxes:
    detector: str | Callable[[str], Detector] = "owlv2"
    """A detector by name, or a function from a device to one."""
    limits: BoxLimits = field(default_factory=BoxLimits)
    batch: int = 16
    replace: bool = False
    """Also where regions are that no stage made."""
    name: str = field(default="boxes", init=False)
    needs_device: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        _require("boxes: batch", self.batch)
        if isinstance(self.detector, str):
            family_of(self.detector)

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return {"version": 1, "detector": identity(self.detector), **self.limits.fingerprint()}

    def mark(self, own: str, sample: Sample) -> str:
        """Boxes of other phrases are other boxes."""
        return f"{own}/{marks(sample).get('phrases', '')}"

    def open(self, device: str) -> Work:
        if callable(self.detector):
            finder = self.detector(device)
        else:
            finder = detector(self.detector, device, self.batch, self.limits.min_score)
        own = mark_of(self)

        def work(samples: Sequence[Sample], counts: Counter[str]) -> list[Sample]:
            kept: list[Sample] = []
            for part in _decoded(samples, self.batch, lambda sample: self._is_wanted(sample, own, counts)):
                kept += self._with_boxes(part, finder, own, counts)
            counts.update(_take_counts(finder))
            return kept

        return work

    def _with_boxes(
        self, part: Sequence[Decoded], finder: Detector, own: str, counts: Counter[str]
    ) -> Iterator[Sample]:
        """Some samples and their pixels, as many as are looked at in one go; what cannot be decoded is left out."""
        asked = [(sample, image) for sample, image in part if isinstance(image, Tensor)]
        phrases = [[phrase for _, phrase in phrases_of(sample)] for sample, _ in asked]
        found = iter(finder.detect([image for _, image in asked], phrases) if asked else ())
        for sample, image in part:
            if isinstance(image, BadSample):
                counts[f"left out: {image.reason}"] += 1
            else:
                yield sample if image is None else self._with_regions(sample, next(found), own, counts)

    def _is_wanted(self, sample: Sample, own: str, counts: Counter[str]) -> bool:
        if is_marked(sample, self.name, self.mark(own, sample)):
            return False
        is_given = bool(sample.regions) and self.name not in marks(sample) and not self.replace
        counts["images with regions of their own"] += is_given
        return not is_given

    def _with_regions(self, sample: Sample, found: Sequence[Region], own: str, counts: Counter[str]) -> Sample:
        sentences = {phrase: sentence for sentence, phrase in phrases_of(sample)}
        regions = tuple(
            replace(region, sentence=sentences.get(region.phrase, "")) for region in choose(found, self.limits)
        )
        counts["boxes"] += len(regions)
        counts["images without boxes"] += not regions
        return marked(replace(sample, regions=regions), self.name, self.mark(own, sample))


@dataclass(frozen=True)
class Questions:
    writer: str | Callable[[str], Writer] = "templates"
    """A model or server by name, a function from a device to a writer, or "templates" for questions without a model."""
    batch: int = 32
    replace: bool = False
    name: str = field(default="questions", init=False)

    def __post_init__(self) -> None:
        _require("questions: batch", self.batch)

    @property
    def needs_device(self) -> bool:
        return not str(self.writer).startswith(("templates", "http://", "https://"))

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        prompt = hashlib.sha256(PROMPT.encode()).hexdigest()[:16]
        return {"version": 1, "writer": identity(self.writer), "prompt": prompt}

    def mark(self, own: str, sample: Sample) -> str:
        """Templates are filled from phrases and boxes; a model reads the caption alone."""
        upstream = ("phrases", "boxes") if self.writer == "templates" else ()
        return "/".join([own, *(marks(sample).get(name, "") for name in upstream)])

    def open(self, device: str) -> Work:
        if self.writer == "templates":
            source: Writer | None = None
        else:
            source = self.writer(device) if callable(self.writer) else writer(self.writer, device, self.batch)
        own = mark_of(self)

        def work(samples: Sequence[Sample], counts: Counter[str]) -> list[Sample]:
            kept = list(samples)
            todo = [at for at, sample in enumerate(kept) if self._is_wanted(sample, own, counts)]
            for at, questions in zip(todo, _asked(source, [kept[at] for at in todo], counts), strict=True):
                counts["questions"] += len(questions)
                counts["images without questions"] += not questions
                kept[at] = marked(replace(kept[at], questions=questions), self.name, self.mark(own, kept[at]))
            return kept

        return work

    def _is_wanted(self, sample: Sample, own: str, counts: Counter[str]) -> bool:
        if is_marked(sample, self.name, self.mark(own, sample)):
            return False
        is_given = bool(sample.questions) and self.name not in marks(sample) and not self.replace
        counts["images with questions of their own"] += is_given
        return not is_given


def _asked(source: Writer | None, samples: Sequence[Sample], counts: Counter[str]) -> list[tuple[Any, ...]]:
    """The questions of each sample: the writer's that hold, or the templates'."""
    if source is None:
        return [template_questions(sample) for sample in samples]
    captions = [reference_caption(sample.captions) for sample in samples]
    replies = source.write([prompt_for(caption) for caption in captions], counts)
    found = zip(replies, captions, strict=True)
    return [() if reply is None else read_questions(reply, caption, counts) for reply, caption in found]


def _decoded(samples: Sequence[Sample], size: int, is_wanted: Callable[[Sample], bool]) -> Iterator[list[Decoded]]:
    """The samples `size` at a time, pixels beside those that are wanted: decoded while the part before is worked on,
    and no more at once than two parts hold."""
    ahead: deque[list[tuple[Sample, Future[Tensor | BadSample] | None]]] = deque()
    with ThreadPoolExecutor(DECODERS) as pool:
        for start in range(0, len(samples), size):
            part = samples[start : start + size]
            ahead.append([(sample, pool.submit(_decode, sample) if is_wanted(sample) else None) for sample in part])
            if len(ahead) > 1:
                yield _waited_for(ahead.popleft())
        yield from map(_waited_for, ahead)


def _waited_for(part: Sequence[tuple[Sample, Future[Tensor | BadSample] | None]]) -> list[Decoded]:
    return [(sample, future.result() if future else None) for sample, future in part]


def _decode(sample: Sample) -> Tensor | BadSample:
    try:
        return decode_image(sample.image)
    except BadSample as bad:
        return bad


def _take_counts(source: Any) -> Counter[str]:
    """What a detector counted since it was last asked."""
    counts: Counter[str] = getattr(source, "counts", None) or Counter()
    taken = Counter(counts)
    counts.clear()
    return taken


def _require(what: str, value: int) -> None:
    if value < 1:
        raise ConfigError(f"{what} is {value}; expected 1 or more")


# --- marks and phrases on a sample ----------------------------------------------------------------------------------


def mark_of(stage: Stage) -> str:
    return hashlib.sha256(json.dumps(stage.fingerprint, sort_keys=True).encode()).hexdigest()[:12]


def marks(sample: Sample) -> Mapping[str, str]:
    found = sample.meta.get("prepared")
    return found if isinstance(found, Mapping) else {}


def is_marked(sample: Sample, name: str, mark: str) -> bool:
    return marks(sample).get(name) == mark


def marked(sample: Sample, name: str, mark: str, **meta: Any) -> Sample:
    """The sample with a stage's mark, and what else the stage has to say of it."""
    return replace(sample, meta={**sample.meta, **meta, "prepared": {**marks(sample), name: mark}})


def phrases_of(sample: Sample) -> list[tuple[str, str]]:
    """(sentence, phrase) pairs a sample carries, in order; whatever else stands there is passed over."""
    found = sample.meta.get("phrases")
    if not isinstance(found, Mapping):
        return []
    return [
        (str(sentence), phrase)
        for sentence, phrases in found.items()
        if isinstance(phrases, list)
        for phrase in phrases
        if isinstance(phrase, str) and phrase
    ]


def identity(source: Any) -> str:
    """A model by name, behind a server too; a folder by what lies in it: other weights there are another model."""
    if callable(source):
        return str(getattr(source, "identity", f"{source.__module__}.{source.__qualname__}"))
    if str(source).startswith(("http://", "https://")):
        return f"server:{str(source).partition('#')[2]}"  # wherever it listens today
    family, _, model = str(source).partition(":")
    folder = Path(model if family in ("owlv2", "grounding-dino") and model else str(source))
    if not (folder / "config.json").is_file():
        return str(source)
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
        with open(path, "rb") as file:
            digest.update(file.read(1 << 20))
    return f"{family if family in ('owlv2', 'grounding-dino') else 'model'}:{digest.hexdigest()[:16]}"


def stages_named(
    names: Sequence[str],
    *,
    phrases: str = "auto",
    detector: str = "owlv2",
    writer: str = "templates",
    detector_batch: int = 16,
    writer_batch: int = 64,
    replace: bool = False,
) -> list[Stage]:
    """The stages of a run, in the order in which they build on one another."""
    known: dict[str, Callable[[], Stage]] = {
        "phrases": lambda: Phrases(resolve(phrases)),
        "boxes": lambda: Boxes(detector, batch=detector_batch, replace=replace),
        "questions": lambda: Questions(writer, writer_batch, replace),
    }
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ConfigError(f"--stages {' '.join(unknown)}: expected some of {', '.join(known)}")
    return [build() for name, build in known.items() if name in names]
