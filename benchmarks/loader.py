"""From shards to batches on one core: images a second, ours beside the same path with PIL, in one run.

    python benchmarks/loader.py                              makes its own shards of photo-like 512×384 JPEGs
    python benchmarks/loader.py --shards '/data/*.tar'       yours
    python benchmarks/loader.py --captions captions.csv      real captions for the tokenizers: the last column

Also: CLIP's tokenizer beside open_clip's, the index of a large shard, and the memory of an epoch. One process, one
thread, seconds of the CPU; rounds of all variants alternate and each one's best counts.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchvision.transforms.functional as pil_ops
import tyro
from numpy.random import PCG64, Generator
from PIL import Image, ImageFilter
from rich.console import Console
from rich.table import Table

from goldiclip import recipes
from goldiclip.config import Config
from goldiclip.data.captions import sample_captions
from goldiclip.data.decode import decode_image
from goldiclip.data.example import collate, make_example
from goldiclip.data.index_file import build_index
from goldiclip.data.loader import Loader, open_sources
from goldiclip.data.photometrics import apply_in_worker, draw_photometrics
from goldiclip.data.scenes import Settings, scene, to_sample
from goldiclip.data.shards import write_shard, write_shards
from goldiclip.data.stream import example_rng
from goldiclip.data.tasks import task_texts
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.data.views import cut, draw_views, draw_windows
from goldiclip.types import Example, Sample

HEIGHT, WIDTH, QUALITY = 384, 512, 85
BATCH = 32


# --- data to read ---------------------------------------------------------------------------------------------------


def photo(rng: Generator) -> bytes:
    """A picture with a photograph's spectrum (amplitude falls with frequency) and correlated colours, as JPEG."""
    across, down = np.fft.rfftfreq(WIDTH)[None], np.fft.fftfreq(HEIGHT)[:, None]
    falloff = (np.hypot(across, down) + 1 / WIDTH) ** -1.3
    layers = np.fft.irfft2(np.fft.rfft2(rng.normal(size=(3, HEIGHT, WIDTH))) * falloff, (HEIGHT, WIDTH))
    layers /= layers.std(axis=(1, 2), keepdims=True)
    luma, red, blue = layers * np.array([50, 14, 14])[:, None, None]
    pixels = 118 + np.stack([luma + red, luma - 0.3 * red - 0.3 * blue, luma + blue], axis=-1)
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=QUALITY)
    return file.getvalue()


def make_samples(count: int) -> list[Sample]:
    """Photo-like pictures, with the captions, regions and questions of drawn scenes."""
    rng, settings = np.random.default_rng(0), Settings(size=48)
    pictures = [photo(rng) for _ in range(min(count, 48))]
    told = [to_sample(scene(i, 0, settings, "train")) for i in range(min(count, 200))]
    return [replace(told[i % 200], key=f"{i:09}", image=pictures[i % len(pictures)], meta={}) for i in range(count)]


# --- the same path with PIL -----------------------------------------------------------------------------------------


def example_with_pil(sample: Sample, config: Config, tokenizer: Tokenizer, rng: Generator) -> Example:
    """`make_example` with PIL for decoding, crops and colour; the same draws, texts and tensors."""
    data, size = config.data, config.model.vision.image_size
    for_tasks = Generator(PCG64(int(rng.integers(1 << 62))))
    texts = sample_captions(sample.captions, data.captions, data.max_sentences, data.caption_weights, rng)
    shared = int(rng.integers(data.captions))
    captions = tokenizer.encode(texts)
    image, views = Image.open(io.BytesIO(sample.image)).convert("RGB"), data.views
    width, height = image.size
    windows = draw_windows(height, width, views.global_scale, views.aspect, views.num_global, rng)
    whole = torch.stack([to_tensor(cut_with_pil(image, window, size)) for window in windows])
    top, left, h, w = windows[0]
    crop = (left / width, top / height, (left + w) / width, (top + h) / height)
    windows = draw_windows(height, width, views.local_scale, views.aspect, views.num_local, rng)
    flips = rng.random(views.num_local) < views.flip
    photometrics = draw_photometrics(views, views.num_local, rng)
    local = [cut_with_pil(image, window, views.local_size, flip) for window, flip in zip(windows, flips)]
    if data.photometrics == "worker":
        local = [colour_with_pil(view, row) for view, row in zip(local, photometrics.tolist())]
        photometrics = photometrics[:, :0]
    names, tasks, counts = task_texts(sample, crop, config, size, tokenizer, for_tasks)
    stacked = torch.stack([to_tensor(view) for view in local])
    return Example(whole, stacked, photometrics, captions, shared, names, tasks, counts)


def cut_with_pil(image: Image.Image, window: tuple[int, int, int, int], size: int, flip: bool = False) -> Image.Image:
    top, left, height, width = window
    box = (left, top, left + width, top + height)
    view = image.resize((size, size), Image.Resampling.BICUBIC, box=box)
    return view.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flip else view


