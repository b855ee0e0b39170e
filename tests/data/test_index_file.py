"""The index beside a shard: built once, never believed when it is stale."""

from __future__ import annotations

import os

import pytest

from goldiclip.data import index_file
from goldiclip.data.shard_writer import write_shard
from goldiclip.data.shards import Shards, write_shards
from made_shards import sample


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
