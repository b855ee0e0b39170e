"""Shards: what is written is read; what is damaged is counted; nothing half-written is ever seen."""

from __future__ import annotations

import gzip
import io
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

from goldiclip.data import index_file, schema, shard_paths
from goldiclip.data.shard_paths import ShardError, expand
from goldiclip.data.shard_writer import ShardWriter, safe_key, write_shard
from goldiclip.data.shards import BadSample, Shards, write_shards
from goldiclip.types import Caption, Region, Sample

JPEG = b"\xff\xd8\xff\xe0 not decoded here"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GOLDICLIP_CACHE", str(folder))
    return folder


def sample(number: int, key: str = "") -> Sample:
    box = (0.1, 0.2, 0.3, 0.4)
    return Sample(
        key=key or f"{number:06d}",
        image=JPEG + bytes(number % 700),
        captions=(Caption(f"caption {number}"), Caption("Long. Text.", "long")),
        regions=(Region("thing", box, "a thing", 0.5),),
        meta={"number": number},
    )


def members(path: Path, *items: tuple[str, bytes] | tarfile.TarInfo, format: int = tarfile.USTAR_FORMAT) -> Path:
    """A tar of exactly these members, whatever their names."""
    with tarfile.open(path, "w", format=format) as tar:
        for item in items:
            info = item if isinstance(item, tarfile.TarInfo) else tarfile.TarInfo(item[0])
            payload = b"" if isinstance(item, tarfile.TarInfo) else item[1]
            info.size = len(payload)
            tar.addfile(info, io.BytesIO(payload))
    return path


def record(text: str = "c") -> bytes:
    return json.dumps({"caption": text}).encode()


def pair(key: str, text: str = "c") -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    return (f"{key}.jpg", JPEG), (f"{key}.json", record(text))


def keys(shards: Shards) -> list[str]:
    return [key for number in range(len(shards.paths)) for key in shards.keys(number)]


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


# --- damaged and hostile archives -----------------------------------------------------------------------------------


def test_members_of_any_other_kind_are_ignored_and_counted(tmp_path):
    link = tarfile.TarInfo("000.json")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    device = tarfile.TarInfo("001.jpg")
    device.type = tarfile.CHRTYPE
    folder = tarfile.TarInfo("folder.jpg")
    folder.type = tarfile.DIRTYPE
    payload = pickle.dumps({"caption": "c"})
    path = members(
        tmp_path / "a.tar",
        link,
        device,
        folder,
        ("000.pyd", payload),
        ("000.pickle", payload),
        ("000.cls", b"1"),
        (".jpg", b"x"),
        *pair("000"),
    )
    shards = Shards(str(path))
    assert keys(shards) == ["000"]
    assert shards[0].captions == (Caption("c"),)
    assert shards.counts == {"link or device": 2, "member ignored": 4}
    assert list(shards.problems()) == [(str(path), "member ignored", 4), (str(path), "link or device", 2)]


@pytest.mark.parametrize(
    "name", ["../up.jpg", "a/../../up.jpg", "/abs.jpg", "..\\up.jpg", "\\abs.jpg", "c:x.jpg", "n" * 5_000 + ".jpg"]
)
def test_a_name_that_leaves_the_archive_is_refused_and_counted(tmp_path, name):
    path = members(tmp_path / "a.tar", (name, JPEG), *pair("000"), format=tarfile.PAX_FORMAT)
    shards = Shards(str(path))
    assert keys(shards) == ["000"]
    assert shards.counts == {"name refused": 1}


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_every_dialect_of_tar_is_read(tmp_path, format):
    key = "folder/" * 18 + "k"
    shards = Shards(str(members(tmp_path / "a.tar", *pair("./plain"), *pair(key), *pair("ünïcode"), format=format)))
    assert keys(shards) == ["plain", key, "ünïcode"]
    assert [item.captions[0].text for item in shards] == ["c", "c", "c"]


def test_sparse_members_are_ignored_and_what_follows_them_is_read(tmp_path):
    if subprocess.run(["tar", "--version"], capture_output=True).returncode:
        pytest.skip("no tar program")
    with open(tmp_path / "000.jpg", "wb") as file:
        for block in range(24):  # more holes than fit into the header: an old GNU sparse map goes on in further blocks
            file.seek(block * 200_000)
            file.write(b"x")
    (tmp_path / "001.jpg").write_bytes(JPEG)
    (tmp_path / "001.txt").write_bytes(b"c")
    for format in ("gnu", "posix"):
        path = tmp_path / f"{format}.tar"
        subprocess.run(
            ["tar", "-cS", f"--format={format}", "-f", path, "000.jpg", "001.jpg", "001.txt"], cwd=tmp_path, check=True
        )
        shards = Shards(str(path))
        assert keys(shards) == ["001"]
        assert shards.counts == {"member ignored": 1}
        assert shards[0].image == JPEG


