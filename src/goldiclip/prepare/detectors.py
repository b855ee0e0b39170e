"""Open-vocabulary detectors behind one small protocol: OWLv2, Grounding DINO, or anything that has `detect`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from goldiclip.config import ConfigError
from goldiclip.prepare.boxes import corners, from_padded_square, regions_of
from goldiclip.types import Region

Item = TypeVar("Item")
Found = TypeVar("Found")

OWLV2 = "google/owlv2-base-patch16-ensemble"
GROUNDING_DINO = "IDEA-Research/grounding-dino-tiny"
FAMILIES = ("owlv2", "grounding-dino")
PROMPT = "a photo of a {}"


class Detector(Protocol):
    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """What its answers depend on."""
        ...

    def detect(self, images: Sequence[Tensor], phrases: Sequence[Sequence[str]]) -> list[list[Region]]:
        """For each image, uint8 (3, H, W), and its phrases: boxes in fractions of the image, unsorted, unchosen."""
        ...


def detector(name: str, device: str = "cpu", batch: int = 16, min_score: float = 0.1) -> Detector:
    """A detector by name: "owlv2", "grounding-dino", or either with a model folder or hub id after a colon."""
    build, usual = {"owlv2": (Owlv2, OWLV2), "grounding-dino": (GroundingDino, GROUNDING_DINO)}[family_of(name)]
    return build(name.partition(":")[2] or usual, device, batch, min_score)


def family_of(name: str) -> str:
    """What stands before the colon, if it is known."""
    family = name.partition(":")[0]
    if family not in FAMILIES:
        raise ConfigError(f"detector {name!r}: expected {' or '.join(FAMILIES)}, or one of them with :MODEL")
    return family


class _Transformers:
    """What the models of the transformers library share: loading, batches that shrink, half precision on a GPU."""

    classes = ("", "")

    def __init__(self, model: str, device: str = "cpu", batch: int = 16, min_score: float = 0.1) -> None:
        transformers = _transformers()
        try:
            self.processor: Any = from_folder_or_hub(getattr(transformers, self.classes[0]), model)
            self.model: Any = from_folder_or_hub(getattr(transformers, self.classes[1]), model)
        except (OSError, ValueError) as error:
            raise ConfigError(f"detector {model!r} cannot be loaded: {str(error)[:300]}") from error
        self.name, self.device, self.batch, self.min_score = model, torch.device(device), batch, min_score
        self.model.eval().to(self.device)
        self.counts: Counter[str] = Counter()

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        precision = "float16" if self.device.type == "cuda" else "float32"
        return {
            "detector": type(self).__name__,
            "model": self.name,
            "precision": precision,
            "min_score": self.min_score,
        }

    def detect(self, images: Sequence[Tensor], phrases: Sequence[Sequence[str]]) -> list[list[Region]]:
        asked = [(image, list(texts)) for image, texts in zip(images, phrases, strict=True)]
        found: list[list[Region]] = [[] for _ in asked]
        some = [at for at, (_, texts) in enumerate(asked) if texts]
        answers, self.batch = in_batches([asked[at] for at in some], self._batch, self.batch, self.counts)
        for at, regions in zip(some, answers):
            found[at] = regions
        return found

    @torch.inference_mode()
    def _batch(self, items: Sequence[tuple[Tensor, list[str]]]) -> list[list[Region]]:
        images = [image.to(self.device, non_blocking=True) for image, _ in items]
        with torch.autocast("cuda", torch.float16, enabled=self.device.type == "cuda"):
            boxes, scores = self._answers(images, [texts for _, texts in items])
        boxes, scores = boxes.float().cpu(), scores.float().cpu()
        return [
            regions_of(self._in_image(boxes[row], image), scores[row], texts, self.min_score)
            for row, (image, texts) in enumerate(items)
        ]

    def _answers(self, images: list[Tensor], phrases: list[list[str]]) -> tuple[Tensor, Tensor]:
        """(B, N, 4) corners of the guesses and (B, N, Q) their scores."""
        raise NotImplementedError

    def _in_image(self, boxes: Tensor, image: Tensor) -> Tensor:
        """Boxes as the model counts them, in fractions of the image."""
        return boxes


class Owlv2(_Transformers):
    """OWLv2 through transformers. It sees the image padded to a square, right and below, and answers in that square."""

    classes = ("Owlv2Processor", "Owlv2ForObjectDetection")

    def _answers(self, images: list[Tensor], phrases: list[list[str]]) -> tuple[Tensor, Tensor]:
        pixels = self.processor.image_processor(images, return_tensors="pt", device=self.device)["pixel_values"]
        said = self.model(**self._queries(phrases), pixel_values=pixels)
        return corners(said.pred_boxes), said.logits.sigmoid()

    def _queries(self, phrases: list[list[str]]) -> dict[str, Tensor]:
        """One row of tokens per phrase, as many rows for each image as the longest list; rows of zeros are masked."""
        context = self.model.config.text_config.max_position_embeddings
        width = max(map(len, phrases))
        texts = [PROMPT.format(phrase) for texts in phrases for phrase in texts]
        tokens = self.processor.tokenizer(
            texts, padding="max_length", truncation=True, max_length=context, return_tensors="pt"
        )
        rows = [row * width + column for row, texts in enumerate(phrases) for column in range(len(texts))]
        ids = torch.zeros(len(phrases) * width, context, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        mask[:, 0] = 1  # a row that attends to nothing would be NaN
        ids[rows], mask[rows] = tokens["input_ids"], tokens["attention_mask"]
        return {"input_ids": ids.to(self.device), "attention_mask": mask.to(self.device)}

    def _in_image(self, boxes: Tensor, image: Tensor) -> Tensor:
        return from_padded_square(boxes, image.shape[-2], image.shape[-1])


class GroundingDino(_Transformers):
    """Grounding DINO through transformers. All phrases stand in one text; a phrase scores as its best token."""

    classes = ("GroundingDinoProcessor", "GroundingDinoForObjectDetection")

    def _answers(self, images: list[Tensor], phrases: list[list[str]]) -> tuple[Tensor, Tensor]:
        pixels = self.processor.image_processor(images, return_tensors="pt", device=self.device)
        texts, spans = zip(*(_one_text(texts) for texts in phrases))
        context = self.model.config.max_text_len
        tokens = self.processor.tokenizer(
            list(texts),
            padding=True,
            truncation=True,
            max_length=context,
            return_offsets_mapping=True,
            return_tensors="pt",
        )
        offsets = tokens.pop("offset_mapping")
        said = self.model(**{name: value.to(self.device) for name, value in (*pixels.items(), *tokens.items())})
        by_token = said.logits.sigmoid()  # (B, N, context)
        scores = by_token.new_zeros(*by_token.shape[:2], max(map(len, phrases)))
        for row, ends in enumerate(spans):
            for column, (start, end) in enumerate(ends):
                inside = [at for at, (a, b) in enumerate(offsets[row].tolist()) if start <= a < b <= end]
                if inside:
                    scores[row, :, column] = by_token[row][:, inside].amax(dim=1)
        return corners(said.pred_boxes), scores


def _one_text(phrases: list[str]) -> tuple[str, list[tuple[int, int]]]:
    """ "a cat. a dog." and where each phrase stands in it; a full stop inside a phrase would cut it in two."""
    text, spans = "", []
    for phrase in phrases:
        start = len(text)
        text += phrase.lower().replace(".", " ").replace("?", " ")
        spans.append((start, len(text)))
        text += ". "
    return text.rstrip(), spans


# --- batches --------------------------------------------------------------------------------------------------------


def in_batches(
    items: Sequence[Item], work: Callable[[Sequence[Item]], list[Found]], batch: int, counts: Counter[str]
) -> tuple[list[Found], int]:
    """All items through `work`, `batch` at a time. Out of memory halves the batch; also the size that fits."""
    found: list[Found] = []
    while len(found) < len(items):
        try:
            found += work(items[len(found) : len(found) + batch])
        except (torch.OutOfMemoryError, MemoryError) as error:
            if batch == 1:
                raise ConfigError(
                    f"out of memory with a batch of one: {str(error)[:200]}; use a smaller model"
                ) from error
            batch //= 2
            counts["out of memory: batch halved"] += 1
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    return found, batch


def from_folder_or_hub(kind: Any, model: str, **settings: Any) -> Any:
    """`kind.from_pretrained`. What is here is not asked for; where nobody answers, one file is asked for, not each."""
    try:
        return kind.from_pretrained(model, local_files_only=True, **settings)
    except (OSError, ValueError):
        if os.path.isdir(model):
            raise
    import huggingface_hub

    huggingface_hub.hf_hub_download(model, "config.json")
    return kind.from_pretrained(model, **settings)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            "detectors and language models need transformers: pip install 'goldiclip[prepare]'"
        ) from error
    transformers.utils.logging.disable_progress_bar()
    return transformers
