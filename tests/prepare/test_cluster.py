"""The same pipeline on a real Ray cluster of two nodes, with a worker killed on the way: not a byte differs."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest
from scripted import DieOnce, Fail, WhereItRuns, find_by_script, write_by_script

from goldiclip.config import ConfigError
from goldiclip.data.shards import Shards, write_shards
from goldiclip.prepare.blocks import Block, Job, is_stored, plan_shards
from goldiclip.prepare.cluster import _gpu_share, _operators
from goldiclip.prepare.pipeline import annotate
from goldiclip.prepare.stages import Boxes, Phrases, Questions

STAGES = (Phrases("rules"), Boxes(find_by_script), Questions(write_by_script))
STARTED = re.compile(r"--address='([\d.]+:\d+)'")


@pytest.fixture(autouse=True)
def no_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray would put a token into the home folder."""
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A head and a second node on loopback, one CPU each; ended by their process groups, whatever happens."""
    pytest.importorskip("ray")
    folder = Path(tempfile.mkdtemp(prefix="ray"))  # sockets need a short path
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parent),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "disabled",
        "OMP_NUM_THREADS": "1",
    }
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--num-cpus=1", "--disable-usage-stats"]
    ray += ["--object-store-memory=100000000", "--node-ip-address=127.0.0.1"]
    nodes = []
    try:
        head = [*ray, "--head", "--port=0", "--include-dashboard=false", f"--temp-dir={folder}"]
        nodes.append(start_node(head, environment, folder / "head"))
        address = wait_for(STARTED, folder / "head")
        nodes.append(start_node([*ray, f"--address={address}"], environment, folder / "node"))
        wait_for(re.compile("Ray runtime started"), folder / "node")
        yield address
    finally:
        for node in reversed(nodes):
            end(node)
        end_processes_of(folder)
        shutil.rmtree(folder, ignore_errors=True)


def start_node(command: list[str], environment: dict[str, str], said: Path) -> subprocess.Popen[bytes]:
    with open(said, "wb") as file:
        return subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)


def wait_for(pattern: re.Pattern[str], said: Path, seconds: float = 120.0) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if match := pattern.search(said.read_text(errors="replace")):
            return match[match.lastindex or 0]
        time.sleep(0.1)
    raise TimeoutError(said.read_text(errors="replace")[-2_000:])


def end(node: subprocess.Popen[bytes]) -> None:
    """A node and its process group; half a second to go in peace."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(node.pid, sent)
        with contextlib.suppress(subprocess.TimeoutExpired):
            node.wait(0.5 if sent == signal.SIGTERM else None)


def end_processes_of(folder: Path) -> None:
    """Whatever else this cluster started: it names the cluster's own folder on its command line."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_two_nodes_and_a_killed_worker_give_the_same_bytes(cluster: str, tmp_path: Path) -> None:
    from test_pipeline import sample

    write_shards((sample(number) for number in range(48)), tmp_path / "in", 20)
    annotate(Shards(str(tmp_path / "in")), Job(tmp_path / "alone", STAGES, 8), quiet=True)
    stages = (*STAGES, WhereItRuns(tmp_path), DieOnce("0030", tmp_path))
    shards, job = Shards(str(tmp_path / "in")), Job(tmp_path / "cluster", stages, 8)
    report = annotate(shards, job, ray=cluster, quiet=True)
    assert (tmp_path / "died-0").exists()
    assert len(list(tmp_path.glob("node-*"))) == 2
    assert report.samples == 48
    assert digests(tmp_path / "cluster") == digests(tmp_path / "alone")
    assert annotate(shards, job, ray=cluster, quiet=True).skipped == 3


@pytest.mark.slow
@pytest.mark.distributed
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_two_models_share_the_one_gpu_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray is told of a GPU, which no model here uses: each of two pools would wait for a whole one for ever."""
    ray = pytest.importorskip("ray")
    from test_pipeline import sample

    write_shards((sample(number) for number in range(12)), tmp_path / "in", 6)
    shards = Shards(str(tmp_path / "in"))
    annotate(shards, Job(tmp_path / "alone", STAGES, 4), quiet=True)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # of the actors
    ray.init(num_cpus=3, num_gpus=1, include_dashboard=False, logging_level=logging.ERROR, log_to_driver=False)
    try:
        annotate(shards, Job(tmp_path / "cluster", STAGES, 4), ray="local", quiet=True)
    finally:
        ray.shutdown()
    assert digests(tmp_path / "cluster") == digests(tmp_path / "alone")


