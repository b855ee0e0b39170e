"""Image-text pairs a second, text-conditioned: ours beside FLAIR's own evaluation loop, in one run, on equal weights.

    python benchmarks/scoring.py                               sizes for the device there is
    python benchmarks/scoring.py --images 1000 --texts 25000   sizes of your own

Rounds of all variants alternate and the median counts, so that a busy machine is busy for all of them. Every variant's
ranks are compared with those of the plain path: pooled embeddings in full, then cosines.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

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
    def make(cls, sizes: Sizes, device: torch.device, dtype: torch.dtype) -> Problem:
        rng = torch.Generator().manual_seed(0)
        towers = {"vision": Vision(width=64, depth=1, heads=1), "text": Text(width=64, depth=1, heads=1)}
        model = GoldiCLIP(
            Model(**towers, embedding=sizes.width, pooling_heads=sizes.heads, decoder_depth=0, decoder_heads=1)
        )
        patches = torch.randn(sizes.images, sizes.patches, sizes.width, generator=rng)
        owners = torch.arange(sizes.texts) % sizes.images
        about = patches[owners, torch.randint(sizes.patches, (sizes.texts,), generator=rng)]
        texts = about + torch.randn(sizes.texts, sizes.width, generator=rng)
        patches, texts = patches.to(device, dtype), texts.to(device, dtype)
        image = ImageFeatures(patches.mean(1), patches, patches, (1, sizes.patches))
        features = TextFeatures(texts, texts[:0], torch.ones(sizes.texts, dtype=torch.int64))
        return cls(model.to(device).eval(), image, features, owners)

    def block(self, start: int, stop: int) -> ImageFeatures:
        image = self.image
        return ImageFeatures(image.embedding[start:stop], image.keys[start:stop], image.values[start:stop], image.grid)


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


# --- measuring --------------------------------------------------------------------------------------------------------


@dataclass
class Measured:
    name: str
    seconds: float
    gigabytes: float
    worst: float  # largest difference of a cosine
    same_ranks: float  # share of texts whose image has the rank it has on the plain path


def compare(similarity: Tensor, reference: Tensor, owners: Tensor) -> tuple[float, float]:
    """The largest difference from the plain path, and the share of texts with the same rank; of some rows, no ranks."""
    worst = (similarity - reference[: len(similarity)]).abs().max().item()
    if len(similarity) < len(reference):
        return worst, math.nan
    return worst, (own_ranks(similarity, owners) == own_ranks(reference, owners)).double().mean().item()


def own_ranks(similarity: Tensor, owners: Tensor) -> Tensor:
    """(M,) how many images a text prefers to its own."""
    own = similarity.gather(0, owners.to(similarity.device)[None])
    return (similarity > own).sum(0).cpu()


def measure(
    problem: Problem, variants: dict[str, Callable[[], Tensor]], rounds: int, flair_share: float
) -> list[Measured]:
    device = problem.image.keys.device
    reference = variants["plain"]().cpu()
    times: dict[str, list[float]] = {name: [] for name in variants}
    found: dict[str, Measured] = {}
    for round_number in range(rounds + 1):  # the first one warms up
        for name, compute in variants.items():
            seconds, similarity, peak = timed(compute, device)
            times[name] += [seconds] if round_number else []
            if round_number == 0:
                compared = (
                    (math.nan, math.nan) if name == "ta" else compare(similarity.cpu(), reference, problem.owners)
                )
                found[name] = Measured(name, 0.0, peak, *compared)
            del similarity
    for name, one in found.items():
        one.seconds = statistics.median(times[name]) / (flair_share if name == "FLAIR's loop" else 1.0)
    return list(found.values())


def timed(compute: Callable[[], Tensor], device: torch.device) -> tuple[float, Tensor, float]:
    """Seconds, what came out, and the device's peak memory in gigabytes (of a GPU)."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
    started = time.perf_counter()
    with torch.no_grad():
        similarity = compute()
    if on_gpu:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - started
    return seconds, similarity, torch.cuda.max_memory_allocated() / 1e9 if on_gpu else math.nan


def show(measured: list[Measured], sizes: Sizes, device: str) -> None:
    pairs = sizes.images * sizes.texts
    slowest = max(one.seconds for one in measured)
    table = Table(title=f"{sizes.images:,} images × {sizes.texts:,} texts, {sizes.patches} patches, on {device}")
    for head in ("variant", "M pairs/s", "× FLAIR's loop", "peak GB", "largest difference", "same ranks"):
        table.add_column(head, justify="left" if head == "variant" else "right")
    loop = next((one.seconds for one in measured if one.name == "FLAIR's loop"), slowest)
    for one in measured:
        rate = pairs / one.seconds / 1e6
        table.add_row(
            one.name,
            f"{rate:.3f}",
            f"{loop / one.seconds:.1f}",
            "–" if math.isnan(one.gigabytes) else f"{one.gigabytes:.2f}",
            "–" if math.isnan(one.worst) else f"{one.worst:.1e}",
            "–" if math.isnan(one.same_ranks) else f"{100 * one.same_ranks:.2f} %",
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def main(
    images: int = 0, texts: int = 0, block: int = 64, rounds: int = 3, device: str = "", compile: bool = False
) -> list[Measured]:
    """Compare. FLAIR's loop sees an eighth of the images on a GPU, where it is slow, and is counted up.

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
    problem = Problem.make(sizes, place, torch.float32)
    variants: dict[str, Callable[[], Tensor]] = {
        "FLAIR's loop": lambda: flair_loop(problem),
        "plain": lambda: plain(problem, max(1, min(block, (1 << 28) // (sizes.texts * sizes.patches * sizes.heads)))),
        "score tc": lambda: cosines(problem, scored(problem, block, "tc")),
        "ta": lambda: cosines(problem, scored(problem, block, "ta")),
    }
    if on_gpu:
        half = Problem.make(sizes, place, torch.bfloat16)
        variants["score tc, bf16"] = lambda: _autocast(half, block, place)
    if compile:
        problem.model.pooling.compile()  # type: ignore[union-attr]
    share = 1 / 8 if on_gpu else 1.0
    if share < 1:
        few = Problem(problem.model, problem.block(0, int(sizes.images * share)), problem.texts, problem.owners)
        variants["FLAIR's loop"] = lambda: flair_loop(few)
    measured = measure(problem, variants, rounds, share)
    show(measured, sizes, torch.cuda.get_device_name() if on_gpu else "CPU")
    return measured


def _autocast(problem: Problem, block: int, place: torch.device) -> Tensor:
    with torch.autocast(place.type, torch.bfloat16):
        return cosines(problem, scored(problem, block, "tc"))


if __name__ == "__main__":
    tyro.cli(main)
