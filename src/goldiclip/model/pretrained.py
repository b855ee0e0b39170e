"""Models from others' weights, and ours for others.

`from_flair`, `from_open_clip`, `from_cosmos` and `from_timm` read sizes off the tensors, take what tensors do not
reveal as arguments, and print a report: what was loaded, what was initialised, what was left. With `config` they build
that model instead and fill what the weights have: the way to start a run from them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor, nn

from goldiclip.config import CLIP_TOKENS, Model
from goldiclip.model.clip_layout import (
    VISION,
    Row,
    projection_rows,
    read_sizes,
    scalar_rows,
    take,
    take_pooling,
    text_rows,
    vision_rows,
)
from goldiclip.model.folder import load_model, save_model
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.weights import Report, Show, Source, Weights, WeightsError, fill, read_weights

__all__ = ["from_cosmos", "from_flair", "from_open_clip", "from_timm", "load_model", "save_model", "to_open_clip"]


class Target(TypedDict, total=False):
    """What the weights go into: by default a model of their own sizes."""

    image_size: int | None  # other than theirs: the position grid is resized
    context: int | None  # other than theirs: the text positions are cut or stretched
    config: Model | None  # a whole model to fill as far as they reach
    seed: int  # for what they do not have
    show: Show  # what is done with the report; printed by default


NO_BIAS = "trained with a softmax, hence without a logit bias"


def from_flair(
    weights: Weights,
    *,
    vision_heads: int,
    text_heads: int,
    pooling_heads: int = 8,
    activation: str = "gelu",
    **target: Unpack[Target],
) -> GoldiCLIP:
    """FLAIR: CLIP towers, one projection for keys and values, text-conditioned pooling, scale and bias."""
    source = Source(_without_text_prefix(read_weights(weights)), "FLAIR weights")
    report = Report(source.what)
    sizes = read_sizes(
        source,
        vision_heads=vision_heads,
        text_heads=text_heads,
        activation=activation,
        image_projection="image_post.proj",
    )
    sizes = replace(sizes, pooling_heads=pooling_heads)
    tensors = _take_towers(source, sizes, "image_post.proj", "text_post.proj", report)
    tensors |= take_pooling(source)
    _finish(source, report)
    return _built(sizes, tensors, report, **target)


def from_open_clip(
    weights: Weights,
    *,
    vision_heads: int | None = None,
    text_heads: int | None = None,
    activation: str | None = None,
    **target: Unpack[Target],
) -> GoldiCLIP:
    """A CLIP of open_clip's or OpenAI's: a checkpoint, its tensors, or the model itself, which knows its heads and
    activation. Towers of another kind run through `goldiclip.model.encoders`."""
    source = Source(_without_text_prefix(read_weights(weights)), "open_clip weights")
    known = _asked(weights) if isinstance(weights, nn.Module) else {}
    return _from_clip(
        source,
        Report(source.what),
        vision_heads=vision_heads or known.get("vision_heads"),
        text_heads=text_heads or known.get("text_heads"),
        activation=activation or known.get("activation", "gelu"),
        **target,
    )


def from_cosmos(
    weights: Weights,
    *,
    vision_heads: int,
    text_heads: int,
    activation: str = "gelu",
    which: str = "student",
    **target: Unpack[Target],
) -> GoldiCLIP:
    """COSMOS: a CLIP whose cross-modal parts serve its training alone. `which` is "student" or "teacher"."""
    nest = None if which == "student" else which  # a student may also lie where any model does
    source = Source(_without_text_prefix(read_weights(weights, nest)), f"COSMOS {which} weights")
    report = Report(source.what)
    for prefix in ("image_token_mapping.", "text_token_mapping.", "visual.attn_cross_pool.", "text_attn_cross_pool."):
        source.leave(prefix, "cross-modal distillation, used in COSMOS's training alone", report)
    source.leave("distill_logit_scale", "cross-modal distillation, used in COSMOS's training alone", report)
    return _from_clip(
        source,
        report,
        vision_heads=vision_heads,
        text_heads=text_heads,
        activation=activation,
        **target,
    )


def from_timm(weights: Weights, config: Model, *, seed: int = 0, show: Show = print) -> GoldiCLIP:
    """The model of `config` with its vision tower from the timm model of the same name; all else is initialised."""
    source = Source(read_weights(weights), f"timm weights for {config.vision.name}")
    report = Report(source.what)
    model = GoldiCLIP(config, seed)
    names = {name for name, _ in model.image.vision.tower.named_parameters()}
    if "norm.weight" in names and "norm.weight" not in source and "fc_norm.weight" in source:
        report.notes.append("the norm that timm applies after averaging stands on every token here")
        source.tensors |= {f"norm.{end}": source.take(f"fc_norm.{end}") for end in ("weight", "bias")}
    for prefix in ("head.", "head_dist.", "attn_pool.", "fc_norm."):
        source.leave(prefix, "timm's pooling and classifier", report)
    missing = sorted(names - set(source.tensors))
    if missing:
        raise WeightsError(f"{source.what}: {len(missing)} tensors are missing, such as {', '.join(missing[:4])}")
    tensors = {VISION + name: source.take(name) for name in sorted(names)}
    persistent = {name for name, _ in model.image.vision.tower.named_buffers()}
    for name in persistent:
        source.leave(name, "computed here", report)
    source.finish()
    fill(model, tensors, report)
    show(report)
    return model


def to_open_clip(model: GoldiCLIP) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The text-agnostic encoder as open_clip's model configuration and state dict.

    Exact: open_clip's `visual.proj` is the key projection on the class token, behind the same final LayerNorm.
    """
    config, tower = model.config, model.image.vision.tower
    rows = [*vision_rows(len(tower.blocks)), *text_rows(config.text.depth), *projection_rows(), *scalar_rows()]
    state = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    _require_clip_structure(model, rows, state)
    heads = tower.blocks[0].attn.num_heads
    vision = {
        "image_size": config.vision.image_size,
        "patch_size": model.image.vision.patch[0],
        "width": model.image.vision.width,
        "layers": len(tower.blocks),
        "head_width": model.image.vision.width // heads,
        "mlp_ratio": tower.blocks[0].mlp.fc1.out_features / model.image.vision.width,
    }
    text = {
        "context_length": config.text.context,
        "vocab_size": config.text.vocabulary,
        "width": config.text.width,
        "heads": config.text.heads,
        "layers": config.text.depth,
    }
    cfg: dict[str, Any] = {
        "embed_dim": config.embedding,
        "vision_cfg": vision,
        "text_cfg": text,
        "init_logit_bias": -10.0,
    }
    if config.text.activation == "quick_gelu":
        cfg["quick_gelu"] = True
    return cfg, {row.theirs: row.to_theirs(state[row.ours]).clone() for row in rows}


