"""Which of some classes each pixel shows, without training: SCLIP's sliding windows over patch scores.

value      each patch pooled alone, without the sink: the pooling's value path, which no text changes. The headline
sink       each patch pooled alone beside the sink, which gates it by the text
attention  the text's share of attention on each patch
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from goldiclip.config import ConfigError
from goldiclip.inference.engine import Engine
from goldiclip.inference.pictures import Picture, pixels
from goldiclip.inference.windows import Scorer, classify, resize, slide
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.types import ImageFeatures, TextFeatures

MODES = ("value", "sink", "attention")
PROTOCOL_SIZE = 224  # the input for which sizes of images are given
SHORT_SIDE = 336

# Seven of OpenAI's prompts, the ones they found to matter; a name's embedding is the mean over them.
PROMPTS = (
    "itap of a {}.",
    "a bad photo of the {}.",
    "a origami {}.",
    "a photo of the large {}.",
    "a {} in a video game.",
    "art of the {}.",
    "a photo of the small {}.",
)


@dataclass(frozen=True)
class Segmented:
    """The class of every pixel, as its place in `names`, and the share of the picture each class has."""

    mask: Tensor  # (H, W) int64, on the CPU
    names: tuple[str, ...]
    shares: tuple[float, ...]


def segmentation_modes(engine: Engine) -> tuple[str, ...]:
    """The modes an encoder has, of value, sink and attention."""
    pools = isinstance(engine.model, GoldiCLIP) and engine.model.pooling is not None
    has = {"value": "patch" in engine.modes, "sink": "patch_sink" in engine.modes, "attention": pools}
    return tuple(mode for mode in MODES if has[mode])


def segment(engine: Engine, picture: Picture, classes: Sequence[str], mode: str, short_side: int) -> Segmented:
    """A class may have synonyms behind commas: "sofa, couch"; it is called by the first."""
    synonyms = [tuple(filter(None, map(str.strip, one.split(",")))) for one in classes]
    if not all(synonyms) or len(synonyms) < 2:
        raise ConfigError(f"classes are {list(classes)}: expected at least two names, such as sky and sea")
    if mode not in (known := segmentation_modes(engine)):
        raise ConfigError(f"segmentation cannot be {mode!r} with this encoder; it can be {', '.join(known) or 'none'}")
    queries = name_features(engine, [name for names in synonyms for name in names])
    query_class = torch.tensor([place for place, names in enumerate(synonyms) for _ in names])
    mask = predict(engine, pixels(picture), queries, query_class, mode, short_side).cpu()
    counts = mask.flatten().bincount(minlength=len(synonyms))
    return Segmented(mask, tuple(names[0] for names in synonyms), tuple((counts / mask.numel()).tolist()))


def name_features(engine: Engine, names: Sequence[str], prompts: Sequence[str] = PROMPTS) -> TextFeatures:
    """One embedding for each name: the mean of its prompts' unit vectors, made a unit vector."""
    texts = engine.encode_texts([prompt.replace("{}", name) for name in names for prompt in prompts])
    means = F.normalize(texts.embedding.float(), dim=-1).unflatten(0, (len(names), len(prompts))).mean(1)
    embedding = F.normalize(means, dim=-1)
    return TextFeatures(embedding, embedding[:0], texts.lengths[:: len(prompts)], texts.max_length)


def predict(
    engine: Engine, image: Tensor, queries: TextFeatures, query_class: Tensor, mode: str, short_side: int
) -> Tensor:
    """(H, W) the class of every pixel of a uint8 image.

    Windows are the model's input size and half overlap; a model that sees other than 224 pixels gets images scaled
    alike.
    """
    crop = engine.image_size
    resized = resize(image, round(short_side * crop / PROTOCOL_SIZE))
    with torch.no_grad():
        logits = slide(resized, patch_scorer(engine, queries, mode), crop, crop // 2, engine.batch)
    height, width = image.shape[1:]
    return classify(logits, query_class.to(logits.device), (height, width))


def patch_scorer(engine: Engine, queries: TextFeatures, mode: str) -> Scorer:
    def score(windows: Tensor) -> Tensor:
        with engine.autocast():
            features = engine.model.encode_image(engine.normalise(windows.to(engine.device)))
            return _patch_logits(engine, features, queries, mode).unflatten(2, features.grid)

    return score


def _patch_logits(engine: Engine, features: ImageFeatures, queries: TextFeatures, mode: str) -> Tensor:
    """(n, Q, L)"""
    if mode == "attention":
        assert isinstance(engine.model, GoldiCLIP)
        return engine.model.condition(features, queries).attention
    return engine.model.score(features, queries, {"value": "patch", "sink": "patch_sink"}[mode])
