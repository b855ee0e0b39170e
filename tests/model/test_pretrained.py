"""Weights of others, on tiny random models of theirs: equal numbers, and every tensor accounted for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import open_clip
import pytest
import timm
import torch
from open_clip.model import CLIP, CustomTextCLIP
from safetensors.torch import save_file
from torch import Tensor
from torch.testing import assert_close

from goldiclip.config import Model, Text, Vision
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.pretrained import from_cosmos, from_flair, from_open_clip, from_timm, to_open_clip
from goldiclip.model.weights import Report, WeightsError, read_weights, resize_context
from goldiclip.types import Texts

VISION = {"image_size": 32, "patch_size": 8, "width": 48, "layers": 2, "head_width": 16}
TEXT = {"context_length": 12, "vocab_size": 60, "width": 32, "heads": 2, "layers": 3}
HEADS = {"vision_heads": 3, "text_heads": 2}
ROWS = [[58, 4, 9, 59], [58, 59], [58, *[7] * 10, 59]]


def theirs(kind: Any = CLIP, **options: Any) -> Any:
    torch.manual_seed(0)
    options = {"init_logit_bias": -9.0} | options
    model = kind(40, VISION, TEXT, **options).double().eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model


def padded(rows: list[list[int]], context: int = 12) -> Tensor:
    return torch.tensor([row + [0] * (context - len(row)) for row in rows])


def assert_same_encoder(ours: GoldiCLIP, model: Any, rows: list[list[int]] = ROWS) -> None:
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    ours = ours.double()
    image, texts = ours.encode_image(images), ours.encode_text(Texts.pack(rows))
    assert_close(image.embedding, model.encode_image(images))
    assert_close(texts.embedding, model.encode_text(padded(rows)))
    logits = model.get_logits(images, padded(rows))[0]
    assert_close(ours.score(image, texts, "ta"), logits)


def quietly(report: Report) -> None:
    pass


# --- open_clip ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CLIP, CustomTextCLIP])
@pytest.mark.parametrize("quick_gelu", [False, True])
def test_an_open_clip_model_says_all_by_itself(kind, quick_gelu):
    model = theirs(kind, quick_gelu=quick_gelu).float()
    ours = from_open_clip(model, show=quietly)
    assert ours.config.vision.activation == ("quick_gelu" if quick_gelu else "gelu")
    assert_same_encoder(ours, model.double())


def test_tensors_reveal_all_sizes_but_heads_and_activation():
    ours = from_open_clip(theirs().float().state_dict(), **HEADS, show=quietly)
    vision, text = ours.config.vision, ours.config.text
    assert (vision.image_size, vision.patch_size, vision.width, vision.depth, vision.heads) == (32, 8, 48, 2, 3)
    assert (text.vocabulary, text.context, text.width, text.depth, text.heads) == (60, 12, 32, 3, 2)
    assert ours.config.embedding == 40
    with pytest.raises(WeightsError, match="do not tell vision_heads and text_heads"):
        from_open_clip(theirs().state_dict())
    with pytest.raises(WeightsError, match="vision_heads is 5; allowed: a divisor of the tower's width, 48"):
        from_open_clip(theirs().state_dict(), vision_heads=5, text_heads=2)


def test_the_papers_towers_are_open_clips_vit_b_16():
    """By names and shapes alone: no memory is taken. A local view of 96 px has 36 patches, a global one 196."""
    with torch.device("meta"):
        ours = from_open_clip(CLIP(**open_clip.get_model_config("ViT-B-16")), show=quietly)
        paper = GoldiCLIP(replace(Model(), pooling_heads=0, decoder_depth=0))
        sizes = [paper.encode_image(torch.empty(1, 3, side, side)).keys.shape for side in (96, 224)]
    assert sizes == [(1, 36, 512), (1, 196, 512)]
    assert {name: part.shape for name, part in ours.named_parameters()} == {
        name: part.shape for name, part in paper.named_parameters()
    }


def test_softmax_trained_weights_have_no_bias_and_that_is_said():
    model = theirs(init_logit_bias=None).float()
    reports: list[Report] = []
    ours = from_open_clip(model, show=reports.append)
    assert_same_encoder(ours, model.double())
    assert reports[0].initialised == ["scale.bias"]
    assert "without a logit bias" in str(reports[0])
    started = from_open_clip(model, config=ours.config, show=quietly)
    assert_close(started.scale.bias.detach(), torch.tensor([0.0]))
    started = from_open_clip(model, config=replace(ours.config, init_logit_bias=-10.0), show=quietly)
    assert_close(started.scale.bias.detach(), torch.tensor([-10.0]))


def test_a_tokenizer_other_than_clips_is_said():
    reports: list[Report] = []
    from_open_clip(theirs().state_dict(), **HEADS, show=reports.append)
    assert "60 tokens, not CLIP's 49,408" in str(reports[0])


def test_local_views_are_open_clips_with_resized_positions():
    model = theirs().float()
    ours = from_open_clip(model, show=quietly)
    assert ours.encode_image(torch.randn(1, 3, 16, 24)).keys.shape == (1, 6, 40)


def test_the_way_to_open_clip_and_back_changes_nothing(tmp_path):
    model = theirs(quick_gelu=True).float()
    config, state = to_open_clip(from_open_clip(model, show=quietly))
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    save_file(state, tmp_path / "open_clip_model.safetensors")
    loaded = open_clip.create_model(f"local-dir:{tmp_path}").eval()
    images = torch.randn(2, 3, 32, 32)
    model = model.eval()
    assert_close(loaded.encode_image(images), model.encode_image(images))
    assert_close(loaded.encode_text(padded(ROWS)), model.encode_text(padded(ROWS)))
    assert_close(loaded.logit_bias, model.logit_bias)
    assert loaded.logit_scale.shape == ()


def test_our_own_model_goes_to_open_clip():
    vision = Vision(image_size=32, patch_size=8, width=48, depth=2, heads=3)
    ours = GoldiCLIP(Model(vision, Text(vocabulary=60, context=12, width=32, depth=3, heads=2), 40, 2, False, 1, 2))
    config, state = to_open_clip(ours)
    model = CLIP(**config)
    model.load_state_dict(state)
    assert_same_encoder(ours, model.double().eval())


@pytest.mark.parametrize(
    ("vision", "message"),
    [
        (Vision("vit_small_patch16_224", 32, 8, 48, 2, 3), "not of CLIP's structure.*patch_embed.proj.bias"),
        (Vision("vit_base_patch16_siglip_224", 32, 8, 48, 2, 3), "lacks .*cls_token"),
        (Vision("vit_base_patch16_clip_224", 32, 8, 48, 2, 3, "quick_gelu"), "activations differ"),
    ],
)
def test_towers_that_open_clip_cannot_hold_are_refused(vision, message):
    ours = GoldiCLIP(Model(vision, Text(vocabulary=60, width=32, depth=1, heads=2), 40, 0, False, 0))
    with pytest.raises(WeightsError, match=message):
        to_open_clip(ours)


def test_a_tower_of_another_kind_is_pointed_elsewhere():
    config = {"timm_model_name": "vit_tiny_patch16_224", "image_size": 224}
    with pytest.raises(WeightsError, match="OpenClip"):
        from_open_clip(CustomTextCLIP(40, config, TEXT))
    resnet = {"layers": [1, 1, 1, 1], "width": 16, "image_size": 32}
    with pytest.raises(WeightsError, match="no CLIP vision transformer"):
        from_open_clip(CLIP(40, resnet, TEXT).state_dict(), **HEADS)


@pytest.mark.parametrize(
    ("vision", "text", "message"),
    [
        ({"pool_type": "avg"}, {}, "the class token is the image"),
        ({"final_ln_after_pool": True}, {}, "the class token is the image"),
        ({}, {"pool_type": "last"}, "the token of the highest id is the text"),
        ({}, {"pool_type": "eos"}, "the token of the highest id is the text"),
        ({}, {"no_causal_mask": True}, "texts are read causally"),
        ({}, {"norm_kwargs": {"eps": 1e-6}}, "LayerNorm's eps"),
    ],
)
def test_what_tensors_do_not_show_is_asked_of_the_model(vision, text, message):
    model = CustomTextCLIP(40, VISION | vision, TEXT | text)
    with pytest.raises(WeightsError, match=message):
        from_open_clip(model)


# --- files and names ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weights.pt", "weights.safetensors"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_files_and_wrappers_change_nothing(tmp_path, name, prefix):
    model = theirs().float()
    state = {prefix + key: tensor.clone() for key, tensor in model.state_dict().items()}
    path = tmp_path / name
    if name.endswith(".pt"):
        torch.save({"epoch": 3, "state_dict": state, "optimizer": {}}, path)
    else:
        save_file(state, path)
    assert_same_encoder(from_open_clip(path, **HEADS, show=quietly), model.double())


class Trap:
    """Unpickling this would write a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.write_text, (self.path, "code ran"))


