"""Encoders on the Hugging Face hub: fetched and pushed the hub's usual way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from goldiclip.data.tokenizer import vocabulary_and_merges

# No pickles: nothing else is ever fetched.
FILES = ["*.safetensors", "*.yaml", "*.md", "*.json", "merges.txt"]


def download(name: str, **options: Any) -> Path:
    """The folder in the hub's cache that holds `owner/model`."""
    import huggingface_hub

    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=FILES, **options))
    except Exception as error:  # the hub's client raises many kinds, all of which mean that it is not to be had
        raise FileNotFoundError(f"{name}: no such folder here, and the hub did not give it: {error}") from error


def upload(
    name: str,
    save: Callable[[Path], object],
    *,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str = "Upload a goldiclip encoder",
    create_pr: bool = False,
) -> str:
    """Write an encoder folder with `save` and upload it whole, in one commit; the URL of that commit."""
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    repository = api.create_repo(name, private=private, exist_ok=True).repo_id
    with TemporaryDirectory() as folder:
        save(Path(folder))
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            revision=revision,
            commit_message=commit_message,
            create_pr=create_pr,
        )
    return str(commit)


def save_tokenizer(folder: Path, merged: tuple[int, ...]) -> Path:
    """Vocabulary and merges beside the weights, for programs that bring no tokenizer of their own."""
    vocabulary, merges = vocabulary_and_merges(merged)
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False))
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *map(" ".join, merges)]) + "\n")
    return folder
