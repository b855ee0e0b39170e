"""FLAIR's own numbers, computed by FLAIR's own code: ours are the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor
from torch.testing import assert_close

from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.pretrained import from_flair
from goldiclip.types import ImageFeatures, TextFeatures, Texts


@dataclass
class Golden:
    tensors: dict[str, Tensor]
    model: GoldiCLIP
    image: ImageFeatures
    texts: TextFeatures

    def expected(self, name: str) -> Tensor:
        return self.tensors[f"expected/{name}"]


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, int]]:
    import json

    with safe_open(path, "pt") as file:
        names = file.keys()
        return {name: file.get_tensor(name) for name in names}, json.loads(file.metadata()["config"])


@pytest.fixture
def golden(shared) -> Golden:
    tensors, sizes = read(shared / "golden" / "flair_small.safetensors")
    weights = {name.removeprefix("weights/"): part for name, part in tensors.items() if name.startswith("weights/")}
    model = from_flair(
        weights,
        vision_heads=sizes["width"] // sizes["head_width"],
        text_heads=sizes["text_heads"],
        show=lambda report: None,
    ).double()
    rows = [row[: int(row.argmax()) + 1].tolist() for row in tensors["tokens"]]  # EOT is the highest id
    with torch.no_grad():
        image, texts = model.encode_image(tensors["images"].double()), model.encode_text(Texts.pack(rows))
    return Golden(tensors, model, image, texts)


def test_embeddings_are_flairs(golden):
    assert_close(golden.image.embedding, golden.expected("image_embedding"), rtol=0, atol=1e-6)
    assert_close(golden.image.keys, golden.expected("patches"), rtol=0, atol=1e-6)
    assert_close(golden.texts.embedding, golden.expected("text_embedding"), rtol=0, atol=1e-6)


@torch.no_grad()
def test_conditioned_embeddings_are_flairs(golden):
    found = golden.model.condition(golden.image, golden.texts).embedding
    assert_close(found, golden.expected("conditioned"), rtol=0, atol=1e-6)


@torch.no_grad()
def test_logits_are_flairs(golden):
    model = golden.model
    assert_close(model.score(golden.image, golden.texts, "tc"), golden.expected("tc_logits"), rtol=0, atol=1e-5)
    ta = model.score(golden.image, golden.texts, "ta") - model.scale.bias
    assert_close(ta, golden.expected("ta_logits_without_bias"), rtol=0, atol=1e-5)


@torch.no_grad()
def test_losses_are_flairs(golden):
    """The text-agnostic divisor is N·K, the text-conditioned one N + K − 1; `negative_caption` is the draw k_j."""
    drawn = golden.tensors["negative_caption"]
    num_images, num_texts = len(golden.image), len(golden.texts)
    num_captions = num_texts // num_images
    ta = golden.model.score(golden.image, golden.texts, "ta")
    tc = golden.model.score(golden.image, golden.texts, "tc")
    owner = torch.arange(num_texts) // num_captions
    is_own = owner == torch.arange(num_images)[:, None]
    signed = torch.where(is_own, -1.0, 1.0)
    loss_ta = F.softplus(signed * ta).sum() / num_texts
    assert_close(loss_ta[None], golden.expected("loss_ta"), rtol=0, atol=1e-5)
    is_drawn = torch.arange(num_texts) % num_captions == drawn[owner]
    terms = F.softplus(signed * tc)[is_own | is_drawn]
    assert_close(terms.sum()[None] / (num_images + num_captions - 1), golden.expected("loss_tc"), rtol=0, atol=1e-5)


def test_float32_is_near_enough(golden):
    model = golden.model.float()
    rows = [row[: int(row.argmax()) + 1].tolist() for row in golden.tensors["tokens"]]
    with torch.no_grad():
        image, texts = model.encode_image(golden.tensors["images"]), model.encode_text(Texts.pack(rows))
        tc = model.score(image, texts, "tc")
    assert_close(tc.double(), golden.expected("tc_logits"), rtol=0, atol=1e-5)
