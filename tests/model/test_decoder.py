"""The decoder: what it sees, and what it cannot."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from goldiclip.model.decoder import Decoder, VocabularyHead
from goldiclip.model.layers import DecoderBlock, Rows

LENGTHS = torch.tensor([3, 1, 5])
OWNER = torch.tensor([1, 0, 1])


@pytest.fixture(scope="module")
def decoder() -> Decoder:
    torch.manual_seed(0)
    return Decoder(16, 2, 4).double()


@pytest.fixture
def tokens() -> Tensor:
    return torch.randn(9, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def memory() -> Tensor:
    return torch.randn(2, 4, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def test_a_layer_is_torchs_over_a_normalised_memory(tokens, memory):
    """Pre-norm: self-attention, cross-attention, MLP; of one text and one image, padding and packing aside."""
    ours = DecoderBlock(16, 4).double()
    twin = nn.TransformerDecoderLayer(16, 4, 64, 0.0, F.gelu, batch_first=True, norm_first=True, dtype=torch.float64)
    for parameter in ours.parameters():  # norms and biases too, so that leaving one out shows
        nn.init.normal_(parameter, std=0.4)
    names = {
        "attn.qkv.": "self_attn.in_proj_",
        "attn.proj.": "self_attn.out_proj.",
        "cross.proj.": "multihead_attn.out_proj.",
    }
    names |= {"mlp.fc1.": "linear1.", "mlp.fc2.": "linear2."} | {f"norm{i}.": f"norm{i}." for i in (1, 2, 3)}
    state = {
        theirs + end: ours.get_parameter(name + end) for name, theirs in names.items() for end in ("weight", "bias")
    }
    for end in ("weight", "bias"):
        parts = [ours.get_parameter(f"cross.{name}.{end}") for name in ("q", "kv")]
        state[f"multihead_attn.in_proj_{end}"] = torch.cat(parts)
    twin.load_state_dict(state)
    rows = Rows.of(torch.tensor([9]), 9, 9)
    is_later = torch.ones(9, 9, dtype=torch.bool).triu(1)
    expected = twin(tokens[None], ours.norm_memory(memory[:1]), tgt_mask=is_later)
    assert_close(ours(tokens, memory[:1], rows, rows), expected[0])


def test_packed_equals_one_by_one(decoder, tokens, memory):
    together = decoder(tokens, LENGTHS, 5, memory, OWNER)
    alone = [
        decoder(part, torch.tensor([len(part)]), len(part), memory[owner : owner + 1], torch.tensor([0]))
        for part, owner in zip(tokens.split(LENGTHS.tolist()), OWNER.tolist(), strict=True)
    ]
    assert_close(together, torch.cat(alone))


def test_the_order_of_texts_changes_nothing(decoder, tokens, memory):
    parts = tokens.split(LENGTHS.tolist())
    order = [2, 0, 1]
    shuffled = decoder(torch.cat([parts[i] for i in order]), LENGTHS[order], 5, memory, OWNER[order])
    expected = decoder(tokens, LENGTHS, 5, memory, OWNER).split(LENGTHS.tolist())
    assert_close(shuffled, torch.cat([expected[i] for i in order]))


def test_images_without_a_text_change_nothing(decoder, tokens, memory):
    more = torch.cat([torch.randn(1, 4, 16, dtype=torch.float64), memory, torch.randn(2, 4, 16, dtype=torch.float64)])
    assert_close(decoder(tokens, LENGTHS, 5, more, OWNER + 1), decoder(tokens, LENGTHS, 5, memory, OWNER))


@pytest.mark.parametrize("most_texts", [0, 2, 7])
def test_a_bound_on_texts_per_image_changes_nothing(decoder, tokens, memory, most_texts):
    found = decoder(tokens, LENGTHS, 5, memory, OWNER, most_texts)
    assert_close(found, decoder(tokens, LENGTHS, 5, memory, OWNER))


def test_a_text_sees_its_own_image_alone(decoder, tokens, memory):
    before = decoder(tokens, LENGTHS, 5, memory, OWNER)
    after = decoder(tokens, LENGTHS, 5, memory + torch.tensor([1.0, 0.0])[:, None, None] * memory.roll(1, -1), OWNER)
    assert_close(before[:3], after[:3])
    assert_close(before[4:], after[4:])
    assert (before[3] - after[3]).abs().max() > 1e-3


def test_what_follows_a_token_cannot_reach_it(decoder, tokens, memory):
    changed = tokens.clone()
    changed[6:] *= -1
    before, after = (decoder(part, LENGTHS, 5, memory, OWNER) for part in (tokens, changed))
    assert_close(before[:6], after[:6])
    assert (before[6] - after[6]).abs().max() > 1e-3


def test_the_order_of_patches_changes_nothing(decoder, tokens, memory):
    assert_close(decoder(tokens, LENGTHS, 5, memory.flip(1), OWNER), decoder(tokens, LENGTHS, 5, memory, OWNER))


def test_the_memory_is_normalised_at_every_layer(decoder, tokens, memory):
    scaled = decoder(tokens, LENGTHS, 5, 1e4 * memory + 7, OWNER)
    assert_close(scaled, decoder(tokens, LENGTHS, 5, memory, OWNER), rtol=1e-3, atol=1e-3)


def test_no_text_at_all_gives_gradients_of_zero(decoder, memory):
    nothing = torch.zeros(0, dtype=torch.int64)
    decoder.zero_grad()
    decoder(torch.zeros(0, 16, dtype=torch.float64), nothing, 0, memory, nothing).sum().backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in decoder.parameters())


def test_recomputed_activations_change_no_gradient(decoder, tokens, memory):
    def gradients(checkpointing: bool) -> list[Tensor]:
        decoder.checkpointing = checkpointing
        decoder.zero_grad()
        decoder(tokens, LENGTHS, 5, memory, OWNER).square().sum().backward()
        return [parameter.grad.clone() for parameter in decoder.parameters()]

    assert_close(gradients(True), gradients(False), rtol=0, atol=0)


def test_owners_that_do_not_exist_are_refused(decoder, tokens, memory):
    with pytest.raises(ValueError, match="reach from 0 to 2 and there are 2 images"):
        decoder(tokens, LENGTHS, 5, memory, torch.tensor([1, 0, 2]))
    with pytest.raises(ValueError, match="3 texts and 2 owners"):
        decoder(tokens, LENGTHS, 5, memory, torch.tensor([1, 0]))


def test_a_fused_loss_gets_the_heads_weight():
    head = VocabularyHead(4, 10)
    torch.nn.init.normal_(head.weight)
    hidden = torch.randn(3, 4)
    assert_close(head(hidden), hidden @ head.weight.T)
    found = head(hidden, fused=lambda hidden, weight, targets: (hidden @ weight.T)[targets], targets=torch.tensor([1]))
    assert_close(found, head(hidden)[1:2])
