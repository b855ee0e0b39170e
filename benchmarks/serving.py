"""A server on loopback, asked by as many as it can hold, twice as many, and ten times as many, who ask again at once.

    python benchmarks/serving.py ENCODER IMAGES…

It runs in a process of its own, whose memory is what is shown; those who ask come from this one.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import torch

from goldiclip.inference.index import Index
from goldiclip.inference.load import load_engine
from goldiclip.inference.sources import sources

QUERIES = ("a red umbrella left of a dog", "two bicycles leaning against a wall", "three birds on a wire")


def load(encoder: str, images: Sequence[str], workers: int, waiting: int, seconds: float) -> None:
    with TemporaryDirectory() as folder:
        engine = load_engine(encoder, device="cpu")
        index = Index.create(Path(folder) / "index", engine)
        index.add(islice(sources(images), 500))
        with served(encoder, Path(folder) / "index", workers, waiting) as (url, process):
            print(f"{workers} at once, {waiting} in line, {len(index)} images; {seconds:.0f} s each")
            print(f"{'clients':>8} {'answered/s':>11} {'refused/s':>10} {'other':>6}", end=" ")
            print(f"{'p50 ms':>8} {'p95 ms':>8} {'peak MB':>8}")
            for factor in (1, 2, 10):
                hammer(url, process, factor * (workers + waiting), seconds)


def serve(encoder: str, folder: Path, workers: int, waiting: int, port: int) -> None:
    import uvicorn

    from goldiclip.web.app import create_app
    from goldiclip.web.serve import MAX_CONNECTIONS

    torch.set_num_threads(1)
    index = Index.open(folder, load_engine(encoder, device="cpu"))
    app = create_app(index, lambda text: [], workers=workers, waiting=waiting)
    uvicorn.run(app, port=port, log_level="error", limit_concurrency=MAX_CONNECTIONS)


@contextmanager
def served(encoder: str, folder: Path, workers: int, waiting: int) -> Iterator[tuple[str, int]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(encoder, folder, workers, waiting, port))
    process.start()
    url = f"http://127.0.0.1:{port}"
    while process.is_alive():
        try:
            httpx.post(f"{url}/api/search", json={"text": "warm up"}, timeout=60)
            break
        except httpx.TransportError:
            time.sleep(0.1)
    assert process.pid is not None
    yield url, process.pid
    process.terminate()
    process.join(20)


def hammer(url: str, process: int, clients: int, seconds: float) -> None:
    """Everybody begins at once; nobody waits between an answer and the next question."""
    start = threading.Barrier(clients)

    def one(number: int) -> list[tuple[int, float]]:
        answers = []
        with httpx.Client(base_url=url, timeout=60) as client:
            start.wait()
            stop = time.monotonic() + seconds
            while time.monotonic() < stop:
                asked = time.perf_counter()
                answers.append((status(client, number), 1e3 * (time.perf_counter() - asked)))
        return answers

    with ThreadPoolExecutor(clients) as pool:
        answers = [answer for some in pool.map(one, range(clients)) for answer in some]
    good = [took for code, took in answers if code == 200]
    refused = sum(code in (429, 503) for code, _ in answers)
    p50, p95 = np.quantile(good, [0.5, 0.95]) if good else (float("nan"), float("nan"))
    print(
        f"{clients:>8} {len(good) / seconds:>11.1f} {refused / seconds:>10.1f} {len(answers) - len(good) - refused:>6} "
        f"{p50:>8.1f} {p95:>8.1f} {peak_megabytes(process):>8.0f}",
        flush=True,
    )


def status(client: httpx.Client, number: int) -> int:
    """0: no answer at all."""
    try:
        return client.post("/api/search", json={"text": QUERIES[number % len(QUERIES)]}).status_code
    except httpx.TransportError:
        return 0


def peak_megabytes(process: int) -> float:
    """The most memory a process has had resident."""
    lines: Any = Path(f"/proc/{process}/status").read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder")
    parser.add_argument("images", nargs="+")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--waiting", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10)
    given = parser.parse_args()
    load(given.encoder, given.images, given.workers, given.waiting, given.seconds)


if __name__ == "__main__":
    main()
