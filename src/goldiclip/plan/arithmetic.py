"""Parameters, FLOPs and tokens of each part of a model, per image, from its configuration.

A multiply-add is two FLOPs. Only matrix products are counted, and attention; norms, GELU and softmax are traffic, not
arithmetic. A trained part costs three forward passes (one forward, two backward), a frozen one costs one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from goldiclip.config import Config, ConfigError, Vision

# Width, depth and MLP width of timm's ViT families.
FAMILIES = {
    "tiny": (192, 12, 768),
    "small": (384, 12, 1536),
    "base": (768, 12, 3072),
    "large": (1024, 24, 4096),
    "so400m": (1152, 27, 4304),
    "huge": (1280, 32, 5120),
    "giant": (1408, 40, 6144),
    "gigantic": (1664, 48, 8192),
}


@dataclass(frozen=True, slots=True)
class Lengths:
    """Mean tokens of texts, start and end included; by default those of DreamLIP's captions and of our prompts."""

    caption: float = 28.0
    cap: float = 22.0
    ref: float = 28.0
    grd: float = 34.0
    vqa: float = 18.0


@dataclass(frozen=True, slots=True)
class Part:
    """One part's cost for one image."""

    name: str
    parameters: int
    flops: float  # of one forward pass
    passes: int  # 3 when trained, 1 when frozen
    width: int = 0
    token_layers: float = 0.0  # tokens × layers: what is kept for the backward pass, and moved through memory
    layers: int = 1  # launched one after the other

    @property
    def step_flops(self) -> float:
        return self.passes * self.flops


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers of a vision tower."""

    width: int
    depth: int
    mlp: int
    patch: int

    def tokens(self, size: int) -> int:
        return (size // self.patch) ** 2 + 1


def vision_sizes(vision: Vision) -> Sizes:
    """From the configured numbers, and from timm's name for what they leave open."""
    family = next((sizes for name, sizes in FAMILIES.items() if f"_{name}_" in f"_{vision.name}_"), None)
    patch = re.search(r"patch(\d+)", vision.name)
    if family is None and not (vision.width and vision.depth):
        raise ConfigError(
            f"model.vision.name is {vision.name}, whose sizes the plan does not know; "
            f"say model.vision.width and depth, or use a family it knows: {', '.join(FAMILIES)}"
        )
    width, depth, mlp = family or (0, 0, 0)
    width_now = vision.width or width
    return Sizes(
        width=width_now,
        depth=vision.depth or depth,
        mlp=mlp if width_now == width else 4 * width_now,
        patch=vision.patch_size or (int(patch[1]) if patch else 16),
    )


def parts_of(config: Config, lengths: Lengths | None = None) -> list[Part]:
    """Every part that the active terms compute, in the order of a step."""
    lengths = lengths or Lengths()
    parts = [*_vision(config), *_text(config, lengths)]
    if config.decoder_tasks:
        parts += _decoder(config, lengths)
    if "ret" in config.terms:
        parts.append(_scoring(config))
    if "sd" in config.terms:
        parts += _distillation(config)
    return parts


def flops_per_image(config: Config, lengths: Lengths | None = None) -> float:
    """Model FLOPs of one training step per image: what MFU is measured by."""
    return sum(part.step_flops for part in parts_of(config, lengths))


def transformer(tokens: float, context: float, width: int, depth: int, mlp: int) -> float:
    """FLOPs of `depth` blocks over `tokens`, each of which attends to `context` tokens on average."""
    products = 2 * tokens * (4 * width**2 + 2 * width * mlp)
    return depth * (products + 4 * tokens * context * width)


def block_parameters(width: int, mlp: int) -> int:
    return 4 * width**2 + 2 * width * mlp + 9 * width + mlp


def _vision(config: Config) -> list[Part]:
    """Student on the global view, student on the local ones, teacher on the global ones; projections included."""
    model, views = config.model, config.data.views
    sizes = vision_sizes(model.vision)
    tied = model.tie_key_value or not model.pooling_heads
    per_patch = 2 * 3 * sizes.patch**2 * sizes.width + 2 * sizes.width * model.embedding * (1 if tied else 2)

    def forward(size: int) -> float:
        tokens = sizes.tokens(size)
        return transformer(tokens, tokens, sizes.width, sizes.depth, sizes.mlp) + tokens * per_patch

    positions, depth = sizes.tokens(model.vision.image_size), sizes.depth
    parameters = sizes.depth * block_parameters(sizes.width, sizes.mlp) + positions * sizes.width
    parameters += 3 * sizes.patch**2 * sizes.width + sizes.width * model.embedding * (1 if tied else 2)
    found = [
        Part(
            "vision", parameters, forward(model.vision.image_size), 3, sizes.width, positions * sizes.depth, sizes.depth
        )
    ]
    if "sd" in config.terms:
        tokens = views.num_local * sizes.tokens(views.local_size)
        local = views.num_local * forward(views.local_size)
        found.append(Part("local views", 0, local, 3, sizes.width, tokens * depth, depth))
        teacher, tokens = views.num_global * forward(model.vision.image_size), views.num_global * positions
        found.append(Part("teacher", parameters, teacher, 1, sizes.width, tokens * depth, depth))
    return found


