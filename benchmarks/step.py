"""A whole training step on one GPU: images a second, memory, and where the time goes, all variants in one run.

    python benchmarks/step.py                                  cc3m's step at 512 images: its parts, and variants of it
    python benchmarks/step.py --variants everything naive      some of them
    python benchmarks/step.py --sizes 128 512 2048             how cost grows with the batch
    python benchmarks/step.py --profile                        the kernels of one step, by what they do
    python benchmarks/step.py --device cpu --recipe tiny --batch 16     the same code at toy sizes

The real `Learner`, the real optimiser and the teacher's average, on synthetic batches: random pixels, captions and task
texts of realistic ragged lengths. A variant is the step with one thing changed; `naive` is what the paper's listing
makes of the same modules: eager, every text padded to the context, every conditioned embedding and every logit whole.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor

from goldiclip import recipes
from goldiclip.config import Config, override, resolve
from goldiclip.data.photometrics import draw_photometrics
from goldiclip.kernels.soft_cross_entropy import soft_cross_entropy_plain
from goldiclip.kernels.switch import FUSED, without
from goldiclip.kernels.token_cross_entropy import token_cross_entropy, token_cross_entropy_plain
from goldiclip.learner import Learner
from goldiclip.losses import decode
from goldiclip.model.pooling import Pooling
from goldiclip.plan import Lengths, flops_per_image
from goldiclip.plan.arithmetic import parts_of
from goldiclip.train.accumulate import backward, split
from goldiclip.train.optim import build_optimizer, gradient_norms
from goldiclip.train.parallel import compile_towers
from goldiclip.types import DECODER_TASKS, Batch, TextFeatures, Texts

CEILING_TFLOPS = 792.0  # what a large bf16 product reaches on an H200
LARGEST_BATCH = 512  # images held at once where a size is accumulated


@dataclass(frozen=True)
class Variant:
    """One step: settings beside the recipe's, kernels that run plain, and whether it is the listing taken literally."""

    settings: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    is_naive: bool = False


VARIANTS: dict[str, Variant] = {
    "everything": Variant(),
    **{f"plain {name}": Variant(plain=(name,)) for name in FUSED},
    "no kernels": Variant(plain=FUSED),
    "eager": Variant(settings=("run.compile=False",)),
    "negatives: all": Variant(settings=("objective.retrieval.negatives=all",)),
    "retrieval alone": Variant(
        settings=tuple(f"objective.weights.{term}=0" for term in ("cap", "ref", "grd", "vqa", "sd"))
    ),
    "fp8": Variant(settings=("run.precision=fp8",)),
    "ViT-S": Variant(settings=("model.vision.name=vit_small_patch16_224",)),
    "ViT-L": Variant(settings=("model.vision.name=vit_large_patch16_224", "run.micro_batch=256")),
    "naive": Variant(settings=("run.compile=False", "run.batch=128"), plain=FUSED, is_naive=True),
}


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
    def make(cls, config: Config, device: torch.device, num_batches: int = 3, pads: bool = False) -> Step:
        learner = Learner(config).to(device).train()
        if config.run.compile:
            compile_towers(learner)
        made = [make_batch(config, config.run.batch, seed) for seed in range(num_batches)]
        if pads:
            made = [padded(batch, config.model.text.context) for batch in made]
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
    milliseconds: float = math.nan
    gigabytes: float = math.nan
    gflops_per_image: float = math.nan
    preparing_seconds: float = math.nan  # building, compiling, first steps
    problem: str = ""

    @property
    def speed(self) -> float:
        return 1e3 * self.images / self.milliseconds

    @property
    def teraflops(self) -> float:
        return self.speed * self.gflops_per_image / 1e3


def measure(name: str, variant: Variant, config: Config, device: torch.device, rounds: int) -> Row:
    """The median over rounds of a few steps each; the host runs ahead, as it does in training."""
    config = resolve(override(config, variant.settings))
    row = Row(name, config.run.batch, gflops_per_image=flops_per_image(config) / 1e9)
    started = time.perf_counter()
    with without(*variant.plain) if variant.plain else ExitStack(), written_down_plainly(variant.is_naive):
        try:
            step = Step.make(config, device, pads=variant.is_naive)
            for _ in range(len(step.batches) + 1):
                step()
            wait(device)
            row.preparing_seconds = time.perf_counter() - started
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            times = [seconds(lambda: [step() for _ in step.batches], device) for _ in range(rounds)]
            row.milliseconds = 1e3 * statistics.median(times) / len(step.batches)
            if device.type == "cuda":
                row.gigabytes = torch.cuda.max_memory_allocated() / 2**30
        except torch.cuda.OutOfMemoryError:
            row.problem = "does not fit"
    forget()
    return row


