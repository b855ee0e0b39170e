"""Retrieval sets in the layouts they are distributed in. Each reader takes the set's own folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from goldiclip.data.captions import split_sentences
from goldiclip.evaluate.datasets.items import Gallery, GalleryBuilder
from goldiclip.evaluate.datasets.reading import entries, first_there, listed, read_json, read_json_lines
from goldiclip.evaluate.problems import Problems

Reader = Callable[[Path, Problems], Gallery]

SPLIT_HERE = "sentences split here from the published descriptions, not FLAIR's file"
# ImageInWords' own folders, and those its pictures lie in.
IIW_PARTS = {"DOCCI_Test": "docci", "IIW-400": "docci_aar", "DCI_Test": "dci"}


def coco(home: Path, problems: Problems) -> Gallery:
    """Every caption of val2017: five of most images, six or seven of some."""
    annotation = home / "annotations/captions_val2017.json"
    images = first_there(home / "images/val2017", home / "val2017")
    found = read_json(annotation)
    builder = GalleryBuilder(annotation, problems)
    captions: dict[int, list[str]] = {}
    for _, entry in entries(
        listed(found, annotation, "annotations"), annotation, {"image_id": int, "caption": str}, problems
    ):
        captions.setdefault(entry["image_id"], []).append(entry["caption"])
    for _, entry in entries(listed(found, annotation, "images"), annotation, {"id": int, "file_name": str}, problems):
        builder.add(f"image {entry['id']}", images / entry["file_name"], captions.pop(entry["id"], []))
    for image in captions:
        problems.add("bad entry", annotation, f"image_id {image}", 'has captions, but stands not under "images"')
    return builder.gallery("val2017")


def coco_karpathy(home: Path, problems: Problems) -> Gallery:
    """Karpathy's test split of val2014: 5,000 images, the first five captions of each."""
    return _karpathy(home / "dataset_coco.json", [home / "images", home], "test", problems)


def flickr30k(split: str) -> Reader:
    """A reader of one of Flickr30k's splits: the list of {image, caption} that FLAIR reads, or Karpathy's file."""

    def read(home: Path, problems: Problems) -> Gallery:
        annotation = home / f"flickr30k_{split}.json"
        if not annotation.exists():
            images = [home, home / "flickr30k-images", home / "images"]
            return _karpathy(home / "dataset_flickr30k.json", images, split, problems)
        builder = GalleryBuilder(annotation, problems)
        found = listed(read_json(annotation), annotation)
        for position, entry in entries(found, annotation, {"image": str, "caption": list}, problems):
            name = Path(entry["image"])
            image = first_there(home.parent / name, home / name, home / name.name)
            builder.add(f"entry {position}", image, entry["caption"])
        return builder.gallery(split)

    return read


def _karpathy(annotation: Path, folders: list[Path], split: str, problems: Problems) -> Gallery:
    builder = GalleryBuilder(annotation, problems)
    fields = {"filename": str, "split": str, "sentences": list}
    for _, entry in entries(listed(read_json(annotation), annotation, "images"), annotation, fields, problems):
        if entry["split"] == split:
            inside = entry.get("filepath", "")
            image = first_there(*(folder / inside / entry["filename"] for folder in folders))
            builder.add(entry["filename"], image, [_field(sentence, "raw") for sentence in entry["sentences"][:5]])
    return builder.gallery(f"Karpathy {split}")


def _field(found: Any, name: str) -> Any:
    """What an entry's part holds under a name; None, which no caption is, where it holds nothing."""
    return found.get(name) if isinstance(found, dict) else None


def docci_fine_grained(home: Path, problems: Problems) -> Gallery:
    """Each sentence of DOCCI's test descriptions is a query of its own."""
    annotation = home / "annotations/test_annotations.json"
    if annotation.exists():
        return _sentences(annotation, home / "images", problems)
    annotation = home / "docci_descriptions.jsonlines"
    builder = GalleryBuilder(annotation, problems)
    fields = {"image_file": str, "split": str, "description": str}
    for _, entry in entries(read_json_lines(annotation), annotation, fields, problems):
        if entry["split"] == "test":
            builder.add(
                entry["image_file"], home / "images" / entry["image_file"], split_sentences(entry["description"])
            )
    return builder.gallery("test", deviations=(SPLIT_HERE,))


