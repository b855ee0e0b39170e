"""Joining captions to images: every layout of both, by every kind of name, and every doubt counted."""

from __future__ import annotations

import csv
import gzip
import json
import pickle
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_pipeline import picture

from goldiclip.config import ConfigError
from goldiclip.data.shards import Shards
from goldiclip.prepare.doubts import doubts_about
from goldiclip.prepare.images import units
from goldiclip.prepare.join import JoinLimits, JoinReport, join, open_captions
from goldiclip.prepare.store import FEWEST_REPEATED, Repeated, build_store, hash_of
from goldiclip.prepare.tables import Columns, Reading, find_columns, normal_key, read_table, tables_in
from goldiclip.types import Caption, Sample

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402

NUM = 12
LENIENT = JoinLimits(1.0, 1.0, 1.0, 1.0)
DREAMLIP = ["raw_caption", "shortIB_captions", "longIB_captions", "shortSV_captions", "longSV_captions"]


def url(number: int) -> str:
    return f"http://Host.example/{number}.jpg?a=1&b=2"


def caption(number: int) -> str:
    return f"Thing number {number} beside a tree"


def joined(
    images: Sequence[str], table: Path, tmp_path: Path, limits: JoinLimits = LENIENT, **settings: Any
) -> JoinReport:
    find = {name: settings.pop(name) for name in ("key", "by", "captions") if name in settings}
    store = open_captions([table], find_columns(table, **find), tmp_path / "store", quiet=True)
    return join(units(images), store, tmp_path / "out", limits=limits, quiet=True, **settings)


def captions_in(out: Path) -> dict[str, list[tuple[str, str]]]:
    return {item.key: [(text.source, text.text) for text in item.captions] for item in Shards(str(out))}


# --- images ---------------------------------------------------------------------------------------------------------


def folder_of_images(tmp_path: Path) -> str:
    for number in range(NUM):
        path = tmp_path / "images" / ("a" if number % 2 else "b") / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
    return str(tmp_path / "images")


def img2dataset_shards(tmp_path: Path, caption_of: Callable[[int], str | None] = lambda _: None) -> str:
    folder = tmp_path / "shards"
    folder.mkdir()
    for shard in range(2):
        with tarfile.open(folder / f"{shard:05d}.tar", "w") as tar:
            for number in range(shard * 6, shard * 6 + 6):
                record = {"url": url(number), "key": f"{number:09d}", "sha256": sha256(picture(number)).hexdigest()}
                record |= {"caption": caption_of(number), "width": 48, "height": 32, "original_width": float("nan")}
                for suffix, payload in (("jpg", picture(number)), ("json", json.dumps(record).encode())):
                    info = tarfile.TarInfo(f"{number:09d}.{suffix}")
                    info.size = len(payload)
                    tar.addfile(info, BytesIO(payload))
    return str(folder)


def parquet_with_bytes(tmp_path: Path) -> str:
    rows = [{"image": {"bytes": picture(n), "path": f"dir/{n}.jpg"}, "url": url(n), "width": 48} for n in range(NUM)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "images.parquet", row_group_size=5)
    return str(tmp_path / "images.parquet")


def parquet_with_paths(tmp_path: Path) -> str:
    folder_of_images(tmp_path)
    rows = [{"image_path": f"images/{'a' if n % 2 else 'b'}/{n}.jpg", "key": str(n)} for n in range(NUM)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "images.parquet")
    return str(tmp_path / "images.parquet")


# --- tables ---------------------------------------------------------------------------------------------------------


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def dreamlip_csv(tmp_path: Path) -> Path:
    rows = [
        [url(n), caption(n), "nan", f'Long IB {n}.\nTwo lines, one "quoted"', f"Short SV {n}", ""] for n in range(NUM)
    ]
    return write_csv(tmp_path / "cc3m_captions.csv", ["Image Path", *DREAMLIP], rows)


