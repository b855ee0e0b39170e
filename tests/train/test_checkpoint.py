"""A checkpoint is whole or not there, holds everything, and runs no code when it is read."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from disks import disk_of
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, TensorProperties

from goldiclip.config import Config
from goldiclip.learner import Learner
from goldiclip.train.checkpoint import (
    CheckpointError,
    Checkpoints,
    Progress,
    _NamesAndSizes,
    load,
    load_tensors,
    newest,
    read_progress,
    state_of,
    whole,
)
from goldiclip.train.optim import build_optimizer
from synthetic import make_batch


def trained(config: Config, seed: int) -> tuple[Learner, torch.optim.AdamW]:
    """A learner after a step, so that moments, centres and teacher are its own."""
    learner = Learner(config)
    optimizer = build_optimizer(learner, config)
    learner(make_batch(config, 3, seed=seed)).total.backward()
    optimizer.step()
    learner.update_teacher()
    return learner, optimizer


def tensors_of(learner: Learner, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = state_of(learner, optimizer)
    moments = {f"{name}/{kind}": value for name, held in state["optimizer"].items() for kind, value in held.items()}
    return {name: tensor.clone() for name, tensor in {**state["learner"], **moments}.items()}


def saved(folder: Path, config: Config, *steps: int, **facts: float) -> Checkpoints:
    checkpoints = Checkpoints(folder / "checkpoints")
    learner, optimizer = trained(config, seed=1)
    for step in steps:
        assert checkpoints.save(learner, optimizer, Progress(step=step, samples=8 * step, **facts)) is None
        assert checkpoints.wait() is None
    return checkpoints


def test_everything_comes_back_bit_for_bit(small_run: Callable[..., Config], tmp_path: Path) -> None:
    """Student, teacher, W, centres, σ, scale, bias and AdamW's state, as they were when `save` was called."""
    learner, optimizer = trained(small_run(), seed=1)
    expected = tensors_of(learner, optimizer)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.save(learner, optimizer, Progress(step=1, samples=8, score=0.25))
    with torch.no_grad():  # the training goes on while the file is written
        for parameter in learner.parameters():
            parameter.add_(1)
    assert checkpoints.wait() is None
    other, other_optimizer = trained(small_run(), seed=2)
    progress = load(newest(tmp_path), other, other_optimizer)
    assert (progress.step, progress.samples, progress.score) == (1, 8, 0.25)
    found = tensors_of(other, other_optimizer)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    parts = {name.split(".")[0] for name in expected}
    assert parts == {"student", "teacher", "prototypes", "balance"}
    assert {"prototypes.centres", "balance.sigma.ret/exp_avg", "student.scale.bias"} <= expected.keys()


def test_one_part_is_read_without_building_the_rest(small_run: Callable[..., Config], tmp_path: Path) -> None:
    saved(tmp_path, small_run(), 1)
    tensors = load_tensors(newest(tmp_path), "learner.student.")
    assert tensors.keys() == Learner(small_run()).student.state_dict().keys()


def test_the_last_and_the_best_are_kept(small_run: Callable[..., Config], tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep_last=2, keep_best=1)
    learner, optimizer = trained(small_run(), seed=1)
    for step, score in enumerate([0.1, 0.5, 0.3, None, 0.2, None], 1):
        checkpoints.save(learner, optimizer, Progress(step=step, score=score))
        checkpoints.wait()
    kept = [read_progress(path).step for path in whole(tmp_path / "checkpoints")]
    assert kept == [2, 5, 6]
    assert not list((tmp_path / "checkpoints").glob(".*")), "nothing half-removed stays"