def test_a_file_that_carries_code_is_refused_unread(tmp_path):
    torch.save({"state_dict": {"a": torch.zeros(1)}, "trap": Trap(tmp_path / "caught")}, tmp_path / "bad.pt")
    with pytest.raises(WeightsError, match=r"bad\.pt: not a file of plain tensors"):
        read_weights(tmp_path / "bad.pt")
    assert not (tmp_path / "caught").exists()


def test_files_that_are_not_weights_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.pt"):
        read_weights(tmp_path / "none.pt")
    (tmp_path / "weights.npz").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"\.safetensors, \.pt, \.pth or \.bin"):
        read_weights(tmp_path / "weights.npz")
    (tmp_path / "cut.safetensors").write_bytes(b"\x08\x00\x00\x00")
    with pytest.raises(WeightsError, match=r"cut\.safetensors"):
        read_weights(tmp_path / "cut.safetensors")
    with pytest.raises(WeightsError, match="hold no tensors; there is epoch"):
        read_weights({"epoch": 3})


def test_a_tensor_too_many_or_too_few_is_named():
    state = theirs().state_dict()
    with pytest.raises(WeightsError, match=r"1 tensors have no place here: visual\.extra"):
        from_open_clip(state | {"visual.extra": torch.zeros(1)}, **HEADS)
    del state["visual.ln_post.bias"]
    with pytest.raises(WeightsError, match=r"no tensor 'visual\.ln_post\.bias'"):
        from_open_clip(state, **HEADS)