def dreamlip_parquet(tmp_path: Path) -> Path:
    rows = [{"Image Path": url(n), "raw_caption": caption(n), "shortIB_captions": None} for n in range(NUM)]
    rows = [row | {"longIB_captions": f"Long IB {n}.", "shortSV_captions": float("nan")} for n, row in enumerate(rows)]
    rows = [row | {"shortSV_captions": None} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "captions.parquet")
    return tmp_path / "captions.parquet"


def flickr_csv(tmp_path: Path) -> Path:
    rows = [[f"{n}.jpg", f"{caption(n)}, told {time}"] for n in range(NUM) for time in ("once", "twice")]
    return write_csv(tmp_path / "captions.csv", ["image", "caption"], rows)


def json_lines(tmp_path: Path) -> Path:
    path = tmp_path / "captions.jsonl"
    rows = [json.dumps({"key": f"{n:09d}", "captions": [caption(n), f"again {n}"]}) for n in range(NUM)]
    path.write_text("\n".join([*rows, "{broken", "[1]", ""]))
    return path


def coco_json(tmp_path: Path) -> Path:
    images = [{"id": 100 + n, "file_name": f"{n}.jpg", "coco_url": url(n)} for n in range(NUM)]
    said = [{"image_id": 100 + n, "caption": caption(n)} for n in range(NUM) for _ in range(2)]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": said}))
    return tmp_path / "captions.json"


def karpathy_json(tmp_path: Path) -> Path:
    images = [{"filename": f"{n}.jpg", "split": "train", "sentences": [{"raw": caption(n)}]} for n in range(NUM)]
    (tmp_path / "dataset.json").write_text(json.dumps({"images": images, "dataset": "coco"}))
    return tmp_path / "dataset.json"


def sha256_csv(tmp_path: Path) -> Path:
    rows = [[sha256(picture(n)).hexdigest().upper(), caption(n)] for n in range(NUM)]
    return write_csv(tmp_path / "captions.tsv.csv", ["sha256", "text"], rows)


@pytest.mark.parametrize(
    ("images", "table"),
    [
        (folder_of_images, flickr_csv),
        (folder_of_images, coco_json),
        (folder_of_images, karpathy_json),
        (folder_of_images, sha256_csv),
        (img2dataset_shards, dreamlip_csv),
        (img2dataset_shards, dreamlip_parquet),
        (img2dataset_shards, json_lines),
        (img2dataset_shards, sha256_csv),
        (parquet_with_bytes, dreamlip_csv),
        (parquet_with_bytes, flickr_csv),
        (parquet_with_paths, coco_json),
    ],
)
def test_each_image_gets_its_own_captions(
    images: Callable[[Path], str], table: Callable[[Path], Path], tmp_path: Path
) -> None:
    report = joined([images(tmp_path)], table(tmp_path), tmp_path)
    assert (report.images, report.matched, report.unused) == (NUM, NUM, 0)
    numbers = {picture(number): number for number in range(NUM)}
    seen = set()
    for sample in Shards(str(tmp_path / "out")):
        number = numbers[sample.image]
        seen.add(number)
        assert sample.captions[0].text.startswith(caption(number))
    assert len(seen) == NUM


def hub_view_of_shards(tmp_path: Path) -> str:
    """A webdataset as the hub shows it: a column for each file of a sample."""
    rows: list[dict[str, Any]] = []
    for number in range(NUM):
        record = {"url": url(number), "sha256": sha256(picture(number)).hexdigest(), "status": "success"}
        rows.append({"__key__": f"{number:09d}", "jpg": {"bytes": picture(number), "path": f"{number:09d}.jpg"}})
        rows[-1] |= {"json": record, "txt": caption(number), "__url__": "hf://datasets/some/00000.tar"}
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "hub.parquet")
    return str(tmp_path / "hub.parquet")


def test_the_hub_s_view_of_shards_is_read_as_the_shards(tmp_path: Path) -> None:
    report = join(units([hub_view_of_shards(tmp_path)]), None, tmp_path / "own", quiet=True)
    assert (report.matched, captions_in(tmp_path / "own")["000000007"]) == (NUM, [("raw", caption(7))])
    assert joined([str(tmp_path / "hub.parquet")], dreamlip_csv(tmp_path), tmp_path).matched == NUM
    assert captions_in(tmp_path / "out")["000000007"][0] == ("raw", caption(7))


