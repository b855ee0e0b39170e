"""What must hold of a configuration, and what to say when it does not."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

from goldiclip.config.tree import BYTE_TOKENS, CLIP_TOKENS, Config, Text, flatten


class ConfigError(ValueError):
    """A field, the value found there, and what is allowed."""


def validate(config: Config) -> Config:
    """The tree itself when it can be run; otherwise an error that names field, value and what is allowed."""
    model, data, objective, optim, run = config.model, config.data, config.objective, config.optim, config.run
    positive = {
        "model.vision.image_size": model.vision.image_size,
        "model.text.context": model.text.context,
        "model.text.width": model.text.width,
        "model.text.depth": model.text.depth,
        "model.text.heads": model.text.heads,
        "model.embedding": model.embedding,
        "data.captions": data.captions,
        "data.max_sentences": data.max_sentences,
        "data.views.local_size": data.views.local_size,
        "data.window_shards": data.window_shards,
        "objective.distill.prototypes": objective.distill.prototypes,
        "objective.distill.teacher_temperature": objective.distill.teacher_temperature,
        "objective.distill.student_temperature": objective.distill.student_temperature,
        "optim.lr": optim.lr,
        "run.batch": run.batch,
    }
    for name, value in positive.items():
        _require(value > 0, name, value, "a positive number")
    for name, value in flatten(config):
        if isinstance(value, float):
            _require(math.isfinite(value), name, value, "a finite number")
    for name, value in dataclasses.asdict(objective.weights).items():
        _require(value >= 0, f"objective.weights.{name}", value, "0 (left out) or more")
    for name, share in _shares(config).items():
        _require(0 <= share <= 1, name, share, "between 0 and 1")
    _require(bool(config.terms), "objective.weights", "all 0", "at least one active term")
    _require(
        model.text.width % model.text.heads == 0, "model.text.heads", model.text.heads, "a divisor of model.text.width"
    )
    _require(data.views.num_global >= 1, "data.views.num_global", data.views.num_global, "1 or more")
    patch, local = model.vision.patch_size or 1, data.views.local_size
    fits = local % patch == 0 or data.views.num_local == 0
    _require(fits, "data.views.local_size", local, f"a multiple of model.vision.patch_size, {patch}")
    for name, (low, high) in {"global_scale": data.views.global_scale, "local_scale": data.views.local_scale}.items():
        _require(0 < low <= high <= 1, f"data.views.{name}", (low, high), "0 < low ≤ high ≤ 1")
    _require(
        min(data.caption_weights) >= 0 < max(data.caption_weights),
        "data.caption_weights",
        data.caption_weights,
        "three shares, not all 0",
    )
    _require(
        not data.weights or len(data.weights) == len(data.train),
        "data.weights",
        data.weights,
        "one weight per entry of data.train",
    )
    _validate_vocabulary(model.text)
    _validate_parts(config)
    _require(run.epochs > 0 or run.samples > 0, "run.epochs", run.epochs, "a positive number, or run.samples above 0")
    _require(0 <= run.micro_batch <= run.batch, "run.micro_batch", run.micro_batch, "0 to run.batch")
    return config


def _shares(config: Config) -> dict[str, float]:
    views, distill = config.data.views, config.objective.distill
    return {
        "data.views.flip": views.flip,
        "data.views.jitter_probability": views.jitter_probability,
        "data.views.grey": views.grey,
        "data.views.blur": views.blur,
        "data.min_box_score": config.data.min_box_score,
        "data.min_box_visible": config.data.min_box_visible,
        "data.max_bad_share": config.data.max_bad_share,
        "objective.distill.momentum": distill.momentum,
        "objective.distill.centre_momentum": distill.centre_momentum,
        "run.wise_ft": config.run.wise_ft,
    }


def _validate_vocabulary(text: Text) -> None:
    """A tower of chosen tokens has a row for each of them, for every byte twice and for the two marks."""
    if not text.tokens:
        return
    kept, rows = text.tokens, num_tokens(text)
    ascending = all(first < second for first, second in pairwise(kept))
    _require(
        ascending and kept[0] >= BYTE_TOKENS and kept[-1] < CLIP_TOKENS - 2,
        "model.text.tokens",
        f"{len(kept)} ids from {min(kept)} to {max(kept)}",
        f"ascending ids of CLIP's merged tokens, {BYTE_TOKENS} to {CLIP_TOKENS - 3}",
    )
    _require(text.vocabulary == rows, "model.text.vocabulary", text.vocabulary, f"{rows}, by model.text.tokens")


def num_tokens(text: Text) -> int:
    """Rows of the token embedding, and of the decoder's head."""
    return BYTE_TOKENS + len(text.tokens) + 2 if text.tokens else text.vocabulary


def _validate_parts(config: Config) -> None:
    model, objective, terms = config.model, config.objective, config.terms
    if config.pools_text:
        _require(
            model.pooling_heads > 0, "model.pooling_heads", model.pooling_heads, "1 or more, for text-conditioned terms"
        )
        _require(
            model.embedding % model.pooling_heads == 0,
            "model.pooling_heads",
            model.pooling_heads,
            "a divisor of model.embedding",
        )
    if config.decoder_tasks:
        allowed = f"1 or more, for {', '.join(config.decoder_tasks)}"
        _require(model.decoder_depth > 0, "model.decoder_depth", model.decoder_depth, allowed)
        _require(
            model.embedding % model.decoder_heads == 0,
            "model.decoder_heads",
            model.decoder_heads,
            "a divisor of model.embedding",
        )
    if "ret" in terms:
        found = (objective.retrieval.text_agnostic, objective.retrieval.text_conditioned)
        _require(any(found), "objective.retrieval", found, "text_agnostic or text_conditioned")
    if "sd" in terms:
        distilled = (objective.distill.text_agnostic, objective.distill.text_conditioned)
        _require(any(distilled), "objective.distill", distilled, "text_agnostic or text_conditioned")
        _require(config.data.views.num_local > 0, "data.views.num_local", 0, "1 or more, for self-distillation")


def _require(holds: bool, name: str, value: Any, allowed: str) -> None:
    if not holds:
        raise ConfigError(f"{name} is {value}; allowed: {allowed}")


def resolve(config: Config) -> Config:
    """Leave out the parts that no active term uses, so that nothing is built or computed for them."""
    model, data = config.model, config.data
    if not config.pools_text:
        model = replace(model, pooling_heads=0)
    if not config.decoder_tasks:
        model = replace(model, decoder_depth=0)
    if "sd" not in config.terms:
        data = replace(data, views=replace(data.views, num_local=0))
    text = replace(model.text, vocabulary=num_tokens(model.text))
    return validate(replace(config, model=replace(model, text=text), data=data))
