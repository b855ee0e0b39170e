"""Every set in its real layout, of tiny files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from set_layouts import WRITERS, write_all, write_csv, write_image, write_json, write_mask

from goldiclip.config import ConfigError
from goldiclip.evaluate.datasets import READERS, benchmarks
from goldiclip.evaluate.datasets.custom import read_custom
from goldiclip.evaluate.datasets.items import Gallery, Items, Labelled, Masked, Questions
from goldiclip.evaluate.datasets.labels import templates
from goldiclip.evaluate.datasets.segments import classes
from goldiclip.evaluate.problems import BadData, Problems
from goldiclip.inference.pictures import pixels

PARTIAL = {"sharegpt4v_1k", "sharegpt4v_10k"}  # the tiny tree holds fewer captions than their names say


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("sets"))


def read(name: str, root: Path, problems: Problems | None = None) -> Items:
    home = benchmarks()[name].find(root)
    assert home is not None
    return READERS[name](home, problems if problems is not None else Problems(strict=name not in PARTIAL))


def test_every_reader_is_described_and_has_a_layout() -> None:
    assert list(READERS) == list(benchmarks()) == list(WRITERS)


@pytest.mark.parametrize("name", READERS)
def test_a_set_is_found_and_its_pictures_decode(name: str, root: Path) -> None:
    items = read(name, root)
    assert len(items.pictures) > 1 or name in ("context59", "ade20k", "cityscapes", "coco_stuff")
    assert len({str(picture) for picture in items.pictures}) == len(items.pictures)
    for picture in items.pictures:
        assert pixels(picture).shape[0] == 3
    assert items.split
    assert all(path.exists() for path in items.annotations)


@pytest.mark.parametrize("name", READERS)
def test_a_set_that_is_not_there_is_not_found(name: str, tmp_path: Path) -> None:
    assert benchmarks()[name].find(tmp_path) is None


def gallery(name: str, root: Path) -> Gallery:
    found = read(name, root)
    assert isinstance(found, Gallery)
    assert len(found.texts) == len(found.owners)
    return found


def texts_of(found: Gallery, image: str) -> list[str]:
    (place,) = [place for place, picture in enumerate(found.pictures) if Path(picture).name == image]
    return [text for text, owner in zip(found.texts, found.owners, strict=True) if owner == place]


def test_coco_has_all_captions_of_each_image(root: Path) -> None:
    found = gallery("coco", root)
    assert len(found.texts) == 16
    assert texts_of(found, "000000000001.jpg") == [f"caption {k} of image 1" for k in range(6)]


def test_karpathy_has_the_test_split_and_five_sentences(root: Path) -> None:
    found = gallery("coco_karpathy", root)
    assert len(found.pictures) == 2
    assert len(found.texts) == 10


def test_flickr_has_either_split(root: Path) -> None:
    assert (len(gallery("flickr30k_val", root).pictures), len(gallery("flickr30k_test", root).texts)) == (2, 15)


def test_flickr_is_read_from_karpathys_file_too(tmp_path: Path) -> None:
    entry = {"filename": "1.jpg", "split": "val", "sentences": [{"raw": f"words {k}"} for k in range(5)]}
    write_json(tmp_path / "flickr30k/dataset_flickr30k.json", {"images": [entry]})
    write_image(tmp_path / "flickr30k/flickr30k-images/1.jpg")
    assert gallery("flickr30k_val", tmp_path).texts[4] == "words 4"


def test_each_sentence_is_a_query_of_its_own(root: Path) -> None:
    assert len(gallery("docci_fg", root).texts) == 2 + 3 + 4
    assert texts_of(gallery("iiw_fg", root), "b.jpg")[2] == "Fact 2 about docci_aar/b.jpg"


def test_docci_is_split_from_its_own_descriptions(tmp_path: Path) -> None:
    write_image(tmp_path / "docci/images/test_1.jpg")
    lines = [
        {"image_file": "test_1.jpg", "split": "test", "description": "A dog. It sits.\nOn grass."},
        {"image_file": "train_1.jpg", "split": "train", "description": "A cat."},
    ]
    (tmp_path / "docci/docci_descriptions.jsonlines").write_text("\n".join(map(json.dumps, lines)))
    found = gallery("docci_fg", tmp_path)
    assert found.texts == ("A dog", "It sits", "On grass")
    assert found.deviations


def test_image_in_words_is_split_from_its_own_descriptions(tmp_path: Path) -> None:
    """A line may hold breaks that only Python takes for the end of a line."""
    parts = {
        "DOCCI_Test": ("docci", {"image": "test_7", "IIW": "A dog.\u2028It sits. Now."}),
        "IIW-400": ("docci_aar", {"image/key": "aar_test_9", "IIW": "One cat"}),
        "DCI_Test": ("dci", {"ex_id": "1-data.json", "image": "sa_3.jpg", "IIW": "A street. It rains."}),
    }
    for number, (part, (folder, entry)) in enumerate(parts.items()):
        (tmp_path / "imageinwords" / part).mkdir(parents=True)
        line = json.dumps(entry, ensure_ascii=False)
        (tmp_path / "imageinwords" / part / "data.jsonl").write_text(f"{line}\n", encoding="utf-8")
        name = str(entry.get("image", entry.get("image/key"))).removesuffix(".jpg")
        write_image(tmp_path / "imageinwords" / folder / f"{name}.jpg", seed=number)
    found = gallery("iiw_fg", tmp_path)
    assert found.texts == ("A dog", "It sits", "Now", "One cat", "A street", "It rains")
    assert (found.owners, len(found.annotations)) == ((0, 0, 0, 1, 2, 2), 3)
    assert found.deviations
    (tmp_path / "imageinwords/docci_aar/aar_test_9.jpg").unlink()
    with pytest.raises(BadData, match=r"IIW-400.data\.jsonl, entry 0: names .*aar_test_9\.jpg"):
        gallery("iiw_fg", tmp_path)


def test_dci_joins_short_and_long(root: Path) -> None:
    found = gallery("dci", root)
    assert len(found.texts) == 4
    assert found.texts[1] == "A place 1. It has a door. There are 1 windows"


def test_urban_is_read_in_both_layouts(root: Path, tmp_path: Path) -> None:
    assert len(gallery("urban1k", root).texts) == 3
    for i in (1, 2, 10):
        write_image(tmp_path / f"Urban1k/image/{i}.jpg", seed=i)
        (tmp_path / "Urban1k/caption").mkdir(exist_ok=True)
        (tmp_path / f"Urban1k/caption/{i}.txt").write_text(f"street {i}\n")
    assert gallery("urban1k", tmp_path).texts == ("street 1", "street 2", "street 10")


def test_sharegpt4v_says_when_it_is_not_whole(root: Path) -> None:
    problems = Problems()
    found = read("sharegpt4v_1k", root, problems)
    assert isinstance(found, Gallery)
    assert found.texts[3] == "A view of 3. It is wide"
    assert "holds 4 captions of the 1000 expected" in str(problems.found[0])


def test_retvqa_has_five_kinds_of_the_test_split(root: Path) -> None:
    found = read("retvqa", root)
    assert isinstance(found, Questions)
    assert found.kinds == ("count", "color", "object-attributes", "shape", "relation")
    assert [len(pool) for pool in found.relevant] == [2] * 5
    assert [len(pool) for pool in found.others] == [4] * 5
    assert {Path(found.pictures[place]).stem for place in found.relevant[2]} == {"1002", "1003"}


def test_an_average_over_fewer_than_five_kinds_is_named(root: Path, tmp_path: Path) -> None:
    assert read("retvqa", root).deviations == ()
    WRITERS["retvqa"](tmp_path)
    path = tmp_path / "retvqa/retvqa_release_v1.json"
    found = json.loads(path.read_text())
    del found["3"]
    path.write_text(json.dumps(found))
    (said,) = read("retvqa", tmp_path).deviations
    assert said.startswith("no question of the kind shape: the average is over the others")


def test_an_unknown_kind_of_question_is_said(tmp_path: Path) -> None:
    write_image(tmp_path / "retvqa/VG_100K/1.jpg")
    entry = {"question": "?", "q_type": "mood", "split": "test", "pos_imgs": [1], "neg_imgs": []}
    write_json(tmp_path / "retvqa/retvqa_release_v1.json", {"7": entry})
    with pytest.raises(BadData, match=r"retvqa_release_v1\.json, question 7: q_type is 'mood', none of count"):
        read("retvqa", tmp_path)


# --- segmentation ---------------------------------------------------------------------------------------------------


def test_class_lists_have_the_published_lengths_and_names() -> None:
    lengths = {"voc20": 20, "context59": 59, "ade20k": 150, "cityscapes": 19, "coco_stuff": 171}
    assert {name: len(classes(name)) for name in lengths} == lengths
    assert classes("voc20")[3] == ("ship",)
    assert len(classes("voc20")[14]) == 7
    assert ("chestofdrawers",) in classes("ade20k")
    assert ("sky-other",) in classes("coco_stuff")


def test_names_that_were_run_together_can_be_spaced() -> None:
    assert classes("cityscapes", spaced=True)[6] == ("traffic light",)
    assert ("chest of drawers",) in classes("ade20k", spaced=True)
    assert classes("voc20", spaced=True)[14] == classes("voc20")[14]
    for name in ("voc20", "context59", "ade20k", "cityscapes", "coco_stuff"):
        before, after = classes(name), classes(name, spaced=True)
        joined = [tuple(one.replace(" ", "") for one in names) for names in after]
        assert joined == [tuple(one.replace(" ", "") for one in names) for names in before]


def test_segmentation_sets_have_their_conventions(root: Path) -> None:
    found = {name: read(name, root) for name in ("voc20", "context59", "ade20k", "cityscapes", "coco_stuff")}
    assert all(isinstance(items, Masked) for items in found.values())
    assert {name: items.zero_is_ignored for name, items in found.items()} == {  # type: ignore[attr-defined]
        "voc20": True, "context59": True, "ade20k": True, "cityscapes": False, "coco_stuff": False,
    }  # fmt: skip
    assert [items.short_side for items in found.values()] == [336, 336, 336, 560, 448]  # type: ignore[attr-defined]


def test_masks_that_were_not_converted_are_said_with_the_remedy(tmp_path: Path) -> None:
    write_mask(tmp_path / "cityscapes/gtFine/val/ulm/ulm_0_gtFine_labelIds.png", (7,))
    with pytest.raises(BadData, match="createTrainIdLabelImgs"):
        read("cityscapes", tmp_path)
    write_mask(tmp_path / "coco_stuff164k/annotations/val2017/0.png", (7,))
    with pytest.raises(BadData, match=r"coco_stuff164k\.py"):
        read("coco_stuff", tmp_path)


# --- classification -------------------------------------------------------------------------------------------------


def labelled(name: str, root: Path) -> Labelled:
    found = read(name, root)
    assert isinstance(found, Labelled)
    return found


@pytest.mark.parametrize(
    ("name", "names", "labels"),
    [
        ("food101", ("apple pie", "waffles"), (0, 0, 1)),
        ("sun397", ("abbey", "church indoor", "wine cellar barrel storage"), (0, 1, 2)),
        ("cars", ("AM General Hummer SUV 2000", "Acura RL Sedan 2012"), (1, 0)),
        ("aircraft", ("707-320", "BAE 146-200", "F/A-18"), (0, 1)),
        ("dtd", ("banded", "polka-dotted"), (0, 1)),
        ("pets", ("Abyssinian", "american bulldog"), (0, 1)),
    ],
)
def test_classes_and_labels(name: str, names: tuple[str, ...], labels: tuple[int, ...], root: Path) -> None:
    found = labelled(name, root)
    assert (found.classes, found.labels) == (names, labels)


@pytest.mark.parametrize(
    ("name", "reader", "options"),
    [
        ("food101", "Food101", {"split": "test"}),
        ("cars", "StanfordCars", {"split": "test"}),
        ("aircraft", "FGVCAircraft", {"split": "test", "annotation_level": "variant"}),
        ("dtd", "DTD", {"split": "test", "partition": 1}),
        ("pets", "OxfordIIITPet", {"split": "test"}),
    ],
)
def test_pictures_have_the_labels_that_torchvision_gives_them(
    name: str, reader: str, options: dict[str, Any], root: Path
) -> None:
    """Its own readers take the same tree."""
    from torchvision import datasets

    theirs = getattr(datasets, reader)(root, **options)
    found = labelled(name, root)
    assert len(theirs) == len(found.pictures)
    pixels_of = {tuple(np.asarray(image.convert("RGB")).flatten()[:300]): label for image, label in theirs}
    for picture, label in zip(found.pictures, found.labels, strict=True):
        with Image.open(picture) as image:
            assert pixels_of[tuple(np.asarray(image.convert("RGB")).flatten()[:300])] == label
    plain = [name.replace("_", " ").lower() for name in theirs.classes]
    assert [one.lower() for one in found.classes] == plain


def test_cifar_is_read_from_its_pickles(root: Path) -> None:
    assert labelled("cifar10", root).labels == (3, 0, 9)
    found = labelled("cifar100", root)
    assert found.classes[1] == "aquarium fish"
    assert isinstance(found.pictures[0], torch.Tensor)


def test_a_pickle_that_wants_more_than_an_array_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "test_batch").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(BadData, match=r"test_batch: asks for (os|posix)\.system"):
        labelled("cifar10", tmp_path)


def test_flowers_have_clips_names(root: Path) -> None:
    found = labelled("flowers", root)
    assert found.labels == (15, 59)
    assert [found.classes[label] for label in (15, 59, 98)] == [
        "globe flower", "pink and yellow dahlia", "bromelia",
    ]  # fmt: skip


def test_names_and_templates_are_clip_benchmarks() -> None:
    package = pytest.importorskip("clip_benchmark")
    folder = Path(package.__file__).parent / "datasets"
    theirs = json.loads((folder / "en_zeroshot_classification_templates.json").read_text())
    names = {
        "food101": "food101", "cifar": "cifar10", "sun397": "sun397", "cars": "cars", "aircraft": "fgvc_aircraft",
        "dtd": "dtd", "pets": "pets", "flowers": "flowers", "imagenet": "imagenet1k",
    }  # fmt: skip
    for ours, name in names.items():
        assert sorted(templates(ours)) == sorted(one.replace("{c}", "{}") for one in theirs[name]), ours
    from torchvision.datasets import Flowers102

    from goldiclip.evaluate.datasets.labels import FLOWERS

    wanted = json.loads((folder / "en_classnames.json").read_text())["flowers"]
    assert [FLOWERS.get(name, name) for name in Flowers102.classes] == wanted


def test_imagenet_wants_its_thousand_folders(root: Path, tmp_path: Path) -> None:
    found = labelled("imagenet", root)
    assert (len(found.classes), len(found.templates), found.labels) == (1000, 80, (0, 999))
    write_image(tmp_path / "imagenet/val/n01440764/1.JPEG")
    with pytest.raises(BadData, match="holds 1 class folders; expected 1000"):
        labelled("imagenet", tmp_path)


# --- one's own ------------------------------------------------------------------------------------------------------


def test_a_csv_of_captions_is_a_gallery(tmp_path: Path) -> None:
    for i in (1, 2):
        write_image(tmp_path / f"{i}.jpg", seed=i)
    rows = [{"image": "1.jpg", "caption": "a"}, {"image": "2.jpg", "caption": "b"}, {"image": "1.jpg", "caption": "c"}]
    found = read_custom(write_csv(tmp_path / "mine.csv", rows), Problems(strict=True))
    assert isinstance(found, Gallery)
    assert (found.texts, found.owners) == (("a", "b", "c"), (0, 1, 0))
    marked = tmp_path / "marked.csv"
    marked.write_bytes(b"\xef\xbb\xbf" + (tmp_path / "mine.csv").read_bytes())  # as spreadsheets save it
    assert read_custom(marked, Problems(strict=True)).pictures == found.pictures
    marked.write_bytes(b"image,caption\n1.jpg,caf\xe9\n")
    with pytest.raises(BadData, match=r"marked\.csv: no table of words"):
        read_custom(marked, Problems())


def test_json_lines_of_labels_are_classes(tmp_path: Path) -> None:
    write_image(tmp_path / "1.jpg")
    (tmp_path / "mine.jsonl").write_text('{"image": "1.jpg", "label": "dog"}\n{"image": "1.jpg", "label": "cat"}\n')
    found = read_custom(tmp_path / "mine.jsonl", Problems(strict=True))
    assert isinstance(found, Labelled)
    assert (found.classes, found.labels) == (("cat", "dog"), (1, 0))


def test_a_csv_of_questions_has_pools(tmp_path: Path) -> None:
    for i in (1, 2, 3):
        write_image(tmp_path / f"{i}.jpg", seed=i)
    row = {"question": "which?", "relevant": "1.jpg; 2.jpg", "others": "3.jpg", "kind": "count"}
    found = read_custom(write_csv(tmp_path / "q.csv", [row]), Problems(strict=True))
    assert isinstance(found, Questions)
    assert (found.relevant, found.others, found.kinds) == (((0, 1),), ((2,),), ("count",))


def test_folders_are_classes_or_masks(tmp_path: Path) -> None:
    write_image(tmp_path / "pets/cat/1.jpg")
    write_image(tmp_path / "pets/big_dog/2.png")
    found = read_custom(tmp_path / "pets", Problems(strict=True))
    assert isinstance(found, Labelled)
    assert found.classes == ("big dog", "cat")
    write_image(tmp_path / "seg/images/1.jpg")
    write_mask(tmp_path / "seg/masks/1.png", (0, 1))
    write_json(tmp_path / "seg/classes.json", {"classes": ["cat", ["dog", "puppy"]]})
    masks = read_custom(tmp_path / "seg", Problems(strict=True))
    assert isinstance(masks, Masked)
    assert masks.classes == (("cat",), ("dog", "puppy"))


def test_rows_of_another_form_are_said_by_number(tmp_path: Path) -> None:
    """A number is a label as good as a word, nought too, and no image."""
    write_image(tmp_path / "1.jpg")
    forms = {
        "captions": [
            {"image": "1.jpg", "caption": "a"},
            {"image": 7, "caption": "b"},
            {"image": "1.jpg", "caption": 5},
        ],
        "labels": [{"image": "1.jpg", "label": 0}, {"image": ["1.jpg"], "label": 1}, {"image": "1.jpg", "label": None}],
        "questions": [
            {"question": "?", "relevant": ["1.jpg"], "others": []},
            {"question": 3, "relevant": ["1.jpg"], "others": []},
            {"question": "?", "relevant": 1, "others": None},
        ],
    }
    for name, rows in forms.items():
        path, problems = tmp_path / f"{name}.jsonl", Problems()
        path.write_text("\n".join(map(json.dumps, rows)))
        assert len(read_custom(path, problems).pictures) == 1, name
        assert [one.key for one in problems.found] == ["row 2", "row 3"], name
    write_json(tmp_path / "seg/classes.json", {"classes": ["cat", []]})
    with pytest.raises(BadData, match=r"classes\.json: class 1 is \[\], expected a name"):
        read_custom(tmp_path / "seg", Problems())


def test_columns_that_mean_nothing_are_said(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "x.csv", [{"file": "1.jpg", "text": "a"}])
    with pytest.raises(BadData, match=r"x\.csv: has the columns file, text; expected image and caption\(s\)"):
        read_custom(path, Problems())
    (tmp_path / "x.xlsx").write_text("")
    with pytest.raises(ConfigError, match=r"ends in \.xlsx; allowed: \.csv, \.tsv, \.jsonl, or a folder"):
        read_custom(tmp_path / "x.xlsx", Problems())


# --- what is wrong is said by file and key ---------------------------------------------------------------------------


def test_a_missing_image_is_left_out_or_stops(tmp_path: Path) -> None:
    WRITERS["coco"](tmp_path)
    (tmp_path / "coco/images/val2017/000000000002.jpg").unlink()
    problems = Problems()
    found = read("coco", tmp_path, problems)
    assert isinstance(found, Gallery)
    assert (len(found.pictures), len(found.texts)) == (2, 11)
    assert "captions_val2017.json, image 20: names" in str(problems.found[0])
    with pytest.raises(BadData, match=r"image 20: names .*000000000002\.jpg, which is not there"):
        read("coco", tmp_path)


def test_a_question_without_one_of_its_images_is_left_out(tmp_path: Path) -> None:
    WRITERS["retvqa"](tmp_path)
    (tmp_path / "visual_genome/VG_100K/1000.jpg").unlink()
    problems = Problems()
    found = read("retvqa", tmp_path, problems)
    assert isinstance(found, Questions)
    assert len(found.texts) == 4
    assert "question 0: names" in str(problems.found[0])


def test_entries_of_another_form_are_said(tmp_path: Path) -> None:
    WRITERS["docci_fg"](tmp_path)
    path = tmp_path / "docci/annotations/test_annotations.json"
    content = json.loads(path.read_text())
    content["annotations"][1] = {"image": "test_00000.jpg", "captions": "x"}
    content["annotations"][2] = ["x"]
    path.write_text(json.dumps(content))
    problems = Problems()
    found = read("docci_fg", tmp_path, problems)
    assert isinstance(found, Gallery)
    assert len(found.texts) == 7
    assert [problem.key for problem in problems.found] == ["entry 1", "entry 2"]
    assert "has no 'caption'" in problems.found[0].found


def test_captions_that_are_no_words_are_said_by_entry(tmp_path: Path) -> None:
    for name in ("sharegpt4v_1k", "coco_karpathy", "flickr30k_val"):
        WRITERS[name](tmp_path)

    def spoil(file: str, change: Callable[[Any], None]) -> None:
        content = json.loads((tmp_path / file).read_text())
        change(content)
        (tmp_path / file).write_text(json.dumps(content))

    spoil("share4v/share4v_sam_10k.json", lambda found: found[2].update(conversations=[{"from": "human"}]))
    spoil("coco/dataset_coco.json", lambda found: found["images"][0]["sentences"].__setitem__(1, {"tokens": []}))
    spoil("flickr30k-images/flickr30k_val.json", lambda found: found[1]["caption"].__setitem__(4, " "))
    said = {}
    for name in ("sharegpt4v_1k", "coco_karpathy", "flickr30k_val"):
        problems = Problems()
        found = read(name, tmp_path, problems)
        assert isinstance(found, Gallery)
        said[name] = (len(found.texts), problems.found[0].key, problems.found[0].found)
    assert said["sharegpt4v_1k"] == (3, "entry 2", "caption 0 is None, expected words")
    assert said["coco_karpathy"] == (9, "COCO_val2014_000000000004.jpg", "caption 1 is None, expected words")
    assert said["flickr30k_val"] == (9, "entry 1", "caption 4 is ' ', expected words")


def test_questions_of_another_form_are_said(tmp_path: Path) -> None:
    WRITERS["retvqa"](tmp_path)
    path = tmp_path / "retvqa/retvqa_release_v1.json"
    content = json.loads(path.read_text())
    content["0"]["question"], content["1"]["pos_imgs"], content["2"]["pos_imgs"] = None, "1000", []
    path.write_text(json.dumps(content))
    problems = Problems()
    found = read("retvqa", tmp_path, problems)
    assert isinstance(found, Questions)
    assert len(found.texts) == 2
    assert [(one.key, one.found[:12]) for one in problems.found] == [
        ("question 0", "its question"), ("question 1", "pos_imgs and"), ("question 2", "has no relev"),
    ]  # fmt: skip


def test_a_file_that_is_no_json_is_said(tmp_path: Path) -> None:
    WRITERS["coco"](tmp_path)
    (tmp_path / "coco/annotations/captions_val2017.json").write_text("{")
    with pytest.raises(BadData, match=r"captions_val2017\.json: no JSON"):
        read("coco", tmp_path)


def test_labels_without_a_class_are_said(tmp_path: Path) -> None:
    WRITERS["aircraft"](tmp_path)
    listing = tmp_path / "fgvc-aircraft-2013b/data/images_variant_test.txt"
    listing.write_text(listing.read_text() + "1514522 Concorde\n")
    with pytest.raises(BadData, match=r"1514522: is of the variant 'Concorde', which variants\.txt does not list"):
        read("aircraft", tmp_path)


def test_the_page_lists_every_set_with_its_source() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/evaluation.md").read_text()
    for name, about in benchmarks().items():
        row = f"| {name} | {about.title} | {about.licence} | {about.source} | `{about.layout}` |"
        assert row in page or (name.startswith("scenes_") and name in page), name
