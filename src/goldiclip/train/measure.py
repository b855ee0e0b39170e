"""One step in numbers: gathered on the device, brought to the host once, made into the record that is logged."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from goldiclip.config import Config
from goldiclip.learner import Learner
from goldiclip.plan import flops_per_image
from goldiclip.plan.devices import device_like
from goldiclip.train.launch import Seat
from goldiclip.train.parallel import whole
from goldiclip.types import Losses, Ranks


class Numbers:
    """A step's losses, metrics and gradient norms on their way to the host; `found_inf` (0, 1) stays on the device."""

    def __init__(self, learner: Learner, losses: Losses, norms: Mapping[str, Tensor], ranks: Ranks) -> None:
        scale = learner.student.scale
        local = {"total": losses.total, **{f"terms/{term}": value for term, value in losses.terms.items()}}
        told = {f"gradient_norm/{part}": norm for part, norm in norms.items()}
        told |= {"scale": whole(scale.scale).exp(), "bias": whole(scale.bias)}
        averaged = ranks.mean(_stack([*local.values(), *losses.metrics.values()]))
        watched = torch.cat([averaged[: len(local)], _stack(told.values())])
        self.found_inf = 1.0 - torch.isfinite(watched).all().float()
        self.names = [*local, *losses.metrics, *told]
        self.watched = [*local, *told]
        self.host, self.copied = _to_host(torch.cat([averaged, watched[len(local) :]]))

    def read(self) -> dict[str, float]:
        """Wait for the copy alone, not for what the device was given since."""
        if self.copied is not None:
            self.copied.synchronize()
        return dict(zip(self.names, self.host.tolist(), strict=True))


def _stack(values: Any) -> Tensor:
    return torch.stack([value.detach().float().reshape(()) for value in values])


def _to_host(vector: Tensor) -> tuple[Tensor, torch.cuda.Event | None]:
    if vector.device.type != "cuda":
        return vector.cpu(), None
    host = torch.empty(vector.shape, dtype=vector.dtype, pin_memory=True)
    host.copy_(vector, non_blocking=True)
    return host, torch.cuda.current_stream(vector.device).record_event()


class Meter:
    """What the run costs: seconds, waiting, memory, and the share of the machine's arithmetic that is the model's."""

    def __init__(self, config: Config, seat: Seat, seconds_before: float) -> None:
        self.batch, self.device = config.run.batch, seat.device
        peak = seat.ranks * peak_flops(seat.device)
        self.utilisation_per_speed = flops_per_image(config) / peak if peak else 0.0
        self.last = time.perf_counter()
        self.began = self.last - seconds_before

    def start(self) -> None:
        """The next step begins now: what came before is not its doing."""
        self.last = time.perf_counter()

    def total_seconds(self) -> float:
        """Of the whole run, over all its attempts."""
        return time.perf_counter() - self.began

    def step(self, waited_seconds: float) -> dict[str, float]:
        """The costs of the step that ends now."""
        now = time.perf_counter()
        seconds, self.last = now - self.last, now
        speed = self.batch / seconds
        costs = {
            "seconds": seconds,
            "images_per_second": speed,
            "data_wait": min(1.0, waited_seconds / seconds),
            "memory_gigabytes": self.memory(),
        }
        if self.utilisation_per_speed:
            costs["mfu"] = speed * self.utilisation_per_speed
        return costs

    def memory(self) -> float:
        """The most this process has held so far: of the device, or of main memory on a CPU."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) / 1e9
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def peak_flops(device: torch.device) -> float:
    """Of one device, in bf16 by its maker's word; of a CPU what a plain float32 product reaches here; 0 if unknown."""
    if device.type == "cuda":
        found = device_like(torch.cuda.get_device_name(device))
        return found.teraflops * 1e12 if found else 0.0
    side, best = 768, 0.0
    a = torch.ones(side, side)
    for _ in range(3):
        before = time.perf_counter()
        torch.mm(a, a)
        best = max(best, 2 * side**3 / (time.perf_counter() - before))
    return best


def record_of(values: Mapping[str, float], weights: Mapping[str, float]) -> dict[str, Any]:
    """`a/b` names as nested mappings, and 1/σ² of each task beside what its loss was multiplied with."""
    record: dict[str, Any] = {}
    for name, value in values.items():
        group, slash, leaf = name.rpartition("/")
        (record.setdefault(group, {}) if slash else record)[leaf] = value
    pull = record.get("weight", {})
    record["task_weight"] = {task: value / weights[task] for task, value in pull.items()}
    return record
