from __future__ import annotations

import io
import math
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from goldiclip.config import Views
from goldiclip.data.decode import decode_image, image_size
from goldiclip.data.photometrics import NEUTRAL, apply_in_worker, apply_photometrics, blur_taps, draw_photometrics
from goldiclip.data.schema import BadSample
from goldiclip.data.tasks import box_in_crop
from goldiclip.data.views import CLIP_MEAN, CLIP_STD, cut, draw_views, draw_windows, render

VIEWS = Views()


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def picture(height: int, width: int, seed: int = 0) -> torch.Tensor:
    """Smooth colours with some grain: uint8 (3, H, W)."""
    coarse = torch.from_numpy(rng(seed).random((1, 3, 6, 6))).float()
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")[0]
    grain = torch.from_numpy(rng(seed + 1).normal(0, 0.03, (3, height, width))).float()
    return ((smooth + grain).clamp(0, 1) * 255).round().to(torch.uint8)


def encoded(image: Image.Image, form: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def photo(width: int = 40, height: int = 30, mode: str = "RGB") -> Image.Image:
    return Image.fromarray(picture(height, width).permute(1, 2, 0).numpy()).convert(mode)


# --- decoding -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "mode"),
    [
        *[("JPEG", mode) for mode in ("RGB", "L", "CMYK")],
        *[("PNG", mode) for mode in ("RGB", "RGBA", "L", "LA", "P", "1", "I;16")],
        *[("WEBP", mode) for mode in ("RGB", "RGBA")],
        ("GIF", "P"),
        ("BMP", "RGB"),
        ("TIFF", "RGB"),
    ],
)
def test_every_common_form_decodes_to_rgb(form: str, mode: str) -> None:
    source = photo(mode="L").convert("I").convert("I;16") if mode == "I;16" else photo(mode=mode)
    data = encoded(source, form)
    image = decode_image(data)
    assert image.dtype == torch.uint8
    assert image.shape == (3, 30, 40)
    assert image_size(data) == (40, 30)


@pytest.mark.parametrize(
    "options", [{"progressive": True}, {"quality": 30}, {"subsampling": 0}, {"restart_marker_rows": 1}]
)
def test_a_jpeg_decodes_to_the_pixels_that_pillow_sees(options: dict[str, object]) -> None:
    data = encoded(photo(), "JPEG", **options)
    reference = torch.from_numpy(np.array(Image.open(io.BytesIO(data)))).permute(2, 0, 1)
    assert (decode_image(data).int() - reference.int()).abs().max() <= 2


def test_without_torchvisions_decoder_pillow_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    with_torchvision = decode_image(JPEG)
    monkeypatch.setattr("goldiclip.data.decode.decode_jpeg", None)
    assert (decode_image(JPEG).int() - with_torchvision.int()).abs().max() <= 2


def test_cmyk_comes_out_in_the_right_colours() -> None:
    red = Image.new("RGB", (32, 32), (220, 20, 20)).convert("CMYK")
    colour = decode_image(encoded(red, "JPEG", quality=95)).float().mean((1, 2))
    assert colour[0] > 180
    assert colour[1:].max() < 80


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_sixteen_bits_of_grey_keep_their_shades(form: str) -> None:
    shades = np.arange(0, 256, dtype=np.uint16)[None].repeat(16, axis=0)
    image = decode_image(encoded(Image.fromarray(shades * 257), form))
    assert torch.equal(image, torch.from_numpy(shades.astype(np.uint8)).expand(3, 16, 256))


def test_a_png_named_otherwise_is_known_by_its_bytes() -> None:
    lossless = photo()
    assert torch.equal(decode_image(encoded(lossless, "PNG")), torch.from_numpy(np.array(lossless)).permute(2, 0, 1))


def test_the_rotation_in_exif_is_not_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    data = encoded(photo(40, 30), "JPEG", exif=exif)
    assert decode_image(data).shape == (3, 30, 40)
    assert image_size(data) == (40, 30)


