"""A trained model for other people's programs: ONNX graphs, an open_clip checkpoint, a transformers folder.

The last two are text-agnostic: they hold the dual encoder, whose embeddings equal ours, and not the pooling.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from goldiclip.config import BYTE_TOKENS, CLIP_TOKENS, Config, Text
from goldiclip.data.tokenizer import vocabulary_and_merges
from goldiclip.data.views import CLIP_MEAN, CLIP_STD
from goldiclip.inference.onnx_graphs import export_onnx
from goldiclip.inference.parity import Answers, Exported, Probe, compared, milliseconds, noise, our_answers
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.pretrained import load_model, save_model, to_open_clip
from goldiclip.model.similarity import cosines


def export_encoder(model: GoldiCLIP, config: Config, folder: Path, probe: Probe) -> Exported:
    """Our own format without the decoder: the text-conditioned encoder that search needs."""
    save_model(model, config, folder, with_decoder=False)
    slim, mode = load_model(folder)[0], model.modes[0]
    ours, theirs = (our_answers(one, config, probe, mode) for one in (model, slim))
    return compared("encoder", folder, ours, theirs, probe.owner)


def _dual(encode: Callable[[], tuple[Tensor, Tensor]]) -> Answers:
    """The answers of a dual encoder in another library."""
    with torch.no_grad():
        images, texts = encode()
    return Answers((images, texts), cosines(images, texts), milliseconds(encode))


def export_open_clip(model: GoldiCLIP, config: Config, folder: Path, probe: Probe) -> Exported:
    """A folder for `open_clip.create_model_and_transforms("local-dir:FOLDER")`."""
    import open_clip

    folder.mkdir(parents=True, exist_ok=True)
    model_cfg, state = to_open_clip(model)
    if merged := config.model.text.tokens:
        state["token_embedding.weight"] = in_clips_order(state["token_embedding.weight"], merged)
        model_cfg["text_cfg"]["vocab_size"] = CLIP_TOKENS
    preprocess = {"mean": CLIP_MEAN, "std": CLIP_STD, "interpolation": "bicubic", "resize_mode": "shortest"}
    text = json.dumps({"model_cfg": model_cfg, "preprocess_cfg": preprocess}, indent=2)
    (folder / "open_clip_config.json").write_text(text)
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "open_clip_model.safetensors")
    name = f"local-dir:{folder}"
    loaded: Any = open_clip.create_model(name).eval()
    ids = open_clip.get_tokenizer(name)(list(probe.texts))
    theirs = _dual(lambda: (loaded.encode_image(probe.images), loaded.encode_text(ids)))
    return compared("open_clip", folder, our_answers(model, config, probe, "ta"), theirs, probe.owner)


def in_clips_order(rows: Tensor, merged: tuple[int, ...]) -> Tensor:
    """The embedding of chosen tokens as one of all of CLIP's: a token that it lacks is the mean of its two parts."""
    id_of, merges = vocabulary_and_merges()
    kept = [*range(BYTE_TOKENS), *merged, CLIP_TOKENS - 2, CLIP_TOKENS - 1]
    whole = rows.new_empty(CLIP_TOKENS, rows.shape[1])
    whole[kept] = rows
    for token in sorted(set(range(CLIP_TOKENS)) - set(kept)):  # parts come before what is merged of them
        whole[token] = whole[[id_of[part] for part in merges[token - BYTE_TOKENS]]].mean(0)
    return whole


def export_transformers(model: GoldiCLIP, config: Config, folder: Path, probe: Probe) -> Exported:
    """A folder for `transformers.CLIPModel.from_pretrained(FOLDER)`, with its image processor and tokenizer."""
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, CLIPTokenizer

    cfg, state = to_open_clip(model)
    clip = CLIPModel(CLIPConfig(**_transformers_sizes(cfg, config)))
    clip.load_state_dict(dict(_transformers_tensors(cfg, state)), strict=True)
    clip.save_pretrained(folder)
    size = cfg["vision_cfg"]["image_size"]
    CLIPImageProcessor(
        size={"shortest_edge": size},
        crop_size={"height": size, "width": size},
        image_mean=list(CLIP_MEAN),
        image_std=list(CLIP_STD),
    ).save_pretrained(folder)
    _save_tokenizer(folder, config.model.text)
    loaded: Any = CLIPModel.from_pretrained(folder).eval()
    tokenizer: Any = CLIPTokenizer.from_pretrained(folder)
    words = tokenizer(list(probe.texts), padding=True, truncation=True, return_tensors="pt")

    def encode() -> tuple[Tensor, Tensor]:
        seen, read = loaded.vision_model(pixel_values=probe.images), loaded.text_model(**words)
        return loaded.visual_projection(seen.pooler_output), loaded.text_projection(read.pooler_output)

    return compared("transformers", folder, our_answers(model, config, probe, "ta"), _dual(encode), probe.owner)


