"""The embedded corpus: what it draws is what it says, whoever reads it; and what it holds out is never shown."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import re
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from scene_reader import answers, is_true, phrases, read

from goldiclip.cli import main
from goldiclip.config import ConfigError
from goldiclip.data.captions import split_sentences
from goldiclip.data.scenes import Scene, Settings, is_held_out, scene, to_sample, write_corpus
from goldiclip.data.scenes.cutouts import Cutouts, colour_name
from goldiclip.data.scenes.draw import sprite
from goldiclip.data.scenes.graph import relation
from goldiclip.data.scenes.props import unseen_colour, unseen_texture
from goldiclip.data.scenes.questions import QUESTION_KINDS
from goldiclip.data.scenes.sample import single
from goldiclip.data.scenes.vectors import OUTLINES
from goldiclip.data.scenes.vocabulary import COLOURS, DRAWINGS, KINDS, SHAPES, SIZES, TEXTURES
from goldiclip.data.scenes.words import indefinite, listing, plural
from goldiclip.data.shards import Shards
from goldiclip.data.tokenizer import Tokenizer

SETTINGS = Settings(size=80)
CORPUS = Settings(count=60, held_out=160, size=64, seed=3, per_shard=25, kinds=40)
SETS = ("retrieval", "fine_grained", "long", "questions")


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [scene(i, 7, SETTINGS, "train") for i in range(300)]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("scenes") / "corpus", CORPUS)


@pytest.fixture(scope="module")
def gallery(corpus: Path) -> dict[str, Scene]:
    """The held-out scenes drawn anew from their keys."""
    keys = [path.stem for path in sorted((corpus / "eval" / "images").iterdir())]
    return {key: scene(int(key.split("-")[1]), CORPUS.seed, CORPUS, "held_out") for key in keys}


def annotations(corpus: Path, name: str) -> dict[str, list[str]]:
    """Captions by key, of an evaluation set in retrieval form."""
    rows = json.loads((corpus / "eval" / f"{name}.json").read_text())["annotations"]
    return {Path(row["image"]).stem: row["captions"] for row in rows}


def sentences_of(scene: Scene) -> list[str]:
    captions = [caption for caption in to_sample(scene).captions if caption.source != "raw"]
    return [sentence for caption in captions for sentence in split_sentences(caption.text)]


# --- drawing --------------------------------------------------------------------------------------------------------


def test_a_scene_is_a_function_of_its_number() -> None:
    first, again, other = (scene(5, seed, SETTINGS, "train") for seed in (0, 0, 1))
    assert to_sample(first) == to_sample(again)
    assert to_sample(first).image != to_sample(other).image
    assert to_sample(first).image != to_sample(scene(5, 0, SETTINGS, "held_out")).image


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_drawn_in_every_texture_and_shape(kind: str) -> None:
    shapes = SHAPES if "shape" in DRAWINGS[kind] else ("",)
    for texture, shape in zip(itertools.cycle(TEXTURES), (*shapes, *shapes[:1] * 6), strict=False):
        picture = np.asarray(sprite(kind, "red", texture, shape, pixels=24, degrees=10, flip=True))
        opaque = (picture[..., 3] > 128).mean()
        assert opaque > 0.1, f"{texture} {shape} {kind} covers {opaque:.0%} of its box"
        assert 20 < max(picture.shape[:2]) < 36


@pytest.mark.parametrize("kind", KINDS)
def test_a_thing_has_the_colour_it_is_said_to_have(kind: str) -> None:
    """Enough of its pixels are nearest to its colour, of all the colours there are."""
    names, palette = list(COLOURS), np.array(list(COLOURS.values()), float)
    for colour in ("red", "green", "purple"):
        picture = np.asarray(sprite(kind, colour, pixels=48)).astype(float)
        opaque = picture[picture[..., 3] > 200][:, :3]
        nearest = np.linalg.norm(opaque[:, None] - palette, axis=-1).argmin(1)
        counts = np.bincount(nearest, minlength=len(names))
        counts[[names.index(name) for name in ("black", "white", "grey", "brown")]] = 0  # rims, eyes, wheels, stems
        assert names[counts.argmax()] == colour


def test_shapes_have_outlines_and_sizes_do_not_touch() -> None:
    assert set(SHAPES) == set(OUTLINES)
    ranges = list(SIZES.values())
    assert all(below[1] + 0.05 < above[0] for below, above in itertools.pairwise(ranges))


def test_larger_things_find_room_too() -> None:
    def covered(zoom: float) -> float:
        settings = Settings(size=64, zoom=zoom, max_objects=2)
        return float(np.mean([(scene(i, 0, settings, "train").owner > 0).mean() for i in range(100)]))

    assert covered(1.5) > 1.3 * covered(1.0)


def test_boxes_are_the_extents_of_what_is_visible(scenes: list[Scene]) -> None:
    for drawn in scenes:
        size = drawn.owner.shape[0]
        assert drawn.owner.max() == len(drawn.groups)
        for i, group in enumerate(drawn.groups):
            rows, columns = np.nonzero(drawn.owner == i + 1)
            assert group.box == (
                columns.min() / size,
                rows.min() / size,
                (columns.max() + 1) / size,
                (rows.max() + 1) / size,
            )
            for x0, y0, x1, y1 in group.boxes:
                inside = drawn.owner[round(y0 * size) : round(y1 * size), round(x0 * size) : round(x1 * size)] == i + 1
                assert inside[[0, -1]].any(1).all()
                assert inside[:, [0, -1]].any(0).all()


def test_what_hides_is_in_front_and_relations_have_opposites(scenes: list[Scene]) -> None:
    opposite = {
        "left": "right",
        "right": "left",
        "above": "below",
        "below": "above",
        "front": "behind",
        "behind": "front",
    }
    seen = set()
    for drawn in scenes:
        for i, j in itertools.permutations(range(len(drawn.groups)), 2):
            name = relation(drawn, i, j)
            seen.add(name)
            assert relation(drawn, j, i) == opposite.get(name, "")
            if name in ("front", "behind"):
                assert {(i, j), (j, i)} & drawn.covers
    assert seen == {*opposite, ""}


# --- language -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noun", "many"),
    [
        ("cup", "cups"),
        ("bus", "buses"),
        ("cherry", "cherries"),
        ("leaf", "leaves"),
        ("cactus", "cacti"),
        ("fish", "fish"),
        ("fireman", "firemen"),
        ("computer mouse", "computer mice"),
        ("statue of liberty", "statues of liberty"),
        ("bow and arrow", "bows and arrows"),
        ("potato", "potatoes"),
        ("piano", "pianos"),
        ("toy", "toys"),
        ("box", "boxes"),
    ],
)
def test_plurals(noun: str, many: str) -> None:
    assert plural(noun) == many


@pytest.mark.parametrize(
    "phrase",
    [
        "a cup",
        "an umbrella",
        "a unicorn",
        "an hourglass",
        "a one-way sign",
        "an X-ray",
        "a UFO",
        "an igloo",
        "a ewe",
        "a user",
    ],
)
def test_the_article_follows_the_sound(phrase: str) -> None:
    assert indefinite(phrase.split(" ", 1)[1]) == phrase


def test_lists() -> None:
    assert [listing(list("abc")[:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]


def test_captions_are_grammatical(scenes: list[Scene]) -> None:
    for sentence in itertools.chain.from_iterable(map(sentences_of, scenes)):
        assert sentence[0].isupper(), sentence
        assert not re.search(r"  |\s$|^\s| ,|,,|\bthe the\b|\ba an?\b", sentence), sentence
        for article, word in re.findall(r"\b(an?) (\w+)", sentence, flags=re.IGNORECASE):
            assert (article.lower() == "an") == (word[0] in "aeiou"), sentence
        for said in phrases(sentence):
            assert said.is_plural == (said.count > 1) or plural(said.kind) == said.kind, sentence
        if match := re.search(r"^(?:The (?:\w+ )?)?(\w+)\b.*? (is|are|has|have|hides|hide)\b", sentence):
            subject = phrases(sentence[: match.start(2)])
            if len(subject) == 1 and subject[0].text == sentence[: match.start(2)].removesuffix(" partly ").strip():
                assert (match[2] in ("are", "have", "hide")) == (subject[0].count > 1), sentence


def test_there_are_a_raw_three_short_and_three_long_captions(scenes: list[Scene]) -> None:
    for drawn in scenes:
        captions = to_sample(drawn).captions
        assert [caption.source for caption in captions] == ["raw", *["short"] * 3, *["long"] * 3]
        assert len({caption.text for caption in captions}) == 7
        assert all("." not in caption.text for caption in captions if caption.source != "long")


def test_every_sentence_is_true_of_its_scene(scenes: list[Scene]) -> None:
    for drawn in scenes:
        for sentence in sentences_of(drawn):
            assert is_true(read(sentence), drawn), f"{drawn.key}: {sentence}"


def test_the_second_reader_finds_a_wrong_word_out(scenes: list[Scene]) -> None:
    """The oracle above is worth something: another colour, number, side or ground makes a caption false."""
    drawn = next(s for s in scenes if len(s.groups) == 2 and relation(s, 0, 1) == "left" and not s.covers)
    one, other = drawn.groups
    true = f"A {one.look.colour} {one.kind} to the left of a {other.look.colour} {other.kind}"
    assert is_true(read(true), drawn, exact=False)
    assert not is_true(read(true.replace("left", "right")), drawn, exact=False)
    wrong = next(colour for colour in COLOURS if colour != one.look.colour)
    assert not is_true(read(true.replace(one.look.colour, wrong, 1)), drawn, exact=False)
    assert not is_true(read(f"Five {plural(one.kind)}"), drawn)


def test_long_captions_fit_the_text_tower(scenes: list[Scene]) -> None:
    texts = [caption.text for drawn in scenes for caption in to_sample(drawn).captions]
    assert Tokenizer().encode(texts).truncated.float().mean() < 0.002


def test_regions_are_where_their_phrases_are(scenes: list[Scene]) -> None:
    """A phrase fits one group alone; the region's box is that group's, its sentence holds the phrase."""
    for drawn in scenes:
        sample = to_sample(drawn)
        sentences = {sentence for caption in sample.captions for sentence in split_sentences(caption.text)}
        assert sample.regions
        for region in sample.regions:
            said = phrases(region.phrase)[0]
            fitting = [i for i, group in enumerate(drawn.groups) if is_true(read(region.phrase), only(drawn, i))]
            assert len(fitting) == 1, f"{drawn.key}: {region.phrase}"
            assert region.box == drawn.groups[fitting[0]].box
            assert region.sentence in sentences
            assert said.text.lower() in region.sentence.lower()


def only(drawn: Scene, index: int) -> Scene:
    """The scene with one of its groups alone."""
    owner = (drawn.owner == index + 1).astype(np.uint8)
    return dataclasses.replace(drawn, groups=(drawn.groups[index],), owner=owner, covers=frozenset())


def test_questions_have_the_answers_a_second_reader_finds(scenes: list[Scene]) -> None:
    seen = set()
    for drawn in scenes:
        for question in to_sample(drawn).questions:
            seen.add(question.kind)
            found = answers(question.question, drawn)
            assert question.answer in found, f"{drawn.key}: {question}"
            if question.kind in ("count", "color", "shape"):
                assert len(found) == 1, f"{drawn.key}: {question} {found}"
    assert seen == set(QUESTION_KINDS)


# --- held out -------------------------------------------------------------------------------------------------------


def looks_of(split: str, count: int) -> set[tuple[str, str, str]]:
    settings = Settings(size=48, kinds=24)
    drawn = (scene(i, 1, settings, split) for i in range(count))  # type: ignore[arg-type]
    return {(group.look.kind, group.look.colour, group.look.texture) for s in drawn for group in s.groups}


def test_held_out_combinations_are_never_trained_on() -> None:
    train, held_out = looks_of("train", 250), looks_of("held_out", 250)
    assert not train & held_out
    assert not any(is_held_out(*look) for look in train)
    assert all(is_held_out(*look) for look in held_out)
    pairs = {look[:2] for look in train}
    assert sum(look[:2] not in pairs for look in held_out) > 0.15 * len(held_out), (
        "whole (kind, colour) pairs are new too"
    )


def test_the_border_leaves_training_every_kind_colour_and_texture() -> None:
    for kind in KINDS:
        seen = [(c, t) for c in COLOURS for t in TEXTURES if not is_held_out(kind, c, t)]
        assert {c for c, _ in seen} == set(COLOURS) - {unseen_colour(kind)}
        assert {t for _, t in seen} == set(TEXTURES)
        assert len(seen) == (len(COLOURS) - 1) * (len(TEXTURES) - 1)
        assert all(is_held_out(kind, c, unseen_texture(kind, c)) for c in COLOURS)


# --- the corpus on disk ---------------------------------------------------------------------------------------------


def test_the_layout_is_the_documented_one(corpus: Path) -> None:
    assert {path.name for path in corpus.iterdir() if path.suffix != ".index"} == {
        "train",
        "held_out",
        "eval",
        "corpus.json",
    }
    folders = {"images", "segmentation", "classification", *(f"{name}.json" for name in SETS)}
    assert {path.name for path in (corpus / "eval").iterdir()} == folders
    train, held_out = Shards(str(corpus / "train" / "*.tar")), Shards(str(corpus / "held_out" / "*.tar"))
    assert (len(train), len(held_out)) == (CORPUS.count, CORPUS.held_out)
    assert list(train.lengths) == [25, 25, 10]
    images = {path.stem: path.read_bytes() for path in (corpus / "eval" / "images").iterdir()}
    assert {held_out[i].key: held_out[i].image for i in range(len(held_out))} == images
    about = json.loads((corpus / "corpus.json").read_text())
    assert about["complete"]
    assert about["settings"]["seed"] == CORPUS.seed
    assert about["counts"]["retrieval"]["images"] == CORPUS.held_out


def test_a_sample_comes_back_from_its_shard_as_it_was(corpus: Path) -> None:
    shards = Shards(str(corpus / "train" / "*.tar"))
    for i in (0, 33, 59):
        made, found = to_sample(scene(i, CORPUS.seed, CORPUS, "train")), shards[i]
        assert (found.key, found.image, found.captions, found.questions) == (
            made.key,
            made.image,
            made.captions,
            made.questions,
        )
        for one, other in zip(found.regions, made.regions, strict=True):
            assert (one.phrase, one.sentence) == (other.phrase, other.sentence)
            assert one.box == pytest.approx(other.box, abs=1e-6)


@pytest.mark.slow
def test_workers_and_interruptions_change_no_byte(corpus: Path, tmp_path: Path) -> None:
    """Two processes; then a shard and the evaluation sets lost, as after a kill."""
    settings = dataclasses.replace(CORPUS, held_out=32, per_shard=15)
    again = write_corpus(tmp_path / "again", settings, workers=2)
    alone, together = (list(Shards(str(folder / "train" / "*.tar"))) for folder in (corpus, again))
    assert [(s.key, s.image, s.captions) for s in alone] == [(s.key, s.image, s.captions) for s in together]
    before = contents(again)
    (again / "train" / "00001.tar").unlink()
    (again / "eval" / "long.json").unlink()
    (again / "eval").rename(again / ".eval.part")
    lines: list[str] = []
    write_corpus(again, settings, say=lines.append)
    assert contents(again) == before
    assert "15 scenes written" in lines[0]
    assert "45 were there" in lines[0]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.suffix != ".index"
    }


def test_a_finished_corpus_is_left_alone(corpus: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in corpus.rglob("*") if path.name != "corpus.json"}
    write_corpus(corpus, CORPUS)
    assert before == {path: path.stat().st_mtime_ns for path in corpus.rglob("*") if path.name != "corpus.json"}


def test_settings_do_not_mix(corpus: Path) -> None:
    with pytest.raises(ConfigError, match=r"other settings \(size 64 → 96, seed 3 → 4\)"):
        write_corpus(corpus, dataclasses.replace(CORPUS, size=96, seed=4))


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("do not touch")
    with pytest.raises(FileExistsError, match="holds other files"):
        write_corpus(tmp_path, CORPUS)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 8}, "size is 8; allowed: 48 to 1024"),
        ({"max_objects": 0}, "max_objects is 0"),
        ({"occlusion": 1.5}, "occlusion is 1.5"),
        ({"backgrounds": Path("photos")}, "give cutouts too"),
    ],
)
def test_settings_out_of_range_are_named(change: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings(**change)  # type: ignore[arg-type]


def test_a_gallery_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="held_out is 8"):
        write_corpus(tmp_path, Settings(count=0, held_out=8))


def test_a_gallery_without_enough_differences_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goldiclip.data.scenes.write.MAX_CANDIDATES", 0.5)
    with pytest.raises(ConfigError, match="of 100 held-out scenes have captions of their own; lower held_out"):
        write_corpus(tmp_path, Settings(count=0, held_out=100, kinds=1, max_objects=1, repeats=0, size=48))


# --- evaluation sets ------------------------------------------------------------------------------------------------


def test_every_caption_of_a_gallery_is_about_one_image(corpus: Path, gallery: dict[str, Scene]) -> None:
    """By its words, whoever reads them, even in a loose reading; and no text comes twice."""
    for name in ("retrieval", "fine_grained"):
        captions = annotations(corpus, name)
        texts = [text for row in captions.values() for text in row]
        assert len(texts) == len(set(texts))
        for key, row in captions.items():
            for text in row:
                said = read(text.removesuffix("."))
                meant = [other for other, drawn in gallery.items() if is_true(said, drawn, exact=False)]
                assert meant == [key], text


def test_every_image_is_asked_for(corpus: Path, gallery: dict[str, Scene]) -> None:
    assert set(annotations(corpus, "retrieval")) == set(annotations(corpus, "long")) == set(gallery)
    assert len(annotations(corpus, "fine_grained")) > 0.9 * len(gallery)
    long = annotations(corpus, "long")
    assert all(len(row) == 1 for row in long.values())
    assert len({row[0] for row in long.values()}) == len(gallery)
    for key, (text,) in long.items():
        said = [read(sentence) for sentence in split_sentences(text)]
        meant = [other for other, drawn in gallery.items() if all(is_true(one, drawn, exact=False) for one in said)]
        assert meant == [key], text


def test_questions_apply_to_the_relevant_images_alone(corpus: Path, gallery: dict[str, Scene]) -> None:
    rows = json.loads((corpus / "eval" / "questions.json").read_text())
    assert {row["q_type"] for row in rows.values()} == set(QUESTION_KINDS)
    assert len(rows) >= 60
    for row in rows.values():
        assert (len(set(row["pos_imgs"])), len(set(row["neg_imgs"]))) == (2, 23)
        assert row["split"] == "test"
        for name in row["pos_imgs"]:
            assert row["answer"] in answers(row["question"], gallery[Path(name).stem]), row["question"]
        for name in row["neg_imgs"]:
            assert not answers(row["question"], gallery[Path(name).stem]), row["question"]


def test_masks_show_the_kinds_that_are_visible(corpus: Path, gallery: dict[str, Scene]) -> None:
    folder = corpus / "eval" / "segmentation"
    listing = json.loads((folder / "classes.json").read_text())
    classes, ignore = listing["classes"], listing["ignore"]
    assert (ignore, len(classes), len(set(classes))) == (255, CORPUS.kinds, CORPUS.kinds)
    images = sorted(path.stem for path in (folder / "images").iterdir())
    assert images == sorted(path.stem for path in (folder / "masks").iterdir())
    for key in images:
        drawn, mask = gallery[key], np.asarray(Image.open(folder / "masks" / f"{key}.png"))
        assert mask.dtype == np.uint8
        assert mask.shape == (CORPUS.size, CORPUS.size)
        assert ((mask == ignore) == (drawn.owner == 0)).all()
        for i, group in enumerate(drawn.groups):
            assert (mask[drawn.owner == i + 1] == classes.index(group.kind)).all()


def test_class_folders_hold_single_things_never_trained_on(corpus: Path) -> None:
    folder = corpus / "eval" / "classification"
    assert {path.name for path in folder.iterdir()} == set(KINDS[: CORPUS.kinds])
    for kind in KINDS[:5]:
        files = sorted((folder / kind).iterdir())
        assert len(files) == 4
        for i, file in enumerate(files):
            drawn = single(kind, i, CORPUS.seed, CORPUS, "held_out")
            assert [(group.kind, group.count) for group in drawn.groups] == [(kind, 1)]
            look = drawn.groups[0].look
            assert is_held_out(look.kind, look.colour, look.texture)
            difference = np.abs(np.asarray(Image.open(file)).astype(int) - drawn.image)
            assert difference.mean() < 8


def test_the_command_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["scenes", str(tmp_path / "c"), "--count", "40", "--held-out", "0", "--size", "64", "--workers", "1"]
    assert main(words) == 0
    assert re.search(r"training: 40 scenes written in \d+ s, \d+ a second", capsys.readouterr().out)
    assert main([*words, "--seed", "9"]) == 2
    assert "other settings (seed 0 → 9)" in capsys.readouterr().err


def test_it_is_fast(capsys: pytest.CaptureFixture[str]) -> None:
    """100 samples a second and core is the aim; a fifth of it fails here, as machines are shared."""
    settings = Settings(size=128)
    for i in range(40):
        to_sample(scene(i, 0, settings, "train"))
    began = time.process_time()
    for i in range(100):
        to_sample(scene(i, 2, settings, "train"))
    rate = 100 / (time.process_time() - began)
    with capsys.disabled():
        print(f"\nscenes: {rate:.0f} samples of 128 pixels a second and core")
    assert rate > 20


# --- cut-outs -------------------------------------------------------------------------------------------------------


def picture(kind: int, number: int) -> Image.Image:
    """A small RGBA figure, another one for every kind and number."""
    image = Image.new("RGBA", (40, 30), (0, 0, 0, 0))
    colour = ((200, 30, 30, 255), (40, 60, 220, 255), (30, 160, 60, 255))[number % 3]
    pen = ImageDraw.Draw(image)
    (pen.ellipse if kind % 2 else pen.rectangle)((4, 4, 24 + number, 26), fill=colour)
    return image


def make_cutouts(folder: Path, layout: str) -> Path:
    names = ["cup", "bread", "tea pot", "scissors", "unicorn"]
    entries = [
        (f"{name.replace(' ', '_')}_{i}.png", name, picture(k, i)) for k, name in enumerate(names) for i in range(6)
    ]
    folder.mkdir(parents=True)
    if layout == "catalogue":
        with tarfile.open(folder / "cutouts.tar", "w") as tar:
            for file, _, image in entries:
                buffer = io.BytesIO()
                image.save(buffer, "WEBP", lossless=True)
                info = tarfile.TarInfo(file)
                info.size = len(buffer.getvalue())
                tar.addfile(info, io.BytesIO(buffer.getvalue()))
        (folder / "cutouts.json").write_text(json.dumps([{"file": file, "name": name} for file, name, _ in entries]))
    for file, name, image in entries:
        path = folder / file if layout == "names" else folder / name.replace(" ", "_") / file
        if layout != "catalogue":
            path.parent.mkdir(exist_ok=True)
            image.save(path)
    return folder


@pytest.mark.parametrize("layout", ["catalogue", "folders", "names"])
def test_three_layouts_of_cutouts_give_the_same_things(tmp_path: Path, layout: str) -> None:
    cutouts = Cutouts(make_cutouts(tmp_path / layout, layout))
    assert (
        list(cutouts.kinds("train"))
        == ["bread", "cup", "scissors", "tea pot", "unicorn"]
        == list(cutouts.kinds("held_out"))
    )


def test_cutouts_are_composed_like_drawings(tmp_path: Path) -> None:
    settings = Settings(size=64, cutouts=make_cutouts(tmp_path / "cutouts", "folders"))
    used: dict[str, set[str]] = {"train": set(), "held_out": set()}
    texts = ""
    for split, files in used.items():
        for i in range(60):
            drawn = scene(i, 0, settings, split)  # type: ignore[arg-type]
            sample = to_sample(drawn)
            texts += " ".join(caption.text for caption in sample.captions) + "\n"
            for k, group in enumerate(drawn.groups):
                files.add(group.look.cutout)
                rows, columns = np.nonzero(drawn.owner == k + 1)
                assert group.box == (
                    columns.min() / 64,
                    rows.min() / 64,
                    (columns.max() + 1) / 64,
                    (rows.max() + 1) / 64,
                )
            assert sample.regions
            assert sample.questions or all(group.kind in ("bread", "scissors") for group in drawn.groups)
    assert not used["train"] & used["held_out"]
    assert len(used["train"]) > len(used["held_out"]) > 0
    assert re.search(r"[Ss]ome (\w+ )*bread\b", texts)
    assert re.search(r"[Ss]ome (\w+ )*scissors\b", texts)
    assert not re.search(
        r"\b(an?|two|three|four|five) ((red|green|blue|small|little|large|big) )*(breads?|scissors)\b", texts
    )
    assert "a unicorn" in texts.lower()
    assert "an unicorn" not in texts.lower()


def test_photographs_can_lie_behind_cutouts(tmp_path: Path) -> None:
    """Each split has its own; a photograph has no name, so captions say nothing of the ground."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for i in range(8):
        Image.new("RGB", (70, 50), (30 * i, 128, 255 - 30 * i)).save(photos / f"{i}.png")
    settings = Settings(size=64, cutouts=make_cutouts(tmp_path / "cutouts", "names"), backgrounds=photos)
    shown: dict[str, set[int]] = {"train": set(), "held_out": set()}
    for split, tones in shown.items():
        for i in range(40):
            drawn = scene(i, 0, settings, split)  # type: ignore[arg-type]
            assert drawn.background == ""
            tones.add(int(np.median(drawn.image[drawn.owner == 0][:, 0])))
    assert len(shown["train"]) == 6
    assert len(shown["held_out"]) == 2
    assert not shown["train"] & shown["held_out"]