def test_what_img2dataset_writes_beside_its_shards_is_a_table(tmp_path: Path) -> None:
    folder = Path(img2dataset_shards(tmp_path))
    for shard in range(2):
        numbers = range(shard * 6, shard * 6 + 6)
        rows = [{"url": url(n), "caption": caption(n), "key": f"{n:09d}", "status": "success"} for n in numbers]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{shard:05d}.parquet")
        (folder / f"{shard:05d}_stats.json").write_text('{"count": 6, "successes": 6, "status_dict": {"success": 6}}')
    assert [path.name for path in tables_in([folder])] == ["00000.parquet", "00001.parquet"]
    tables = tables_in([folder])
    store = open_captions(tables, find_columns(tables[0]), tmp_path / "store", quiet=True)
    assert join(units([str(folder)]), store, tmp_path / "out", quiet=True).matched == NUM
    assert captions_in(tmp_path / "out")["000000007"] == [("raw", caption(7))]


@pytest.mark.parametrize("by", ["name", "url"])
def test_coco_meets_shards_that_know_only_where_images_came_from(by: Any, tmp_path: Path) -> None:
    """Their keys are numbers of their own: the address says the file's name."""
    assert joined([img2dataset_shards(tmp_path)], coco_json(tmp_path), tmp_path, by=by).matched == NUM
    assert captions_in(tmp_path / "out")["000000007"] == [("raw", caption(7))]


def test_a_resized_image_is_known_by_either_hash(tmp_path: Path) -> None:
    """img2dataset's hash is of what it downloaded, not of what it stored."""
    folder = tmp_path / "shards"
    folder.mkdir()
    record = json.dumps({"sha256": "ab" * 32}).encode()
    with tarfile.open(folder / "00000.tar", "w") as tar:
        for name, payload in (("1.jpg", picture(1)), ("1.json", record), ("2.jpg", picture(2)), ("2.json", record)):
            info = tarfile.TarInfo(name)
            info.size = len(payload)
            tar.addfile(info, BytesIO(payload))
    for number, digest in enumerate(("ab" * 32, sha256(picture(2)).hexdigest())):
        table = write_csv(tmp_path / f"{number}.csv", ["sha256", "caption"], [[digest, "Found"]])
        store = open_captions([table], find_columns(table), tmp_path / f"store{number}", quiet=True)
        report = join(units([str(folder)]), store, tmp_path / f"out{number}", limits=LENIENT, quiet=True)
        assert report.matched == 2 - number


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
def test_the_header_shows_what_parts_the_cells(delimiter: str, tmp_path: Path) -> None:
    """Flickr30k's own table has bars, and blanks after them."""
    lines = [f"{n}.jpg{delimiter} {time}{delimiter} {caption(n)}" for n in range(NUM) for time in range(2)]
    header = f"\ufeffimage_name{delimiter} comment_number{delimiter} comment"
    (tmp_path / "results.csv").write_text("\n".join([header, *lines]), encoding="utf-8")
    assert joined([folder_of_images(tmp_path)], tmp_path / "results.csv", tmp_path).matched == NUM
    assert captions_in(tmp_path / "out")["a/3"] == [("raw", caption(3))]


def test_dreamlip_columns_keep_their_sources_and_their_line_breaks(tmp_path: Path) -> None:
    report = joined([img2dataset_shards(tmp_path)], dreamlip_csv(tmp_path), tmp_path)
    sample = Shards(str(tmp_path / "out"))[3]
    assert [(item.source, item.text) for item in sample.captions] == [
        ("raw", caption(3)),
        ("short", "Short SV 3"),
        ("long", 'Long IB 3.\nTwo lines, one "quoted"'),
    ]
    assert sample.meta["url"] == url(3)
    assert sample.meta["original_width"] is None
    assert report.absent == {"raw_caption": 0, "shortIB_captions": NUM, "longIB_captions": 0} | {
        "shortSV_captions": 0,
        "longSV_captions": NUM,
    }


