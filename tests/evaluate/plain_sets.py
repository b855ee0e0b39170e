"""Sets held in memory, and encoders that make a point."""

from __future__ import annotations

import torch
from torch import Tensor

from goldiclip.evaluate.datasets.items import Gallery, Labelled, Questions
from goldiclip.inference.engine import Engine
from goldiclip.types import ImageFeatures, TextFeatures, Texts

WORDS = ["red", "blue", "cat", "dog", "tree", "house", "car", "boat", "sun", "moon", "river", "stone"]


def pictures(count: int, seed: int = 0, size: int = 32) -> tuple[Tensor, ...]:
    rng = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(256, (count, 3, size, size), generator=rng, dtype=torch.uint8))


def phrases(count: int, seed: int = 0) -> tuple[str, ...]:
    """Different texts of different lengths."""
    rng = torch.Generator().manual_seed(seed)
    words = [torch.randint(len(WORDS), (1 + i % 7,), generator=rng).tolist() for i in range(count)]
    return tuple(f"{i} " + " ".join(WORDS[word] for word in row) for i, row in enumerate(words))


def gallery(num_images: int = 11, captions: int = 3, seed: int = 0) -> Gallery:
    """The first image has one caption more than the others."""
    owners = (0, *(i for i in range(num_images) for _ in range(captions)))
    texts = phrases(len(owners), seed)
    return Gallery(split="test", annotations=(), pictures=pictures(num_images, seed), texts=texts, owners=owners)


def question_set(num: int = 14, num_images: int = 9) -> Questions:
    """Two relevant pictures each; pools of five and of six."""
    pools = [tuple((q + step) % num_images for step in range(5 + q % 2)) for q in range(num)]
    kinds = ("count", "color", "object-attributes", "shape", "relation")
    return Questions(
        split="test",
        annotations=(),
        pictures=pictures(num_images, seed=1),
        texts=phrases(num, seed=1),
        kinds=tuple(kinds[q % 5] for q in range(num)),
        relevant=tuple(pool[:2] for pool in pools),
        others=tuple(pool[2:] for pool in pools),
    )


def labelled_set(num: int = 17) -> Labelled:
    return Labelled(
        split="test",
        annotations=(),
        pictures=pictures(num, seed=2),
        labels=tuple(i * 5 % 7 for i in range(num)),
        classes=tuple(WORDS[:7]),
        templates=("a photo of a {}.", "a drawing of the {}.", "{}"),
    )


class Indifferent:
    """An encoder to which everything is alike."""

    modes = ("tc", "ta")
    value = 0.25

    def encode_image(self, images: Tensor) -> ImageFeatures:
        patches = torch.zeros(len(images), 4, 8)
        return ImageFeatures(torch.zeros(len(images), 8), patches, patches, (2, 2))

    def encode_text(self, texts: Texts) -> TextFeatures:
        return TextFeatures(torch.zeros(len(texts), 8), torch.zeros(0, 8), texts.lengths)

    def score(
        self, image: ImageFeatures, texts: TextFeatures, mode: str = "tc", pairs: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        shape = (len(image), len(texts)) if pairs is None else (len(pairs[0]),)
        return torch.full(shape, self.value)


def indifferent(value: float = 0.25) -> Engine:
    encoder = Indifferent()
    encoder.value = value
    return Engine(encoder, image_size=32, device="cpu", batch=4)