def test_half_precision_weights_are_read_into_float32():
    state = {name: tensor.half() for name, tensor in theirs().state_dict().items()}
    ours = from_open_clip(state, **HEADS, show=quietly)
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}


# --- FLAIR ----------------------------------------------------------------------------------------------------------


def flair_state(width: int = 40, heads: int = 2) -> dict[str, Tensor]:
    """CLIP's towers with FLAIR's names around them."""
    state = theirs().float().state_dict()
    state["image_post.proj"], state["text_post.proj"] = state.pop("visual.proj"), state.pop("text_projection")
    attention = torch.nn.MultiheadAttention(width, heads)
    state |= {f"visual_proj.attn.{name}": tensor for name, tensor in attention.state_dict().items()}
    for name in ("ln_q", "ln_k", "ln_v"):
        state |= {f"visual_proj.{name}.weight": torch.rand(width) + 0.5, f"visual_proj.{name}.bias": torch.randn(width)}
    return state


def test_flair_is_tied_and_pools():
    reports: list[Report] = []
    ours = from_flair(flair_state(), **HEADS, pooling_heads=2, show=reports.append)
    assert ours.config.tie_key_value
    assert ours.modes[0] == "tc"
    assert len(reports[0].loaded) == len(flair_state()) + 4  # three in-projections were one tensor, weight and bias
    assert not reports[0].initialised
    assert not reports[0].left


def test_flair_starts_a_model_with_more_parts():
    state = flair_state()
    sizes = from_flair(state, **HEADS, pooling_heads=2, show=quietly).config
    config = replace(sizes, tie_key_value=False, decoder_depth=1, decoder_heads=2)
    reports: list[Report] = []
    ours = from_flair(state, **HEADS, pooling_heads=2, config=config, show=reports.append)
    assert_close(ours.image.value.weight, ours.image.key.weight)
    assert {name.split(".")[0] for name in reports[0].initialised} == {"decoder", "head"}
    assert "initialised: " in str(reports[0])


