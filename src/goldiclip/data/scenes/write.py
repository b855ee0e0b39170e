"""The corpus on disk: training shards, held-out shards, six evaluation sets. Run again, it goes on where it stopped."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from goldiclip.config import ConfigError
from goldiclip.data.many import in_processes, progress
from goldiclip.data.scenes import galleries
from goldiclip.data.scenes.galleries import Exhibit, Exhibition
from goldiclip.data.scenes.questions import QUESTION_KINDS
from goldiclip.data.scenes.sample import props_of, scene, single, to_jpeg, to_sample
from goldiclip.data.scenes.settings import Settings
from goldiclip.data.shard_writer import safe_key, write_shard

FORMAT = 1  # of the corpus: a number more whenever equal settings give other scenes
CHUNK = 100  # held-out candidates per part
KINDS_PER_PART = 32
MAX_CANDIDATES = 6  # for every place in the gallery
MIN_GALLERY = 32  # a question needs 25 images
MAX_SEGMENTED = 500
FEWEST_PARTS = 4  # below that, starting processes takes longer than drawing here

Say = Callable[[str], None]


def write_corpus(out: str | Path, settings: Settings, workers: int = 1, say: Say | None = None) -> Path:
    """Write what `settings` describe into `out`, or what of it is not there yet.

    `workers` 0 takes the cores there are. More than one start processes: a script that asks for them needs an
    `if __name__ == "__main__":`.
    """
    out, say = Path(out), say or (lambda line: None)
    if 0 < settings.held_out < MIN_GALLERY:
        raise ConfigError(f"scenes: held_out is {settings.held_out}; allowed: 0, or {MIN_GALLERY} and more")
    _claim(out, settings)
    _write_train(out, settings, workers, say)
    counts = _write_held_out(out, settings, workers, say) if settings.held_out else {}
    _write_json(out / "corpus.json", {**_description(settings), "complete": True, "counts": counts})
    return out


# --- what a folder holds --------------------------------------------------------------------------------------------


def _description(settings: Settings) -> dict[str, Any]:
    fields = {name: str(value) if isinstance(value, Path) else value for name, value in vars(settings).items()}
    # the folders' places may change, what is in them may not
    fields |= {name: fields[name] is not None for name in ("cutouts", "backgrounds")}
    return {"format": FORMAT, "settings": fields, "things": props_of(settings).fingerprint}


def _claim(out: Path, settings: Settings) -> None:
    """Take an empty folder for these settings, or see that it was taken for the same ones."""
    description, file = _description(settings), out / "corpus.json"
    if not file.exists():
        if out.exists() and any(out.iterdir()):
            raise FileExistsError(f"{out}: holds other files and no corpus.json; choose an empty folder")
        out.mkdir(parents=True, exist_ok=True)
        _write_json(file, {**description, "complete": False})
        return
    found = _read_corpus(file)
    if any(found.get(name) != description[name] for name in description):
        old, new = found.get("settings", {}), description["settings"]
        changes = [f"{name} {old.get(name)} → {new[name]}" for name in new if old.get(name) != new[name]]
        changes += [name for name in ("format", "things") if found.get(name) != description[name]]
        raise ConfigError(
            f"{out}: made with other settings ({', '.join(changes)}); choose another folder or remove this one"
        )


def _read_corpus(file: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(file.read_text()))
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{file}: not a corpus's description ({error}); choose another folder") from error


def _write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    os.replace(part, path)


# --- training -------------------------------------------------------------------------------------------------------


def _write_train(out: Path, settings: Settings, workers: int, say: Say) -> None:
    folder = out / "train"
    starts = range(0, settings.count, settings.per_shard)
    missing = [start for start in starts if not _shard(folder, start, settings).exists()]
    began = time.perf_counter()
    parts = in_processes(_write_part, (folder, settings), missing, workers, FEWEST_PARTS)
    written = sum(progress(parts, "training scenes", len(missing)))
    seconds = time.perf_counter() - began
    kept = settings.count - written
    rate = f" in {seconds:.0f} s, {written / seconds:.0f} a second" if written else ""
    say(f"training: {written:,} scenes written{rate}" + (f"; {kept:,} were there" if kept else ""))


def _shard(folder: Path, start: int, settings: Settings) -> Path:
    return folder / f"{start // settings.per_shard:05d}.tar"


def _write_part(context: tuple[Path, Settings], start: int) -> int:
    folder, settings = context
    stop = min(start + settings.per_shard, settings.count)
    samples = (to_sample(scene(i, settings.seed, settings, "train")) for i in range(start, stop))
    write_shard(samples, _shard(folder, start, settings))
    return stop - start


# --- held out -------------------------------------------------------------------------------------------------------


def _write_held_out(out: Path, settings: Settings, workers: int, say: Say) -> dict[str, Any]:
    """Shards and evaluation sets of one gallery; the folder `eval` appears when it is whole."""
    old = _read_corpus(out / "corpus.json")
    starts = range(0, settings.held_out, settings.per_shard)
    shards = [_shard(out / "held_out", start, settings) for start in starts]
    if old.get("complete") and all(path.exists() for path in [*shards, out / "eval"]):
        counts: dict[str, Any] = old["counts"]
        say(f"held out: {settings.held_out:,} scenes were there")
        return counts
    exhibits = _gallery(settings, workers)
    for start, path in zip(starts, shards, strict=True):
        write_shard((exhibit.sample for exhibit in exhibits[start : start + settings.per_shard]), path)
    folder = out / ".eval.part"
    shutil.rmtree(folder, ignore_errors=True)
    counts = _write_sets(folder, exhibits, settings)
    counts["classification"] = _write_classification(folder / "classification", settings, workers)
    shutil.rmtree(out / "eval", ignore_errors=True)
    os.replace(folder, out / "eval")
    say(f"held out: {len(exhibits):,} scenes and six evaluation sets written")
    return counts


def _gallery(settings: Settings, workers: int) -> list[Exhibit]:
    """The first scenes that can be told apart by their captions; candidates are drawn until there are enough."""
    exhibits: list[Exhibit] = []
    chosen: list[Exhibit] = []
    while len(chosen) < settings.held_out:
        if len(exhibits) > MAX_CANDIDATES * settings.held_out:
            raise ConfigError(
                f"scenes: only {len(chosen)} of {len(exhibits)} held-out scenes have captions of their own; "
                f"lower held_out ({settings.held_out}), or raise kinds or max_objects"
            )
        more = max(CHUNK, settings.held_out // 4 if exhibits else settings.held_out)
        starts = range(len(exhibits), len(exhibits) + more, CHUNK)
        parts = in_processes(_exhibits, settings, starts, workers, FEWEST_PARTS)
        for part in progress(parts, "held-out scenes", len(starts)):
            exhibits += part
        chosen = galleries.select(exhibits, settings.held_out)
    return chosen


def _exhibits(settings: Settings, start: int) -> list[Exhibit]:
    return [Exhibit.of(scene(i, settings.seed, settings, "held_out")) for i in range(start, start + CHUNK)]


def _write_sets(folder: Path, exhibits: list[Exhibit], settings: Settings) -> dict[str, Any]:
    exhibition = Exhibition(exhibits)
    _write_files((folder / "images" / exhibit.file, exhibit.sample.image) for exhibit in exhibits)
    sets = {
        "retrieval": galleries.retrieval(exhibition),
        "fine_grained": galleries.fine_grained(exhibition),
        "long": galleries.long_text(exhibition),
        "questions": galleries.questions(exhibition, settings.seed),
    }
    for name, content in sets.items():
        _write_json(folder / f"{name}.json", content)
    counts: dict[str, Any] = {
        name: {"images": len(rows), "texts": sum(len(row["captions"]) for row in rows)}
        for name, rows in ((name, content.get("annotations")) for name, content in sets.items())
        if rows is not None
    }
    kinds = [row["q_type"] for row in sets["questions"].values()]
    counts["questions"] = {kind: kinds.count(kind) for kind in QUESTION_KINDS}
    counts["segmentation"] = _write_segmentation(folder / "segmentation", exhibits[:MAX_SEGMENTED])
    return counts


def _write_segmentation(folder: Path, exhibits: Sequence[Exhibit]) -> dict[str, int]:
    names = galleries.classes(exhibits)
    _write_files((folder / "images" / exhibit.file, exhibit.sample.image) for exhibit in exhibits)
    _write_files(
        (folder / "masks" / f"{exhibit.scene.key}.png", galleries.class_mask(exhibit, names)) for exhibit in exhibits
    )
    _write_json(folder / "classes.json", {"classes": names, "ignore": galleries.IGNORE})
    return {"images": len(exhibits), "classes": len(names)}


def _write_classification(folder: Path, settings: Settings, workers: int) -> dict[str, int]:
    """A folder per kind with single things in combinations (or cut-outs) that training does not show."""
    kinds = props_of(settings).kinds("held_out")
    each = max(4, min(10, settings.held_out // 100))
    chunks = [kinds[i : i + KINDS_PER_PART] for i in range(0, len(kinds), KINDS_PER_PART)]
    parts = in_processes(_write_singles, (folder, settings, each), chunks, workers, 2 * FEWEST_PARTS)
    return {"images": sum(progress(parts, "classification", len(chunks))), "classes": len(kinds)}


def _write_singles(context: tuple[Path, Settings, int], kinds: Sequence[str]) -> int:
    folder, settings, each = context
    for kind in kinds:
        scenes = [single(kind, i, settings.seed, settings, "held_out") for i in range(each)]
        _write_files((folder / kind / f"{safe_key(found.key)}.jpg", to_jpeg(found)) for found in scenes)
    return each * len(kinds)


def _write_files(files: Iterable[tuple[Path, bytes]]) -> None:
    for path, content in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
