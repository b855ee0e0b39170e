"""Boxes: geometry of padded squares, choice among guesses, and two real detectors at tiny size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchvision.io import encode_jpeg

from goldiclip.config import ConfigError
from goldiclip.prepare.boxes import BoxLimits, choose, corners, from_padded_square, overlap, regions_of
from goldiclip.prepare.detectors import GroundingDino, Owlv2, detector, from_folder_or_hub, in_batches
from goldiclip.prepare.stages import Boxes, Phrases
from goldiclip.types import Caption, Region, Sample

Models = Callable[[str], Path]


def region(phrase: str, box: tuple[float, float, float, float], score: float) -> Region:
    return Region(phrase, box, "", score)


# --- geometry -------------------------------------------------------------------------------------------------------


def test_a_box_in_the_padded_square_is_where_the_pixels_are() -> None:
    """A 60 × 20 image is padded below to 60 × 60; pixels 15…30 across and 5…15 down."""
    in_square = torch.tensor([[15 / 60, 5 / 60, 30 / 60, 15 / 60]])
    expected = torch.tensor([[15 / 60, 5 / 20, 30 / 60, 15 / 20]])
    torch.testing.assert_close(from_padded_square(in_square, height=20, width=60), expected)
    torch.testing.assert_close(from_padded_square(in_square[:, [1, 0, 3, 2]], 60, 20), expected[:, [1, 0, 3, 2]])


def test_corners_of_a_centred_box() -> None:
    torch.testing.assert_close(corners(torch.tensor([0.5, 0.4, 0.2, 0.6])), torch.tensor([0.4, 0.1, 0.6, 0.7]))


def test_a_guess_speaks_for_its_best_phrase_and_guesses_about_padding_vanish() -> None:
    boxes = torch.tensor(
        [[0.1, 0.1, 0.5, 0.5], [0.2, 1.1, 0.6, 1.5], [0.5, 0.5, 1.4, 0.9], [0.0, 0.0, float("nan"), 1.0]]
    )
    scores = torch.tensor([[0.3, 0.8, 0.99], [0.9, 0.1, 0.0], [0.6, 0.05, 0.0], [0.9, 0.9, 0.9]])
    found = regions_of(boxes, scores, ["cat", "dog"], min_score=0.1)  # the third column is padding of the batch
    assert [(item.phrase, round(item.score, 4)) for item in found] == [("dog", 0.8), ("cat", 0.6)]
    assert found[1].box[2] == 1.0


def test_weak_and_overlapping_boxes_fall_away_per_phrase() -> None:
    guesses = [
        region("dog", (0.0, 0.0, 0.4, 0.4), 0.9),
        region("dog", (0.02, 0.0, 0.42, 0.4), 0.8),  # the same dog
        region("cat", (0.0, 0.0, 0.4, 0.4), 0.5),  # another phrase may stand there too
        region("dog", (0.6, 0.6, 0.9, 0.9), 0.2),
        region("dog", (0.5, 0.0, 0.9, 0.3), 0.09),
    ]
    assert [(item.phrase, item.score) for item in choose(guesses)] == [("dog", 0.9), ("cat", 0.5), ("dog", 0.2)]


def test_three_boxes_per_phrase_and_ten_per_image_the_best_of_each_phrase_first() -> None:
    guesses = [
        region(f"thing {letter}", (0.1 * column, 0.0, 0.1 * column + 0.09, 0.5), 0.9 - 0.01 * column - 0.05 * row)
        for row, letter in enumerate("abcdef")
        for column in range(6)
    ]
    kept = choose(guesses)
    assert len(kept) == 10
    assert Counter(item.phrase for item in kept[:6]) == Counter({f"thing {letter}": 1 for letter in "abcdef"})
    assert max(Counter(item.phrase for item in choose(guesses, BoxLimits(per_image=99))).values()) == 3


BOX = st.tuples(*[st.floats(0, 0.5)] * 2, *[st.floats(0.5, 1)] * 2).filter(
    lambda box: box[2] > box[0] and box[3] > box[1]
)
REGION = st.builds(Region, st.sampled_from(["a", "b", "c"]), BOX, st.just(""), st.floats(0, 1))


@given(st.lists(REGION, max_size=25), st.randoms())
def test_the_choice_keeps_its_promises_whatever_the_order(guesses: list[Region], random: Any) -> None:
    kept = choose(guesses)
    shuffled = list(guesses)
    random.shuffle(shuffled)
    assert choose(shuffled) == kept
    assert len(kept) <= 10
    assert all(item.score >= 0.1 - 1e-4 for item in kept)
    for at, one in enumerate(kept):
        assert one.box == tuple(round(corner, 5) for corner in one.box)
        for other in kept[:at]:
            assert one.phrase != other.phrase or overlap(one.box, other.box) <= 0.5 + 1e-3
    assert choose(kept) == kept


def test_a_detector_s_last_digits_decide_nothing() -> None:
    whole, half = (1e-7, 0.0, 1.0, 1.0), (0.0, 0.25, 1.0, 0.5)
    (kept,) = choose([region("a", half, 0.90000001), region("a", whole, 0.9)], BoxLimits(per_phrase=1))
    assert kept.box == (0.0, 0.0, 1.0, 1.0)
    assert choose([region("a", (0.300001, 0.1, 0.300003, 0.9), 0.9)]) == ()  # rounded, it has no area


def test_overlap_by_hand() -> None:
    assert overlap((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3)
    assert overlap((0, 0, 1, 1), (1, 1, 2, 2)) == 0.0


# --- OWLv2 ----------------------------------------------------------------------------------------------------------


def images(*sizes: tuple[int, int], seed: int = 0) -> list[Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return [torch.randint(0, 256, (3, height, width), dtype=torch.uint8, generator=rng) for height, width in sizes]


def centre_boxes(finder: Any) -> None:
    """A box head that says its patch's own cell, so that guesses lie on a known grid."""
    for parameter in finder.model.box_head.parameters():
        torch.nn.init.zeros_(parameter)


