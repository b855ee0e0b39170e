"""Initial weights: all of memory is covered, each kind has its spread, and parts do not disturb each other."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from goldiclip.config import Model, Text, Vision
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.init import initialise, stated

SMALL = Model(
    Vision(image_size=32, patch_size=8, width=64, depth=3, heads=2),
    Text(vocabulary=500, context=30, width=96, depth=2, heads=2),
    embedding=48,
    pooling_heads=2,
    decoder_depth=2,
    decoder_heads=2,
)
WIDE = {"width": 32, "depth": 2, "heads": 2}
TOWERS = {
    "clip": Vision(image_size=32, patch_size=8, **WIDE),
    "registers and layer scale": Vision("vit_small_patch14_reg4_dinov2", image_size=28, **WIDE),
    "gated": Vision("vit_giant_patch14_dinov2", image_size=28, **WIDE),
    "rotary": Vision("vit_small_patch16_dinov3", image_size=32, **WIDE),
    "eva": Vision("eva02_tiny_patch14_224", image_size=28, **WIDE),
    "no class token": Vision("vit_base_patch16_siglip_224", image_size=32, **WIDE),
    "convolutional stem": Vision("vit_tiny_r_s16_p8_224", image_size=64, **WIDE),
}


def poisoned(config: Model) -> GoldiCLIP:
    with torch.device("meta"):
        model = GoldiCLIP(config)
    model.to_empty(device="cpu")
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            torch.nn.init.constant_(tensor, math.nan)
    return model


@pytest.mark.parametrize("vision", TOWERS.values(), ids=TOWERS)
def test_initialising_covers_all_of_memory(vision):
    config = replace(SMALL, vision=vision)
    model = poisoned(config)
    initialise(model, seed=3)
    assert not [name for name, tensor in model.named_parameters() if tensor.isnan().any()]
    assert not [name for name, tensor in model.named_buffers() if tensor.is_floating_point() and tensor.isnan().any()]
    built = GoldiCLIP(config, seed=3)
    for name, tensor in [*built.named_parameters(), *built.named_buffers()]:
        assert_close(tensor, dict([*model.named_parameters(), *model.named_buffers()])[name], rtol=0, atol=0, msg=name)


EXPECTED = {
    "image.vision.tower.cls_token": 64**-0.5,
    "image.vision.tower.pos_embed": 64**-0.5,
    "image.vision.tower.patch_embed.proj.weight": (3 * 3 * 64) ** -0.5,
    "image.vision.tower.blocks.0.attn.qkv.weight": 64**-0.5,
    "image.vision.tower.blocks.2.attn.proj.weight": 64**-0.5 * 6**-0.5,
    "image.vision.tower.blocks.2.mlp.fc1.weight": 128**-0.5,
    "image.vision.tower.blocks.2.mlp.fc2.weight": 64**-0.5 * 6**-0.5,
    "image.key.weight": 64**-0.5,
    "image.value.weight": 64**-0.5,
    "text.token_embedding.weight": 0.02,
    "text.position_embedding": 0.01,
    "text.blocks.1.attn.qkv.weight": 96**-0.5,
    "text.blocks.1.attn.proj.weight": 96**-0.5 * 4**-0.5,
    "text.blocks.0.mlp.fc1.weight": 192**-0.5,
    "text.blocks.0.mlp.fc2.weight": 96**-0.5 * 4**-0.5,
    "text.projection.weight": 96**-0.5,
    "pooling.query.weight": 48**-0.5,
    "pooling.out.weight": 48**-0.5,
    "decoder.blocks.0.cross.q.weight": 48**-0.5,
    "decoder.blocks.0.cross.kv.weight": 48**-0.5,
    "decoder.blocks.0.cross.proj.weight": 48**-0.5 * 4**-0.5,
    "decoder.blocks.1.mlp.fc2.weight": 48**-0.5 * 4**-0.5,
    "head.weight": 0.02,
}


@pytest.mark.parametrize(("name", "std"), EXPECTED.items(), ids=EXPECTED)
def test_each_kind_of_weight_has_its_spread(small, name, std):
    weight = small.get_parameter(name)
    error = 4 * std / (2 * weight.numel()) ** 0.5
    assert abs(float(weight.detach().std()) - std) < error
    assert abs(float(weight.detach().mean())) < 4 * std / weight.numel() ** 0.5


def test_norms_start_at_one_and_biases_at_zero(small):
    for name, parameter in small.named_parameters():
        if parameter.dim() == 1 and not name.startswith("scale."):
            expected = 0.0 if name.endswith("bias") else 1.0
            assert_close(parameter.detach(), torch.full_like(parameter, expected), msg=name)


def test_scale_and_bias_start_where_the_configuration_says(small):
    assert_close(small.scale.scale.detach(), torch.tensor([math.log(1 / 0.07)]))
    assert_close(small.scale.bias.detach(), torch.tensor([-10.0]))


@pytest.fixture(scope="module")
def small() -> GoldiCLIP:
    return GoldiCLIP(SMALL)


def test_every_parameter_has_a_stated_start(small):
    names = [name for name, _, _ in stated(small)]
    assert names == [name for name, _ in small.named_parameters()]
    constant = {name for name, _, std in stated(small) if std is None}
    assert constant == {name for name, parameter in small.named_parameters() if parameter.dim() == 1}


def test_the_seed_decides(small):
    same, other = GoldiCLIP(SMALL, seed=0), GoldiCLIP(SMALL, seed=1)
    assert_close(same.state_dict(), small.state_dict(), rtol=0, atol=0)
    assert not torch.equal(other.head.weight, small.head.weight)


def test_leaving_a_part_out_changes_no_other(small):
    less = GoldiCLIP(replace(SMALL, decoder_depth=0, tie_key_value=True))
    for name, tensor in less.state_dict().items():
        assert torch.equal(tensor, small.state_dict()[name]), name


def test_building_leaves_the_random_state_where_it_was():
    model = GoldiCLIP(SMALL)
    before = torch.random.get_rng_state()
    initialise(model, seed=5)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_layer_scale_starts_where_timm_says():
    model = GoldiCLIP(replace(SMALL, vision=TOWERS["registers and layer scale"]))
    gamma = model.image.vision.tower.blocks[0].ls1.gamma
    assert_close(gamma.detach(), torch.full_like(gamma, 1e-5))


def test_a_fresh_model_says_nothing_yet(small):
    """Its vocabulary is nearly uniform: ln 500 + half the logits' variance, 0.02² · width."""
    texts = torch.randint(0, 500, (64,), generator=torch.Generator().manual_seed(0))
    hidden = torch.nn.functional.layer_norm(torch.randn(64, 48), (48,))
    loss = torch.nn.functional.cross_entropy(small.head(hidden), texts)
    assert_close(float(loss.detach()), math.log(500) + 0.02**2 * 48 / 2, atol=0.05, rtol=0)
