from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from goldiclip import recipes
from goldiclip.config import Config, ConfigError, override
from goldiclip.data.example import collate, make_example, text_hash
from goldiclip.data.loader import Loader, LoaderStopped, TooManyBad
from goldiclip.data.schema import BadSample
from goldiclip.data.shards import write_shards
from goldiclip.data.stream import Stream, example_rng
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.types import Batch, Caption, Question, Region, Sample, Texts

TOKENIZER = Tokenizer()


def jpeg(seed: int, side: int = 40) -> bytes:
    file = io.BytesIO()
    colour = np.random.default_rng(seed).integers(0, 255, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(colour).resize((side, side), Image.Resampling.BICUBIC).save(file, "JPEG")
    return file.getvalue()


JPEGS = [jpeg(seed) for seed in range(8)]


class Album:
    """Samples made on demand, each saying its own number; `read` may do something to one before it is returned."""

    def __init__(self, lengths: list[int], first: int = 0, read: Callable[[int], object] = lambda i: None) -> None:
        self.lengths, self.first, self.read = lengths, first, read
        self.paths = [f"album/{i:05}.tar" for i in range(len(lengths))]

    def __getitem__(self, index: int) -> Sample:
        self.read(index)
        number = self.first + index
        return Sample(
            key=f"{number:06}",
            image=JPEGS[number % 8],
            captions=(Caption(f"{number}", "short"),),
            regions=(Region("a thing", (0.2, 0.2, 0.8, 0.8), "a thing is here"),),
            questions=(Question("which?", f"{number}"),),
        )


def small(batch: int = 4, workers: int = 0, **data: object) -> Config:
    config = recipes.recipe("tiny")
    return replace(
        config,
        data=replace(config.data, captions=2, workers=workers, window_shards=2, **data),
        run=replace(config.run, batch=batch),
    )


def numbers(batch: Batch) -> list[int]:
    """Which samples are in a batch, by what their captions say."""
    rows = batch.captions.rows()[:: batch.captions_per_image]
    return [int(TOKENIZER.decode(row)) for row in rows]


def seen(loader: Loader) -> list[int]:
    return [number for batch in loader for number in numbers(batch)]


def assert_equal_batches(first: Batch, second: Batch) -> None:
    for name in Batch.__dataclass_fields__:
        one, two = getattr(first, name), getattr(second, name)
        if isinstance(one, Texts):
            assert torch.equal(one.ids, two.ids), name
            assert torch.equal(one.lengths, two.lengths), name
        elif isinstance(one, torch.Tensor):
            assert torch.equal(one, two), name
        else:
            assert one == two, name


# --- examples and batches -------------------------------------------------------------------------------------------


def test_an_example_is_a_function_of_sample_and_rng() -> None:
    config, sample = small(), Album([9])[3]
    first, again, other = (make_example(sample, config, TOKENIZER, example_rng(0, position)) for position in (5, 5, 6))
    assert_equal_batches(collate([first]), collate([again]))
    assert not torch.equal(first.local_views, other.local_views)


def test_leaving_something_out_does_not_redraw_the_rest() -> None:
    sample = replace(Album([9])[3], captions=tuple(Caption(word, "short") for word in "abcdefgh"))
    whole = make_example(sample, small(), TOKENIZER, example_rng(0, 1))
    no_local = small()
    no_local = replace(no_local, data=replace(no_local.data, views=replace(no_local.data.views, num_local=0)))
    for config in (no_local, recipes.without_term(small(), "vqa", "grd")):
        part = make_example(sample, config, TOKENIZER, example_rng(0, 1))
        assert torch.equal(part.captions.ids, whole.captions.ids)
        assert part.shared_caption == whole.shared_caption
        assert torch.equal(part.global_views, whole.global_views)
        assert part.task_texts.rows()[:2] == [whole.task_texts.rows()[i] for i in range(len(part.tasks))][:2]


def test_photometrics_in_the_worker_keep_crops_and_texts() -> None:
    sample = Album([9])[3]
    on_device = make_example(sample, small(), TOKENIZER, example_rng(0, 1))
    in_worker = make_example(sample, small(photometrics="worker"), TOKENIZER, example_rng(0, 1))
    assert in_worker.photometrics.shape == (2, 0)
    assert on_device.photometrics.shape == (2, 6)
    assert torch.equal(in_worker.global_views, on_device.global_views)
    assert in_worker.local_views.dtype == torch.uint8
    assert not torch.equal(in_worker.local_views, on_device.local_views)
    assert torch.equal(in_worker.task_texts.ids, on_device.task_texts.ids)


def test_a_batch_holds_its_examples_in_order() -> None:
    config, album = small(), Album([9])
    bare = replace(album[2], regions=(), questions=())
    samples = [album[0], bare, album[1]]
    examples = [make_example(sample, config, TOKENIZER, example_rng(0, i)) for i, sample in enumerate(samples)]
    batch = collate(examples, samples=12)
    assert len(batch) == 3
    assert batch.samples == 12
    assert batch.captions_per_image == 2
    assert numbers(batch) == [0, 2, 1]
    assert batch.task.tolist() == [0, 1, 2, 3, 0, 0, 1, 2, 3]
    assert batch.task_owner.tolist() == [0, 0, 0, 0, 1, 2, 2, 2, 2]
    assert all(0 <= shared < 2 for shared in batch.shared_caption.tolist())
    for i in range(3):
        alone = collate([examples[i]], samples=12)
        assert_equal_batches(replace(batch.slice(i, i + 1), counts={}), replace(alone, counts={}))


def test_what_was_cut_is_counted() -> None:
    sample = replace(Album([9])[0], captions=(Caption("word " * 300, "short"),))
    batch = collate([make_example(sample, small(), TOKENIZER, example_rng(0, i)) for i in range(3)])
    assert batch.counts == {"caption cut": 6, "cap target cut": 3}


def test_equal_texts_have_equal_hashes_and_others_have_not() -> None:
    words = [f"word {i}" for i in range(500)]
    hashes = text_hash(TOKENIZER.encode([*words, *words, "word 1 0", "0 1 word"]))
    assert torch.equal(hashes[:500], hashes[500:1_000])
    assert len(set(hashes[:500].tolist()) | set(hashes[1_000:].tolist())) == 501  # "1 0" is "10" to CLIP
    assert hashes.min() >= 0
    assert text_hash(Texts.pack([])).shape == (0,)


def test_a_hash_is_the_same_everywhere() -> None:
    """The loop in whole numbers; no hash of Python's, which is salted anew in every process."""
    most = (1 << 64) - 1

    def mix(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) & most
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & most
        x = (x ^ x >> 27) * 0x94D049BB133111EB & most
        return x ^ x >> 31

    texts = TOKENIZER.encode(["a cat", "two dogs and a bird", ""])
    expected = [
        mix(sum(mix((place << 32) + token) for place, token in enumerate(row)) & most) >> 1 for row in texts.rows()
    ]
    assert text_hash(texts).tolist() == expected


# --- the stream, delivered ------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_world_resumed_anywhere_gives_exactly_what_remains(data: st.DataObject) -> None:
    """Segments of a run, each with ranks and a place to stop: together they are the undisturbed stream."""
    lengths = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=5))
    config, start, delivered = small(batch=12), data.draw(st.integers(0, 40)), []
    position = start
    for _ in range(data.draw(st.integers(1, 3))):
        ranks, num_batches = data.draw(st.sampled_from([1, 2, 3, 4, 6])), data.draw(st.integers(1, 2))
        stop = position + 12 * num_batches
        parts = [
            list(Loader(config, TOKENIZER, rank=rank, ranks=ranks, start=position, stop=stop, sources=[Album(lengths)]))
            for rank in range(ranks)
        ]
        for batches in zip(*parts, strict=True):
            assert {len(batch) for batch in batches} == {12 // ranks}
            position += 12
            assert {batch.samples for batch in batches} == {position}
            delivered += [number for batch in batches for number in numbers(batch)]
    _, expected = Stream([lengths], (), 2, config.run.seed).locate(np.arange(start, position))
    assert delivered == expected.tolist()


def test_every_sample_comes_once_per_epoch_though_batches_straddle_epochs() -> None:
    loader = Loader(small(batch=7), TOKENIZER, stop=70, sources=[Album([5, 3, 2])])
    order = seen(loader)
    assert loader.num_samples == 10
    assert all(sorted(order[i : i + 10]) == list(range(10)) for i in range(0, 70, 10))


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=5),
    st.integers(0, 40),
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), min_size=2, max_size=3),
)
def test_a_run_cut_anywhere_goes_on_with_any_number_of_workers(
    lengths: list[int], start: int, segments: list[tuple[int, int]]
) -> None:
    """Each segment: real worker processes, and batches until the next cut."""
    position, delivered = start, []
    for workers, num_batches in segments:
        loader = Loader(small(workers=workers), TOKENIZER, start=position, sources=[Album(lengths)])
        batches = iter(loader)
        for _ in range(num_batches):
            delivered += numbers(next(batches))
        batches.close()  # type: ignore[attr-defined]
        position = loader.position
    _, expected = Stream([lengths], (), 2, 0).locate(np.arange(start, position))
    assert delivered == expected.tolist()


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_changes_nothing(workers: int) -> None:
    album = Album([6, 6, 6])
    alone = Loader(small(), TOKENIZER, start=8, stop=32, sources=[album])
    many = Loader(small(workers=workers), TOKENIZER, start=8, stop=32, sources=[album])
    for first, second in zip(alone, many, strict=True):
        assert_equal_batches(first, second)


