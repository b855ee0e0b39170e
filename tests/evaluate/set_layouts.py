"""A data root with every evaluation set in its real layout, of tiny files: `write_all(root)`.

Images are noise of a few pixels, different in each file; annotations have the form of the published ones.
"""

from __future__ import annotations

import csv
import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZE = (40, 36)  # width, height


def write_image(path: Path, seed: int = 0, size: tuple[int, int] = SIZE) -> Path:
    """Smooth noise, so that JPEG keeps it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 255, (6, 6, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path)
    return path


def write_mask(path: Path, values: Sequence[int], size: tuple[int, int] = SIZE, palette: bool = False) -> Path:
    """Vertical stripes of the given labels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stripes = np.array(values, dtype=np.uint8)[np.arange(size[0]) * len(values) // size[0]]
    mask = Image.fromarray(np.tile(stripes, (size[1], 1)))
    if palette:
        mask.putpalette([channel for value in range(256) for channel in (value, 255 - value, 128)])
    mask.save(path)
    return path


def write_json(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


# --- retrieval ------------------------------------------------------------------------------------------------------


def coco(root: Path) -> None:
    """Three images; the first has six captions."""
    images = [{"id": 10 * i, "file_name": f"{i:012d}.jpg"} for i in (1, 2, 3)]
    captions = [
        {"id": 100 * i + k, "image_id": 10 * i, "caption": f"caption {k} of image {i}"}
        for i in (1, 2, 3)
        for k in range(6 if i == 1 else 5)
    ]
    write_json(root / "coco/annotations/captions_val2017.json", {"images": images, "annotations": captions})
    for i in (1, 2, 3):
        write_image(root / f"coco/images/val2017/{i:012d}.jpg", seed=i)


def coco_karpathy(root: Path) -> None:
    """Two test images, one of them with six sentences, and a training image that is not there."""
    entries = []
    for i, split in ((4, "test"), (5, "test"), (6, "train")):
        name = f"COCO_val2014_{i:012d}.jpg"
        sentences = [{"raw": f"sentence {k} of {i}"} for k in range(6 if i == 4 else 5)]
        entries.append({"filename": name, "filepath": "val2014", "split": split, "sentences": sentences, "cocoid": i})
        if split == "test":
            write_image(root / "coco/images/val2014" / name, seed=i)
    write_json(root / "coco/dataset_coco.json", {"images": entries, "dataset": "coco"})


def flickr30k(root: Path) -> None:
    for split, names in (("val", ("18", "19")), ("test", ("20", "21", "22"))):
        entries = [
            {"image": f"flickr30k-images/{name}.jpg", "caption": [f"words {k} about {name}" for k in range(5)]}
            for name in names
        ]
        write_json(root / f"flickr30k-images/flickr30k_{split}.json", entries)
        for name in names:
            write_image(root / f"flickr30k-images/{name}.jpg", seed=int(name))


def docci_fg(root: Path) -> None:
    entries = []
    for i in range(3):
        write_image(root / f"docci/images/test_0000{i}.jpg", seed=30 + i)
        for k in range(2 + i):
            entries.append({"image_id": i, "image": f"test_0000{i}.jpg", "caption": f"Detail {k} of scene {i}"})
    write_json(root / "docci/annotations/test_annotations.json", {"annotations": entries})


def iiw_fg(root: Path) -> None:
    entries = []
    for i, name in enumerate(("docci/a.jpg", "docci_aar/b.jpg", "dci/c.jpg")):
        write_image(root / "imageinwords" / name, seed=40 + i)
        for k in range(3):
            entry = {"image_id": i, "image": name, "caption": f"Fact {k} about {name}", "caption_id": 3 * i + k}
            entries.append(entry)
    write_json(root / "imageinwords/finegrained_annotations.json", {"annotations": entries})


def dci(root: Path) -> None:
    base = root / "dci/densely_captioned_images"
    splits: dict[str, list[str]] = {"train": ["sa_1.json", "sa_2.json"], "valid": ["sa_3.json"], "test": ["sa_4.json"]}
    write_json(base / "splits.json", splits)
    for i, name in enumerate(name for names in splits.values() for name in names):
        image = name.replace(".json", ".jpg")
        write_image(base / "photos" / image, seed=50 + i)
        texts = {"short_caption": f"A place {i}.", "extra_caption": f"It has a door. There are {i} windows."}
        write_json(base / "annotations" / name, {"image": image, "mask_data": {}, **texts})


def urban1k(root: Path) -> None:
    entries = []
    for i in range(3):
        write_image(root / f"Urban1k/images/{221 + i}.jpg", seed=60 + i)
        entries.append({"image_id": i, "image": f"{221 + i}.jpg", "caption": " ".join([f"street {i}"] * 60)})
    write_json(root / "Urban1k/annotations/annotations.json", {"annotations": entries})


def sharegpt4v(root: Path, size: int = 4) -> None:
    """Image names as ShareGPT4V has them; the files lie without the folder `images`, as FLAIR's page has it."""
    entries = []
    for i in range(size):
        write_image(root / f"share4v/sa_000000/sa_{i}.jpg", seed=70 + i)
        say = [{"from": "human", "value": "Describe it."}, {"from": "gpt", "value": f"A view of {i}.\nIt is wide."}]
        entries.append({"id": f"sa_{i}", "image": f"sa_000000/images/sa_{i}.jpg", "conversations": say})
    write_json(root / "share4v/share4v_sam_10k.json", entries)


def retvqa(root: Path) -> None:
    """Five kinds of question, and one of the training split; images in both of Visual Genome's folders."""
    for i in range(12):
        write_image(root / f"visual_genome/VG_100K{'_2' if i % 2 else ''}/{1000 + i}.jpg", seed=80 + i)
    kinds = ("count", "color", "object-attributes", "shape", "relation-based")
    found = {}
    for place, kind in enumerate((*kinds, "color")):
        pool = [1000 + (place + step) % 12 for step in range(6)]
        found[str(place)] = {
            "question": f"What is the {kind} of thing {place}?",
            "answer": "two",
            "q_type": kind,
            "a_type": "generative",
            "split": "train" if place == 5 else "test",
            "pos_imgs": pool[:2],
            "neg_imgs": pool[2:],
        }
    write_json(root / "retvqa/retvqa_release_v1.json", found)


# --- segmentation ---------------------------------------------------------------------------------------------------


def voc20(root: Path) -> None:
    base = root / "VOCdevkit/VOC2012"
    for i, name in enumerate(("2007_000033", "2007_000042")):
        write_image(base / f"JPEGImages/{name}.jpg", seed=100 + i)
        write_mask(base / f"SegmentationClass/{name}.png", (0, 1 + i, 15, 255), palette=True)
    write_lines(base / "ImageSets/Segmentation/val.txt", ["2007_000033", "2007_000042"])


def context59(root: Path) -> None:
    base = root / "VOCdevkit/VOC2010"
    write_image(base / "JPEGImages/2008_000002.jpg", seed=110)
    write_mask(base / "SegmentationClassContext/2008_000002.png", (0, 1, 59))
    write_lines(base / "ImageSets/SegmentationContext/val.txt", ["2008_000002"])


def ade20k(root: Path) -> None:
    base = root / "ade/ADEChallengeData2016"
    write_image(base / "images/validation/ADE_val_00000001.jpg", seed=120)
    write_mask(base / "annotations/validation/ADE_val_00000001.png", (0, 1, 150))


def cityscapes(root: Path) -> None:
    write_image(root / "cityscapes/leftImg8bit/val/ulm/ulm_000000_000019_leftImg8bit.png", seed=130, size=(64, 32))
    mask = root / "cityscapes/gtFine/val/ulm/ulm_000000_000019_gtFine_labelTrainIds.png"
    write_mask(mask, (0, 18, 255), size=(64, 32))


def coco_stuff(root: Path) -> None:
    write_image(root / "coco_stuff164k/images/val2017/000000000139.jpg", seed=140)
    write_mask(root / "coco_stuff164k/annotations/val2017/000000000139_labelTrainIds.png", (0, 170, 255))


# --- classification -------------------------------------------------------------------------------------------------


def food101(root: Path) -> None:
    found = {"waffles": ["waffles/7"], "apple_pie": ["apple_pie/1", "apple_pie/2"]}
    write_json(root / "food-101/meta/test.json", found)
    for i, name in enumerate(name for names in found.values() for name in names):
        write_image(root / f"food-101/images/{name}.jpg", seed=150 + i)


def cifar10(root: Path) -> None:
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
    _cifar(root / "cifar-10-batches-py", "test_batch", "batches.meta", {"label_names": names}, "labels", [3, 0, 9])


def cifar100(root: Path) -> None:
    names = ["apple", "aquarium_fish", "baby", "bear", "beaver", *(f"class_{i}" for i in range(95))]
    _cifar(root / "cifar-100-python", "test", "meta", {"fine_label_names": names}, "fine_labels", [1, 99])


def _cifar(folder: Path, test: str, meta: str, names: dict[str, Any], key: str, labels: list[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 255, (len(labels), 3072), dtype=np.uint8)
    (folder / test).write_bytes(pickle.dumps({"data": pixels, key: labels}, protocol=2))
    (folder / meta).write_bytes(pickle.dumps(names, protocol=2))


def sun397(root: Path) -> None:
    names = ["/a/abbey", "/c/church/indoor", "/w/wine_cellar/barrel_storage"]
    write_lines(root / "SUN397/ClassName.txt", names)
    files = [f"{name}/sun_{i}.jpg" for i, name in enumerate(names)]
    write_lines(root / "SUN397/Testing_01.txt", files)
    for i, file in enumerate(files):
        write_image(root / f"SUN397{file}", seed=160 + i)


def cars(root: Path) -> None:
    from scipy.io import savemat

    base = root / "stanford_cars"
    (base / "devkit").mkdir(parents=True)
    names = np.array(["AM General Hummer SUV 2000", "Acura RL Sedan 2012"], dtype=object)
    savemat(base / "devkit/cars_meta.mat", {"class_names": names})
    fields = [("bbox_x1", "O"), ("class", "O"), ("fname", "O")]
    rows = np.array([(1, 2, "00001.jpg"), (1, 1, "00002.jpg")], dtype=fields)
    savemat(base / "cars_test_annos_withlabels.mat", {"annotations": rows})
    for i in (1, 2):
        write_image(base / f"cars_test/{i:05d}.jpg", seed=170 + i)


def aircraft(root: Path) -> None:
    base = root / "fgvc-aircraft-2013b/data"
    write_lines(base / "variants.txt", ["707-320", "BAE 146-200", "F/A-18"])
    write_lines(base / "images_variant_test.txt", ["1514522 707-320", "0747566 BAE 146-200"])
    for i, name in enumerate(("1514522", "0747566")):
        write_image(base / f"images/{name}.jpg", seed=180 + i)


def dtd(root: Path) -> None:
    files = ["banded/banded_0002.jpg", "polka-dotted/polka-dotted_0001.jpg"]
    write_lines(root / "dtd/dtd/labels/test1.txt", files)
    for i, file in enumerate(files):
        write_image(root / "dtd/dtd/images" / file, seed=190 + i)


def pets(root: Path) -> None:
    rows = ["Abyssinian_201 1 1 1", "american_bulldog_203 2 2 1"]
    write_lines(root / "oxford-iiit-pet/annotations/test.txt", rows)
    for i, row in enumerate(rows):
        write_image(root / f"oxford-iiit-pet/images/{row.split()[0]}.jpg", seed=200 + i)


def flowers(root: Path) -> None:
    from scipy.io import savemat

    base = root / "flowers-102"
    base.mkdir(parents=True)
    savemat(base / "setid.mat", {"tstid": np.array([[2, 3]]), "trnid": np.array([[1]]), "valid": np.array([[4]])})
    savemat(base / "imagelabels.mat", {"labels": np.array([[1, 16, 60, 102]])})
    for i in (2, 3):
        write_image(base / f"jpg/image_{i:05d}.jpg", seed=210 + i)


def imagenet(root: Path) -> None:
    for i in range(1000):
        (root / f"imagenet/val/n{i:08d}").mkdir(parents=True)
    for i in (0, 999):
        write_image(root / f"imagenet/val/n{i:08d}/ILSVRC2012_val_{i}.JPEG", seed=220 + i)


# --- the embedded corpus, and one's own ------------------------------------------------------------------------------


def scenes(root: Path) -> None:
    names = [f"images/s{i}.jpg" for i in range(5)]
    for i, name in enumerate(names):
        write_image(root / "eval" / name, seed=230 + i)
    for file, texts in (
        ("retrieval", ["a thing {}", "thing number {}"]),
        ("fine_grained", ["one fact of {}", "another fact of {}", "a third of {}"]),
        ("long", ["a long text about {} " * 30]),
    ):
        entries = [
            {"image": name, "captions": [text.replace("{}", str(i)) for text in texts]} for i, name in enumerate(names)
        ]
        write_json(root / f"eval/{file}.json", {"annotations": entries})
    pools = {
        str(i): {
            "question": f"how many in {i}?",
            "answer": "two",
            "q_type": kind,
            "split": "test",
            "pos_imgs": ["s0.jpg", f"s{1 + i % 4}.jpg"],
            "neg_imgs": [f"s{k}.jpg" for k in range(1, 5) if k != 1 + i % 4],
        }
        for i, kind in enumerate(("count", "color", "object-attributes", "shape", "relation"))
    }
    write_json(root / "eval/questions.json", pools)
    write_json(root / "eval/segmentation/classes.json", {"classes": ["cat", "red car", "sky"], "ignore": 255})
    for i in range(2):
        write_image(root / f"eval/segmentation/images/s{i}.jpg", seed=240 + i)
        write_mask(root / f"eval/segmentation/masks/s{i}.png", (0, 1, 255, 2))
    for i, name in enumerate(("cat", "red_car", "dog", "tree", "boat", "sun")):
        write_image(root / f"eval/classification/{name}/x{i}.jpg", seed=250 + i)


def write_csv(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


WRITERS: dict[str, Callable[[Path], None]] = {
    "coco": coco,
    "coco_karpathy": coco_karpathy,
    "flickr30k_val": flickr30k,
    "flickr30k_test": flickr30k,
    "docci_fg": docci_fg,
    "iiw_fg": iiw_fg,
    "dci": dci,
    "urban1k": urban1k,
    "sharegpt4v_1k": sharegpt4v,
    "sharegpt4v_10k": sharegpt4v,
    "retvqa": retvqa,
    "voc20": voc20,
    "cityscapes": cityscapes,
    "context59": context59,
    "ade20k": ade20k,
    "coco_stuff": coco_stuff,
    "food101": food101,
    "cifar10": cifar10,
    "cifar100": cifar100,
    "sun397": sun397,
    "cars": cars,
    "aircraft": aircraft,
    "dtd": dtd,
    "pets": pets,
    "flowers": flowers,
    "imagenet": imagenet,
    "scenes_short": scenes,
    "scenes_fine_grained": scenes,
    "scenes_long": scenes,
    "scenes_questions": scenes,
    "scenes_segmentation": scenes,
    "scenes_classification": scenes,
}


def write_all(root: Path) -> Path:
    for write in dict.fromkeys(WRITERS.values()):
        write(root)
    return root
