"""Shards: what is written is read by any number of readers; nothing half-written is ever seen."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from goldiclip.data import shard_paths
from goldiclip.data.shard_paths import ShardError, expand
from goldiclip.data.shard_writer import ShardWriter, safe_key, write_shard
from goldiclip.data.shards import Shards, write_shards
from goldiclip.types import Caption, Sample
from made_shards import JPEG, keys, sample

# --- writing and reading --------------------------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path):
    samples = [sample(i) for i in range(25)]
    paths = write_shards(samples, tmp_path / "set", per_shard=10)
    assert [path.name for path in paths] == ["00000.tar", "00001.tar", "00002.tar"]
    shards = Shards(str(tmp_path / "set"))
    assert shards.lengths.tolist() == [10, 10, 5]
    assert len(shards) == 25
    for i in range(25):
        found = shards[i]
        assert found.origin == str(paths[i // 10])
        assert (found.key, found.image, found.captions, found.regions, found.meta) == (
            samples[i].key,
            samples[i].image,
            samples[i].captions,
            samples[i].regions,
            samples[i].meta,
        )
    assert shards[-1] == shards[24]
    assert [item.key for item in shards[8:12]] == ["000008", "000009", "000010", "000011"]
    for outside in (25, -26):
        with pytest.raises(IndexError):
            shards[outside]


def test_other_tar_readers_read_what_is_written(tmp_path):
    path = write_shard([sample(3)], tmp_path / "a.tar")
    with tarfile.open(path) as tar:
        assert tar.getnames() == ["000003.jpg", "000003.json"]
        assert json.load(tar.extractfile("000003.json"))["captions"] == {"raw": ["caption 3"], "long": ["Long. Text."]}


def test_equal_samples_give_equal_bytes(tmp_path):
    first, second = (write_shard([sample(i) for i in range(7)], tmp_path / name) for name in ("a.tar", "b.tar"))
    assert first.read_bytes() == second.read_bytes()


def test_long_and_foreign_keys_survive(tmp_path):
    names = ["x" * 300, "tür/犬", "a/b/c", "0"]
    write_shard([sample(i, key) for i, key in enumerate(names)], tmp_path / "a.tar")
    assert keys(Shards(str(tmp_path / "a.tar"))) == names


@pytest.mark.parametrize("key", ["a.b", "", "/a", "../a", "a/../b", "a\\b", "a//b", "a\0b", "x" * 2_000])
def test_a_key_that_could_not_be_read_back_is_not_written(tmp_path, key):
    with pytest.raises(ValueError, match="cannot name a member"):
        write_shard([Sample(key, JPEG, (Caption("c"),))], tmp_path / "a.tar")
    assert list(tmp_path.iterdir()) == []


def test_safe_key_makes_a_key_of_any_name(tmp_path):
    names = ["a.b.jpg", "/etc/passwd", "../../x", "c:\\d", "ok/fine"]
    write_shard([sample(i, safe_key(name)) for i, name in enumerate(names)], tmp_path / "a.tar")
    assert keys(Shards(str(tmp_path / "a.tar"))) == ["a_b_jpg", "etc/passwd", "__/__/x", "c__d", "ok/fine"]


def test_a_key_twice_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="there already"):
        write_shard([sample(1), sample(1)], tmp_path / "a.tar")


def test_writing_into_a_used_folder_asks_first(tmp_path):
    write_shards([sample(i) for i in range(4)], tmp_path, per_shard=1)
    len(Shards(str(tmp_path)))
    with pytest.raises(FileExistsError, match="already holds 4 shards"):
        write_shards([sample(1)], tmp_path)
    write_shards([sample(1)], tmp_path, overwrite=True)
    assert os.listdir(tmp_path) == ["00000.tar"]


def test_an_exception_while_writing_leaves_whole_shards_alone(tmp_path):
    def failing():
        yield from (sample(i) for i in range(5))
        raise RuntimeError("source broke")

    with pytest.raises(RuntimeError):
        write_shards(failing(), tmp_path, per_shard=2)
    assert sorted(os.listdir(tmp_path)) == ["00000.tar", "00001.tar"]


WRITE_FOREVER = """
import itertools, sys
from goldiclip.data.shard_writer import ShardWriter
from goldiclip.types import Caption, Sample
with ShardWriter(sys.argv[1], per_shard=50) as writer:
    for i in itertools.count():
        writer.write(Sample(f"{i:06d}", bytes(20_000), (Caption("c"),)))
        if i == 120:
            print("far enough", flush=True)
