"""An encoder on disk: a folder with weights, the configuration that builds them, and a card that says what it is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from goldiclip.config import SCHEMA_VERSION, Config, ConfigError, Model, from_yaml, to_yaml
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.init import reset_buffers

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.yaml", "README.md"


def save_model(model: GoldiCLIP, config: Config, folder: str | Path, *, with_decoder: bool = True) -> Path:
    """Write the model into `folder`, one whole file after another; the configuration says what is in the weights."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors, built = model.state_dict(), model.config
    if not with_decoder:
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith(("decoder.", "head."))}
        built = replace(built, decoder_depth=0)
    config = replace(config, model=built)
    _write(folder / CONFIG, to_yaml(config))
    _write(folder / CARD, _card(config, sum(tensor.numel() for tensor in tensors.values())))
    _save(folder / WEIGHTS, tensors)
    return folder


def load_model(folder: str | Path) -> tuple[GoldiCLIP, Config]:
    """The model of a folder, in evaluation mode on the CPU, and the configuration it was trained with."""
    folder = Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: no such file; expected a folder with {CONFIG} and {WEIGHTS}")
    config = from_yaml((folder / CONFIG).read_text(), where=str(folder / CONFIG), to_train=False)
    try:
        tensors = load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise ConfigError(f"{folder / WEIGHTS}: damaged or not safetensors ({error}); copy it anew") from error
    model = _unfilled(config.model)
    wanted = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if odd := [name for name in wanted.keys() | tensors.keys() if wanted.get(name) != _shape(tensors, name)]:
        raise ConfigError(
            f"{folder}: {WEIGHTS} and {CONFIG} do not belong together: {len(odd)} tensors differ, such as {min(odd)}: "
            f"{_shape(tensors, min(odd))} in the weights, {wanted.get(min(odd))} by the configuration"
        )
    model.load_state_dict(tensors)
    return model.eval(), config


def _unfilled(config: Model) -> GoldiCLIP:
    """A model about to be loaded: no time goes into weights that would be overwritten."""
    with torch.device("meta"):
        model = GoldiCLIP(config)
    model.to_empty(device="cpu")
    reset_buffers(model)
    return model


def _shape(tensors: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tensors[name].shape if name in tensors else None


def _save(path: Path, tensors: Mapping[str, Tensor]) -> None:
    whole = {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}
    partial = path.with_suffix(".partial")
    save_file(whole, partial, metadata={"format": "pt", "schema": str(SCHEMA_VERSION)})
    os.replace(partial, path)


def _write(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    os.replace(partial, path)


def _card(config: Config, num_parameters: int) -> str:
    model = config.model
    sees = "through the text it is asked about, or as a whole" if model.pooling_heads else "as a whole"
    speaks = " It also captions, answers questions and locates phrases." if model.decoder_depth else ""
    return f"""---
license: apache-2.0
library_name: goldiclip
pipeline_tag: zero-shot-image-classification
---
# {config.run.name or config.recipe or "A goldiclip encoder"}

A vision-language encoder of {num_parameters / 1e6:.1f} million parameters that embeds an image {sees}.{speaks}

| | |
|---|---|
| vision tower | {model.vision.name}, images of {model.vision.image_size} px, CLIP's mean and std |
| text tower | {model.text.depth} layers of width {model.text.width}, context {model.text.context}, CLIP's vocabulary |
| embedding | {model.embedding} |
| trained on | {", ".join(config.data.train) or "not stated"} |
| terms | {", ".join(config.terms)} |

```python
from goldiclip import load

engine = load("this folder")
engine.score(["a.jpg"], ["a red cube beside a blue ball"])
```
"""
