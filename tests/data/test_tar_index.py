"""Damaged and hostile archives: what is whole is read, the rest is counted."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import tarfile

import pytest

from goldiclip.data import index_file, schema
from goldiclip.data.shard_paths import ShardError
from goldiclip.data.shard_writer import write_shard
from goldiclip.data.shards import BadSample, Shards
from goldiclip.types import Caption
from made_shards import JPEG, keys, members, pair, record, sample


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
