"""Search, measured: latency at a million images, what each precision costs and loses, and a server under load.

    python benchmarks/search.py million FOLDER             1 M vectors, blocks in a file of 20 GB, cold and warm
    python benchmarks/search.py losses ENCODER IMAGES…     bytes per image and recall of exhaustive tc, per precision
    python benchmarks/search.py load ENCODER IMAGES…       a server on loopback at once, twice and ten times its capacity

A machine that does other things as well shows it in wall time; CPU time, beside it, counts this process alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
from goldiclip.inference.load import load_engine
from goldiclip.inference.sources import sources
from goldiclip.inference.stores.local import LocalStore
from goldiclip.model.goldiclip import GoldiCLIP

QUERIES = (
    "a red umbrella left of a dog",
    "two bicycles leaning against a wall",
    "a man in a blue shirt holding a paper cup while he waits for the tram",
    "an old wooden boat on a beach at low tide",
    "three birds on a wire",
)
FORMAT = BlockFormat("int8", 196, 512, False, (14, 14))

# --- a million ----------------------------------------------------------------------------------------------------------


class Repeated(LocalStore):
    """A store whose blocks file holds fewer blocks than there are images: image i's is block i modulo their number."""

    def blocks(self, places: Sequence[int]) -> np.ndarray:
        held = os.path.getsize(self.segments[0].path / "blocks.bin") // self.block_bytes
        return super().blocks([place % held for place in places])


def million(folder: Path, rows: int, blocks: int, repeats: int) -> None:
    engine = Engine(GoldiCLIP(replace(Model(), decoder_depth=0)), image_size=224, device="cpu")
    write(folder, engine, rows, blocks)
    index = Index.open(folder, engine)
    index.store = Repeated(folder, FORMAT.width, FORMAT.num_bytes)
    start = time.perf_counter()
    index.search(QUERIES[0])
    print(
        f"{rows:,} vectors, blocks in {blocks * FORMAT.num_bytes / 1e9:.0f} GB; ready after {time.perf_counter() - start:.1f} s"
    )
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
        for start in range(0, rows, 50_000):
            some = min(50_000, rows - start)
            vectors = centres[rng.integers(0, 2_000, some)] + rng.standard_normal((some, 512)).astype(np.float32)
            file.write((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16).tobytes())
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


# --- what precisions lose -----------------------------------------------------------------------------------------------


def losses(encoder: str, images: Sequence[str], queries: Sequence[str], shortlist: int) -> None:
    """Recall of the ten best by exhaustive tc at full precision."""
    engine = load_engine(encoder, device="cpu")
    items = list(sources(images))
    grid = engine.encode_images(items[0].picture).grid
    variants: dict[str, tuple[Any, int]] = {"float16": ("float16", 0), "int8": ("int8", 0)}
    tokens = grid[0] * grid[1]
    while tokens % 4 == 0:
        tokens //= 4
        variants[f"int8, {tokens} tokens"] = ("int8", tokens)
    variants["recomputed"] = ("none", 0)
    print(f"{len(items):,} images, {len(queries)} queries, shortlist {shortlist}")
    print(f"{'':20} {'bytes/image':>12} {'exhaustive':>11} {'two stages':>11}")
    with TemporaryDirectory() as folder:
        truth: list[set[str]] = []
        for name, (precision, kept) in variants.items():
            index = Index.create(Path(folder) / name, engine, precision, kept)
            index.add(items)
            if not truth:
                truth = best(index, queries, len(items))
            whole = recall(truth, best(index, queries, len(items))) if precision != "none" else 1.0
            staged = recall(truth, best(index, queries, shortlist))
            size = index.format.num_bytes + 2 * index.format.width
            print(f"{name:20} {size:>12,} {whole:>11.4f} {staged:>11.4f}", flush=True)
        print(
            f"{'text-agnostic alone':20} {2 * index.format.width:>12,} {'':>11} {recall(truth, best(index, queries, 0)):>11.4f}"
        )


def best(index: Index, queries: Sequence[str], shortlist: int) -> list[set[str]]:
    return [{hit.id for hit in index.search(query, k=10, shortlist=shortlist)} for query in queries]


