"""What training would see, drawn: the samples at a run's positions, their boxes, crops, captions and task texts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.io import encode_png

from goldiclip.config import Config, ConfigError
from goldiclip.data.canvas import COLOURS, DIM, GOLD, INK, RED, Canvas, Rectangle, Run, fit, from_tensor, pale, stack
from goldiclip.data.decode import decode_image
from goldiclip.data.example import make_example
from goldiclip.data.schema import BadSample
from goldiclip.data.shards import Shards
from goldiclip.data.stream import Stream, example_rng
from goldiclip.data.tasks import parse_box
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.data.views import CLIP_MEAN, CLIP_STD, render
from goldiclip.types import Box, Example, Sample

PICTURE, GAP, MARGIN = 334, 12, 24  # pixels
_LOCALS = 530  # width left for the local views
WIDTH = 2 * MARGIN + 3 * (PICTURE + GAP) + _LOCALS
_TASK_COLOURS = {"cap": INK, "ref": "#1d7fd1", "grd": "#2a9d3f", "vqa": "#8e44ad"}
_MAX_BOXES = 12


@dataclass(frozen=True)
class Drawn:
    """A sample, and what training draws from it at one position of a run."""

    position: int
    sample: Sample
    image: Tensor  # uint8 (3, H, W)
    example: Example
    windows: list[Box]  # where each view lies in the stored image: global ones, then local ones; x0 > x1 when flipped
    num_global: int


def contact_sheet(shards: Shards, config: Config, path: Path, count: int = 6, position: int = 0) -> Path:
    """Draw `count` examples of a run on these shards, from `position` on, as a PNG."""
    if count < 1 or position < 0:
        raise ConfigError(f"count is {count}, position {position}; allowed: 1 and more, 0 and more")
    tokenizer = Tokenizer.of(config.model.text)
    stream = Stream([shards.lengths], (), config.data.window_shards, config.run.seed)
    positions = np.arange(position, position + count)
    cards = [_heading(shards, config, position, count)]
    for at, row in zip(positions.tolist(), stream.locate(positions)[1].tolist()):
        try:
            cards.append(_card(draw_example(shards[row], config, tokenizer, at), tokenizer))
        except BadSample as error:
            cards.append(_bad_card(at, error))
    path.parent.mkdir(parents=True, exist_ok=True)
    stack(cards).save(path)
    return path


def draw_example(sample: Sample, config: Config, tokenizer: Tokenizer, position: int) -> Drawn:
    """The training item at a position, and where its views lie."""
    image = decode_image(sample.image)
    try:
        example = make_example(sample, config, tokenizer, example_rng(config.run.seed, position))
    except BadSample as error:
        raise BadSample(error.reason, error.detail, sample.key, sample.origin) from error
    windows = locate_views(sample, image, config, tokenizer, position)
    return Drawn(position, sample, image, example, windows, config.data.views.num_global)


def locate_views(sample: Sample, image: Tensor, config: Config, tokenizer: Tokenizer, position: int) -> list[Box]:
    """Where each view lies: the item is drawn again, from a picture whose colours are its coordinates."""
    height, width = image.shape[-2:]
    across = ((torch.arange(width) + 0.5) / width).expand(height, width)
    down = ((torch.arange(height) + 0.5) / height)[:, None].expand(height, width)
    ruler = (torch.stack([across, down, torch.zeros_like(across)]) * 255).round().to(torch.uint8)
    png = encode_png(ruler, compression_level=1).numpy().tobytes()
    on_device = replace(config, data=replace(config.data, photometrics="device"))  # colours must stay as they are
    example = make_example(replace(sample, image=png), on_device, tokenizer, example_rng(config.run.seed, position))
    views = [*example.global_views, *example.local_views]
    spans = [(_span(view[0].float().mean(0)), _span(view[1].float().mean(1))) for view in views]
    return [(x[0], y[0], x[1], y[1]) for x, y in spans]


def _span(values: Tensor) -> tuple[float, float]:
    """The ends of the line through a view's coordinates; its rim is left out, where resizing bends it."""
    size = len(values)
    inside = np.arange(size // 8, size - size // 8)
    slope, start = np.polyfit((inside + 0.5) / size, values.numpy()[inside] / 255, 1)
    return float(np.clip(start, 0, 1)), float(np.clip(start + slope, 0, 1))


# --- cards ----------------------------------------------------------------------------------------------------------


def _heading(shards: Shards, config: Config, position: int, count: int) -> Image.Image:
    canvas = Canvas(WIDTH, 200)
    name = config.recipe or "configuration"
    y = canvas.text(
        MARGIN, 18, [(f"What {name} draws at positions {position:,} to {position + count - 1:,}", INK, True)], WIDTH, 20
    )
    views = config.data.views
    size = config.model.vision.image_size
    said = (
        f"{len(shards):,} samples in {len(shards.paths):,} shards · the stored image with its regions · its views · "
        f"{views.num_global} global view of {size} pixels with the decoder's boxes · {views.num_local} local views of "
        f"{views.local_size} pixels, ⇋ flipped · {config.data.captions} captions, ◆ the one lent to other images · "
        f"tasks {', '.join(config.decoder_tasks) or 'none'}: prompt, then target, ■ its end"
    )
    canvas.text(MARGIN, y + 4, [(said, DIM, False)], WIDTH - 2 * MARGIN)
    return canvas.done(14)


def _bad_card(position: int, error: BadSample) -> Image.Image:
    canvas = Canvas(WIDTH, 400)
    runs = [
        (f"{position:,}", INK, True),
        (str(error), RED, False),
        ("— training takes another in its place", DIM, False),
    ]
    canvas.text(MARGIN, MARGIN, runs, WIDTH - 2 * MARGIN)
    return canvas.done(MARGIN)


def _card(drawn: Drawn, tokenizer: Tokenizer) -> Image.Image:
    canvas = Canvas(WIDTH, 6_000)
    sample = drawn.sample
    height, width = drawn.image.shape[-2:]
    facts = f"{Path(sample.origin).name} · {width} × {height} · {len(sample.image) / 1e3:,.1f} kB"
    runs = [(sample.key, INK, True), (facts, DIM, False)]
    top = int(canvas.text(MARGIN, 18, runs, WIDTH - 2 * MARGIN, 15)) + 6
    places = [MARGIN + i * (PICTURE + GAP) for i in range(4)]
    legend = _draw_stored(canvas, drawn, places[0], top)
    _draw_windows(canvas, drawn, places[1], top)
    _draw_global_views(canvas, drawn, tokenizer, places[2], top)
    _draw_local_views(canvas, drawn, places[3], top)
    below = top + PICTURE + 10
    _draw_regions(canvas, legend, places[0], below)
    _draw_captions(canvas, drawn.example, tokenizer, places[1], below)
    _draw_tasks(canvas, drawn, tokenizer, places[3] - 100, below)
    return canvas.done(MARGIN)


def _draw_stored(canvas: Canvas, drawn: Drawn, left: int, top: int) -> list[str]:
    """The stored image with its regions; the phrases of each numbered box."""
    frame = canvas.picture(left, top, fit(from_tensor(drawn.image), PICTURE, PICTURE))
    phrases: dict[Box, list[str]] = defaultdict(list)
    for region in drawn.sample.regions:
        phrases[region.box].append(region.phrase + (f" ({region.score:.2f})" if region.score != 1 else ""))
    shown = list(phrases.items())[:_MAX_BOXES]
    for number, (box, _) in enumerate(shown):
        colour = COLOURS[number % len(COLOURS)]
        canvas.label(*canvas.box(frame, box, colour)[:2], f"{number + 1}", colour)
    return [" · ".join(names) for _, names in shown]


def _draw_windows(canvas: Canvas, drawn: Drawn, left: int, top: int) -> None:
    """The stored image, pale, with the outline of every view."""
    frame = canvas.picture(left, top, pale(fit(from_tensor(drawn.image), PICTURE, PICTURE)))
    for number, (x0, y0, x1, y1) in reversed(list(enumerate(drawn.windows))):
        local = number - drawn.num_global
        colour = GOLD if local < 0 else COLOURS[local % len(COLOURS)]
        corner = canvas.box(frame, (min(x0, x1), y0, max(x0, x1), y1), colour, 3 if local < 0 else 2)
        if local >= 0:
            canvas.label(*corner[:2], f"{local + 1}", colour, 11)


def _draw_global_views(canvas: Canvas, drawn: Drawn, tokenizer: Tokenizer, left: int, top: int) -> None:
    """The global views; on the first one the boxes that the decoder reads and says."""
    example = drawn.example
    frames = _tiles(canvas, list(example.global_views), left, top, PICTURE)
    for frame in frames:
        canvas.box(frame, (0, 0, 1, 1), GOLD, 3)
    size = example.global_views.shape[-1]
    for task, ids in zip(example.tasks, example.task_texts.rows()):
        box = parse_box(tokenizer.decode(ids)) if task in ("ref", "grd") else None
        if box:
            x0, y0, x1, y1 = (corner / size for corner in box)
            x, y, _, bottom = canvas.box(frames[0], (x0, y0, x1, y1), _TASK_COLOURS[task])
            canvas.label(x, y if task == "ref" else bottom - 15, task, _TASK_COLOURS[task], 11)


def _draw_local_views(canvas: Canvas, drawn: Drawn, left: int, top: int) -> None:
    """The local views as they reach the model, colour and blur included."""
    for number, frame in enumerate(_tiles(canvas, list(_rendered(drawn.example)), left, top, _LOCALS)):
        colour = COLOURS[number % len(COLOURS)]
        x0, _, x1, _ = drawn.windows[drawn.num_global + number]
        corner = canvas.box(frame, (0, 0, 1, 1), colour)
        canvas.label(*corner[:2], f"{number + 1}" + (" ⇋" if x0 > x1 else ""), colour, 11)


def _tiles(canvas: Canvas, views: list[Tensor], left: int, top: int, width: int) -> list[Rectangle]:
    """Square views in as many columns as lets them be largest in a picture's height; where each one is."""
    sides = [
        (min((width + GAP) // columns, (PICTURE + GAP) // -(-len(views) // columns)) - GAP, columns)
        for columns in range(1, len(views) + 1)
    ]
    side, columns = max(sides, default=(0, 1))
    return [
        canvas.picture(
            left + i % columns * (side + GAP), top + i // columns * (side + GAP), fit(from_tensor(view), side, side)
        )
        for i, view in enumerate(views)
    ]


def _rendered(example: Example) -> Tensor:
    """Local views with their photometrics, back from the model's normalisation: uint8."""
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (CLIP_MEAN, CLIP_STD))
    pixels = render(example.local_views, example.photometrics) * std + mean
    return (pixels * 255).round().clamp(0, 255).to(torch.uint8)


# --- texts ----------------------------------------------------------------------------------------------------------


def _draw_regions(canvas: Canvas, phrases: list[str], left: int, y: float) -> None:
    y = canvas.text(left, y, [("Regions" if phrases else "No regions", DIM, True)], PICTURE, 13) + 2
    for number, text in enumerate(phrases):
        canvas.label(left, y + 1, f"{number + 1}", COLOURS[number % len(COLOURS)], 11)
        y = canvas.text(left + 26, y, [(text, INK, False)], PICTURE - 40, 13) + 2


def _draw_captions(canvas: Canvas, example: Example, tokenizer: Tokenizer, left: int, y: float) -> None:
    """Captions decoded from the very tokens that training would read."""
    width = 2 * PICTURE - 110
    y = canvas.text(left, y, [("Captions", DIM, True)], width, 13) + 2
    captions = example.captions
    for number, (ids, is_cut) in enumerate(zip(captions.rows(), captions.truncated.tolist())):
        is_shared = number == example.shared_caption
        canvas.text(left, y, [("◆", GOLD, True) if is_shared else ("·", DIM, True)], width, 13)
        tail: list[Run] = [("✂ cut at the context's end", RED, False)] if is_cut else []
        y = canvas.text(left + 18, y, [(tokenizer.decode(ids), INK, is_shared), *tail], width - 18, 13) + 2


def _draw_tasks(canvas: Canvas, drawn: Drawn, tokenizer: Tokenizer, left: int, y: float) -> None:
    """Task texts decoded from their tokens, prompt and target apart; below, what was lost on the way."""
    example, width = drawn.example, WIDTH - MARGIN - left
    y = canvas.text(left, y, [("Tasks" if example.tasks else "No tasks", DIM, True)], width, 13) + 2
    tasks = example.task_texts
    starts = tasks.target_start.tolist() if tasks.target_start is not None else []
    for task, ids, start in zip(example.tasks, tasks.rows(), starts):
        colour = _TASK_COLOURS[task]
        end: Run = ("■", DIM, False) if ids[-1] == tokenizer.eot else ("✂ without end", RED, False)
        canvas.text(left, y, [(task, colour, True)], width, 13)
        runs = [(tokenizer.decode(ids[:start]), DIM, False), (tokenizer.decode(ids[start:]), colour, True), end]
        y = canvas.text(left + 40, y, runs, width - 40, 13) + 2
    lost = {**drawn.sample.meta.get("dropped", {}), **example.counts}
    if lost:
        said = ", ".join(f"{count} × {reason}" for reason, count in lost.items())
        canvas.text(left, y + 8, [(said, RED, False)], width, 13)