def png_header(width: int, height: int) -> bytes:
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = b"IDAT" + zlib.compress(b"\0" * 64)
    parts = [struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in (chunk, pixels)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def jpeg_header(width: int, height: int) -> bytes:
    data = bytearray(encoded(photo(), "JPEG"))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def bmp_header(width: int, height: int) -> bytes:
    data = bytearray(encoded(photo(), "BMP"))
    data[18:26] = struct.pack("<ii", width, height)
    return bytes(data)


@pytest.mark.parametrize("forge", [png_header, jpeg_header, bmp_header])
def test_a_huge_image_is_refused_before_anything_is_allocated(forge, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(data: bytes) -> torch.Tensor:
        raise AssertionError("it was decoded")

    monkeypatch.setattr("goldiclip.data.decode._decode_fast", fail)
    monkeypatch.setattr("goldiclip.data.decode._decode_with_pillow", fail)
    with pytest.raises(BadSample, match=r"image too large: .*(30,000 × 30,000|900000000)"):
        decode_image(forge(30_000, 30_000))


JPEG, PNG = encoded(photo(), "JPEG"), encoded(photo(), "PNG")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty image"),
        (b"\0" * 100, "undecodable image"),
        (b"not an image at all", "undecodable image"),
        (b"\xff\xd8", "undecodable image"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 50, "undecodable image"),
        (JPEG[: len(JPEG) // 2], "undecodable image"),
        (PNG[: len(PNG) // 2], "undecodable image"),
        (PNG[:20], "undecodable image"),
        (encoded(photo(1, 1), "PNG"), "image too small"),
        (encoded(photo(500, 1), "JPEG"), "image too small"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 50 50\n", "undecodable image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' width='50' height='50'/>", "undecodable image"),
    ],
)
def test_what_is_no_image_is_a_bad_sample_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadSample) as caught:
        decode_image(data)
    assert caught.value.reason == reason


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([JPEG, PNG, encoded(photo(), "WEBP"), encoded(photo(mode="P"), "GIF")]), st.data())
def test_damaged_bytes_give_an_image_or_a_bad_sample_and_nothing_else(whole: bytes, data: st.DataObject) -> None:
    damaged = bytearray(whole)
    for at in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=8)):
        damaged[at] = data.draw(st.integers(0, 255))
    try:
        image = decode_image(
            bytes(damaged[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else damaged)
        )
    except BadSample as error:
        reason = error.reason
    else:
        reason = ""
        assert image.dtype == torch.uint8
        assert image.shape[0] == 3
    assert reason in {"", "empty image", "undecodable image", "image too large", "image too small"}


# --- geometry -------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 900), st.integers(1, 900), st.integers(0, 2**32))
def test_windows_lie_inside_the_image_and_keep_scale_and_aspect(height: int, width: int, seed: int) -> None:
    scale, aspect = (0.05, 0.4), (0.75, 4 / 3)
    for top, left, h, w in draw_windows(height, width, scale, aspect, 6, rng(seed)):
        assert h >= 1
        assert w >= 1
        assert 0 <= top <= height - h
        assert 0 <= left <= width - w
        if min(height, width) > 40:
            within = scale[0] * 0.8 <= h * w / (height * width) <= scale[1] * 1.2
            central = h == height or w == width
            assert within or central
            assert aspect[0] * 0.8 <= w / h <= aspect[1] * 1.25


def test_windows_cover_scale_and_corner_evenly() -> None:
    windows = np.array(draw_windows(400, 400, (0.25, 0.25), (1.0, 1.0), 4_000, rng()))
    assert set(windows[:, 2]) == {200} == set(windows[:, 3])
    for corner in (windows[:, 0], windows[:, 1]):
        assert corner.min() <= 3
        assert corner.max() >= 197
        assert corner.mean() == pytest.approx(100, abs=4)
        assert corner.std() == pytest.approx(200 / math.sqrt(12), rel=0.05)


def test_an_image_too_narrow_for_any_window_gives_its_centre() -> None:
    assert draw_windows(10, 1_000, (0.9, 1.0), (0.75, 4 / 3), 1, rng()) == [(0, 493, 10, 13)]


def test_a_view_is_the_crop_that_torchvision_makes() -> None:
    image = picture(200, 260)
    window = (13, 40, 120, 150)
    theirs = F.resized_crop(image, *window, [96, 96], InterpolationMode.BICUBIC, antialias=True)
    assert (cut(image, [window], 96)[0].int() - theirs.int()).abs().max() <= 1
    flipped = cut(image, [window], 96, flip=np.array([True]))[0]
    assert torch.equal(flipped, cut(image, [window], 96)[0].flip(-1))


def test_views_have_the_configured_shapes() -> None:
    views = replace(VIEWS, num_global=2, num_local=3, local_size=48)
    global_views, local_views, photometrics, crop = draw_views(picture(100, 140), views, 64, rng())
    assert global_views.shape == (2, 3, 64, 64)
    assert local_views.shape == (3, 3, 48, 48)
    assert photometrics.shape == (3, len(NEUTRAL))
    assert 0 <= crop[0] < crop[2] <= 1
    assert 0 <= crop[1] < crop[3] <= 1


def test_without_local_views_there_are_none() -> None:
    _, local_views, photometrics, _ = draw_views(picture(100, 140), replace(VIEWS, num_local=0), 64, rng())
    assert local_views.shape == (0, 3, 96, 96)
    assert photometrics.shape == (0, len(NEUTRAL))
    assert render(local_views, photometrics).shape == local_views.shape


def test_the_same_seed_draws_the_same_views() -> None:
    image = picture(100, 140)
    first, again, other = (draw_views(image, VIEWS, 64, rng(seed)) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first[:3], again[:3]))
    assert first[3] == again[3]
    assert not torch.equal(first[1], other[1])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(64, 300), st.integers(64, 300))
