"""What stands before every request: whose page it comes from, how large it is, and what the browser may do with it."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any
from urllib.parse import SplitResult, urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1")

HEADERS = {
    b"content-security-policy": b"default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; "
    b"form-action 'self'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
}


class Guard:
    """An ASGI layer. `hosts` are the names this server answers to, so that no other site's name can be made to lead
    here; None answers to all. A body is counted while it arrives, whatever its header says of it.
    """

    def __init__(self, app: Any, *, hosts: Collection[str] | None, max_body: int, max_upload: int) -> None:
        self.app, self.hosts, self.max_body, self.max_upload = app, hosts, max_body, max_upload

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin1") for name, value in scope["headers"]}
        limit = self.max_upload if scope["path"] == "/api/uploads" else self.max_body
        refused = self._refusal(headers, limit)
        if refused:
            await _answer(send, *refused)
            return
        body = _Counted(receive, limit)

        async def guarded_send(message: Any) -> None:
            if body.is_too_large:  # whatever was made of half a body
                if message["type"] == "http.response.start":
                    await _answer(send, 413, f"a request of more than {limit:,} bytes")
                return
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *HEADERS.items()]
            await send(message)

        await self.app(scope, body, guarded_send)

    def _refusal(self, headers: dict[bytes, str], limit: int) -> tuple[int, str] | None:
        host = headers.get(b"host", "")
        if self.hosts is not None and _split(f"//{host}").hostname not in self.hosts:
            return 421, f"this server answers to {', '.join(self.hosts)}, not to {host[:100]!r}"
        origin = headers.get(b"origin")
        if origin is not None and _split(origin).netloc != host:
            return 403, "a request from another site's page"
        length = headers.get(b"content-length", "0")
        if not length.isdigit():
            return 400, "content-length is no number"
        if int(length) > limit:
            return 413, f"a request of {int(length):,} bytes; at most {limit:,} are taken"
        return None


def _split(address: str) -> SplitResult:
    """Of what is no address, nothing."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


class _Counted:
    """Receives a body, and hangs up on one that is longer than it may be."""

    def __init__(self, receive: Any, limit: int) -> None:
        self.receive, self.limit, self.arrived = receive, limit, 0

    @property
    def is_too_large(self) -> bool:
        return self.arrived > self.limit

    async def __call__(self) -> Any:
        message = await self.receive()
        self.arrived += len(message.get("body", b""))
        if self.is_too_large:
            raise ValueError("the body is too large")
        return message


async def _answer(send: Any, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *HEADERS.items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