def colour_with_pil(view: Image.Image, row: Sequence[float]) -> Image.Image:
    brightness, contrast, saturation, hue, grey, sigma = row
    if (brightness, contrast, saturation, hue) != (1, 1, 1, 0):
        view = pil_ops.adjust_saturation(
            pil_ops.adjust_contrast(pil_ops.adjust_brightness(view, brightness), contrast), saturation
        )
        view = pil_ops.adjust_hue(view, hue)
    view = pil_ops.rgb_to_grayscale(view, 3) if grey else view
    return view.filter(ImageFilter.GaussianBlur(sigma)) if sigma else view


def to_tensor(view: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(view)).permute(2, 0, 1).contiguous()


# --- images a second ------------------------------------------------------------------------------------------------


def ours(config: Config) -> Iterator[int]:
    """The loader itself, without worker processes."""
    for batch in Loader(replace(config, data=replace(config.data, workers=0)), Tokenizer()):
        yield len(batch)


def with_pil(config: Config) -> Iterator[int]:
    """The same reading, order and collating around `example_with_pil`."""
    loader, tokenizer, position = Loader(config, Tokenizer()), Tokenizer(), 0
    while True:
        rows = np.arange(position, position + BATCH)
        samples = [loader.sources[0][i] for i in loader.stream.locate(rows)[1].tolist()]
        made = [example_with_pil(s, config, tokenizer, example_rng(0, int(p))) for p, s in zip(rows, samples)]
        position += BATCH
        yield len(collate(made, position))


def pixels_alone(config: Config) -> Iterator[int]:
    """Decoding and crops of the same samples and nothing else: the most that any path over these pixels could reach."""
    source, views, rng, position = open_sources(config)[0], config.data.views, np.random.default_rng(0), 0
    while True:
        for i in range(position, position + BATCH):
            draw_views(decode_image(source[i % 256].image), views, config.model.vision.image_size, rng)
        position += BATCH
        yield BATCH


def images_a_second(config: Config, seconds: float, rounds: int) -> None:
    in_worker = replace(config, data=replace(config.data, photometrics="worker"))
    variants = {
        ("goldiclip", "on the device"): ours(config),
        ("PIL", "on the device"): with_pil(config),
        ("goldiclip", "here, on the CPU"): ours(in_worker),
        ("PIL", "here, on the CPU"): with_pil(in_worker),
        ("decoding and crops alone", "none"): pixels_alone(config),
    }
    rates = alternate({name: lambda it=it: next(it) for name, it in variants.items()}, seconds, rounds)
    table = Table(
        "path",
        "photometrics",
        "images/s/core",
        "× PIL",
        "wanted",
        title="Full path: 1 × 224 + 6 × 96 views, 8 captions, 4 tasks",
    )
    wanted = {"on the device": 250, "here, on the CPU": 130}
    for (path, where), rate in rates.items():
        goal = f"≥ {wanted[where]}" if path == "goldiclip" else ""
        beside_pil = f"{rate / rates['PIL', where]:.2f}" if where in wanted else ""
        table.add_row(path, where, f"{rate:.0f}", beside_pil, goal)
    show(table)


def alternate(work: dict[Any, Callable[[], int]], seconds: float, rounds: int) -> dict[Any, float]:
    """Things a second of each, the best of rounds in turn."""
    found: dict[Any, list[float]] = {name: [] for name in work}
    for do in work.values():
        do()
    for _ in range(rounds):
        for name, do in work.items():
            start, done = time.process_time(), 0
            while time.process_time() - start < seconds:
                done += do()
            found[name].append(done / (time.process_time() - start))
    return {name: max(rates) for name, rates in found.items()}


def where_the_time_goes(config: Config, sources: Any, num: int = 96) -> None:
    """Milliseconds per image of each step, on its own."""
    tokenizer, data, size = Tokenizer(), config.data, config.model.vision.image_size
    samples = [sources[0][i] for i in range(num)]
    pixels = [decode_image(sample.image) for sample in samples]
    rng, views = np.random.default_rng(0), data.views
    windows = [
        (draw_windows(*image.shape[-2:], scale, views.aspect, count, rng), side)
        for image in pixels
        for scale, count, side in (
            (views.global_scale, 1, size),
            (views.local_scale, views.num_local, views.local_size),
        )
    ]
    local = [cut(image, windows[2 * i + 1][0], views.local_size) for i, image in enumerate(pixels)]
    drawn = [draw_photometrics(views, views.num_local, rng) for _ in samples]
    texts = [sample_captions(s.captions, data.captions, data.max_sentences, data.caption_weights, rng) for s in samples]
    made = [make_example(sample, config, tokenizer, rng) for sample in samples]
    steps: dict[str, Callable[[int], Any]] = {
        "read": lambda i: sources[0][i],
        "decode": lambda i: decode_image(samples[i].image),
        "global view": lambda i: cut(pixels[i], *windows[2 * i]),
        "local views": lambda i: cut(pixels[i], *windows[2 * i + 1]),
        "captions": lambda i: sample_captions(samples[i].captions, 8, 3, data.caption_weights, rng),
        "tokenize": lambda i: tokenizer.encode(texts[i]),
        "tasks": lambda i: task_texts(samples[i], (0.0, 0.0, 1.0, 1.0), config, size, tokenizer, rng),
        "collate": lambda i: collate(made[i : i + BATCH]) if i % BATCH == 0 else None,
        "photometrics (CPU)": lambda i: apply_in_worker(local[i], drawn[i]),
    }
    table = Table("step", "ms per image", title="Where the time goes")
    for name, step in steps.items():
        start = time.process_time()
        for i in range(num):
            step(i)
        table.add_row(name, f"{(time.process_time() - start) / num * 1e3:.3f}")
    show(table)


