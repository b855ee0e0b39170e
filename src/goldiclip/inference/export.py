"""A trained model for other people's programs: ONNX graphs, an open_clip checkpoint, a transformers folder.

The last two are text-agnostic: they hold the dual encoder, whose embeddings equal ours, and not the pooling.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from goldiclip.config import BYTE_TOKENS, CLIP_TOKENS, Config, Text
from goldiclip.data.tokenizer import Tokenizer, vocabulary_and_merges
from goldiclip.data.views import CLIP_MEAN, CLIP_STD
from goldiclip.inference.graphs import ImageGraph, PoolingGraph, TextGraph, padded
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.pretrained import save_model, to_open_clip

# Texts that the parity report scores images against.
PROBES = ("a red umbrella left of a dog", "two bicycles", "a photo of the sea at night", "what colour is the car?")


@dataclass(frozen=True)
class Exported:
    """One written thing: its size, how far its numbers are from ours, how long it takes beside ours."""

    name: str
    path: Path
    megabytes: float
    max_error: float | None = None
    rank_change: float | None = None
    """Share of images whose best text is another one."""
    milliseconds: float | None = None
    torch_milliseconds: float | None = None


def export_encoder(model: GoldiCLIP, config: Config, folder: Path) -> Exported:
    """Our own format without the decoder: the text-conditioned encoder that search needs."""
    save_model(model, config, folder, with_decoder=False)
    return Exported("encoder", folder, _megabytes(folder))


def export_open_clip(model: GoldiCLIP, config: Config, folder: Path) -> Exported:
    """A folder for `open_clip.create_model_and_transforms("local-dir:FOLDER")`."""
    folder.mkdir(parents=True, exist_ok=True)
    model_cfg, state = to_open_clip(model)
    if merged := config.model.text.tokens:
        state["token_embedding.weight"] = in_clips_order(state["token_embedding.weight"], merged)
        model_cfg["text_cfg"]["vocab_size"] = CLIP_TOKENS
    preprocess = {"mean": CLIP_MEAN, "std": CLIP_STD, "interpolation": "bicubic", "resize_mode": "shortest"}
    text = json.dumps({"model_cfg": model_cfg, "preprocess_cfg": preprocess}, indent=2)
    (folder / "open_clip_config.json").write_text(text)
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "open_clip_model.safetensors")
    return Exported("open_clip", folder, _megabytes(folder))


def in_clips_order(rows: Tensor, merged: tuple[int, ...]) -> Tensor:
    """The embedding of chosen tokens as one of all of CLIP's: a token that it lacks is the mean of its two parts."""
    id_of, merges = vocabulary_and_merges()
    kept = [*range(BYTE_TOKENS), *merged, CLIP_TOKENS - 2, CLIP_TOKENS - 1]
    whole = rows.new_empty(CLIP_TOKENS, rows.shape[1])
    whole[kept] = rows
    for token in sorted(set(range(CLIP_TOKENS)) - set(kept)):  # parts come before what is merged of them
        whole[token] = whole[[id_of[part] for part in merges[token - BYTE_TOKENS]]].mean(0)
    return whole


def export_transformers(model: GoldiCLIP, config: Config, folder: Path) -> Exported:
    """A folder for `transformers.CLIPModel.from_pretrained(FOLDER)`, with its image processor and tokenizer."""
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

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
    return Exported("transformers", folder, _megabytes(folder))


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


# --- ONNX -----------------------------------------------------------------------------------------------------------


def export_onnx(model: GoldiCLIP, config: Config, folder: Path) -> list[Exported]:
    """image.onnx, text.onnx and, where the model pools, pooling.onnx; each compared with ours under onnxruntime."""
    folder.mkdir(parents=True, exist_ok=True)
    model = model.float().cpu().eval()
    size, context = config.model.vision.image_size, config.model.text.context
    images = torch.randn(4, 3, size, size, generator=torch.Generator().manual_seed(0))
    ids = padded(Tokenizer.of(config.model.text).encode(PROBES), context)
    with torch.no_grad():
        image, text = ImageGraph(model)(images), TextGraph(model)(ids)
    graphs: dict[str, tuple[nn.Module, dict[str, Tensor], list[str]]] = {
        "image": (ImageGraph(model), {"images": images}, ["image_embedding", "keys", "values"]),
        "text": (TextGraph(model), {"ids": ids}, ["text_embedding"]),
    }
    if model.pooling is not None:
        inputs = {"texts": text, "keys": image[1], "values": image[2]}
        graphs["pooling"] = (PoolingGraph(model), inputs, ["score"])
    return [_export_graph(folder / f"{name}.onnx", *graph) for name, graph in graphs.items()]


def _export_graph(path: Path, graph: nn.Module, inputs: dict[str, Tensor], outputs: list[str]) -> Exported:
    """Written, then run by onnxruntime on other batch sizes than it was traced with."""
    import onnxruntime

    free = {name: {0: torch.export.Dim(f"num_{name}", min=1)} for name in inputs}
    if "keys" in free:  # an image's keys and values come together
        free["values"] = free["keys"]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "# The axis name")  # keys and values share one
        program = torch.onnx.export(
            graph.eval(),
            tuple(inputs.values()),
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes=tuple(free.values()),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.save(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    error, changed = 0.0, 0.0
    for rows in (1, 3, 4):
        some = {name: tensor[:rows] for name, tensor in inputs.items()}
        got = session.run(None, {name: tensor.numpy() for name, tensor in some.items()})
        with torch.no_grad():
            want = graph(*some.values())
        want = want if isinstance(want, tuple) else (want,)
        error = max(error, *(float(np.abs(a - b.numpy()).max()) for a, b in zip(got, want)))
        if outputs == ["score"]:
            changed = max(changed, float((got[0].argmax(-1) != want[0].numpy().argmax(-1)).mean()))
    feed = {name: tensor.numpy() for name, tensor in inputs.items()}
    return Exported(
        name=path.name,
        path=path,
        megabytes=_megabytes(path),
        max_error=error,
        rank_change=changed if outputs == ["score"] else None,
        milliseconds=_milliseconds(lambda: session.run(None, feed)),
        torch_milliseconds=_milliseconds(lambda: graph(*inputs.values())),
    )


@torch.inference_mode()
def _milliseconds(call: Callable[[], Any], repeats: int = 5) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))


def _megabytes(path: Path) -> float:
    """A file with what lies beside it under its name, or a folder."""
    files = path.rglob("*") if path.is_dir() else path.parent.glob(path.name + "*")
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


# --- all of them ------------------------------------------------------------------------------------------------------

EXPORTS: dict[str, Callable[[GoldiCLIP, Config, Path], Exported | list[Exported]]] = {
    "encoder": export_encoder,
    "open_clip": export_open_clip,
    "transformers": export_transformers,
    "onnx": export_onnx,
}


def export(model: GoldiCLIP, config: Config, out: Path, formats: tuple[str, ...]) -> list[Exported]:
    """Each format in a folder of its own under `out`."""
    written: list[Exported] = []
    for name in formats:
        if name not in EXPORTS:
            raise ValueError(f"{name!r} is no export format; there are {', '.join(EXPORTS)}")
        result = EXPORTS[name](model, config, out / name)
        written += result if isinstance(result, list) else [result]
    return [replace(item, path=item.path.relative_to(out)) for item in written]