def test_a_cut_tar_yields_the_whole_samples_before_the_cut(tmp_path):
    whole = write_shard([sample(i) for i in range(6)], tmp_path / "a.tar").read_bytes()
    index = index_file.build_index(tmp_path / "a.tar")
    ends = [max(start + size for start, size in zip(index.place(i).start, index.place(i).size)) for i in range(6)]
    path = tmp_path / "cut.tar"
    for cut in sorted({*range(0, ends[-1] + 1, 512), *ends, *(end - 1 for end in ends)}):
        path.write_bytes(whole[:cut])
        num_whole = sum(end <= cut for end in ends)
        if num_whole:
            shards = Shards(str(path))
            assert len(shards) == num_whole
            assert [item.meta["number"] for item in shards] == list(range(num_whole))
            assert shards.counts == {"cut short": 1}
        else:
            with pytest.raises(ShardError, match=r"no sample in 1 shards \(1 × cut short\)"):
                Shards(str(path))


def test_a_cut_never_leaves_a_sample_without_its_record(tmp_path):
    whole = members(
        tmp_path / "a.tar", *pair("0"), ("1.jpg", JPEG), ("1.txt", b"text"), ("1.json", record())
    ).read_bytes()
    end = whole.rindex(record()) + len(record())
    for cut in range(2_100, end + 1, 4):
        (tmp_path / "cut.tar").write_bytes(whole[:cut])
        index = index_file.build_index(tmp_path / "cut.tar")
        assert [index.place(i).key for i in range(len(index))] == (["0", "1"] if cut == end else ["0"])


def test_a_damaged_header_cuts_and_the_rest_is_counted(tmp_path):
    path = members(tmp_path / "a.tar", *pair("0"), *pair("1"), *pair("2"))
    raw = bytearray(path.read_bytes())
    raw[2 * 1024 + 7] ^= 0x20
    path.write_bytes(raw)
    shards = Shards(str(path))
    assert keys(shards) == ["0"]
    assert shards.counts == {"cut short": 1}


def test_joined_tars_are_read_up_to_the_first_end_and_said_to_go_on(tmp_path):
    parts = [members(tmp_path / f"{i}.tar", *pair(str(i))).read_bytes() for i in range(2)]
    (tmp_path / "joined.tar").write_bytes(b"".join(parts))
    shards = Shards(str(tmp_path / "joined.tar"))
    assert keys(shards) == ["0"]
    assert shards.counts == {"data after the end": 1}


def test_of_duplicate_keys_the_first_one_wins(tmp_path):
    path = members(
        tmp_path / "a.tar",
        *pair("0", "first"),
        *pair("1"),
        *pair("0", "second"),
        ("2.jpg", JPEG),
        ("2.png", b"x"),
        ("2.txt", b"t"),
    )
    shards = Shards(str(path))
    assert keys(shards) == ["0", "1", "2"]
    assert shards[0].captions[0].text == "first"
    assert shards[2].image == JPEG
    assert shards.counts == {"duplicate key": 1, "second member": 1}


def test_members_of_one_key_may_lie_apart(tmp_path):
    shards = Shards(
        str(members(tmp_path / "a.tar", ("0.jpg", JPEG), ("1.jpg", JPEG + b"1"), ("0.txt", b"zero"), ("1.txt", b"one")))
    )
    assert [(item.image, item.captions[0].text) for item in shards] == [(JPEG, "zero"), (JPEG + b"1", "one")]


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([("0.json", record())], "no image"),
        ([("0.jpg", b""), ("0.json", record())], "empty image"),
        ([("0.jpg", JPEG)], "no caption"),
        ([("0.jpg", JPEG), ("0.json", b"")], "unreadable JSON"),
        ([("0.jpg", JPEG), ("0.json", b"{'a': 1}")], "unreadable JSON"),
        ([("0.jpg", JPEG), ("0.json", b"{}")], "no caption"),
        ([("0.jpg", JPEG), ("0.txt", b"")], "no caption"),
        ([("0.jpg", JPEG), ("0.json", b" " * (schema.MAX_RECORD_BYTES + 1))], "record too large"),
        ([("0.jpg", bytes(schema.MAX_IMAGE_BYTES + 1)), ("0.json", record())], "image too large"),
    ],
)
def test_a_bad_sample_keeps_its_place_and_says_why(tmp_path, items, reason):
    shards = Shards(str(members(tmp_path / "a.tar", *items, *pair("1"))))
    assert len(shards) == 2
    with pytest.raises(BadSample) as caught:
        shards[0]
    assert (caught.value.reason, caught.value.key, caught.value.origin) == (reason, "0", str(tmp_path / "a.tar"))
    assert shards[1].key == "1"


