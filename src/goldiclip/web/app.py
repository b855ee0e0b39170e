"""The HTTP API, documented by its types under /api/openapi.json, and the page that uses it.

Every computation goes through a gate: what cannot be done soon is refused with 503 at once.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles

from goldiclip.inference.index import Index
from goldiclip.web import words
from goldiclip.web.gate import Busy, Gate, Room
from goldiclip.web.guard import LOOPBACK, Guard
from goldiclip.web.uploads import MAX_BYTES
from goldiclip.web.work import MAPS_AT_ONCE, Work, noticing

STATIC = Path(__file__).parent / "static"
MAX_BODY = 64 << 10
UPLOADS_AT_ONCE = 5
REFRESH_SECONDS = 30.0

T = TypeVar("T")


def create_app(
    index: Index,
    phrases: Callable[[str], list[str]],
    *,
    hosts: Collection[str] | None = LOOPBACK,
    workers: int = 2,
    waiting: int = 16,
    seconds: float = 30.0,
) -> Any:
    """An ASGI application. `phrases` finds the noun phrases of a sentence; `hosts` are the names it answers to."""
    work = Work(index, phrases)
    gates = {
        "work": Gate(workers, waiting, seconds, "work"),
        "pictures": Gate(2, 128, seconds, "pictures"),
        "uploads": Gate(1, UPLOADS_AT_ONCE, seconds, "uploads"),
    }

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        refreshing = asyncio.create_task(follow(index))
        yield
        refreshing.cancel()
        for gate in gates.values():
            gate.close()

    app = FastAPI(
        title="goldiclip",
        version="1",
        summary="Search pictures with words, and see where the words are.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
    )
    _say_errors(app)
    _searching(app, work, gates["work"])
    _looking(app, work, gates["work"])
    _pictures(app, work, gates)
    _page(app)
    return Guard(app, hosts=hosts, max_body=MAX_BODY, max_upload=MAX_BYTES)


async def follow(index: Index, seconds: float = REFRESH_SECONDS) -> None:
    """Follow what others add and delete. Where they cannot be reached now, they may be next time."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await asyncio.to_thread(index.refresh)
        except Exception as error:
            print(f"goldiclip: the index could not be looked at again: {error}", file=sys.stderr)


# --- routes ---------------------------------------------------------------------------------------------------------


def _searching(app: FastAPI, work: Work, gate: Gate) -> None:
    @app.get("/api/about")
    def about() -> words.About:
        """What is served here and what it can do."""
        return work.about()

    @app.post("/api/search")
    async def search(asked: words.Search) -> words.Found:
        """The best pictures for a text, a picture, or both: by both stages, and by the first alone."""
        notices = noticing()
        found = await gate.run(lambda: work.search(asked))
        return found.model_copy(update={"notices": notices})

    @app.post("/api/search/stream", response_class=StreamingResponse)
    async def search_stream(asked: words.Search) -> StreamingResponse:
        """The same as lines of JSON, as they come: `first`, `second`, `maps` of some hits each, `done`; or `error`."""
        notices = noticing()
        start = time.perf_counter()
        first = await gate.run(lambda: work.first_stage(asked))
        hits = await gate.run(lambda: work.hits(first, asked.k))

        async def lines() -> AsyncIterator[str]:
            yield _line("first", hits=hits, milliseconds=_since(start))
            try:
                second = await gate.run(lambda: work.second_stage(asked, first))
                final = await gate.run(lambda: work.hits(second, asked.k))
                yield _line("second", hits=final, milliseconds=_since(start))
                ids = [hit.id for hit in final] if asked.maps else []
                for at in range(0, len(ids), MAPS_AT_ONCE):
                    some = ids[at : at + MAPS_AT_ONCE]
                    yield _line("maps", maps=await gate.run(lambda some=some: work.hit_maps(some, second)))  # type: ignore[misc]
                yield _line("done", notices=notices, milliseconds=_since(start))
            except Busy:
                yield _line("error", detail=BUSY)
            except (ValueError, KeyError, OSError) as error:
                yield _line("error", detail=_message(error))

        return StreamingResponse(lines(), media_type="application/x-ndjson")


