"""The vision tower: any timm ViT, and the projections of its tokens into the space of texts."""

from __future__ import annotations

from typing import Any

import timm
import torch
import torch.nn.functional as F
from timm.layers.attention import Attention
from timm.layers.patch_embed import PatchEmbed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from goldiclip.config import ConfigError, Vision
from goldiclip.model.layers import Gelu, in_stream, view_attention


class ViewAttention(Attention):
    """timm's attention where nothing but products and a softmax is in it, with a kernel of its own for small views."""

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        if attn_mask is not None or is_causal:
            return super().forward(x, attn_mask, is_causal)
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))
        return self.proj(view_attention(qkv).flatten(2))

    @classmethod
    def takes(cls, attention: nn.Module) -> bool:
        """Whether timm's attention has none of its options: norms of queries and keys, gates, dropout."""
        if type(attention) is not Attention:
            return False
        extras = (getattr(attention, name, None) for name in ("q_norm", "k_norm", "norm", "gate"))
        dropped = attention.attn_drop.p + attention.proj_drop.p
        return not dropped and all(extra is None or isinstance(extra, nn.Identity) for extra in extras)


class VisionTower(nn.Module):
    """A timm ViT without its pooling and classifier: images to (summary, patches), final LayerNorm on every token.

    The summary is the class token, or the mean of the patches where there is none; register tokens are neither.
    Images of any size that the patch divides are welcome: the position grid is resized (bicubic, antialiased).
    """

    def __init__(self, config: Vision) -> None:
        super().__init__()
        self.tower: Any = create_tower(config)
        self.width: int = self.tower.embed_dim
        self.patch: tuple[int, int] = tuple(self.tower.patch_embed.feat_ratio(as_scalar=False))
        self.num_prefix: int = self.tower.num_prefix_tokens
        self.has_class_token: bool = getattr(self.tower, "cls_token", None) is not None

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The summary (B, width) and the patches (B, L, width) of images (B, 3, H, W)."""
        self.grid(images)
        tokens = self._tokens(images) if type(self.tower) is VisionTransformer else self.tower.forward_features(images)
        patches = tokens[:, self.num_prefix :]
        return (tokens[:, 0] if self.has_class_token else patches.mean(1)), patches

    def grid(self, images: Tensor) -> tuple[int, int]:
        """Rows and columns of patches that these images have."""
        if images.dim() != 4 or images.shape[1] != 3:
            raise ValueError(f"images are {tuple(images.shape)}; expected (B, 3, height, width)")
        (height, width), (rows, columns) = images.shape[2:], self.patch
        if height % rows or width % columns:
            raise ValueError(f"images of {height}×{width} do not divide into {rows}×{columns} patches: resize or crop")
        return height // rows, width // columns

    def _tokens(self, images: Tensor) -> Tensor:
        """timm's `forward_features`, with positions resized in their own precision: timm's detour through float32
        would make float64 gradients depend on how images are split over ranks."""
        tower = self.tower
        tokens = in_stream(tower.norm_pre(tower.patch_drop(self._with_positions(self._embedded(images)))))
        for block in tower.blocks:
            if tower.grad_checkpointing and self.training:
                tokens = checkpoint(block, tokens, use_reentrant=False)
            else:
                tokens = block(tokens)
        return tower.norm(tokens)

    def _embedded(self, images: Tensor) -> Tensor:
        """(B, rows, columns, width): a convolution whose windows do not overlap is a product, and far faster as one."""
        embed = self.tower.patch_embed
        convolution = embed.proj
        is_product = type(embed) is PatchEmbed and convolution.kernel_size == convolution.stride == self.patch
        if not is_product or convolution.padding != (0, 0) or convolution.groups != 1:
            return embed(images)
        (rows, columns), (height, width) = self.grid(images), self.patch
        windows = images.unflatten(3, (columns, width)).unflatten(2, (rows, height)).permute(0, 2, 4, 1, 3, 5)
        return embed.norm(F.linear(windows.flatten(3), convolution.weight.flatten(1), convolution.bias))

    def _with_positions(self, patches: Tensor) -> Tensor:
        tower, grid = self.tower, (patches.shape[1], patches.shape[2])
        tokens = (tower.cls_token, tower.reg_token)
        prefix = [token.expand(patches.shape[0], -1, -1) for token in tokens if token is not None]
        patches = patches.flatten(1, 2)
        if tower.pos_embed is None:
            return torch.cat([*prefix, patches], 1)
        num_placed = 0 if tower.no_embed_class else self.num_prefix
        positions = resize_positions(tower.pos_embed, tower.patch_embed.grid_size, grid, num_placed)
        if tower.no_embed_class:
            return tower.pos_drop(torch.cat([*prefix, patches + positions], 1))
        return tower.pos_drop(torch.cat([*prefix, patches], 1) + positions)


class ImageEncoder(nn.Module):
    """Tower and projections: images to the text-agnostic embedding, patch keys and patch values.

    With `tie_key_value`, or when nothing pools, the values are the keys and there is no projection for them.
    """

    def __init__(self, config: Vision, embedding: int, has_values: bool) -> None:
        super().__init__()
        self.vision = VisionTower(config)
        self.key = nn.Linear(self.vision.width, embedding, bias=False)
        self.value = nn.Linear(self.vision.width, embedding, bias=False) if has_values else None

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Embedding (B, D), keys (B, L, D), values (B, L, D)."""
        summary, patches = self.vision(images)
        keys = self.key(patches)
        return self.key(summary), keys, keys if self.value is None else self.value(patches)


