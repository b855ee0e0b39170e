"""A number that is none ends the run before it harms a weight, and the failure can be repeated from its file alone."""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from processes import finish, said, start_ranks, steps_of

from goldiclip.cli import main
from goldiclip.config import Config, ConfigError
from goldiclip.data.loader import Loader
from goldiclip.learner import Learner
from goldiclip.train import train
from goldiclip.train.checkpoint import load_tensors, newest
from goldiclip.train.guard import NonFinite, Watch, blame, join, not_finite, tensors_of, write_failure
from goldiclip.train.log import read_log
from goldiclip.train.replay import batch_of, read_failure, replay
from goldiclip.types import Batch
from synthetic import make_batch


def exploding(small_run: Callable[..., Config], *words: str) -> Config:
    """A learning rate at which the weights overflow after the second step; the first one is saved."""
    return small_run("optim.lr=1e30", "optim.warmup_steps=0", "run.save_every_steps=1", *words)


def test_a_run_that_overflows_stops_before_the_optimiser_and_names_term_and_module(
    small_run: Callable[..., Config], tmp_path: Path
) -> None:
    with pytest.raises(NonFinite, match=r"terms/ret.*not finite; .*no weight was changed; goldiclip replay .*"):
        train(exploding(small_run), out=tmp_path / "run")
    last = list(read_log(tmp_path / "run" / "log.jsonl"))[-1]
    assert last["event"] == "alarm"
    (file,) = (tmp_path / "run").glob("failure-step-*.safetensors")
    tensors, _, facts = read_failure(file)
    assert facts["step"] == steps_of(tmp_path / "run")[-1]["step"] + 1
    # the weights in the file are those of the last good step: nothing bad has touched them
    before = load_tensors(newest(tmp_path / "run"), "learner.")
    assert all(torch.equal(tensors[f"learner.{name}"], value) for name, value in before.items())
    assert all(bool(torch.isfinite(value).all()) for value in before.values())


def test_replay_repeats_the_failure_from_the_file_alone(
    small_run: Callable[..., Config], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NonFinite):
        train(exploding(small_run), out=tmp_path / "run")
    (file,) = (tmp_path / "run").glob("failure-step-*.safetensors")
    moved = file.rename(tmp_path / "sent-by-a-colleague.safetensors")
    assert main(["replay", str(moved)]) == 0
    shown = capsys.readouterr().out
    assert "reproduced" in shown
    assert "first output that is not finite: student." in shown