def test_position_counts_what_was_delivered_not_what_was_prefetched() -> None:
    loader = Loader(small(workers=2), TOKENIZER, start=4, sources=[Album([50])])
    batches = iter(loader)
    for _ in range(3):
        batch = next(batches)
    assert loader.position == batch.samples == 16
    batches.close()  # type: ignore[attr-defined]
    rest = next(iter(loader))  # iterating again goes on from there
    assert rest.samples == 20
    assert_equal_batches(rest, next(iter(Loader(small(), TOKENIZER, start=16, sources=[Album([50])]))))


def test_reading_ahead_takes_no_number_from_the_runs_own_generator() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    list(Loader(small(workers=1), TOKENIZER, stop=8, sources=[Album([50])]))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_mixture_takes_from_its_sources_by_weight() -> None:
    sources = [Album([8]), Album([8, 8], first=100)]
    counts = Counter(n // 100 for n in seen(Loader(small(weights=(3.0, 1.0)), TOKENIZER, stop=80, sources=sources)))
    assert counts == {0: 60, 1: 20}


def test_another_seed_is_another_order() -> None:
    config = small()
    other = replace(config, run=replace(config.run, seed=1))
    orders = [seen(Loader(c, TOKENIZER, stop=40, sources=[Album([40])])) for c in (config, other)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])


