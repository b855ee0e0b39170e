"""Two runs are never taken for one, a resumed run keeps its recipe, and bad input is said with what to do."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from disks import disk_of
from drawn import write_drawn
from processes import steps_of

from goldiclip.cli import main
from goldiclip.config import Config, ConfigError, override, to_yaml
from goldiclip.train import loop, train
from goldiclip.train.checkpoint import CheckpointError, whole
from goldiclip.train.command import requested
from goldiclip.train.folder import RunFolder, changes, keep_config, kept_once_begun, launch_token, open_folder
from goldiclip.train.log import read_log
from goldiclip.train.report import write_report
from goldiclip.train.session import Session


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for a run that the first test to need it makes."""
    return tmp_path_factory.mktemp("runs") / "run"


@pytest.fixture
def run(finished: Path, small_run: Callable[..., Config], tmp_path: Path) -> Path:
    """A copy of a finished run of three steps."""
    if not finished.exists():
        train(small_run("run.samples=24"), out=finished)
    return Path(shutil.copytree(finished, tmp_path / "run"))


def test_a_finished_run_leaves_what_the_documents_say(run: Path) -> None:
    assert {"config.yaml", "log.jsonl", "checkpoints", "encoder", "report.html"} <= {
        path.name for path in run.iterdir()
    }
    assert {path.name for path in (run / "encoder").iterdir()} == {"config.yaml", "model.safetensors", "README.md"}


def test_a_new_run_never_enters_a_folder_that_holds_one(run: Path, small_run: Callable[..., Config]) -> None:
    before = (run / "log.jsonl").read_text()
    with pytest.raises(FileExistsError, match=r"holds a run already: continue it with --resume .* or name another"):
        train(small_run("run.samples=24"), out=run)
    assert (run / "log.jsonl").read_text() == before


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, small_run: Callable[..., Config]) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="is not empty and holds no run"):
        train(small_run(), out=tmp_path)


def test_going_on_with_a_finished_run_changes_nothing(run: Path) -> None:
    before = steps_of(run)
    train(requested("", (), run), resume=run)
    assert steps_of(run) == before
    assert [path.name for path in whole(run / "checkpoints")] == ["step-000000003"]


def test_a_changed_recipe_on_resume_is_refused_by_name(run: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"optim.lr was 0.001 and is 0.01.*keeps its recipe.*--init .*run --out ANOTHER"
    ):
        train(requested("", ["optim.lr=0.01"], run), resume=run)
    assert "lr: 0.001" in (run / "config.yaml").read_text()


def test_how_a_run_computes_and_saves_may_change(run: Path) -> None:
    config = requested("", ["run.micro_batch=4", "run.save_every_steps=1", "data.workers=0"], run)
    folder, found = open_folder(config, None, run)
    assert folder.resumes
    assert (found.run.micro_batch, found.run.save_every_steps) == (4, 1)
    keep_config(folder, found)
    assert "micro_batch: 4" in folder.config.read_text()


def test_data_that_shrank_is_refused(tmp_path: Path, small_run: Callable[..., Config]) -> None:
    data = write_drawn(tmp_path / "data", 40)
    config = small_run(f"data.train={data}", "run.samples=16")
    train(config, out=tmp_path / "run")
    (tmp_path / "data" / "00003.tar").unlink()
    with pytest.raises(
        ConfigError, match=r"data.train is not what the run has read so far.*restore the shards.*--init"
    ):
        train(config, resume=tmp_path / "run")


def test_a_resume_that_is_refused_leaves_the_run_as_it_was(run: Path, drawn_data: tuple[str, str]) -> None:
    before = (run / "config.yaml").read_text()
    with pytest.raises(ConfigError, match="a shard is missing"):
        train(requested("", [f"data.train={drawn_data[1]}"], run), resume=run)
    assert (run / "config.yaml").read_text() == before


def test_an_encoder_is_not_taken_for_a_run(run: Path) -> None:
    with pytest.raises(ConfigError, match=r"is an encoder, no run: .*--init"):
        open_folder(Config(), None, run / "encoder")


