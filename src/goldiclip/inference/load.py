"""Whatever is to be used or evaluated, as an Engine: ours, FLAIR, COSMOS, open_clip and SigLIP models."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from goldiclip.config import ConfigError
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.inference.engine import Engine

HEAD_WIDTH = 64  # of every CLIP's attention


def load_engine(name: str, **options: Any) -> Engine:
    """From an encoder folder, a run, a hub name, or `kind:…` for the weights of others.

    flair:FILE   cosmos:FILE   open_clip:FILE      weights by their tensors; heads are 64 wide, as all of CLIP's are
    open_clip:MODEL/TAG                            any model open_clip knows, SigLIP's among them, and its weights' tag
    """
    kind, colon, rest = name.partition(":")
    if not colon or Path(name).exists():
        return Engine.load(name, **options)
    if kind not in _KINDS:
        raise ConfigError(f"{name!r}: {kind!r} is no kind of weights; allowed: {', '.join(_KINDS)}, or a folder")
    engine = _KINDS[kind](rest, options)
    engine.name = name
    return engine


def _from_file(loader: str) -> Callable[[str, dict[str, Any]], Engine]:
    def load(file: str, options: dict[str, Any]) -> Engine:
        from goldiclip.model import pretrained
        from goldiclip.model.weights import read_weights

        if not Path(file).is_file():
            raise FileNotFoundError(f"{file}: no such file of weights")
        tensors = read_weights(file)
        model = getattr(pretrained, loader)(tensors, **_heads(file, tensors))
        size, context = model.config.vision.image_size, model.config.text.context
        return Engine(model, image_size=size, context=context, **options)

    return load


def _heads(file: str, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """How many heads a CLIP's towers have, by their widths."""
    found = {}
    for tower, norm in (("vision_heads", "visual.ln_post.weight"), ("text_heads", "ln_final.weight")):
        widths = [len(tensor) for name, tensor in tensors.items() if name.removeprefix("text.") == norm]
        if not widths:
            raise ConfigError(f"{file}: no tensor {norm!r}; expected the weights of a CLIP of two transformers")
        found[tower] = max(1, widths[0] // HEAD_WIDTH)
    return found


def _open_clip(rest: str, options: dict[str, Any]) -> Engine:
    if Path(rest).is_file():
        return _from_file("from_open_clip")(rest, options)
    import open_clip

    from goldiclip.model.encoders import OpenClip, OpenClipTokenizer

    name, _, tag = rest.partition("/")
    if name not in open_clip.list_models():
        raise ConfigError(f"open_clip:{rest}: {name!r} is neither a file nor a model that open_clip knows")
    if not tag:
        known = ", ".join(f"{name}/{one}" for one in open_clip.list_pretrained_tags_by_model(name)[:4])
        raise ConfigError(f"open_clip:{rest}: say which weights, else they are random: {known or 'a tag or a file'}")
    try:
        model = OpenClip.load(name, tag)
        tokenizer = OpenClipTokenizer(open_clip.get_tokenizer(name), model.context)
    except (OSError, RuntimeError) as error:
        raise FileNotFoundError(f"open_clip:{rest}: its weights or tokenizer are not to be had: {error}") from error
    return Engine(model, image_size=model.image_size, tokenizer=cast(Tokenizer, tokenizer), **options)


_KINDS: dict[str, Callable[[str, dict[str, Any]], Engine]] = {
    "flair": _from_file("from_flair"),
    "cosmos": _from_file("from_cosmos"),
    "open_clip": _open_clip,
}


def weights_hash(engine: Engine) -> str:
    """SHA-256 over names and bytes of all tensors, 16 digits; it does not depend on the file they came in."""
    digest = hashlib.sha256()
    state = engine.model.state_dict() if isinstance(engine.model, torch.nn.Module) else {}
    for name in sorted(state):
        digest.update(name.encode())
        digest.update(state[name].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]
