"""From what a user writes to a list of shards: paths, folders, globs, brace ranges, URLs, and `a::b` for several.

Whatever is missing is said here, before anything starts.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Iterator, Sequence

from goldiclip.config import ConfigError, split_sources

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_CHOICE = re.compile(r"\{([^{}]*,[^{}]*)\}")
_URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_COMPRESSED = (".gz", ".tgz", ".zst", ".bz2", ".xz", ".zip")
MAX_SHARDS = 1_000_000
NOT_COMPRESSED = "a compressed archive has no random access; unpack it into a plain tar, for example with gunzip"


class ShardError(ConfigError):
    """Shards that cannot be used as they are: which, why, and what to do."""


def is_remote(path: str) -> bool:
    """Whether a path is a URL that has to be fetched."""
    return bool(_URL.match(path)) and not path.lower().startswith("file://")


def expand(patterns: str | Sequence[str]) -> tuple[str, ...]:
    """Every shard that the patterns name, in order; a glob's matches are sorted."""
    words = split_sources(map(os.fspath, [patterns] if isinstance(patterns, str | os.PathLike) else patterns))
    if not words:
        raise ShardError(
            "no shards given; expected paths, globs such as shards/*.tar, ranges such as {000..099}.tar, or URLs"
        )
    paths = tuple(path for word in words for path in _expand_word(word))
    for path in paths:
        if path.lower().endswith(_COMPRESSED):
            raise ShardError(f"{path}: {NOT_COMPRESSED}")
    return paths


def _expand_word(word: str) -> list[str]:
    if word.lower().startswith(("pipe:", "cmd:")):
        raise ShardError(f"{word!r}: commands are never run for data; name files or URLs (s3://, gs://, https://, …)")
    if word.lower().startswith("file://"):
        word = word[len("file://") :]
    if not is_remote(word) and os.path.exists(word):
        if not os.path.isdir(word) and not os.path.isfile(word):
            raise ShardError(f"{word}: neither a file nor a folder; a pipe or device has no random access")
        return _inside(word) if os.path.isdir(word) else [word]
    named = list(itertools.islice(_braces(word), MAX_SHARDS + 1))
    if len(named) > MAX_SHARDS:
        raise ShardError(f"{word}: names more than {MAX_SHARDS:,} shards")
    if any(_is_glob(name) for name in named):
        return [path for name in named for path in (_matches(name, word) if _is_glob(name) else [name])]
    if not is_remote(word):
        _require_all(named, word)
    return named


def _require_all(paths: list[str], word: str) -> None:
    missing = [path for path in paths if not os.path.exists(path)]
    if not missing:
        return
    if len(paths) == 1:
        near = os.path.dirname(word) or "."
        hint = "the folder is there, the file is not" if os.path.isdir(near) else f"there is no folder {near} either"
        raise FileNotFoundError(f"{word}: no such shard ({hint})")
    shown = ", ".join(os.path.basename(path) for path in missing[:8]) + (", …" if len(missing) > 8 else "")
    count = f"{len(missing):,} of its {len(paths):,} shards are missing"
    raise FileNotFoundError(f"{word}: {count}: {shown}; use a glob to take those that are there")


def _inside(folder: str) -> list[str]:
    found = sorted(
        os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".tar") and not name.startswith(".")
    )
    if not found:
        raise FileNotFoundError(f"{folder}: no *.tar in this folder")
    return found


def _is_glob(path: str) -> bool:
    return "*" in path or (not is_remote(path) and ("?" in path or "[" in path))


def _matches(pattern: str, word: str) -> list[str]:
    if is_remote(pattern):
        from goldiclip.data.remote import remote_glob

        found = remote_glob(pattern)
    else:
        found = sorted(
            path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path) and not path.endswith(".index")
        )
    if not found:
        raise FileNotFoundError(f"{word}: nothing matches {pattern}" if word != pattern else f"{word}: nothing matches")
    return found


def _braces(word: str) -> Iterator[str]:
    """`{000..099}` counts with its padding, `{a,b}` chooses; several multiply, the last one fastest."""
    match = min((m for m in (_RANGE.search(word), _CHOICE.search(word)) if m), key=lambda m: m.start(), default=None)
    if match is None:
        yield word
        return
    for choice in _choices(match):
        for rest in _braces(word[match.end() :]):
            yield word[: match.start()] + choice + rest


def _choices(match: re.Match[str]) -> Iterator[str]:
    if match.re is _CHOICE:
        yield from match[1].split(",")
        return
    first, last = int(match[1]), int(match[2])
    width = max(len(match[1]), len(match[2])) if match[1].startswith("0") or match[2].startswith("0") else 0
    step = 1 if last >= first else -1
    for number in range(first, last + step, step):
        yield f"{number:0{width}d}"
