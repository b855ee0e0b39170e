"""The tree of settings. Defaults are the paper's."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

CLIP_TOKENS = 49_408  # of CLIP's tokenizer: single bytes, merged tokens, two marks
BYTE_TOKENS = 512  # within a word and ending it

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

    vocabulary: int = CLIP_TOKENS
    tokens: tuple[int, ...] = ()
    """The merged tokens it knows, by CLIP's ids, beside single bytes and the two marks; empty: all."""
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
    """Shards: paths, globs, brace ranges or URLs; `a::b` names two sources, as two entries would."""
    weights: tuple[float, ...] = ()
    """Share of each source of `train` in the stream; empty: each sample once per epoch."""
    held_out: tuple[str, ...] = ()
    vocabulary: Literal["clip", "corpus"] = "clip"
    """`corpus`: a new run's text tower and head know the tokens its training texts need, and no others."""
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

    @property
    def sources(self) -> tuple[str, ...]:
        """What `train` names, `a::b` taken apart."""
        return split_sources(self.train)


def split_sources(entries: Iterable[str]) -> tuple[str, ...]:
    """Every source that these entries name: `a::b` names two."""
    parts = (part.strip() for entry in entries for part in re.split(r"(?<!:)::(?!:)", entry))
    return tuple(part for part in parts if part)


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
    method: Literal["adamw", "muon"] = "adamw"
    """`adamw` is the paper's. `muon` moves the matrices inside towers by orthogonal momentum and the rest by AdamW."""
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
    fp8: bool = False
    """The products inside the image tower's blocks in 8 bits, where bf16 is on and sizes are multiples of 16."""
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


def flatten(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf as (dotted name, value)."""
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if dataclasses.is_dataclass(value):
            yield from flatten(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, value
