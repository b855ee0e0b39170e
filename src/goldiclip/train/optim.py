"""The optimiser over a partition of the parameters: every trainable one is in one group, and the groups say why."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from goldiclip.config import Config, ConfigError, Optim
from goldiclip.train.muon import Muon
from goldiclip.train.parallel import local, whole

Kind = Literal["matrix", "decay", "no_decay", "scalar"]

# Matrices by shape that take no decay all the same: class and register tokens, W.
UNDECAYED = ("cls_token", "reg_token", "prototypes")
# Matrices by shape that are tables or read-outs: Muon leaves them to AdamW.
TABLES = ("token_embedding", "position_embedding", "pos_embed", "head")
# The parts of a learner by how their parameters' names begin; gradient norms are logged per part.
PARTS = {
    "student.image.": "vision",
    "student.text.": "text",
    "student.pooling.": "pooling",
    "student.decoder.": "decoder",
    "student.head.": "decoder",
    "prototypes.": "prototypes",
    "student.scale.": "scale",
    "balance.": "balance",
}


def kind_of(name: str, parameter: Tensor, method: Literal["adamw", "muon"] = "adamw") -> Kind:
    """What happens to a parameter: a scalar has its own rate; vectors, tokens and prototypes are not decayed; and
    Muon moves the matrices inside towers."""
    if part_of(name) in ("scale", "balance"):
        return "scalar"
    words = name.split(".")
    if parameter.ndim < 2 or any(word in UNDECAYED for word in words):
        return "no_decay"
    is_inside = parameter.ndim == 2 and not any(word in TABLES for word in words)
    return "matrix" if method == "muon" and is_inside else "decay"


def part_of(name: str) -> str:
    """The part of the learner a parameter belongs to."""
    return next((part for start, part in PARTS.items() if name.startswith(start)), name.split(".")[0])


def depth_of(name: str, depths: Mapping[str, int]) -> int:
    """Blocks between a parameter and the top of its tower; 0 for the top block and for everything outside a tower."""
    part = part_of(name)
    if part not in depths:
        return 0
    block = _BLOCK.search(name)
    if block:
        return depths[part] - 1 - int(block[1])
    return depths[part] if _is_below(name) else 0


_BLOCK = re.compile(r"\bblocks\.(\d+)\.")
_BELOW = re.compile(r"\b(patch_embed|pos_embed|cls_token|reg_token|norm_pre|token_embedding|position_embedding)\b")


def _is_below(name: str) -> bool:
    return _BELOW.search(name) is not None


def tower_depths(names: Iterable[str]) -> dict[str, int]:
    """Blocks of the vision and of the text tower, counted in the names of their parameters."""
    depths: dict[str, int] = {}
    for name in names:
        block = _BLOCK.search(name)
        if block and part_of(name) in ("vision", "text"):
            depths[part_of(name)] = max(depths.get(part_of(name), 0), int(block[1]) + 1)
    return depths


def lock(learner: nn.Module, towers: Literal["none", "vision", "text", "both"]) -> list[str]:
    """Freeze the towers named; projections, pooling, decoder and scalars stay trainable. Returns what was frozen."""
    locked = {"none": (), "both": ("vision", "text")}.get(towers, (towers,))
    frozen = []
    for name, parameter in learner.named_parameters():
        inside = part_of(name) in locked and not _is_projection(name)
        if inside and parameter.requires_grad:
            parameter.requires_grad_(False)
            frozen.append(name)
    return frozen


def _is_projection(name: str) -> bool:
    return re.search(r"\.(key|value|projection)\.", name) is not None


def parameter_groups(learner: nn.Module, optim: Optim) -> list[dict[str, Any]]:
    """The partition: one group per kind and layer depth. `peak_lr` is what the schedule multiplies."""
    trainable = {name: parameter for name, parameter in learner.named_parameters() if parameter.requires_grad}
    if not trainable:
        raise ConfigError(f"optim.lock is {optim.lock!r} and leaves nothing to train")
    depths = tower_depths(trainable)
    grouped: dict[tuple[Kind, int], list[str]] = defaultdict(list)
    for name, parameter in trainable.items():
        kind = kind_of(name, parameter, optim.method)
        depth = 0 if kind == "scalar" or optim.layer_decay == 1 else depth_of(name, depths)
        grouped[kind, depth].append(name)
    groups = [_group(kind, depth, names, trainable, optim) for (kind, depth), names in sorted(grouped.items())]
    held = [name for group in groups for name in group["names"]]
    assert sorted(held) == sorted(trainable), "a parameter is in no group, or in two"
    return groups


def _group(kind: Kind, depth: int, names: list[str], parameters: Mapping[str, Tensor], optim: Optim) -> dict[str, Any]:
    lr = optim.scalar_lr if kind == "scalar" else optim.lr * optim.layer_decay**depth
    return {
        "params": [parameters[name] for name in names],
        "names": names,
        "kind": kind,
        "peak_lr": lr,
        "lr": lr,
        "weight_decay": optim.weight_decay if kind in ("matrix", "decay") else 0.0,
    }


def build_optimizer(learner: nn.Module, config: Config) -> torch.optim.AdamW:
    """AdamW, fused, or Muon; its state is laid out at once: a checkpoint of step 0 has the form of every later one."""
    optim = config.optim
    groups = parameter_groups(learner, optim)
    method = Muon if optim.method == "muon" else torch.optim.AdamW
    optimizer = method(groups, lr=optim.lr, betas=optim.betas, eps=optim.eps, fused=True, weight_decay=0.0)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter] = _state(group["kind"], parameter)
    return optimizer


def _state(kind: Kind, parameter: Tensor) -> dict[str, Tensor]:
    if kind == "matrix":
        return {"momentum": torch.zeros_like(parameter)}
    return {
        "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
        "exp_avg": torch.zeros_like(parameter),
        "exp_avg_sq": torch.zeros_like(parameter),
    }


def set_learning_rate(optimizer: torch.optim.Optimizer, share: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * share


def named_gradients(learner: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in learner.named_parameters():
        if parameter.grad is not None:
            yield name, parameter.grad


def gradient_norms(learner: nn.Module) -> dict[str, Tensor]:
    """The norm of each part's gradient and of all but σ's; over all ranks' shards, on the device: nobody waits."""
    parts: dict[str, list[Tensor]] = defaultdict(list)
    for name, gradient in named_gradients(learner):
        parts[part_of(name)].append(gradient)
    norms = {part: _norm(gradients) for part, gradients in parts.items()}
    squares = [norm.square() for part, norm in norms.items() if part != "balance"]
    return norms | {"all": torch.stack(squares).sum().sqrt()}


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    return whole(nn.utils.get_total_norm(tensors))


def clip_gradients(learner: nn.Module, norm: Tensor, largest: float) -> None:
    """Scale all gradients but those of the σ down to a joint norm of at most `largest`; `norm` is what it is now."""
    scale = (largest / (norm + 1e-6)).clamp(max=1.0).nan_to_num(nan=1.0)
    gradients = [local(gradient) for name, gradient in named_gradients(learner) if part_of(name) != "balance"]
    torch._foreach_mul_(gradients, scale)
