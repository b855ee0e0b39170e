"""The speed of search: at a million images, and of ways to find the nearest vectors.

    python benchmarks/search.py million FOLDER    1 M vectors, blocks in a file of 20 GB, cold and warm
    python benchmarks/search.py nearest           the first stage beside faiss's flat, graph and inverted-list indices

A machine that does other things as well shows it in wall time; CPU time, beside it, counts this process alone.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from goldiclip.config import Model
from goldiclip.inference.blocks import BlockFormat
from goldiclip.inference.engine import Engine
from goldiclip.inference.index import SCHEMA_VERSION, Index, fingerprint
from goldiclip.inference.stores.local import LocalStore
from goldiclip.inference.stores.nearest import Nearest
from goldiclip.model.goldiclip import GoldiCLIP

QUERIES = (
    "a red umbrella left of a dog",
    "two bicycles leaning against a wall",
    "a man in a blue shirt holding a paper cup while he waits for the tram",
    "an old wooden boat on a beach at low tide",
    "three birds on a wire",
)
FORMAT = BlockFormat("int8", 196, 512, False, (14, 14))

# --- a million --------------------------------------------------------------------------------------------------------


class Repeated(LocalStore):
    """A store whose blocks file holds fewer blocks than there are images: image i's is block i modulo their number."""

    def blocks(self, places: Sequence[int]) -> np.ndarray:
        held = os.path.getsize(self.segments[0].path / "blocks.bin") // self.block_bytes
        return super().blocks([place % held for place in places])


def million(folder: Path, rows: int, blocks: int, repeats: int) -> None:
    engine = Engine(GoldiCLIP(replace(Model(), decoder_depth=0)), image_size=224, device="cpu")
    with torch.inference_mode():
        measure(engine, folder, rows, blocks, repeats)


def measure(engine: Engine, folder: Path, rows: int, blocks: int, repeats: int) -> None:
    write(folder, engine, rows, blocks)
    index = Index.open(folder, engine)
    index.store = Repeated(folder, FORMAT.width, FORMAT.num_bytes)
    start = time.perf_counter()
    index.search(QUERIES[0])
    ready = time.perf_counter() - start
    print(f"{rows:,} vectors, blocks in {blocks * FORMAT.num_bytes / 1e9:.0f} GB; ready after {ready:.1f} s")
    print(f"{torch.get_num_threads()} threads; a re-rank of 200 reads {200 * FORMAT.num_bytes / 1e6:.0f} MB")
    print(f"{'':34} {'p50 ms':>8} {'p95 ms':>8} {'CPU ms':>8}")
    file = folder / "generation-0" / "000000" / "blocks.bin"
    texts = engine.encode_texts(QUERIES[0])
    found = index.shortlist(QUERIES[0])
    parts: dict[str, Callable[[str], Any]] = {
        "text tower": engine.encode_texts,
        "text tower and shortlist": index.shortlist,
        "reading 200 blocks": lambda _: index.store.blocks(found.places.tolist()),
        "reading and scoring 200 blocks": lambda _: index._second_look(index.store, found.places.tolist(), texts),
        "search": index.search,
    }
    for name, call in parts.items():
        timed(f"{name}, warm", call, repeats)
    timed("search, cold", index.search, repeats, before=lambda: forget(file))


def write(folder: Path, engine: Engine, rows: int, blocks: int) -> None:
    """One segment with all rows, in clusters as embeddings are; it is kept for the next time."""
    segment = folder / "generation-0" / "000000"
    if segment.exists():
        return
    partial = segment.with_name("made")
    partial.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((2_000, 512)).astype(np.float32)
    with open(partial / "vectors.f16", "wb") as file:
        for vectors in clustered(rng, centres, rows):
            file.write(vectors.astype(np.float16).tobytes())
    lines = [json.dumps({"id": f"{row:07d}"}).encode() + b"\n" for row in range(rows)]
    (partial / "records.jsonl").write_bytes(b"".join(lines))
    np.save(partial / "offsets.npy", np.cumsum([0, *map(len, lines)]))
    several = rng.integers(-127, 128, (256, FORMAT.num_bytes), dtype=np.int8).tobytes()
    with open(partial / "blocks.bin", "wb") as file:
        for start in range(0, blocks, 256):
            file.write(several[: min(256, blocks - start) * FORMAT.num_bytes])
        file.flush()
        os.fsync(file.fileno())
    header = {"schema": SCHEMA_VERSION, "encoder": fingerprint(engine), "format": asdict(FORMAT)}
    (folder / "index.json").write_text(json.dumps(header))
    os.replace(partial, segment)