def test_data_that_moved_is_the_same_data(tmp_path: Path, small_run: Callable[..., Config]) -> None:
    config = small_run(f"data.train={write_drawn(tmp_path / 'here', 40)}", "run.samples=16")
    train(config, out=tmp_path / "run")
    (tmp_path / "here").rename(tmp_path / "there")
    train(override(config, [f"data.train={tmp_path / 'there' / '*.tar'}"]), resume=tmp_path / "run")


def test_fewer_samples_than_a_batch_is_said_before_anything_is_written(
    tmp_path: Path, small_run: Callable[..., Config]
) -> None:
    with pytest.raises(ConfigError, match=r"holds 40 samples and run.batch is 64"):
        train(small_run("run.batch=64"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists(), "the next attempt may have the same folder"


def test_weights_that_do_not_fit_leave_no_folder_behind(
    run: Path, tmp_path: Path, small_run: Callable[..., Config]
) -> None:
    other = small_run("model.text.width=24", "run.wise_ft=0.5")
    with pytest.raises(ConfigError, match=r"is \(77, 16\) in the weights and \(77, 24\) in the model"):
        train(other, out=tmp_path / "tuned", init=str(run))
    assert not (tmp_path / "tuned").exists()


def test_what_somebody_else_put_into_the_folder_stays(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", resumes=False)
    folder.path.mkdir()
    (folder.path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="early"), kept_once_begun(folder):
        raise ValueError("early")
    assert [path.name for path in folder.path.iterdir()] == ["notes.txt"]


def test_a_run_that_has_begun_keeps_its_folder(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", resumes=False)
    folder.path.mkdir()
    folder.log.write_text("")
    folder.config.write_text("recipe: tiny")
    with pytest.raises(ValueError, match="late"), kept_once_begun(folder):
        raise ValueError("late")
    assert folder.config.exists()


def test_a_checkpoint_of_other_sizes_is_refused_and_kept(run: Path, small_run: Callable[..., Config]) -> None:
    other = small_run("run.samples=24", "model.text.depth=2")
    (run / "config.yaml").write_text(to_yaml(other))
    with pytest.raises(CheckpointError, match=r"text.blocks.1.* is missing there"):
        train(other, resume=run)
    assert whole(run / "checkpoints")


@contextmanager
def as_owner(folder: Path) -> Iterator[None]:
    """Back to who made the folder, who may write there."""
    user = os.geteuid()
    os.seteuid(os.getuid())
    folder.chmod(0o755)
    yield
    folder.chmod(0o555)
    os.seteuid(user)


@pytest.fixture
def read_only() -> Iterator[Path]:
    """A folder that nobody but its owner may write, seen by somebody else: root may write everywhere."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65_534)
    yield folder
    if is_root:
        os.seteuid(0)
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_folder_is_said_before_anything_is_computed(read_only: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be written \(Permission denied\).*another folder with --out"):
        open_folder(Config(), read_only / "run", None)
    config = to_yaml(Config())
    with as_owner(read_only):
        (read_only / "config.yaml").write_text(config)
        (read_only / "checkpoints/step-000000001").mkdir(parents=True)
        (read_only / "checkpoints/step-000000001/state.json").write_text("{}")
        write_report(read_only)
    with pytest.raises(ConfigError, match="cannot be written: mend it, or copy the run"):
        open_folder(Config(), None, read_only)
    with pytest.raises(ConfigError, match=r"report.html cannot be written \(Permission denied\): .*copy the run"):
        write_report(read_only)


def test_a_disk_that_fills_up_during_the_run_costs_no_checkpoint(
    tmp_path: Path, small_run: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first save finds room, the later ones do not: the run goes on, says so, and can be resumed."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    save = loop.save

    def save_and_fill(run: Session) -> None:
        save(run)
        if run.progress.step == 4:
            assert run.checkpoints.wait() is None
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))

    monkeypatch.setattr(loop, "save", save_and_fill)
    config = small_run("run.save_every_steps=4")
    try:
        with pytest.raises(CheckpointError, match=r"step 12 could not be written.*step-000000004.*train --resume"):
            train(config, out=tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    alarms = [
        record["message"] for record in read_log(tmp_path / "run" / "log.jsonl") if record.get("event") == "alarm"
    ]
    assert "step 8 could not be written" in alarms[0]
    assert [path.name for path in whole(tmp_path / "run" / "checkpoints")] == ["step-000000004"]
    monkeypatch.undo()
    train(config, resume=tmp_path / "run")
    assert [record["step"] for record in steps_of(tmp_path / "run")] == list(range(1, 13))


def test_a_disk_that_is_full_at_the_very_end_costs_nothing_but_another_start(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    encoder, write = (run / "encoder/model.safetensors").read_bytes(), loop.write_encoder

    def without_room(*arguments: Any) -> None:
        with disk_of(10_000):
            write(*arguments)

    monkeypatch.setattr(loop, "write_encoder", without_room)
    assert main(["train", "--resume", str(run)]) == 2
    said = capsys.readouterr().err
    assert "encoder cannot be written" in said
    assert f"make room, then: goldiclip train --resume {run}" in said
    assert (run / "encoder/model.safetensors").read_bytes() == encoder, "the one before is whole"
    monkeypatch.undo()
    assert main(["train", "--resume", str(run)]) == 0


def test_the_command_line_says_all_this_in_a_line(
    run: Path, drawn_data: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = f"data.train={drawn_data[0]}"
    said = {
        ("train", "tiny", data, "--out", str(run)): "holds a run already",
        ("train", "tiny", data, "optim.lrr=1"): "nearest: optim.lr",
        ("train", "tinny", data): "nearest: tiny",
        ("train",): "which recipe to train",
        ("train", "--resume", str(tmp_path / "nothing")): "no such file",
        ("train", "--resume", str(run), "--init", str(run)): "give one or the other",
        ("train", "tiny", data, "--init", str(tmp_path / "nothing"), "--out", str(tmp_path / "x")): "no such folder",
        ("train", "tiny", "data.train=/nowhere/*.tar", "--out", str(tmp_path / "y")): "/nowhere",
        ("replay", str(run / "config.yaml")): "no failure file",
        ("report", str(tmp_path)): "holds no run",
        ("plan", "cc3m", "--gpu", "h3000"): "nearest: h200",
    }
    for words, expected in said.items():
        assert main(list(words)) == 2, words
        error = capsys.readouterr().err
        assert expected in error, (words, error)
        assert "Traceback" not in error


def test_requeue_goes_on_where_there_is_something_and_begins_where_there_is_not(
    tmp_path: Path, small_run: Callable[..., Config]
) -> None:
    config = small_run("run.samples=16")
    train(config, out=tmp_path / "run", requeue=True)
    train(config, out=tmp_path / "run", requeue=True)
    records = list(read_log(tmp_path / "run" / "log.jsonl"))
    assert [record["step"] for record in records if "event" not in record] == [1, 2]
    assert [record["message"].split()[0] for record in records if record.get("event") == "started"] == [
        "begins",
        "goes",
    ]


def test_a_launchers_second_attempt_goes_on_with_its_own_run_alone(
    run: Path, small_run: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = requested("", (), run)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "job-1")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    with pytest.raises(FileExistsError, match="holds a run already"):
        open_folder(config, run, None)
    shutil.rmtree(run)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    open_folder(config, run, None)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    open_folder(config, run, None)


def test_restarts_of_a_job_share_a_token_and_two_jobs_do_not() -> None:
    assert launch_token({"SLURM_JOB_ID": "7", "TORCHELASTIC_RUN_ID": "none"}) == "7"
    assert launch_token({"TORCHELASTIC_RUN_ID": "none"}) == launch_token({})
    assert launch_token({"TORCHELASTIC_RUN_ID": "a"}) != launch_token({"TORCHELASTIC_RUN_ID": "b"})


def test_changes_are_named_with_both_values(small_run: Callable[..., Config]) -> None:
    assert changes(small_run(), small_run("optim.lr=0.5")) == {"optim.lr": (0.001, 0.5)}
