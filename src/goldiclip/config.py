"""A run, written down: one frozen tree of dataclasses, from the model's widths to the checkpoint's schedule.

Recipes build it, `key=value` words on the command line change it, and the run's folder keeps the resolved tree as YAML.
Defaults are the paper's. Nothing here imports torch, so that `--help` is immediate.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml

SCHEMA_VERSION = 1


class ConfigError(ValueError):
    """A field, the value found there, and what is allowed."""


# --- model ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vision:
    """The vision tower: any timm ViT by name; the numbers override what the name says."""

    name: str = "vit_base_patch16_clip_224"
    image_size: int = 224
    patch_size: int | None = None
    width: int | None = None
    depth: int | None = None
    heads: int | None = None
    activation: Literal["gelu", "quick_gelu"] = "gelu"
    drop_path: float = 0.0


@dataclass(frozen=True)
class Text:
    """The causal text tower."""

    vocabulary: int = 49_408
    context: int = 77
    width: int = 512
    depth: int = 12
    heads: int = 8
    activation: Literal["gelu", "quick_gelu"] = "gelu"


@dataclass(frozen=True)
class Model:
    vision: Vision = field(default_factory=Vision)
    text: Text = field(default_factory=Text)
    embedding: int = 512
    """Width of every embedding, key, value and decoder token."""
    pooling_heads: int = 8
    """Heads of the text-conditioned pooling; 0 builds none."""
    tie_key_value: bool = False
    """One projection for patch keys and values, as FLAIR has."""
    decoder_depth: int = 8
    """Layers of the decoder; 0 builds none."""
    decoder_heads: int = 8
    init_logit_scale: float = math.log(1 / 0.07)
    init_logit_bias: float = -10.0


# --- data -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Views:
    """The crops of one image. The global view's size is the vision tower's."""

    num_global: int = 1
    global_scale: tuple[float, float] = (0.9, 1.0)
    num_local: int = 6
    local_size: int = 96
    local_scale: tuple[float, float] = (0.05, 0.4)
    aspect: tuple[float, float] = (0.75, 4 / 3)
    flip: float = 0.5
    jitter: tuple[float, float, float, float] = (0.4, 0.4, 0.2, 0.1)
    """Brightness, contrast, saturation, hue."""
    jitter_probability: float = 0.8
    grey: float = 0.2
    blur: float = 0.5


@dataclass(frozen=True)
class Data:
    train: tuple[str, ...] = ()
    """Shards: paths, globs, brace ranges or URLs; `a::b` joins sources as one more entry would."""
    weights: tuple[float, ...] = ()
    """Share of each entry of `train` in the stream; empty: each sample once per epoch."""
    held_out: tuple[str, ...] = ()
    captions: int = 8
    """K: texts drawn per image."""
    max_sentences: int = 3
    caption_weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    """Weight of a sentence from a raw, a short and a long caption."""
    min_box_score: float = 0.3
    min_box_visible: float = 0.5
    views: Views = field(default_factory=Views)
    workers: int = 8
    window_shards: int = 8
    """Shards read side by side, among which samples are shuffled."""
    photometrics: Literal["device", "worker"] = "device"
    max_bad_share: float = 0.01
    """Above this share of substituted samples the run stops and says why."""
    cache_gigabytes: float = 50.0
    """Local room for shards read from elsewhere."""


# --- objective ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weights:
    """w_task: 0 leaves a term out, and nothing of it is built."""

    ret: float = 1.0
    cap: float = 2.0
    ref: float = 1.0
    grd: float = 1.0
    vqa: float = 1.0
    sd: float = 1.0


@dataclass(frozen=True)
class Retrieval:
    text_agnostic: bool = True
    text_conditioned: bool = True
    negatives: Literal["one", "all"] = "one"
    """Captions of every other image that an image is text-conditioned on."""
    equal_texts: Literal["negative", "ignore"] = "negative"


@dataclass(frozen=True)
class Distill:
    text_agnostic: bool = True
    text_conditioned: bool = True
    prototypes: int = 65_536
    prototype_norm: Literal["none", "unit"] = "none"
    teacher_temperature: float = 0.04
    student_temperature: float = 0.1
    momentum: float = 0.996
    centre_momentum: float = 0.9
    queries: Literal["shared", "all"] = "shared"
    normalize: bool = True
    text_grad: bool = False


@dataclass(frozen=True)
class Objective:
    weights: Weights = field(default_factory=Weights)
    retrieval: Retrieval = field(default_factory=Retrieval)
    distill: Distill = field(default_factory=Distill)
    balance: Literal["learned", "uniform"] = "learned"


# --- optimisation and run -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Optim:
    lr: float = 5e-4
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    weight_decay: float = 0.5
    scalar_lr: float = 5e-4
    """For the six σ, the logit scale and bias. A σ must be able to travel: aim at a sum of at least 5 over the run."""
    warmup_steps: int = 2_000
    final_lr: float = 0.0
    """The cosine ends at this share of `lr`."""
    clip_norm: float = 0.0
    """Largest gradient norm, σ excluded; 0 clips nothing."""
    layer_decay: float = 1.0
    """Learning rate of each layer relative to the one above it, for fine-tuning."""
    lock: Literal["none", "vision", "text", "both"] = "none"
    fit_scalars_steps: int = 0
    """First steps with frozen towers that fit scale and bias alone, when starting from softmax-trained weights."""


@dataclass(frozen=True)
class Run:
    name: str = ""
    batch: int = 2_560
    """Images per step over all ranks and micro-batches."""
    micro_batch: int = 0
    """Images per rank held at once; 0 takes the rank's whole share."""
    epochs: float = 35.0
    samples: int = 0
    """Length of the run in samples; 0 means `epochs` passes over the data."""
    seed: int = 0
    precision: Literal["bf16", "fp32"] = "bf16"
    compile: bool = True
    checkpoint_activations: bool = False
    layout: Literal["ddp", "fsdp"] = "ddp"
    deterministic: bool = False
    save_every_steps: int = 0
    save_every_samples: int = 0
    save_every_minutes: float = 15.0
    keep_last: int = 2
    keep_best: int = 1
    evaluate_every_steps: int = 0
    """Held-out retrieval this often; 0 only at the end."""
    alarm_drop: float = 0.05
    """Fall of held-out recall@1 below its best that raises the alarm."""
    log_every_steps: int = 1
    sinks: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ("tensorboard",)
    wise_ft: float = 1.0
    """Share of the trained weights in the final average with the starting ones (WiSE-FT); 1 averages nothing."""