def _looking(app: FastAPI, work: Work, gate: Gate) -> None:
    async def done(call: Callable[[], Any]) -> Any:
        notices = noticing()
        return (await gate.run(call)).model_copy(update={"notices": notices})

    @app.post("/api/phrases")
    async def phrases(asked: words.Sentence) -> words.Spans:
        """The noun phrases of a sentence, and where they stand in it."""
        return words.Spans(spans=await gate.run(lambda: work.spans(asked.text)))

    @app.post("/api/heatmap")
    async def heatmap(asked: words.Phrases) -> words.Maps:
        """Where phrases are in a picture; what it does not show keeps little of its attention."""
        return await done(lambda: work.maps(asked))

    @app.post("/api/segment")
    async def segment(asked: words.Classes) -> words.Segments:
        """Which of some classes every pixel shows."""
        return await done(lambda: work.segments(asked))

    @app.post("/api/caption")
    async def caption(asked: words.Captioning) -> words.Said:
        """What a picture shows, in a sentence."""
        return await done(lambda: work.caption(asked))

    @app.post("/api/ask")
    async def ask(asked: words.Asking) -> words.Said:
        """The answer to a question about a picture."""
        return await done(lambda: work.ask(asked))

    @app.post("/api/locate")
    async def locate(asked: words.Locating) -> words.Box:
        """The box of a phrase."""
        return await done(lambda: work.locate(asked))


def _pictures(app: FastAPI, work: Work, gates: dict[str, Gate]) -> None:
    arriving = Room(UPLOADS_AT_ONCE)  # a body takes memory from its first byte on

    @app.post("/api/uploads")
    async def upload(request: Request) -> words.Uploaded:
        """Bring a picture: JPEG, PNG, WebP or GIF as the body. It is kept in memory until others make it leave."""
        with arriving.place():
            data = await asyncio.wait_for(request.body(), gates["uploads"].seconds)
        name, picture = await gates["uploads"].run(lambda: work.uploads.add(data))
        return words.Uploaded(upload=name, width=picture.shape[2], height=picture.shape[1])

    @app.get("/api/images/{id:path}", response_class=Response)
    async def image(id: str, side: int = Query(320, ge=16, le=1_600)) -> Response:
        """A picture of the index, as JPEG."""
        data = await gates["pictures"].run(lambda: work.thumbnail(id, side))
        return Response(data, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})


def _page(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.get("/docs", include_in_schema=False)
    def documentation() -> FileResponse:
        return FileResponse(STATIC / "docs.html")

    app.mount("/static", StaticFiles(directory=STATIC), name="static")


# --- errors ---------------------------------------------------------------------------------------------------------

BUSY = "busy: more was asked for than can be done now; try again in a moment"


def _say_errors(app: FastAPI) -> None:
    """Each kind of mistake as one sentence under `detail`."""
    statuses: dict[type[Exception], int] = {KeyError: 404, FileNotFoundError: 404, ValueError: 422, OSError: 500}

    def handler(status: int) -> Callable[[Request, Exception], JSONResponse]:
        return lambda _, error: JSONResponse({"detail": _message(error)}, status)

    for kind, status in statuses.items():
        app.add_exception_handler(kind, handler(status))
    app.add_exception_handler(RequestValidationError, lambda _, error: JSONResponse({"detail": _misfit(error)}, 422))
    app.add_exception_handler(Busy, lambda _, __: JSONResponse({"detail": BUSY}, 503, headers={"retry-after": "1"}))
    app.add_exception_handler(TimeoutError, lambda _, __: JSONResponse({"detail": "the request came too slowly"}, 408))


def _misfit(error: Any) -> str:
    """Which fields are not what was expected. What stood there is not repeated: it need not even be text."""
    wrong = (f"{'.'.join(map(str, one['loc'][1:])) or 'the body'}: {one['msg']}" for one in error.errors())
    return "; ".join(wrong).encode("ascii", "backslashreplace").decode()[:500]


def _message(error: Exception) -> str:
    """Without where files lie on this machine."""
    if isinstance(error, FileNotFoundError):
        return "the picture is no longer where it was when it was indexed"
    if isinstance(error, OSError):
        return "the picture cannot be read"
    return str(error.args[0] if error.args else error)[:500]


def _line(stage: str, **values: Any) -> str:
    return json.dumps({"stage": stage, **{name: _plain(value) for name, value in values.items()}}) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value.model_dump() if hasattr(value, "model_dump") else value


def _since(start: float) -> float:
    return round(1e3 * (time.perf_counter() - start), 1)
