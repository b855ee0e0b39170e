"""The house rules, kept by a test: who imports whom, what the documents name, and that there is one similarity."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "goldiclip"

# What each part may import of the others. The lower a part stands in the house, the less it knows.
NOUNS = {"types", "config"}
MAY_IMPORT: dict[str, set[str]] = {
    "types": set(),
    "config": set(),
    "recipes": {"config"},
    "kernels": NOUNS,
    "data": NOUNS | {"kernels"},
    "model": NOUNS | {"kernels"},
    "losses": NOUNS | {"kernels"},
    "plan": NOUNS | {"recipes"},
    "exchange": NOUNS,
    "learner": NOUNS | {"kernels", "data", "model", "losses", "exchange"},
    "inference": NOUNS | {"kernels", "data", "model"},
    "evaluate": NOUNS | {"kernels", "data", "model", "inference"},
    "web": NOUNS | {"data", "model", "inference"},
    "train": NOUNS
    | {"recipes", "kernels", "data", "model", "losses", "exchange", "learner", "plan", "evaluate", "inference"},
    "prepare": NOUNS | {"data", "plan"},
    "demo": NOUNS | {"recipes", "data", "model", "learner", "inference", "evaluate", "train"},
    "doctor": set(),
    "dispatch": NOUNS,
}
EVERYTHING = {"cli", "__init__"}


def python_files(folder: Path = SOURCE) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def part_of(path: Path) -> str:
    """The part of the house a file belongs to: its folder, or its own name at the top."""
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    """The parts of goldiclip that a file imports, wherever in the file it does."""
    parts = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "goldiclip":
            inside = (node.module or "").split(".")[1:]
            parts |= {inside[0]} if inside else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            parts |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("goldiclip.")}
    return parts


@pytest.mark.parametrize("path", python_files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_file_imports_only_what_its_part_may(path: Path) -> None:
    part = part_of(path)
    if part in EVERYTHING:
        return
    assert part in MAY_IMPORT, f"{part} has no place in the house: give it a row in MAY_IMPORT"
    stray = imported_parts(path) - MAY_IMPORT[part] - {part}
    assert not stray, f"{path.relative_to(ROOT)} imports {', '.join(sorted(stray))}"


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_every_path_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    paths = set(re.findall(r"`((?:src|docs|tests|benchmarks|examples)/[\w./-]+)`", text))
    links = {link.split("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:|#", link)}
    missing = [path for path in paths if not (ROOT / path).exists()]
    missing += [link for link in links if not (document.parent / link).exists()]
    assert not missing, f"{document.name} names {missing}"


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_every_command_a_document_names_exists(document: Path) -> None:
    from goldiclip.cli import COMMANDS

    for line in re.findall(r"goldiclip ([a-z][a-z ]*)", "\n".join(code_of(document.read_text()))):
        command, *rest = line.split()
        assert command in COMMANDS, f"{document.name} names `goldiclip {command}`"
        group = COMMANDS[command]
        if isinstance(group, dict):  # by its name alone it stands for all of them
            assert set(rest[:1]) <= set(group), f"{document.name} names `goldiclip {line.strip()}`"


def code_of(markdown: str) -> list[str]:
    """What a document says to type: its shell blocks, and inline code that begins with goldiclip."""
    blocks = re.findall(r"```(?:bash|sh|console)\n(.*?)```", markdown, flags=re.S)
    return blocks + re.findall(r"`(goldiclip [^`]+)`", markdown)


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_every_command_a_document_writes_out_is_understood(document: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its words and options, by the very parser; nothing is run."""
    from goldiclip import cli

    def idle(command: Callable[..., object]) -> Callable[..., int]:
        return functools.wraps(command)(lambda *args, **options: 0)

    for name, command in cli.COMMANDS.items():
        is_group = isinstance(command, dict)
        unable = {inner: idle(one) for inner, one in command.items()} if is_group else idle(command)
        monkeypatch.setitem(cli.COMMANDS, name, unable)
    blocks = re.findall(r"```(?:bash|sh|console)\n(.*?)```", document.read_text(), flags=re.S)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    for line in lines:
        words = shlex.split(line, comments=True)
        if "goldiclip.cli" in words:
            words = ["goldiclip", *words[words.index("goldiclip.cli") + 1 :]]
        if words[:1] == ["goldiclip"]:
            assert cli.main(words[1:]) == 0, f"{document.name}: {line}"


def test_every_make_target_a_document_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.M))
    for document in documents():
        named = {word for line in re.findall(r"`make ([a-z ]+)`", document.read_text()) for word in line.split()}
        assert named <= targets, f"{document.name} names make {named - targets}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_dictionary_is_true() -> None:
    """Every row of docs/method.md's dictionary names a file, and a name that stands in it."""
    rows = re.findall(
        r"^\|[^|]+\|\s*`([\w.]+)`[^|]*\|\s*`([\w/.]+)`\s*\|", (ROOT / "docs/method.md").read_text(), flags=re.M
    )
    assert len(rows) >= 15
    for name, path in rows:
        text = (ROOT / path if path.startswith("tests") else SOURCE / path.removeprefix("src/goldiclip/")).read_text()
        assert re.search(rf"\b{re.escape(name.rsplit('.', 1)[-1])}\b", text), f"docs/method.md: {name} is not in {path}"


def test_there_is_one_similarity() -> None:
    """Cosines between images and texts are taken in model/ alone; everybody else asks `score`."""
    for path in python_files():
        if part_of(path) in {"model", "kernels"}:
            continue
        assert "cosine_similarity" not in path.read_text(), f"{path.relative_to(ROOT)}: use Encoder.score"


def test_no_file_is_named_after_nothing() -> None:
    empty = {"utils", "util", "helpers", "common", "misc", "manager", "base", "legacy", "v2"}
    assert not [path for path in python_files() if path.stem in empty]


def test_every_test_file_has_a_name_of_its_own() -> None:
    """Tests are imported by their bare names: two of one name stop the whole suite from being collected."""
    names = [path.name for path in python_files(ROOT / "tests") if path.name != "conftest.py"]
    assert len(names) == len(set(names)), sorted(name for name in set(names) if names.count(name) > 1)


def test_the_repository_names_no_machine() -> None:
    """Neither a folder of the machine it was written on nor the host of a package registry."""
    folders = "|".join(f"/{name}/" for name in ("work", "farm", "root"))
    leak = re.compile(rf"(?<![\w.]){folders}|https?://\S+\.(?:whl|tgz|deb)\b|--(?:extra-)?index-url")
    files = [
        *python_files(ROOT / "src"),
        *python_files(ROOT / "tests"),
        *python_files(ROOT / "benchmarks"),
        *documents(),
    ]
    for path in files:
        assert path == Path(__file__) or not leak.search(path.read_text()), path.relative_to(ROOT)