def test_rows_of_one_image_become_one_sample_each_caption_once(tmp_path: Path) -> None:
    report = joined([folder_of_images(tmp_path)], coco_json(tmp_path), tmp_path)
    assert captions_in(tmp_path / "out")["a/3"] == [("raw", caption(3))]
    assert report.counts["rows joined to another of the same image"] == NUM
    assert report.counts["repeated caption"] == NUM


def test_columns_can_be_named_by_hand(tmp_path: Path) -> None:
    rows = [[n, f"{n}.jpg", caption(n), f"Short {n}"] for n in range(NUM)]
    table = write_csv(tmp_path / "odd.csv", ["nr", "where", "alt", "blip"], rows)
    with pytest.raises(ConfigError, match="no column that names the image among 'nr', 'where', 'alt', 'blip'"):
        find_columns(table, captions={"alt": "raw"})
    with pytest.raises(ConfigError, match="no column 'nowhere'"):
        find_columns(table, key="nowhere")
    with pytest.raises(ConfigError, match="expected raw, short, long"):
        find_columns(table, key="where", captions={"alt": "middle"})
    settings = {"key": "where", "captions": {"alt": "raw", "blip": "short"}}
    joined([folder_of_images(tmp_path)], table, tmp_path, **settings)
    assert captions_in(tmp_path / "out")["b/2"] == [("raw", caption(2)), ("short", "Short 2")]


def test_images_that_bring_their_captions_need_no_table(tmp_path: Path) -> None:
    report = join(units([img2dataset_shards(tmp_path, caption)]), None, tmp_path / "out", quiet=True)
    assert report.matched == NUM
    assert captions_in(tmp_path / "out")["000000007"] == [("raw", caption(7))]


# --- what does not fit ----------------------------------------------------------------------------------------------


def test_images_without_captions_and_captions_without_images_are_counted(tmp_path: Path) -> None:
    rows = [[f"{n}.jpg", caption(n)] for n in range(4, NUM + 3)]
    table = write_csv(tmp_path / "captions.csv", ["image", "caption"], rows)
    report = joined([folder_of_images(tmp_path)], table, tmp_path)
    assert (report.matched, report.counts["image without captions"], report.unused) == (8, 4, 3)
    assert len(Shards(str(tmp_path / "out"))) == 8


def test_unmatched_images_can_keep_captions_of_their_own(tmp_path: Path) -> None:
    table = write_csv(tmp_path / "captions.csv", ["url", "caption"], [[url(0), "From the table"]])
    joined([img2dataset_shards(tmp_path, caption)], table, tmp_path, keep_unmatched=True)
    found = captions_in(tmp_path / "out")
    assert found["000000000"] == [("raw", "From the table")]
    assert found["000000001"] == [("raw", caption(1))]


def test_a_join_by_the_wrong_name_stops_and_says_so(tmp_path: Path) -> None:
    table = write_csv(
        tmp_path / "captions.csv", ["image", "caption"], [[f"other-{n}.jpg", caption(n)] for n in range(NUM)]
    )
    with pytest.raises(ConfigError, match=r"images without captions \(the wrong --by\?\): 100\.0%, 10% may be"):
        joined([folder_of_images(tmp_path)], table, tmp_path, JoinLimits())


def test_a_column_without_captions_stops_before_anything_is_joined(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"column 'shortIB_captions' holds no caption: 100\.0%, 20% may be"):
        joined([img2dataset_shards(tmp_path)], dreamlip_csv(tmp_path), tmp_path, JoinLimits())
    assert not (tmp_path / "out").exists()


def test_captions_of_other_images_are_noticed_by_what_the_images_say(tmp_path: Path) -> None:
    """The table is shifted by one row; img2dataset kept the alt text."""
    words = ["red bus street rain", "two dogs beach ball", "old church tower clock", "green apple wooden bowl"]
    shards = img2dataset_shards(tmp_path, lambda n: words[n % 4])
    table = write_csv(tmp_path / "t.csv", ["url", "raw_caption"], [[url(n), words[(n + 1) % 4]] for n in range(NUM)])
    with pytest.raises(ConfigError, match=r"another caption than the image brought along: 100\.0%"):
        joined([shards], table, tmp_path, JoinLimits(repeated=1.0))


