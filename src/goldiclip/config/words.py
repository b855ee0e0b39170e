"""From words and YAML to a tree, and back."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml

from goldiclip.config.tree import Config, flatten
from goldiclip.config.validation import ConfigError, validate

SCHEMA_VERSION = 1


def override(config: Config, words: Sequence[str]) -> Config:
    """`config` with `optim.lr=1e-3`-like words applied: typed, and with the nearest name when one is unknown."""
    settings = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"{word!r}: expected key=value, such as optim.lr=1e-3")
        settings.append((key, _items(value) if isinstance(dict(flatten(config)).get(key), tuple) else [value]))
    return _apply(config, settings)


def _items(value: str) -> list[str]:
    """`a.tar,b.tar` and `[0.1, 0.5]` as lists; a comma inside braces belongs to a shard pattern."""
    inside = value[1:-1] if value[:1] + value[-1:] in ("()", "[]") else value
    return [item.strip() for item in re.split(r",(?![^{]*\})", inside) if item.strip()]


def _apply(config: Config, settings: Sequence[tuple[str, list[str]]], to_train: bool = True) -> Config:
    known = dict(flatten(config))
    for key, _ in settings:
        if key not in known:
            inside = [name for name in known if name.startswith(key + ".")]
            near = inside or difflib.get_close_matches(key, known, n=3, cutoff=0.5) or _same_leaf(key, known)
            raise ConfigError(f"{key!r} is no setting; nearest: {', '.join(near[:6]) or 'none'}")
    changed = _typed(config, settings) if settings else config
    return validate(changed) if to_train else changed


def _same_leaf(key: str, known: Mapping[str, Any]) -> list[str]:
    leaf = key.rsplit(".", 1)[-1]
    leaves = difflib.get_close_matches(leaf, {name.rsplit(".", 1)[-1] for name in known}, n=3)
    return [name for name in known if name.rsplit(".", 1)[-1] in leaves]


def _typed(config: Config, settings: Sequence[tuple[str, list[str]]]) -> Config:
    try:
        return _parse(config, settings)
    except SystemExit as error:
        key, values = next(setting for setting in settings if not _is_accepted(config, setting))
        raise ConfigError(f"{key} is {','.join(values)!r}; allowed: {takes(key)}") from error


def _is_accepted(config: Config, setting: tuple[str, list[str]]) -> bool:
    try:
        return bool(_parse(config, [setting]))
    except SystemExit:
        return False


def _parse(config: Config, settings: Sequence[tuple[str, list[str]]]) -> Config:
    import tyro

    known = dict(flatten(config))
    flags: list[str] = []
    for key, values in settings:
        if isinstance(known[key], tuple):
            flags += [f"--{key}", *values]
        else:  # a value may begin with a dash
            flags += [f"--{key}={value.title() if isinstance(known[key], bool) else value}" for value in values]
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        return tyro.cli(
            Config,
            args=flags,
            default=config,
            config=(tyro.conf.FlagConversionOff, tyro.conf.AvoidSubcommands),
            use_underscores=True,
        )


def takes(key: str) -> str:
    """What a field takes, in words, from its annotation."""
    kind: Any = Config
    for name in key.split("."):
        kind = get_type_hints(kind)[name]
    return _allowed(kind)


def _allowed(kind: Any) -> str:
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return ", ".join(map(repr, parts))
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(map(_allowed, parts))
    if get_origin(kind) is tuple:
        each = _allowed(parts[0])
        return f"{'' if parts[-1] is ... else f'{len(parts)} '}values parted by commas, each {each}"
    return {int: "a whole number", float: "a number", bool: "True or False", str: "a text", NoneType: "None"}[kind]


def to_yaml(config: Config) -> str:
    """The resolved tree as YAML that `from_yaml` reads back to an equal one."""
    tree = _plain({"schema": SCHEMA_VERSION, **dataclasses.asdict(config)})
    return str(yaml.dump(tree, Dumper=_Dumper, sort_keys=False, width=120))


class _Dumper(yaml.SafeDumper):
    """Mappings as blocks, lists on a line."""


def _list_on_a_line(dumper: _Dumper, found: list[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", found, flow_style=True)


_Dumper.add_representer(list, _list_on_a_line)


def from_yaml(text: str, where: str = "config", *, to_train: bool = True) -> Config:
    """Read a tree written by `to_yaml`, or by hand: unknown keys and wrong types are errors that name the field.

    `to_train=False` for a record of how a model was trained: parts that it has since been stripped of are no error.
    """
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where}: not a configuration in YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: expected a mapping of settings, found {type(found).__name__}")
    schema = found.pop("schema", SCHEMA_VERSION)
    if schema != SCHEMA_VERSION:
        raise ConfigError(f"{where}: schema {schema} was written by another version; this one reads {SCHEMA_VERSION}")
    return _apply(Config(), list(_leaves(found)), to_train)


def _leaves(found: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    for key, value in found.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", [str(item) for item in value] if isinstance(value, list) else [str(value)]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value
