"""Three optimiser steps under any layout, told in full tensors: what the tests compare. Also each rank's program."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from goldiclip import recipes
from goldiclip.config import Config, Distill, resolve
from goldiclip.learner import Learner
from goldiclip.train.accumulate import backward
from goldiclip.train.optim import build_optimizer
from goldiclip.train.parallel import current_ranks, parallelize
from goldiclip.types import Batch
from synthetic import make_batch

NUM_IMAGES = 6
# Steps in which the ranks have different tasks: all ragged; some absent here and `vqa` absent everywhere; none at all.
TASKS: tuple[list[tuple[str, ...]], ...] = (
    [("cap", "ref", "grd", "vqa"), ("cap",), ("ref", "vqa"), (), ("cap", "grd"), ("vqa",)],
    [("cap", "ref"), ("cap",), (), (), (), ("grd", "cap")],
    [(), (), (), (), (), ()],
)


@dataclass
class Told:
    """What one run of three steps looked like, step by step."""

    losses: list[dict[str, Tensor]] = field(default_factory=list)
    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    state: list[dict[str, Tensor]] = field(default_factory=list)


def config_for(variant: str) -> Config:
    """Small configurations that between them take every branch of the learner."""
    run, _, change = variant.partition("+")
    config = recipes.recipe("tiny" if run == "full" else f"tiny/{run}")
    text, objective = replace(config.model.text, vocabulary=320), config.objective
    config = replace(config, model=replace(config.model, text=text))
    if change == "all":
        distill = replace(objective.distill, queries="all", text_grad=True, prototype_norm="unit")
        retrieval = replace(objective.retrieval, negatives="all")
        config = replace(config, objective=replace(objective, distill=distill, retrieval=retrieval))
        config = replace(config, model=replace(config.model, tie_key_value=True))
    if change == "muon":
        config = replace(config, optim=replace(config.optim, method="muon"))
    if change == "silent":  # nothing reads captions but the teacher's queries
        weights = replace(objective.weights, ret=0.0)
        distill = Distill(prototypes=64, text_agnostic=False, normalize=False)
        config = replace(config, objective=replace(objective, weights=weights, distill=distill))
    if change == "deaf":  # nothing reads captions at all
        weights, distill = replace(objective.weights, ret=0.0), replace(objective.distill, text_conditioned=False)
        config = replace(config, objective=replace(objective, weights=weights, distill=distill))
    return resolve(config)


def batches_of(
    config: Config, step: int, dtype: torch.dtype, rank: int, size: int, micro: Sequence[int]
) -> list[Batch]:
    """This rank's share of a step, cut into micro-batches of the sizes given (none: whole)."""
    tasks = [tuple(task for task in row if task in config.decoder_tasks) for row in TASKS[step % len(TASKS)]]
    num_global = 2 if config.objective.retrieval.negatives == "all" else 1
    batch = make_batch(
        config, NUM_IMAGES, seed=step, dtype=dtype, tasks=tasks, num_global=num_global, equal_captions=True
    )
    here = NUM_IMAGES // size
    sizes = list(micro) or [here]
    assert sum(sizes) == here
    starts = [rank * here + sum(sizes[:i]) for i in range(len(sizes))]
    return [batch.slice(start, start + count) for start, count in zip(starts, sizes, strict=True)]