@dataclass(frozen=True)
class Config:
    recipe: str = ""
    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    objective: Objective = field(default_factory=Objective)
    optim: Optim = field(default_factory=Optim)
    run: Run = field(default_factory=Run)

    @property
    def terms(self) -> tuple[str, ...]:
        """The active terms, in the paper's order."""
        return tuple(name for name, weight in dataclasses.asdict(self.objective.weights).items() if weight > 0)

    @property
    def decoder_tasks(self) -> tuple[str, ...]:
        return tuple(term for term in self.terms if term not in ("ret", "sd"))

    @property
    def pools_text(self) -> bool:
        """Whether any active term looks at images through texts."""
        ret, sd = self.objective.retrieval, self.objective.distill
        return ("ret" in self.terms and ret.text_conditioned) or ("sd" in self.terms and sd.text_conditioned)


# --- from words to a tree and back ----------------------------------------------------------------------------------


def override(config: Config, words: Sequence[str]) -> Config:
    """`config` with `optim.lr=1e-3`-like words applied: typed, and with the nearest name when one is unknown."""
    import tyro

    flags: list[str] = []
    known = dict(flatten(config))
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"{word!r}: expected key=value, such as optim.lr=1e-3")
        if key not in known:
            inside = [name for name in known if name.startswith(key + ".")]
            near = inside or difflib.get_close_matches(key, known, n=3, cutoff=0.5) or _same_leaf(key, known)
            raise ConfigError(f"{key!r} is no setting; nearest: {', '.join(near[:6]) or 'none'}")
        flags += _flag(key, known[key], value)
    if not flags:
        return validate(config)
    return validate(_typed(tyro, config, flags))


