"""SCLIP's protocol, written out once more: windows, logits, softmax, synonyms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from set_layouts import WRITERS, write_image, write_mask
from torch import Tensor

from goldiclip.config import ConfigError
from goldiclip.evaluate.classification import class_features
from goldiclip.evaluate.datasets import READERS, benchmarks
from goldiclip.evaluate.datasets.items import Masked
from goldiclip.evaluate.datasets.labels import templates
from goldiclip.evaluate.metrics import areas, mean_iou
from goldiclip.evaluate.overlay import save_overlay
from goldiclip.evaluate.problems import BadData, Problems
from goldiclip.evaluate.segmentation import segmentation
from goldiclip.inference.colours import tint
from goldiclip.inference.engine import Engine
from goldiclip.inference.pictures import pixels
from goldiclip.inference.segment import predict, segmentation_modes
from goldiclip.inference.windows import bands, classify, resize, slide, starts
from goldiclip.types import Alone


def read(name: str, root: Path, problems: Problems | None = None) -> Masked:
    home = benchmarks()[name].find(root)
    assert home is not None
    items = READERS[name](home, problems or Problems(strict=True))
    assert isinstance(items, Masked)
    return items


# --- windows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "wanted"), [(224, [0]), (225, [0, 1]), (336, [0, 112]), (500, [0, 112, 224, 276]), (100, [0])]
)
def test_the_last_window_is_shifted_back(length: int, wanted: list[int]) -> None:
    assert starts(length, 224, 112) == wanted


@pytest.mark.parametrize(
    ("height", "width", "short", "wanted"),
    [
        (375, 500, 336, (336, 448)),
        (1024, 2048, 560, (560, 1120)),
        (100, 1000, 336, (205, 2048)),
        (427, 640, 448, (448, 671)),
    ],
)
def test_images_are_resized_as_mmcv_does(height: int, width: int, short: int, wanted: tuple[int, int]) -> None:
    assert tuple(resize(torch.zeros(3, height, width, dtype=torch.uint8), short).shape[1:]) == wanted


@pytest.mark.parametrize("size", [(7, 5), (13, 31), (50, 40), (3, 90)])
def test_bands_are_bilinear_enlargement(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goldiclip.inference.windows.NUMBERS_AT_ONCE", 500)
    logits = torch.randn(4, 9, 11, generator=torch.Generator().manual_seed(0))
    wanted = F.interpolate(logits[None], size, mode="bilinear", align_corners=False)[0]
    torch.testing.assert_close(torch.cat(list(bands(logits, size)), 1), wanted, atol=1e-5, rtol=1e-5)


def sclip(
    logits_of_window, image: Tensor, query_class: Tensor, crop: int, stride: int, size: tuple[int, int]
) -> Tensor:  # type: ignore[no-untyped-def]
    """The published protocol, to the letter: × 40, softmax over queries, max over synonyms, argmax."""
    height, width = image.shape[1:]
    rows, columns = max(height - crop + stride - 1, 0) // stride + 1, max(width - crop + stride - 1, 0) // stride + 1
    total, count = None, torch.zeros(1, height, width)
    for row in range(rows):
        for column in range(columns):
            bottom, right = min(row * stride + crop, height), min(column * stride + crop, width)
            top, left = max(bottom - crop, 0), max(right - crop, 0)
            logits = logits_of_window(image[:, top:bottom, left:right])
            logits = F.interpolate(logits[None], (bottom - top, right - left), mode="bilinear")[0]
            padded = F.pad(logits, (left, width - right, top, height - bottom))
            total = padded if total is None else total + padded
            count[:, top:bottom, left:right] += 1
    probability = F.interpolate((total / count)[None], size, mode="bilinear")[0].mul(40).softmax(0)
    best = [probability[query_class == one].amax(0) for one in range(int(query_class.max()) + 1)]
    return torch.stack(best).argmax(0)


@pytest.mark.parametrize("mode", ["value", "sink", "attention"])
def test_segmentation_is_the_published_protocol(engine: Engine, mode: str) -> None:
    engine.batch = 3  # windows of an image do not come out even
    image = torch.from_numpy(np.array(Image.fromarray(_smooth(61, 83)))).permute(2, 0, 1)
    classes = [("cat",), ("dog", "puppy", "hound"), ("sky",), ("red car", "van")]
    queries, _ = class_features(engine, classes, templates("imagenet")[:4], Alone())
    query_class = torch.tensor([0, 1, 1, 1, 2, 3, 3])
    with torch.no_grad():
        bias, top = engine.model.scale(torch.tensor([0.0, 1.0])).tolist()  # type: ignore[attr-defined]

    def window(crop: Tensor) -> Tensor:
        features = engine.model.encode_image(engine.normalise(crop[None]))
        if mode == "attention":
            return engine.model.condition(features, queries).attention[0].unflatten(1, features.grid)  # type: ignore[attr-defined]
        logits = engine.model.score(features, queries, {"value": "patch", "sink": "patch_sink"}[mode])
        return (logits[0].unflatten(1, features.grid) - bias) / (top - bias)

    with torch.no_grad():
        resized = resize(image, 48)
        wanted = sclip(window, resized, query_class, 32, 16, (61, 83))
    found = predict(engine, image, queries, query_class, mode, short_side=336)  # 336 · 32 / 224 = 48
    assert (found == wanted).float().mean() > 0.999
    assert len(found.unique()) > 1


def _smooth(height: int, width: int) -> np.ndarray:
    coarse = np.random.default_rng(0).integers(0, 255, (5, 7, 3), dtype=np.uint8)
    return np.array(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def test_synonyms_make_one_class() -> None:
    logits = torch.tensor([[0.0, 3.0], [2.0, 0.0], [1.0, 1.0]]).view(3, 1, 2)
    assert classify(logits, torch.tensor([0, 1, 1]), (1, 2)).tolist() == [[1, 0]]
    assert classify(logits, torch.tensor([0, 1, 0]), (1, 2)).tolist() == [[1, 0]]
    assert classify(logits, torch.tensor([0, 1, 2]), (1, 2)).tolist() == [[1, 0]]


def test_an_image_narrower_than_the_window_is_one_column_of_windows() -> None:
    image = torch.randint(256, (3, 20, 100), dtype=torch.uint8)
    seen = []

    def score(windows: Tensor) -> Tensor:
        seen.append(windows.shape)
        return torch.ones(len(windows), 2, 4, 4)

    assert slide(image, score, crop=32, stride=16, batch=4).shape == (2, 20, 100)
    assert {tuple(shape[1:]) for shape in seen} == {(3, 32, 32)}


# --- whole sets -------------------------------------------------------------------------------------------------------


def test_a_set_is_the_accumulated_areas_of_its_images(engine: Engine, tmp_path: Path) -> None:
    WRITERS["voc20"](tmp_path)
    items = read("voc20", tmp_path)
    found = dict(segmentation(engine, items))
    queries, _ = class_features(engine, items.classes, templates("imagenet"), Alone())
    query_class = torch.tensor([place for place, names in enumerate(items.classes) for _ in names])
    per_image = []
    for picture, mask in zip(items.pictures, items.masks, strict=True):
        image = pixels(picture)
        labelled = torch.from_numpy(np.array(Image.open(mask)).astype(np.int64))
        labelled = torch.where((labelled == 0) | (labelled == 255), 255, labelled - 1)
        predicted = predict(engine, image, queries, query_class, "value", 336)
        per_image.append(areas(predicted, labelled, 20))
    assert found["value/mean_iou"] == pytest.approx(mean_iou(torch.stack(per_image)))
    assert found["counts/images"] == 2
    total = torch.stack(per_image).sum(0)
    assert found["value/pixel_accuracy"] == pytest.approx(float(total[0].sum() / total[2].sum()))
    assert sum(key.startswith("value/iou/") for key in dict(found)) == 20


def test_all_modes_are_measured(engine: Engine, tmp_path: Path) -> None:
    WRITERS["scenes_segmentation"](tmp_path)
    items = read("scenes_segmentation", tmp_path)
    found = dict(segmentation(engine, items, modes=segmentation_modes(engine)))
    assert {key.split("/")[0] for key in found} == {"value", "sink", "attention", "counts"}
    with pytest.raises(
        ConfigError, match="segmentation cannot be 'csa' with this encoder; it can be value, sink, attention"
    ):
        list(segmentation(engine, items, modes=["csa"]))


def test_a_mask_of_another_size_is_left_out_or_stops(engine: Engine, tmp_path: Path) -> None:
    WRITERS["voc20"](tmp_path)
    write_mask(tmp_path / "VOCdevkit/VOC2012/SegmentationClass/2007_000042.png", (1,), size=(30, 36))
    problems = Problems()
    found = dict(segmentation(engine, read("voc20", tmp_path), problems=problems))
    assert found["counts/images"] == 1
    assert "2007_000042.png, 2007_000042.jpg: is (36, 30); the image is (36, 40)" in problems.of_all()[0]
    with pytest.raises(BadData, match="mask size"):
        list(segmentation(engine, read("voc20", tmp_path), problems=Problems(strict=True)))


def test_labels_beyond_the_class_list_are_said_and_ignored(engine: Engine, tmp_path: Path) -> None:
    WRITERS["cityscapes"](tmp_path)
    mask = tmp_path / "cityscapes/gtFine/val/ulm/ulm_000000_000019_gtFine_labelTrainIds.png"
    write_mask(mask, (0, 33, 18, 255), size=(64, 32))
    problems = Problems()
    found = dict(segmentation(engine, read("cityscapes", tmp_path), problems=problems))
    assert found["counts/images"] == 1
    assert "has the labels [33]; there are 19 classes" in problems.of_all()[0]
    with pytest.raises(BadData, match="class list"):
        list(segmentation(engine, read("cityscapes", tmp_path), problems=Problems(strict=True)))


@pytest.mark.parametrize("file", ["SegmentationClass/2007_000042.png", "JPEGImages/2007_000042.jpg"])
@pytest.mark.parametrize("cut", [0, 60])
def test_a_file_that_is_no_image_is_left_out_by_its_name(file: str, cut: int, engine: Engine, tmp_path: Path) -> None:
    WRITERS["voc20"](tmp_path)
    path = tmp_path / "VOCdevkit/VOC2012" / file
    path.write_bytes(path.read_bytes()[:cut] + b"no image")
    problems = Problems()
    found = dict(segmentation(engine, read("voc20", tmp_path), problems=problems))
    assert found["counts/images"] == 1
    (said,) = problems.of_all()
    assert said.startswith(f"unreadable image: {path}, picture 1: ")
    assert "0x" not in said


def test_spaced_names_are_other_queries(engine: Engine, tmp_path: Path) -> None:
    WRITERS["cityscapes"](tmp_path)
    items = read("cityscapes", tmp_path)
    found = dict(
        segmentation(engine, replace(items, classes=(*items.classes[:6], ("traffic light",), *items.classes[7:])))
    )
    assert "value/iou/traffic light" in found


# --- overlays -------------------------------------------------------------------------------------------------------


def test_overlays_are_saved(engine: Engine, tmp_path: Path) -> None:
    WRITERS["voc20"](tmp_path)
    items = read("voc20", tmp_path)
    dict(segmentation(engine, items, modes=["value", "sink"], overlays=tmp_path / "overlays", num_overlays=1))
    assert sorted(path.name for path in (tmp_path / "overlays").iterdir()) == [
        "2007_000033-sink.png",
        "2007_000033-value.png",
    ]
    with Image.open(tmp_path / "overlays/2007_000033-value.png") as sheet:
        assert sheet.width > 1000


def test_unlabelled_pixels_keep_the_pictures_colour(tmp_path: Path) -> None:
    picture = np.full((2, 2, 3), 100, dtype=np.uint8)
    tinted = tint(picture, np.array([[0, 255], [1, 255]]), 2)
    assert (tinted[:, 1] == 100).all()
    assert not np.array_equal(tinted[0, 0], tinted[1, 0])
    image = torch.from_numpy(picture).permute(2, 0, 1)
    save_overlay(tmp_path / "a/b.png", image, torch.zeros(2, 2).long(), torch.full((2, 2), 255), ["cat", "dog"])
    assert (tmp_path / "a/b.png").exists()


def test_a_one_image_set_has_an_interval(engine: Engine, tmp_path: Path) -> None:
    write_image(tmp_path / "images/a.jpg")
    write_mask(tmp_path / "masks/a.png", (0, 1))
    items = Masked(
        split="all", annotations=(), pictures=(tmp_path / "images/a.jpg",), masks=(tmp_path / "masks/a.png",),
        classes=(("cat",), ("dog",)), zero_is_ignored=False, short_side=336,
    )  # fmt: skip
    found = dict(segmentation(engine, items))
    assert found["value/mean_iou"].low == pytest.approx(found["value/mean_iou"])  # type: ignore[attr-defined]
