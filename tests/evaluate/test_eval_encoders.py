"""Encoders that are not ours: each is measured in the modes it has, on images as it was made for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from open_clip.model import CLIP, CustomTextCLIP
from open_clip.transform import image_transform
from PIL import Image
from set_layouts import WRITERS, write_image

from goldiclip.config import Config
from goldiclip.evaluate.options import own_fit
from goldiclip.evaluate.run import Options, evaluate
from goldiclip.inference.engine import Engine
from goldiclip.inference.pictures import fit, pixels
from goldiclip.model.encoders import OpenClip, OpenClipTokenizer
from goldiclip.model.goldiclip import GoldiCLIP

TEXT = {"context_length": 16, "vocab_size": 49_408, "width": 32, "heads": 2, "layers": 1}
SIGLIP_TEXT = TEXT | {"no_causal_mask": True, "proj_bias": True, "pool_type": "last"}
SIGLIP_TOWER = {"timm_model_name": "test_vit3", "timm_pool": "map", "timm_proj": "none", "image_size": 160}
MODELS: dict[str, Callable[[], Any]] = {
    "clip": lambda: CLIP(16, {"layers": 1, "width": 32, "head_width": 16, "patch_size": 8, "image_size": 32}, TEXT),
    "siglip": lambda: CustomTextCLIP(96, SIGLIP_TOWER, SIGLIP_TEXT, init_logit_bias=-10.0),
    "resnet": lambda: CLIP(16, {"layers": [1, 1, 1, 1], "width": 16, "image_size": 32}, TEXT),
}
SETS = ("scenes_long", "scenes_questions", "scenes_segmentation", "scenes_classification")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    WRITERS["scenes_long"](folder)
    return folder


def engine_of(kind: str, resize_mode: str = "shortest") -> Engine:
    model = MODELS[kind]()
    model.visual.preprocess_cfg = {"resize_mode": resize_mode}
    encoder, tokenizer = OpenClip(model), OpenClipTokenizer(open_clip.SimpleTokenizer(), 16)
    return Engine(encoder, image_size=encoder.image_size, device="cpu", batch=4, tokenizer=tokenizer)  # type: ignore[arg-type]


def silent(_: str) -> None:
    return


@pytest.mark.parametrize("kind", [*MODELS, "cosmos"])
def test_an_encoder_without_pooling_is_measured_in_what_it_has(kind: str, root: Path, tiny: Config) -> None:
    if kind == "cosmos":  # becomes a GoldiCLIP that has no pooling
        engine = Engine(GoldiCLIP(replace(tiny.model, pooling_heads=0)), image_size=32, device="cpu")
    else:
        engine = engine_of(kind)
    results = evaluate(engine, root, Options(only=SETS, segmentation=("value", "sink")), say=silent)
    modes = {name: {row.mode for row in results.rows if row.set == name} for name in SETS}
    assert modes.pop("scenes_segmentation") == (set() if kind == "resnet" else {"value"})
    assert all(found == {"ta"} for found in modes.values())
    assert ("scenes_segmentation" in results.problems) == (kind == "resnet")


def test_images_are_fitted_as_the_model_was_made_for(root: Path, engine: Engine) -> None:
    squeezed = engine_of("siglip", "squash")
    assert (own_fit(engine), own_fit(engine_of("clip")), own_fit(squeezed)) == ("crop", "crop", "whole")
    only = Options(only=("scenes_long",))
    own = evaluate(squeezed, root, only, say=silent).rows[0]
    cropped = evaluate(squeezed, root, replace(only, fit="crop"), say=silent).rows[0]
    assert not any("square" in one for one in own.deviations)
    assert "shorter side resized, centre cropped (published: images squeezed to a square)" in cropped.deviations


@pytest.mark.parametrize("size", [(640, 480), (427, 640), (500, 334), (333, 500), (64, 64), (31, 97)])
def test_every_pixel_shows_what_open_clips_transform_has_there(size: tuple[int, int], tmp_path: Path) -> None:
    """To one grey level, which is how far Pillow's rounding is from torch's."""
    path = write_image(tmp_path / "a.png", size=size)
    theirs = image_transform(64, is_train=False, mean=(0, 0, 0), std=(1, 1, 1))(Image.open(path))
    ours = fit(pixels(path), 64).float() / 255
    torch.testing.assert_close(ours, theirs, atol=1.5 / 255, rtol=0)


def test_texts_that_another_tokenizer_cuts_are_counted(root: Path) -> None:
    row = evaluate(engine_of("clip"), root, Options(only=("scenes_long",)), say=silent).rows[0]
    assert (row.counts["texts"], row.counts["truncated_texts"]) == (5, 5)
