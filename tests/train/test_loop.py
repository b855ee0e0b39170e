"""The loop itself: what its records say, what it measures, and what a rehearsal finds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from drawn import drawn_sample
from processes import steps_of
from rich.console import Console

import goldiclip.train.feed as feed_module
from goldiclip.config import Config
from goldiclip.data.loader import Loader
from goldiclip.data.shards import write_shards
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.data.views import render
from goldiclip.learner import Learner
from goldiclip.train import train
from goldiclip.train.dry import dry_run
from goldiclip.train.feed import Feed
from goldiclip.train.held_out import HeldOut
from goldiclip.train.log import read_log
from goldiclip.train.measure import record_of
from goldiclip.types import Alone, Batch


def test_a_record_holds_all_that_one_asks_for(full_run: Callable[..., Config], tmp_path: Path) -> None:
    run = train(full_run("run.samples=8", "data.captions=2"), out=tmp_path / "run")
    first, second = steps_of(run)
    assert set(first["terms"]) == {"ret", "cap", "ref", "grd", "vqa", "sd"}
    assert set(first["task_weight"]) == set(first["terms"])
    assert all(weight == 1 for weight in first["task_weight"].values())
    assert first["weight"]["cap"] == 2, "what the loss was multiplied with has w in it"
    assert second["task_weight"]["cap"] < 1
    assert set(first["ret"]) == set(first["sd"]) == set(first["teacher_entropy"]) == {"ta", "tc"}
    parts = {"vision", "text", "pooling", "decoder", "scale", "balance", "prototypes", "all"}
    assert set(first["gradient_norm"]) == parts
    by_hand = math.sqrt(sum(first["gradient_norm"][part] ** 2 for part in parts - {"all", "balance"}))
    assert first["gradient_norm"]["all"] == pytest.approx(by_hand, rel=1e-5)
    assert first["scale"] == pytest.approx(1 / 0.07)
    assert first["bias"] == -10
    assert first["samples"] == 4
    assert 0 <= first["data_wait"] <= 1
    assert first["images_per_second"] == pytest.approx(4 / first["seconds"])
    assert 0.05 < first["memory_gigabytes"] < 64
    assert 0 < first["mfu"] < 1


def test_the_total_is_what_the_terms_and_weights_make_it(full_run: Callable[..., Config], tmp_path: Path) -> None:
    """Σ w·L/σ² + σ²"""
    for record in steps_of(train(full_run("run.samples=12", "optim.scalar_lr=0.1"), out=tmp_path / "run")):
        weight, share = record["weight"], record["task_weight"]
        by_hand = sum(weight[task] * record["terms"][task] + 1 / share[task] for task in record["terms"])
        assert record["total"] == pytest.approx(by_hand, rel=1e-5)


def test_a_log_interval_keeps_the_first_and_the_last_step(small_run: Callable[..., Config], tmp_path: Path) -> None:
    run = train(small_run("run.log_every_steps=5"), out=tmp_path / "run")
    assert [record["step"] for record in steps_of(run)] == [1, 5, 10, 12]


def test_training_learns(small_run: Callable[..., Config], tmp_path: Path) -> None:
    records = steps_of(train(small_run("run.samples=320", "optim.lr=3e-3"), out=tmp_path / "run"))
    assert records[-1]["terms"]["ret"] < 0.5 * records[0]["terms"]["ret"]


def test_micro_batches_change_nothing_but_memory(small_run: Callable[..., Config], tmp_path: Path) -> None:
    whole = steps_of(train(small_run("run.samples=32"), out=tmp_path / "whole"))
    pieces = steps_of(train(small_run("run.samples=32", "run.micro_batch=3"), out=tmp_path / "pieces"))
    for one, other in zip(whole, pieces, strict=True):
        assert one["batch_hash"] == other["batch_hash"]
        assert one["total"] == pytest.approx(other["total"], rel=1e-4)


def test_bf16_and_compile_on_a_cpu_run_and_say_what_is_left_out(
    small_run: Callable[..., Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(small_run("run.samples=16", "run.precision=bf16", "run.compile=True"), out=tmp_path / "run")
    assert capsys.readouterr().out.count("run.compile is for CUDA devices") == 1
    plain = train(small_run("run.samples=16"), out=tmp_path / "plain")
    for rough, exact in zip(steps_of(run), steps_of(plain), strict=True):
        assert rough["total"] == pytest.approx(exact["total"], rel=0.02)
        assert rough["total"] != exact["total"]


def test_checkpointed_activations_change_no_number(full_run: Callable[..., Config], tmp_path: Path) -> None:
    plain = steps_of(train(full_run("run.samples=8"), out=tmp_path / "plain"))
    kept = steps_of(train(full_run("run.samples=8", "run.checkpoint_activations=True"), out=tmp_path / "kept"))
    assert [record["total"] for record in kept] == pytest.approx([record["total"] for record in plain], rel=1e-6)


def test_deterministic_algorithms_are_the_runs_own_affair(small_run: Callable[..., Config], tmp_path: Path) -> None:
    train(small_run("run.samples=8"), out=tmp_path / "run")
    assert not torch.are_deterministic_algorithms_enabled()


# --- held-out retrieval -----------------------------------------------------------------------------------------------


def test_held_out_recall_is_that_of_the_whole_score_matrix(
    small_run: Callable[..., Config], drawn_data: tuple[str, str]
) -> None:
    config = small_run(f"data.held_out={drawn_data[1]}")
    learner, held_out = Learner(config), HeldOut(config)
    found = held_out.recall(learner.student, Alone(), torch.device("cpu"))
    with torch.no_grad():
        image, texts = (
            learner.student.encode_image(render(held_out.images)),
            learner.student.encode_text(held_out.texts),
        )
        for mode in ("tc", "ta"):
            scores = learner.student.score(image, texts, mode=mode).T
            best = scores.argmax(1)
            by_hand = sum(bool(held_out.is_pair[query, hit]) for query, hit in enumerate(best.tolist())) / len(best)
            assert found[mode] == pytest.approx(by_hand)
    assert learner.student.training, "training goes on as it was"


def test_equal_captions_answer_each_other(small_run: Callable[..., Config], drawn_data: tuple[str, str]) -> None:
    held_out = HeldOut(small_run(f"data.held_out={drawn_data[1]}"))
    texts = [tuple(row) for row in held_out.texts.rows()]
    for i, row in enumerate(texts):
        for j, other in enumerate(texts):
            assert bool(held_out.is_pair[i, j]) == (row == other)


def test_the_best_weights_are_kept(
    small_run: Callable[..., Config], drawn_data: tuple[str, str], tmp_path: Path
) -> None:
    words = ("run.samples=96", "run.evaluate_every_steps=3", "run.keep_last=1", "run.keep_best=1")
    run = train(small_run(f"data.held_out={drawn_data[1]}", *words), out=tmp_path / "run")
    events = [record for record in read_log(run / "log.jsonl") if record.get("event") == "held_out"]
    assert [event["step"] for event in events] == [3, 6, 9, 12]
    best = max(event["recall"]["tc"] for event in events)
    expected = {max(event["step"] for event in events if event["recall"]["tc"] == best), 12}
    assert {int(path.name[-9:]) for path in (run / "checkpoints").iterdir()} == expected


# --- feeding ----------------------------------------------------------------------------------------------------------


class Slow:
    """A loader whose second batch is late."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Batch]:
        yield self.batches[0]
        time.sleep(0.4)
        yield self.batches[1]

    def whereabouts(self) -> str:
        return "loader worker 0 is at 00007.tar, row 3 (position 48)"


