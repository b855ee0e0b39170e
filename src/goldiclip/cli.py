"""The command line: one short function per command. Each imports what it needs when it runs, so `--help` is immediate."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import tyro

from goldiclip.config import ConfigError

# A command or a group of commands; a group is a dict of its own.
COMMANDS: dict[str, Any] = {}


def main(words: list[str] | None = None) -> int:
    """Run one command; what the user can mend is said in a line, without a traceback."""
    words = sys.argv[1:] if words is None else words
    try:
        return run(COMMANDS, words, "goldiclip") or 0
    except (ConfigError, FileNotFoundError, FileExistsError, PermissionError) as error:
        print(f"goldiclip: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def run(commands: dict[str, Any], words: list[str], program: str) -> int | None:
    if words and isinstance(commands.get(words[0]), dict):
        return run(commands[words[0]], words[1:], f"{program} {words[0]}")
    flat = {name: command if callable(command) else _group(name, command) for name, command in commands.items()}
    return tyro.extras.subcommand_cli_from_dict(flat, args=words, prog=program, description=__doc__)


if __name__ == "__main__":
    sys.exit(main())