def test_owlv2_agrees_with_its_own_post_processing(models: Models) -> None:
    finder = Owlv2(str(models("owlv2")), min_score=0.0)
    centre_boxes(finder)
    phrases = [["cat", "a rather long phrase of many words that does not fit"], ["dog"]]
    pictures = images((20, 40), (36, 24))
    found = finder.detect(pictures, phrases)
    for picture, texts, regions in zip(pictures, phrases, found):
        prompts = [f"a photo of a {text}" for text in texts]
        inputs = finder.processor(
            text=[prompts], images=[picture], return_tensors="pt", padding="max_length", truncation=True, max_length=16
        )
        with torch.inference_mode():
            said = finder.model(**inputs)
        height, width = picture.shape[-2:]
        result = finder.processor.post_process_grounded_object_detection(
            said, threshold=0.0, target_sizes=[(height, width)], text_labels=[texts]
        )[0]
        scale = torch.tensor([width, height, width, height])
        expected = {
            (label, *(round(corner, 3) for corner in box.clamp(0, 1).tolist())): score
            for label, box, score in zip(result["text_labels"], result["boxes"] / scale, result["scores"].tolist())
            if (box.clamp(0, 1)[2:] > box.clamp(0, 1)[:2]).all()
        }
        got = {(item.phrase, *(round(corner, 3) for corner in item.box)): item.score for item in regions}
        assert got == pytest.approx(expected, abs=1e-5)
        assert len(got) >= 8


def test_a_batch_answers_as_each_image_alone(models: Models) -> None:
    finder = Owlv2(str(models("owlv2")), min_score=0.0)
    pictures, phrases = images((20, 40), (36, 24), (32, 32)), [["cat", "dog", "tree"], [], ["boat"]]
    together = finder.detect(pictures, phrases)
    assert together[1] == []
    for picture, texts, regions in zip(pictures, phrases, together):
        alone = finder.detect([picture], [texts])[0]
        assert [item.phrase for item in alone] == [item.phrase for item in regions]
        for one, other in zip(alone, regions):
            assert one.box == pytest.approx(other.box, abs=1e-5)
            assert one.score == pytest.approx(other.score, abs=1e-5)


