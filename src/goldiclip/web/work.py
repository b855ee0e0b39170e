"""What requests compute, in plain calls: no network here."""

from __future__ import annotations

import base64
import io
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from threading import Lock
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from goldiclip.inference import index as indices
from goldiclip.inference.heatmap import strengths
from goldiclip.inference.index import Index, Shortlist
from goldiclip.inference.pictures import pixels
from goldiclip.inference.segment import segmentation_modes
from goldiclip.inference.sources import picture_of
from goldiclip.web import words
from goldiclip.web.uploads import Uploads, small

MASK_SIDE = 640
MAPS_AT_ONCE = 6
THUMBNAIL_BYTES = 64 << 20
PRIVATE = ("path", "path_hex", "shard", "row", "id")  # of a record: where pictures lie is nobody's business

_notices: ContextVar[list[str] | None] = ContextVar("notices", default=None)


def noticing() -> list[str]:
    """A new list, to which this request's notices go from now on."""
    notices: list[str] = []
    _notices.set(notices)
    return notices


def notice(message: str) -> None:
    notices = _notices.get()
    if notices is not None:
        notices.append(message)


class Work:
    """An index, its encoder, and the pictures that visitors brought. `phrases` finds noun phrases in a sentence."""

    def __init__(self, index: Index, phrases: Callable[[str], list[str]]) -> None:
        self.index, self.engine, self.find_phrases = index, index.engine, phrases
        self.engine.report = notice
        self.uploads = Uploads()
        self._thumbnails: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._lock = Lock()

    def about(self) -> words.About:
        decoder = getattr(self.engine.model, "decoder", None)
        return words.About(
            name=self.engine.name.rstrip("/").rpartition("/")[2] or type(self.engine.model).__name__,
            pictures=len(self.index),
            looks_twice=self.index.looks_twice,
            speaks=decoder is not None,
            segments=list(segmentation_modes(self.engine)),
            precision=self.index.format.precision,
            bytes_per_picture=self.index.format.num_bytes + 2 * self.index.format.width,
        )

    # --- pictures ---------------------------------------------------------------------------------------------------

    def picture(self, asked: words.OnPicture) -> Tensor:
        """uint8 (3, H, W) of the picture that a request is about."""
        if (asked.image is None) == (asked.upload is None):
            raise ValueError("expected either image, an id of the index, or upload, a name that an upload got")
        if asked.upload is not None:
            return self.uploads.get(asked.upload)
        assert asked.image is not None
        return pixels(picture_of(self.index.record(asked.image)))

    def thumbnail(self, id: str, side: int) -> bytes:
        """JPEG. Only what the index holds is read, and only its pixels leave."""
        with self._lock:
            if (id, side) in self._thumbnails:
                self._thumbnails.move_to_end((id, side))
                return self._thumbnails[id, side]
        picture = small(pixels(picture_of(self.index.record(id))), side)
        data = encoded(picture.permute(1, 2, 0).numpy(), "JPEG", quality=88)
        with self._lock:
            self._thumbnails[id, side] = data
            while sum(map(len, self._thumbnails.values())) > THUMBNAIL_BYTES:
                self._thumbnails.popitem(last=False)
        return data

    # --- search -----------------------------------------------------------------------------------------------------

    def first_stage(self, asked: words.Search) -> Shortlist:
        brings = asked.image is not None or asked.upload is not None
        picture = self.picture(asked) if brings else None
        if not asked.text and picture is None:
            raise ValueError("nothing to search for: expected a text, a picture, or both")
        if hidden := sorted(set(asked.where).intersection(PRIVATE)):
            raise ValueError(f"where: {hidden[0]} is nothing to filter by")
        count = max(asked.k, asked.shortlist) if asked.text and self.index.looks_twice else asked.k
        return self.index.shortlist(asked.text or None, count, image=picture, where=asked.where or None)

    def second_stage(self, asked: words.Search, found: Shortlist) -> Shortlist:
        is_needed = bool(asked.text) and asked.shortlist > 0 and self.index.looks_twice
        return self.index.look_again(found) if is_needed else found

    def hits(self, found: Shortlist, k: int) -> list[words.Hit]:
        return [_hit(hit) for hit in self.index.hits(found, k)]

    def search(self, asked: words.Search) -> words.Found:
        start = time.perf_counter()
        first = self.first_stage(asked)
        second = self.second_stage(asked, first)
        hits, before = self.hits(second, asked.k), self.hits(first, asked.k)
        return words.Found(hits=hits, first=before, milliseconds=1e3 * (time.perf_counter() - start))

    def hit_maps(self, ids: Sequence[str], found: Shortlist) -> dict[str, words.Map]:
        """Where each hit shows the text, from the patches that the index keeps."""
        if found.texts is None or not self.index.looks_twice:
            return {}
        return dict(zip(ids, _maps(self.index.maps(ids, found.texts))))

    # --- one picture ------------------------------------------------------------------------------------------------

    def spans(self, text: str) -> list[words.Span]:
        return list(_spans(text, self.find_phrases(text)))

    def maps(self, asked: words.Phrases) -> words.Maps:
        picture = self.picture(asked)
        features = self.engine.encode_images([picture], how="whole")
        grids = self.engine.patch_maps(features, self.engine.encode_texts(asked.phrases))[0].cpu()
        named = [found.model_copy(update={"phrase": said}) for said, found in zip(asked.phrases, _maps(grids))]
        return words.Maps(width=picture.shape[2], height=picture.shape[1], maps=named)

    def segments(self, asked: words.Classes) -> words.Segments:
        picture = self.picture(asked)
        found = self.engine.segment(small(picture, MASK_SIDE), asked.classes, asked.mode)
        return words.Segments(
            width=picture.shape[2],
            height=picture.shape[1],
            classes=list(found.names),
            shares=list(found.shares),
            mask=base64.b64encode(encoded(found.mask.numpy().astype(np.uint8), "PNG")).decode(),
        )

    def caption(self, asked: words.Captioning) -> words.Said:
        (said,) = self.engine.caption(self.picture(asked), asked.beams)
        return words.Said(text=said.text, confidence=said.confidence)

    def ask(self, asked: words.Asking) -> words.Said:
        (said,) = self.engine.ask(self.picture(asked), asked.question, asked.beams)
        return words.Said(text=said.text, confidence=said.confidence)

    def locate(self, asked: words.Locating) -> words.Box:
        picture = self.picture(asked)
        found = self.engine.locate(picture, asked.phrase, asked.beams)
        height, width = picture.shape[1:]
        x0, y0, x1, y1 = found.box
        return words.Box(box=(x0 / width, y0 / height, x1 / width, y1 / height), confidence=found.confidence)