def test_shards_on_disk_are_read_in_the_same_way(tmp_path: Path) -> None:
    album = Album([4, 4, 2])
    write_shards([album[i] for i in range(10)], tmp_path, per_shard=4)
    config = small(train=(f"{tmp_path}/*.tar",), workers=1)
    loader = Loader(config, TOKENIZER, stop=20)
    order = seen(loader)
    assert order == seen(Loader(small(), TOKENIZER, stop=20, sources=[album]))
    assert loader.place(0).startswith(str(tmp_path))


def test_sources_are_joined_or_mixed_by_weight_however_they_are_listed(tmp_path: Path) -> None:
    album = Album([4, 4, 2])
    shards = write_shards([album[i] for i in range(10)], tmp_path, per_shard=4)
    joined, listed = small(train=(f"{shards[0]}::{shards[1]}", str(shards[2]))), small(train=tuple(map(str, shards)))
    assert Loader(joined, TOKENIZER).num_samples == 10
    assert seen(Loader(joined, TOKENIZER, stop=20)) == seen(Loader(listed, TOKENIZER, stop=20))
    for config in (joined, listed):
        mixed = override(config, ["data.weights=1,3,4"])
        counts = Counter(min(number // 4, 2) for number in seen(Loader(mixed, TOKENIZER, stop=80)))
        assert counts == {0: 10, 1: 30, 2: 40}


def test_ranks_that_do_not_divide_the_batch_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"run\.batch is 4; allowed: a multiple of the 3 ranks"):
        Loader(small(), TOKENIZER, ranks=3, sources=[Album([5])])


def test_a_run_without_shards_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.train is empty"):
        Loader(small(), TOKENIZER)


# --- bad samples ----------------------------------------------------------------------------------------------------


class Damaged(Album):
    """An album whose image at these places is damaged."""

    def __init__(self, lengths: list[int], bad: set[int]) -> None:
        super().__init__(lengths)
        self.bad = bad

    def __getitem__(self, index: int) -> Sample:
        sample = super().__getitem__(index)
        return replace(sample, image=sample.image[:200], origin="album") if index in self.bad else sample


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_slot_is_filled_by_the_same_substitute_every_time_and_counted(workers: int) -> None:
    bad = {3, 17}
    runs = []
    for start in (0, 20):
        loader = Loader(small(workers=workers), TOKENIZER, start=start, stop=40, sources=[Damaged([10] * 4, bad)])
        batches = list(loader)
        assert sum(batch.counts.get("bad: undecodable image", 0) for batch in batches) >= (2 if start == 0 else 0)
        runs.append([number for batch in batches for number in numbers(batch)])
    assert runs[0][20:] == runs[1]
    _, order = Stream([[10] * 4], (), 2, 0).locate(np.arange(40))
    for number, expected in zip(runs[0], order.tolist()):
        assert number not in bad
        assert number == expected or expected in bad
    assert set(range(40)) - bad <= set(runs[0])  # each good sample still comes


def test_too_many_bad_samples_stop_the_run_and_say_why() -> None:
    loader = Loader(small(batch=20), TOKENIZER, sources=[Damaged([50] * 8, set(range(0, 400, 10)))])
    with pytest.raises(TooManyBad) as caught:
        list(loader)
    assert loader.position < 400
    said = str(caught.value)
    assert "11 × undecodable image" in said
    assert "data.max_bad_share allows 0.01" in said
    assert "album, key 000" in said
    assert "goldiclip shards check" in said


def test_no_bad_sample_is_let_through_when_none_is_allowed() -> None:
    loader = Loader(small(max_bad_share=0.0), TOKENIZER, sources=[Damaged([10], {4})])
    with pytest.raises(TooManyBad, match="1 × undecodable image"):
        list(loader)


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_but_bad_samples_is_said_at_once(workers: int) -> None:
    loader = Loader(small(workers=workers), TOKENIZER, sources=[Damaged([30], set(range(30)))])
    with pytest.raises(TooManyBad, match="no good sample among 64 for position 0"):
        next(iter(loader))


def test_a_bad_record_is_replaced_as_a_bad_image_is() -> None:
    def read(index: int) -> None:
        if index == 5:
            raise BadSample("no caption", key="000005", origin="album")

    batches = list(Loader(small(), TOKENIZER, stop=20, sources=[Album([20], read=read)]))
    assert sum(batch.counts.get("bad: no caption", 0) for batch in batches) >= 1
    assert 5 not in [number for batch in batches for number in numbers(batch)]


# --- workers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_our_own_is_raised_with_the_place_it_happened(workers: int) -> None:
    def read(index: int) -> None:
        raise ZeroDivisionError("a mistake of ours")

    with pytest.raises(ZeroDivisionError) as caught:
        next(iter(Loader(small(workers=workers), TOKENIZER, sources=[Album([9], read=read)])))
    said = "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "a mistake of ours" in said
    assert "album/00000.tar, row" in said


def test_workers_compute_on_one_thread() -> None:
    def read(index: int) -> None:
        assert torch.get_num_threads() == 1

    torch.set_num_threads(2)
    try:
        assert len(list(Loader(small(workers=1), TOKENIZER, stop=8, sources=[Album([9], read=read)]))) == 2
    finally:
        torch.set_num_threads(1)


def stops_at(place: int, how: Callable[[], None]) -> Album:
    return Album([10, 10, 10], read=lambda index: how() if index == place else None)


def test_a_stalled_loader_names_the_worker_and_the_shard() -> None:
    album = stops_at(14, lambda: time.sleep(60))
    loader = Loader(small(workers=2), TOKENIZER, stop=60, sources=[album], timeout_seconds=4.0)
    with pytest.raises(LoaderStopped, match=r"worker [01] gave no batch for 4 s; it was at album/00001\.tar, row 4 "):
        list(loader)
    assert re.match(r"loader worker [01] is at album/00001\.tar, row 4 ", loader.whereabouts()), "said before that, too"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_worker_that_dies_is_named_with_the_shard() -> None:
    album = stops_at(25, lambda: os._exit(9))
    with pytest.raises(LoaderStopped, match=r"worker [01] ended .*; it was at album/00002\.tar, row 5 "):
        list(Loader(small(workers=2), TOKENIZER, stop=60, sources=[album]))


ORPHANS = """
    import sys, time
    sys.path.insert(0, {tests!r})
    import torch, torch.multiprocessing
    from test_loader import Album, Loader, TOKENIZER, small
    torch.multiprocessing.set_start_method("{method}")
    batches = iter(Loader(small(workers=2), TOKENIZER, sources=[Album([50], read=abs)]))
    next(batches)
    print(*[child.pid for child in torch.multiprocessing.active_children()], flush=True)
    time.sleep(60)
"""


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="the signal is Linux's")
@pytest.mark.parametrize(
    "method", ["fork", "forkserver"]
)  # what Pythons before 3.14 start workers with, and later ones
def test_workers_do_not_outlive_a_trainer_that_is_killed(method: str) -> None:
    code = textwrap.dedent(ORPHANS).format(tests=str(Path(__file__).parent), method=method)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        workers = [int(pid) for pid in trainer.stdout.readline().split()]
        assert len(workers) == 2
        assert all(map(is_running, workers))
        trainer.kill()
    deadline = time.monotonic() + 3  # torch's own watchdog looks every five seconds
    while any(map(is_running, workers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(is_running, workers))


def test_a_batch_needs_as_many_captions_of_each_image() -> None:
    example = make_example(Album([1])[0], small(), TOKENIZER, example_rng(0, 0))
    fewer = replace(example, captions=example.captions.slice(0, 1))
    with pytest.raises(ValueError, match="a batch needs as many of each image"):
        collate([example, fewer])