def batches_of(config: Config, count: int) -> list[Batch]:
    return list(Loader(config, Tokenizer(), stop=count * config.run.batch))


def test_a_loader_that_stalls_is_said_with_its_place(
    small_run: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "PATIENCE_SECONDS", 0.15)
    complaints: list[str] = []
    loader = Slow(batches_of(small_run(), 2))
    feed = Feed(loader, torch.device("cpu"), 0, complaints.append)  # type: ignore[arg-type]
    delivered = list(feed)
    assert len(delivered) == 2
    assert delivered[1].waited_seconds > 0.2
    assert len(complaints) == 2
    assert "00007.tar, row 3" in complaints[0]


def test_what_goes_wrong_in_the_loader_is_raised_where_the_batch_is_wanted(small_run: Callable[..., Config]) -> None:
    class Broken(Slow):
        def __iter__(self) -> Iterator[Batch]:
            yield self.batches[0]
            raise ValueError("the cable is out")

    feed = Feed(Broken(batches_of(small_run(), 1)), torch.device("cpu"), 0, print)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="the cable is out"):
        list(feed)
    feed.close()


def test_closing_a_feed_in_the_middle_ends_its_thread(small_run: Callable[..., Config]) -> None:
    feed = Feed(Loader(small_run(), Tokenizer()), torch.device("cpu"), 0, print)
    next(iter(feed))
    feed.close()
    assert feed.thread is not None
    assert not feed.thread.is_alive()


# --- rehearsal --------------------------------------------------------------------------------------------------------


def test_a_dry_run_puts_each_term_beside_its_start_and_writes_nothing(
    full_run: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    console = Console(record=True, width=120)
    steps = dry_run(full_run("objective.weights.vqa=0", "run.batch=8"), console=console)
    shown = console.export_text()
    assert len(steps) == 2
    assert set(steps[0]) == {"ret", "cap", "ref", "grd", "sd"}
    for word in ("40 samples", "10.814", "cap 8, ref 8, grd 8", "inactive, by objective.weights: vqa", "σ can travel"):
        assert word in shown, word
    assert "not where it should begin" not in shown
    assert "largest micro-batch" in shown
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_notices_a_term_without_data_and_one_that_begins_wrong(
    full_run: Callable[..., Config], tmp_path: Path
) -> None:
    samples = [replace(drawn_sample(number), questions=()) for number in range(16)]
    write_shards(samples, tmp_path / "without", per_shard=8)
    console = Console(record=True, width=120)
    config = full_run(f"data.train={tmp_path / 'without' / '*.tar'}", "run.samples=16", "model.init_logit_bias=-10")
    dry_run(config, console=console)
    shown = console.export_text()
    assert "no data for it in this batch" in shown
    assert "active but without data in these batches: vqa" in shown


def test_a_record_is_nested_by_its_names() -> None:
    found = record_of({"total": 1.0, "terms/ret": 2.0, "weight/ret": 0.5, "weight/cap": 1.0}, {"ret": 1.0, "cap": 2.0})
    assert found == {
        "total": 1.0,
        "terms": {"ret": 2.0},
        "weight": {"ret": 0.5, "cap": 1.0},
        "task_weight": {"ret": 0.5, "cap": 0.5},
    }