def clustered(rng: np.random.Generator, centres: np.ndarray, rows: int) -> Iterator[np.ndarray]:
    """Unit vectors around centres, 50,000 at a time."""
    for start in range(0, rows, 50_000):
        some = min(50_000, rows - start)
        noise = rng.standard_normal((some, centres.shape[1]), dtype=np.float32)
        vectors = centres[rng.integers(0, len(centres), some)] + noise
        yield vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def forget(file: Path) -> None:
    """Out of the page cache, so that the next read is the disk's."""
    opened = os.open(file, os.O_RDONLY)
    os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(opened)


def timed(name: str, call: Callable[[str], Any], repeats: int, before: Callable[[], None] | None = None) -> None:
    call(QUERIES[0])
    wall, cpu = [], []
    for number in range(repeats):
        if before is not None:
            before()
        start, worked = time.perf_counter(), time.process_time()
        call(QUERIES[number % len(QUERIES)])
        wall.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.process_time() - worked))
    print(f"{name:34} {np.median(wall):8.1f} {np.quantile(wall, 0.95):8.1f} {np.median(cpu):8.1f}", flush=True)


# --- the first stage --------------------------------------------------------------------------------------------------


def nearest(rows: int, queries: int, count: int) -> None:
    """Recall of the exact nearest, time and memory, of what faiss offers and of what an index here uses."""
    import faiss

    rng = np.random.default_rng(0)
    centres = rng.standard_normal((2_000, 512)).astype(np.float32)
    vectors, asked = (np.concatenate(list(clustered(rng, centres, many))) for many in (rows, queries))
    exact = faiss.IndexFlatIP(512)
    exact.add(vectors)
    truth = exact.search(asked, count)[1]
    print(f"{rows:,} vectors of 512, the {count} nearest, {torch.get_num_threads()} threads")
    print(f"{'':20} {'recall':>7} {'p50 ms':>8} {'CPU ms':>8} {'build s':>8} {'MB':>7}")
    with TemporaryDirectory() as folder:
        halves = vectors.astype(np.float16)
        start = time.perf_counter()
        ours = Nearest(lambda first, last: halves[first:last], rows, Path(folder), "0")
        built = time.perf_counter() - start
        size = sum(file.stat().st_size for file in Path(folder).glob("nearest.*"))
        compare("here", lambda query: ours.search(query, count, None)[0], asked, truth, built, size)
        for name in ("SQ8", "HNSW32_SQ8", "IVF1024,SQ8"):
            start = time.perf_counter()
            index = faiss.index_factory(512, name, faiss.METRIC_INNER_PRODUCT)
            index.train(vectors[:50_000])
            index.add(vectors)
            built = time.perf_counter() - start
            if "HNSW" in name:
                index.hnsw.efSearch = 2 * count
            if "IVF" in name:
                index.nprobe = 64
            faiss.write_index(index, f"{folder}/other")
            size = os.path.getsize(f"{folder}/other")
            compare(name, lambda query, index=index: index.search(query[None], count)[1][0], asked, truth, built, size)


def compare(
    name: str, search: Callable[..., Any], asked: np.ndarray, truth: np.ndarray, built: float, size: int
) -> None:
    wall, cpu, shares = [], [], []
    for query, wanted in zip(asked, truth):
        start, worked = time.perf_counter(), time.process_time()
        found = search(query)
        wall.append(1e3 * (time.perf_counter() - start))
        cpu.append(1e3 * (time.process_time() - worked))
        shares.append(len(set(found.tolist()) & set(wanted.tolist())) / len(wanted))
    times = f"{np.median(wall):>8.2f} {np.median(cpu):>8.2f}"
    print(f"{name:20} {np.mean(shares):>7.4f} {times} {built:>8.1f} {size / 1e6:>7.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    what = parser.add_subparsers(dest="what", required=True)
    large = what.add_parser("million")
    large.add_argument("folder", type=Path)
    large.add_argument("--rows", type=int, default=1_000_000)
    large.add_argument("--blocks", type=int, default=100_000)
    large.add_argument("--repeats", type=int, default=40)
    first = what.add_parser("nearest")
    first.add_argument("--rows", type=int, default=200_000)
    first.add_argument("--queries", type=int, default=100)
    first.add_argument("--count", type=int, default=200)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.what == "million":
        million(given.folder, given.rows, given.blocks, given.repeats)
    else:
        set_faiss_threads(given.threads)
        nearest(given.rows, given.queries, given.count)


def set_faiss_threads(count: int) -> None:
    import faiss

    faiss.omp_set_num_threads(count)


if __name__ == "__main__":
    main()
