"""A whole training step on one GPU: images a second, memory, and where the time goes, all variants in one run.

    python benchmarks/step.py                              cc3m's step at 512 images and the variants beside it
    python benchmarks/step.py --sizes 128 256 512 1024     how cost grows with the batch
    python benchmarks/step.py --profile                    the kernels of one step, by what they do
    python benchmarks/step.py --device cpu --recipe tiny   the same code at toy sizes, to see that it runs

The real `Learner`, the real optimiser and the teacher's average, on synthetic batches: random pixels, captions and task
texts of realistic ragged lengths. A variant is the step with one thing changed; `naive` is what the paper's listing
makes of the same modules: eager, every text padded to 77, every conditioned embedding and every logit whole.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from dataclasses import dataclass, replace

import numpy as np
import torch
import tyro

from goldiclip import recipes
from goldiclip.config import Config
from goldiclip.data.photometrics import draw_photometrics
from goldiclip.learner import Learner
from goldiclip.plan import Lengths, flops_per_image
from goldiclip.train.accumulate import backward, split
from goldiclip.train.optim import build_optimizer, gradient_norms
from goldiclip.train.parallel import compile_towers
from goldiclip.types import DECODER_TASKS, Batch, Texts

CEILING_TFLOPS = 792.0  # what a large bf16 product reaches on an H200


# --- batches ----------------------------------------------------------------------------------------------------------


def make_batch(config: Config, num_images: int, seed: int, lengths: Lengths | None = None) -> Batch:
    """Random pixels; texts of the lengths that DreamLIP's captions and our prompts have, no two batches alike."""
    lengths, rng = lengths or Lengths(), np.random.default_rng(seed)
    views, size, num_captions = config.data.views, config.model.vision.image_size, config.data.captions
    pixels = torch.Generator().manual_seed(seed)
    tasks = [task for task in DECODER_TASKS if task in config.decoder_tasks]
    rows = [text(rng, config, getattr(lengths, task)) for _ in range(num_images) for task in tasks]
    captions = Texts.pack([text(rng, config, lengths.caption) for _ in range(num_images * num_captions)])
    return Batch(
        global_views=torch.randint(256, (num_images, 1, 3, size, size), generator=pixels, dtype=torch.uint8),
        local_views=torch.randint(
            256, (num_images, views.num_local, 3, views.local_size, views.local_size), generator=pixels
        ).to(torch.uint8),
        photometrics=draw_photometrics(views, num_images * views.num_local, rng).unflatten(0, (num_images, -1)),
        captions=captions,
        caption_hash=torch.randint(1 << 62, (num_images * num_captions,), generator=pixels),
        shared_caption=torch.randint(num_captions, (num_images,), generator=pixels),
        task_texts=Texts.pack(rows, target_start=[max(1, int(0.4 * len(row))) for row in rows]),
        task=torch.tensor([DECODER_TASKS.index(task) for task in tasks] * num_images),
        task_owner=torch.arange(num_images).repeat_interleave(len(tasks)),
    )


def text(rng: np.random.Generator, config: Config, mean: float) -> list[int]:
    """One text of about `mean` tokens, its spread that of sampled captions, cut at the context."""
    words, context = config.model.text.vocabulary - 2, config.model.text.context
    length = int(np.clip(rng.gamma(4.0, (mean - 2) / 4.0), 3, context - 2))
    return [words, *rng.integers(0, words, length).tolist(), words + 1]


# --- steps ------------------------------------------------------------------------------------------------------------


@dataclass
class Step:
    """A learner with its optimiser and a few batches, one update after the other."""

    learner: Learner
    optimizer: torch.optim.Optimizer
    batches: list[list[Batch]]
    turn: int = 0

    @classmethod
    def make(cls, config: Config, device: torch.device, num_batches: int = 3) -> Step:
        learner = Learner(config).to(device).train()
        if config.run.compile:
            compile_towers(learner)
        made = [make_batch(config, config.run.batch, seed) for seed in range(num_batches)]
        batches = [[piece.to(device) for piece in split(batch, config.run.micro_batch)] for batch in made]
        return cls(learner, build_optimizer(learner, config), batches)

    def __call__(self) -> None:
        self.turn += 1
        self.optimizer.zero_grad(set_to_none=True)
        backward(self.learner, self.batches[self.turn % len(self.batches)])
        gradient_norms(self.learner)
        self.optimizer.step()
        self.learner.student.scale.clamp_()
        self.learner.update_teacher()


@dataclass
class Row:
    name: str
    images: int
    milliseconds: float
    gigabytes: float
    gflops_per_image: float

    @property
    def speed(self) -> float:
        return 1e3 * self.images / self.milliseconds

    @property
    def teraflops(self) -> float:
        return self.speed * self.gflops_per_image / 1e3


def measure(name: str, config: Config, device: torch.device, rounds: int) -> Row:
    step = Step.make(config, device)
    for _ in range(len(step.batches) + 1):
        step()
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(len(step.batches)):  # the host runs ahead, as it does in training
            step()
        if on_gpu:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - started) / len(step.batches))
    peak = torch.cuda.max_memory_allocated() / 2**30 if on_gpu else math.nan
    return Row(name, config.run.batch, 1e3 * statistics.median(times), peak, flops_per_image(config) / 1e9)


KINDS = {
    "attention": ("flash", "fmha", "cudnn_generated", "sdpa"),
    "matrix products": ("gemm", "nvjet", "cutlass", "xmma", "wgmma", "splitk", "cublas"),
    "fused by the compiler": ("triton_",),
    "optimiser": ("adam", "multi_tensor"),
    "copies": ("memcpy", "memset", "copy_"),
}


def profile(step: Step, top: int) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    with profiled(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        step()
        torch.cuda.synchronize()
    kernels = [
        event for event in seen.key_averages() if event.self_device_time_total > 0 and event.self_cpu_time_total == 0
    ]
    sums: dict[str, float] = {}
    for event in kernels:
        name = event.key.lower()
        kind = next((kind for kind, words in KINDS.items() if any(word in name for word in words)), "other")
        sums[kind] = sums.get(kind, 0.0) + event.self_device_time_total / 1e3
    print(" | ".join(f"{kind} {value:.1f}" for kind, value in sorted(sums.items(), key=lambda one: -one[1])), "ms")
    for event in sorted(kernels, key=lambda event: -event.self_device_time_total)[:top]:
        print(f"{event.self_device_time_total / 1e3:8.2f} ms {event.count:5d}×  {event.key[:120]}")


def main(batch: int = 512, recipe: str = "cc3m", device: str = "", rounds: int = 3, top: int = 45) -> None:
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    config = recipes.recipe(recipe)
    config = replace(config, run=replace(config.run, batch=batch, precision="bf16"))
    step = Step.make(config, place)
    for _ in range(4):
        step()
    profile(step, top)
    del step
    gc.collect()
    torch.cuda.empty_cache()
    print(measure("now", config, place, rounds), measure("now", config, place, rounds).speed)


if __name__ == "__main__":
    tyro.cli(main)
