"""Runs that begin from weights, and end as an average with them.

A softmax-trained model's scale and bias are wrong for sigmoid losses: with scale 100 and bias −10 a negative at cosine
0.15 begins at a logit of +5. `fit_scalars` solves for the two numbers on the first batches, the towers untouched.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from goldiclip.config import Config, ConfigError
from goldiclip.data.views import render
from goldiclip.learner import Learner
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.pretrained import from_cosmos, from_flair, from_open_clip, from_timm, load_model, save_model
from goldiclip.model.similarity import LogitScale
from goldiclip.model.weights import Report, fill
from goldiclip.train.checkpoint import load_tensors, newest
from goldiclip.train.folder import RunFolder
from goldiclip.train.parallel import whole
from goldiclip.types import Batch, Ranks

Say = Callable[[str], None]
PUBLIC = ("flair", "open_clip", "cosmos", "timm")


def starting_model(init: str, config: Config, say: Say) -> GoldiCLIP:
    """The configured model filled from `init`: an encoder, run or checkpoint of ours, or `flair:FILE` and the like."""
    kind, colon, file = init.partition(":")
    if colon and kind in PUBLIC:
        return _public(kind, Path(file), config, say)
    path = Path(init)
    if not path.is_dir():
        raise FileNotFoundError(
            f"{init}: no such folder; --init takes an encoder folder, a run, a checkpoint, or one of "
            f"{', '.join(f'{name}:FILE' for name in PUBLIC)}"
        )
    if (path / "model.safetensors").is_file():
        tensors: dict[str, Tensor] = dict(load_model(path)[0].state_dict())
    else:
        tensors = load_tensors(newest(path), "learner.student.")
    model = GoldiCLIP(config.model, config.run.seed)
    wanted = set(dict(model.named_parameters()))
    report = Report(init, left=dict.fromkeys(tensors.keys() - wanted, "the configuration has no such part"))
    fill(model, {name: tensor for name, tensor in tensors.items() if name in wanted}, report)
    say(str(report))
    return model


def _public(kind: str, file: Path, config: Config, say: Say) -> GoldiCLIP:
    model = config.model

    def show(report: Report) -> None:
        say(str(report))

    if kind == "timm":
        return from_timm(file, model, seed=config.run.seed, show=show)
    heads: dict[str, Any] = {
        "vision_heads": model.vision.heads or _default_heads(config),
        "text_heads": model.text.heads,
        "activation": model.text.activation,
    }
    if kind == "flair":
        return from_flair(file, **heads, pooling_heads=model.pooling_heads, config=model, show=show)
    read = from_open_clip if kind == "open_clip" else from_cosmos
    return read(file, **heads, config=model, show=show)


def _default_heads(config: Config) -> int:
    return int(GoldiCLIP(config.model).image.vision.tower.blocks[0].attn.num_heads)


def begin_from(learner: Learner, model: GoldiCLIP) -> None:
    """Student and teacher both start as `model`."""
    learner.student.load_state_dict(model.state_dict())
    if learner.teacher is not None:
        wanted = learner.teacher.state_dict().keys()
        learner.teacher.load_state_dict({name: value for name, value in model.state_dict().items() if name in wanted})


# --- scale and bias ---------------------------------------------------------------------------------------------------


@torch.no_grad()
def fit_scalars(learner: Learner, batches: Iterable[Batch], ranks: Ranks) -> tuple[float, float]:
    """Give scale and bias what L_ret wants them to be while the towers stand still; returns them. Before wrapping.

    Fitted to the text-agnostic cosines, which every dual encoder has learned, unless the conditioned ones alone train.
    """
    mode = "ta" if learner.config.objective.retrieval.text_agnostic else "tc"
    cosines, targets, weights = zip(*(_cosines(learner, batch, mode) for batch in batches), strict=True)
    scale, bias = solve(torch.cat(cosines).double(), torch.cat(targets), torch.cat(weights), ranks)
    learner.student.scale.scale.fill_(math.log(scale))
    learner.student.scale.bias.fill_(bias)
    return scale, bias


def _cosines(learner: Learner, batch: Batch, mode: str) -> tuple[Tensor, Tensor, Tensor]:
    """Of the images with the captions at hand; which are pairs; how many of the whole step's each one stands for."""
    student = learner.student
    with torch.autocast(batch.task.device.type, torch.bfloat16, enabled=learner.config.run.precision == "bf16"):
        image = student.encode_image(render(batch.global_views[:, 0]))
        logits = student.score(image, student.encode_text(batch.captions), mode=mode).float()
    cosines = (logits - student.scale.bias) / student.scale.scale.exp()
    own = batch.caption_hash.view(len(batch), -1, 1)
    is_pair = (own == batch.caption_hash).any(1)
    others = (learner.config.run.batch - 1) / max(1, len(batch) - 1)
    weights = torch.where(is_pair, 1.0, others).double()
    return cosines.flatten(), is_pair.flatten().double(), weights.flatten()