def test_a_coloured_rectangle_is_found_at_its_remapped_box(seed: int, height: int, width: int) -> None:
    """Draw a box, crop the image, find its colour where the remapped box says."""
    luck, size = rng(seed), 112
    x0, x1 = sorted(luck.choice(np.arange(0, width + 1, 2), 2, replace=False).tolist())
    y0, y1 = sorted(luck.choice(np.arange(0, height + 1, 2), 2, replace=False).tolist())
    image = torch.zeros(3, height, width, dtype=torch.uint8)
    image[0, y0:y1, x0:x1] = 255
    views = replace(VIEWS, global_scale=(0.3, 1.0), num_local=0)
    global_views, _, _, crop = draw_views(image, views, size, luck)
    box = box_in_crop((x0 / width, y0 / height, x1 / width, y1 / height), crop, size, min_visible=0.0)
    found = (global_views[0, 0] > 127).nonzero()
    if box is None:
        assert len(found) <= 2 * size  # nothing, or a line at the border
        return
    pixel = size / min((crop[2] - crop[0]) * width, (crop[3] - crop[1]) * height)  # of the image, in the view
    if min(box[2] - box[0], box[3] - box[1]) > 2 * pixel:
        (top, left), (bottom, right) = found.amin(0).tolist(), found.amax(0).tolist()
        for there, here in zip(box, (left, top, right + 1, bottom + 1)):
            assert abs(there - here) <= 1.5 + 0.5 * pixel


def test_a_global_view_is_never_flipped_and_half_of_the_local_ones_are() -> None:
    image = torch.linspace(0, 255, 200).to(torch.uint8).expand(3, 160, 200)  # dark left, light right
    flipped = 0
    for seed in range(50):
        global_views, local_views, _, _ = draw_views(image, replace(VIEWS, num_global=2), 32, rng(seed))
        assert (global_views[..., -1].float().mean((1, 2)) > global_views[..., 0].float().mean((1, 2))).all()
        flipped += int((local_views[..., 0].float().mean((1, 2)) > local_views[..., -1].float().mean((1, 2))).sum())
    assert abs(flipped - 150) < 5 * math.sqrt(75)


# --- colour and blur ------------------------------------------------------------------------------------------------