def square_scene(rng: torch.Generator) -> tuple[Tensor, tuple[float, float, float, float]]:
    """A red square on a dark image of some shape, and where it is."""
    height, width = [(32, 64), (64, 32), (64, 48), (44, 64)][int(torch.randint(4, (1,), generator=rng))]
    image = torch.randint(0, 60, (3, height, width), generator=rng, dtype=torch.uint8)
    side = 20
    x, y = (int(torch.randint(0, extent - side, (1,), generator=rng)) for extent in (width, height))
    image[0, y : y + side, x : x + side] = 250
    return image, (x / width, y / height, (x + side) / width, (y + side) / height)


def train_on_squares(finder: Owlv2, steps: int) -> None:
    """Teach a tiny OWLv2 to find red squares, in the padded square that it sees."""
    rng = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    for parameter in finder.model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    optimiser = torch.optim.Adam(finder.model.parameters(), lr=3e-3)
    rows = torch.arange(16)
    for _ in range(steps):
        pictures, boxes = zip(*(square_scene(rng) for _ in rows))
        pixels = finder.processor.image_processor(list(pictures), return_tensors="pt")["pixel_values"]
        said = finder.model(**finder._queries([["red square"]] * len(rows)), pixel_values=pixels)
        shapes = torch.tensor([[picture.shape[2], picture.shape[1]] * 2 for picture in pictures])
        wanted = torch.tensor(boxes) * shapes / shapes.max(dim=1, keepdim=True).values
        cell = ((wanted[:, :2] + wanted[:, 2:]) / 2 * 8).long()
        patch = cell[:, 1] * 8 + cell[:, 0]
        target = torch.zeros_like(said.logits)
        target[rows, patch] = 1
        loss = 2 * torch.nn.functional.binary_cross_entropy_with_logits(said.logits, target)
        loss = loss + 10 * (corners(said.pred_boxes)[rows, patch] - wanted).abs().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


