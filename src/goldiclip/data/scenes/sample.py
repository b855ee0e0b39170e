"""From a number to a scene, and from a scene to a sample: each a pure function."""

from __future__ import annotations

import io
from functools import lru_cache
from random import Random

from PIL import Image

from goldiclip.data.scenes.captions import Passage, passages
from goldiclip.data.scenes.cutouts import Cutouts
from goldiclip.data.scenes.graph import Scene, Split
from goldiclip.data.scenes.layout import compose
from goldiclip.data.scenes.props import Drawn, Props
from goldiclip.data.scenes.questions import some_questions
from goldiclip.data.scenes.settings import Settings
from goldiclip.types import Caption, Question, Region, Sample

JPEG_QUALITY = 90
MAX_REGIONS = 10


def scene(index: int, seed: int, settings: Settings, split: Split) -> Scene:
    """The scene of that number: the same at every call, in every process."""
    return compose(f"{split}-{index:08d}", props_of(settings), settings, split, f"{seed}/{split}/{index}")


def single(kind: str, index: int, seed: int, settings: Settings, split: Split) -> Scene:
    """A scene with one thing of that kind in it."""
    stream = f"{seed}/{split}/{kind}/{index}"
    return compose(f"{kind}-{index:04d}", props_of(settings), settings.alone(), split, stream, [kind])


def to_sample(scene: Scene) -> Sample:
    """The picture as JPEG, seven captions, regions and questions."""
    said = spoken(scene)
    questions = tuple(Question(q.question, q.answer, q.kind) for q in some_questions(scene, _words(scene, "questions")))
    return Sample(
        key=scene.key,
        image=to_jpeg(scene),
        captions=tuple(Caption(passage.text, passage.source) for passage in said),
        regions=regions(scene, said),
        questions=questions,
        meta={"width": scene.image.shape[1], "height": scene.image.shape[0], "background": scene.background},
    )


def spoken(scene: Scene) -> tuple[Passage, ...]:
    """The scene's captions with what they state."""
    return passages(scene, _words(scene, "captions"))


def regions(scene: Scene, said: tuple[Passage, ...]) -> tuple[Region, ...]:
    """What the captions bring in, where it is seen; long captions first, each phrase once."""
    found: dict[str, Region] = {}
    for passage in reversed(said):
        for statement in passage.statements:
            for mention in statement.mentions:
                region = Region(mention.phrase, scene.groups[mention.group].box, statement.text)
                found.setdefault(mention.phrase, region)
    return tuple(found.values())[:MAX_REGIONS]


def to_jpeg(scene: Scene) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(scene.image).save(buffer, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    return buffer.getvalue()


@lru_cache(maxsize=4)
def props_of(settings: Settings) -> Props:
    """The store of things that the settings name, opened once per process."""
    if settings.cutouts:
        return Cutouts(settings.cutouts, settings.backgrounds, settings.kinds)
    return Drawn(settings.kinds)


def _words(scene: Scene, purpose: str) -> Random:
    return Random(f"{scene.stream}/{purpose}")
