"""Retrieval on held-out samples while the run goes on: one caption of each image against all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from goldiclip.config import Config, ConfigError
from goldiclip.data.shards import BadSample, Shards
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.data.views import decode_image, render
from goldiclip.evaluate.metrics import standing
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.types import Ranks, Sample, Texts

LIMIT = 1_000
CHUNK = 32


class HeldOut:
    """The first samples of `data.held_out`, decoded once, each with the shortest kind of caption it has."""

    def __init__(self, config: Config, limit: int = LIMIT) -> None:
        images, captions = [], []
        shards = Shards(config.data.held_out, config.data.cache_gigabytes)
        for i in range(min(limit, len(shards))):
            try:
                sample = shards[i]
                pixels = _whole(decode_image(sample.image), config.model.vision.image_size)
            except BadSample:
                continue
            if caption := _query(sample):
                images.append(pixels)
                captions.append(caption)
        if not images:
            raise ConfigError(f"data.held_out: no sample in {shards.paths[0]}, … has an image and a caption")
        self.images = torch.stack(images)
        self.texts: Texts = Tokenizer.of(config.model.text).encode(captions)
        self.is_pair = _equal(captions)
        self.is_bf16 = config.run.precision == "bf16"

    def __len__(self) -> int:
        return len(self.images)

    @torch.no_grad()
    def recall(self, student: GoldiCLIP, ranks: Ranks, device: torch.device) -> dict[str, float]:
        """Text-to-image recall@1 in each mode; the images are shared among the ranks, which all call this together."""
        was_training = student.training
        student.eval()
        eager = torch.compiler.set_stance("force_eager")  # these sizes are not worth compiling for
        with eager, torch.autocast(device.type, torch.bfloat16, enabled=self.is_bf16):
            texts = student.encode_text(self.texts.to(device))
            scores: dict[str, list[Tensor]] = {mode: [] for mode in ("tc", "ta") if mode in student.modes}
            for rows in self._share(ranks):
                image = student.encode_image(render(self.images[rows].to(device)))
                for mode, parts in scores.items():
                    parts.append(student.score(image, texts, mode=mode))
        student.train(was_training)
        found = {}
        for mode, parts in scores.items():
            merged = ranks.gather(torch.cat(parts).float())[: len(self)].cpu()
            found[mode] = float(standing(merged.T, self.is_pair).hit_at(1).mean())
        return found

    def _share(self, ranks: Ranks) -> Sequence[Tensor]:
        """Rows of this rank, by chunks. Shares are equal, by repeating images: sharded towers compute in step."""
        share = -(-len(self) // ranks.size)
        own = torch.arange(ranks.rank * share, (ranks.rank + 1) * share) % len(self)
        return own.split(CHUNK)


def _whole(image: Tensor, size: int) -> Tensor:
    """The whole image as a square view."""
    return F.interpolate(image[None], (size, size), mode="bicubic", antialias=True)[0]


def _query(sample: Sample) -> str:
    """A short caption, else the raw one, else the first sentence of a long one."""
    by_source = {caption.source: caption.text for caption in reversed(sample.captions)}
    long = by_source.get("long", "").split(".")[0]
    return by_source.get("short") or by_source.get("raw") or long


def _equal(captions: list[str]) -> Tensor:
    """(Q, C): an image whose caption is word for word the query answers it too."""
    ids = {caption: number for number, caption in enumerate(dict.fromkeys(captions))}
    group = torch.tensor([ids[caption] for caption in captions])
    return group[:, None] == group