# --- parts ----------------------------------------------------------------------------------------------------------


def _from_clip(
    source: Source,
    report: Report,
    *,
    vision_heads: int | None,
    text_heads: int | None,
    activation: str,
    **target: Unpack[Target],
) -> GoldiCLIP:
    if vision_heads is None or text_heads is None:
        raise WeightsError(
            f"{source.what}: tensors do not tell vision_heads and text_heads; pass them (CLIP: width / 64)"
        )
    sizes = read_sizes(source, vision_heads=vision_heads, text_heads=text_heads, activation=activation)
    tensors = _take_towers(source, sizes, "visual.proj", "text_projection", report)
    _finish(source, report)
    return _built(sizes, tensors, report, **target)


def _finish(source: Source, report: Report) -> None:
    """Set aside what CLIP's checkpoints hold beside weights; whatever is then left is an error."""
    for name in ("input_resolution", "context_length", "vocab_size", "attn_mask", "visual.attn_mask", "position_ids"):
        source.leave(name, "not a weight", report)
    source.finish()


def _take_towers(source: Source, sizes: Model, image: str, text: str, report: Report) -> dict[str, Tensor]:
    assert sizes.vision.depth is not None
    has_bias = "logit_bias" in source
    if not has_bias:
        report.notes.append(f"{NO_BIAS}: rankings are unaffected, sigmoid losses want it fitted first")
    if sizes.text.vocabulary != CLIP_TOKENS:
        report.notes.append(f"{sizes.text.vocabulary:,} tokens, not CLIP's {CLIP_TOKENS:,}: texts want their tokenizer")
    tensors = take(source, vision_rows(sizes.vision.depth)) | take(source, text_rows(sizes.text.depth))
    return tensors | take(source, projection_rows(image, text)) | take(source, scalar_rows(has_bias))


