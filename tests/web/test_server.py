"""The HTTP API does what it documents, and says no, clearly, to what it should not do."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import json
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from PIL import Image
from web_server import Server, encoded, picture

from goldiclip.inference.index import Index

httpx = pytest.importorskip("httpx", reason="the prepare extra is not installed")


@pytest.fixture(scope="module")
def client(server: Server) -> httpx.Client:
    with httpx.Client(base_url=server.url, timeout=30) as client:
        yield client


def upload(client: httpx.Client, data: bytes) -> httpx.Response:
    return client.post("/api/uploads", content=data, headers={"content-type": "image/png"})


# --- what it does -----------------------------------------------------------------------------------------------------


def test_search_finds_what_the_index_finds(client: httpx.Client, index: Index) -> None:
    found = client.post("/api/search", json={"text": "a red hat", "k": 5}).json()
    expected = index.search("a red hat", k=5)
    assert [hit["id"] for hit in found["hits"]] == [hit.id for hit in expected]
    assert [hit["score"] for hit in found["hits"]] == pytest.approx([hit.score for hit in expected], abs=1e-4)
    assert [hit["id"] for hit in found["first"]] == [hit.id for hit in index.search("a red hat", k=5, shortlist=0)]


def test_results_come_as_they_are_found(client: httpx.Client) -> None:
    with client.stream("POST", "/api/search/stream", json={"text": "two dogs", "k": 8}) as answer:
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert [line["stage"] for line in lines] == ["first", "second", "maps", "maps", "done"]
    whole = client.post("/api/search", json={"text": "two dogs", "k": 8}).json()
    assert lines[1]["hits"] == whole["hits"]
    maps = {**lines[2]["maps"], **lines[3]["maps"]}
    assert set(maps) == {hit["id"] for hit in whole["hits"]}
    assert all(len(one["cells"]) == one["rows"] * one["columns"] and 0 <= one["kept"] <= 1 for one in maps.values())


def test_an_uploaded_picture_finds_itself_and_can_be_asked_about(client: httpx.Client) -> None:
    brought = upload(client, encoded(picture(3))).json()
    assert (brought["width"], brought["height"]) == (64, 48)
    name = brought["upload"]
    assert client.post("/api/search", json={"upload": name, "k": 1}).json()["hits"][0]["id"] == "03.png"
    maps = client.post("/api/heatmap", json={"upload": name, "phrases": ["a hat", "a dog"]}).json()["maps"]
    assert [one["phrase"] for one in maps] == ["a hat", "a dog"]
    assert max(maps[0]["cells"]) == 1
    assert "text" in client.post("/api/caption", json={"upload": name, "beams": 1}).json()
    assert "text" in client.post("/api/ask", json={"upload": name, "question": "what is it?", "beams": 1}).json()
    x0, y0, x1, y1 = client.post("/api/locate", json={"upload": name, "phrase": "a hat", "beams": 1}).json()["box"]
    assert 0 <= x0 < x1 <= 1
    assert 0 <= y0 < y1 <= 1


def test_masks_name_every_pixels_class(client: httpx.Client) -> None:
    import base64

    asked = {"image": "01.png", "classes": ["sky, heaven", "sea", "sand"]}
    found = client.post("/api/segment", json=asked).json()
    mask = np.array(Image.open(io.BytesIO(base64.b64decode(found["mask"]))))
    assert mask.shape == (48, 64)
    assert found["classes"] == ["sky", "sea", "sand"]
    assert found["shares"] == pytest.approx([(mask == one).mean() for one in range(3)], abs=1e-6)


def test_phrases_are_found_where_they_stand(client: httpx.Client) -> None:
    text = "A red umbrella left of a small dog on the beach, and a small dog."
    spans = client.post("/api/phrases", json={"text": text}).json()["spans"]
    assert [text[span["start"] : span["end"]] for span in spans] == ["red umbrella", "small dog", "beach"]


def test_pictures_are_served_by_their_ids_alone(client: httpx.Client) -> None:
    answer = client.get("/api/images/sea%20%26%20sand/07.png?side=32")
    assert answer.headers["content-type"] == "image/jpeg"
    assert Image.open(io.BytesIO(answer.content)).size == (32, 24)
    for path in ("../secret.png", "..%2fsecret.png", "%2e%2e/secret.png", "/etc/passwd", "nowhere.png"):
        assert client.get(f"/api/images/{path}").status_code == 404, path


def test_a_cut_text_is_said_to_be_cut(client: httpx.Client) -> None:
    found = client.post("/api/search", json={"text": "a very long story " * 60, "k": 1}).json()
    assert "cut" in found["notices"][0]
    assert client.post("/api/search", json={"text": "short", "k": 1}).json()["notices"] == []


def test_records_do_not_say_where_files_lie(client: httpx.Client) -> None:
    hits = client.post("/api/search", json={"text": "a", "k": 30}).json()["hits"]
    assert {key for hit in hits for key in hit["record"]} == {"folder"}


def test_filters_leave_only_what_matches(client: httpx.Client) -> None:
    found = client.post("/api/search", json={"text": "a", "where": {"folder": "sea & sand"}}).json()
    assert [hit["id"] for hit in found["hits"]] == ["sea & sand/07.png"]


def test_the_api_is_documented(client: httpx.Client) -> None:
    document = client.get("/api/openapi.json").json()
    assert {"/api/search", "/api/search/stream", "/api/uploads", "/api/segment"} <= set(document["paths"])
    for path, methods in document["paths"].items():
        assert all(operation["description"] for operation in methods.values()), path
    assert client.get("/docs").status_code == 200


def test_the_page_brings_all_it_needs(client: httpx.Client) -> None:
    page = client.get("/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "//" not in page.text.replace("<!doctype", "")


# --- what it refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("search", b"{bad", 422),
        ("search", b"[1, 2]", 422),
        ("search", b"\xff\xfe", 422),
        ("search", b'{"text": "' + b"a" * 3_000 + b'"}', 422),
        ("search", b'{"text": "' + b"a" * 100_000 + b'"}', 413),
        ("search", b'{"text": "a", "k": 100000}', 422),
        ("search", b'{"text": "a", "kk": 1}', 422),
        ("search", b'{"text": "a", "k": NaN}', 422),
        ("search", b'{"text": "a", "k": ' + b"9" * 5_000 + b"}", 400),
        ("search", b'{"text": "half a pair: \\ud800"}', 422),
        ("search", b'{"text": "a", "where": {"\\ud800": "b"}}', 422),
        ("search", b"[" * 60_000, 400),
        ("heatmap", b'{"image": "\\u0000", "phrases": ["a"]}', 404),
        ("heatmap", b'{"image": "01.png", "phrases": ["  "]}', 422),
        ("search", b"{}", 422),
        ("search", b'{"image": "nowhere.png"}', 404),
        ("search", b'{"upload": "nowhere"}', 404),
        ("heatmap", b'{"image": "01.png", "phrases": []}', 422),
        ("heatmap", b'{"phrases": ["a"]}', 422),
        ("segment", b'{"image": "01.png", "classes": ["a"]}', 422),
        ("segment", b'{"image": "01.png", "classes": ["a", ","]}', 422),
        ("segment", json.dumps({"image": "01.png", "classes": [",".join("abcdefghij")] * 13}).encode(), 422),
        ("ask", b'{"image": "01.png", "question": ""}', 422),
        ("search", b'{"text": "a", "where": {"path": "/etc/passwd"}}', 422),
    ],
)
def test_a_bad_request_is_refused_in_words(client: httpx.Client, path: str, body: bytes, status: int) -> None:
    answer = client.post(f"/api/{path}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert isinstance(answer.json()["detail"], str)
    assert len(answer.json()["detail"]) > 10
    assert "Traceback" not in answer.text


def png_of(width: int, height: int) -> bytes:
    """A PNG whose header promises a size that its data do not have."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("data", "status", "said"),
    [
        (b"", 422, "not a picture"),
        (b"GIF89a", 422, "undecodable"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 422, "not a picture"),
        (b"RIFF....AVI LIST", 422, "not a picture"),
        (b"\xff\xd8\xff" + b"\0" * 500, 422, "undecodable"),
        (png_of(60_000, 60_000), 422, "pixels"),
        (png_of(500, 500), 422, "undecodable"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * (13 << 20), 413, "bytes"),
    ],
    ids=["empty", "cut", "svg", "avi", "broken", "bomb", "short", "large"],
)
def test_a_bad_upload_is_refused_in_words(client: httpx.Client, data: bytes, status: int, said: str) -> None:
    answer = upload(client, data)
    assert answer.status_code == status
    assert said in answer.json()["detail"]


