"""The commands that use an encoder, one short function each; what they need is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from goldiclip.config import ConfigError


def index(
    images: Positional[tuple[str, ...]],
    *,
    encoder: str,
    out: str = "images.index",
    precision: Literal["int8", "float16", "none"] = "int8",
    tokens: int = 0,
    update: bool = False,
    workers: int = 1,
    device: str = "auto",
) -> None:
    """Index pictures for search: `goldiclip index photos --encoder runs/first`. Run again, it goes on where it stopped.

    Args:
        images: Folders of images, image files, or shards.
        encoder: An encoder folder, a run, owner/model on the hub, or flair:, cosmos:, open_clip:FILE.
        out: A folder; or a path ending in .lance or a URL such as s3://bucket/index, for a Lance table.
        precision: Of the patches kept for the second look; none keeps nothing and reads the pictures again.
        tokens: Patches kept of each picture, as means of neighbours; 0 keeps them all.
        update: Replace what is there already.
        workers: Ray workers that build together; for Lance tables.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import build

    build(images, encoder, out, precision=precision, tokens=tokens, update=update, workers=workers, device=device)


def search(
    query: Positional[str] = "",
    *,
    index: str = "images.index",
    k: int = 10,
    image: Path | None = None,
    shortlist: int = 200,
    where: tuple[str, ...] = (),
    encoder: str = "",
    device: str = "auto",
) -> None:
    """Search an index: `goldiclip search "a red umbrella left of a dog" --k 10`.

    Args:
        query: What to look for; may be left out with --image.
        index: Where the index is.
        k: How many to show.
        image: A picture to look for, alone or together with the words.
        shortlist: How many of the first stage the second one looks at; 0 trusts the first.
        where: Only pictures whose records say so, as key=value, such as folder=holidays.
        encoder: The encoder, if it is no longer where it was when the index was made.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import open_index, parse_where, show_hits

    if not query and image is None:
        raise ConfigError("search: say what to look for, in words or with --image")
    found = open_index(index, encoder, device)
    print(show_hits(found.search(query or None, k, image=image, shortlist=shortlist, where=parse_where(where))))


def heatmap(
    image: Positional[Path],
    phrases: Positional[tuple[str, ...]],
    *,
    encoder: str,
    out: Path = Path("heatmap.png"),
    title: str = "",
    device: str = "auto",
) -> None:
    """Colour phrases over a picture, with and without the attention sink: `goldiclip heatmap dog.jpg "a dog" "grass"`.

    Args:
        image: A picture.
        phrases: What to look for in it.
        encoder: An encoder folder, a run, owner/model on the hub, or flair:FILE.
        out: Where to write the PNG.
        title: A line above.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import engine
    from goldiclip.inference.heatmap import draw_phrases, phrase_maps

    if not phrases:
        raise ConfigError("heatmap: name a phrase or several after the picture")
    draw_phrases(image, phrase_maps(engine(encoder, device), image, phrases), title).save(out)
    print(out)


def segment(
    image: Positional[Path],
    classes: Positional[tuple[str, ...]],
    *,
    encoder: str,
    out: Path = Path("segments.png"),
    mode: str = "",
    short_side: int = 336,
    title: str = "",
    device: str = "auto",
) -> None:
    """Divide a picture among classes, without training: `goldiclip segment beach.jpg sky sea sand "person, people"`.

    Args:
        image: A picture.
        classes: Names; synonyms of one class are parted by commas.
        encoder: An encoder folder, a run, owner/model on the hub, or flair:, cosmos:, open_clip:FILE.
        out: Where to write the PNG.
        mode: value, sink or attention; the first that the encoder has unless you say otherwise.
        short_side: What the picture's shorter side is resized to, for an encoder that sees 224 pixels.
        title: A line above.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import engine
    from goldiclip.inference.heatmap import draw_segments

    if not classes:
        raise ConfigError("segment: name two classes or more after the picture")
    found = engine(encoder, device).segment(image, classes, mode or None, short_side)
    draw_segments(image, found, title).save(out)
    for name, share in sorted(zip(found.names, found.shares), key=lambda pair: -pair[1]):
        print(f"{share:6.1%}  {name}")
    print(out)


def caption(images: Positional[tuple[Path, ...]], *, encoder: str, beams: int = 3, device: str = "auto") -> None:
    """Caption pictures, with the confidence of each.

    Args:
        images: Pictures.
        encoder: An encoder folder with its decoder, or a run.
        beams: Sentences followed side by side; 1 is greedy.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import engine

    if not images:
        raise ConfigError("caption: name a picture or several")
    for image, said in zip(images, engine(encoder, device).caption(images, beams)):
        print(f"{said.confidence:6.1%}  {image}  {said.text}")


def ask(
    image: Positional[Path], question: Positional[str], *, encoder: str, beams: int = 3, device: str = "auto"
) -> None:
    """Ask about a picture: `goldiclip ask dog.jpg "what colour is the dog?"`.

    Args:
        image: A picture.
        question: What to ask.
        encoder: An encoder folder with its decoder, or a run.
        beams: Answers followed side by side; 1 is greedy.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import engine

    (said,) = engine(encoder, device).ask(image, question, beams)
    print(f"{said.confidence:6.1%}  {said.text}")


def locate(
    image: Positional[Path],
    phrase: Positional[str],
    *,
    encoder: str,
    out: Path | None = None,
    beams: int = 3,
    device: str = "auto",
) -> None:
    """Say where a phrase is, as a box in pixels: `goldiclip locate dog.jpg "a red ball" --out box.png`.

    Args:
        image: A picture.
        phrase: What to find.
        encoder: An encoder folder with its decoder, or a run.
        out: Also draw it there.
        beams: Boxes followed side by side.
        device: auto, cpu, cuda, mps.
    """
    from goldiclip.inference.command import engine
    from goldiclip.inference.heatmap import draw_box

    found = engine(encoder, device).locate(image, phrase, beams)
    print(f"{found.confidence:6.1%}  " + ", ".join(f"{corner:.0f}" for corner in found.box))
    if out is not None:
        draw_box(image, phrase, found).save(out)
        print(out)


def export(
    model: Positional[str],
    *,
    out: Path = Path("export"),
    formats: tuple[str, ...] = ("encoder", "open_clip", "transformers", "onnx"),
    index: str = "",
    pictures: Path | None = None,
) -> None:
    """Write a model for other programs, with size, parity and speed of each in a table.

    Args:
        model: An encoder folder, a run, owner/model on the hub, or flair:, open_clip:FILE.
        out: A folder; each format gets one of its own in it.
        formats: encoder (ours, without decoder), open_clip, transformers, onnx, vectors.
        index: For vectors: the index whose text-agnostic vectors to write, at 8 bits.
        pictures: A retrieval set such as corpus/eval/retrieval.json, to compare on instead of noise; tells recall too.
    """
    from goldiclip.inference.command import export_model, show_exports

    print(show_exports(export_model(model, out, formats, index, pictures)))
