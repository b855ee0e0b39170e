"""What is exported gives our embeddings back in other people's programs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from goldiclip.config import Config, ConfigError, resolve
from goldiclip.data.tokenizer import Tokenizer, merged_tokens
from goldiclip.data.views import render
from goldiclip.inference.command import show_exports
from goldiclip.inference.engine import Engine
from goldiclip.inference.export import export
from goldiclip.inference.graphs import PoolingGraph, TextGraph, padded
from goldiclip.inference.parity import TEXTS as PROBES
from goldiclip.inference.parity import gallery
from goldiclip.inference.pictures import fit, pixels
from goldiclip.model.goldiclip import GoldiCLIP


@pytest.fixture
def clip(tiny: Config) -> Config:
    """A tiny run whose towers have CLIP's structure, and images that need no resizing."""
    return replace(tiny, model=replace(tiny.model, vision=replace(tiny.model.vision, name="vit_base_patch16_clip_224")))


@pytest.fixture
def model(clip: Config) -> GoldiCLIP:
    return GoldiCLIP(clip.model, seed=3).eval()


def photo() -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@torch.no_grad()
def test_a_padded_text_is_the_packed_one(model: GoldiCLIP) -> None:
    texts = Tokenizer().encode([*PROBES, "long " * 99])
    torch.testing.assert_close(TextGraph(model)(padded(texts, 77)), model.encode_text(texts).embedding)


@torch.no_grad()
def test_the_pooling_graph_is_the_models_score(model: GoldiCLIP) -> None:
    image = model.encode_image(torch.randn(3, 3, 32, 32))
    text = model.encode_text(Tokenizer().encode(PROBES))
    got = PoolingGraph(model)(text.embedding, image.keys, image.values)
    torch.testing.assert_close(got, model.score(image, text, "tc"))