def test_a_body_is_counted_while_it_arrives(client: httpx.Client) -> None:
    def endless() -> Any:
        for _ in range(20):
            yield b"x" * 10_000

    headers = {"content-type": "application/json"}
    assert client.post("/api/search", content=endless(), headers=headers).status_code == 413


def test_other_names_and_other_pages_are_sent_away(client: httpx.Client, server: Server) -> None:
    for host in ("elsewhere.example", "127.0.0.1.elsewhere.example", "[::1", "[", ""):
        assert client.get("/api/about", headers={"host": host}).status_code == 421, host
    for origin in ("https://elsewhere.example", "http://[", "null"):
        assert client.post("/api/search", json={"text": "a"}, headers={"origin": origin}).status_code == 403, origin
    assert client.post("/api/search", json={"text": "a"}, headers={"origin": server.url}).status_code == 200


def test_only_the_newest_uploads_are_kept() -> None:
    from goldiclip.web.uploads import Uploads

    uploads = Uploads(keep=3)
    names = [uploads.add(encoded(picture(seed)))[0] for seed in range(5)]
    assert len(uploads) == 3
    with pytest.raises(KeyError, match="no longer kept"):
        uploads.get(names[0])
    assert uploads.get(names[4]).shape == (3, 48, 64)


def test_an_open_address_is_warned_of(index: Index, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    uvicorn = pytest.importorskip("uvicorn", reason="the serve extra is not installed")
    pytest.importorskip("fastapi", reason="the serve extra is not installed")
    from goldiclip.web.serve import run

    hosts = []
    monkeypatch.setattr(uvicorn, "run", lambda app, **options: hosts.append((options["host"], app.hosts)))
    run(index, lambda text: [], host="127.0.0.1", port=1, workers=1)
    assert "password" not in capsys.readouterr().err
    run(index, lambda text: [], host="0.0.0.0", port=1, workers=1)
    assert "no password" in capsys.readouterr().err
    assert hosts == [("127.0.0.1", ("localhost", "127.0.0.1", "::1")), ("0.0.0.0", None)]


# --- under load -------------------------------------------------------------------------------------------------------


def test_ten_times_too_many_are_sent_away_and_the_rest_is_answered(client: httpx.Client, server: Server) -> None:
    """1 worker and 8 in line against 90 at once: each is answered with 200 or 503, and afterwards all is well."""
    start = threading.Barrier(90)
    classes = ["sky", "sea"]

    def one(number: int) -> int:
        with httpx.Client(base_url=server.url, timeout=60) as mine:
            start.wait()
            return mine.post("/api/segment", json={"image": f"{number % 7:02d}.png", "classes": classes}).status_code

    with concurrent.futures.ThreadPoolExecutor(90) as pool:
        statuses = list(pool.map(one, range(90)))
    counts = {status: statuses.count(status) for status in set(statuses)}
    assert set(counts) == {200, 503}, counts
    assert counts[200] >= 9
    assert client.post("/api/search", json={"text": "a"}).status_code == 200


def test_no_more_uploads_arrive_than_memory_is_meant_for(client: httpx.Client, server: Server) -> None:
    """Half a body takes as much memory as a whole one, for as long as its sender likes to wait."""
    head = b"POST /api/uploads HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000
    picture_of = encoded(picture(3))
    with ExitStack() as halves:

        def one_more_half_and_a_whole() -> int:
            connection = halves.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connection.sendall(head)
            return upload(client, picture_of).status_code

        statuses = _until(503, one_more_half_and_a_whole)
        assert statuses[-1] == 503
        assert len(statuses) >= 5, "until there are as many halves as there is room for, a whole one is taken"
    assert _until(200, lambda: upload(client, picture_of).status_code)[-1] == 200


def _until(wanted: int, ask: Callable[[], int]) -> list[int]:
    answers = [ask()]
    deadline = time.monotonic() + 60
    while answers[-1] != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
        answers.append(ask())
    return answers


def test_an_index_out_of_reach_is_looked_for_again(
    index: Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fastapi", reason="the serve extra is not installed")
    from goldiclip.web import app

    looks = []

    def refresh() -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise OSError("no route to bucket")
        raise KeyboardInterrupt

    monkeypatch.setattr(index, "refresh", refresh)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(app.follow(index, seconds=0.0))
    assert len(looks) == 2
    assert "no route to bucket" in capsys.readouterr().err


def test_visitors_who_leave_give_their_places_back(client: httpx.Client, server: Server) -> None:
    """As many as there are places ask for something long and hang up at once."""
    body = json.dumps({"image": "01.png", "beams": 5}).encode()
    kind = f"Content-Type: application/json\r\nContent-Length: {len(body)}"
    head = f"POST /api/caption HTTP/1.1\r\nHost: 127.0.0.1\r\n{kind}\r\n\r\n"
    for _ in range(9):
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(head.encode() + body)
    assert _until(200, lambda: client.post("/api/search", json={"text": "a"}).status_code)[-1] == 200
