"""A hub on loopback: as much of its HTTP API as pushing and fetching a model takes."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class Hub(ThreadingHTTPServer):
    """Repositories by name: the files of their only branch."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.files: dict[str, dict[str, bytes]] = {}
        self.tokens: set[str] = set()

    def commit_of(self, name: str) -> str:
        return sha1(b"".join(self.files[name].values())).hexdigest()


class _Answers(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        parts = urlsplit(self.path).path.strip("/").split("/")
        self.server.tokens.add(self.headers.get("authorization", ""))
        if parts[:2] == ["api", "validate-yaml"]:
            self._json({"warnings": [], "errors": []})
        elif parts[:3] == ["api", "repos", "create"]:
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'somebody'}/{asked['name']}"
            self.server.files.setdefault(name, {})
            self._json({"url": f"{self.server.url}/{name}", "id": name})
        elif parts[4] == "preupload":
            files = json.loads(body)["files"]
            self._json({"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]})
        elif parts[4] == "commit":
            self._commit("/".join(parts[2:4]), [json.loads(line) for line in body.splitlines()])
        else:
            self._json({"error": self.path}, 404)

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if line["key"] == "file":
                self.server.files[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        sha = self.server.commit_of(name)
        self._json({"success": True, "commitOid": sha, "commitUrl": f"{self.server.url}/{name}/commit/{sha}"})

    def do_GET(self) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        name = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        if name not in self.server.files:
            self._json({"error": "Repository not found"}, 404)
        elif "tree" in parts:
            files = self.server.files[name].items()
            self._json([{"type": "file", "path": path, "size": len(data), "oid": "0"} for path, data in files])
        elif parts[0] == "api":
            siblings = [{"rfilename": path} for path in self.server.files[name]]
            about = {"_id": "0", "private": False, "downloads": 0, "likes": 0, "tags": []}
            self._json({**about, "id": name, "sha": self.server.commit_of(name), "siblings": siblings})
        else:
            data = self.server.files[name]["/".join(parts[4:])]
            sha = self.server.commit_of(name)
            self._answer(data, 200, {"etag": f'"{sha1(data).hexdigest()}"', "x-repo-commit": sha})

    do_HEAD = do_GET

    def _json(self, value: Any, status: int = 200) -> None:
        self._answer(json.dumps(value).encode(), status, {"content-type": "application/json"})

    def _answer(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in {**headers, "content-length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def hub() -> Iterator[Hub]:
    running = Hub()
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield running
    running.shutdown()
    running.server_close()
