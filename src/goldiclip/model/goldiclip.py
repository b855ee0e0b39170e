"""GoldiCLIP: towers, pooling and decoder joined, and the only definition of similarity."""

from __future__ import annotations

from collections.abc import Callable
from typing import overload

from torch import Tensor, nn

from goldiclip.config import ConfigError, Model
from goldiclip.model.decoder import Decoder, VocabularyHead
from goldiclip.model.init import initialise
from goldiclip.model.pooling import Pooling
from goldiclip.model.similarity import LogitScale, cosines, paired_cosines, patch_cosines
from goldiclip.model.text import TextTower
from goldiclip.model.vision import ImageEncoder
from goldiclip.types import Conditioned, ImageFeatures, TextFeatures, Texts

Pairs = tuple[Tensor, Tensor]


class GoldiCLIP(nn.Module):
    """A container: it owns no parameter of its own, so that its parts can be sharded one by one.

    image    images to embedding, keys and values         text     texts to embeddings and tokens
    pooling  an image through a text; None without heads  scale    cosines to logits
    decoder  tokens and patch keys to hidden; None at depth 0, and then `head` (hidden to vocabulary) too
    """

    def __init__(self, config: Model, seed: int = 0) -> None:
        super().__init__()
        _check(config)
        self.config = config
        width = config.embedding
        has_values = config.pooling_heads > 0 and not config.tie_key_value
        self.image = ImageEncoder(config.vision, width, has_values)
        self.text = TextTower(config.text, width)
        self.pooling = Pooling(width, config.pooling_heads) if config.pooling_heads else None
        has_decoder = config.decoder_depth > 0
        self.decoder = Decoder(width, config.decoder_depth, config.decoder_heads) if has_decoder else None
        self.head = VocabularyHead(width, config.text.vocabulary) if has_decoder else None
        self.scale = LogitScale(config.init_logit_scale, config.init_logit_bias)
        if not any(parameter.is_meta for parameter in self.parameters()):
            initialise(self, seed)

    # --- features ---------------------------------------------------------------------------------------------------

    def encode_image(self, images: Tensor) -> ImageFeatures:
        """Images (B, 3, H, W), float and normalised, of any size that the patch divides."""
        embedding, keys, values = self.image(images)
        return ImageFeatures(embedding, keys, values, self.image.vision.grid(images))

    def encode_text(self, texts: Texts) -> TextFeatures:
        max_length = texts.max_length or (int(texts.lengths.max()) if len(texts) else 0)
        embedding, tokens = self.text(texts.ids, texts.lengths, max_length)
        return TextFeatures(embedding, tokens, texts.lengths, max_length)

    def condition(self, image: ImageFeatures, texts: TextFeatures | Tensor) -> Conditioned:
        """Every image through every text, with the attention that made it."""
        if self.pooling is None:
            raise ValueError("nothing to condition with: this model has no pooling (model.pooling_heads is 0)")
        return Conditioned(*self.pooling(_embeddings(texts), image.keys, image.values, what="condition"))

    def decode(self, texts: Texts | TextFeatures, image: ImageFeatures, owner: Tensor, most_texts: int = 0) -> Tensor:
        """Hidden (T, D): what follows each token of text m, seen on image owner[m]. `head` makes it logits.

        `most_texts` is how many texts an image has at most; 0 counts them, for which a device is waited for.
        """
        if self.decoder is None:
            raise ValueError("nothing to decode with: this model has no decoder (model.decoder_depth is 0)")
        if isinstance(texts, Texts):
            texts = self.encode_text(texts)
        max_length = texts.max_length or (int(texts.lengths.max()) if len(texts) else 0)
        return self.decoder(texts.tokens, texts.lengths, max_length, image.keys, owner, most_texts)

    # --- similarity -------------------------------------------------------------------------------------------------

    @property
    def modes(self) -> tuple[str, ...]:
        return ("tc", "ta", "patch", "patch_sink") if self.pooling is not None else ("ta", "patch")

    @overload
    def score(
        self, image: ImageFeatures, texts: TextFeatures | Tensor, mode: str = "tc", pairs: Pairs | None = None
    ) -> Tensor: ...
    @overload
    def score(
        self, image: ImageFeatures, texts: tuple[Tensor, ...], mode: str = "tc", pairs: None = None
    ) -> tuple[Tensor, ...]: ...
    def score(
        self,
        image: ImageFeatures,
        texts: TextFeatures | Tensor | tuple[Tensor, ...],
        mode: str = "tc",
        pairs: Pairs | None = None,
    ) -> Tensor | tuple[Tensor, ...]:
        """Logits, scale and bias included: the only similarity there is.

        mode  tc          (B, M)     of the image as seen through the text
              ta          (B, M)     of the image as a whole
              patch       (B, M, L)  of each patch by the pooling's value path (without pooling: by its key)
              patch_sink  (B, M, L)  of each patch pooled alone beside the sink
        pairs  (image, text) indices (P,) each: (P,) logits of those alone, for tc and ta
        texts  features or bare embeddings: (M, D) that every image meets, or (B, M, D) of each image's own;
               a tuple of these is answered in kind and projects the image once
        """
        if mode not in self.modes:
            raise ValueError(f"score cannot be {mode!r} here; this model has {', '.join(self.modes)}")
        if pairs is not None and mode not in ("tc", "ta"):
            raise ValueError(f"pairs are scored by tc or ta, not by {mode!r}")
        functions: dict[str, Callable[..., Tensor | tuple[Tensor, ...]]] = {
            "tc": self._tc,
            "ta": self._ta,
            "patch": self._patch,
            "patch_sink": self._patch_sink,
        }
        wanted = texts if isinstance(texts, tuple) else _embeddings(texts)
        _check_fit(image, wanted if isinstance(wanted, tuple) else (wanted,), pairs)
        cosine = functions[mode](image, wanted, *((pairs,) if pairs is not None else ()))
        return tuple(self.scale(part) for part in cosine) if isinstance(cosine, tuple) else self.scale(cosine)

    def score_stored(self, keys: Tensor, values: Tensor, texts: TextFeatures, step: float) -> Tensor:
        """(B, M): tc of patches (B, L, D) that were stored standardised, in numbers of any type that count `step`s."""
        if self.pooling is None:
            raise ValueError("nothing to condition with: this model has no pooling (model.pooling_heads is 0)")
        return self.scale(self.pooling(texts.embedding, keys, values, what="cosine", step=step))

    def _tc(
        self, image: ImageFeatures, texts: Tensor | tuple[Tensor, ...], pairs: Pairs | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        assert self.pooling is not None
        return self.pooling(texts, image.keys, image.values, what="cosine", pairs=pairs)

    def _ta(
        self, image: ImageFeatures, texts: Tensor | tuple[Tensor, ...], pairs: Pairs | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        if isinstance(texts, tuple):
            return tuple(cosines(image.embedding, part) for part in texts)
        if pairs is not None:
            return paired_cosines(image.embedding[pairs[0]], texts[pairs[1]])
        return cosines(image.embedding, texts)

    def _patch(self, image: ImageFeatures, texts: Tensor) -> Tensor:
        if self.pooling is None:
            return patch_cosines(image.keys, texts)
        return patch_cosines(self.pooling(None, image.keys, image.values, what="patches"), texts)

    def _patch_sink(self, image: ImageFeatures, texts: Tensor) -> Tensor:
        assert self.pooling is not None
        return self.pooling(texts, image.keys, image.values, what="patch_sink")

    # --- training ---------------------------------------------------------------------------------------------------

    def checkpoint_activations(self, enable: bool = True) -> None:
        """Keep only each block's input for the gradient, in every tower."""
        self.image.vision.tower.set_grad_checkpointing(enable)
        self.text.checkpointing = enable
        if self.decoder is not None:
            self.decoder.checkpointing = enable


def _embeddings(texts: TextFeatures | Tensor) -> Tensor:
    return texts.embedding if isinstance(texts, TextFeatures) else texts


def _check_fit(image: ImageFeatures, texts: tuple[Tensor, ...], pairs: Pairs | None) -> None:
    num_images, width = image.embedding.shape
    for part in texts:
        own = part.dim() == 3
        if part.dim() not in (2, 3) or part.shape[-1] != width or (own and len(part) != num_images):
            raise ValueError(
                f"texts are {tuple(part.shape)} and images {num_images, width}: expected (M, {width}), or "
                f"({num_images}, M, {width}) of each image's own"
            )
    if pairs is not None and (pairs[0].shape != pairs[1].shape or pairs[0].dim() != 1):
        raise ValueError(
            f"pairs are {tuple(pairs[0].shape)} images and {tuple(pairs[1].shape)} texts: expected (P,) each"
        )


def _check(config: Model) -> None:
    decoder_heads = config.decoder_heads if config.decoder_depth else 1
    divisors = {
        "model.text.heads": (config.text.heads, config.text.width),
        "model.pooling_heads": (config.pooling_heads or 1, config.embedding),
        "model.decoder_heads": (decoder_heads, config.embedding),
    }
    for name, (heads, width) in divisors.items():
        if heads < 1 or width % heads:
            raise ConfigError(f"{name} is {heads}; allowed: a divisor of its width, {width}")
