"""The container: features, the only similarity, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

from goldiclip.config import ConfigError, Model, Text, Vision
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.types import ImageFeatures, TextFeatures, Texts

TINY = Model(
    Vision(image_size=16, patch_size=8, width=16, depth=1, heads=2),
    Text(vocabulary=50, context=12, width=24, depth=1, heads=2),
    embedding=16,
    pooling_heads=2,
    decoder_depth=1,
    decoder_heads=2,
)
TEXTS = Texts.pack([[1, 5, 6, 2], [1, 3, 2], [1, 4, 9, 9, 2]])


@pytest.fixture(scope="module")
def model() -> GoldiCLIP:
    return GoldiCLIP(TINY).double()


@pytest.fixture(scope="module")
def image(model) -> ImageFeatures:
    return model.encode_image(torch.randn(2, 3, 16, 16, dtype=torch.float64))


@pytest.fixture(scope="module")
def texts(model) -> TextFeatures:
    return model.encode_text(TEXTS)


def as_logits(model: GoldiCLIP, cosine: Tensor) -> Tensor:
    return cosine * model.scale.scale.exp() + model.scale.bias


def test_features_have_the_promised_shapes(model, image, texts):
    assert image.embedding.shape == (2, 16)
    assert image.keys.shape == image.values.shape == (2, 4, 16)
    assert image.grid == (2, 2)
    assert texts.embedding.shape == (3, 16)
    assert texts.tokens.shape == (12, 16)
    assert texts.max_length == 5
    seen = model.condition(image, texts)
    assert seen.embedding.shape == (2, 3, 16)
    assert seen.attention.shape == (2, 3, 4)


def test_a_wide_image_has_a_wide_grid(model):
    assert model.encode_image(torch.randn(1, 3, 8, 24, dtype=torch.float64)).grid == (1, 3)


def test_tc_is_the_cosine_of_the_conditioned_embedding(model, image, texts):
    pooled = model.condition(image, texts).embedding
    expected = F.cosine_similarity(pooled, texts.embedding.expand(2, -1, -1), dim=-1)
    assert_close(model.score(image, texts, "tc"), as_logits(model, expected))
    assert_close(model.score(image, texts), as_logits(model, expected))


def test_ta_is_the_cosine_of_the_embeddings(model, image, texts):
    expected = F.cosine_similarity(image.embedding[:, None], texts.embedding[None], dim=-1)
    assert_close(model.score(image, texts, "ta"), as_logits(model, expected))


def test_patches_are_scored_by_the_value_path(model, image, texts):
    pooling = model.pooling
    patches = pooling.out(pooling.value(pooling.norm_value(image.values)))
    expected = F.cosine_similarity(patches[:, None], texts.embedding[None, :, None], dim=-1)
    assert_close(model.score(image, texts, "patch"), as_logits(model, expected))
    assert model.score(image, texts, "patch_sink").shape == (2, 3, 4)


@pytest.mark.parametrize("mode", ["tc", "ta"])
def test_pairs_are_entries_of_the_whole(model, image, texts, mode):
    pairs = torch.tensor([1, 0, 1, 1]), torch.tensor([2, 1, 0, 2])
    assert_close(model.score(image, texts, mode, pairs), model.score(image, texts, mode)[pairs])


@pytest.mark.parametrize("mode", ["tc", "ta"])
def test_own_and_shared_texts_are_scored_together(model, image, texts, mode):
    own = texts.embedding[:2].expand(2, -1, -1) * torch.tensor([1.0, -2.0])[:, None, None]
    found_own, found = model.score(image, (own, texts.embedding), mode)
    assert_close(found, model.score(image, texts, mode))
    rows = [ImageFeatures(image.embedding[i : i + 1], image.keys[i : i + 1], image.values[i : i + 1]) for i in (0, 1)]
    assert_close(found_own, torch.cat([model.score(row, own[i], mode) for i, row in enumerate(rows)]))


def test_scores_are_the_scores_of_each_image_alone(model, texts):
    images = torch.randn(3, 3, 16, 16, dtype=torch.float64)
    together = model.score(model.encode_image(images), texts)
    assert_close(together, torch.cat([model.score(model.encode_image(one[None]), texts) for one in images]))


def test_tied_keys_and_values_are_one_projection():
    tied = GoldiCLIP(replace(TINY, tie_key_value=True))
    features = tied.encode_image(torch.randn(1, 3, 16, 16))
    assert features.keys is features.values
    loose = GoldiCLIP(TINY)
    assert sum(p.numel() for p in loose.parameters()) - sum(p.numel() for p in tied.parameters()) == 16 * 16


def test_decoding_takes_texts_or_their_features(model, image, texts):
    owner = torch.tensor([1, 0, 1])
    hidden = model.decode(TEXTS, image, owner)
    assert_close(hidden, model.decode(texts, image, owner))
    assert model.head(hidden).shape == (12, 50)


def test_parts_that_are_not_asked_for_are_not_built():
    bare = GoldiCLIP(replace(TINY, pooling_heads=0, decoder_depth=0))
    assert bare.pooling is bare.decoder is bare.head is bare.image.value is None
    assert bare.modes == ("ta", "patch")
    image, texts = bare.encode_image(torch.randn(2, 3, 16, 16)), bare.encode_text(TEXTS)
    expected = F.cosine_similarity(image.keys[:, None], texts.embedding[None, :, None], dim=-1)
    assert_close(bare.score(image, texts, "patch"), as_logits(bare, expected))
    with pytest.raises(ValueError, match="cannot be 'tc' here; this model has ta, patch"):
        bare.score(image, texts, "tc")
    with pytest.raises(ValueError, match="no pooling"):
        bare.condition(image, texts)
    with pytest.raises(ValueError, match="no decoder"):
        bare.decode(texts, image, torch.tensor([0, 0, 1]))


def test_unknown_modes_are_refused_with_the_known_ones(model, image, texts):
    with pytest.raises(ValueError, match="cannot be 'cls' here; this model has tc, ta, patch, patch_sink"):
        model.score(image, texts, "cls")
    with pytest.raises(ValueError, match="pairs are scored by tc or ta, not by 'patch'"):
        model.score(image, texts, "patch", (torch.tensor([0]), torch.tensor([0])))


def test_the_container_owns_no_parameter(model):
    assert not list(model.parameters(recurse=False))
    assert not list(model.buffers(recurse=False))


def test_every_parameter_gets_a_gradient(model):
    image, texts = model.encode_image(torch.randn(2, 3, 16, 16, dtype=torch.float64)), model.encode_text(TEXTS)
    scores = sum(model.score(image, texts, mode).square().sum() for mode in ("tc", "ta"))
    said = model.head(model.decode(texts, image, torch.tensor([0, 0, 1]))).square().sum()
    model.zero_grad()
    (scores + said).backward()
    assert not [name for name, parameter in model.named_parameters() if parameter.grad is None]
    model.zero_grad()


def test_the_scale_is_clamped_between_one_and_a_hundred(model):
    scale = GoldiCLIP(TINY).scale
    for start, expected in ((-1.0, 1.0), (9.0, 100.0), (2.0, 7.38905609893)):
        torch.nn.init.constant_(scale.scale, start)
        scale.clamp_()
        assert_close(scale.scale.exp(), torch.tensor([expected]))
    assert scale.scale.shape == scale.bias.shape == (1,)


def test_logits_in_bf16_keep_float32_cosines(image):
    model = GoldiCLIP(TINY)
    images = torch.randn(4, 3, 16, 16)
    exact = model.score(model.encode_image(images), model.encode_text(TEXTS), "ta")
    with torch.autocast("cpu", torch.bfloat16):
        image, texts = model.encode_image(images), model.encode_text(TEXTS)
        ta, tc = model.score(image, texts, "ta"), model.score(image, texts, "tc")
    assert ta.dtype == tc.dtype == torch.float32
    assert_close(ta, exact, atol=0.5, rtol=0)
    expected = F.cosine_similarity(image.embedding[:, None].double(), texts.embedding[None].double(), dim=-1)
    assert_close(ta.double(), as_logits(model, expected), atol=1e-4, rtol=0)


def test_texts_that_do_not_fit_are_refused(model, image, texts):
    for odd in (torch.zeros(3, 8), torch.zeros(5, 3, 16), torch.zeros(16)):
        for mode in model.modes:
            with pytest.raises(ValueError, match=r"texts are \(.*expected \(M, 16\), or \(2, M, 16\)"):
                model.score(image, odd.double(), mode)
    with pytest.raises(ValueError, match=r"pairs are \(2,\) images and \(1,\) texts"):
        model.score(image, texts, "ta", (torch.tensor([0, 1]), torch.tensor([0])))


@pytest.mark.parametrize("num_images", [0, 2])
def test_no_texts_have_no_scores(model, num_images):
    image = model.encode_image(torch.randn(num_images, 3, 16, 16, dtype=torch.float64))
    none = model.encode_text(Texts.pack([]))
    for mode in model.modes:
        assert model.score(image, none, mode).shape[:2] == (num_images, 0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_scores_finitely(dtype):
    half, exact = GoldiCLIP(TINY).to(dtype), GoldiCLIP(TINY)
    images = torch.randn(2, 3, 24, 24)
    for mode in exact.modes:
        found = half.score(half.encode_image(images.to(dtype)), half.encode_text(TEXTS), mode)
        assert_close(
            found.float(), exact.score(exact.encode_image(images), exact.encode_text(TEXTS), mode), atol=1, rtol=0
        )


def test_towers_and_pooling_compile_whole_and_change_nothing(model):
    """With the eager backend: what is checked is that no graph breaks."""
    text, image, pooling = (
        torch.compile(part, fullgraph=True, backend="eager") for part in (model.text, model.image, model.pooling)
    )
    images = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    assert_close(text(TEXTS.ids, TEXTS.lengths, TEXTS.max_length)[0], model.encode_text(TEXTS).embedding)
    assert_close(image(images)[1], model.image(images)[1])
    queries, keys, values = torch.randn(3, 16), torch.randn(2, 4, 16), torch.randn(2, 4, 16)
    queries, keys, values = (part.double() for part in (queries, keys, values))
    for what in ("cosine", "mean"):
        assert_close(pooling(queries, keys, values, what=what), model.pooling(queries, keys, values, what=what))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pooling_heads": 3}, "model.pooling_heads is 3; allowed: a divisor of its width, 16"),
        ({"decoder_heads": 5}, "model.decoder_heads is 5"),
        ({"text": Text(width=24, heads=7)}, "model.text.heads is 7; allowed: a divisor of its width, 24"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(change, message):
    with pytest.raises(ConfigError, match=message):
        GoldiCLIP(replace(TINY, **change))