@contextmanager
def written_down_plainly(is_wanted: bool) -> Iterator[None]:
    """The same modules with every intermediate whole: one pooled embedding per view and caption, all logits."""

    def every_embedding(self: Pooling, texts: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return self._embedding(texts, keys, values).mean(1)

    if not is_wanted:
        yield
        return
    with ExitStack() as stack:
        stack.enter_context(patch("goldiclip.learner.token_cross_entropy", token_cross_entropy_plain))
        stack.enter_context(patch("goldiclip.losses.distill.soft_cross_entropy", soft_cross_entropy_plain))
        stack.enter_context(patch.object(Pooling, "_mean", every_embedding))
        stack.enter_context(patch("goldiclip.model.pooling.NUMBERS_AT_ONCE_TRAINING", 1 << 62))
        yield


def padded(batch: Batch, context: int) -> Batch:
    """Every text as long as the context: what a tower without packing computes."""

    def longer(texts: Texts) -> Texts:
        rows = [row + [row[-1]] * (context - len(row)) for row in texts.rows()]
        starts = None if texts.target_start is None else texts.target_start.tolist()
        return Texts.pack(rows, target_start=starts)

    return replace(batch, captions=longer(batch.captions), task_texts=longer(batch.task_texts))


def seconds(work: Callable[[], object], device: torch.device) -> float:
    wait(device)
    started = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - started


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def forget() -> None:
    gc.collect()
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# --- parts of one step, each by itself --------------------------------------------------------------------------------


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


def show_parts(config: Config, device: torch.device, rounds: int = 5) -> list[dict[str, float | str]]:
    """Milliseconds of each part beside what its arithmetic takes at the ceiling."""
    step, rows = Step.make(config, device), []
    for _ in range(2):
        step()
    arithmetic = {part.name: part.step_flops * config.run.batch for part in parts_of(config)}
    with torch.autocast(device.type, torch.bfloat16, enabled=config.run.precision != "fp32"):
        works = Parts(step).works()
        for name, work in works.items():
            if name != "update":
                work()
            else:
                step.learner.begin_step()
                backward(step.learner, step.batches[0])
                kept = step.learner._teacher_logits
            times = []
            for _ in range(rounds):
                if name == "update":
                    step.learner._teacher_logits = kept
                times.append(1e3 * seconds(work, device))
            floor = arithmetic.get(name, 0.0) / CEILING_TFLOPS / 1e9
            rows.append({"part": name, "milliseconds": statistics.median(times), "floor": floor})
    del step, works
    forget()
    return rows


# --- kernels ----------------------------------------------------------------------------------------------------------


KINDS = {
    "attention": ("flash", "fmha", "cudnn_generated", "sdpa", "short_attention", "_forward", "_backward"),
    "matrix products": ("gemm", "nvjet", "cutlass", "xmma", "wgmma", "splitk", "cublas"),
    "fused by the compiler": ("triton_",),
    "optimiser": ("adam", "multi_tensor"),
    "copies": ("memcpy", "memset", "copy_"),
}


def profile(config: Config, device: torch.device, top: int) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    step = Step.make(config, device)
    for _ in range(4):
        step()
    with profiled(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU], acc_events=True) as seen:
        step()
        wait(device)
    kernels = [event for event in seen.key_averages() if event.self_device_time_total and not event.self_cpu_time_total]
    sums: dict[str, float] = {}
    for event in kernels:
        name = event.key.lower()
        kind = next((kind for kind, words in KINDS.items() if any(word in name for word in words)), "other")
        sums[kind] = sums.get(kind, 0.0) + event.self_device_time_total / 1e3
    print(" | ".join(f"{kind} {value:.1f}" for kind, value in sorted(sums.items(), key=lambda one: -one[1])), "ms")
    for event in sorted(kernels, key=lambda event: -event.self_device_time_total)[:top]:
        print(f"{event.self_device_time_total / 1e3:8.2f} ms {event.count:5d}×  {event.key[:110]}")
    del step
    forget()


