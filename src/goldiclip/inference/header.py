"""What an index says of itself, and which store its place asks for.

A folder says it in index.json; a Lance table in its schema, made with it in one go.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goldiclip.config import ConfigError
from goldiclip.inference.blocks import BlockFormat
from goldiclip.inference.stores import Store
from goldiclip.inference.stores.lance import LanceStore, create_table, read_note
from goldiclip.inference.stores.local import LocalStore, replace_durably

NOTE = "goldiclip"


class IndexMismatch(ConfigError):
    """An index that cannot be opened, or that does not fit its encoder."""


def is_lance(uri: str) -> bool:
    return "://" in uri or uri.rstrip("/").endswith(".lance")


def open_store(uri: str, format: BlockFormat, options: Mapping[str, Any]) -> Store:
    if is_lance(uri):
        return LanceStore(uri, format.width, format.num_bytes, **options)
    return LocalStore(Path(uri), format.width, format.num_bytes)


def read_header(uri: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """None where there is nothing yet."""
    text = read_note(uri, NOTE, **options) if is_lance(uri) else _read(Path(uri) / "index.json")
    if text is None:
        if Path(uri).is_dir() and any(Path(uri).iterdir()):
            raise IndexMismatch(f"{uri}: a folder of something else, no index; choose another place")
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise IndexMismatch(f"{uri}: what it says of itself is damaged or of another program ({error})") from error


def _read(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def write_header(uri: str, header: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    if is_lance(uri):
        create_table(uri, header["format"]["width"], {NOTE: json.dumps(header)}, **options)
        return
    Path(uri).mkdir(parents=True, exist_ok=True)
    replace_durably(Path(uri) / "index.json", json.dumps(header, indent=2).encode())


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{key} {found.get(key)} there, {value} wanted" for key, value in wanted.items() if found.get(key) != value
    )
