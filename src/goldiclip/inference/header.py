"""What an index says of itself, and which store its place asks for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goldiclip.inference.blocks import BlockFormat
from goldiclip.inference.stores import Store
from goldiclip.inference.stores.lance import LanceStore
from goldiclip.inference.stores.local import LocalStore


class IndexMismatch(ValueError):
    """An index that cannot be opened, or that does not fit its encoder."""


def is_lance(uri: str) -> bool:
    return "://" in uri or uri.rstrip("/").endswith(".lance")


def open_store(uri: str, format: BlockFormat, options: Mapping[str, Any]) -> Store:
    if is_lance(uri):
        return LanceStore(f"{uri.rstrip('/')}/images.lance", format.width, format.num_bytes, **options)
    return LocalStore(Path(uri), format.width, format.num_bytes)


def _header_file(uri: str, options: Mapping[str, Any], mode: str) -> Any:
    if "://" not in uri:
        path = Path(uri) / "index.json"
        if "w" in mode:
            path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, mode)
    import fsspec

    return fsspec.open(f"{uri.rstrip('/')}/index.json", mode, **_fsspec_options(options)).open()


def _fsspec_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Lance's storage options for S3 in s3fs's words."""
    given = options.get("storage_options") or {}
    words = {
        "aws_access_key_id": "key",
        "aws_secret_access_key": "secret",
        "endpoint": "endpoint_url",
        "aws_endpoint": "endpoint_url",
    }
    return {words[name]: value for name, value in given.items() if name in words}


def read_header(uri: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        with _header_file(uri, options, "r") as file:
            return json.load(file)
    except FileNotFoundError:
        if Path(uri).is_dir() and any(Path(uri).iterdir()):
            raise IndexMismatch(
                f"{uri}: a folder of something else (no index.json in it); choose another place"
            ) from None
        return None
    except json.JSONDecodeError as error:
        raise IndexMismatch(f"{uri}/index.json: damaged ({error})") from error


def write_header(uri: str, header: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    with _header_file(uri, options, "w") as file:
        json.dump(header, file, indent=2)
        if "://" not in uri:
            file.flush()
            os.fsync(file.fileno())


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{key} {found.get(key)} there, {value} wanted" for key, value in wanted.items() if found.get(key) != value
    )