def test_onnx_graphs_agree_under_onnxruntime(model: GoldiCLIP, clip: Config, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the export extra is not installed")
    probe = gallery(clip, retrieval_set(tmp_path))
    written = {item.name: item for item in export(model, clip, tmp_path, ("onnx",), probe)}
    assert set(written) == {"image.onnx", "text.onnx", "pooling.onnx"}
    for item in written.values():
        assert item.max_error is not None
        assert item.max_error < 1e-4
        assert (tmp_path / item.path).is_file()
        assert item.megabytes > 0
        assert (item.rank_change, item.recall_change) == (0, 0)


def retrieval_set(folder: Path) -> Path:
    """Six pictures with a caption each."""
    entries = []
    for number in range(6):
        noise = np.random.default_rng(number).integers(0, 256, (32, 40, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{number}.png")
        entries.append({"image": f"{number}.png", "captions": [f"picture {number}", "another caption"]})
    (folder / "retrieval.json").write_text(json.dumps({"annotations": entries}))
    return folder / "retrieval.json"


def test_every_format_is_read_back_and_compared(model: GoldiCLIP, clip: Config, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the export extra is not installed")
    formats = ("encoder", "open_clip", "transformers")
    written = export(model, clip, tmp_path / "out", formats, gallery(clip, retrieval_set(tmp_path)))
    assert tuple(item.name for item in written) == formats
    for item in written:
        assert item.max_error is not None
        assert item.max_error < 1e-5
        assert (item.rank_change, item.recall_change) == (0, 0)
        assert item.milliseconds
    table = show_exports(written).splitlines()
    assert len({len(line) for line in table}) == 1


def test_what_is_no_retrieval_set_says_what_one_is(clip: Config, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ConfigError, match="annotations"):
        gallery(clip, tmp_path / "other.json")


@torch.no_grad()
def test_open_clip_loads_the_folder_and_gives_our_embeddings(model: GoldiCLIP, clip: Config, tmp_path: Path) -> None:
    import open_clip

    export(model, clip, tmp_path, ("open_clip",))
    name = f"local-dir:{tmp_path / 'open_clip'}"
    theirs, _, preprocess = open_clip.create_model_and_transforms(name)
    theirs.eval()
    image = photo()
    ours = render(fit(pixels(image), 32)[None])
    torch.testing.assert_close(preprocess(image)[None], ours, atol=1e-6, rtol=0)
    torch.testing.assert_close(theirs.encode_image(ours), model.encode_image(ours).embedding, atol=1e-5, rtol=1e-4)
    ids = open_clip.get_tokenizer(name)(list(PROBES))
    torch.testing.assert_close(
        theirs.encode_text(ids), model.encode_text(Tokenizer().encode(PROBES)).embedding, atol=1e-5, rtol=1e-4
    )


@torch.no_grad()
def test_transformers_loads_the_folder_and_gives_our_embeddings(model: GoldiCLIP, clip: Config, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the export extra is not installed")
    export(model, clip, tmp_path, ("transformers",))
    folder = tmp_path / "transformers"
    theirs = transformers.CLIPModel.from_pretrained(folder).eval()
    tokenizer = transformers.CLIPTokenizer.from_pretrained(folder)
    processor = transformers.CLIPImageProcessor.from_pretrained(folder)
    ours = render(fit(pixels(photo()), 32)[None])
    seen = processor(photo(), return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(seen, ours, atol=1e-5, rtol=0)
    image = theirs.visual_projection(theirs.vision_model(pixel_values=seen).pooler_output)
    torch.testing.assert_close(image, model.encode_image(ours).embedding, atol=1e-5, rtol=1e-4)
    inputs = tokenizer(list(PROBES), padding=True, return_tensors="pt")
    text = theirs.text_projection(theirs.text_model(**inputs).pooler_output)
    expected = model.encode_text(Tokenizer().encode(PROBES)).embedding
    torch.testing.assert_close(text, expected, atol=1e-5, rtol=1e-4)


def test_the_exported_encoder_keeps_the_scores_and_drops_the_decoder(
    model: GoldiCLIP, clip: Config, tmp_path: Path
) -> None:
    (item,) = export(model, clip, tmp_path, ("encoder",))
    slim = Engine.load(tmp_path / item.path, device="cpu")
    whole = Engine(model, image_size=32, device="cpu")
    torch.testing.assert_close(slim.score([photo()], PROBES), whole.score([photo()], PROBES))
    with pytest.raises(ValueError, match="no decoder"):
        slim.caption(photo())


def test_an_unknown_format_names_the_known_ones(model: GoldiCLIP, clip: Config, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="open_clip"):
        export(model, clip, tmp_path, ("tflite",))


@torch.no_grad()
def test_a_vocabulary_of_its_own_is_exported_with_the_model(clip: Config, tmp_path: Path) -> None:
    """transformers reads the tokenizer that goes with it; open_clip, which has CLIP's alone, all of CLIP's rows."""
    import open_clip

    transformers = pytest.importorskip("transformers", reason="the export extra is not installed")
    kept = merged_tokens(PROBES)
    text = replace(clip.model.text, tokens=kept)
    own = resolve(replace(clip, model=replace(clip.model, text=text)))
    model = GoldiCLIP(own.model, seed=3).eval()
    expected = model.encode_text(Tokenizer.of(own.model.text).encode(PROBES)).embedding
    export(model, own, tmp_path, ("open_clip", "transformers", "encoder"))

    name = f"local-dir:{tmp_path / 'open_clip'}"
    theirs = open_clip.create_model_and_transforms(name)[0].eval()
    ids = open_clip.get_tokenizer(name)(list(PROBES))
    torch.testing.assert_close(theirs.encode_text(ids), expected, atol=1e-5, rtol=1e-4)

    clip_model = transformers.CLIPModel.from_pretrained(tmp_path / "transformers").eval()
    tokenizer = transformers.CLIPTokenizer.from_pretrained(tmp_path / "transformers")
    inputs = tokenizer([*PROBES], padding=True, return_tensors="pt")
    pooled = clip_model.text_projection(clip_model.text_model(**inputs).pooler_output)
    torch.testing.assert_close(pooled, expected, atol=1e-5, rtol=1e-4)

    slim = Engine.load(tmp_path / "encoder", device="cpu")
    whole = Engine(model, image_size=32, tokenizer=Tokenizer.of(own.model.text), device="cpu")
    unseen = [*PROBES, "a zebra, unheard of"]
    torch.testing.assert_close(slim.score([photo()], unseen), whole.score([photo()], unseen))
