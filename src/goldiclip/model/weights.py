"""Reading weights that others made: no code in files, every tensor accounted for, a report of what happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from goldiclip.config import BYTE_TOKENS, CLIP_TOKENS, ConfigError, Text
from goldiclip.model.vision import resize_positions

Weights = Mapping[str, Tensor] | str | Path | nn.Module

# Where checkpoints of various trainers keep the tensors, and what wrappers put before each name.
NESTS = ("student", "state_dict", "model", "model_state_dict")
WRAPPERS = ("module.", "_orig_mod.", "model.")

# Positions that a longer text context keeps as they are; those beyond are stretched (as Long-CLIP found best).
KEPT_POSITIONS = 20


class WeightsError(ConfigError):
    """Weights that do not fit: which tensors, and what was expected."""


@dataclass
class Report:
    """What became of the weights; printed by every `from_…`."""

    source: str
    loaded: list[str] = field(default_factory=list)  # our parameters that the weights filled
    initialised: list[str] = field(default_factory=list)  # our parameters that they did not have
    left: dict[str, str] = field(default_factory=dict)  # their tensors that have no place here, and why
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.source}: {len(self.loaded)} tensors loaded ({_parts(self.loaded)})"]
        lines.append(f"  initialised: {len(self.initialised)} ({_parts(self.initialised)})" if self.initialised else "")
        reasons = sorted(set(self.left.values()))
        lines += [
            f"  left: {_few([n for n, why in self.left.items() if why == reason])}: {reason}" for reason in reasons
        ]
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(line for line in lines if line)


class Source:
    """Foreign tensors by name, taken one by one; what nobody takes is an error that names it."""

    def __init__(self, tensors: Mapping[str, Tensor], what: str) -> None:
        self.what = what
        self.tensors = dict(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def peek(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise WeightsError(f"{self.what}: no tensor {name!r}; there are {_few(sorted(self.tensors)) or 'none'}")
        return self.tensors[name]

    def take(self, name: str) -> Tensor:
        tensor = self.peek(name)
        del self.tensors[name]
        return tensor

    def leave(self, prefix: str, why: str, report: Report) -> None:
        """Set aside every tensor whose name starts so, and say why."""
        for name in [name for name in self.tensors if name.startswith(prefix)]:
            report.left[name] = why
            del self.tensors[name]

    def count(self, prefix: str) -> int:
        """How many numbered parts stand under `prefix.`: the depth of a tower."""
        numbers = {name[len(prefix) + 1 :].split(".")[0] for name in self.tensors if name.startswith(prefix + ".")}
        return len([number for number in numbers if number.isdigit()])

    def finish(self) -> None:
        if self.tensors:
            raise WeightsError(
                f"{self.what}: {len(self.tensors)} tensors have no place here: {_few(sorted(self.tensors), 12)}"
            )


def read_weights(weights: Weights, nest: str | None = None) -> dict[str, Tensor]:
    """Tensors by name from a mapping, a module, a .safetensors file or a .pt file (read with `weights_only`, so that
    it cannot run code), with the nesting of checkpoints and the prefixes of wrappers removed."""
    if isinstance(weights, nn.Module):
        weights = weights.state_dict()
    if isinstance(weights, (str, Path)):
        weights = _read_file(Path(weights))
    found: Mapping[str, Any] = weights
    for name in (nest,) if nest else NESTS:
        if name in found and isinstance(found[name], Mapping):
            found = found[name]
            break
    tensors = {name: tensor for name, tensor in found.items() if isinstance(tensor, Tensor)}
    if not tensors:
        raise WeightsError(f"the weights hold no tensors; there is {_few(sorted(map(str, found))) or 'nothing'}")
    for prefix in WRAPPERS * 2:
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return tensors


def _read_file(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such weights file")
    if path.suffix not in (".safetensors", ".pt", ".pth", ".bin"):
        raise WeightsError(
            f"{path}: weights are read from .safetensors, .pt, .pth or .bin files, not from {path.suffix!r}"
        )
    try:
        found = (
            load_file(path)
            if path.suffix == ".safetensors"
            else torch.load(path, map_location="cpu", weights_only=True)
        )
    except Exception as error:
        raise WeightsError(f"{path}: not a file of plain tensors ({str(error).splitlines()[0][:160]})") from error
    if not isinstance(found, Mapping):
        raise WeightsError(f"{path}: expected named tensors, found {type(found).__name__}")
    return found


def fill(model: nn.Module, tensors: Mapping[str, Tensor], report: Report) -> None:
    """Copy our-named tensors into the model. Positions are resized; any other difference in shape is an error."""
    parameters = dict(model.named_parameters())
    for name, tensor in tensors.items():
        if name not in parameters:
            raise WeightsError(f"{report.source}: {name} has no place in this model")
        fitted = _fitted(model, name, tensor, parameters[name], report)
        if fitted.shape != parameters[name].shape:
            raise WeightsError(
                f"{report.source}: {name} is {tuple(tensor.shape)} in the weights and {tuple(parameters[name].shape)} "
                "in the model: change its configuration, or leave it out to have it read off the weights"
            )
        with torch.no_grad():
            parameters[name].copy_(fitted)
        report.loaded.append(name)
    report.initialised = [name for name in parameters if name not in tensors]


def _fitted(model: nn.Module, name: str, tensor: Tensor, target: Tensor, report: Report) -> Tensor:
    if tensor.shape == target.shape or tensor.shape[-1] != target.shape[-1]:
        return tensor
    if name.endswith("pos_embed"):
        tower: Any = model.get_submodule(name.rpartition(".")[0])
        num_prefix = 0 if tower.no_embed_class else tower.num_prefix_tokens
        new = tuple(tower.patch_embed.grid_size)
        old = square_grid(tensor.shape[-2] - num_prefix, report.source)
        report.notes.append(f"position grid resized from {old[0]}×{old[1]} to {new[0]}×{new[1]}")
        return resize_positions(tensor, old, new, num_prefix)
    chosen = getattr(getattr(model, "config", None), "text", Text()).tokens
    if chosen and name in ("text.token_embedding.weight", "head.weight") and len(tensor) == CLIP_TOKENS:
        report.notes.append(f"{name}: the {len(target):,} of CLIP's {CLIP_TOKENS:,} tokens that this model knows")
        return tensor[[*range(BYTE_TOKENS), *chosen, CLIP_TOKENS - 2, CLIP_TOKENS - 1]]
    if name == "text.position_embedding":
        report.notes.append(f"text context changed from {len(tensor)} to {len(target)} tokens")
        return resize_context(tensor, len(target))
    return tensor


def square_grid(num_patches: int, where: str) -> tuple[int, int]:
    side = round(num_patches**0.5)
    if side * side != num_patches:
        raise WeightsError(f"{where}: {num_patches} patch positions are no square grid")
    return side, side


def resize_context(positions: Tensor, length: int) -> Tensor:
    """Text positions (context, width) for another context. Shorter: the first ones. Longer: the first 20 as they are,
    the others stretched over the rest, so that short texts keep their embeddings either way."""
    if length <= len(positions):
        return positions[:length]
    kept = positions[: KEPT_POSITIONS if len(positions) > KEPT_POSITIONS else 0]
    stretched = positions[len(kept) :].to(torch.promote_types(positions.dtype, torch.float32)).T.unsqueeze(0)
    stretched = F.interpolate(stretched, size=length - len(kept), mode="linear", align_corners=True)
    return torch.cat([kept, stretched[0].T.to(positions.dtype)])


def _parts(names: list[str]) -> str:
    counts: dict[str, int] = {}
    for name in names:
        part = name.partition(".")[0]
        counts[part] = counts.get(part, 0) + 1
    return ", ".join(f"{part} {count}" for part, count in counts.items())


def _few(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


Show = Callable[[Report], object]
