"""What the commands that use a model do, and how they say it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from goldiclip.config import Config, ConfigError
from goldiclip.inference.engine import Engine
from goldiclip.inference.export import export
from goldiclip.inference.header import read_header
from goldiclip.inference.index import Added, Hit, Index
from goldiclip.inference.load import load_engine
from goldiclip.inference.parity import Exported, gallery
from goldiclip.inference.sources import sources
from goldiclip.inference.vectors import export_vectors
from goldiclip.model.goldiclip import GoldiCLIP


def engine(name: str, device: str = "auto", precision: str = "fp32") -> Engine:
    return load_engine(name, device=device, precision=precision)


def build(
    names: Sequence[str],
    encoder: str,
    out: str,
    *,
    precision: str,
    tokens: int,
    update: bool,
    workers: int,
    device: str,
) -> Index:
    """An index of pictures; run again, it goes on where it stopped."""
    loaded = engine(encoder, device)
    index = Index.create(out, loaded, precision, tokens)  # type: ignore[arg-type]
    if workers > 1:
        from goldiclip.inference.parallel import add_with_ray

        added = add_with_ray(out, encoder, names, workers, device=device, update=update)
        index.refresh()
    else:
        added = index.add(sources(names), update=update, progress=_Progress())
    print(_summary(index, added))
    return index


class _Progress:
    """A line that counts, where there is somebody to see it."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, count: int) -> None:
        self.seen += count
        if sys.stderr.isatty():
            print(f"\r{self.seen:,} pictures", end="", file=sys.stderr, flush=True)


def _summary(index: Index, added: Added) -> str:
    size = index.format.num_bytes + 2 * index.format.width
    lines = [f"{index.uri}: {len(index):,} pictures ({added.added:,} new, {added.present:,} there already)"]
    lines.append(f"{size:,} bytes a picture: {index.format.tokens} patches at {index.format.precision}, one vector")
    lines += [f"left out: {id}: {reason}" for id, reason in list(added.failed.items())[:10]]
    if len(added.failed) > 10:
        lines.append(f"… and {len(added.failed) - 10:,} more")
    return "\n".join(lines)


def open_index(uri: str, encoder: str = "", device: str = "auto") -> Index:
    """An index with the encoder it was made with, found by its name unless another place is given."""
    header = read_header(uri, {})
    if header is None:
        raise FileNotFoundError(f"{uri}: no index there; make one with: goldiclip index IMAGES --out {uri}")
    name = encoder or header.get("engine", "")
    if not name:
        raise ConfigError(f"{uri} does not say where its encoder is; give it with --encoder")
    return Index.open(uri, engine(name, device))


def parse_where(words: Sequence[str]) -> dict[str, str]:
    """key=value words as a filter."""
    if odd := [word for word in words if "=" not in word]:
        raise ConfigError(f"--where {odd[0]}: expected key=value, such as folder=holidays")
    return dict(word.split("=", 1) for word in words)


def show_hits(hits: Sequence[Hit]) -> str:
    """A table: rank, score, rank of the first stage, and which picture."""
    lines = [f"{'':>3}  {'score':>8}  {'ta':>6}  {'ta rank':>7}  picture"]
    for rank, hit in enumerate(hits, 1):
        lines.append(f"{rank:>3}  {hit.score:>8.3f}  {hit.text_agnostic:>6.3f}  {hit.first_rank + 1:>7}  {hit.id}")
    return "\n".join(lines) if hits else "nothing found"


def export_model(
    name: str, out: Path, formats: Sequence[str], index: str = "", pictures: Path | None = None
) -> list[Exported]:
    """Each format in a folder of its own under `out`."""
    loaded = engine(name, device="cpu")
    if not isinstance(loaded.model, GoldiCLIP):
        raise ConfigError(f"{name}: a {type(loaded.model).__name__} is exported by its own library")
    config = loaded.config or replace(Config(), model=loaded.model.config)
    if "vectors" in formats and not index:
        raise ConfigError("vectors are an index's: give it with --index")
    probe = gallery(config, pictures) if pictures else None
    written = export(loaded.model, config, out, tuple(one for one in formats if one != "vectors"), probe)
    if "vectors" in formats:
        written.append(export_vectors(Index.open(index, loaded), out / "vectors"))
    return written


# What the table of exports shows: heading, field, how it is written.
_COLUMNS = (
    ("MB", "megabytes", ".1f"),
    ("max error", "max_error", ".1e"),
    ("best changed", "rank_change", ".4f"),
    ("recall@1", "recall", ".3f"),
    ("change", "recall_change", "+.3f"),
    ("ms", "milliseconds", ".2f"),
    ("ours, ms", "torch_milliseconds", ".2f"),
)


def show_exports(written: Sequence[Exported]) -> str:
    """Size, parity and speed of each."""
    head = f"{'':16}" + "".join(f"{title:>14}" for title, _, _ in _COLUMNS)
    return "\n".join([head, *map(_export_line, written)])


def _export_line(item: Exported) -> str:
    values = ((getattr(item, field), form) for _, field, form in _COLUMNS)
    return f"{item.name:16}" + "".join(f"{'' if value is None else format(value, form):>14}" for value, form in values)
