"""Every command explains itself, and a mistake is a line, not a traceback."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from goldiclip.cli import COMMANDS, main
from goldiclip.dispatch import settings_first


def every_command() -> list[list[str]]:
    return [
        words
        for name, command in COMMANDS.items()
        for words in ([[name, inner] for inner in command] if isinstance(command, dict) else [[name]])
    ]


@pytest.mark.parametrize("words", every_command(), ids=" ".join)
def test_every_command_explains_itself(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([*words, "--help"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) > 3
    assert not re.search(r"\(default: (None|'')?\s*\)", printed)


def test_the_list_of_commands_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert all(f"• {name}" in printed for name in COMMANDS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["config", "cc3n"], "cc3m"),
        (["config", "tiny", "optim.lrr=1"], "optim.lr"),
        (["trian"], "goldiclip trian is no command; nearest: train; there are demo, "),
        (["shards", "chek"], "goldiclip shards chek is no command; nearest: check; there are check, stats, show"),
        (["caption", "--encoder", "runs/none"], "caption: name a picture"),
        (["heatmap", "a.jpg", "--encoder", "runs/none"], "heatmap: name a phrase"),
        (["segment", "a.jpg", "--encoder", "runs/none"], "segment: name two classes"),
        (["search"], "search: say what to look for"),
        (["caption", "none.jpg", "--encoder", "none/"], "none/: no such folder"),
    ],
)
def test_a_mistake_is_a_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize("words", [[], ["shards"], ["prepare"]], ids=" ".join)
def test_without_a_command_one_sees_which_there_are(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 0
    assert f"usage: {' '.join(['goldiclip', *words])}" in capsys.readouterr().out


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("goldiclip 0.")


def test_a_file_in_the_way_is_named_without_a_number(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("")
    assert main(["demo", "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == f"goldiclip: {tmp_path / 'out'}: File exists\n"


def test_settings_may_stand_behind_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "tiny", "--out", str(tmp_path / "run"), "data.train=none.tar", "optim.lrr=1"]) == 2
    assert "'optim.lrr' is no setting" in capsys.readouterr().err
    assert settings_first(["train", "--resume", "runs/a", "data.workers=2", "--requeue"]) == [
        "train",
        "data.workers=2",
        "--resume",
        "runs/a",
        "--requeue",
    ]
    assert settings_first(["shards", "show", "a.tar", "--recipe", "demo", "data.captions=4"])[3] == "data.captions=4"
    assert settings_first(["search", "--where", "a.b=c", "dog"]) == ["search", "--where", "a.b=c", "dog"]


def test_config_prints_what_config_reads(capsys: pytest.CaptureFixture[str]) -> None:
    from goldiclip.config import from_yaml

    assert main(["config", "cc3m/flair", "optim.lr=1e-3"]) == 0
    assert from_yaml(capsys.readouterr().out).optim.lr == 1e-3


def test_help_calls_words_by_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    printed = capsys.readouterr().out
    assert "RECIPE" in printed
    assert "--requeue" in printed
    assert "--no-requeue" not in printed