@pytest.mark.parametrize(
    ("gpus", "models", "share"), [(0, 0, 1.0), (4, 2, 1.0), (2, 2, 1.0), (1, 2, 0.5), (2, 3, 2 / 3)]
)
def test_more_models_than_gpus_share_them(gpus: int, models: int, share: float) -> None:
    assert _gpu_share(gpus, models) == pytest.approx(share)


def test_an_error_of_ours_travels_to_the_end_as_a_row(corpus_block: Block, tmp_path: Path) -> None:
    row = {"block": pickle.dumps(corpus_block), "counts": "{}", "samples": b"", "error": ""}
    for error, said in ((ConfigError, "no such model"), (OSError, "No space left on device; what is finished stays")):
        stage = Fail(error, "no such model", errno.ENOSPC if error is OSError else 0)
        job = Job(tmp_path / "out", (stage, Boxes(find_by_script)))
        ((first, _), (second, _), (third, _)) = _operators(job, has_gpus=True)
        row_after = third()(second()(first()(row)))
        assert said in row_after["error"]
        assert row_after["samples"] == b""
        assert not is_stored(corpus_block)


def test_operators_one_after_the_other_store_what_one_would(corpus_block: Block, tmp_path: Path) -> None:
    row = {"block": pickle.dumps(corpus_block), "counts": "{}", "samples": b"", "error": ""}
    stored = []
    for has_gpus in (False, True):
        passed = row
        for operator, _ in _operators(Job(corpus_block.plan.out, STAGES), has_gpus):
            passed = operator()(passed)
        stored.append((corpus_block.path.read_bytes(), corpus_block.counts_path.read_bytes(), passed["counts"]))
    assert stored[0] == stored[1]


@pytest.fixture
def corpus_block(tmp_path: Path) -> Block:
    from test_pipeline import sample

    write_shards((sample(number) for number in range(6)), tmp_path / "in")
    job = Job(tmp_path / "out", STAGES)
    return plan_shards(Shards(str(tmp_path / "in")), job)[0].blocks(job.block)[0]


def digests(out: Path) -> dict[str, str]:
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in sorted(out.glob("*.tar"))}


def test_models_get_pools_of_their_own_where_there_are_gpus(tmp_path: Path) -> None:
    stages = (Phrases("rules"), Boxes(find_by_script), Questions("templates"))
    found = [(operator.__name__, gpus) for operator, gpus in _operators(Job(tmp_path, stages), has_gpus=True)]
    assert found == [("read_phrases", 0), ("boxes", 1), ("questions_store", 0)]
    both = (Boxes(find_by_script), Questions(write_by_script))
    found = [(operator.__name__, gpus) for operator, gpus in _operators(Job(tmp_path, both), has_gpus=True)]
    assert found == [("read", 0), ("boxes", 1), ("questions", 1), ("store", 0)]
    found = [(operator.__name__, gpus) for operator, gpus in _operators(Job(tmp_path, stages), has_gpus=False)]
    assert found == [("read_phrases_boxes_questions_store", 0)]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_a_cluster_that_is_not_there_is_said(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    from test_pipeline import sample

    write_shards([sample(0)], tmp_path / "in")
    with pytest.raises(ConfigError, match=r"--ray nowhere: .*is the cluster running"):
        annotate(Shards(str(tmp_path / "in")), Job(tmp_path / "out", STAGES), ray="nowhere", quiet=True)