def _transformers_sizes(cfg: Mapping[str, Any], config: Config) -> dict[str, Any]:
    vision, text = cfg["vision_cfg"], cfg["text_cfg"]
    activation = "quick_gelu" if cfg.get("quick_gelu") else "gelu"
    shared = {"hidden_act": activation, "layer_norm_eps": 1e-5, "projection_dim": cfg["embed_dim"]}
    return {
        "projection_dim": cfg["embed_dim"],
        "logit_scale_init_value": config.model.init_logit_scale,
        "vision_config": {
            "hidden_size": vision["width"],
            "intermediate_size": int(vision["width"] * vision["mlp_ratio"]),
            "num_hidden_layers": vision["layers"],
            "num_attention_heads": vision["width"] // vision["head_width"],
            "image_size": vision["image_size"],
            "patch_size": vision["patch_size"],
            **shared,
        },
        "text_config": {
            "hidden_size": text["width"],
            "intermediate_size": 4 * text["width"],
            "num_hidden_layers": text["layers"],
            "num_attention_heads": text["heads"],
            "max_position_embeddings": text["context_length"],
            "vocab_size": text["vocab_size"],
            "bos_token_id": text["vocab_size"] - 2,
            "eos_token_id": text["vocab_size"] - 1,
            **shared,
        },
    }


# open_clip's names within a tower and transformers' names for them.
_OUTSIDE = {
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.ln_pre.": "vision_model.pre_layrnorm.",
    "visual.ln_post.": "vision_model.post_layernorm.",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "ln_final.": "text_model.final_layer_norm.",
    "visual.transformer.resblocks.": "vision_model.encoder.layers.",
    "transformer.resblocks.": "text_model.encoder.layers.",
    "logit_scale": "logit_scale",
}
_INSIDE = {
    ".ln_1.": ".layer_norm1.",
    ".ln_2.": ".layer_norm2.",
    ".mlp.c_fc.": ".mlp.fc1.",
    ".mlp.c_proj.": ".mlp.fc2.",
    ".attn.out_proj.": ".self_attn.out_proj.",
}


def _transformers_tensors(cfg: Mapping[str, Any], state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in state.items():
        if name == "logit_bias":
            continue  # CLIPModel has none; rankings do not change
        if name in ("visual.proj", "text_projection"):
            ours = "visual_projection.weight" if name == "visual.proj" else "text_projection.weight"
            yield ours, tensor.T.contiguous()
            continue
        outside = next(start for start in _OUTSIDE if name.startswith(start))
        renamed = _OUTSIDE[outside] + name.removeprefix(outside)
        for theirs, ours in _INSIDE.items():
            renamed = renamed.replace(theirs, ours)
        if ".attn.in_proj_" in renamed:
            for part, piece in zip("qkv", tensor.chunk(3)):
                yield renamed.replace(".attn.in_proj_", f".self_attn.{part}_proj."), piece.contiguous()
        else:
            yield renamed, tensor


def _save_tokenizer(folder: Path, text: Text) -> None:
    from transformers import CLIPTokenizer

    vocabulary, merges = vocabulary_and_merges(text.tokens)
    names = [*list(vocabulary)[:-2], "<|startoftext|>", "<|endoftext|>"]  # transformers' names for the two marks
    tokenizer = CLIPTokenizer(vocab={name: i for i, name in enumerate(names)}, merges=merges)  # type: ignore[arg-type]
    tokenizer.model_max_length = text.context
    tokenizer.save_pretrained(folder)


# --- all of them ------------------------------------------------------------------------------------------------------

EXPORTS: dict[str, Callable[[GoldiCLIP, Config, Path, Probe], Exported | list[Exported]]] = {
    "encoder": export_encoder,
    "open_clip": export_open_clip,
    "transformers": export_transformers,
    "onnx": export_onnx,
}


def export(
    model: GoldiCLIP, config: Config, out: Path, formats: tuple[str, ...], probe: Probe | None = None
) -> list[Exported]:
    """Each format in a folder of its own under `out`, read back by the library it is for and compared on the probe."""
    model, probe = model.float().cpu().eval(), probe or noise(config)
    written: list[Exported] = []
    for name in formats:
        if name not in EXPORTS:
            raise ValueError(f"{name!r} is no export format; there are {', '.join(EXPORTS)}")
        result = EXPORTS[name](model, config, out / name, probe)
        written += result if isinstance(result, list) else [result]
    return [replace(item, path=item.path.relative_to(out)) for item in written]