def test_saving_a_step_again_takes_nothing_whole_away_first(
    small_run: Callable[..., Config], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the end of a run does whose last step was saved already: a kill may fall on any instant."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep_last=1)
    learner, optimizer = trained(small_run(), seed=1)
    checkpoints.save(learner, optimizer, Progress(step=4))
    assert checkpoints.wait() is None
    remove = shutil.rmtree

    def watched(path: Path, **options: bool) -> None:
        assert whole(tmp_path / "checkpoints"), f"nothing whole is left while {path} goes"
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", watched)
    checkpoints.save(learner, optimizer, Progress(step=4, score=0.5))
    assert checkpoints.wait() is None
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000004"]
    assert load(newest(tmp_path), learner, optimizer).score == 0.5


def test_what_a_kill_left_behind_is_swept_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / ".step-000000007").mkdir(parents=True)
    (tmp_path / ".step-000000007" / "__0_0.distcp").write_bytes(b"half")
    assert whole(tmp_path) == []
    Checkpoints(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_loses_nothing_that_was_written(small_run: Callable[..., Config], tmp_path: Path) -> None:
    checkpoints = saved(tmp_path, small_run(), 1)
    learner, optimizer = trained(small_run(), seed=2)
    with disk_of(100_000):
        checkpoints.save(learner, optimizer, Progress(step=2))
        complaint = checkpoints.wait()
    assert complaint is not None
    assert "step 2 could not be written" in complaint
    assert "step-000000001" in complaint
    assert "free space" in complaint
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000000001"]
    load(newest(tmp_path), learner, optimizer)
    checkpoints.save(learner, optimizer, Progress(step=3))
    assert checkpoints.wait() is None, "with room again, the next one is written"
    assert newest(tmp_path).name == "step-000000003"


def test_a_checkpoint_of_other_sizes_is_refused_by_name(small_run: Callable[..., Config], tmp_path: Path) -> None:
    saved(tmp_path, small_run(), 1)
    wider = Learner(small_run("model.text.width=32", "model.text.heads=2"))
    with pytest.raises(
        CheckpointError, match=r"text.position_embedding is \(77, 16\) there and \(77, 32\) here.*--init"
    ):
        load(newest(tmp_path), wider, build_optimizer(wider, wider.config))


def test_a_checkpoint_without_a_part_is_refused_by_name(small_run: Callable[..., Config], tmp_path: Path) -> None:
    saved(tmp_path, small_run("objective.weights.sd=0"), 1)
    learner = Learner(small_run())
    with pytest.raises(CheckpointError, match=r"teacher.* is missing there"):
        load(newest(tmp_path), learner)


def test_reading_a_foreign_folder_runs_no_code(small_run: Callable[..., Config], tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path / 'harm'}",)

    saved(tmp_path, small_run(), 1)
    (newest(tmp_path) / ".metadata").write_bytes(pickle.dumps(Attack()))
    with pytest.raises(CheckpointError, match=r"asks for posix\.system"):
        load_tensors(newest(tmp_path), "")
    assert not (tmp_path / "harm").exists()


def test_members_of_enumerations_come_back_however_a_python_pickles_them() -> None:
    class Early:  # as early Pythons 3.11 do
        def __init__(self, owner: type, name: str) -> None:
            self.of = owner, name

        def __reduce__(self) -> tuple[object, tuple[type, str]]:
            return getattr, self.of

    def read(member: object) -> object:
        return _NamesAndSizes(io.BytesIO(pickle.dumps(member))).load()

    member = _MEM_FORMAT_ENCODING.TORCH_PRESERVE_FORMAT
    assert read(member) is read(Early(_MEM_FORMAT_ENCODING, member.name)) is member
    for owner, name in ((TensorProperties, "__init__"), (_MEM_FORMAT_ENCODING, "__reduce_ex__")):
        with pytest.raises(CheckpointError, match=f"asks for {name} of "):
            read(Early(owner, name))


def test_another_schema_and_a_missing_checkpoint_are_said(small_run: Callable[..., Config], tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no whole checkpoint"):
        newest(tmp_path)
    saved(tmp_path, small_run(), 1)
    state = newest(tmp_path) / "state.json"
    state.write_text(json.dumps({**json.loads(state.read_text()), "schema": 99}))
    with pytest.raises(CheckpointError, match="another version"):
        read_progress(newest(tmp_path))