def create_tower(config: Vision) -> Any:
    """timm's model with the configured sizes, without head, pooling or pretrained weights."""
    overrides = {
        "patch_size": config.patch_size,
        "embed_dim": config.width,
        "depth": config.depth,
        "num_heads": config.heads,
        "act_layer": None if config.activation == "gelu" else config.activation,  # "gelu": whatever the name says
    }
    options: dict[str, Any] = {key: value for key, value in overrides.items() if value is not None}
    if not timm.is_model(config.name):
        near = timm.list_models(f"*{config.name.split('.')[0][:12]}*")[:4] or ["vit_base_patch16_clip_224"]
        raise ConfigError(f"model.vision.name is {config.name!r}; allowed: a timm ViT, such as {', '.join(near)}")
    try:
        tower = timm.create_model(
            config.name,
            pretrained=False,
            num_classes=0,
            global_pool="",
            img_size=config.image_size,
            dynamic_img_size=True,
            drop_path_rate=config.drop_path,
            **options,
        )
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"model.vision.name {config.name!r} cannot be built with {options}: {error}") from error
    return _checked(tower, config)


def _checked(tower: Any, config: Vision) -> Any:
    """A ViT whose every token passes a final norm, without parts that nothing would train."""
    parts = ("patch_embed", "blocks", "norm", "num_prefix_tokens", "embed_dim")
    missing = [name for name in parts if not hasattr(tower, name)]
    if missing:
        raise ConfigError(f"model.vision.name {config.name!r} is not a plain ViT: it has no {', '.join(missing)}")
    if any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in tower.modules()):
        raise ConfigError(f"model.vision.name {config.name!r} has batch norms: its numbers would depend on the layout")
    patch = tower.patch_embed.feat_ratio()
    if config.image_size % patch:
        raise ConfigError(f"model.vision.image_size is {config.image_size}; allowed: a multiple of the patch, {patch}")
    for name in ("attn_pool", "fc_norm", "head"):
        part = getattr(tower, name, None)
        if part is not None and any(True for _ in part.parameters()):
            setattr(tower, name, nn.Identity())
    for part in tower.modules():
        if ViewAttention.takes(part):
            part.__class__ = ViewAttention
        activation = getattr(part, "act", None)
        if isinstance(activation, nn.GELU) and activation.approximate == "none":
            part.act = Gelu()
    return tower


def resize_positions(positions: Tensor, old: tuple[int, int], new: tuple[int, int], num_prefix: int) -> Tensor:
    """A position grid (1, prefix + rows·columns, width) for another grid: bicubic and antialiased, prefix untouched."""
    if tuple(old) == tuple(new):
        return positions
    prefix, grid = positions[:, :num_prefix], positions[:, num_prefix:]
    grid = grid.to(torch.promote_types(grid.dtype, torch.float32)).unflatten(1, tuple(old)).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=tuple(new), mode="bicubic", antialias=True)
    return torch.cat([prefix, grid.permute(0, 2, 3, 1).flatten(1, 2).to(positions.dtype)], 1)
