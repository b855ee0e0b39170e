"""Image-text pairs a second, text-conditioned: ours beside FLAIR's own evaluation loop, in one run, on equal weights.

    python benchmarks/scoring.py                               sizes for the device there is
    python benchmarks/scoring.py --images 1000 --texts 25000   sizes of your own

Slow variants see fewer images; rates are per pair. Rounds of all variants alternate and the median counts, so that a
busy machine is busy for all of them. Each one's ranks are compared with those of the plain path in float32: pooled
embeddings in full, then cosines.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from goldiclip.config import Model, Text, Vision
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.model.pooling import Pooling
from goldiclip.types import ImageFeatures, TextFeatures

LOOP = "FLAIR's loop"
PLAIN_NUMBERS = 1 << 28  # attention weights that the plain path holds at once


@dataclass(frozen=True)
class Sizes:
    images: int
    texts: int
    block: int = 64
    width: int = 512
    heads: int = 8
    patches: int = 196


@dataclass(frozen=True)
class Problem:
    """A gallery whose texts say something of their images, so that ranks mean something."""

    model: GoldiCLIP
    image: ImageFeatures
    texts: TextFeatures
    owners: Tensor

    @classmethod
    def make(cls, sizes: Sizes, device: torch.device) -> Problem:
        rng = torch.Generator(device).manual_seed(0)
        towers = {"vision": Vision(width=64, depth=1, heads=1), "text": Text(width=64, depth=1, heads=1)}
        model = GoldiCLIP(
            Model(**towers, embedding=sizes.width, pooling_heads=sizes.heads, decoder_depth=0, decoder_heads=1)
        )
        for part in (model.pooling.query, model.pooling.key, model.pooling.value, model.pooling.out):  # type: ignore[union-attr]
            part.weight.data += torch.eye(sizes.width)  # a text finds the patch it was made from
        options = {"generator": rng, "device": device}
        patches = torch.randn(sizes.images, sizes.patches, sizes.width, **options)
        owners = torch.arange(sizes.texts, device=device) % sizes.images
        about = patches[owners, torch.randint(sizes.patches, (sizes.texts,), **options)]
        texts = about + torch.randn(sizes.texts, sizes.width, **options)
        image = ImageFeatures(patches.mean(1), patches, patches, (1, sizes.patches))
        features = TextFeatures(texts, texts[:0], torch.ones(sizes.texts, dtype=torch.int64, device=device))
        return cls(model.to(device).eval(), image, features, owners)

    def first(self, count: int) -> Problem:
        """The same with the first images alone."""
        return replace(self, image=self.block(0, count))

    def block(self, start: int, stop: int) -> ImageFeatures:
        image = self.image
        return ImageFeatures(image.embedding[start:stop], image.keys[start:stop], image.values[start:stop], image.grid)

    def to(self, dtype: torch.dtype) -> Problem:
        """Features as a tower under autocast leaves them; the weights stay in float32."""
        patches = self.image.keys.to(dtype)
        image = ImageFeatures(self.image.embedding.to(dtype), patches, patches, self.image.grid)
        texts = replace(self.texts, embedding=self.texts.embedding.to(dtype))
        return replace(self, image=image, texts=texts)


# --- variants: each gives (images, texts) cosines, wherever it leaves them --------------------------------------------


class FlairPooling(nn.Module):
    """FLAIR's pooling as its evaluation calls it: `nn.MultiheadAttention` with a zero key, LayerNorms before."""

    def __init__(self, ours: Pooling, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([ours.norm_query, ours.norm_key, ours.norm_value])
        self.attention = nn.MultiheadAttention(width, ours.heads, add_zero_attn=True, batch_first=True)
        parts = (ours.query, ours.key, ours.value)
        with torch.no_grad():
            self.attention.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
            self.attention.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
            self.attention.out_proj.weight.copy_(ours.out.weight)
            self.attention.out_proj.bias.copy_(ours.out.bias)

    def forward(self, texts: Tensor, patches: Tensor) -> Tensor:
        query, key, value = (norm(x) for norm, x in zip(self.norms, (texts, patches, patches), strict=True))
        return self.attention(query, key, value, need_weights=False)[0]


def flair_loop(problem: Problem) -> Tensor:
    """One image at a time: pool it by every text, unit vectors to the host, cosines there."""
    assert problem.model.pooling is not None
    width = problem.texts.embedding.shape[1]
    pooling = FlairPooling(problem.model.pooling, width).to(problem.image.keys.device).eval()
    texts = problem.texts.embedding
    units = F.normalize(texts.float(), dim=-1).cpu()
    rows = []
    for patches in problem.image.keys:
        pooled = pooling(texts[None], patches[None])
        seen = F.normalize(pooled, dim=-1).detach().cpu().contiguous().view(-1, width)
        rows.append(torch.einsum("ij,ij->i", seen.float(), units))
    return torch.stack(rows)


def plain(problem: Problem, block: int) -> Tensor:
    """Every pooled embedding in full, then its cosine."""
    rows = []
    for start in range(0, len(problem.image), block):
        seen = problem.model.condition(problem.block(start, start + block), problem.texts).embedding
        rows.append((F.normalize(seen.float(), dim=-1) * F.normalize(problem.texts.embedding.float(), dim=-1)).sum(-1))
    return torch.cat(rows)


def scored(problem: Problem, block: int, mode: str) -> Tensor:
    """What evaluations call: `score`, a block of images with all texts."""
    blocks = (problem.block(start, start + block) for start in range(0, len(problem.image), block))
    return torch.cat([problem.model.score(image, problem.texts, mode).float() for image in blocks])


def cosines(problem: Problem, logits: Tensor) -> Tensor:
    with torch.no_grad():
        bias, top = problem.model.scale(torch.tensor([0.0, 1.0], device=logits.device)).float().tolist()
    return (logits - bias) / (top - bias)


@dataclass
class Variant:
    name: str
    images: int
    compute: Callable[[Problem], Tensor]
    dtype: torch.dtype = torch.float32
    seconds: list[float] = field(default_factory=list)
    gigabytes: float = math.nan
    worst: float = math.nan  # largest difference of a cosine from the plain path's
    same_ranks: float = math.nan  # share of texts whose image has the rank it has on the plain path
    recall: float = math.nan  # at 1, of the same texts

    def pairs_per_second(self, texts: int) -> float:
        return self.images * texts / statistics.median(self.seconds)


def variants_for(sizes: Sizes, device: torch.device, compile: bool) -> list[Variant]:
    """What is compared, the plain path in float32 first; the slow ones see as many images as take a GPU a second."""
    on_gpu = device.type == "cuda"
    few = min(sizes.images, 32 if on_gpu else 8)
    some = min(sizes.images, 256 if on_gpu else 16)
    at_once = max(1, min(sizes.block, PLAIN_NUMBERS // (sizes.texts * sizes.patches * sizes.heads)))

    def ours(problem: Problem, mode: str) -> Tensor:
        return cosines(problem, scored(problem, sizes.block, mode))

    found = [
        Variant("plain", some, lambda problem: plain(problem, at_once)),
        Variant(LOOP, few, flair_loop),
        Variant("score tc", sizes.images, lambda problem: ours(problem, "tc")),
        Variant("ta", sizes.images, lambda problem: ours(problem, "ta")),
    ]
    if on_gpu:
        found += [replace(one, name=f"{one.name}, bf16", dtype=torch.bfloat16, seconds=[]) for one in found[:3]]
    if compile:
        fused = torch.compile(lambda problem: ours(problem, "tc"))
        found.append(Variant("score tc, compiled", sizes.images, fused, found[-1].dtype))
    return found


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(problem: Problem, variants: list[Variant], rounds: int) -> list[Variant]:
    """Time all in turn; the first round warms up and is where results are compared."""
    problems = {dtype: problem.to(dtype) for dtype in {one.dtype for one in variants}}
    reference = None
    for round_number in range(rounds + 1):
        for one in variants:
            of_it = problems[one.dtype].first(one.images)
            seconds, similarity, peak = timed(one.compute, of_it, one.dtype)
            if round_number:
                one.seconds.append(seconds)
                continue
            one.gigabytes = peak
            reference = similarity if reference is None else reference
            if not one.name.startswith("ta"):
                compare(one, similarity.to(reference.device), reference, problem.owners)
    return variants


def compare(one: Variant, similarity: Tensor, reference: Tensor, owners: Tensor) -> None:
    """With the plain path, of the images that both have seen and the texts about these."""
    rows = min(len(similarity), len(reference))
    similarity, reference = similarity[:rows], reference[:rows]
    one.worst = (similarity - reference).abs().max().item()
    about = (owners < rows).nonzero().squeeze(1)
    ranks, wanted = (own_ranks(each[:, about], owners[about]) for each in (similarity, reference))
    one.same_ranks = (ranks == wanted).double().mean().item()
    one.recall = (ranks == 0).double().mean().item()


def own_ranks(similarity: Tensor, owners: Tensor) -> Tensor:
    """(M,) how many images a text prefers to its own."""
    own = similarity.gather(0, owners.to(similarity.device)[None])
    return (similarity > own).sum(0).cpu()


def timed(compute: Callable[[Problem], Tensor], problem: Problem, dtype: torch.dtype) -> tuple[float, Tensor, float]:
    """Seconds, what came out, and the gigabytes of a GPU's memory that it took beyond what stood there."""
    device = problem.image.keys.device
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if on_gpu else 0
    started = time.perf_counter()
    with torch.no_grad(), torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        similarity = compute(problem)
    if on_gpu:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    return seconds, similarity, (torch.cuda.max_memory_allocated() - before) / 1e9 if on_gpu else math.nan


def show(measured: list[Variant], sizes: Sizes, device: str) -> None:
    table = Table(title=f"{sizes.images:,} images × {sizes.texts:,} texts, {sizes.patches} patches, on {device}")
    heads = ("variant", "images", "M pairs/s", "× FLAIR's loop", "peak GB", "largest difference", "same ranks", "R@1")
    for head in heads:
        table.add_column(head, justify="left" if head == "variant" else "right")
    loop = next(one for one in measured if one.name == LOOP).pairs_per_second(sizes.texts)
    for one in measured:
        rate = one.pairs_per_second(sizes.texts)
        table.add_row(
            one.name,
            f"{one.images:,}",
            f"{rate / 1e6:.3g}",
            f"{rate / loop:.1f}",
            _shown(one.gigabytes, "{:.2f}"),
            _shown(one.worst, "{:.1e}"),
            _shown(100 * one.same_ranks, "{:.2f} %"),
            _shown(100 * one.recall, "{:.2f} %"),
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _shown(value: float, form: str) -> str:
    return "–" if math.isnan(value) else form.format(value)


def main(
    images: int = 0, texts: int = 0, block: int = 64, rounds: int = 3, device: str = "", compile: bool = False
) -> list[Variant]:
    """Compare.

    Args:
        images: 0 takes 2,048 on a GPU, 32 elsewhere.
        texts: 0 takes 25,000 on a GPU, 1,024 elsewhere.
        block: Images scored at once.
        rounds: Timed rounds of every variant.
        device: cuda or cpu.
        compile: Also `score` compiled.
    """
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    on_gpu = place.type == "cuda"
    sizes = Sizes(images or (2_048 if on_gpu else 32), texts or (25_000 if on_gpu else 1_024), block)
    measured = measure(Problem.make(sizes, place), variants_for(sizes, place, compile), rounds)
    show(measured, sizes, torch.cuda.get_device_name() if on_gpu else "CPU")
    return measured


if __name__ == "__main__":
    tyro.cli(main)
