"""An engine gives the model's own numbers, whatever pictures come as, and says what it cannot do."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from goldiclip.config import Config
from goldiclip.data.views import render
from goldiclip.inference.engine import Engine, TextTruncated, find_encoder
from goldiclip.inference.pictures import fit, pixels
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.recipes import recipe
from goldiclip.types import Sample


def make_engine(config: Config, **options: object) -> Engine:
    size, context = config.model.vision.image_size, config.model.text.context
    return Engine(GoldiCLIP(config.model), image_size=size, context=context, device="cpu", **options)


@pytest.fixture
def engine(tiny: Config) -> Engine:
    return make_engine(tiny)


def picture(seed: int = 0, height: int = 40, width: int = 56) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def test_a_picture_is_the_same_whatever_it_comes_as(engine: Engine, tmp_path: Path) -> None:
    image = picture()
    path, buffer, array = tmp_path / "a.png", io.BytesIO(), np.array(image)
    image.save(path)
    image.save(buffer, "PNG")
    sample = Sample("a", buffer.getvalue())
    forms = [image, path, str(path), buffer.getvalue(), sample, array, torch.from_numpy(array).permute(2, 0, 1)]
    expected = engine.embed_images([image])
    for form in forms:
        torch.testing.assert_close(engine.embed_images(form), expected)
    torch.testing.assert_close(engine.embed_images(forms), expected.expand(len(forms), -1))


def test_the_engine_scores_as_the_model_does(engine: Engine) -> None:
    images, texts = [picture(i) for i in range(3)], ["a red hat", "two dogs", "rain"]
    views = render(torch.stack([fit(pixels(image), 32) for image in images]))
    with torch.no_grad():
        features = engine.model.encode_image(views)
        tokens = engine.model.encode_text(engine.tokenizer.encode(texts))
        for mode in ("tc", "ta"):
            expected = engine.model.score(features, tokens, mode)
            torch.testing.assert_close(engine.score(images, texts, mode), expected)
    torch.testing.assert_close(engine.score(images, texts), engine.score(images, texts, "tc"))


def test_batches_do_not_show(tiny: Config) -> None:
    images, texts = [picture(i) for i in range(7)], [f"a thing and {i} more" * (1 + i % 3) for i in range(30)]
    whole, pieces = make_engine(tiny), make_engine(tiny, batch=2)
    torch.testing.assert_close(whole.score(images, texts), pieces.score(images, texts))
    torch.testing.assert_close(whole.encode_texts(texts).tokens, pieces.encode_texts(texts).tokens)


def test_embeddings_have_length_one(engine: Engine) -> None:
    assert engine.embed_texts(["a", "b c"]).norm(dim=-1).tolist() == pytest.approx([1, 1])
    assert engine.embed_images([picture()]).norm(dim=-1).tolist() == pytest.approx([1])


def test_a_long_text_is_cut_with_a_word(engine: Engine) -> None:
    with pytest.warns(TextTruncated, match="1 of 2"):
        engine.encode_texts(["short", "long " * 100])
    with pytest.warns(TextTruncated, match="vqa"):
        engine.ask(picture(), "why " * 100)


@pytest.mark.parametrize("kind", ["attention", "without_sink", "patch", "patch_sink"])
def test_a_heatmap_has_the_pictures_size(engine: Engine, kind: str) -> None:
    maps = engine.heatmap(picture(), ["a hat", "a dog"], kind)
    assert maps.shape == (2, 40, 56)
    assert maps.isfinite().all()


def test_the_decoder_captions_answers_and_locates(engine: Engine) -> None:
    images = [picture(0), picture(1)]
    assert len(engine.caption(images)) == 2
    (answer,) = engine.ask(images[0], "what is this?", beams=2)
    assert 0 < answer.confidence <= 1
    located = engine.locate(images[0], "a hat")
    x0, y0, x1, y1 = located.box
    assert 0 <= x0 < x1 <= 56
    assert 0 <= y0 < y1 <= 40


def test_an_encoder_without_a_decoder_says_so() -> None:
    engine = make_engine(recipe("tiny/flair"))
    with pytest.raises(ValueError, match="no decoder"):
        engine.caption(picture())


def test_a_model_without_pooling_scores_text_agnostically() -> None:
    engine = make_engine(recipe("tiny/sigmoid"))
    assert engine.score([picture()], ["a"]).shape == (1, 1)
    with pytest.raises(ValueError, match="this model has ta"):
        engine.score([picture()], ["a"], "tc")


def test_bf16_stays_close(tiny: Config) -> None:
    images, texts = [picture(i) for i in range(3)], ["a red hat", "two dogs"]
    model = GoldiCLIP(replace(tiny.model, init_logit_bias=0.0))
    plain, half = (Engine(model, image_size=32, device="cpu", precision=p) for p in ("fp32", "bf16"))
    torch.testing.assert_close(half.score(images, texts), plain.score(images, texts), atol=0.2, rtol=0.1)


@pytest.mark.parametrize("wrong", [3, np.zeros((4, 4)), torch.zeros(3, 4, 4), [1.0]])
def test_what_is_no_picture_is_refused_by_name(engine: Engine, wrong: object) -> None:
    with pytest.raises((TypeError, ValueError), match=r"found|expected"):
        engine.embed_images([wrong])


def test_a_broken_file_is_named(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8 no picture")
    with pytest.raises(ValueError, match=r"broken\.jpg"):
        engine.embed_images([tmp_path / "broken.jpg"])


def test_a_missing_encoder_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        find_encoder(tmp_path)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        find_encoder(tmp_path / "nowhere")