def _text(config: Config, lengths: Lengths) -> list[Part]:
    text = config.model.text
    parameters = text.depth * block_parameters(text.width, 4 * text.width)
    parameters += (text.vocabulary + text.context) * text.width + text.width * config.model.embedding

    def forward(tokens: float, length: float) -> float:
        return transformer(tokens, length / 2, text.width, text.depth, 4 * text.width) + (
            2 * tokens * text.width * config.model.embedding
        )

    captions = config.data.captions * lengths.caption
    read = forward(captions, lengths.caption)
    found = [Part("captions", parameters, read, 3, text.width, captions * text.depth, text.depth)]
    if tasks := _task_tokens(config, lengths):
        mean = tasks / len(config.decoder_tasks)
        found.append(Part("task texts", 0, forward(tasks, mean), 3, text.width, tasks * text.depth, text.depth))
    return found


def _task_tokens(config: Config, lengths: Lengths) -> float:
    return float(sum(getattr(lengths, task) for task in config.decoder_tasks))


def _decoder(config: Config, lengths: Lengths) -> list[Part]:
    """Blocks with self- and cross-attention; keys and values of the patches once per image; the vocabulary head."""
    model = config.model
    width, depth = model.embedding, model.decoder_depth
    patches = vision_sizes(model.vision).tokens(model.vision.image_size) - 1
    tokens = _task_tokens(config, lengths)
    mean = tokens / len(config.decoder_tasks)
    blocks = transformer(tokens, mean / 2, width, depth, 4 * width)
    cross = depth * (2 * tokens * 2 * width**2 + 4 * tokens * patches * width + 2 * patches * 2 * width**2)
    parameters = depth * (block_parameters(width, 4 * width) + 4 * width**2 + 8 * width)
    targets = 0.6 * tokens  # the share of a task text that is target
    head = 2 * targets * width * model.text.vocabulary
    return [
        Part("decoder", parameters, blocks + cross, 3, width, (tokens * 1.5 + patches * 0.2) * depth, depth),
        Part("vocabulary head", width * model.text.vocabulary, head, 3, width),
    ]


def _scoring(config: Config) -> Part:
    """L_ret: the image against every caption; through its own captions and one of every other image."""
    model, retrieval, images = config.model, config.objective.retrieval, config.run.batch
    width, captions = model.embedding, config.data.captions
    flops = 2.0 * images * captions * width if retrieval.text_agnostic else 0.0
    parameters = 0
    if retrieval.text_conditioned:
        patches = vision_sizes(model.vision).tokens(model.vision.image_size) - 1
        texts = captions + (images - 1) * (captions if retrieval.negatives == "all" else 1)
        flops += 4 * texts * patches * width + 2 * texts * width**2  # attention, output projection
        flops += 4 * patches * width**2 + 2 * captions * width**2  # keys, values, own queries
        parameters = 4 * width**2 + 10 * width
    return Part("scoring", parameters, flops, 3, width)


def _distillation(config: Config) -> list[Part]:
    """L_sd: mean attention through the step's captions, then W and its cross-entropy."""
    distill, views, width = config.objective.distill, config.data.views, config.model.embedding
    sizes = vision_sizes(config.model.vision)
    pools = distill.text_agnostic + distill.text_conditioned
    flops = 0.0
    if distill.text_conditioned:
        queries = config.run.batch * (config.data.captions if distill.queries == "all" else 1)
        patches = sizes.tokens(views.local_size) - 1
        seen = 3 * views.num_local * patches + views.num_global * (sizes.tokens(config.model.vision.image_size) - 1)
        flops = 2 * queries * seen * width / 3  # the teacher's share runs once, the student's three times
    student, teacher = views.num_local * pools, views.num_global * pools
    logits = 2 * (student + teacher / 3) * width * distill.prototypes
    return [Part("prototypes", 2 * width * distill.prototypes, logits + flops, 3, width)]
