"""The text tower over packs: packing is invisible, and bad packs are refused."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from goldiclip.config import Model, Text, Vision
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.types import Texts

ROWS = [[1, 5, 6, 2], [1, 3, 2], [1, 4, 4, 9, 4, 4, 4, 2], [1]]


@pytest.fixture(scope="module")
def model() -> GoldiCLIP:
    vision = Vision(image_size=16, patch_size=8, width=16, depth=1, heads=2)
    text = Text(vocabulary=50, context=12, width=24, depth=2, heads=2)
    return GoldiCLIP(Model(vision, text, embedding=16, pooling_heads=0, decoder_depth=0)).double()


def test_packed_equals_one_by_one(model):
    together = model.encode_text(Texts.pack(ROWS))
    alone = [model.encode_text(Texts.pack([row])) for row in ROWS]
    assert_close(together.embedding, torch.cat([text.embedding for text in alone]))
    assert_close(together.tokens, torch.cat([text.tokens for text in alone]))


def test_the_order_of_texts_changes_nothing(model):
    order = [2, 0, 3, 1]
    shuffled = model.encode_text(Texts.pack([ROWS[i] for i in order]))
    assert_close(shuffled.embedding, model.encode_text(Texts.pack(ROWS)).embedding[order])


def test_a_text_is_its_last_token(model):
    features = model.encode_text(Texts.pack(ROWS))
    assert_close(features.embedding, features.tokens[[3, 6, 14, 15]])


def test_what_follows_a_token_cannot_reach_it(model):
    short, long = ([1, 5, 6, 2], [1, 5, 6, 2, 7, 8, 9])
    tokens = model.encode_text(Texts.pack([short, long])).tokens
    assert_close(tokens[:4], tokens[4:8])


def test_tokens_know_their_position(model):
    tokens = model.encode_text(Texts.pack([[5, 5, 5]])).tokens
    assert (tokens[0] - tokens[1]).abs().max() > 1e-3


def test_a_wrong_longest_row_is_refused(model):
    texts = Texts.pack(ROWS)
    with pytest.raises(ValueError, match=r"do not lay out 16 tokens in texts of 1\.\.3"):
        model.text(texts.ids, texts.lengths, 3)


def test_an_empty_text_is_refused(model):
    with pytest.raises(ValueError, match=r"lengths 0\.\.2"):
        model.encode_text(Texts.pack([[1, 2], []]))


def test_a_text_beyond_the_context_is_refused(model):
    with pytest.raises(ValueError, match="has 13 tokens, the tower reads 12"):
        model.encode_text(Texts.pack([[1] * 13]))


def test_another_vocabulary_is_refused(model):
    with pytest.raises(ValueError, match="reach from 1 to 50 and the tower's vocabulary has 50"):
        model.encode_text(Texts.pack([[1, 50]]))


def test_no_texts_are_no_rows_and_gradients_of_zero(model):
    features = model.encode_text(Texts.pack([]))
    assert features.embedding.shape == (0, 16)
    model.zero_grad()
    features.tokens.sum().backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in model.text.parameters())


def test_recomputed_activations_change_no_gradient(model):
    def gradients(checkpointing: bool) -> list[torch.Tensor]:
        model.checkpoint_activations(checkpointing)
        model.zero_grad()
        model.encode_text(Texts.pack(ROWS)).embedding.square().sum().backward()
        return [parameter.grad.clone() for parameter in model.text.parameters()]

    assert_close(gradients(True), gradients(False), rtol=0, atol=0)
    model.checkpoint_activations(False)


def test_the_model_counts_the_longest_row_where_the_pack_does_not(model):
    texts = Texts.pack(ROWS)
    uncounted = Texts(texts.ids, texts.lengths, texts.truncated)
    assert_close(model.encode_text(uncounted).tokens, model.encode_text(texts).tokens)
