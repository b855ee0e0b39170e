"""Any timm ViT by name: nothing unused in it, any size of image through it."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from goldiclip.config import ConfigError, Vision
from goldiclip.model.vision import ImageEncoder, VisionTower, resize_positions

SMALL = {"width": 32, "depth": 1, "heads": 2}
CLIP = Vision("vit_base_patch16_clip_224", image_size=32, patch_size=8, **SMALL)
TOWERS = {
    "clip": CLIP,
    "plain": Vision("vit_small_patch16_224", image_size=32, patch_size=8, **SMALL),
    "no class token": Vision("vit_base_patch16_siglip_224", image_size=32, patch_size=8, **SMALL),
    "average": Vision("vit_base_patch16_rpn_224", image_size=32, patch_size=16, **SMALL),
    "registers": Vision("vit_small_patch14_reg4_dinov2", image_size=28, patch_size=14, **SMALL),
    "rotary": Vision("vit_small_patch16_dinov3", image_size=32, patch_size=16, **SMALL),
    "convolutional stem": Vision("vit_tiny_r_s16_p8_224", image_size=64, **SMALL),
}


@pytest.mark.parametrize("config", TOWERS.values(), ids=TOWERS)
def test_every_parameter_of_any_tower_is_used(config):
    encoder = ImageEncoder(config, 16, has_values=True).double()
    images = torch.randn(2, 3, config.image_size, config.image_size, dtype=torch.float64)
    embedding, keys, values = encoder(images)
    (embedding.square().sum() + keys.square().sum() + values.square().sum()).backward()
    unused = [name for name, parameter in encoder.named_parameters() if parameter.grad is None]
    assert not unused


@pytest.mark.parametrize("config", TOWERS.values(), ids=TOWERS)
def test_patches_are_the_grid_alone(config):
    tower = VisionTower(config)
    summary, patches = tower(torch.randn(2, 3, config.image_size, config.image_size))
    rows, columns = tower.grid(torch.empty(2, 3, config.image_size, config.image_size))
    assert patches.shape == (2, rows * columns, 32)
    assert summary.shape == (2, 32)


@pytest.mark.parametrize("config", TOWERS.values(), ids=TOWERS)
def test_any_tower_takes_local_views(config):
    tower = VisionTower(config)
    patch = tower.patch[0]
    assert tower(torch.randn(1, 3, patch, patch * 3))[1].shape == (1, 3, 32)


def test_without_a_class_token_the_summary_is_the_mean_patch():
    tower = VisionTower(TOWERS["no class token"])
    summary, patches = tower(torch.randn(2, 3, 32, 32))
    assert not tower.has_class_token
    assert_close(summary, patches.mean(1))


def test_register_tokens_are_no_patches():
    tower = VisionTower(TOWERS["registers"])
    images = torch.randn(1, 3, 28, 28)
    tokens = tower.tower.forward_features(images)
    assert tokens.shape[1] == 1 + 4 + 4
    summary, patches = tower(images)
    assert_close(summary, tokens[:, 0])
    assert_close(patches, tokens[:, 5:])


@pytest.mark.parametrize("size", [32, 16, 40])
@pytest.mark.parametrize("name", ["clip", "plain", "no class token", "registers"])
def test_our_positions_are_timms_in_float32(name, size):
    config = TOWERS[name]
    tower = VisionTower(config)
    side = size // 8 * tower.patch[0]
    images = torch.randn(1, 3, side, side)
    summary, patches = tower(images)
    tokens = tower.tower.forward_features(images)
    assert_close(patches, tokens[:, tower.num_prefix :])
    assert_close(summary, tokens[:, 0] if tower.has_class_token else patches.mean(1))


def test_position_gradients_of_other_sizes_are_exact_in_float64():
    """In float32, as timm resizes them, splitting a batch over ranks would change their gradient."""
    tower = VisionTower(CLIP).double()
    images = torch.randn(4, 3, 16, 16, dtype=torch.float64)

    def gradient(*batches: torch.Tensor) -> torch.Tensor:
        tower.zero_grad()
        for batch in batches:
            tower(batch)[1].square().sum().backward()
        return tower.tower.pos_embed.grad.clone()

    assert_close(gradient(images), gradient(images[:1], images[1:]), rtol=1e-13, atol=1e-13)


def test_resizing_positions_is_bicubic_and_antialiased():
    positions = torch.randn(1, 1 + 36, 4)
    found = resize_positions(positions, (6, 6), (3, 4), 1)
    grid = positions[:, 1:].view(1, 6, 6, 4).permute(0, 3, 1, 2)
    expected = F.interpolate(grid, size=(3, 4), mode="bicubic", antialias=True)
    assert_close(found[:, 1:], expected.permute(0, 2, 3, 1).reshape(1, 12, 4))
    assert_close(found[:, :1], positions[:, :1])
    assert resize_positions(positions, (6, 6), (6, 6), 1) is positions


def test_tied_projections_are_one():
    encoder = ImageEncoder(CLIP, 16, has_values=False)
    _, keys, values = encoder(torch.randn(1, 3, 32, 32))
    assert keys is values
    assert encoder.value is None


def test_the_embedding_is_the_class_token_through_the_key_projection():
    encoder = ImageEncoder(CLIP, 16, has_values=True)
    images = torch.randn(2, 3, 32, 32)
    summary, patches = encoder.vision(images)
    embedding, keys, values = encoder(images)
    assert_close(embedding, summary @ encoder.key.weight.T)
    assert_close(keys, patches @ encoder.key.weight.T)
    assert_close(values, patches @ encoder.value.weight.T)


def test_quick_gelu_is_configuration():
    plain = VisionTower(CLIP)
    quick = VisionTower(Vision("vit_base_patch16_clip_224", 32, 8, **SMALL, activation="quick_gelu"))
    quick.load_state_dict(plain.state_dict())
    images = torch.randn(1, 3, 32, 32)
    difference = (plain(images)[1] - quick(images)[1]).abs().max()
    assert 1e-6 < difference < 1


def test_drop_path_is_configuration():
    tower = VisionTower(Vision("vit_base_patch16_clip_224", 32, 8, width=32, depth=3, heads=2, drop_path=0.5))
    images = torch.randn(8, 3, 32, 32)
    assert (tower.train()(images)[1] - tower(images)[1]).abs().max() > 1e-4
    tower.eval()
    assert_close(tower(images)[1], tower(images)[1])


def test_recomputed_activations_change_no_gradient():
    tower = VisionTower(CLIP).double()
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)

    def gradients(checkpointing: bool) -> list[torch.Tensor]:
        copied = copy.deepcopy(tower)
        copied.tower.set_grad_checkpointing(checkpointing)
        copied(images)[1].square().sum().backward()
        return [parameter.grad for parameter in copied.parameters()]

    assert_close(gradients(True), gradients(False), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Vision("vit_base_patch16_klip"), r"model\.vision\.name is 'vit_base_patch16_klip'.*vit_base_patch16"),
        (Vision("resnet18", 32), "resnet18"),
        (Vision("vit_base_resnet26d_224", 64, **SMALL), "has batch norms"),
        (Vision("vit_base_patch16_clip_224", image_size=33, patch_size=8, **SMALL), "image_size is 33.*multiple.*8"),
        (Vision("vit_base_patch16_clip_224", 32, 8, width=32, depth=1, heads=5), "'heads|num_heads"),
    ],
)
def test_towers_that_cannot_be_are_refused_by_name(config, message):
    with pytest.raises(ConfigError, match=message):
        VisionTower(config)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 3, 33, 32), r"33×32 do not divide into 8×8 patches"),
        ((3, 32, 32), r"expected \(B, 3, height, width\)"),
        ((1, 4, 32, 32), r"\(1, 4, 32, 32\); expected"),
    ],
)
def test_images_that_do_not_fit_are_refused(shape, message):
    with pytest.raises(ValueError, match=message):
        VisionTower(CLIP)(torch.zeros(shape))
