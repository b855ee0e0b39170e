"""open_clip models behind the Encoder protocol, SigLIP's kind among them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from open_clip.model import CLIP, CustomTextCLIP
from torch.testing import assert_close

from goldiclip.model.encoders import CLIP_MEAN, CLIP_STD, OpenClip, OpenClipTokenizer
from goldiclip.types import Encoder, Texts

TEXT = {"context_length": 9, "vocab_size": 60, "width": 32, "heads": 2, "layers": 1}
SIGLIP_TEXT = TEXT | {"no_causal_mask": True, "proj_bias": True, "pool_type": "last", "pad_id": 1}
VIT = {"image_size": 32, "patch_size": 8, "width": 48, "layers": 1, "head_width": 16}
ROWS = [[58, 4, 59], [58, 3, 7, 59]]


def timm_tower(name: str, pool: str, proj: str) -> dict[str, Any]:
    return {"timm_model_name": name, "timm_pool": pool, "timm_proj": proj, "image_size": 224}


MODELS = {
    "clip": lambda: CLIP(40, VIT, TEXT),
    "averaging": lambda: CLIP(40, VIT | {"pool_type": "avg"}, TEXT, init_logit_bias=-10.0),
    "siglip": lambda: CustomTextCLIP(
        96, timm_tower("test_vit3", "map", "none") | {"image_size": 160}, SIGLIP_TEXT, init_logit_bias=-10.0
    ),
    "timm": lambda: CustomTextCLIP(40, timm_tower("vit_tiny_patch16_224", "token", "linear"), TEXT),
    "resnet": lambda: CLIP(40, {"layers": [1, 1, 1, 1], "width": 16, "image_size": 32}, TEXT),
    "convnet": lambda: CustomTextCLIP(40, timm_tower("resnet10t", "avg", "linear"), TEXT),
}


@pytest.fixture(scope="module", params=MODELS)
def encoder(request) -> OpenClip:
    torch.manual_seed(0)
    return OpenClip(MODELS[request.param]())


def pictures(encoder: OpenClip) -> torch.Tensor:
    return torch.randn(2, 3, encoder.image_size, encoder.image_size)


@torch.no_grad()
def test_embeddings_and_logits_are_the_models_own(encoder):
    taken: Encoder = encoder
    images, model = pictures(encoder), encoder.model
    image, texts = taken.encode_image(images), taken.encode_text(Texts.pack(ROWS))
    padded = torch.tensor([row + [encoder.pad] * (9 - len(row)) for row in ROWS])
    assert_close(image.embedding, model.encode_image(images))
    assert_close(texts.embedding, model.encode_text(padded))
    assert_close(taken.score(image, texts, "ta"), model.get_logits(images, padded)[0], rtol=1e-4, atol=1e-4)
    pairs = torch.tensor([1, 1, 0]), torch.tensor([0, 1, 1])
    assert_close(taken.score(image, texts, "ta", pairs), taken.score(image, texts, "ta")[pairs])


@torch.no_grad()
def test_patches_are_embedded_as_if_alone(encoder):
    images = pictures(encoder)
    image, texts = encoder.encode_image(images), encoder.encode_text(Texts.pack(ROWS))
    if "patch" not in encoder.modes:
        assert image.keys.shape[1] == 0
        with pytest.raises(ValueError, match="cannot be 'patch' here; this model has ta"):
            encoder.score(image, texts, "patch")
        return
    rows, columns = image.grid
    assert image.keys.shape[:2] == (2, rows * columns)
    cosine = F.cosine_similarity(image.keys[:, None], texts.embedding[None, :, None], dim=-1)
    bias = 0 if encoder.model.logit_bias is None else encoder.model.logit_bias
    expected = cosine * encoder.model.logit_scale.exp() + bias
    assert_close(encoder.score(image, texts, "patch"), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_siglips_head_pools_each_patch_alone():
    encoder = OpenClip(MODELS["siglip"]())
    trunk, images = encoder.model.visual.trunk, torch.randn(1, 3, 160, 160)
    tokens = trunk.forward_features(images)
    expected = [trunk.forward_head(tokens[:, [i]]) for i in (1, 5, 100)]
    assert_close(encoder.encode_image(images).keys[:, [0, 4, 99]], torch.stack(expected, 1), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_averaging_patches_gives_the_image():
    encoder = OpenClip(MODELS["averaging"]())
    image = encoder.encode_image(torch.randn(2, 3, 32, 32))
    assert_close(image.keys.mean(1), image.embedding, rtol=1e-4, atol=1e-5)


def test_the_protocols_default_mode_is_refused_by_name():
    encoder = OpenClip(MODELS["clip"]())
    image, texts = encoder.encode_image(torch.randn(1, 3, 32, 32)), encoder.encode_text(Texts.pack(ROWS))
    with pytest.raises(ValueError, match="cannot be 'tc' here; this model has ta, patch"):
        encoder.score(image, texts, "tc")


@torch.no_grad()
def test_the_models_own_normalisation_replaces_clips():
    model = MODELS["clip"]()
    model.visual.preprocess_cfg = {"mean": (0.5, 0.4, 0.3), "std": (0.5, 0.6, 0.7)}
    picture = torch.rand(1, 3, 32, 32)
    ours = (picture - torch.tensor(CLIP_MEAN).view(3, 1, 1)) / torch.tensor(CLIP_STD).view(3, 1, 1)
    its_own = (picture - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / torch.tensor([0.5, 0.6, 0.7]).view(3, 1, 1)
    assert_close(OpenClip(model).encode_image(ours).embedding, model.encode_image(its_own), rtol=1e-4, atol=1e-5)


def test_a_text_beyond_the_context_is_refused():
    with pytest.raises(ValueError, match="has 10 tokens and the model reads 9"):
        OpenClip(MODELS["clip"]()).encode_text(Texts.pack([[1] * 10]))


def test_open_clips_tokenizer_gives_whole_rows():
    import open_clip

    texts = OpenClipTokenizer(open_clip.SimpleTokenizer(), 12).encode(["a red cube", "two"])
    assert texts.lengths.tolist() == [12, 12]
    expected = open_clip.tokenize(["a red cube", "two"], context_length=12)
    assert torch.equal(texts.ids.view(2, 12), expected)
    assert texts.truncated.tolist() == [False, False]


def test_open_clips_tokenizer_knows_which_texts_it_cut():
    import open_clip

    tokenizer = OpenClipTokenizer(open_clip.SimpleTokenizer(), 12)
    just, beyond = "cat " * 10, "cat " * 11  # with SOT and EOT 12 and 13 tokens
    assert tokenizer.encode([beyond, just, ""]).truncated.tolist() == [True, False, False]
    assert len(tokenizer.encode([]).truncated) == 0


def test_a_model_says_whether_it_was_made_for_squeezed_images():
    model = MODELS["clip"]()
    assert not OpenClip(model).squeezes
    model.visual.preprocess_cfg = {"resize_mode": "squash"}
    assert OpenClip(model).squeezes