def full(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def three_steps(
    variant: str, layout: str = "ddp", micro: Sequence[int] = (), dtype: torch.dtype = torch.float64
) -> Told:
    """In float32 Adam's ε is large: where a true gradient is zero, a small one would make a step out of rounding."""
    config, ranks, told = config_for(variant), current_ranks(), Told()
    learner = Learner(config, ranks).to(dtype)
    model = parallelize(learner, layout)  # type: ignore[arg-type]
    eps = 1e-8 if dtype == torch.float64 else 1e-3
    optimizer = build_optimizer(learner, replace(config, optim=replace(config.optim, eps=eps)))
    for step in range(3):
        losses = backward(model, batches_of(config, step, dtype, ranks.rank, ranks.size, micro))
        numbers = {"total": losses.total, **losses.terms, **losses.metrics}
        told.losses.append({name: ranks.mean(value) for name, value in numbers.items()})
        told.gradients.append({n: full(p.grad) for n, p in learner.named_parameters() if p.grad is not None})
        untrained = [n for n, p in learner.named_parameters() if p.requires_grad and p.grad is None]
        assert not untrained, f"no gradient: {untrained}"
        optimizer.step()
        learner.student.scale.clamp_()
        learner.update_teacher()
        optimizer.zero_grad()
        told.state.append({name: full(value) for name, value in learner.state_dict().items()})
    return told


# --- the ranks' program -----------------------------------------------------------------------------------------------


def exchanges() -> dict[str, Any]:
    """What `Distributed` does with ragged rows, and with their gradient."""
    ranks = current_ranks()
    counts = [1, 3, 2][: ranks.size]
    rows = (torch.arange(counts[ranks.rank] * 2.0).view(-1, 2) + 10 * ranks.rank).requires_grad_()
    gathered = ranks.gather(rows)
    factor = torch.arange(1.0, len(gathered) + 1)[:, None] * (ranks.rank + 1)
    (gathered * factor).sum().backward()
    everything = torch.arange(sum(counts) * 1.0)[:, None] + ranks.rank
    scattered = ranks.reduce_scatter(everything, counts)
    none = ranks.gather(torch.zeros(0, 4))
    mine = {
        "gathered": gathered.detach(),
        "gradient": rows.grad,
        "scattered": scattered,
        "none": none,
        "sum": ranks.sum(torch.tensor([ranks.rank + 1])),
        "mean": ranks.mean(torch.tensor([ranks.rank + 1.0])),
    }
    everyone: list[Any] = [None] * ranks.size
    dist.all_gather_object(everyone, mine)
    return {"ranks": everyone, "counts": counts}


def wiring() -> dict[str, Any]:
    """What FSDP2 makes of a learner, and what a gather without gradient would do."""
    config = config_for("full")
    learner = Learner(config, current_ranks()).double()
    parallelize(learner, "fsdp")
    facts: dict[str, Any] = {
        "whole parameters": [n for n, p in learner.named_parameters() if not isinstance(p, DTensor)],
    }
    texts = make_batch(config, 2, dtype=torch.float64).captions
    alone = Learner(config).double()
    with torch.no_grad():
        apart = learner.student.encode_text(texts).embedding - alone.student.encode_text(texts).embedding
    facts["a part called by itself is off by"] = apart.abs().max().item()
    facts["text gradient without"] = text_gradient(config, has_gradient=False)
    facts["text gradient with"] = text_gradient(config, has_gradient=True)
    return facts


def text_gradient(config: Config, has_gradient: bool) -> Tensor:
    ranks = current_ranks()
    learner = Learner(config, ranks).double()
    if not has_gradient:

        def without(local: Tensor) -> Tensor:
            rows = ranks.gather_rows(local.detach(), [len(local)] * ranks.size)
            ranks.wait()
            own = slice(ranks.rank * len(local), (ranks.rank + 1) * len(local))
            return torch.cat([rows[: own.start], local, rows[own.stop :]])

        ranks.begin_gather = without  # type: ignore[method-assign]
    model = parallelize(learner, "ddp")
    backward(model, batches_of(config, 0, torch.float64, ranks.rank, ranks.size, ()))
    gradient = learner.student.text.projection.weight.grad
    assert gradient is not None
    return gradient.clone()


def rank_program(rank: int, size: int, folder: str, cases: Sequence[tuple[Any, ...]]) -> None:
    """One process of a group: run every case and leave what rank 0 saw in a file."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message=".*torch.jit.*")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store{size}", rank=rank, world_size=size)
        told: dict[Any, Any] = {"exchanges": exchanges(), "wiring": wiring()}
        for case in cases:
            told[case] = three_steps(*case)
        if rank == 0:
            torch.save(told, Path(folder) / f"{size}.pt")
        dist.destroy_process_group()
    except BaseException:
        (Path(folder) / f"failed{size}-{rank}.txt").write_text(traceback.format_exc())
        raise