def solve(cosines: Tensor, target: Tensor, weight: Tensor, ranks: Ranks, steps: int = 50) -> tuple[float, float]:
    """min over (scale, bias) of Σ weight·softplus(−y·(scale·cos + bias)), by Newton's method: convex, two unknowns.

    Every rank brings its own cosines and all find the same answer. The scale stays in [1, 100], as the model's does.
    """
    positive, total = (float(ranks.sum((weight * part).sum())) for part in (target, torch.ones_like(target)))
    if not 0 < positive < total:
        raise ConfigError("optim.fit_scalars_steps needs batches with pairs and non-pairs; raise run.batch above 1")
    features = torch.stack([cosines, torch.ones_like(cosines)])
    solution = torch.tensor([10.0, math.log(positive / (total - positive))]).to(cosines)

    def loss(at: Tensor) -> Tensor:
        return ranks.sum(F.binary_cross_entropy_with_logits(at @ features, target, weight, reduction="sum"))

    for _ in range(steps):
        probability = torch.sigmoid(solution @ features)
        gradient = ranks.sum(features @ (weight * (probability - target)))
        curvature = ranks.sum((features * (weight * probability * (1 - probability))) @ features.T)
        step = torch.linalg.solve(curvature + 1e-9 * torch.eye(2).to(curvature), gradient)
        before = loss(solution)
        while loss(solution - step) > before and step.abs().max() > 1e-9:
            step = step / 2
        solution = solution - step
        if step.abs().max() < 1e-9:
            break
    scale, bias = solution.tolist()
    limited = min(max(scale, 1.0), math.exp(LogitScale.CEILING))
    return limited, bias if limited == scale else _bias_for(limited, cosines, target, weight, ranks)


def _bias_for(scale: float, cosines: Tensor, target: Tensor, weight: Tensor, ranks: Ranks) -> float:
    """The best bias for a scale at its limit, by bisection: where the loss is level in the bias."""
    low, high = -200.0, 200.0
    for _ in range(80):
        middle = (low + high) / 2
        if ranks.sum((weight * (torch.sigmoid(scale * cosines + middle) - target)).sum()) > 0:
            high = middle
        else:
            low = middle
    return (low + high) / 2


# --- the end ----------------------------------------------------------------------------------------------------------


def write_encoder(learner: Learner, config: Config, folder: RunFolder, is_first: bool) -> None:
    """The student as a folder for use, averaged with what it began from where `run.wise_ft` says so.

    Every rank calls this: sharded weights are made whole.
    """
    trained = {name: whole(tensor).detach().cpu() for name, tensor in learner.student.state_dict().items()}
    if not is_first:
        return
    if config.run.wise_ft < 1 and folder.start.is_dir():
        trained = averaged(trained, load_model(folder.start)[0].state_dict(), config.run.wise_ft)
    model = GoldiCLIP(config.model)
    model.load_state_dict(trained)
    save_model(model, config, folder.encoder)


def averaged(trained: dict[str, Tensor], start: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """WiSE-FT: `share` of the trained weights, the rest of the starting ones; what did not exist then stays trained."""
    shared = {name for name, tensor in trained.items() if name in start and tensor.is_floating_point()}
    return {
        name: torch.lerp(start[name].to(tensor), tensor, share) if name in shared else tensor
        for name, tensor in trained.items()
    }
