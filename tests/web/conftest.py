"""A real server on loopback, over a small index of real pictures."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from web_server import Server, encoded, find_phrases, picture

from goldiclip import recipes
from goldiclip.inference.engine import Engine
from goldiclip.inference.index import Index
from goldiclip.inference.sources import images_in
from goldiclip.model.goldiclip import GoldiCLIP


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """Thirty pictures, one of them in a folder with a name that needs quoting."""
    folder = tmp_path_factory.mktemp("photos")
    (folder / "sea & sand").mkdir()
    for seed in range(30):
        picture(seed).save(folder / ("sea & sand" if seed == 7 else "") / f"{seed:02d}.png")
    (folder.parent / "secret.png").write_bytes(encoded(picture(99)))
    config = replace(recipes.recipe("tiny").model, init_logit_bias=0.0)
    engine = Engine(GoldiCLIP(config, seed=5), image_size=32, device="cpu")
    index = Index.create(tmp_path_factory.mktemp("indices") / "index", engine)
    index.add(images_in(folder))
    return index


@pytest.fixture(scope="session")
def server(index: Index) -> Iterator[Server]:
    """The server as `goldiclip serve` runs it, in a thread."""
    uvicorn = pytest.importorskip("uvicorn", reason="the serve extra is not installed")
    pytest.importorskip("fastapi", reason="the serve extra is not installed")
    from goldiclip.web.app import create_app

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    app = create_app(index, find_phrases, workers=1, waiting=8, seconds=20)
    running = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", ws="none", timeout_keep_alive=5))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not running.started:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield Server(f"http://127.0.0.1:{port}", port)
    running.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("uploads") / "broken.jpg"
    path.write_bytes(b"\xff\xd8\xff\xe0 no picture")
    return path