def test_a_gradient_alone_that_is_not_finite_is_found_and_its_operation_named(
    small_run: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """√0: every output is finite, the gradient is not."""
    project = torch.nn.Linear.forward

    def spoiled(module: torch.nn.Linear, inputs: torch.Tensor) -> torch.Tensor:
        output = project(module, inputs)
        return output + (0 * output).square().sum().sqrt() if module.in_features == 17 else output

    monkeypatch.setattr(torch.nn.Linear, "forward", spoiled)
    config = small_run("model.vision.width=17", "model.vision.heads=1")
    learner, batch = Learner(config), make_batch(config, 3)
    total = learner(batch).total
    total.backward()
    assert math.isfinite(total.item())
    where = blame(learner, batch)
    assert where.startswith("gradients of vision")
    assert "student.image." in where
    facts = {"step": 1, "samples": 8, "bad": ["gradient_norm/vision"], "blame": where}
    file = write_failure(tmp_path / "f.safetensors", learner, batch, config, facts)
    assert file is not None
    found = replay(file)
    assert found.is_reproduced
    assert not found.modules
    assert "PowBackward0' returned nan" in found.operation
    monkeypatch.undo()
    assert not replay(file).is_reproduced, "mended code does not repeat it"


def test_data_that_is_not_finite_is_blamed_before_any_module(
    small_run: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One view's brightness is no number; what is trained on comes as it always does."""
    batches = Loader.__iter__

    def spoiled(loader: Loader) -> Iterator[Batch]:
        for batch in batches(loader):
            batch.photometrics[2] = math.nan
            yield batch

    monkeypatch.setattr(Loader, "__iter__", spoiled)
    with pytest.raises(NonFinite, match=r"the data is not finite already: photometrics; no weight was changed"):
        train(small_run(), out=tmp_path / "run")
    found = replay(next((tmp_path / "run").glob("failure-step-*.safetensors")))
    assert found.data == ["photometrics"]
    assert "data that was not finite: photometrics" in found.lines()


def test_two_ranks_write_one_file_that_one_process_repeats(small_run: Callable[..., Config], tmp_path: Path) -> None:
    config = exploding(small_run, "run.save_every_steps=0")
    processes = start_ranks(config, tmp_path / "run", 2)
    assert all(code not in (0, None) for code in finish(*processes)), said(tmp_path / "run")
    (file,) = (tmp_path / "run").glob("failure-step-*.safetensors")
    tensors, _, _ = read_failure(file)
    assert len(tensors["batch.global_views"]) == 8, "both ranks' images"
    assert replay(file).is_reproduced


def test_batches_of_ranks_join_to_the_batch_of_one_process(full_run: Callable[..., Config]) -> None:
    whole = make_batch(full_run(), 6)
    joined = tensors_of(join([whole.slice(0, 2), whole.slice(2, 3), whole.slice(3, 6)]))
    expected = tensors_of(whole)
    assert joined.keys() == expected.keys()
    assert all(torch.equal(joined[name], expected[name]) for name in expected)


def test_a_batch_survives_the_file(full_run: Callable[..., Config], tmp_path: Path) -> None:
    learner, batch = Learner(full_run()), make_batch(full_run(), 4)
    file = write_failure(
        tmp_path / "f.safetensors", learner, batch, learner.config, {"step": 1, "samples": 4, "bad": []}
    )
    assert file is not None
    tensors, config, facts = read_failure(file)
    again = batch_of(tensors, facts["samples"])
    expected = tensors_of(batch)
    assert all(torch.equal(tensor, expected[name]) for name, tensor in tensors_of(again).items())
    assert again.captions.max_length == batch.captions.max_length
    assert config == learner.config
    assert learner(again).total.item() == learner(batch).total.item()


def test_a_failure_file_that_finds_no_room_is_done_without(full_run: Callable[..., Config], tmp_path: Path) -> None:
    learner, batch = Learner(full_run()), make_batch(full_run(), 2)
    assert write_failure(tmp_path / "nowhere" / "f.safetensors", learner, batch, learner.config, {}) is None


def test_replay_runs_no_code_of_a_foreign_file(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path / 'harm'}",)

    (tmp_path / "f.safetensors").write_bytes(pickle.dumps(Attack()))
    with pytest.raises(ConfigError, match="damaged, or no failure file"):
        replay(tmp_path / "f.safetensors")
    assert not (tmp_path / "harm").exists()


def test_not_finite_names_what_is_not() -> None:
    assert not_finite({"a": 1.0, "b": math.nan, "c": -math.inf}) == ["b", "c"]


def look(watch: Watch, step: int, loss: float, entropy: float = 3.0) -> list[tuple[str, str]]:
    return watch.look({"step": step, "total": loss, "teacher_entropy": {"tc": entropy}})


def test_a_spike_is_said_and_noise_is_not() -> None:
    watch, rng = Watch(64), torch.Generator().manual_seed(0)
    quiet = [look(watch, step, 5 + 0.1 * float(torch.randn((), generator=rng))) for step in range(60)]
    assert not any(quiet)
    ((event, message),) = look(watch, 60, 9.0)
    assert event == "spike"
    assert "9" in message
    assert look(watch, 61, 5.0) == []


def test_a_run_that_has_just_begun_is_not_judged() -> None:
    watch = Watch(64)
    assert look(watch, 1, 5.0) == look(watch, 2, 500.0) == []


@pytest.mark.parametrize(("entropy", "how"), [(0.01, "one prototype for each image"), (math.log(64), "uniform")])
def test_each_way_to_collapse_raises_one_alarm(entropy: float, how: str) -> None:
    watch = Watch(64)
    assert look(watch, 50, 5.0, entropy) == [], "the beginning is allowed to be so"
    ((event, message),) = look(watch, 200, 5.0, entropy)
    assert event == "alarm"
    assert how in message
    assert look(watch, 201, 5.0, entropy) == []
    assert look(watch, 202, 5.0, 3.0) == []
    assert look(watch, 203, 5.0, entropy) != [], "a second collapse is news again"
