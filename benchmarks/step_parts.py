"""Where a step's time goes: each part by itself beside its roofline, and the kernels of a whole step."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from goldiclip.config import Config
from goldiclip.kernels.token_cross_entropy import token_cross_entropy
from goldiclip.losses import decode
from goldiclip.plan.arithmetic import parts_of
from goldiclip.plan.calibration import H200
from goldiclip.train.accumulate import backward
from goldiclip.train.optim import gradient_norms
from goldiclip.types import DECODER_TASKS, TextFeatures
from training_step import Step

CEILING_TFLOPS = 792.0  # what a large bf16 product reaches on an H200
TERABYTES_PER_SECOND = 4.8  # of an H200's memory
# Numbers that norms, GELU and residuals read and write per token, layer and unit of width, each fused with what it
# stands beside: forward 2·4 round the two branches and 8 at the MLP's 4 widths; backward 8, 12 and 9 for biases.
NUMBERS_BETWEEN = {1: 16, 3: 45}
LOGIT_PASSES = 6  # each logit is written, read twice, written as its gradient and read by two products


@dataclass
class Parts:
    """The parts of a step, forward and backward, on the features that the others would hand them."""

    step: Step
    batch: Batch = field(init=False)

    def __post_init__(self) -> None:
        self.batch = self.step.batches[0][0]

    def works(self) -> dict[str, Callable[[], object]]:
        learner, batch = self.step.learner, self.batch
        student = learner.student
        views, local = learner.views(batch)
        local = local.flatten(0, 1)
        texts = learner.exchange([batch], learner.encode_texts(batch).detach().requires_grad_())
        image = student.encode_image(views[:, 0])
        image = replace(image, **{k: leaf(getattr(image, k)) for k in ("embedding", "keys", "values")})
        told = student.encode_text(batch.task_texts)
        told = TextFeatures(told.embedding.detach(), leaf(told.tokens), told.lengths, told.max_length)
        targets = decode.find_targets(batch.task_texts, sum(batch.num_targets))
        hidden = leaf(torch.randn(len(targets.ids), student.config.embedding, device=views.device, dtype=views.dtype))
        return {
            "paint": lambda: learner.views(batch),
            "vision": lambda: pull(student.image(views[:, 0])),
            "local views": lambda: pull(student.image(local)),
            "teacher": lambda: self.unlearned(lambda: learner.teacher.image(views[:, 0])),  # type: ignore[union-attr]
            "captions": lambda: pull([learner.encode_texts(batch)]),
            "task texts": lambda: pull([student.encode_text(batch.task_texts).tokens]),
            "decoder": lambda: pull([student.decode(told, image, batch.task_owner, most_texts=len(DECODER_TASKS))]),
            "vocabulary head": lambda: pull([student.head(hidden, fused=token_cross_entropy, targets=targets.ids)]),
            "scoring": lambda: pull([learner.retrieval(image, texts, {})]),
            "prototypes": self.prototypes(views, local, texts.embedding[texts.shared].detach()),
            "update": self.update,
        }

    def prototypes(self, views: Tensor, local: Tensor, queries: Tensor) -> Callable[[], object]:
        learner = self.step.learner
        assert learner.teacher is not None
        assert learner.prototypes is not None
        count = len(self.batch)
        with torch.no_grad():
            taught, seen = learner.teacher.image(views[:, 0]), learner.student.image(local)
        seen = tuple(leaf(part) for part in seen)

        def work() -> None:
            with torch.no_grad():
                teacher = torch.stack([taught[0], learner.teacher.pooling(queries, *taught[1:], what="mean")])
            student = torch.stack([seen[0], learner.student.pooling(queries, *seen[1:], what="mean")])
            pull([learner.prototypes(student.unflatten(1, (count, -1)), teacher.unflatten(1, (count, -1))).total])

        return work

    def update(self) -> None:
        gradient_norms(self.step.learner)
        self.step.optimizer.step()
        self.step.learner.student.scale.clamp_()
        self.step.learner.update_teacher()

    @staticmethod
    @torch.no_grad()
    def unlearned(work: Callable[[], object]) -> object:
        return work()


def leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_()


def pull(outputs: Sequence[Tensor]) -> None:
    """Backward, with ones for gradients."""
    torch.autograd.backward(list(outputs), [torch.ones_like(part) for part in outputs])


def measure_parts(config: Config, device: torch.device, rounds: int = 5) -> list[dict[str, float | str]]:
    """Milliseconds of each part beside its roofline: its arithmetic at the ceiling, then its traffic at full speed."""
    step, rows, floors = Step.make(config, device), [], roofline(config)
    for _ in range(2):
        step()
    with torch.autocast(device.type, torch.bfloat16, enabled=config.run.precision != "fp32"):
        works = Parts(step).works()
        for name, work in works.items():
            if name == "update":
                step.learner.begin_step()
                backward(step.learner, step.batches[0])
                kept = step.learner._teacher_logits
            else:
                work()
            times = []
            for _ in range(rounds):
                if name == "update":
                    step.learner._teacher_logits = kept
                times.append(1e3 * seconds(work, device))
            arithmetic, traffic = floors.get(name, (0.0, 0.0))
            took = statistics.median(times)
            rows.append({"part": name, "milliseconds": took, "arithmetic": arithmetic, "traffic": traffic})
    del step, works
    forget()
    return rows


def roofline(config: Config) -> dict[str, tuple[float, float]]:
    """Milliseconds of each part's products at the ceiling, and of what must move through memory between them."""
    distill, views, parts = config.objective.distill, config.data.views, parts_of(config)
    moved = {part.name: 2 * part.token_layers * part.width * NUMBERS_BETWEEN[part.passes] for part in parts}
    for part in parts:
        if part.name == "vocabulary head":  # two bytes a logit, and two of its FLOPs per unit of width
            moved[part.name] = LOGIT_PASSES * part.flops / part.width
        if part.name == "prototypes":
            pools = distill.text_agnostic + distill.text_conditioned
            moved[part.name] = 2 * LOGIT_PASSES * pools * (views.num_local + views.num_global) * distill.prototypes
    per_byte = 1e3 * config.run.batch / (TERABYTES_PER_SECOND * 1e12)
    per_flop = config.run.batch / (CEILING_TFLOPS * 1e9)
    found = {part.name: (part.step_flops * per_flop, moved[part.name] * per_byte) for part in parts}
    update = sum(part.parameters for part in parts) * H200.update_bytes
    return found | {"update": (0.0, 1e3 * update / (TERABYTES_PER_SECOND * 1e12))}