def recall(truth: Sequence[set[str]], found: Sequence[set[str]]) -> float:
    return float(np.mean([len(one & other) / len(one) for one, other in zip(truth, found)]))


def captions(file: Path, count: int) -> list[str]:
    """One caption of each of the first images of a retrieval set."""
    annotations = json.loads(file.read_text())["annotations"]
    return [one["captions"][0] for one in annotations[:count]]


# --- under load ---------------------------------------------------------------------------------------------------------


def load(encoder: str, images: Sequence[str], workers: int, waiting: int, seconds: float) -> None:
    """How a server answers as many as it can hold, twice as many, and ten times as many, who all ask again at once."""
    engine = load_engine(encoder, device="cpu")
    with TemporaryDirectory() as folder:
        index = Index.create(Path(folder) / "index", engine)
        index.add(item for item, _ in zip(sources(images), range(500)))
        with served(index, workers, waiting) as url:
            print(f"{workers} at once, {waiting} in line; {seconds:.0f} s each")
            print(
                f"{'clients':>8} {'answered/s':>11} {'refused/s':>10} {'other':>6} {'p50 ms':>8} {'p95 ms':>8} {'peak MB':>8}"
            )
            for factor in (1, 2, 10):
                hammer(url, factor * (workers + waiting), seconds)


@contextmanager
def served(index: Index, workers: int, waiting: int) -> Iterator[str]:
    import uvicorn

    from goldiclip.web.app import create_app

    app = create_app(index, lambda text: [], workers=workers, waiting=waiting)
    server = uvicorn.Server(uvicorn.Config(app, port=8799, log_level="error", limit_concurrency=256))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield "http://127.0.0.1:8799"
    server.should_exit = True
    thread.join(10)


def hammer(url: str, clients: int, seconds: float) -> None:
    import httpx

    stop = time.monotonic() + seconds

    def one(number: int) -> list[tuple[int, float]]:
        answers = []
        with httpx.Client(base_url=url, timeout=60) as client:
            while time.monotonic() < stop:
                start = time.perf_counter()
                status = client.post("/api/search", json={"text": QUERIES[number % len(QUERIES)]}).status_code
                answers.append((status, 1e3 * (time.perf_counter() - start)))
        return answers

    with ThreadPoolExecutor(clients) as pool:
        answers = [answer for some in pool.map(one, range(clients)) for answer in some]
    good = [took for status, took in answers if status == 200]
    refused, other = (sum(status in kinds for status, _ in answers) for kinds in ((429, 503), ()))
    other = len(answers) - len(good) - refused
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    p50, p95 = np.quantile(good, [0.5, 0.95]) if good else (float("nan"), float("nan"))
    print(
        f"{clients:>8} {len(good) / seconds:>11.1f} {refused / seconds:>10.1f} {other:>6} {p50:>8.1f} {p95:>8.1f} {peak:>8.0f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    what = parser.add_subparsers(dest="what", required=True)
    large = what.add_parser("million")
    large.add_argument("folder", type=Path)
    large.add_argument("--rows", type=int, default=1_000_000)
    large.add_argument("--blocks", type=int, default=100_000)
    large.add_argument("--repeats", type=int, default=40)
    lost = what.add_parser("losses")
    lost.add_argument("--queries", type=Path, help="a retrieval set whose captions to ask")
    lost.add_argument("--shortlist", type=int, default=200)
    loaded = what.add_parser("load")
    loaded.add_argument("--workers", type=int, default=2)
    loaded.add_argument("--waiting", type=int, default=16)
    loaded.add_argument("--seconds", type=float, default=10)
    for one in (lost, loaded):
        one.add_argument("encoder")
        one.add_argument("images", nargs="+")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    if given.what == "million":
        million(given.folder, given.rows, given.blocks, given.repeats)
    elif given.what == "losses":
        asked = captions(given.queries, 200) if given.queries else QUERIES
        losses(given.encoder, given.images, asked, given.shortlist)
    else:
        load(given.encoder, given.images, given.workers, given.waiting, given.seconds)


if __name__ == "__main__":
    main()
