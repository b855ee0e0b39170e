"""CLIP's names for tensors and ours: one table, read in both directions.

OpenAI's CLIP, open_clip, FLAIR and COSMOS share it; they differ in what stands around the towers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from goldiclip.config import Model, Text, Vision
from goldiclip.model.weights import Source, WeightsError, square_grid

Turn = Literal["", "transpose", "lead1", "lead2", "scalar"]

VISION = "image.vision.tower."

# timm towers whose MLP is not four times as wide, by that width.
WIDER_TOWERS = {(1408, 6144): "vit_giant_patch14_clip_224", (1664, 8192): "vit_gigantic_patch14_clip_224"}

BLOCK = {
    "ln_1.weight": "norm1.weight",
    "ln_1.bias": "norm1.bias",
    "attn.in_proj_weight": "attn.qkv.weight",
    "attn.in_proj_bias": "attn.qkv.bias",
    "attn.out_proj.weight": "attn.proj.weight",
    "attn.out_proj.bias": "attn.proj.bias",
    "ln_2.weight": "norm2.weight",
    "ln_2.bias": "norm2.bias",
    "mlp.c_fc.weight": "mlp.fc1.weight",
    "mlp.c_fc.bias": "mlp.fc1.bias",
    "mlp.c_proj.weight": "mlp.fc2.weight",
    "mlp.c_proj.bias": "mlp.fc2.bias",
}


@dataclass(frozen=True)
class Row:
    theirs: str
    ours: str
    turn: Turn = ""

    def to_ours(self, tensor: Tensor) -> Tensor:
        if self.turn == "transpose":
            return tensor.T
        if self.turn in ("lead1", "lead2"):
            return tensor[(None,) * int(self.turn[-1])]
        return tensor.reshape(1) if self.turn == "scalar" else tensor

    def to_theirs(self, tensor: Tensor) -> Tensor:
        if self.turn == "transpose":
            return tensor.T.contiguous()
        if self.turn in ("lead1", "lead2"):
            return tensor[(0,) * int(self.turn[-1])]
        return tensor.reshape(()) if self.turn == "scalar" else tensor


def vision_rows(depth: int) -> Iterator[Row]:
    yield Row("visual.class_embedding", VISION + "cls_token", "lead2")
    yield Row("visual.positional_embedding", VISION + "pos_embed", "lead1")
    yield Row("visual.conv1.weight", VISION + "patch_embed.proj.weight")
    for theirs, ours in (("ln_pre", "norm_pre"), ("ln_post", "norm")):
        for end in ("weight", "bias"):
            yield Row(f"visual.{theirs}.{end}", f"{VISION}{ours}.{end}")
    yield from _blocks("visual.transformer.resblocks", VISION + "blocks", depth)


def text_rows(depth: int) -> Iterator[Row]:
    yield Row("token_embedding.weight", "text.token_embedding.weight")
    yield Row("positional_embedding", "text.position_embedding")
    for end in ("weight", "bias"):
        yield Row(f"ln_final.{end}", f"text.norm.{end}")
    yield from _blocks("transformer.resblocks", "text.blocks", depth)


def scalar_rows(has_bias: bool = True) -> Iterator[Row]:
    yield Row("logit_scale", "scale.scale", "scalar")
    if has_bias:
        yield Row("logit_bias", "scale.bias", "scalar")


def projection_rows(image: str = "visual.proj", text: str = "text_projection") -> Iterator[Row]:
    yield Row(image, "image.key.weight", "transpose")
    yield Row(text, "text.projection.weight", "transpose")


def _blocks(theirs: str, ours: str, depth: int) -> Iterator[Row]:
    for block in range(depth):
        for their_end, our_end in BLOCK.items():
            yield Row(f"{theirs}.{block}.{their_end}", f"{ours}.{block}.{our_end}")


def take(source: Source, rows: Iterator[Row]) -> dict[str, Tensor]:
    """The rows' tensors under our names."""
    return {row.ours: row.to_ours(source.take(row.theirs)) for row in rows}


def take_pooling(source: Source) -> dict[str, Tensor]:
    """FLAIR's `visual_proj`: torch's MultiheadAttention, whose three in-projections are one tensor."""
    taken: dict[str, Tensor] = {}
    for end in ("weight", "bias"):
        parts = source.take(f"visual_proj.attn.in_proj_{end}").chunk(3)
        taken |= {f"pooling.{name}.{end}": part for name, part in zip(("query", "key", "value"), parts, strict=True)}
        taken[f"pooling.out.{end}"] = source.take(f"visual_proj.attn.out_proj.{end}")
        for theirs, ours in (("ln_q", "norm_query"), ("ln_k", "norm_key"), ("ln_v", "norm_value")):
            taken[f"pooling.{ours}.{end}"] = source.take(f"visual_proj.{theirs}.{end}")
    return taken


def read_sizes(
    source: Source, *, vision_heads: int, text_heads: int, activation: str, image_projection: str = "visual.proj"
) -> Model:
    """The configuration that the tensors imply; heads and activation are what tensors do not reveal."""
    if "visual.conv1.weight" not in source or "visual.class_embedding" not in source:
        raise WeightsError(
            f"{source.what}: no CLIP vision transformer here (no visual.conv1.weight or class embedding)"
        )
    width, _, patch, _ = source.peek("visual.conv1.weight").shape
    side, _ = square_grid(len(source.peek("visual.positional_embedding")) - 1, source.what)
    context, text_width = source.peek("positional_embedding").shape
    for name, heads, of in (("vision_heads", vision_heads, width), ("text_heads", text_heads, text_width)):
        if heads < 1 or of % heads:
            raise WeightsError(f"{source.what}: {name} is {heads}; allowed: a divisor of the tower's width, {of}")
    return Model(
        vision=Vision(
            name=_tower_name(source, width),
            image_size=side * patch,
            patch_size=patch,
            width=width,
            depth=source.count("visual.transformer.resblocks"),
            heads=vision_heads,
            activation=activation,  # type: ignore[arg-type]
        ),
        text=Text(
            vocabulary=len(source.peek("token_embedding.weight")),
            context=context,
            width=text_width,
            depth=source.count("transformer.resblocks"),
            heads=text_heads,
            activation=activation,  # type: ignore[arg-type]
        ),
        embedding=source.peek(image_projection).shape[1],
        pooling_heads=0,
        tie_key_value=True,
        decoder_depth=0,
    )


def _tower_name(source: Source, width: int) -> str:
    hidden = len(source.peek("visual.transformer.resblocks.0.mlp.c_fc.weight"))
    if hidden == 4 * width:
        return "vit_base_patch16_clip_224"
    if (width, hidden) not in WIDER_TOWERS:
        raise WeightsError(f"{source.what}: no tower is known of width {width} with an MLP of {hidden}")
    return WIDER_TOWERS[width, hidden]