def test_one_caption_everywhere_is_noticed(tmp_path: Path) -> None:
    table = write_csv(
        tmp_path / "t.csv", ["image", "caption"], [[f"{n}.jpg", "Image not available"] for n in range(NUM)]
    )
    with pytest.raises(ConfigError, match=r"one caption is repeated: 'Image not available': 100\.0%"):
        joined([folder_of_images(tmp_path)], table, tmp_path, JoinLimits())


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=300))
def test_a_caption_of_more_than_half_the_rows_is_always_found(texts: list[str]) -> None:
    found = Repeated(room=2)
    for text in texts:
        found.add({"raw": [text]})
    commonest = max(set(texts), key=texts.count)
    if texts.count(commonest) - FEWEST_REPEATED > len(texts) / 2:
        assert found.share()[0] == commonest
    assert found.share()[1] <= texts.count(commonest) / len(texts) + 1e-9


def test_bad_images_and_repeated_keys_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = Path(folder_of_images(tmp_path))
    (folder / "a" / "1.jpg").write_bytes(b"")
    (folder / "a" / "3.jpg").write_bytes(b"<html>404</html>")
    (folder / "a" / "5.png").write_bytes(picture(5))  # the same key as 5.jpg
    report = joined([str(folder)], flickr_csv(tmp_path), tmp_path)
    assert {reason: n for reason, n in report.counts.items() if reason.startswith("left out")} == {
        "left out: undecodable image": 2,
        "left out: duplicate key": 1,
    }
    assert report.matched == NUM - 2


def test_rows_that_cannot_be_read_are_counted(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_bytes(b'image,caption\n1.jpg,fine\n2.jpg\n,nobody\n3.jpg,NaN\n4.jpg,a\0b\n5.jpg,"two\nlines"\n')
    reading = Reading()
    rows = dict(read_table(table, find_columns(table), reading))
    assert rows == {"1": {"raw": ["fine"]}, "4": {"raw": ["ab"]}, "5": {"raw": ["two\nlines"]}}
    assert reading.counts == {"malformed row": 1, "row without key": 1, "row without caption": 1}


def test_every_row_that_an_open_quote_swallows_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goldiclip.prepare.tables.MAX_CELL_CHARACTERS", 100)
    lines = ["image,caption", '0.jpg,"never closed', *(f"{number}.jpg,{caption(number)}" for number in range(1, 40))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    reading = Reading()
    rows = list(read_table(tmp_path / "t.csv", find_columns(tmp_path / "t.csv"), reading))
    assert 30 < len(rows) < 40
    assert len(rows) + reading.counts["malformed row"] == 40


def test_rows_of_no_use_stop_the_join(tmp_path: Path) -> None:
    rows = [[f"{number}.jpg", *["one", "too many"][: 1 + (number > 6)]] for number in range(NUM)]
    table = write_csv(tmp_path / "t.csv", ["image", "caption"], rows)
    with pytest.raises(ConfigError, match=r"malformed row: 41\.7%, 20% may be; .* --max-absent"):
        joined([folder_of_images(tmp_path)], table, tmp_path, JoinLimits(repeated=1.0))


def test_images_that_are_left_out_stop_the_join(tmp_path: Path) -> None:
    folder = Path(folder_of_images(tmp_path))
    for number in range(0, 8, 2):
        (folder / "b" / f"{number}.jpg").write_bytes(b"<html>404</html>")
    with pytest.raises(ConfigError, match=r"images left out: undecodable image: 33\.3%, 10% may be"):
        joined([str(folder)], flickr_csv(tmp_path), tmp_path, JoinLimits())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.parquet", b"PAR1 and no more", "t.parquet: "),
        ("t.csv.gz", b"image,caption\n", "broken after 0 rows"),
        ("t.json", b'{"images": [1], "annotations": [2]}', "expected COCO's captions"),
        ("t.json", b'{"images": [{"file_name": "a"}], "annotations": [{"caption": "x"}]}', "no rows"),
        ("t.csv", b"", "no rows"),
        ("t.json", b"{not json", "not JSON"),
        ("t.json", b'{"a": 1}', "expected COCO's captions"),
        ("t.xlsx", b"x", "expected a table ending in"),
    ],
)
def test_what_is_no_table_is_said(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        find_columns(tmp_path / name)
    if name.endswith(".parquet"):
        with pytest.raises(ConfigError, match=said):
            units([str(tmp_path / name)])


def test_a_table_that_ends_in_the_middle_is_said(tmp_path: Path) -> None:
    table = tmp_path / "t.csv.gz"
    table.write_bytes(gzip.compress(b"image,caption\n" + b"1.jpg,x\n" * 99)[:-9])
    with pytest.raises(ConfigError, match=r"t\.csv\.gz: broken after \d+ rows .*; fetch it anew"):
        list(read_table(table, find_columns(table), Reading()))


def test_missing_tables_and_images_are_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no caption table"):
        tables_in([tmp_path])
    with pytest.raises(FileNotFoundError, match="no images"):
        units([str(tmp_path)])


# --- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "one", "other"),
    [
        ("url", "http://Host.example/a.jpg?x=1&amp;y=2#top", " https://host.example/a.jpg?x=1&y=2"),
        ("name", "train/images/1.JPG", "1"),
        ("name", "C:\\images\\1.jpg", "1.png"),
        ("sha256", "AB" * 32, "ab" * 32),
        ("key", 17, "17"),
    ],
)
def test_two_spellings_of_one_image_are_one_key(by: Any, one: Any, other: Any) -> None:
    assert normal_key(by, one) == normal_key(by, other) != ""