def test_the_text_member_is_the_caption_where_the_record_has_none(tmp_path):
    url = json.dumps({"url": "u"}).encode()
    shards = Shards(
        str(
            members(
                tmp_path / "a.tar",
                ("0.jpg", JPEG),
                ("0.txt", b"from text"),
                ("0.json", url),
                *pair("1", "from json"),
                ("1.txt", b"no"),
            )
        )
    )
    assert [item.captions[0].text for item in shards] == ["from text", "from json"]


def test_a_shard_that_shrinks_or_goes_away_after_indexing_is_bad_samples_and_no_crash(tmp_path):
    path = write_shard([sample(i) for i in range(4)], tmp_path / "a.tar")
    shards = Shards(str(path))
    opened = pickle.loads(pickle.dumps(shards))
    opened[0]
    os.truncate(path, 3_000)
    assert opened[0].key == "000000"
    for late in (opened, shards):
        with pytest.raises(BadSample, match="shard changed"):
            late[3]
    path.unlink()
    shards = pickle.loads(pickle.dumps(shards))
    with pytest.raises(BadSample, match="read failed"):
        shards[0]


# --- the index ------------------------------------------------------------------------------------------------------


def test_the_index_is_built_once_and_kept_beside_the_shard(tmp_path, monkeypatch):
    path = write_shard([sample(i) for i in range(3)], tmp_path / "a.tar")
    Shards(str(path))
    assert sorted(os.listdir(tmp_path)) == ["a.tar", "a.tar.index"]
    monkeypatch.setattr(index_file, "build_index", lambda _: pytest.fail("built again"))
    assert [item.key for item in Shards(str(path))] == ["000000", "000001", "000002"]
    assert [item.key for item in Shards(str(tmp_path / "a*"))] == ["000000", "000001", "000002"]


def test_a_changed_shard_is_indexed_anew(tmp_path):
    path = write_shard([sample(i) for i in range(3)], tmp_path / "a.tar")
    before = Shards(str(path))
    write_shard([sample(i) for i in range(5)], path)
    after = Shards(str(path))
    assert (len(before), len(after)) == (3, 5)
    assert before.fingerprint != after.fingerprint


@pytest.mark.parametrize("damage", [b"", b"junk", "cut", "flip"])
def test_a_damaged_index_is_built_anew(tmp_path, damage):
    path = write_shard([sample(i) for i in range(3)], tmp_path / "a.tar")
    Shards(str(path))
    index = tmp_path / "a.tar.index"
    raw = bytearray(index.read_bytes())
    if damage == "cut":
        raw = raw[:-1]
    elif damage == "flip":
        raw[index_file._HEAD.size + 6] ^= 0xFF  # the first image now starts beyond the shard's end
    else:
        raw = bytearray(damage)
    index.write_bytes(raw)
    assert [item.key for item in Shards(str(path))] == ["000000", "000001", "000002"]


def test_where_the_folder_cannot_be_written_the_index_goes_to_the_cache(tmp_path, cache, monkeypatch):
    path = write_shard([sample(i) for i in range(3)], tmp_path / "a.tar")
    write = index_file.write_index

    def only_in_cache(index, stamp, where):  # root may write anywhere, so permissions alone prove nothing here
        if cache not in where.parents:
            raise PermissionError(where)
        return write(index, stamp, where)

    monkeypatch.setattr(index_file, "write_index", only_in_cache)
    assert len(Shards(str(path))) == 3
    assert len(list((cache / "index").iterdir())) == 1
    monkeypatch.setattr(index_file, "build_index", lambda _: pytest.fail("built again"))
    assert Shards(str(path))[2].key == "000002"


def test_where_no_index_can_be_kept_it_is_built_each_time(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError

    path = write_shard([sample(i) for i in range(3)], tmp_path / "a.tar")
    monkeypatch.setattr(index_file, "write_index", refuse)
    assert [item.key for item in Shards(str(path))] == ["000000", "000001", "000002"]
    assert os.listdir(tmp_path) == ["a.tar"]


def test_an_index_takes_tens_of_bytes_a_sample(tmp_path):
    path = write_shard([sample(i) for i in range(1_000)], tmp_path / "a.tar")
    Shards(str(path))
    assert (tmp_path / "a.tar.index").stat().st_size < 60 * 1_000


def test_the_fingerprint_follows_content_and_order_and_not_the_folder(tmp_path):
    for name in ("here", "there"):
        write_shards([sample(i) for i in range(6)], tmp_path / name, per_shard=3)
    here, there = Shards(str(tmp_path / "here")), Shards(str(tmp_path / "there"))
    assert here.fingerprint == there.fingerprint
    assert Shards(list(reversed(here.paths))).fingerprint != here.fingerprint
    assert Shards(here.paths[0]).fingerprint != here.fingerprint


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