# --- kernels ----------------------------------------------------------------------------------------------------------


KINDS = {
    "attention": ("flash", "fmha", "cudnn_generated", "sdpa", "_forward", "_backward", "_gather"),
    "matrix products": ("gemm", "nvjet", "cutlass", "xmma", "wgmma", "splitk", "cublas"),
    "fused by the compiler": ("triton_",),
    "optimiser": ("adam", "multi_tensor"),
    "copies": ("memcpy", "memset", "copy_"),
}


def profile(config: Config, device: torch.device, top: int) -> None:
    """The kernels of one step by what they do, and how much of the step the device has none."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    step = Step.make(config, device)
    for _ in range(4):
        step()
    whole = 1e3 * seconds(step, device)
    with profiled(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU], acc_events=True) as seen:
        step()
        wait(device)
    kernels = [event for event in seen.key_averages() if event.self_device_time_total and not event.self_cpu_time_total]
    sums: dict[str, float] = {}
    for event in kernels:
        name = event.key.lower()
        kind = next((kind for kind, words in KINDS.items() if any(word in name for word in words)), "other")
        sums[kind] = sums.get(kind, 0.0) + event.self_device_time_total / 1e3
    busy = sum(sums.values())
    print(f"a step takes {whole:.1f} ms, the device works for {busy:.1f}: what is left, CUDA graphs could save")
    print(" | ".join(f"{kind} {value:.1f}" for kind, value in sorted(sums.items(), key=lambda one: -one[1])), "ms")
    for event in sorted(kernels, key=lambda event: -event.self_device_time_total)[:top]:
        print(f"{event.self_device_time_total / 1e3:8.2f} ms {event.count:5d}×  {event.key[:110]}")
    del step
    forget()


# --- clocks ---------------------------------------------------------------------------------------------------------


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Of the clock; on a CPU, which others may share, of this process alone."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    wait(device)
    started = clock()
    work()
    wait(device)
    return clock() - started


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def forget() -> None:
    gc.collect()
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