def _same_leaf(key: str, known: Mapping[str, Any]) -> list[str]:
    leaf = key.rsplit(".", 1)[-1]
    leaves = difflib.get_close_matches(leaf, {name.rsplit(".", 1)[-1] for name in known}, n=3)
    return [name for name in known if name.rsplit(".", 1)[-1] in leaves]


def _flag(key: str, default: Any, value: str) -> list[str]:
    if isinstance(default, tuple):
        return [f"--{key}", *value.strip("()[]").replace(",", " ").split()]
    return [f"--{key}", value]


def _typed(tyro: Any, config: Config, flags: list[str]) -> Config:
    import contextlib
    import io
    import re

    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            return tyro.cli(
                Config, args=flags, default=config, config=(tyro.conf.FlagConversionOff, tyro.conf.AvoidSubcommands), use_underscores=True
            )
    except SystemExit as error:
        message = re.sub(r"[\u2500-\u257f\s]+", " ", re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())).strip()
        raise ConfigError(message) from error


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf as (dotted name, value)."""
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            yield from flatten(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, value


def to_yaml(config: Config) -> str:
    """The resolved tree as YAML that `from_yaml` reads back to an equal one."""
    return yaml.safe_dump(_plain({"schema": SCHEMA_VERSION, **dataclasses.asdict(config)}), sort_keys=False)


def from_yaml(text: str, where: str = "config") -> Config:
    """Read a tree written by `to_yaml`, or by hand: unknown keys and wrong types are errors that name the field."""
    found = yaml.safe_load(text)
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: expected a mapping of settings, found {type(found).__name__}")
    schema = found.pop("schema", SCHEMA_VERSION)
    if schema != SCHEMA_VERSION:
        raise ConfigError(f"{where}: schema {schema} was written by another version; this one reads {SCHEMA_VERSION}")
    return override(Config(), [f"{key}={_word(value)}" for key, value in _leaves(found)])


def _leaves(found: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _word(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


# --- what must hold -------------------------------------------------------------------------------------------------


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
    _require(model.text.width % model.text.heads == 0, "model.text.heads", model.text.heads, "a divisor of model.text.width")
    _require(data.views.num_global >= 1, "data.views.num_global", data.views.num_global, "1 or more")
    for name, (low, high) in {"global_scale": data.views.global_scale, "local_scale": data.views.local_scale}.items():
        _require(0 < low <= high <= 1, f"data.views.{name}", (low, high), "0 < low ≤ high ≤ 1")
    _require(min(data.caption_weights) >= 0 < max(data.caption_weights), "data.caption_weights", data.caption_weights, "three shares, not all 0")
    _require(not data.weights or len(data.weights) == len(data.train), "data.weights", data.weights, "one weight per entry of data.train")
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


def _validate_parts(config: Config) -> None:
    model, objective, terms = config.model, config.objective, config.terms
    if config.pools_text:
        _require(model.pooling_heads > 0, "model.pooling_heads", model.pooling_heads, "1 or more, for text-conditioned terms")
        _require(model.embedding % model.pooling_heads == 0, "model.pooling_heads", model.pooling_heads, "a divisor of model.embedding")
    if config.decoder_tasks:
        allowed = f"1 or more, for {', '.join(config.decoder_tasks)}"
        _require(model.decoder_depth > 0, "model.decoder_depth", model.decoder_depth, allowed)
        _require(model.embedding % model.decoder_heads == 0, "model.decoder_heads", model.decoder_heads, "a divisor of model.embedding")
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
    return validate(replace(config, model=model, data=data))
