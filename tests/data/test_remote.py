"""Shards from elsewhere: fetched once, within bounds, by any number of processes, over a network that fails."""

from __future__ import annotations

import http.server
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import fsspec
import pytest

from goldiclip.data import remote
from goldiclip.data.shard_paths import ShardError
from goldiclip.data.shards import BadSample, Shards, write_shards
from goldiclip.types import Caption, Sample

NUM_SHARDS, PER_SHARD = 5, 4
SHARD_BYTES = 256_000


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> Path:
    """Five shards of a quarter megabyte."""
    folder = tmp_path_factory.mktemp("published")
    write_shards((Sample(f"{i:03d}", bytes([i]) * 60_000, (Caption(f"c{i}"),)) for i in range(20)), folder, PER_SHARD)
    assert {path.stat().st_size for path in folder.iterdir()} == {SHARD_BYTES}
    return folder


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder; `broken` answers that many times with half a body, `asked` counts what was fetched."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.broken, self.asked = folder, 0, Counter()
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self._answer(b"")

    def do_GET(self) -> None:
        path = self.server.folder / self.path.strip("/")
        self._answer(path.read_bytes() if path.is_file() else b"")

    def _answer(self, body: bytes) -> None:
        path = self.server.folder / self.path.strip("/")
        if not path.is_file():
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(path.stat().st_size))
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.end_headers()
        if body:
            self.server.asked[path.name] += 1
            if self.server.broken > 0:
                self.server.broken -= 1
                body = body[: len(body) // 2]
                self.close_connection = True
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(published, tmp_path, monkeypatch):
    folder = tmp_path / "site"
    folder.mkdir()
    for path in published.glob("*.tar"):
        os.link(path, folder / path.name)
    monkeypatch.setattr(remote, "FIRST_PAUSE_SECONDS", 0.01)
    with Server(folder) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        server.url = f"http://127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def memory(published):
    system = fsspec.filesystem("memory")
    for path in published.glob("*.tar"):
        system.pipe(f"/set/{path.name}", path.read_bytes())
    yield "memory://set"
    system.rm("/set", recursive=True)


def held(cache: Path) -> int:
    return sum(path.stat().st_size for path in (cache / "shards").iterdir())


def gigabytes(num_shards: float) -> float:
    return num_shards * SHARD_BYTES / 1e9


def test_remote_shards_are_read_like_local_ones(memory, published, tmp_path):
    local, shards = Shards(str(published)), Shards(f"{memory}/{{00000..00004}}.tar", cache=tmp_path)
    assert shards.lengths.tolist() == [PER_SHARD] * NUM_SHARDS
    assert shards.fingerprint == local.fingerprint
    assert [(item.key, item.image) for item in shards] == [(item.key, item.image) for item in local]
    assert shards[0].origin == f"{memory}/00000.tar"


def test_a_remote_glob_lists_what_is_there(memory, tmp_path):
    assert len(Shards(f"{memory}/*.tar", cache=tmp_path).paths) == NUM_SHARDS
    with pytest.raises(FileNotFoundError, match="nothing matches"):
        Shards(f"{memory}/x*.tar", cache=tmp_path)


def test_each_shard_is_fetched_once_and_not_at_all_by_the_next_run(server, tmp_path):
    for _ in range(2):
        shards = Shards(f"{server.url}/{{00000..00004}}.tar", cache=tmp_path / "cache")
        assert [item.key for item in shards] == [f"{i:03d}" for i in range(20)]
        assert set(server.asked.values()) == {1}


def test_the_cache_stays_within_its_room(memory, tmp_path):
    shards = Shards(f"{memory}/*.tar", gigabytes(2), cache=tmp_path, open_shards=1)
    for i in [0, 19, 4, 8, 12, 3, 19]:
        assert shards[i].key == f"{i:03d}"
        assert held(tmp_path) <= 2 * SHARD_BYTES


def test_the_least_recently_used_makes_room(server, tmp_path):
    cache = tmp_path / "cache"
    shards = Shards(f"{server.url}/{{00000..00002}}.tar", gigabytes(2), cache=cache, open_shards=1)
    server.asked.clear()
    for i in (0, 4, 0, 8, 0):  # the third shard takes the second one's place, not the first one's
        shards[i]
        time.sleep(0.01)
    assert server.asked["00000.tar"] <= 1
    before = server.asked["00001.tar"]
    shards[4]
    assert server.asked["00001.tar"] == before + 1


def test_a_shard_in_use_is_not_removed(memory, tmp_path):
    shards = Shards(f"{memory}/*.tar", gigabytes(2), cache=tmp_path, open_shards=5)
    opened = [shards._open(number) for number in range(NUM_SHARDS)]
    assert held(tmp_path) == NUM_SHARDS * SHARD_BYTES  # over the bound rather than fetched again and again
    del opened
    shards._reset()
    shards[0]
    remote.RemoteShards(tmp_path, gigabytes(2)).trim()
    assert held(tmp_path) <= 2 * SHARD_BYTES


def test_a_shard_larger_than_the_room_is_refused_before_anything_starts(memory, tmp_path):
    with pytest.raises(ShardError, match=r"raise data\.cache_gigabytes"):
        Shards(f"{memory}/*.tar", gigabytes(0.5), cache=tmp_path)


def test_a_published_index_spares_the_fetching(server, published, tmp_path):
    Shards(str(published))  # builds the indices beside the shards
    for path in published.glob("*.index"):
        (server.folder / path.name).write_bytes(path.read_bytes())
    shards = Shards(f"{server.url}/{{00000..00004}}.tar", cache=tmp_path / "cache")
    assert not any(name.endswith(".tar") for name in server.asked)
    assert [item.key for item in shards[5:7]] == ["005", "006"]
    assert server.asked["00001.tar"] == 1


def test_a_published_index_of_another_shard_is_not_believed(server, published, tmp_path):
    Shards(str(published))
    index = bytearray((published / "00000.tar.index").read_bytes())
    index[16] ^= 1  # the size of the tar it is of
    (server.folder / "00000.tar.index").write_bytes(index)
    assert Shards(f"{server.url}/00000.tar", cache=tmp_path / "cache")[3].key == "003"
    assert server.asked["00000.tar"] == 1


def test_a_broken_transfer_is_tried_again(server, tmp_path):
    server.broken = 2
    shards = Shards(f"{server.url}/00000.tar", cache=tmp_path / "cache")
    assert [item.key for item in shards] == ["000", "001", "002", "003"]
    assert server.asked["00000.tar"] == 3


def test_a_transfer_that_stays_broken_is_said_and_leaves_nothing(server, tmp_path):
    server.broken = 99
    with pytest.raises(ShardError, match=r"00000\.tar: .*\(3 attempts\)"):
        Shards(f"{server.url}/00000.tar", cache=tmp_path / "cache")
    assert not [name for name in os.listdir(tmp_path / "cache" / "shards") if not name.endswith(".lock")]


def test_a_network_lost_during_a_run_gives_bad_samples(server, tmp_path):
    shards = Shards(f"{server.url}/{{00000..00001}}.tar", gigabytes(1), cache=tmp_path / "cache", open_shards=1)
    shards[4]
    server.broken = 99
    with pytest.raises(BadSample, match="read failed"):
        shards[0]
    server.broken = 0
    assert shards[0].key == "000"


def test_a_missing_shard_and_an_unknown_protocol_are_said(server, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"gone\.tar: no such shard"):
        Shards(f"{server.url}/gone.tar", cache=tmp_path)
    with pytest.raises(ShardError, match="nosuch"):
        Shards("nosuch://x/a.tar", cache=tmp_path)
    with pytest.raises(FileNotFoundError, match="Cannot connect"):  # a closed port is not a missing file
        Shards("http://127.0.0.1:1/a.tar", cache=tmp_path)
    with pytest.raises(ShardError, match=r"ftp://127.0.0.1:1/a\.tar: cannot be read: .*refused"):
        Shards("ftp://127.0.0.1:1/a.tar", cache=tmp_path)


def test_a_changed_remote_shard_is_fetched_anew(server, published, tmp_path):
    url = f"{server.url}/00000.tar"
    assert Shards(url, cache=tmp_path / "cache")[0].key == "000"
    os.unlink(server.folder / "00000.tar")
    (server.folder / "00000.tar").write_bytes((published / "00003.tar").read_bytes())
    fsspec.filesystem("http").dircache.clear()
    assert Shards(url, cache=tmp_path / "cache")[0].key == "012"


def _read_everything(url: str, cache: Path, order: int) -> list[str]:
    shards = Shards(f"{url}/{{00000..00004}}.tar", gigabytes(4), cache=cache, open_shards=1)
    return sorted(shards[(i * order) % 20].key for i in range(20))


def test_processes_at_once_share_one_bounded_cache(server, tmp_path):
    cache = tmp_path / "cache"
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.starmap(_read_everything, [(server.url, cache, order) for order in (1, 3, 7, 9)])
    assert found == [[f"{i:03d}" for i in range(20)]] * 4
    assert held(cache) <= 4 * SHARD_BYTES  # each process holds one shard and may be fetching another
    assert not list((cache / "shards").glob("*.part"))


def _read_some(shards: Shards) -> list[str]:
    return [shards[i].key for i in range(0, 20, 3)]


def test_forked_workers_fetch_for_themselves(server, tmp_path):
    shards = Shards(f"{server.url}/{{00000..00004}}.tar", gigabytes(2), cache=tmp_path / "cache", open_shards=1)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_read_some, [shards] * 3) == [[f"{i:03d}" for i in range(0, 20, 3)]] * 3


DIE_WHILE_FETCHING = """
import os, signal, sys
from pathlib import Path
from goldiclip.data import remote
remote.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
from goldiclip.data.shards import Shards
Shards(sys.argv[1], cache=Path(sys.argv[2]))
"""


def test_a_process_killed_while_fetching_leaves_no_lock_and_its_half_file_makes_room(server, tmp_path):
    cache = tmp_path / "cache"
    code = subprocess.run([sys.executable, "-c", DIE_WHILE_FETCHING, f"{server.url}/00000.tar", cache]).returncode
    assert code == -signal.SIGKILL
    assert len(list((cache / "shards").glob("*.part"))) == 1
    shards = Shards(f"{server.url}/{{00001..00004}}.tar", gigabytes(1), cache=cache, open_shards=1)
    assert len(list(shards)) == 16
    assert not list((cache / "shards").glob("*.part"))
    assert Shards(f"{server.url}/00000.tar", gigabytes(1), cache=cache)[0].key == "000"
