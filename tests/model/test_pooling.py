"""Text-conditioned pooling against its loop, and every shortcut against the long way."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from goldiclip.model import pooling as pooling_file
from goldiclip.model.pooling import Pooling
from reference import pooled_by_loops

WIDTH, HEADS = 16, 4


def made(images: int = 3, texts: int = 5, patches: int = 6, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    pooling = Pooling(WIDTH, HEADS).double()
    for parameter in pooling.parameters():  # norms and biases too, so that leaving one out shows
        nn.init.normal_(parameter, std=0.5, generator=generator)
    shapes = ((texts, WIDTH), (images, patches, WIDTH), (images, patches, WIDTH))
    return pooling, *(torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)


@pytest.mark.parametrize(("images", "texts", "patches"), [(1, 1, 1), (2, 5, 3), (4, 3, 7)])
def test_pooling_is_the_loop_over_heads_and_patches(images, texts, patches):
    pooling, text, keys, values = made(images, texts, patches)
    embedding, attention = pooling(text, keys, values, what="condition")
    for image in range(images):
        for j in range(texts):
            expected, weights = pooled_by_loops(pooling, text[j], keys[image], values[image])
            assert_close(embedding[image, j], expected)
            assert_close(attention[image, j], weights.mean(0), check_dtype=False)
    assert_close(pooling(text, keys, values), embedding)
    assert_close(pooling(text, keys, values, what="attention"), attention)


def test_pooling_is_torchs_attention_with_a_zero_key_added():
    pooling, text, keys, values = made()
    twin = nn.MultiheadAttention(WIDTH, HEADS, add_zero_attn=True, batch_first=True).double()
    parts = (pooling.query, pooling.key, pooling.value)
    twin.in_proj_weight.data = torch.cat([part.weight for part in parts])
    twin.in_proj_bias.data = torch.cat([part.bias for part in parts])
    twin.out_proj.load_state_dict(pooling.out.state_dict())
    query = pooling.norm_query(text).expand(3, -1, -1)
    expected, _ = twin(query, pooling.norm_key(keys), pooling.norm_value(values))
    assert_close(pooling(text, keys, values), expected)


def test_what_attention_lacks_went_to_the_sink():
    pooling, text, keys, values = made()
    attention = pooling(text, keys, values, what="attention")
    assert (attention > 0).all()
    assert (attention.sum(-1) < 1).all()


def test_texts_of_each_images_own_meet_that_image_alone():
    pooling, _, keys, values = made()
    own = torch.randn(3, 2, WIDTH, dtype=torch.float64)
    expected = torch.stack([pooling(own[i], keys, values)[i] for i in range(3)])
    assert_close(pooling(own, keys, values), expected)
    assert_close(pooling(own, keys, values, what="cosine"), F.cosine_similarity(expected, own, dim=-1))
    assert_close(pooling(own, keys, values, what="condition")[0], expected)


def test_the_mean_over_texts_is_taken_on_the_weights():
    pooling, text, keys, values = made()
    assert_close(pooling(text, keys, values, what="mean"), pooling(text, keys, values).mean(1))


def long_way(pooling, text, keys, values):
    return F.cosine_similarity(pooling(text, keys, values), text.expand(len(keys), -1, -1), dim=-1)


@pytest.mark.parametrize("at_once", [1, 16, 50, 90, 10**6])
def test_scores_in_pieces_are_the_scores_at_once(at_once, monkeypatch):
    pooling, text, keys, values = made()
    expected = long_way(pooling, text, keys, values)
    mean = pooling(text, keys, values).mean(1)
    own = torch.randn(3, 4, WIDTH, dtype=torch.float64)
    expected_own = F.cosine_similarity(pooling(own, keys, values), own, dim=-1)
    monkeypatch.setattr(pooling_file, "NUMBERS_AT_ONCE", at_once)
    assert_close(pooling(text, keys, values, what="cosine"), expected)
    assert_close(pooling(text, keys, values, what="mean"), mean)
    found_own, found = pooling((own, text), keys, values, what="cosine")
    assert_close(found_own, expected_own)
    assert_close(found, expected)
    image, which = torch.tensor([2, 0, 0, 1]), torch.tensor([4, 0, 3, 3])
    pairs = pooling(text, keys, values, what="cosine", pairs=(image, which))
    assert_close(pairs, expected[image, which])


@pytest.mark.parametrize("what", ["cosine", "mean", "patch_sink"])
def test_gradients_in_pieces_are_the_gradients_at_once(what, monkeypatch):
    pooling, *inputs = made()
    inputs = [part.requires_grad_() for part in inputs]

    def gradients() -> list[torch.Tensor]:
        weights = torch.arange(1.0, 1e3, dtype=torch.float64)
        found = pooling(*inputs, what=what).flatten()
        total = (found * weights[: len(found)].cos()).sum()
        return torch.autograd.grad(total, [*inputs, *pooling.parameters()])

    at_once = gradients()
    monkeypatch.setattr(pooling_file, "NUMBERS_AT_ONCE", 20)
    for pieces, whole in zip(gradients(), at_once, strict=True):
        assert_close(pieces, whole)


def test_gradients_are_right():
    pooling, *inputs = made(2, 2, 3)
    inputs = [part.requires_grad_() for part in inputs]
    for what in ("embedding", "attention", "cosine", "mean", "patch_sink"):
        assert torch.autograd.gradcheck(lambda *x, what=what: pooling(*x, what=what), inputs)
    assert torch.autograd.gradcheck(lambda values: pooling(None, inputs[1], values, what="patches"), inputs[2:])


def test_a_patch_alone_without_the_sink_is_the_value_path():
    pooling, _, keys, values = made()
    expected = pooling.out(pooling.value(pooling.norm_value(values)))
    assert_close(pooling(None, keys, values, what="patches"), expected)


def test_a_patch_alone_beside_the_sink_is_pooling_one_patch():
    pooling, text, keys, values = made()
    found = pooling(text, keys, values, what="patch_sink")
    assert found.shape == (3, 5, 6)
    for patch in range(6):
        alone = pooling(text, keys[:, patch : patch + 1], values[:, patch : patch + 1], what="cosine")
        assert_close(found[:, :, patch], alone)


def test_the_order_of_patches_changes_nothing():
    pooling, text, keys, values = made()
    order = torch.tensor([3, 0, 5, 2, 4, 1])
    assert_close(pooling(text, keys[:, order], values[:, order]), pooling(text, keys, values))


def test_the_order_of_texts_and_images_is_kept():
    pooling, text, keys, values = made()
    images, texts = torch.tensor([2, 0, 1]), torch.tensor([4, 2, 0, 1, 3])
    found = pooling(text[texts], keys[images], values[images], what="cosine")
    assert_close(found, pooling(text, keys, values, what="cosine")[images][:, texts])


def test_the_length_of_a_text_embedding_hardly_matters():
    """Its LayerNorm takes the length away, up to the norm's epsilon."""
    pooling, text, keys, values = made()
    assert_close(pooling(100 * text, keys, values), pooling(text, keys, values), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_bf16_stays_finite_and_near(size):
    pooling, text, keys, values = made()
    expected = long_way(pooling, size * text, size * keys, size * values)
    pooling.float()
    with torch.autocast("cpu", torch.bfloat16):
        parts = [size * part.float() for part in (text, keys, values)]
        found = pooling(*parts, what="cosine")
    assert found.dtype == torch.float32
    assert_close(found.double(), expected, atol=0.06, rtol=0)


def test_pairs_of_nothing_are_nothing():
    pooling, text, keys, values = made()
    nothing = torch.zeros(0, dtype=torch.int64)
    assert pooling(text, keys, values, what="cosine", pairs=(nothing, nothing)).shape == (0,)


def test_the_mean_over_no_text_is_refused():
    pooling, text, keys, values = made()
    with pytest.raises(ValueError, match="no mean over none"):
        pooling(text[:0], keys, values, what="mean")


def test_an_unknown_use_is_refused_with_the_known_ones():
    pooling, text, keys, values = made()
    with pytest.raises(ValueError, match="cannot give 'sum'; it gives embedding, attention"):
        pooling(text, keys, values, what="sum")
    with pytest.raises(ValueError, match="pairs are scored by cosine, not by 'mean'"):
        pooling(text, keys, values, what="mean", pairs=(torch.tensor([0]), torch.tensor([0])))
