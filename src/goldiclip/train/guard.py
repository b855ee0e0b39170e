"""What stops a run before it harms itself, and what is said of a step that looks wrong.

A non-finite loss or gradient ends the run before the optimiser touches a weight. The failure file holds the whole step
(the batch of all ranks, the weights, the seed) as plain tensors, so that `goldiclip replay` can repeat it on a CPU.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor, nn

from goldiclip.config import Config, ConfigError, to_yaml
from goldiclip.train.optim import named_gradients, part_of
from goldiclip.train.parallel import local, whole
from goldiclip.types import Batch, Texts

SCHEMA = 1


class NonFinite(ConfigError):
    """A step whose numbers are no numbers: what, where, and the file that repeats it."""


def not_finite(values: Mapping[str, float]) -> list[str]:
    return [name for name, value in values.items() if not math.isfinite(value)]


def blame(learner: nn.Module, batch: Batch) -> str:
    """Where the trouble is: weights that were bad already, this rank's data, or the modules whose gradients are."""
    weights = not_all_finite(dict(learner.named_parameters()))
    if weights:
        return f"weights that are not finite already: {_listed(weights)}"
    if data := not_all_finite(tensors_of(batch)):
        return f"the data is not finite already: {_listed(data)}"
    gradients = not_all_finite(dict(named_gradients(learner)))
    parts = dict.fromkeys(part_of(name) for name in gradients)
    return f"gradients of {', '.join(parts)}: {_listed(gradients)}" if gradients else "every gradient is finite"


def not_all_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """The names of tensors that hold a number which is none, on this rank."""
    here = {name: local(tensor) for name, tensor in tensors.items()}
    return [name for name, tensor in here.items() if not bool(torch.isfinite(tensor).all())]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# --- the failure file -----------------------------------------------------------------------------------------------


def write_failure(
    path: Path, learner: nn.Module, batch: Batch, config: Config, facts: Mapping[str, Any]
) -> Path | None:
    """Everything the step needs, in one safetensors file, written by rank 0; None where the disk does not take it.

    Every rank calls this: sharded weights are made whole and all ranks' batches joined.
    """
    weights = {f"learner.{name}": whole(tensor).detach().cpu().clone() for name, tensor in learner.state_dict().items()}
    batches = [batch.to("cpu")]
    if dist.is_initialized():
        gathered: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(gathered, batches[0])
        batches = gathered
        if dist.get_rank() != 0:
            return path
    tensors = weights | {f"batch.{name}": tensor for name, tensor in tensors_of(join(batches)).items()}
    metadata = {"schema": str(SCHEMA), "config": to_yaml(config), "facts": json.dumps(dict(facts))}
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata=metadata)
    except Exception:  # safetensors wraps the operating system's errors in its own kind
        path.unlink(missing_ok=True)
        return None
    return path


def join(batches: Iterable[Batch]) -> Batch:
    """The ranks' batches as the one batch that a single process would have computed on."""
    parts = list(batches)
    first_image = [0, *itertools.accumulate(len(part) for part in parts)]
    owners = [part.task_owner + first for part, first in zip(parts, first_image)]
    return Batch(
        global_views=torch.cat([part.global_views for part in parts]),
        local_views=torch.cat([part.local_views for part in parts]),
        photometrics=torch.cat([part.photometrics for part in parts]),
        captions=Texts.cat(part.captions for part in parts),
        caption_hash=torch.cat([part.caption_hash for part in parts]),
        shared_caption=torch.cat([part.shared_caption for part in parts]),
        task_texts=Texts.cat(part.task_texts for part in parts),
        task=torch.cat([part.task for part in parts]),
        task_owner=torch.cat(owners),
        samples=parts[0].samples,
    )


def tensors_of(item: Any, prefix: str = "") -> dict[str, Tensor]:
    """The tensors of a batch by dotted name."""
    found: dict[str, Tensor] = {}
    for name in item.__dataclass_fields__:
        value = getattr(item, name)
        if isinstance(value, Texts):
            found |= tensors_of(value, f"{prefix}{name}.")
        elif isinstance(value, Tensor):
            found[prefix + name] = value
    return found


# --- what looks wrong but goes on -----------------------------------------------------------------------------------


class Watch:
    """Looks at each record for spikes and for the two ways in which distillation collapses; says so, and goes on."""

    WINDOW, CALM = 100, 20  # records compared with, and needed before anything is judged

    def __init__(self, prototypes: int) -> None:
        self.most = math.log(prototypes)
        self.losses: deque[float] = deque(maxlen=self.WINDOW)
        self.collapsed: set[str] = set()

    def look(self, record: Mapping[str, Any]) -> list[tuple[str, str]]:
        """(event, message) for everything worth saying about this step."""
        said = []
        if spike := self._spike(record["total"]):
            said.append(("spike", spike))
        for name, entropy in record.get("teacher_entropy", {}).items():
            if collapse := self._collapse(name, entropy, record["step"]):
                said.append(("alarm", collapse))
        return said

    def _spike(self, loss: float) -> str:
        before = list(self.losses)
        self.losses.append(loss)
        if len(before) < self.CALM:
            return ""
        middle = median(before)
        spread = 1.4826 * median(abs(value - middle) for value in before)
        if loss - middle > max(8 * spread, 0.05 * abs(middle)):
            return f"loss {loss:.4g} stands out of the last {len(before)} (median {middle:.4g}, spread {spread:.2g})"
        return ""

    def _collapse(self, name: str, entropy: float, step: int) -> str:
        is_flat, is_sharp = entropy > self.most - 0.02, entropy < 0.1
        if step <= self.WINDOW or not (is_flat or is_sharp):
            self.collapsed.discard(name)
            return ""
        if name in self.collapsed:
            return ""
        self.collapsed.add(name)
        how = "uniform over all prototypes" if is_flat else "one prototype for each image"
        return (
            f"the teacher's {name} assignments have collapsed: {how} (entropy {entropy:.3f} of {self.most:.2f}); "
            "compare objective.distill temperatures, centre_momentum and momentum with the recipe's"
        )
