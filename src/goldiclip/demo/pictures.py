"""The demo's pictures: what is found, where phrases are, masks, and what the decoder says, right and wrong."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from goldiclip.evaluate.spoken import Spoken
from goldiclip.inference.colours import glow, phrase_colour
from goldiclip.inference.engine import Engine
from goldiclip.inference.heatmap import phrase_maps
from goldiclip.inference.index import Index
from goldiclip.types import Sample

GREEN, RED = (44, 160, 44), (214, 39, 40)
FOUND = 5  # pictures shown of each search
RIGHT = 0.5  # score from which what was said counts as right: an answer is 0 or 1, a box any overlap
TASKS = {"cap": "Captions", "ref": "Boxes: red is said, green is true"}


def searches(index: Index, annotations: Sequence[Mapping[str, Any]], gallery: Path, count: int = 5) -> Iterator[str]:
    """Sentences from all over the gallery; where a sentence's own picture comes late, it stands behind the first."""
    for entry in annotations[:: max(1, len(annotations) // count)][:count]:
        query, wanted = entry["captions"][0], Path(entry["image"]).name
        found = [hit.id for hit in index.search(query, k=len(annotations))]
        place = found.index(wanted)
        shown = [*found[:FOUND], *([wanted] if place >= FOUND else [])]
        words = {wanted: f"place {place + 1} of {len(found)}"}
        tiles = [
            _tile(inlined(gallery / "images" / name), html.escape(words.get(name, "")), framed=name == wanted)
            for name in shown
        ]
        yield _card(query, tiles)


def heatmaps(engine: Engine, samples: Sequence[Sample], count: int = 6) -> Iterator[str]:
    """Scenes with several things, and where the attention of each one's phrase goes."""
    telling = [sample for sample in samples if len(phrases_of(sample)) > 1]
    for sample in telling[:count]:
        phrases = phrases_of(sample)
        maps = phrase_maps(engine, sample.image, phrases).without_sink
        picture = np.asarray(_opened(sample))
        tiles = [_tile(_img(_opened(sample)), ""), _tile(_img(Image.fromarray(glow(picture, maps))), "together")]
        for place, phrase in enumerate(phrases):
            colour = "#{:02x}{:02x}{:02x}".format(*phrase_colour(place))
            words = f"<i style='background:{colour}'></i>{html.escape(phrase)}"
            tiles.append(_tile(_img(Image.fromarray(glow(picture, maps[place : place + 1], place))), words))
        yield _card("", tiles)


def phrases_of(sample: Sample, most: int = 3) -> list[str]:
    """One phrase of each box: the longest, which leaves the least to guess."""
    by_box: dict[tuple[float, ...], str] = {}
    for region in sample.regions:
        by_box[region.box] = max(by_box.get(region.box, ""), region.phrase, key=len)
    return list(by_box.values())[:most]


def masks(run: Path, count: int = 6) -> Iterator[str]:
    for path in sorted((run / "evaluation" / "overlays").rglob("*-value.png"))[:count]:
        yield f"<figure class='card picture'>{inlined(path)}</figure>"


def examples(said: Iterable[Spoken], each: int = 4) -> Iterator[str]:
    """Of every task as many right as wrong ones, where there are."""
    said = list(said)
    for task in dict.fromkeys(one.task for one in said):
        of_task = [one for one in said if one.task == task]
        right = [one for one in of_task if one.score >= RIGHT][: each // 2]
        wrong = [one for one in of_task if one.score < RIGHT][: each - len(right)]
        title = TASKS.get(task, f"Questions: {task}")
        yield _card(title, [_tile(_img(_shown(one)), _words(one)) for one in (*right, *wrong)])


def _shown(one: Spoken) -> Image.Image:
    picture = _opened(one.sample)
    for box, colour in ((one.true_box, GREEN), (one.box, RED)):
        if box is not None:
            x0, y0, x1, y1 = (place * side for place, side in zip(box, picture.size * 2))
            ImageDraw.Draw(picture).rectangle((x0, y0, max(x0, x1 - 1), max(y0, y1 - 1)), outline=colour, width=2)
    return picture


def _words(one: Spoken) -> str:
    """What was asked, what was said, and what would have been right."""
    tone = "better" if one.score >= RIGHT else "worse"
    said = f"overlap {one.score:.2f}" if one.box else one.said or "(nothing)"
    truth = f" · known: {one.truth}" if one.score < RIGHT and one.truth else ""
    return f"{html.escape(one.asked)} <b class='{tone}'>{html.escape(said)}</b>{html.escape(truth)}"


# --- tiles ----------------------------------------------------------------------------------------------------------


def inlined(path: Path) -> str:
    return _img(Image.open(path).convert("RGB"))


def _opened(sample: Sample) -> Image.Image:
    return Image.open(io.BytesIO(sample.image)).convert("RGB")


def _card(title: str, tiles: Sequence[str]) -> str:
    caption = f"<figcaption>{html.escape(title)}</figcaption>" if title else ""
    kind = "hits fours" if len(tiles) == 4 else "hits"  # not three in a row and one below
    return f"<figure class='card'>{caption}<div class='{kind}'>{''.join(tiles)}</div></figure>"


def _tile(picture: str, words: str, framed: bool = False) -> str:
    """`words` are HTML."""
    return f"<span class='hit{' found' if framed else ''}'>{picture}<small>{words}</small></span>"


def _img(picture: Image.Image) -> str:
    file = io.BytesIO()
    picture.save(file, "WEBP", quality=82)
    return f"<img alt='' src='data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}'>"
