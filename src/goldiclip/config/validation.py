"""What must hold of a configuration, and what to say when it does not."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

from goldiclip.config.tree import BYTE_TOKENS, CLIP_TOKENS, Config, Optim, Text, Views, flatten

# The least and the most of single numbers; None among the values of a field is always allowed.
_LIMITS: dict[str, tuple[tuple[float, float], str]] = {
    "1 or more": (
        (1, math.inf),
        """model.vision.image_size model.vision.patch_size model.vision.width model.vision.depth model.vision.heads
        model.text.vocabulary model.text.width model.text.depth model.text.heads model.embedding
        data.captions data.max_sentences data.views.num_global data.views.local_size data.window_shards
        objective.distill.prototypes run.batch run.log_every_steps""",
    ),
    "3 or more: start, a token, end": ((3, math.inf), "model.text.context"),
    "a positive number": (
        (math.ulp(0.0), math.inf),
        """objective.distill.teacher_temperature objective.distill.student_temperature optim.lr optim.layer_decay""",
    ),
    "0 or more": (
        (0, math.inf),
        """model.pooling_heads model.decoder_depth model.decoder_heads data.views.num_local data.workers
        data.cache_gigabytes optim.eps optim.weight_decay optim.scalar_lr optim.warmup_steps optim.clip_norm
        optim.fit_scalars_steps run.samples run.save_every_steps run.save_every_samples run.save_every_minutes
        run.keep_last run.keep_best run.evaluate_every_steps run.alarm_drop""",
    ),
    "between 0 and 1": (
        (0, 1),
        """model.vision.drop_path data.views.flip data.views.jitter_probability data.views.grey data.views.blur
        data.min_box_score data.min_box_visible data.max_bad_share objective.distill.momentum
        objective.distill.centre_momentum optim.final_lr run.wise_ft""",
    ),
    "a whole number of 0 or more, below 2^63": ((0, 2**63 - 1), "run.seed"),
}


class ConfigError(ValueError):
    """A field, the value found there, and what is allowed."""


def validate(config: Config) -> Config:
    """The tree itself when it can be run; otherwise an error that names field, value and what is allowed."""
    _validate_numbers(config)
    _validate_views(config)
    _validate_data(config)
    _validate_optim(config.optim)
    _validate_text(config.model.text)
    _validate_parts(config)
    run = config.run
    _require(run.epochs > 0 or run.samples > 0, "run.epochs", run.epochs, "a positive number, or run.samples above 0")
    _require(0 <= run.micro_batch <= run.batch, "run.micro_batch", run.micro_batch, "0 to run.batch")
    _require(run.precision == "bf16" or not run.fp8, "run.fp8", run.fp8, "False, or run.precision=bf16 with it")
    return config


def _validate_numbers(config: Config) -> None:
    leaves = dict(flatten(config))
    for name, value in leaves.items():
        for number in value if isinstance(value, tuple) else (value,):
            _require(not isinstance(number, float) or math.isfinite(number), name, value, "a finite number")
    for allowed, ((least, most), names) in _LIMITS.items():
        for name in names.split():
            _require(leaves[name] is None or least <= leaves[name] <= most, name, leaves[name], allowed)
    for name, value in dataclasses.asdict(config.objective.weights).items():
        _require(value >= 0, f"objective.weights.{name}", value, "0 (left out) or more")
    _require(bool(config.terms), "objective.weights", "all 0", "at least one active term")


def _validate_views(config: Config) -> None:
    views: Views = config.data.views
    for name in ("global_scale", "local_scale"):
        low, high = getattr(views, name)
        _require(0 < low <= high <= 1, f"data.views.{name}", (low, high), "0 < low ≤ high ≤ 1")
    _require(0 < views.aspect[0] <= views.aspect[1], "data.views.aspect", views.aspect, "0 < low ≤ high")
    is_colour = min(views.jitter) >= 0 and views.jitter[3] <= 0.5
    _require(is_colour, "data.views.jitter", views.jitter, "four numbers of 0 or more, the last (hue) at most 0.5")
    named = re.search(r"patch(\d+)", config.model.vision.name)
    patch = config.model.vision.patch_size or (int(named[1]) if named else 1)
    sides = {"model.vision.image_size": config.model.vision.image_size}
    sides |= {"data.views.local_size": views.local_size} if views.num_local else {}
    for name, side in sides.items():
        _require(side % patch == 0, name, side, f"a multiple of the patch size, {patch}")


def _validate_data(config: Config) -> None:
    data, weights = config.data, config.data.caption_weights
    _require(min(weights) >= 0 < max(weights), "data.caption_weights", weights, "three shares, not all 0")
    found, wanted = len(data.weights), len(data.sources)
    _require(found in (0, wanted), "data.weights", data.weights, f"one weight per source of data.train: {wanted}")
    is_share = not data.weights or min(data.weights) >= 0 < max(data.weights)
    _require(is_share, "data.weights", data.weights, "numbers of 0 or more, not all 0")


def _validate_optim(optim: Optim) -> None:
    _require(all(0 <= beta < 1 for beta in optim.betas), "optim.betas", optim.betas, "two numbers from 0, below 1")


def _validate_text(text: Text) -> None:
    """A tower of chosen tokens has a row for each of them, for every byte twice and for the two marks."""
    _require(text.width % text.heads == 0, "model.text.heads", text.heads, "a divisor of model.text.width")
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
    """What the active terms need is there."""
    model, objective, terms = config.model, config.objective, config.terms
    if config.pools_text:
        allowed = "1 or more, for text-conditioned terms"
        _require(model.pooling_heads > 0, "model.pooling_heads", model.pooling_heads, allowed)
        _require_divisor("model.pooling_heads", model.pooling_heads, model.embedding)
    if config.decoder_tasks:
        allowed = f"1 or more, for {', '.join(config.decoder_tasks)}"
        _require(model.decoder_depth > 0, "model.decoder_depth", model.decoder_depth, allowed)
        _require(model.decoder_heads > 0, "model.decoder_heads", model.decoder_heads, allowed)
        _require_divisor("model.decoder_heads", model.decoder_heads, model.embedding)
    if "ret" in terms:
        found = (objective.retrieval.text_agnostic, objective.retrieval.text_conditioned)
        _require(any(found), "objective.retrieval", found, "text_agnostic or text_conditioned")
    if "sd" in terms:
        distilled = (objective.distill.text_agnostic, objective.distill.text_conditioned)
        _require(any(distilled), "objective.distill", distilled, "text_agnostic or text_conditioned")
        _require(config.data.views.num_local > 0, "data.views.num_local", 0, "1 or more, for self-distillation")


def _require_divisor(name: str, heads: int, embedding: int) -> None:
    _require(embedding % heads == 0, name, heads, f"a divisor of model.embedding, {embedding}")


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
