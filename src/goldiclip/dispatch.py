"""From words to a command: which one, with which settings, and what help says of it."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import tyro

from goldiclip.config import ConfigError

# In help: positional words by their names, switches without their opposites, no word for what is left out.
READABLE = (tyro.conf.PositionalMetavarFromFieldName, tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone)


def settings_first(words: list[str]) -> list[str]:
    """Settings (`optim.lr=1e-3`) may stand anywhere: here they move before the options, where tyro wants them."""
    if words[:1] not in (["train"], ["plan"]) and words[:2] != ["shards", "show"]:
        return words
    options = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    late = [word for word in words[options:] if re.match(r"\w+(\.\w+)+=", word)]
    return [*words[:options], *late, *(word for word in words[options:] if word not in late)]


def dispatch(commands: Any, words: list[str], program: str, about: str) -> int | None:
    words = words or ["--help"]
    name = words[0]
    if name not in commands and not name.startswith("-"):
        near = difflib.get_close_matches(name, commands, n=3)
        nearest = f"nearest: {', '.join(near)}; " if near else ""
        raise ConfigError(f"{program} {name} is no command; {nearest}there are {', '.join(commands)}")
    if isinstance(commands.get(name), dict):
        group = commands[name]
        return dispatch(group, words[1:], f"{program} {name}", f"`{program} {name} COMMAND --help` says more of each.")
    listed = {name: _listing(name, item) if isinstance(item, dict) else item for name, item in commands.items()}
    if name in commands:
        _annotate(commands[name])
    return tyro.extras.subcommand_cli_from_dict(listed, args=words, prog=program, description=about, config=READABLE)


def _annotate(command: Callable[..., int | None]) -> None:
    """In help: what may be left out has no value worth showing, and of what is needed one is enough."""
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        is_needed = parameter.default is parameter.empty
        if is_needed and "tuple[" in str(hints[name]):
            hints[name] = Annotated[hints[name], tyro.conf.arg(help_behavior_hint="(one or more)")]
        elif parameter.default in (None, "", ()):
            hints[name] = Annotated[hints[name], tyro.conf.arg(help_behavior_hint="")]
    command.__annotations__ = hints


def _listing(name: str, group: dict[str, Callable[..., int | None]]) -> Callable[[], None]:
    """A group as it stands in the list of commands."""

    def show() -> None:
        raise ConfigError(f"{name}: say which of {', '.join(group)}")

    show.__doc__ = f"A group: {', '.join(group)}."
    return show
