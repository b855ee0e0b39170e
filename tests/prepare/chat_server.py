"""An OpenAI-compatible server on loopback, of the standard library, that misbehaves as told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# From the prompt and the number of the request for it to (status, body); a body that is a string is a reply.
Behaviour = Callable[[str, int], "tuple[int, str | bytes]"]


class Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, behave: Behaviour) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.behave = behave
        self.lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.open = self.most_open = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is no error of ours."""


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][0]["content"]
        with self.server.lock:
            number = sum(seen["messages"][0]["content"] == prompt for seen in self.server.requests)
            self.server.requests.append(body)
            self.server.headers.append(dict(self.headers))
            self.server.open += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
        status, reply = self.server.behave(prompt, number)
        with self.server.lock:
            self.server.open -= 1
        payload = reply if isinstance(reply, bytes) else chat(reply)
        self.send_response(status if self.path == "/v1/chat/completions" else 404)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def chat(reply: str) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": reply}}]}).encode()


def slow(seconds: float, reply: str = "late") -> tuple[int, str]:
    time.sleep(seconds)
    return 200, reply


@contextmanager
def serving(behave: Behaviour) -> Iterator[Server]:
    server = Server(behave)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
