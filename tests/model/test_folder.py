"""An encoder folder holds all there is to a model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from goldiclip.config import Config, ConfigError, Text, Vision
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.pretrained import load_model, save_model


@pytest.fixture
def small(tiny) -> Config:
    return replace(tiny, model=replace(tiny.model, text=Text(vocabulary=60, context=12, width=32, depth=1, heads=2)))


def test_what_is_saved_is_what_is_loaded(small, tmp_path):
    model = GoldiCLIP(small.model, seed=3)
    save_model(model, small, tmp_path / "encoder")
    loaded, config = load_model(tmp_path / "encoder")
    assert config == small
    assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert not loaded.training
    assert sorted(path.name for path in (tmp_path / "encoder").iterdir()) == [
        "README.md",
        "config.yaml",
        "model.safetensors",
    ]


def test_what_is_computed_rather_than_stored_comes_back(small, tmp_path):
    rotary = Vision("vit_small_patch16_dinov3", image_size=32, width=32, depth=1, heads=2)
    small = replace(small, model=replace(small.model, vision=rotary))
    model = GoldiCLIP(small.model).eval()
    loaded, _ = load_model(save_model(model, small, tmp_path))
    images = torch.randn(1, 3, 32, 32)
    assert_close(loaded.encode_image(images).keys, model.encode_image(images).keys, rtol=0, atol=0)


def test_an_exported_encoder_leaves_the_decoder_behind(small, tmp_path):
    model = GoldiCLIP(small.model)
    loaded, config = load_model(save_model(model, small, tmp_path, with_decoder=False))
    assert loaded.decoder is loaded.head is None
    assert config.model.decoder_depth == 0
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_the_card_says_what_the_model_does(small, tmp_path):
    save_model(GoldiCLIP(small.model), small, tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "through the text it is asked about" in card
    assert "also captions" in card
    assert "images of 32 px" in card


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.yaml: no such file; expected a folder with"):
        load_model(tmp_path)


def test_a_damaged_file_is_named(small, tmp_path):
    save_model(GoldiCLIP(small.model), small, tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ConfigError, match=r"model\.safetensors: damaged"):
        load_model(tmp_path)


def test_weights_of_another_configuration_are_refused(small, tmp_path):
    save_model(GoldiCLIP(small.model), small, tmp_path)
    text = (tmp_path / "config.yaml").read_text()
    (tmp_path / "config.yaml").write_text(text.replace("embedding: 32", "embedding: 64"))
    with pytest.raises(ConfigError, match=r"do not belong together: \d+ tensors differ, such as"):
        load_model(tmp_path)