def test_a_corpus_of_cutouts_is_whole(tmp_path: Path) -> None:
    folder = make_cutouts(tmp_path / "cutouts", "folders")
    settings = Settings(count=20, held_out=40, size=64, cutouts=folder)
    corpus = write_corpus(tmp_path / "corpus", settings)
    assert len(Shards(str(corpus / "train" / "*.tar"))) == 20
    classes = json.loads((corpus / "eval/segmentation/classes.json").read_text())["classes"]
    assert classes == ["bread", "cup", "scissors", "tea pot", "unicorn"]
    picture(0, 1).save(folder / "cup" / "cup_77.png")
    with pytest.raises(ConfigError, match="things"):
        write_corpus(corpus, dataclasses.replace(settings, cutouts=folder.rename(tmp_path / "moved")))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"not a picture", "cup_0.png: not a picture that can be used"), (b"", "cup_0.png: not a picture")],
)
def test_a_broken_cutout_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    folder = make_cutouts(tmp_path / "cutouts", "names")
    (folder / "cup_0.png").write_bytes(content)
    cutouts = Cutouts(folder)
    with pytest.raises(ConfigError, match=message):
        cutouts._opened("cup_0.png")


def test_folders_without_cutouts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such folder of cut-outs"):
        Cutouts(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no picture"):
        Cutouts(tmp_path)
    picture(0, 0).save(tmp_path / "cup_1.png")
    with pytest.raises(ConfigError, match="two cut-outs or more"):
        Cutouts(tmp_path)


def test_backgrounds_that_are_no_pictures_are_refused(tmp_path: Path) -> None:
    folder = make_cutouts(tmp_path / "cutouts", "names")
    (tmp_path / "photos.tar").write_bytes(b"no tar at all" * 99)
    with pytest.raises(ConfigError, match=r"photos\.tar: neither a folder nor a plain tar"):
        Cutouts(folder, tmp_path / "photos.tar")


@pytest.mark.parametrize("content", ["{", '{"file": "a.png"}', "[1, 2]", "null", '[{"file": "a.png"}]'])
def test_a_damaged_catalogue_is_named(tmp_path: Path, content: str) -> None:
    folder = make_cutouts(tmp_path / "cutouts", "catalogue")
    (folder / "cutouts.json").write_text(content)
    with pytest.raises(ConfigError, match=r"cutouts\.json: expected a list"):
        Cutouts(folder)


def test_a_catalogue_cannot_reach_outside_its_folder(tmp_path: Path) -> None:
    folder = make_cutouts(tmp_path / "cutouts", "catalogue")
    picture(0, 0).save(tmp_path / "secret.png")
    (folder / "cutouts.json").write_text('[{"file": "../secret.png", "name": "cup"}]')
    with pytest.raises(ConfigError, match="lists 1 files that are not there"):
        Cutouts(folder)


def test_a_damaged_description_is_named(tmp_path: Path) -> None:
    (tmp_path / "corpus.json").write_text("half a fi")
    with pytest.raises(ConfigError, match=r"corpus\.json: not a corpus's description"):
        write_corpus(tmp_path, CORPUS)


@pytest.mark.parametrize("name", COLOURS)
def test_a_cutout_of_one_colour_is_said_to_have_it(name: str) -> None:
    assert colour_name(Image.new("RGBA", (30, 30), (*COLOURS[name], 255))) == name


def test_a_cutout_of_many_colours_is_said_to_have_none() -> None:
    image = Image.new("RGBA", (30, 30), (255, 0, 0, 255))
    image.paste((0, 0, 255, 255), (0, 0, 15, 30))
    assert colour_name(image) == ""


def test_real_cutouts_on_photographs(shared: Path, tmp_path: Path) -> None:
    """Five thousand cut-outs with a thousand names: every caption's articles and numbers, boxes and both splits."""
    settings = Settings(
        size=96, cutouts=shared / "data/cutouts", backgrounds=shared / "data/flickr8k/images.tar", kinds=400
    )
    files: dict[str, set[str]] = {"train": set(), "held_out": set()}
    for split, used in files.items():
        for i in range(30):
            drawn = scene(i, 0, settings, split)  # type: ignore[arg-type]
            used.update(group.look.cutout for group in drawn.groups)
            for sentence in sentences_of(drawn):
                assert sentence[0].isupper()
                assert not re.search(r"\ba [aeio]\w|  ", sentence), sentence
            assert all(0 <= x0 < x1 <= 1 and 0 <= y0 < y1 <= 1 for g in drawn.groups for x0, y0, x1, y1 in g.boxes)
    assert not files["train"] & files["held_out"]
