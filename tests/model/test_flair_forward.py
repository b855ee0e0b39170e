"""FLAIR of many sizes, put together as its authors do: open_clip's towers, torch's attention with `add_zero_attn`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from open_clip.model import CLIP
from torch import Tensor, nn
from torch.testing import assert_close

from goldiclip.losses import sigmoid
from goldiclip.model.pretrained import from_flair
from goldiclip.model.weights import Report, WeightsError
from goldiclip.types import Texts

# image, patch, width, layers, head width; context, vocabulary, width, heads, layers; embedding, pooling heads;
# activation
SIZES = {
    "text wider than the embedding": ((48, 8, 64, 3, 32), (20, 90, 96, 3, 1), 40, 8, "gelu"),
    "embedding wider than the texts": ((28, 14, 48, 1, 16), (77, 60, 32, 2, 4), 128, 8, "gelu"),
    "a head for every two numbers": ((32, 16, 24, 2, 8), (9, 50, 24, 4, 2), 16, 8, "quick_gelu"),
    "one patch, one layer, one head": ((16, 16, 16, 1, 16), (12, 40, 8, 1, 1), 8, 1, "gelu"),
}
NUM_IMAGES, NUM_CAPTIONS = 3, 2


class Flair(nn.Module):
    """Its state dict has FLAIR's names."""

    def __init__(self, vision: tuple[int, ...], text: tuple[int, ...], width: int, heads: int, activation: str) -> None:
        super().__init__()
        names = ("image_size", "patch_size", "width", "layers", "head_width")
        vision_cfg: Any = dict(zip(names, vision, strict=True))
        names = ("context_length", "vocab_size", "width", "heads", "layers")
        text_cfg: Any = dict(zip(names, text, strict=True))
        towers = CLIP(width, vision_cfg, text_cfg, quick_gelu=activation == "quick_gelu", init_logit_bias=-10.0)
        self.visual, self.transformer, self.ln_final = towers.visual, towers.transformer, towers.ln_final
        self.visual.proj, self.attn_mask = None, towers.attn_mask
        self.token_embedding, self.positional_embedding = towers.token_embedding, towers.positional_embedding
        self.logit_scale, self.logit_bias = towers.logit_scale, towers.logit_bias
        self.image_post, self.text_post, self.visual_proj = nn.Module(), nn.Module(), nn.Module()
        self.image_post.proj = nn.Parameter(torch.empty(vision_cfg["width"], width))
        self.text_post.proj = nn.Parameter(torch.empty(text_cfg["width"], width))
        self.visual_proj.attn = nn.MultiheadAttention(width, heads, batch_first=True, add_zero_attn=True)
        self.visual_proj.ln_q, self.visual_proj.ln_k, self.visual_proj.ln_v = (nn.LayerNorm(width) for _ in range(3))
        rng = torch.Generator().manual_seed(width)
        for name, parameter in self.named_parameters():
            if not name.startswith("logit"):
                nn.init.normal_(parameter, std=0.2, generator=rng)

    def images(self, images: Tensor) -> tuple[Tensor, Tensor]:
        tokens = self.visual.ln_post(self.visual.transformer(self.visual._embeds(images))) @ self.image_post.proj
        return tokens[:, 0], tokens[:, 1:]

    def texts(self, ids: Tensor) -> Tensor:
        tokens = self.token_embedding(ids) + self.positional_embedding
        tokens = self.ln_final(self.transformer(tokens, attn_mask=self.attn_mask)) @ self.text_post.proj
        return tokens[torch.arange(len(ids)), ids.argmax(-1)]

    def conditioned(self, texts: Tensor, patches: Tensor) -> Tensor:
        block, queries = self.visual_proj, texts.expand(len(patches), -1, -1)
        return block.attn(block.ln_q(queries), block.ln_k(patches), block.ln_v(patches), need_weights=False)[0]

    def logits(self, images: Tensor, texts: Tensor) -> Tensor:
        cosine = F.normalize(images, dim=-1) * F.normalize(texts, dim=-1)
        return cosine.sum(-1) * self.logit_scale.exp() + self.logit_bias


@pytest.fixture(params=SIZES.values(), ids=SIZES)
def sizes(request: pytest.FixtureRequest) -> Any:
    return request.param