def _built(sizes: Model, tensors: dict[str, Tensor], report: Report, **target: Unpack[Target]) -> GoldiCLIP:
    config, image_size, context = target.get("config"), target.get("image_size"), target.get("context")
    if config is not None and (image_size or context):
        raise WeightsError(f"{report.source}: config has an image size and a context of its own; pass one or the other")
    if config is None:
        vision = replace(sizes.vision, image_size=image_size or sizes.vision.image_size)
        text = replace(sizes.text, context=context or sizes.text.context)
        bias = sizes.init_logit_bias if "scale.bias" in tensors else 0.0  # without one the logits stay the source's
        config = replace(sizes, vision=vision, text=text, init_logit_bias=bias)
    model = GoldiCLIP(config, target.get("seed", 0))
    if model.image.value is not None and sizes.tie_key_value and "pooling.key.weight" in tensors:
        tensors["image.value.weight"] = tensors["image.key.weight"]
        report.notes.append("one projection in the weights: keys and values both start from it")
    for name in [name for name in tensors if name.startswith("pooling.") and model.pooling is None]:
        report.left[name] = "the configuration has no pooling"
        del tensors[name]
    fill(model, tensors, report)
    target.get("show", print)(report)
    return model


def _without_text_prefix(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """open_clip's custom-text models keep the text tower under `text.`."""
    return {name.removeprefix("text."): tensor for name, tensor in tensors.items()}


def _asked(model: Any) -> dict[str, Any]:
    """Heads and activation of an open_clip model."""
    try:
        vision = model.visual.transformer.resblocks[0]
        text = (model.text if hasattr(model, "text") else model).transformer.resblocks[0]
        quick = type(vision.mlp.gelu).__name__ == "QuickGELU"
        _require_plain(model)
        return {
            "vision_heads": vision.attn.num_heads,
            "text_heads": text.attn.num_heads,
            "activation": "quick_gelu" if quick else "gelu",
        }
    except AttributeError as error:
        raise WeightsError(
            f"this open_clip model is not of two plain transformers ({error}): see encoders.OpenClip"
        ) from error


def _require_plain(model: Any) -> None:
    """What tensors do not show and we do not compute: the wrong kind would load, and then embed wrongly."""
    visual, text = model.visual, getattr(model, "text", model)
    found = {
        "the class token is the image": visual.pool_type == "tok" and not visual.final_ln_after_pool,
        # CLIP's EOT; an "eos" of any other id comes of a tokenizer that is not CLIP's
        "the token of the highest id is the text": getattr(text, "text_pool_type", getattr(text, "pool_type", ""))
        == "argmax",
        "texts are read causally": text.attn_mask is not None,
        "LayerNorm's eps is 1e-5": visual.ln_post.eps == text.ln_final.eps == 1e-5,
    }
    if wrong := [fact for fact, holds in found.items() if not holds]:
        raise WeightsError(f"open_clip weights: here {'; '.join(wrong)}, in this model not so: see encoders.OpenClip")


def _require_clip_structure(model: GoldiCLIP, rows: list[Row], state: dict[str, Tensor]) -> None:
    wanted = {row.ours for row in rows}
    encoder = {name for name in state if name.startswith((VISION, "text."))}
    beyond, missing = sorted(encoder - wanted), sorted(wanted - set(state))
    if beyond or missing:
        said = [f"it has {', '.join(beyond[:3])}"] * bool(beyond) + [f"it lacks {', '.join(missing[:3])}"] * bool(
            missing
        )
        raise WeightsError(
            f"{model.config.vision.name} is not of CLIP's structure: {'; '.join(said)}: open_clip cannot hold it"
        )
    activation = model.image.vision.tower.blocks[0].mlp.act
    quick = "quick" in type(activation).__name__.lower()
    if quick != (model.config.text.activation == "quick_gelu"):
        raise WeightsError(
            "the towers' activations differ, and an open_clip model has one: gelu or quick_gelu for both"
        )
    eps = {module.eps for module in model.image.vision.modules() if isinstance(module, torch.nn.LayerNorm)}
    if eps != {1e-5}:
        raise WeightsError(f"the vision tower's LayerNorm eps is {sorted(eps)}; open_clip's is 1e-5")