def test_paths_of_urls_keep_their_case() -> None:
    assert normal_key("url", "http://h/A.jpg") != normal_key("url", "http://h/a.jpg")


@pytest.mark.parametrize("value", [None, float("nan"), "", " NaN "])
def test_nothing_is_no_key(value: Any) -> None:
    assert normal_key("url", value) == ""


# --- the store ------------------------------------------------------------------------------------------------------


def about(found: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"rows": 0, "absent": {}, "by": "key"}


@given(st.lists(st.tuples(st.text(max_size=4), st.text(min_size=1, max_size=8)), min_size=1, max_size=80))
def test_the_store_finds_every_row_in_the_order_of_the_table(rows: list[tuple[str, str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        rows = [(key, text.encode("utf-8", "replace").decode()) for key, text in rows]
        store = build_store(((key, {"raw": [text]}) for key, text in rows), Path(folder), "f", about)
        for key in {key for key, _ in rows} | {"absent key"}:
            assert store.find(key) == [{"raw": [text]} for name, text in rows if name == key]
        assert (len(store), store.unused) == (len(rows), 0)
        del store


def test_two_keys_of_one_hash_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goldiclip.prepare.store.hash_of", lambda key: hash_of("x"))
    store = build_store(iter([("a", {"raw": ["A"]}), ("b", {"raw": ["B"]})]), tmp_path, "f", about)
    assert (store.find("a"), store.find("b"), store.find("c")) == ([{"raw": ["A"]}], [{"raw": ["B"]}], [])


def test_a_store_is_built_once_and_again_when_its_table_changes(tmp_path: Path) -> None:
    table = flickr_csv(tmp_path)
    columns = find_columns(table)
    first = open_captions([table], columns, tmp_path / "store", quiet=True)
    made = (tmp_path / "store" / "index.npy").stat().st_mtime_ns
    open_captions([table], columns, tmp_path / "store", quiet=True)
    assert (tmp_path / "store" / "index.npy").stat().st_mtime_ns == made
    write_csv(table, ["image", "caption"], [["9.jpg", "New"]])
    again = open_captions([table], columns, tmp_path / "store", quiet=True)
    assert (len(first), len(again)) == (2 * NUM, 1)


def test_a_store_that_was_not_finished_is_built_anew(tmp_path: Path) -> None:
    def broken() -> Any:
        yield "a", {"raw": ["A"]}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_store(broken(), tmp_path, "f", about)
    assert len(build_store(iter([("a", {"raw": ["A"]}), ("b", {"raw": ["B"]})]), tmp_path, "f", about)) == 2


def test_a_large_table_needs_little_memory(tmp_path: Path) -> None:
    """48 MB of captions: what is held at a time is one row, a buffer of index entries, one bucket."""
    text = "A dog runs over the grass. " * 220
    with open(tmp_path / "captions.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "caption"])
        rows.writerows([f"{number}.jpg", f"{number} {text}"] for number in range(8_000))
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    columns = find_columns(tmp_path / "captions.csv")
    store = open_captions([tmp_path / "captions.csv"], columns, tmp_path / "store", quiet=True)
    assert store.find("7999")[0]["raw"][0].startswith("7999 A dog")
    assert len(store) == 8_000
    assert memory("VmHWM") - before < 24e6


def memory(what: str) -> float:
    """Bytes of this process."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return 1024.0 * int(found[1])


def test_a_table_without_one_usable_row_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--key-column"):
        build_store(iter(()), tmp_path, "f", about)


# --- resuming -------------------------------------------------------------------------------------------------------


def test_units_that_are_joined_are_not_joined_again(tmp_path: Path) -> None:
    images, table = img2dataset_shards(tmp_path), dreamlip_csv(tmp_path)
    first = joined([images], table, tmp_path)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.tar")}
    again = joined([images], table, tmp_path)
    assert (first.skipped, again.skipped) == (0, 2)
    assert again.counts == first.counts
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*.tar")} == before
    (tmp_path / "out" / "00001.tar").unlink()
    assert joined([images], table, tmp_path).skipped == 1


def test_a_store_travels_to_other_processes(tmp_path: Path) -> None:
    table = flickr_csv(tmp_path)
    store = open_captions([table], find_columns(table), tmp_path / "store", quiet=True)
    copy = pickle.loads(pickle.dumps(store))
    assert copy.find("3") == store.find("3") != []
    assert store.unused == len(store) - 2  # what one process uses, all see


def test_sources_with_shards_of_one_name_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    found = units([img2dataset_shards(tmp_path / "one", caption), img2dataset_shards(tmp_path / "two", caption)])
    assert [unit.name for unit in found] == ["00000", "00001", "00002", "00003"]
    assert join(found, None, tmp_path / "out", quiet=True).matched == 2 * NUM


# --- doubts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        ("... !!", "captions without a word"),
        ("https://host.example/image", "a file name or an address as caption"),
        ("DSC_0001.JPG", "a file name or an address as caption"),
        ("A cafÃ© at night", "characters of another encoding"),
        ("It\u2019s \ufffd\ufffd", "characters of another encoding"),
        ("word " * 1_001 + "end", "a caption longer than a page"),
        ("The image shows a dog. " * 12, "a caption that repeats itself"),
    ],
)
def test_a_doubtful_caption_is_named(text: str, doubt: str) -> None:
    assert doubt in list(doubts_about(Sample("k", b"", (Caption(text),)), {}))


@pytest.mark.parametrize(
    "text",
    [
        "A dog runs.",
        "Café Zürich — “old town”",
        "A very, very, very big dog",
        "See photo.jpg for a dog" + " on grass" * 3,
    ],
)
def test_a_plain_caption_raises_no_doubt(text: str) -> None:
    assert not list(doubts_about(Sample("k", b"", (Caption(text),)), {"caption": text}))


@pytest.mark.parametrize("text", ["!" * 5_000, "a " * 2_500, "ab" * 2_500, "a!" * 2_500])
def test_doubts_are_cheap_whatever_the_text(text: str) -> None:
    import time

    start = time.perf_counter()
    list(doubts_about(Sample("k", b"", (Caption(text),)), {}))
    assert time.perf_counter() - start < 1.0


def test_columns_are_values() -> None:
    assert Columns("a", "url", {"b": "raw"}) == Columns("a", "url", {"b": "raw"})