def heads_of(sizes: Any) -> dict[str, Any]:
    vision, text, _, pooling_heads, activation = sizes
    heads = {"vision_heads": vision[2] // vision[4], "text_heads": text[3], "activation": activation}
    return heads if pooling_heads == 8 else heads | {"pooling_heads": pooling_heads}


def rows_of(sizes: Any) -> list[list[int]]:
    context, words = sizes[1][:2]
    lengths = [2, context, 3, context // 2, 4, 2]
    rng = torch.Generator().manual_seed(0)
    middle = [torch.randint(words - 2, (length - 2,), generator=rng).tolist() for length in lengths]
    return [[words - 2, *row, words - 1] for row in middle]


def padded(rows: list[list[int]], context: int) -> Tensor:
    return torch.tensor([row + [0] * (context - len(row)) for row in rows])


@torch.no_grad()
def test_every_number_is_flairs(sizes: Any) -> None:
    theirs, rows, size = Flair(*sizes).eval(), rows_of(sizes), sizes[0][0]
    ours = from_flair(theirs.state_dict(), **heads_of(sizes), show=lambda _: None).double()
    theirs, images = theirs.double(), torch.randn(NUM_IMAGES, 3, size, size, dtype=torch.float64)
    whole, patches = theirs.images(images)
    texts = theirs.texts(padded(rows, sizes[1][0]))
    conditioned = theirs.conditioned(texts, patches)
    tc, ta = theirs.logits(conditioned, texts), theirs.logits(whole[:, None], texts)

    image, found = ours.encode_image(images), ours.encode_text(Texts.pack(rows))
    for mine, expected in ((image.embedding, whole), (image.keys, patches), (found.embedding, texts)):
        assert_close(mine, expected, rtol=0, atol=1e-9)
    assert_close(ours.condition(image, found).embedding, conditioned, rtol=0, atol=1e-9)
    assert_close(ours.score(image, found, "tc"), tc, rtol=0, atol=1e-9)
    assert_close(ours.score(image, found, "ta"), ta, rtol=0, atol=1e-9)
    for mine, expected in zip(our_losses(ours, image, found), flairs_losses(tc, ta), strict=True):
        assert_close(mine, expected, rtol=0, atol=1e-9)


DRAWN = torch.tensor([1, 0, 1])


def flairs_losses(tc: Tensor, ta: Tensor) -> tuple[Tensor, Tensor]:
    """Image by image its texts: its own K, and one of every other image; every image against every text."""
    owner = torch.arange(NUM_IMAGES * NUM_CAPTIONS) // NUM_CAPTIONS
    labels = torch.where(owner == torch.arange(NUM_IMAGES)[:, None], 1.0, -1.0).double()
    loss_tc = torch.zeros((), dtype=torch.float64)
    for i in range(NUM_IMAGES):
        others = [j * NUM_CAPTIONS + int(DRAWN[j]) for j in range(NUM_IMAGES) if j != i]
        mine = [i * NUM_CAPTIONS + k for k in range(NUM_CAPTIONS)] + others
        loss_tc -= F.logsigmoid(labels[i, mine] * tc[i, mine]).sum() / (NUM_IMAGES + NUM_CAPTIONS - 1)
    return loss_tc, -F.logsigmoid(labels * ta).sum() / (NUM_IMAGES * NUM_CAPTIONS)


def our_losses(model: Any, image: Any, texts: Any) -> tuple[Tensor, Tensor]:
    owner = torch.arange(NUM_IMAGES * NUM_CAPTIONS) // NUM_CAPTIONS
    is_own = owner == torch.arange(NUM_IMAGES)[:, None]
    shared = torch.arange(NUM_IMAGES) * NUM_CAPTIONS + DRAWN
    own = texts.embedding.unflatten(0, (NUM_IMAGES, NUM_CAPTIONS))
    own_logits, logits = model.score(image, (own, texts.embedding[shared]), "tc")
    ta = model.score(image, texts, "ta")
    return (
        sigmoid.text_conditioned(own_logits, logits, is_own[:, shared], None, NUM_IMAGES),
        sigmoid.text_agnostic(ta, is_own, None, NUM_IMAGES, NUM_CAPTIONS),
    )


@pytest.mark.parametrize("wrap", ["module.", "_orig_mod.", "model.", "module.model."])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_wrappers_buffers_and_narrow_types_change_no_name(wrap: str, dtype: torch.dtype) -> None:
    theirs = Flair(*SIZES["a head for every two numbers"]).to(dtype)
    state = theirs.state_dict() | {"attn_mask": theirs.attn_mask, "position_ids": torch.arange(9)}
    reports: list[Report] = []
    checkpoint: Any = {"epoch": 4, "state_dict": {wrap + name: tensor for name, tensor in state.items()}}
    ours = from_flair(checkpoint, **heads_of(SIZES["a head for every two numbers"]), show=reports.append)
    assert reports[0].left == {"attn_mask": "not a weight", "position_ids": "not a weight"}
    assert not reports[0].initialised
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    assert_close(ours.image.key.weight.detach(), theirs.image_post.proj.detach().T.float())


def test_texts_under_a_name_of_their_own_are_the_same() -> None:
    sizes = SIZES["a head for every two numbers"]
    state = Flair(*sizes).state_dict()
    parts = ("transformer.", "token_embedding.", "positional_embedding", "ln_final.")
    apart = {("text." if name.startswith(parts) else "") + name: tensor for name, tensor in state.items()}
    models = [from_flair(weights, **heads_of(sizes), show=lambda _: None) for weights in (state, apart)]
    assert_close(models[0].state_dict(), models[1].state_dict(), rtol=0, atol=0)


def test_what_flair_does_not_have_is_named() -> None:
    sizes = SIZES["text wider than the embedding"]
    state = Flair(*sizes).state_dict()
    with pytest.raises(WeightsError, match=r"2 tensors have no place here: visual\.more, weights/extra"):
        from_flair(state | {"visual.more": torch.zeros(1), "weights/extra": torch.zeros(1)}, **heads_of(sizes))
    del state["visual_proj.attn.in_proj_bias"]
    with pytest.raises(WeightsError, match=r"no tensor 'visual_proj\.attn\.in_proj_bias'"):
        from_flair(state, **heads_of(sizes))