def _hit(hit: indices.Hit) -> words.Hit:
    record: Mapping[str, Any] = {key: value for key, value in hit.record.items() if key not in PRIVATE}
    return words.Hit(
        id=hit.id,
        score=hit.score,
        text_agnostic=hit.text_agnostic,
        first_rank=hit.first_rank,
        record=dict(record),
    )


def _maps(grids: Tensor) -> list[words.Map]:
    """Of attention (n, rows, columns)."""
    kept = grids.flatten(1).sum(1).clamp(0, 1)
    cells = (strengths(grids) * 1_000).round().to(torch.int64).flatten(1)
    rows, columns = grids.shape[1:]
    return [
        words.Map(rows=rows, columns=columns, cells=[cell / 1_000 for cell in row], kept=round(share, 4))
        for row, share in zip(cells.tolist(), kept.tolist())
    ]


def _spans(text: str, phrases: Sequence[str]) -> Iterator[words.Span]:
    """Where phrases stand in the text, each once, in its order, none inside another."""
    taken: list[tuple[int, int]] = []
    for phrase in sorted(phrases, key=len, reverse=True):
        gaps = r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", phrase)))
        for match in re.finditer(rf"(?<!\w){gaps}(?!\w)", text, flags=re.I):
            if all(match.end() <= start or match.start() >= end for start, end in taken):
                taken.append(match.span())
                break
    for start, end in sorted(taken):
        yield words.Span(phrase=text[start:end], start=start, end=end)


def encoded(image: np.ndarray, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format, **options)
    return buffer.getvalue()