"""


def test_a_kill_in_the_middle_leaves_no_half_shard(tmp_path):
    writer = subprocess.Popen([sys.executable, "-c", WRITE_FOREVER, tmp_path], stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"far enough\n"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    shards = Shards(str(tmp_path))
    assert len(shards.paths) >= 2
    assert set(shards.lengths.tolist()) == {50}
    assert shards.counts == {}
    # a second writer clears away what the first one left, however far that had come
    for path in shards.paths:
        os.unlink(path)
    number = len(shards.paths)
    write_shards((sample(i) for i in range((number + 1) * 2)), tmp_path, per_shard=2)
    assert not list(tmp_path.glob(".*.part"))


# --- patterns -------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path) -> Path:
    for name in ("a-00.tar", "a-01.tar", "a-02.tar", "b.tar"):
        write_shard([sample(0, name[:-4])], tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a-{00..02}.tar", "a-00 a-01 a-02"),
        ("a-{02..01}.tar", "a-02 a-01"),
        ("{a-0{0,2},b}.tar", None),
        ("a-0{0,2}.tar", "a-00 a-02"),
        ("{a-00,b}.tar", "a-00 b"),
        ("a-0{0..1}.t{ar,ar}", "a-00 a-00 a-01 a-01"),
        ("*.tar", "a-00 a-01 a-02 b"),
        ("a-0[12].tar", "a-01 a-02"),
        ("b.tar::a-0?.tar", "b a-00 a-01 a-02"),
        (".", "a-00 a-01 a-02 b"),
        (["b.tar", "a-00.tar"], "b a-00"),
    ],
)
def test_patterns_name_shards_in_order(folder, monkeypatch, pattern, names):
    monkeypatch.chdir(folder)
    if names is None:  # choices do not nest
        with pytest.raises(FileNotFoundError):
            expand(pattern)
    else:
        assert [Path(path).stem for path in expand(pattern)] == names.split()


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path):
    path = write_shard([sample(0)], tmp_path / "x[1].tar")
    assert expand(str(path)) == (str(path),)
    assert expand(path) == (str(path),)
    assert expand(f"file://{path}") == (str(path),)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("nothing.tar", "no such shard"),
        ("no/where.tar", "there is no folder no either"),
        ("c-*.tar", "nothing matches"),
        ("a-{00..05}.tar", "3 of its 6 shards are missing: a-03.tar, a-04.tar, a-05.tar"),
        ("b.tar::gone.tar", "gone.tar: no such shard"),
    ],
)
def test_what_is_missing_is_said_before_anything_starts(folder, monkeypatch, pattern, message):
    monkeypatch.chdir(folder)
    with pytest.raises(FileNotFoundError, match=message):
        Shards(pattern)


@pytest.mark.parametrize("pattern", ["pipe:cat a.tar", "PIPE:rm -rf x", "cmd:ls", "a.tar::pipe:curl x|tar"])
def test_a_command_in_place_of_a_path_is_refused(pattern, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shard([sample(0)], tmp_path / "a.tar")
    with pytest.raises(ShardError, match="never run"):
        Shards(pattern)


def test_a_pipe_or_a_device_is_refused_and_never_opened(tmp_path):
    os.mkfifo(tmp_path / "a.tar")  # opening it would wait for ever
    for path in (tmp_path / "a.tar", Path("/dev/zero")):
        with pytest.raises(ShardError, match="neither a file nor a folder"):
            Shards(str(path))


def test_no_pattern_an_empty_folder_and_an_endless_range_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_paths, "MAX_SHARDS", 1_000)
    with pytest.raises(ShardError, match="no shards given"):
        expand([])
    with pytest.raises(FileNotFoundError, match=r"no \*.tar"):
        expand(str(tmp_path))
    with pytest.raises(ShardError, match="names more than"):
        expand("{0..2000}.tar")


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tar"])
def test_a_compressed_tar_is_refused_by_name_and_by_content(tmp_path, name):
    plain = write_shard([sample(0)], tmp_path / "plain.tar")
    (tmp_path / name).write_bytes(gzip.compress(plain.read_bytes()))
    with pytest.raises(ShardError, match="random access; unpack it"):
        Shards(str(tmp_path / name))


# --- many readers ---------------------------------------------------------------------------------------------------


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_open_files_stay_bounded_and_are_closed(tmp_path):
    write_shards([sample(i) for i in range(60)], tmp_path, per_shard=1)
    before = _open_files()
    shards = Shards(str(tmp_path), open_shards=4)
    assert len(list(shards)) == 60
    assert _open_files() - before <= 4
    del shards
    assert _open_files() == before


def test_threads_may_read_at_once_while_files_are_closed_and_opened(tmp_path):
    write_shards([sample(i) for i in range(40)], tmp_path, per_shard=2)
    shards = Shards(str(tmp_path), open_shards=2)
    order = [(7 * i) % 40 for i in range(800)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda i: shards[i].meta["number"], order)) == order


def _numbers(shards: Shards, part: int) -> list[int]:
    return [shards[i].meta["number"] for i in range(part, len(shards), 2)]


@pytest.mark.parametrize(("method", "num_workers"), [("fork", 2), ("spawn", 1)])
def test_worker_processes_read_what_the_parent_opened(tmp_path, method, num_workers):
    write_shards([sample(i) for i in range(20)], tmp_path, per_shard=3)
    shards = Shards(str(tmp_path))
    shards[0]
    with multiprocessing.get_context(method).Pool(num_workers) as pool:
        even, odd = pool.starmap(_numbers, [(shards, 0), (shards, 1)])
    assert (even, odd) == (list(range(0, 20, 2)), list(range(1, 20, 2)))


def test_a_fork_while_another_thread_holds_the_lock_does_not_hang(tmp_path):
    write_shards([sample(i) for i in range(4)], tmp_path)
    shards = Shards(str(tmp_path))
    held, done = threading.Event(), threading.Event()

    def hold():
        with shards._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = multiprocessing.get_context("fork").Process(target=shards.read, args=(0, 1))
    child.start()
    child.join(20)
    exit_code = child.exitcode
    child.kill()
    done.set()
    thread.join()
    assert exit_code == 0


def test_pickled_shards_are_small_whatever_their_length(tmp_path):
    write_shards([sample(i) for i in range(500)], tmp_path)
    shards = Shards(str(tmp_path))
    list(shards)
    assert len(pickle.dumps(shards)) < 2_000


def test_a_writer_refuses_empty_shards(tmp_path):
    with pytest.raises(ValueError, match="per_shard"):
        ShardWriter(tmp_path, per_shard=0)