def test_a_configuration_of_other_sizes_is_refused():
    sizes = from_flair(flair_state(), **HEADS, pooling_heads=2, show=quietly).config
    wider = replace(sizes, vision=replace(sizes.vision, width=64, heads=4))
    with pytest.raises(WeightsError, match=r"cls_token is \(1, 1, 48\) in the weights and \(1, 1, 64\)"):
        from_flair(flair_state(), **HEADS, pooling_heads=2, config=wider)


def test_what_weights_lack_is_drawn_from_the_runs_seed():
    sizes = from_flair(flair_state(), **HEADS, pooling_heads=2, show=quietly).config
    config = replace(sizes, decoder_depth=1, decoder_heads=2)
    first, second = (from_flair(flair_state(), **HEADS, config=config, seed=seed, show=quietly) for seed in (0, 1))
    assert_close(first.head.weight, GoldiCLIP(config, seed=0).head.weight, rtol=0, atol=0)
    assert not torch.equal(first.head.weight, second.head.weight)


def test_a_size_beside_a_whole_configuration_is_refused():
    sizes = from_flair(flair_state(), **HEADS, pooling_heads=2, show=quietly).config
    with pytest.raises(WeightsError, match="pass one or the other"):
        from_flair(flair_state(), **HEADS, config=sizes, image_size=64)


def test_flair_into_a_model_without_pooling_says_what_it_left():
    sizes = from_flair(flair_state(), **HEADS, pooling_heads=2, show=quietly).config
    reports: list[Report] = []
    from_flair(flair_state(), **HEADS, config=replace(sizes, pooling_heads=0), show=reports.append)
    assert len(reports[0].left) == 14
    assert "the configuration has no pooling" in str(reports[0])


def test_the_report_is_printed(capsys):
    from_flair(flair_state(), **HEADS, pooling_heads=2)
    assert "FLAIR weights: 89 tensors loaded (image" in capsys.readouterr().out


# --- COSMOS ---------------------------------------------------------------------------------------------------------


def test_cosmos_is_its_student_or_teacher_without_the_cross_modal_parts():
    models = {"student": theirs(init_logit_bias=None).float(), "teacher": theirs(CLIP, quick_gelu=True).float()}
    torch.nn.init.normal_(models["teacher"].visual.proj)
    extra = {
        "distill_logit_scale": torch.tensor(2.0),
        "image_token_mapping.weight": torch.zeros(40, 48),
        "visual.attn_cross_pool.attn.in_proj_weight": torch.zeros(9, 3),
        "text_attn_cross_pool.ln_q.weight": torch.zeros(40),
    }
    checkpoint: Any = {which: model.state_dict() | extra for which, model in models.items()}
    checkpoint |= {"epoch": 1}
    reports: list[Report] = []
    ours = from_cosmos(checkpoint, **HEADS, show=reports.append)
    assert_same_encoder(ours, models["student"].double())
    assert set(reports[0].left) == set(extra)
    ours = from_cosmos(checkpoint, **HEADS, which="teacher", activation="quick_gelu", show=quietly)
    assert_same_encoder(ours, models["teacher"].double())


def test_a_cosmos_saved_as_any_model_is_its_student():
    model = theirs().float()
    for checkpoint in ({"epoch": 1, "state_dict": model.state_dict()}, {"student": model.state_dict()}):
        assert_same_encoder(from_cosmos(checkpoint, **HEADS, show=quietly), model.double())
    with pytest.raises(WeightsError, match="hold no tensors; there is epoch, state_dict"):
        from_cosmos({"epoch": 1, "state_dict": model.state_dict()}, **HEADS, which="teacher")


def test_cosmos_scores_patches_by_the_projection_of_the_class_token():
    model = theirs().float()
    ours = from_cosmos(model.state_dict(), **HEADS, show=quietly)
    images = torch.randn(1, 3, 32, 32)
    model.visual.output_tokens = True
    _, tokens = model.float().visual(images)
    assert_close(ours.encode_image(images).keys, tokens @ model.visual.proj)
    assert "patch" in ours.modes


