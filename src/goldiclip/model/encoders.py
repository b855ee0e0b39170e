"""Models that are not ours, behind the `Encoder` protocol: any open_clip model, SigLIP's among them.

COSMOS and FLAIR have CLIP's structure and become a GoldiCLIP (`goldiclip.model.pretrained`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from goldiclip.model.layers import Rows
from goldiclip.model.similarity import cosines, paired_cosines, patch_cosines
from goldiclip.types import ImageFeatures, TextFeatures, Texts

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


class OpenClip(nn.Module):
    """An open_clip model as an Encoder: modes "ta", and "patch" where its vision tower has patches.

    A patch is embedded as if it were alone: by the model's own pooling head over that one token (SigLIP's MAP head), or
    by the projection of the class token (CLIP). Images come normalised by CLIP's mean and std, as everywhere here; the
    model's own normalisation is applied on top. Texts come from the model's own tokenizer (`OpenClipTokenizer`).
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model.eval()
        visual = model.visual
        self._encode: Callable[[Tensor], tuple[Tensor, Tensor | None]] = _encoder_of(visual)
        self.context: int = model.context_length
        self.pad: int = getattr(getattr(model, "text", model), "pad_id", 0)
        wanted = getattr(visual, "preprocess_cfg", None) or {}
        mean, std = wanted.get("mean", CLIP_MEAN), wanted.get("std", CLIP_STD)
        # x·std_clip + mean_clip is the picture; (picture − mean) / std is what the model wants
        self.register_buffer("gain", _channels([a / b for a, b in zip(CLIP_STD, std, strict=True)]), persistent=False)
        shift = [(a - b) / c for a, b, c in zip(CLIP_MEAN, mean, std, strict=True)]
        self.register_buffer("shift", _channels(shift), persistent=False)
        self.gain: Tensor
        self.shift: Tensor

    @classmethod
    def load(cls, name: str, pretrained: str | None = None) -> OpenClip:
        """open_clip's model by its name and weights: a tag it knows, or a file."""
        import open_clip

        return cls(open_clip.create_model(name, pretrained=pretrained))

    @property
    def modes(self) -> tuple[str, ...]:
        return ("ta",) if self._encode is _whole_only else ("ta", "patch")

    @property
    def image_size(self) -> int:
        size = self.model.visual.image_size
        return int(size[0] if isinstance(size, (tuple, list)) else size)

    @property
    def squeezes(self) -> bool:
        """Whether the model was made for whole images squeezed into the square, as SigLIP's were, not for crops."""
        return (getattr(self.model.visual, "preprocess_cfg", None) or {}).get("resize_mode") == "squash"

    def encode_image(self, images: Tensor) -> ImageFeatures:
        images = images * self.gain.to(images.dtype) + self.shift.to(images.dtype)
        if self._encode is _whole_only:
            embedding, patches = self.model.encode_image(images), None
        else:
            embedding, patches = self._encode(images)
        if patches is None:
            patches = embedding.new_zeros(len(images), 0, embedding.shape[-1])
        return ImageFeatures(embedding, patches, patches, self._grid(images, patches.shape[1]))

    def _grid(self, images: Tensor, num_patches: int) -> tuple[int, int]:
        rows = round((num_patches * images.shape[2] / images.shape[3]) ** 0.5)
        return (rows, num_patches // rows) if rows else (0, 0)

    def encode_text(self, texts: Texts) -> TextFeatures:
        """Texts cut or padded to the model's context, as its own tokenizer would have them."""
        longest = texts.max_length or int(texts.lengths.max())
        if longest > self.context:
            raise ValueError(
                f"a text has {longest} tokens and the model reads {self.context}: tokenize with its tokenizer"
            )
        rows = Rows.of(texts.lengths, texts.ids.shape[0], self.context)
        padded = texts.ids.new_full((len(texts) * self.context,), self.pad).index_copy(0, rows.slot, texts.ids)
        embedding = self.model.encode_text(padded.unflatten(0, (len(texts), self.context)))
        return TextFeatures(embedding, embedding.new_zeros(0, embedding.shape[-1]), texts.lengths, longest)

    def score(
        self, image: ImageFeatures, texts: TextFeatures, mode: str = "ta", pairs: tuple[Tensor, Tensor] | None = None
    ) -> Tensor:
        """Logits by the model's own scale, and its bias where it has one."""
        if mode not in self.modes:
            raise ValueError(f"score cannot be {mode!r} here; this model has {', '.join(self.modes)}")
        if mode == "patch":
            cosine = patch_cosines(image.keys, texts.embedding)
        elif pairs is not None:
            cosine = paired_cosines(image.embedding[pairs[0]], texts.embedding[pairs[1]])
        else:
            cosine = cosines(image.embedding, texts.embedding)
        logits = cosine * self.model.logit_scale.exp()
        return logits if self.model.logit_bias is None else logits + self.model.logit_bias


class OpenClipTokenizer:
    """open_clip's tokenizer of a model, as packed texts: whole rows, since SigLIP reads their padding too."""

    def __init__(self, tokenizer: Callable[..., Tensor], context: int) -> None:
        self.tokenizer, self.context = tokenizer, context

    def encode(self, texts: Sequence[str]) -> Texts:
        """A text was cut when with one place more it fills that too, with other than padding."""
        ids = self.tokenizer(list(texts), context_length=self.context)
        last = self.tokenizer([*texts, ""], context_length=self.context + 1)[:, -1]
        return Texts.pack(ids.tolist(), truncated=(last[:-1] != last[-1]).tolist())


def _channels(values: Sequence[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).view(1, 3, 1, 1)


def _whole_only(images: Tensor) -> tuple[Tensor, Tensor | None]:
    raise AssertionError("towers without patches are asked as a whole")


def _encoder_of(visual: Any) -> Callable[[Tensor], tuple[Tensor, Tensor | None]]:
    """How to get embedding and patches from a vision tower, in one pass where its kind is known."""
    from timm.models.eva import Eva
    from timm.models.vision_transformer import VisionTransformer

    if hasattr(visual, "_embeds") and visual.attn_pool is None and not visual.final_ln_after_pool:
        return lambda images: _clip_tower(visual, images)
    if isinstance(getattr(visual, "trunk", None), (VisionTransformer, Eva)):
        return lambda images: _timm_tower(visual, images)
    return _whole_only


def _clip_tower(visual: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    tokens = visual.ln_post(visual.transformer(visual._embeds(images)))
    pooled, _ = visual._global_pool(tokens)
    return pooled @ visual.proj, tokens[:, 1:] @ visual.proj


def _timm_tower(visual: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    trunk = visual.trunk
    tokens = trunk.forward_features(images)
    patches = tokens[:, trunk.num_prefix_tokens :]
    alone = patches.flatten(0, 1)
    if trunk.attn_pool is not None:
        alone = trunk.attn_pool(alone.unsqueeze(1))
    alone = visual.head(trunk.head(trunk.fc_norm(alone)))
    return visual.head(trunk.forward_head(tokens)), alone.unflatten(0, patches.shape[:2])