def iiw_fine_grained(home: Path, problems: Problems) -> Gallery:
    """Each sentence of ImageInWords' human descriptions is a query of its own: IIW-400, DCI-Test and DOCCI-Test."""
    annotation = first_there(home / "test_annotations.json", home / "finegrained_annotations.json")
    if annotation.exists():
        return _sentences(annotation, home, problems)
    files = [home / part / "data.jsonl" for part in IIW_PARTS]
    builder = GalleryBuilder(files[0], problems)
    for file in files:
        builder.annotation = file
        for position, entry in entries(read_json_lines(file), file, {"IIW": str}, problems):
            name = str(entry.get("image") or entry.get("image/key")).removesuffix(".jpg")
            image = home / IIW_PARTS[file.parent.name] / f"{name}.jpg"
            builder.add(f"entry {position}", image, split_sentences(entry["IIW"]))
    return builder.gallery("test", annotations=files, deviations=(SPLIT_HERE,))


def _sentences(annotation: Path, images: Path, problems: Problems) -> Gallery:
    builder = GalleryBuilder(annotation, problems)
    found = listed(read_json(annotation), annotation, "annotations")
    for position, entry in entries(found, annotation, {"image": str, "caption": str}, problems):
        builder.add(f"entry {position}", images / entry["image"], [entry["caption"]])
    return builder.gallery("test")


def dci(home: Path, problems: Problems) -> Gallery:
    """Densely Captioned Images, all splits: short caption and long, split into sentences and joined again by ". "."""
    base = first_there(home / "densely_captioned_images", home)
    annotation = base / "splits.json"
    builder = GalleryBuilder(annotation, problems)
    names = [name for split in read_json(annotation).values() for name in split]
    files = []
    for name in names:
        file = base / "annotations" / name
        if not file.is_file():
            problems.add("bad entry", annotation, name, f"names {file}, which is not there")
            continue
        files.append(file)
        for _, entry in entries(
            [read_json(file)], file, {"image": str, "short_caption": str, "extra_caption": str}, problems
        ):
            text = f"{entry['short_caption']}\n{entry['extra_caption']}"
            builder.add(name, base / "photos" / entry["image"], [". ".join(split_sentences(text))])
    return builder.gallery("train + valid + test", annotations=[annotation, *files])


def urban1k(home: Path, problems: Problems) -> Gallery:
    """One long caption an image: FLAIR's annotation file, or Long-CLIP's folders of 1.jpg and 1.txt."""
    annotation = home / "annotations/annotations.json"
    if annotation.exists():
        return _sentences(annotation, home / "images", problems)
    folder = home / "caption"
    builder = GalleryBuilder(folder, problems)
    files = sorted(folder.glob("*.txt"), key=lambda file: (len(file.stem), file.stem))
    for file in files:
        builder.add(file.name, home / "image" / f"{file.stem}.jpg", [file.read_text(encoding="utf-8").strip()])
    return builder.gallery("test", annotations=files)


def sharegpt4v(size: int) -> Reader:
    """A reader of the first `size` ShareGPT4V captions of SA-1B images, split and joined again by ". "."""

    def read(home: Path, problems: Problems) -> Gallery:
        annotation = first_there(home / "share4v_sam_10k.json", home / "share-captioner_coco_lcs_sam_1246k_1107.json")
        builder = GalleryBuilder(annotation, problems)
        found = listed(read_json(annotation), annotation)[:size]
        for position, entry in entries(found, annotation, {"image": str, "conversations": list}, problems):
            said = _field(next(iter(entry["conversations"][1:]), None), "value")
            text = ". ".join(split_sentences(said)) if isinstance(said, str) else said
            builder.add(f"entry {position}", _sam_image(home, entry["image"]), [text])
        if len(found) < size:
            problems.add("bad entry", annotation, "list", f"holds {len(found)} captions of the {size} expected")
        return builder.gallery(f"first {size}")

    return read


def _sam_image(home: Path, name: str) -> Path:
    """Where an SA-1B image lies: as named, without the folder `images`, or right in the set's folder."""
    shorter = re.sub(r"^sam/", "", name)
    tries = [name, shorter, name.replace("/images", ""), shorter.replace("images/", "", 1), Path(name).name]
    return first_there(*(home / one for one in tries))
