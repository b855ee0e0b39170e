"""What the decoder says is judged as a person would judge it, beside the best constant answer."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from goldiclip.config import Config
from goldiclip.evaluate.spoken import Spoken, answers, captions, claims, located, majority, overlap, spoken_numbers
from goldiclip.inference.engine import Engine
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.types import Caption, Question, Region, Sample


def picture() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


SAMPLE = Sample(
    "a",
    picture(),
    captions=(Caption("Two red hats and a blue ball", "short"),),
    regions=(Region("a red hat", (0.1, 0.1, 0.5, 0.6)), Region("a red hat", (0.5, 0.5, 0.9, 0.9), score=0.4)),
    questions=(Question("How many hats?", "two", "count"), Question("What colour is the ball?", "blue", "color")),
)


def test_an_untrained_decoder_says_something_about_everything(tiny: Config) -> None:
    engine = Engine(GoldiCLIP(tiny.model), image_size=32, device="cpu")
    said = [*answers(engine, [SAMPLE]), *captions(engine, [SAMPLE]), *located(engine, [SAMPLE])]
    assert [one.task for one in said] == ["count", "color", "cap", "ref"]
    numbers = dict(spoken_numbers(said))
    assert set(numbers) == {
        *(f"ask/{kind}{what}" for kind in ("count/", "color/", "") for what in ("accuracy", "majority")),
        "caption/right",
        "locate/mean_iou",
    }
    box = said[-1].box
    assert box is not None
    assert 0 <= box[0] < box[2] <= 1
    assert said[-1].true_box == (0.1, 0.1, 0.5, 0.6)


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [((0, 0, 1, 1), (0, 0, 1, 1), 1), ((0, 0, 2, 1), (1, 0, 3, 1), 1 / 3), ((0, 0, 1, 1), (1, 1, 2, 2), 0)],
)
def test_overlap_by_hand(one: tuple[float, ...], other: tuple[float, ...], shared: float) -> None:
    assert overlap(one, other) == pytest.approx(shared)


def test_claims_are_what_a_text_says_about_the_picture() -> None:
    assert claims("A picture of two red hats.") == {"two", "red", "hat"}


def test_the_majority_is_the_best_constant_answer() -> None:
    assert majority(["two", "Two", "three"]) == pytest.approx(2 / 3)


def test_numbers_are_means_over_what_was_asked() -> None:
    said = [
        Spoken(SAMPLE, "count", "", "", truth, score) for truth, score in (("two", 1.0), ("two", 0.0), ("one", 1.0))
    ]
    numbers = dict(spoken_numbers(said))
    assert numbers["ask/count/accuracy"] == pytest.approx(2 / 3)
    assert numbers["ask/count/majority"] == pytest.approx(2 / 3)
