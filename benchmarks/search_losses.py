"""What search keeps of an image, and what each way of keeping less of it loses.

    goldiclip scenes corpus --count 20000 --held-out 1000
    goldiclip train demo data.train=corpus/train/*.tar --out runs/a        and so on for further encoders
    python benchmarks/search_losses.py runs/a --images corpus/held_out corpus/train --queries corpus/eval/retrieval.json

Truth are the ten best of exhaustive text-conditioned scores at full precision. `exhaustive`: the share of them among
the ten best of everything scored from what is stored; `search`: among the ten that `Index.search` gives. recall@1 and
@5 count the query's own image among the first, and are what a user notices.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from goldiclip.inference.engine import Engine
from goldiclip.inference.index import Index
from goldiclip.inference.load import load_engine
from goldiclip.inference.pictures import grouped
from goldiclip.inference.sources import Item, sources
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.types import TextFeatures

TOP = 10
SHORTLISTS = (50, 100, 200, 400, 800)
RECOMPUTED_QUERIES = 20  # each of them encodes a shortlist of images anew


def measure(name: str, images: Sequence[str], queries: Path, count: int, shortlist: int, device: str) -> None:
    engine = load_engine(name, device=device)
    assert isinstance(engine.model, GoldiCLIP)
    items = list(sources(images))
    asked, own = captions(queries, count)
    texts = engine.encode_texts(asked)
    ids = [item.id for item in items]
    grid = engine.encode_images(items[0].picture).grid
    tied = engine.model.config.tie_key_value
    print(f"\n{name}: {len(items):,} images, {len(asked)} queries, {grid[0]}×{grid[1]} patches of", end=" ")
    print(f"{engine.model.config.embedding} numbers, keys and values {'tied' if tied else 'apart'}")
    print(f"{'':24} {'bytes/image':>11} {'exhaustive':>10} {'search':>8} {'recall@1':>8} {'recall@5':>8}")
    with TemporaryDirectory() as folder:
        kept = variants(grid).items()
        indices = {title: Index.create(Path(folder) / title, engine, *form) for title, form in kept}
        truth = [best(column, ids) for column in scored(engine, items, texts, list(indices.values())).T]
        size = (4 if tied else 8) * grid[0] * grid[1] * engine.model.config.embedding
        row("full precision", size, 1.0, None, found(truth, own))
        for title, index in indices.items():
            is_kept = index.format.precision != "none"
            few = asked if is_kept else asked[:RECOMPUTED_QUERIES]
            hits = [[hit.id for hit in index.search(query, TOP, shortlist=shortlist)] for query in few]
            whole = shared(truth, stored(index, texts, ids)) if is_kept else None
            row(title, index.format.num_bytes + 2 * index.format.width, whole, shared(truth, hits), found(hits, own))
            if title == "int8":
                by_shortlist(index, asked, truth)
        first = [[hit.id for hit in index.search(query, TOP, shortlist=0)] for query in asked]
        row("text-agnostic alone", 2 * index.format.width, None, shared(truth, first), found(first, own))


def variants(grid: tuple[int, int]) -> dict[str, tuple[Any, int]]:
    kept: dict[str, tuple[Any, int]] = {"float16": ("float16", 0), "int8": ("int8", 0)}
    rows, columns = grid
    while rows % 2 == 0 and columns % 2 == 0:
        rows, columns = rows // 2, columns // 2
        kept[f"int8, {rows}×{columns} pooled"] = ("int8", rows * columns)
    return {**kept, "recomputed": ("none", 0)}


def by_shortlist(index: Index, asked: Sequence[str], truth: Sequence[Sequence[str]]) -> None:
    for count in SHORTLISTS:
        start = time.process_time()
        hits = [[hit.id for hit in index.search(query, TOP, shortlist=count)] for query in asked]
        spent = 1e3 * (time.process_time() - start) / len(asked)
        print(f"    of a shortlist of {count:<6} {'':>11} {shared(truth, hits):>8.4f}   {spent:.0f} ms of CPU a query")


@torch.inference_mode()
def scored(engine: Engine, items: Sequence[Item], texts: TextFeatures, indices: Sequence[Index]) -> np.ndarray:
    """(images, queries) text-conditioned logits at full precision; the indices keep each image as they do."""
    scores = []
    streamed = engine.stream_images(item.picture for item in items)
    for some, part in zip(grouped(items, engine.batch), streamed, strict=True):
        scores.append(engine.model.score(part, texts, "tc").cpu())
        for index in indices:
            index.store.append(list(index.rows(some, part)))
    return torch.cat(scores).numpy()


@torch.inference_mode()
def stored(index: Index, texts: TextFeatures, ids: Sequence[str]) -> list[list[str]]:
    """The best of everything for each query, by what the index holds."""
    model, device = index.engine.model, index.engine.device
    assert isinstance(model, GoldiCLIP)
    parts = []
    for some in grouped([index.store.place(id) for id in ids], 64):
        keys, values = index.format.stored(index.store.blocks(some), device)
        parts.append(model.score_stored(keys, values, texts, index.format.step).float().cpu())
    return [best(column, ids) for column in torch.cat(parts).numpy().T]


def best(scores: np.ndarray, ids: Sequence[str]) -> list[str]:
    return [ids[place] for place in np.argsort(-scores, kind="stable")[:TOP]]


def shared(truth: Sequence[Sequence[str]], hits: Sequence[Sequence[str]]) -> float:
    return float(np.mean([len(set(one) & set(other)) / len(one) for one, other in zip(truth, hits)]))


def found(hits: Sequence[Sequence[str]], own: Sequence[str]) -> list[float]:
    return [float(np.mean([mine in some[:k] for some, mine in zip(hits, own)])) for k in (1, 5)]


def row(name: str, size: int, whole: float | None, searched: float | None, recalls: Sequence[float]) -> None:
    shares = ["" if share is None else f"{share:.4f}" for share in (whole, searched)]
    print(f"{name:24} {size:>11,} {shares[0]:>10} {shares[1]:>8} {recalls[0]:>8.3f} {recalls[1]:>8.3f}", flush=True)


def captions(file: Path, count: int) -> tuple[list[str], list[str]]:
    """One caption each of the first images of a retrieval set, and the ids of these images in shards."""
    annotations = json.loads(file.read_text())["annotations"][:count]
    return [one["captions"][0] for one in annotations], [Path(one["image"]).stem for one in annotations]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoders", nargs="+")
    parser.add_argument("--images", nargs="+", required=True, help="shards or folders of them")
    parser.add_argument("--queries", type=Path, required=True, help="a retrieval set whose captions to ask")
    parser.add_argument("--count", type=int, default=200, help="queries")
    parser.add_argument("--shortlist", type=int, default=200)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    for name in given.encoders:
        measure(name, given.images, given.queries, given.count, given.shortlist, given.device)


if __name__ == "__main__":
    main()
