"""A program: retrieval on 5,000 images and 25,000 texts, features as large as ViT-B/16's; prints the gigabytes it took,
in one stage and then in two.

Towers are missing, and scores are random but for the first few of each kind, which are computed in earnest: what is
measured is all that evaluation itself holds, and what scoring takes beside it.
"""

from __future__ import annotations

import resource

import torch
from torch import Tensor

from goldiclip.config import Model, Text, Vision
from goldiclip.evaluate.datasets.items import Gallery
from goldiclip.evaluate.retrieval import retrieval
from goldiclip.inference.engine import Engine
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.types import ImageFeatures, TextFeatures, Texts

IMAGES, TEXTS, PATCHES, WIDTH = 5_000, 25_000, 196, 512


class Random:
    modes = ("tc", "ta")

    def __init__(self) -> None:
        towers = {"vision": Vision(width=64, depth=1, heads=1), "text": Text(width=64, depth=1, heads=1)}
        self.model = GoldiCLIP(Model(**towers, embedding=WIDTH, pooling_heads=8, decoder_depth=0, decoder_heads=1))
        self.seen: set[tuple[str, bool]] = set()

    def encode_image(self, images: Tensor) -> ImageFeatures:
        patches = torch.empty(len(images), PATCHES, WIDTH).fill_(0.5)
        return ImageFeatures(torch.zeros(len(images), WIDTH), patches, patches.clone(), (14, 14))

    def encode_text(self, texts: Texts) -> TextFeatures:
        return TextFeatures(torch.zeros(len(texts), WIDTH), torch.zeros(len(texts.ids), WIDTH), texts.lengths)

    def score(
        self, image: ImageFeatures, texts: TextFeatures, mode: str = "tc", pairs: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        if (mode, pairs is None) not in self.seen:
            self.seen.add((mode, pairs is None))
            few = ImageFeatures(image.embedding[:8], image.keys[:8], image.values[:8], image.grid)
            if pairs is None:
                self.model.score(few, texts, mode)
            else:
                self.model.score(image, texts, mode, pairs=(pairs[0][:4_000], pairs[1][:4_000]))
        return torch.rand(len(image), len(texts)) if pairs is None else torch.rand(len(pairs[0]))


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    torch.set_num_threads(1)
    engine = Engine(Random(), image_size=32, device="cpu", batch=64)
    picture = torch.zeros(3, 32, 32, dtype=torch.uint8)
    items = Gallery(
        split="test",
        annotations=(),
        pictures=(picture,) * IMAGES,
        texts=tuple(f"text {i}" for i in range(TEXTS)),
        owners=tuple(i // 5 for i in range(TEXTS)),
    )
    before = peak_gigabytes()
    for shortlist in (0, 100):  # the smaller first: a peak stays
        found = dict(retrieval(engine, items, shortlist=shortlist))
        assert all(value < 0.02 for name, value in found.items() if "recall" in name)
        print(round(peak_gigabytes() - before, 2))


if __name__ == "__main__":
    main()