# --- timm -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "vit_base_patch16_siglip_224", "vit_small_patch16_dinov3"])
def test_a_timm_tower_gives_its_own_tokens(name):
    sizes = {"embed_dim": 32, "depth": 2, "num_heads": 2, "img_size": 64}
    source = timm.create_model(name, **sizes).eval()
    config = Model(Vision(name, 64, None, 32, 2, 2), Text(vocabulary=60, width=32, depth=1, heads=2), 40, 2, False, 0)
    reports: list[Report] = []
    ours = from_timm(source, config, show=reports.append).eval()
    images = torch.randn(1, 3, 64, 64)
    tokens = source.forward_features(images)
    assert_close(ours.image.vision(images)[1], tokens[:, source.num_prefix_tokens :])
    assert "image.key.weight" in reports[0].initialised
    assert not [name for name in reports[0].initialised if name.startswith("image.vision.")]


def test_a_timm_tower_of_another_size_is_resized():
    source = timm.create_model("vit_tiny_patch16_224", embed_dim=32, depth=1, num_heads=2, img_size=64)
    vision = Vision("vit_tiny_patch16_224", 96, None, 32, 1, 2)
    reports: list[Report] = []
    from_timm(
        source,
        Model(vision, Text(vocabulary=60, context=12, width=32, depth=1, heads=2), 40, 2, False, 0),
        show=reports.append,
    )
    assert "position grid resized from 4×4 to 6×6" in str(reports[0])


def test_a_timm_tower_that_averages_lends_its_norm():
    source = timm.create_model("vit_base_patch16_rpn_224", embed_dim=32, depth=1, num_heads=2, img_size=64)
    assert "fc_norm.weight" in source.state_dict()
    torch.nn.init.normal_(source.fc_norm.weight)
    vision = Vision("vit_base_patch16_rpn_224", 64, None, 32, 1, 2)
    reports: list[Report] = []
    ours = from_timm(
        source,
        Model(vision, Text(vocabulary=60, context=12, width=32, depth=1, heads=2), 40, 2, False, 0),
        show=reports.append,
    )
    assert_close(ours.image.vision.tower.norm.weight, source.fc_norm.weight)
    assert "after averaging" in str(reports[0])


def test_timm_tensors_too_many_or_too_few_are_named():
    source = timm.create_model("vit_tiny_patch16_224", embed_dim=32, depth=1, num_heads=2, img_size=64)
    config = Model(
        Vision("vit_tiny_patch16_224", 64, None, 32, 1, 2),
        Text(vocabulary=60, context=12, width=32, depth=1, heads=2),
        40,
        2,
        False,
        0,
    )
    state = source.state_dict()
    with pytest.raises(WeightsError, match=r"1 tensors have no place here: blocks\.1\.norm"):
        from_timm(state | {"blocks.1.norm": torch.zeros(1)}, config)
    del state["cls_token"]
    with pytest.raises(WeightsError, match="1 tensors are missing, such as cls_token"):
        from_timm(state, config)


# --- sizes that change ----------------------------------------------------------------------------------------------


def test_another_image_size_resizes_the_grid_as_open_clip_does():
    model = theirs().float()
    ours = from_open_clip(model, image_size=48, show=quietly)
    bigger = CLIP(40, VISION | {"image_size": 48}, TEXT, init_logit_bias=-9.0).eval()
    state = model.state_dict()
    open_clip.model.resize_pos_embed(state, bigger)
    bigger.load_state_dict(state)
    images = torch.randn(1, 3, 48, 48)
    assert_close(ours.encode_image(images).embedding, bigger.encode_image(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("context", [6, 40])
def test_another_context_keeps_short_texts_as_they_are(context):
    model = theirs().float()
    text = from_open_clip(model, show=quietly).encode_text(Texts.pack([[58, 4, 59]]))
    reports: list[Report] = []
    other = from_open_clip(model, context=context, show=reports.append)
    assert other.config.text.context == context
    assert f"text context changed from 12 to {context} tokens" in str(reports[0])
    if context < 12:
        assert_close(other.encode_text(Texts.pack([[58, 4, 59]])).embedding, text.embedding)


def test_stretching_keeps_the_first_twenty_positions():
    positions = torch.randn(77, 4)
    longer = resize_context(positions, 248)
    assert_close(longer[:20], positions[:20])
    assert_close(longer[[20, 247]], positions[[20, 76]])
    assert longer.shape == (248, 4)
    ramp = torch.arange(77.0)[:, None]
    assert (resize_context(ramp, 248).diff(dim=0) > 0).all()