def coloured_by_torchvision(image: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    """The slow twin: one float image (3, h, w), one operation after the other."""
    brightness, contrast, saturation, hue, grey, sigma = row.tolist()
    image = F.adjust_brightness(image, brightness)
    image = F.adjust_contrast(image, contrast)
    image = F.adjust_saturation(image, saturation)
    image = F.adjust_hue(image, hue)
    if grey:
        image = F.rgb_to_grayscale(image, num_output_channels=3)
    return F.gaussian_blur(image, [blur_taps(image.shape[-1])] * 2, [sigma] * 2) if sigma else image


@pytest.mark.parametrize("side", [16, 48, 96])
def test_photometrics_of_a_batch_equal_torchvision_image_by_image(side: int) -> None:
    images = torch.stack([picture(side, side, seed) for seed in range(24)]).float() / 255
    parameters = draw_photometrics(VIEWS, 24, rng(5))
    expected = torch.stack([coloured_by_torchvision(image, row) for image, row in zip(images, parameters)])
    torch.testing.assert_close(apply_photometrics(images, parameters), expected, atol=1e-5, rtol=0)


def test_photometrics_in_the_worker_equal_those_on_the_device_up_to_rounding() -> None:
    views = torch.stack([picture(48, 48, seed) for seed in range(12)])
    parameters = draw_photometrics(VIEWS, 12, rng(6))
    on_device = apply_photometrics(views.float() / 255, parameters) * 255
    assert (apply_in_worker(views, parameters).float() - on_device).abs().max() <= 0.51


def test_neutral_photometrics_change_nothing() -> None:
    views = torch.stack([picture(32, 32, seed) for seed in range(3)])
    neutral = torch.tensor([NEUTRAL] * 3)
    torch.testing.assert_close(render(views, neutral), render(views), atol=1e-5, rtol=0)
    assert torch.equal(apply_in_worker(views, neutral), views)


def test_what_a_view_gets_does_not_depend_on_its_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    views = torch.stack([picture(32, 32, seed) for seed in range(7)]).float() / 255
    parameters = draw_photometrics(VIEWS, 7, rng())
    whole = apply_photometrics(views, parameters)
    monkeypatch.setattr("goldiclip.data.photometrics._CHUNK", 3)
    torch.testing.assert_close(apply_photometrics(views, parameters), whole, atol=1e-6, rtol=0)
    torch.testing.assert_close(apply_photometrics(views[2:3], parameters[2:3]), whole[2:3], atol=1e-6, rtol=0)


def test_drawn_photometrics_follow_the_configuration() -> None:
    rows = draw_photometrics(VIEWS, 20_000, rng())
    jittered = (rows[:, :4] != torch.tensor(NEUTRAL[:4])).any(1)
    assert jittered.float().mean() == pytest.approx(0.8, abs=0.02)
    assert rows[:, 4].mean() == pytest.approx(0.2, abs=0.02)
    blurred = rows[:, 5] > 0
    assert blurred.float().mean() == pytest.approx(0.5, abs=0.02)
    assert 0.1 <= rows[blurred, 5].min() < 0.12
    assert 1.98 < rows[blurred, 5].max() <= 2.0
    for column, (low, high) in enumerate([(0.6, 1.4), (0.6, 1.4), (0.8, 1.2), (-0.1, 0.1)]):
        values = rows[jittered, column]
        assert values.min() == pytest.approx(low, abs=0.01)
        assert values.max() == pytest.approx(high, abs=0.01)
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.01)


def test_photometrics_switched_off_are_neutral() -> None:
    off = replace(VIEWS, jitter_probability=0.0, grey=0.0, blur=0.0)
    assert torch.equal(draw_photometrics(off, 5, rng()), torch.tensor([NEUTRAL] * 5))


def test_jitter_beyond_one_never_inverts_colours() -> None:
    strong = replace(VIEWS, jitter=(2.0, 2.0, 2.0, 0.5), jitter_probability=1.0)
    assert draw_photometrics(strong, 1_000, rng())[:, :3].min() >= 0


def test_rendering_normalises_as_clip_does_whatever_the_leading_dimensions() -> None:
    views = torch.stack([picture(16, 16, seed) for seed in range(6)]).view(2, 3, 3, 16, 16)
    out = render(views)
    mean, std = torch.tensor(CLIP_MEAN).view(3, 1, 1), torch.tensor(CLIP_STD).view(3, 1, 1)
    torch.testing.assert_close(out, (views.float() / 255 - mean) / std)
    parameters = draw_photometrics(VIEWS, 6, rng())
    coloured = render(views, parameters.view(2, 3, -1))
    torch.testing.assert_close(coloured.flatten(0, 1), render(views.flatten(0, 1), parameters))
    assert render(views, dtype=torch.bfloat16).dtype == torch.bfloat16


def test_rendering_leaves_its_input_as_it_is() -> None:
    views = picture(16, 16)[None]
    before = views.clone()
    render(views, draw_photometrics(VIEWS, 1, rng()))
    assert torch.equal(views, before)


def test_photometrics_without_columns_were_applied_in_the_worker() -> None:
    views = picture(16, 16)[None]
    assert torch.equal(render(views, torch.empty(1, 0)), render(views))
