"""The initial weights, stated: every parameter's distribution is a row here.

With w the width and n the depth of the tower that a parameter stands in (CLIP's rules):

    attention in-projections        N(0, w^-1/2)              LayerNorm           weight 1, bias 0
    attention out-projection, fc2   N(0, w^-1/2 · (2n)^-1/2)  every bias          0
    fc1 and its gates               N(0, (2w)^-1/2)           token embedding     N(0, 0.02)
    key, value, text projections    N(0, w^-1/2)              text positions      N(0, 0.01)
    pooling: all four               N(0, w^-1/2)              vision positions, class and register tokens   N(0, w^-1/2)
    patch embedding                 N(0, (3·fan_in)^-1/2)     vocabulary head     N(0, 0.02)

What a timm tower has beyond these (layer scale, rotary periods) starts as its module's own `reset_parameters` says.
Each parameter is drawn from a generator of its own, seeded by (seed, name): leaving a part out changes no other part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

# Ends of parameter names, by what they are; the first that fits decides.
INTO_RESIDUAL = (".attn.proj.weight", ".cross.proj.weight", ".mlp.fc2.weight", ".mlp.w3.weight")
INTO_MLP = (".mlp.",)
TOKENS = (".pos_embed", ".cls_token", ".reg_token")


@torch.no_grad()
def initialise(model: nn.Module, seed: int = 0) -> None:
    """Fill every parameter and buffer of a GoldiCLIP, whatever was in memory before."""
    _reset_modules(model, seed)
    for name, parameter, std in stated(model):
        if std is None:
            continue
        generator = torch.Generator().manual_seed(_seed(seed, name))
        parameter.copy_(torch.empty(parameter.shape, dtype=torch.float32).normal_(0, std, generator=generator))


def stated(model: nn.Module) -> Iterator[tuple[str, Tensor, float | None]]:
    """Every parameter with the std it is drawn with; None for the constants: norms, biases, scales."""
    depths = {part: _depth(module) for part, module in model.named_children()}
    for name, parameter in model.named_parameters():
        yield name, parameter, _std(name, parameter, depths[name.partition(".")[0]])


def _std(name: str, parameter: Tensor, depth: int) -> float | None:
    if name.startswith("image.vision.") and name.endswith(TOKENS):
        return parameter.shape[-1] ** -0.5
    if name.endswith("position_embedding"):
        return 0.01
    if name == "head.weight" or name.endswith("token_embedding.weight"):
        return 0.02
    if parameter.dim() < 2:
        return None
    fan_in = parameter[0].numel()
    if parameter.dim() > 2:  # a patch embedding, as torch's default would spread it
        return (3 * fan_in) ** -0.5
    if name.endswith(INTO_RESIDUAL):
        return float((parameter.shape[0] * 2 * depth) ** -0.5)
    if any(part in name for part in INTO_MLP):
        return float((2 * fan_in) ** -0.5)
    return float(fan_in**-0.5)


def _depth(module: nn.Module) -> int:
    blocks = [part for name, part in module.named_modules() if name.rpartition(".")[2] == "blocks"]
    return len(blocks[0]) if blocks else 1


def _reset_modules(model: nn.Module, seed: int) -> None:
    """Constants first: each module's own reset, then zero biases. The process's random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for module in model.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
    for name, parameter in model.named_parameters():
        if name.endswith(("bias", "_bias")) and not name.startswith("scale."):
            parameter.zero_()


def reset_buffers(model: nn.Module) -> None:
    """Compute anew what modules keep beside their parameters, after `to_empty`."""
    for name, module in model.named_modules():
        if not any(True for _ in module.buffers(recurse=False)):
            continue
        reset = getattr(module, "init_non_persistent_buffers", None) or getattr(module, "reset_parameters", None)
        if reset is None:
            raise TypeError(f"{name} ({type(module).__name__}) has buffers and no way to compute them anew")
        reset()


def _seed(seed: int, name: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:7], "big")