@pytest.mark.slow
def test_a_known_box_is_found_in_wide_and_in_tall_images(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from tiny_transformers import save_owlv2

    finder = Owlv2(str(save_owlv2(tmp_path, size=64)), min_score=0.0)
    train_on_squares(finder, steps=120)
    rng = torch.Generator().manual_seed(1)
    overlaps: dict[str, list[float]] = {"wide": [], "tall": []}
    for _ in range(60):
        image, box = square_scene(rng)
        best = choose(finder.detect([image], [["red square"]])[0], BoxLimits(min_score=0.0))[0]
        shape = "wide" if image.shape[2] > image.shape[1] else "tall"
        overlaps[shape].append(overlap(best.box, box))
    assert sum(overlaps["wide"]) / len(overlaps["wide"]) > 0.5
    assert sum(overlaps["tall"]) / len(overlaps["tall"]) > 0.5


# --- Grounding DINO -------------------------------------------------------------------------------------------------


def test_grounding_dino_puts_boxes_where_its_own_post_processing_does(models: Models) -> None:
    finder = GroundingDino(str(models("grounding_dino")), min_score=0.0)
    (picture,) = images((20, 40))
    found = finder.detect([picture], [["cat", "st. bernard"]])[0]
    inputs = finder.processor(images=[picture], text="cat. st  bernard.", return_tensors="pt")
    with torch.inference_mode():
        said = finder.model(**inputs)
    result = finder.processor.post_process_grounded_object_detection(said, inputs["input_ids"], 0.0, 0.0, [(20, 40)])[0]
    boxes = [tuple((box / torch.tensor([40, 20, 40, 20])).clamp(0, 1).tolist()) for box in result["boxes"]]
    assert found
    for item in found:
        assert any(item.box == pytest.approx(box, abs=1e-4) for box in boxes)
        assert item.phrase in ("cat", "st. bernard")
        assert 0 <= item.score <= 1


def test_a_phrase_scores_as_its_best_token_and_no_other_phrases(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens of "cat. dog." are [CLS] c a t . d o g .: logits are put on one letter of dog."""
    finder = GroundingDino(str(models("grounding_dino")), min_score=0.2)

    class Said:
        logits = torch.full((1, 2, 256), -9.0)
        pred_boxes = torch.tensor([[[0.5, 0.5, 0.2, 0.2], [0.3, 0.3, 0.2, 0.2]]])

    Said.logits[0, 1, 6] = 0.0
    Said.logits[0, 0, 4] = 5.0  # the full stop belongs to nobody
    monkeypatch.setattr(
        finder, "model", type("M", (), {"config": finder.model.config, "__call__": lambda self, **_: Said})()
    )
    found = finder.detect(images((32, 32)), [["cat", "dog"]])[0]
    assert [(item.phrase, round(item.score, 3)) for item in found] == [("dog", 0.5)]
    assert found[0].box == pytest.approx((0.2, 0.2, 0.4, 0.4))


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_out_of_memory_halves_the_batch_and_goes_on(error: BaseException) -> None:
    sizes = []

    def work(items: Sequence[int]) -> list[int]:
        sizes.append(len(items))
        if len(items) > 3:
            raise error
        return [item * 10 for item in items]

    counts: Counter[str] = Counter()
    found, batch = in_batches(list(range(10)), work, 8, counts)
    assert found == [item * 10 for item in range(10)]
    assert (batch, sizes) == (2, [8, 4, 2, 2, 2, 2, 2])
    assert counts == {"out of memory: batch halved": 2}


def test_one_image_too_large_for_memory_is_said() -> None:
    def work(items: Sequence[int]) -> list[int]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(ConfigError, match="batch of one"):
        in_batches([1], work, 4, Counter())


def test_an_unknown_detector_is_named() -> None:
    with pytest.raises(ConfigError, match="owlv2 or grounding-dino"):
        detector("yolo")


def test_a_model_that_is_not_there_is_said(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        detector(f"owlv2:{tmp_path}")


def test_the_hub_is_asked_once_and_only_for_what_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a network each file that is asked for costs half a minute of retries."""
    hub = pytest.importorskip("huggingface_hub")
    asked: list[str] = []

    class Kind:
        here = True

        @classmethod
        def from_pretrained(cls, model: str, local_files_only: bool = False) -> str:
            asked.append("local" if local_files_only else "every file")
            if local_files_only and not cls.here:
                raise OSError(model)
            return model

    def answer(model: str, file: str) -> None:
        asked.append(file)
        if model == "some/unreachable":
            raise OSError("nobody answers")

    monkeypatch.setattr(hub, "hf_hub_download", answer)
    assert from_folder_or_hub(Kind, "some/model") == "some/model"
    assert asked == ["local"]
    Kind.here = False
    assert from_folder_or_hub(Kind, "some/model") == "some/model"
    assert asked[1:] == ["local", "config.json", "every file"]
    with pytest.raises(OSError, match="nobody answers"):
        from_folder_or_hub(Kind, "some/unreachable")
    assert asked[4:] == ["local", "config.json"]


def test_a_stage_goes_on_with_half_the_batch(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device with room for two images: every image gets its boxes, and the smaller batch is kept."""
    opened = Owlv2(str(models("owlv2")), batch=8, min_score=0.0)
    centre_boxes(opened)
    answers, sizes = opened._answers, list[int]()

    def cramped(pictures: list[Tensor], phrases: list[list[str]]) -> tuple[Tensor, Tensor]:
        sizes.append(len(pictures))
        if len(pictures) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return answers(pictures, phrases)

    monkeypatch.setattr(opened, "_answers", cramped)
    encoded = [encode_jpeg(picture).numpy().tobytes() for picture in images(*[(24, 36)] * 8)]
    samples = [Sample(f"{n}", data, (Caption("A dog."),)) for n, data in enumerate(encoded)]
    counts: Counter[str] = Counter()
    phrased = Phrases("rules").open("cpu")(samples, counts)
    made = Boxes(lambda device: opened, BoxLimits(min_score=0.0), batch=8).open("cpu")(phrased, counts)
    assert all(sample.regions for sample in made)
    assert counts["out of memory: batch halved"] == 2
    assert sizes == [8, 4, 2, 2, 2, 2]
