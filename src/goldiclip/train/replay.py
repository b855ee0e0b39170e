"""A failed step again, on a CPU: which term, which module and which parameter first held a number that is none."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from goldiclip.config import Config, ConfigError, from_yaml, override
from goldiclip.learner import Learner
from goldiclip.train.accumulate import backward, split
from goldiclip.train.guard import SCHEMA, not_all_finite, tensors_of
from goldiclip.train.optim import named_gradients
from goldiclip.train.seeds import seed_step
from goldiclip.types import Batch, Texts


@dataclass(slots=True)
class Replayed:
    """What the failed step did when it was repeated."""

    facts: Mapping[str, Any]  # as the run wrote them
    terms: dict[str, float]
    total: float
    weights: list[str] = field(default_factory=list)  # not finite before the step began
    data: list[str] = field(default_factory=list)  # the same, of the batch
    modules: list[str] = field(default_factory=list)  # whose output was the first not to be finite, in order of calling
    gradients: list[str] = field(default_factory=list)  # parameters whose gradient is not finite
    operation: str = ""  # the backward operation that made the first of them

    @property
    def is_reproduced(self) -> bool:
        return bool(self.weights or self.data or self.modules or self.gradients) or not math.isfinite(self.total)

    def lines(self) -> list[str]:
        """For a person."""
        facts = self.facts
        said = [f"step {facts['step']}, {facts['samples']:,} samples: {', '.join(facts['bad'])} not finite"]
        said += [f"  {name:6} {value:.6g}" for name, value in {**self.terms, "total": self.total}.items()]
        rows = {
            "weights that were not finite": self.weights,
            "data that was not finite": self.data,
            "first output that is not finite": self.modules[:1],
            "gradients that are not finite": self.gradients,
            "made by": [self.operation] if self.operation else [],
        }
        for what, names in rows.items():
            if names:
                more = f" and {len(names) - 5} more" if len(names) > 5 else ""
                said.append(f"{what}: {', '.join(names[:5])}{more}")
        said.append("reproduced" if self.is_reproduced else "not reproduced here: every number is finite")
        return said


def replay(path: Path, *, precision: str = "", micro_batch: int = 0) -> Replayed:
    """Repeat the step of a failure file. `precision` and `micro_batch` override the run's, to see what they change."""
    tensors, config, facts = read_failure(path)
    if precision:
        config = override(config, [f"run.precision={precision}"])
    learner = Learner(config)
    learner.load_state_dict({name.removeprefix("learner."): t for name, t in tensors.items() if name[:8] == "learner."})
    learner.train()
    batch = batch_of(tensors, facts["samples"])
    batches = split(batch, micro_batch)
    weights = not_all_finite(dict(learner.named_parameters()))
    modules = _watch(learner)
    seed_step(config.run.seed, facts["samples"], 0)
    losses = backward(learner, batches)
    found = Replayed(
        facts,
        {name: value.item() for name, value in losses.terms.items()},
        losses.total.item(),
        weights=weights,
        data=not_all_finite(tensors_of(batch)),
        modules=modules,
        gradients=not_all_finite(dict(named_gradients(learner))),
    )
    if found.gradients and not (weights or found.data or modules):
        found.operation = _guilty_operation(learner, batches, config, facts)
    return found


def read_failure(path: Path) -> tuple[dict[str, Tensor], Config, dict[str, Any]]:
    """Tensors, configuration and facts of a failure file."""
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: no such file; a run that meets a non-finite number writes one into its folder"
        )
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ConfigError(f"{path}: damaged, or no failure file ({error})") from error
    if metadata.get("schema") != str(SCHEMA):
        found = metadata.get("schema")
        raise ConfigError(f"{path}: no failure file of this version (schema {found}, expected {SCHEMA})")
    return tensors, from_yaml(metadata["config"], str(path)), json.loads(metadata["facts"])


def batch_of(tensors: Mapping[str, Tensor], samples: int) -> Batch:
    """The batch that `guard.tensors_of` took apart."""
    own = {name.removeprefix("batch."): tensor for name, tensor in tensors.items() if name.startswith("batch.")}

    def texts(name: str) -> Texts:
        fields = {key.removeprefix(f"{name}."): tensor for key, tensor in own.items() if key.startswith(f"{name}.")}
        lengths = fields["lengths"]
        parts: dict[str, Any] = dict(fields)
        return Texts(**parts, max_length=int(lengths.max()) if len(lengths) else 0)

    plain = {name: tensor for name, tensor in own.items() if "." not in name}
    parts: dict[str, Any] = {**plain, "captions": texts("captions"), "task_texts": texts("task_texts")}
    return Batch(**parts, samples=samples)


def _watch(learner: nn.Module) -> list[str]:
    """The names of modules whose output is not finite, filled as they are called; the innermost comes first."""
    seen: list[str] = []

    def note(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            found = output if isinstance(output, (tuple, list)) else [output]
            tensors = [item for item in found if isinstance(item, Tensor) and item.is_floating_point()]
            if name and not all(bool(torch.isfinite(tensor).all()) for tensor in tensors):
                seen.append(name)

        return hook

    for name, module in learner.named_modules():
        module.register_forward_hook(note(name))
    return seen


def _guilty_operation(learner: nn.Module, batches: list[Batch], config: Config, facts: Mapping[str, Any]) -> str:
    """The step once more, each backward operation checked; anomaly mode announces itself, which nobody needs."""
    learner.zero_grad(set_to_none=True)
    seed_step(config.run.seed, facts["samples"], 0)
    try:
        with warnings.catch_warnings(action="ignore"), torch.autograd.detect_anomaly(check_nan=True):
            backward(learner, batches)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return ""
