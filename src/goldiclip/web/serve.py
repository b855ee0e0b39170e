"""The server: loopback unless told otherwise, few connections, no patience for the slow."""

from __future__ import annotations

import sys
from collections.abc import Callable

from goldiclip.config import ConfigError
from goldiclip.inference.index import Index
from goldiclip.web.guard import LOOPBACK

MAX_CONNECTIONS = 256


def run(index: Index, phrases: Callable[[str], list[str]], *, host: str, port: int, workers: int) -> None:
    """Serve until interrupted."""
    try:
        import uvicorn

        from goldiclip.web.app import create_app
    except ImportError as error:
        raise ConfigError(f"the page takes {error.name}: pip install 'goldiclip[serve]'") from error
    is_open = host not in LOOPBACK
    if is_open:
        print(
            f"goldiclip: listening on {host}: whoever reaches this address can search and see every picture of the "
            "index; there is no password",
            file=sys.stderr,
        )
    if index.looks_twice:
        index.search("warm up", k=1)
    print(f"http://{'localhost' if not is_open else host}:{port}   {len(index):,} pictures   the API: /docs")
    app = create_app(index, phrases, hosts=None if is_open else LOOPBACK, workers=workers)
    uvicorn.run(
        app, host=host, port=port, limit_concurrency=MAX_CONNECTIONS, timeout_keep_alive=15, log_level="warning"
    )