# --- tokenizers -----------------------------------------------------------------------------------------------------


def tokenizers(texts: list[str], rounds: int) -> None:
    own, theirs = Tokenizer(), open_clip_tokenizer()
    assert all(own.tokens(text) == theirs.encode(text) for text in texts[:2_000])
    chunks = cycle([texts[i : i + 256] for i in range(0, max(len(texts) - 255, 1), 256)])
    encoders: dict[str, Callable[[list[str]], Any]] = {"goldiclip": own.encode, "open_clip": theirs}
    work = {name: lambda encode=encode: len(encode(next(chunks))) for name, encode in encoders.items()}
    rates = alternate(work, 0.5, rounds)
    words = statistics.mean(len(text.split()) for text in texts)
    table = Table(
        "tokenizer", "texts/s/core", "× open_clip", "wanted", title=f"{len(texts):,} texts of {words:.0f} words"
    )
    for name, rate in rates.items():
        table.add_row(name, f"{rate:,.0f}", f"{rate / rates['open_clip']:.1f}", "≥ 5" if name == "goldiclip" else "")
    show(table)


def open_clip_tokenizer() -> Any:
    """The one file of open_clip, without the seconds that the whole package takes."""
    package = importlib.util.find_spec("open_clip")
    folder = Path(package.submodule_search_locations[0])  # type: ignore[union-attr, index]
    spec = importlib.util.spec_from_file_location("open_clip_tokenizer_alone", folder / "tokenizer.py")
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module.SimpleTokenizer()


# --- index and memory -----------------------------------------------------------------------------------------------


def index_of_a_large_shard(folder: Path, samples: list[Sample], gigabytes: float) -> None:
    each = statistics.mean(len(sample.image) for sample in samples) + 6_000
    count = int(gigabytes * 1e9 / each)
    path = write_shard((replace(samples[i % len(samples)], key=f"{i:09}") for i in range(count)), folder / "large.tar")
    start = time.perf_counter()
    found = len(build_index(path))
    seconds, size = time.perf_counter() - start, path.stat().st_size / 1e9
    table = Table("shard", "samples", "seconds", "GB/s", title="Index built from nothing")
    table.add_row(f"{size:.2f} GB", f"{found:,}", f"{seconds:.2f}", f"{size / seconds:.1f}")
    show(table)


def memory_of_an_epoch(config: Config, num_samples: int) -> None:
    """Resident megabytes while an epoch goes by, after a first tenth that fills caches."""
    batches, marks = ours(config), []
    steps = max(num_samples // BATCH, 10)
    for step in range(steps + 1):
        next(batches)
        if step in (steps // 10, steps // 2, steps):
            marks.append((step * BATCH, resident_megabytes()))
    table = Table("images seen", "resident MB", title="Memory over an epoch")
    for seen, megabytes in marks:
        table.add_row(f"{seen:,}", f"{megabytes:.0f}")
    show(table)


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def show(table: Table) -> None:
    for column in table.columns[1:]:
        column.justify = "right"
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def main(
    shards: str = "",
    captions: Path | None = None,
    seconds: float = 1.0,
    rounds: int = 8,
    count: int = 1_920,
    index_gigabytes: float = 1.0,
) -> None:
    """Measure.

    Args:
        shards: Shards to read; empty makes some.
        captions: Real captions for the tokenizers; empty takes those of the shards.
        seconds: Of each variant in a round.
        rounds: Rounds of all variants; the best counts.
        count: Samples to make; the epoch whose memory is watched.
        index_gigabytes: Size of the shard to index; 0 indexes none.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        samples = make_samples(count)
        if not shards:
            write_shards(samples, folder, per_shard=240)
            kilobytes = statistics.mean(len(sample.image) for sample in samples) / 1e3
            print(f"{count:,} photo-like JPEGs of {WIDTH}×{HEIGHT}, {kilobytes:.0f} KB each")
        config = recipes.recipe("cc3m")
        config = replace(
            config,
            data=replace(config.data, train=(shards or f"{folder}/*.tar",), workers=0),
            run=replace(config.run, batch=BATCH),
        )
        images_a_second(config, seconds, rounds)
        where_the_time_goes(config, open_sources(config))
        said = [caption.text for sample in samples[:200] for caption in sample.captions]
        if captions:
            said = [row[-1] for row in csv.reader(captions.open()) if row][1:]
        tokenizers(said, rounds)
        if index_gigabytes:
            index_of_a_large_shard(Path(folder), samples, index_gigabytes)
        memory_of_an_epoch(config, count)


if __name__ == "__main__":
    tyro.cli(main)
