"""Train, evaluate, use: `goldiclip COMMAND --help` says what a command takes."""

# One short function per command. Each imports what it needs when it runs, so that `--help` is immediate.

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import tyro
from tyro.conf import Positional

from goldiclip.config import ConfigError

# --- runs -----------------------------------------------------------------------------------------------------------


def recipes() -> None:
    """List the recipes, with what each one trains."""
    from goldiclip.recipes import RUNS, VARIANTS

    for name, build in RUNS.items():
        print(f"{name:18} {(build.__doc__ or '').splitlines()[0]}")
    for name, change in VARIANTS.items():
        print(f"…/{name:16} {(change.__doc__ or '').splitlines()[0]}")


def config(recipe: Positional[str], overrides: Positional[tuple[str, ...]] = ()) -> None:
    """Print a recipe's resolved configuration: `goldiclip config cc3m optim.lr=1e-3`."""
    from goldiclip.config import override, resolve, to_yaml
    from goldiclip.recipes import recipe as named

    print(to_yaml(resolve(override(named(recipe), overrides))), end="")


def doctor() -> int:
    """Say what this machine has, what it lacks for which command, and how to get it."""
    from goldiclip.doctor import examine, show

    return show(list(examine()))


# --- dispatch -------------------------------------------------------------------------------------------------------

# A command, or a group of commands as a dict of its own.
COMMANDS: dict[str, Callable[..., int | None] | dict[str, Callable[..., int | None]]] = {
    "recipes": recipes,
    "config": config,
    "doctor": doctor,
}


def main(words: list[str] | None = None) -> int:
    """Run one command; what the user can mend is said in a line, without a traceback."""
    words = sys.argv[1:] if words is None else words
    try:
        return _dispatch(COMMANDS, words, "goldiclip") or 0
    except (ConfigError, FileNotFoundError, FileExistsError, NotADirectoryError, PermissionError) as error:
        print(f"goldiclip: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _dispatch(commands: Any, words: list[str], program: str) -> int | None:
    if words and isinstance(commands.get(words[0]), dict):
        return _dispatch(commands[words[0]], words[1:], f"{program} {words[0]}")
    listed = {name: _listing(name, item) if isinstance(item, dict) else item for name, item in commands.items()}
    return tyro.extras.subcommand_cli_from_dict(listed, args=words, prog=program, description=__doc__)


def _listing(name: str, group: dict[str, Callable[..., int | None]]) -> Callable[[], None]:
    """A group as it stands in the list of commands."""

    def show() -> None:
        raise ConfigError(f"{name}: say which of {', '.join(group)}")

    show.__doc__ = f"A group: {', '.join(group)}."
    return show


if __name__ == "__main__":
    sys.exit(main())