# --- tables -----------------------------------------------------------------------------------------------------------


def show(rows: Sequence[Row], parts: Sequence[dict[str, float | str]], name: str) -> None:
    table = Table(title=f"a whole step on {name}")
    for head in ("variant", "batch", "ms", "images/s", "× first", "TFLOP/s", "of ceiling", "GiB", "prepared in, s", ""):
        table.add_column(head, justify="left" if head in ("variant", "") else "right")
    for row in rows:
        numbers = (row.milliseconds, row.speed, row.speed / rows[0].speed, row.teraflops)
        cells = [
            f"{number:.0f}" if i != 2 else f"{number:.2f}" for i, number in enumerate(numbers)
        ]  # ratios need their digits
        share = f"{100 * row.teraflops / CEILING_TFLOPS:.0f} %"
        extra = (share, f"{row.gigabytes:.0f}", f"{row.preparing_seconds:.0f}", row.problem)
        table.add_row(row.name, str(row.images), *cells, *extra)
    console = Console(width=140)
    if parts:
        where = Table(title="its parts, each by itself")
        for head in ("part", "ms", "arithmetic at the ceiling, ms", "left, ms"):
            where.add_column(head, justify="left" if head == "part" else "right")
        total = [sum(float(part[key]) for part in parts) for key in ("milliseconds", "floor")]
        for part in [*parts, {"part": "sum", "milliseconds": total[0], "floor": total[1]}]:
            took, floor = float(part["milliseconds"]), float(part["floor"])
            where.add_row(str(part["part"]), f"{took:.1f}", f"{floor:.1f}", f"{took - floor:.1f}")
        console.print(where)
    console.print(table)


def chosen(variants: Sequence[str], sizes: Sequence[int]) -> dict[str, Variant]:
    if unknown := set(variants) - set(VARIANTS):
        raise SystemExit(f"no variant {', '.join(sorted(unknown))}; there are {', '.join(VARIANTS)}")
    found = {name: VARIANTS[name] for name in variants or (() if sizes else VARIANTS)}
    for size in sizes:
        held = f"run.micro_batch={LARGEST_BATCH if size > LARGEST_BATCH else 0}"
        found[f"batch {size:,}"] = Variant(settings=(f"run.batch={size}", held))
    return found


def main(
    recipe: str = "cc3m",
    batch: int = 512,
    variants: tuple[str, ...] = (),
    sizes: tuple[int, ...] = (),
    device: str = "",
    rounds: int = 3,
    parts: bool = True,
    profile_top: int = 0,
    seconds: float = 3_000.0,
    json_file: Path | None = None,
) -> None:
    """Measure steps.

    Args:
        recipe: Whose step.
        batch: Images in it, unless a variant says otherwise.
        variants: Which; all, unless you name some or name sizes.
        sizes: Batches to measure besides; large ones are accumulated.
        device: Where; a GPU if there is one.
        rounds: How often each is timed.
        parts: Time the parts of a step, too.
        profile_top: List so many of the step's kernels.
        seconds: Begin nothing after this long.
        json_file: Write the numbers here as well.
    """
    place, started = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")), time.monotonic()
    config = recipes.recipe(recipe)
    on_gpu = place.type == "cuda"
    run = replace(config.run, batch=batch, precision="bf16", compile=on_gpu)
    config = resolve(replace(config, run=run))
    timed = show_parts(config, place) if parts else []
    rows = []
    for name, variant in chosen(variants, sizes).items():
        if time.monotonic() - started > seconds:
            print(f"no time left for {name}", flush=True)
            continue
        rows.append(measure(name, variant, config, place, rounds))
        print(f"{time.monotonic() - started:4.0f} s  {rows[-1]}", flush=True)
    if profile_top:
        profile(config, place, profile_top)
    name = torch.cuda.get_device_name() if on_gpu else "this CPU"
    if rows:
        show(rows, timed, name)
    if json_file is not None:
        found = {
            "device": name,
            "parts": timed,
            "rows": [asdict(row) | {"images_per_second": row.speed} for row in rows],
        }
        json_file.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    tyro.cli(main)
