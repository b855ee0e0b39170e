"""Retrieval, questions and classification against loops, clip_benchmark and chance."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from plain_sets import gallery, indifferent, labelled_set, phrases, pictures, question_set
from torch import Tensor

from goldiclip.evaluate.classification import class_features, classification
from goldiclip.evaluate.datasets.items import Gallery
from goldiclip.evaluate.encode import ImageBlocks, encode_texts
from goldiclip.evaluate.problems import BadData, Problems
from goldiclip.evaluate.questions import questions
from goldiclip.evaluate.retrieval import retrieval
from goldiclip.evaluate.scores import empty_matrix, image_standings, score_all, text_standings
from goldiclip.inference.engine import Engine
from goldiclip.types import Alone, TextFeatures


def plain_scores(engine: Engine, items: Gallery, mode: str) -> Tensor:
    """(images, texts), each pair scored by itself: FLAIR's way, one image and one text at a time."""
    with torch.no_grad():
        texts = [engine.model.encode_text(engine.tokenizer.encode([text])) for text in items.texts]
        images = [engine.model.encode_image(engine.normalise(picture[None])) for picture in items.pictures]
        return torch.tensor([[float(engine.model.score(image, text, mode)) for text in texts] for image in images])


def recalls_by_loops(scores: Tensor, owners: tuple[int, ...], k: int) -> tuple[float, float]:
    """text to image: the rank of the one right image; image to text: the best rank of its texts."""
    texts_right = images_right = 0
    for j, owner in enumerate(owners):
        ranking = sorted(range(len(scores)), key=lambda i: -scores[i, j])
        texts_right += ranking.index(owner) < k
    for i in range(len(scores)):
        ranking = sorted(range(len(owners)), key=lambda j: -scores[i, j])
        images_right += min(ranking.index(j) for j, owner in enumerate(owners) if owner == i) < k
    return texts_right / len(owners), images_right / len(scores)


@pytest.mark.parametrize("mode", ["tc", "ta"])
def test_recall_is_flairs_ranks(engine: Engine, mode: str) -> None:
    items = gallery()
    found = dict(retrieval(engine, items, modes=[mode]))
    scores = plain_scores(engine, items, mode)
    for k in (1, 5, 10):
        wanted = recalls_by_loops(scores, items.owners, k)
        got = (found[f"{mode}/text_to_image/recall@{k}"], found[f"{mode}/image_to_text/recall@{k}"])
        assert got == pytest.approx(wanted, abs=1e-9)


def test_recall_is_clip_benchmarks_on_the_same_embeddings(engine: Engine) -> None:
    """Its whole evaluation: loader, tokens, scores, recalls."""
    benchmark = pytest.importorskip("clip_benchmark.metrics.zeroshot_retrieval")
    items = replace(gallery(num_images=12), texts=phrases(36), owners=tuple(i // 3 for i in range(36)))

    class Theirs:
        def encode_image(self, images: Tensor) -> Tensor:
            return engine.model.encode_image(engine.normalise(images)).embedding

        def encode_text(self, places: Tensor) -> Tensor:
            texts = [items.texts[place] for place in places.tolist()]
            return engine.model.encode_text(engine.tokenizer.encode(texts)).embedding

    batches = [
        (
            torch.stack(items.pictures[start : start + 4]),
            [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(start, start + 4)],
        )
        for start in (0, 4, 8)
    ]
    theirs = benchmark.evaluate(Theirs(), batches, torch.tensor, "cpu", amp=False, recall_k_list=[1, 5, 10])
    ours = dict(retrieval(engine, items, modes=["ta"]))
    for k in (1, 5, 10):
        assert ours[f"ta/text_to_image/recall@{k}"] == pytest.approx(theirs[f"image_retrieval_recall@{k}"], abs=1e-6)
        assert ours[f"ta/image_to_text/recall@{k}"] == pytest.approx(theirs[f"text_retrieval_recall@{k}"], abs=1e-6)


def test_an_indifferent_encoder_gets_chance() -> None:
    items = gallery(num_images=11, captions=3)
    found = dict(retrieval(indifferent(), items, shortlist=3))
    num_texts = len(items.texts)
    for mode in ("tc", "ta", "tc@ta3"):
        assert found[f"{mode}/text_to_image/recall@5"] == pytest.approx(5 / 11, rel=1e-12)
        chance = [1 - math.comb(num_texts - own, 5) / math.comb(num_texts, 5) for own in [4] + [3] * 10]
        assert found[f"{mode}/image_to_text/recall@5"] == pytest.approx(sum(chance) / 11, rel=1e-12)


def test_blocks_do_not_matter(engine: Engine) -> None:
    items = gallery(num_images=13)
    engine.batch = 5
    by_five = dict(retrieval(engine, items))
    engine.batch = 13
    assert dict(retrieval(engine, items)) == pytest.approx(by_five, abs=1e-9)


def test_a_full_shortlist_is_plain_retrieval(engine: Engine) -> None:
    found = dict(retrieval(engine, gallery(), shortlist=1_000))
    for key, value in found.items():
        if key.startswith("tc/"):
            assert found[key.replace("tc/", "tc@ta1000/")] == pytest.approx(value, abs=1e-9)


def test_a_shortlist_of_one_is_text_agnostic_at_one(engine: Engine) -> None:
    found = dict(retrieval(engine, gallery(), shortlist=1))
    for way in ("text_to_image", "image_to_text"):
        assert found[f"tc@ta1/{way}/recall@1"] == pytest.approx(found[f"ta/{way}/recall@1"])


def test_a_shortlist_is_two_stages_by_loops(engine: Engine) -> None:
    items, k = gallery(num_images=9), 4
    agnostic, conditioned = plain_scores(engine, items, "ta"), plain_scores(engine, items, "tc")

    def two_stage(first: Tensor, second: Tensor) -> list[int]:
        order = sorted(range(len(first)), key=lambda i: -first[i])
        return sorted(order[:k], key=lambda i: -second[i]) + order[k:]

    ranks = [two_stage(agnostic[:, j], conditioned[:, j]).index(i) for j, i in enumerate(items.owners)]
    found = dict(retrieval(engine, items, modes=[], shortlist=k))
    for top in (1, 5):
        wanted = sum(rank < top for rank in ranks) / len(ranks)
        assert found[f"tc@ta4/text_to_image/recall@{top}"] == pytest.approx(wanted)
    hits = 0
    for i in range(len(agnostic)):
        order = two_stage(agnostic[i], conditioned[i])
        hits += items.owners[order[0]] == i
    assert found["tc@ta4/image_to_text/recall@1"] == pytest.approx(hits / len(agnostic))


def test_a_matrix_too_large_for_memory_lies_in_a_file(engine: Engine) -> None:
    items = gallery()
    texts, _ = encode_texts(engine, items.texts, Alone())
    blocks = ImageBlocks(engine, items.pictures, problems=Problems(), ranks=Alone())
    kept = score_all(engine, blocks, texts, ["tc", "ta"])
    filed = score_all(engine, blocks, texts, ["tc", "ta"], memory_bytes=100)
    owners, everyone = torch.tensor(items.owners), torch.ones(len(items.owners), dtype=torch.bool)
    for mode in ("tc", "ta"):
        assert torch.equal(kept[mode].rows, filed[mode].rows)
        ours = image_standings(filed[mode], owners, everyone, Alone())[1]
        assert torch.equal(ours.better, image_standings(kept[mode], owners, everyone, Alone())[1].better)
    empty_matrix((3, 4), engine.device, memory_bytes=0).fill_(1.0)


@pytest.mark.parametrize(("pictures_", "size"), [(19, 2), (20, 3), (3, 4), (0, 2), (16, 2)])
def test_ranks_know_the_largest_share(engine: Engine, pictures_: int, size: int) -> None:
    """All put their rows on one kind of device, whichever of them holds one block more."""
    of_ranks = [SimpleNamespace(rank=rank, size=size) for rank in range(size)]
    items = pictures(pictures_)
    shares = [ImageBlocks(engine, items, problems=Problems(), ranks=ranks) for ranks in of_ranks]  # type: ignore[arg-type]
    assert {share.largest_share for share in shares} == {max(len(share.index) for share in shares)}
    assert sum(len(share.index) for share in shares) == pictures_


def test_more_rows_than_are_compared_at_once_change_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    items = gallery()
    whole = dict(retrieval(engine, items, shortlist=3))
    monkeypatch.setattr("goldiclip.evaluate.scores.COMPARED_AT_ONCE", 70)  # two rows
    assert dict(retrieval(engine, items, shortlist=3)) == whole


def test_kept_features_change_nothing(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    items = gallery()
    kept = dict(retrieval(engine, items, modes=[], shortlist=3))
    monkeypatch.setattr("goldiclip.evaluate.retrieval.KEEP_BYTES", 30_000)  # the first block alone
    assert dict(retrieval(engine, items, modes=[], shortlist=3)) == kept


def test_texts_are_encoded_in_any_order(engine: Engine) -> None:
    texts = phrases(300)
    together, _ = encode_texts(engine, texts, Alone())
    with torch.no_grad():
        alone = torch.cat([engine.model.encode_text(engine.tokenizer.encode([text])).embedding for text in texts])
    torch.testing.assert_close(together.embedding, alone, atol=1e-5, rtol=1e-4)


def test_texts_that_are_cut_are_counted(engine: Engine) -> None:
    items = gallery(num_images=4)
    items = replace(items, texts=("cat " * 90, *items.texts[1:]))
    found = dict(retrieval(engine, items, modes=["ta"]))
    assert found["counts/truncated_texts"] == 1
    assert (found["counts/images"], found["counts/texts"]) == (4, 13)


# --- what cannot be used ----------------------------------------------------------------------------------------------


def test_a_picture_that_cannot_be_read_is_left_out_with_its_texts(engine: Engine) -> None:
    whole = gallery(num_images=10)
    broken = replace(whole, pictures=(*whole.pictures[:6], b"no picture", *whole.pictures[7:]))
    problems = Problems()
    found = dict(retrieval(engine, broken, shortlist=3, problems=problems))
    keep = [(text, owner) for text, owner in zip(whole.texts, whole.owners, strict=True) if owner != 6]
    smaller = replace(
        whole,
        pictures=(*whole.pictures[:6], *whole.pictures[7:]),
        texts=tuple(text for text, _ in keep),
        owners=tuple(owner - (owner > 6) for _, owner in keep),
    )
    wanted = dict(retrieval(engine, smaller, shortlist=3))
    for key in wanted:
        if not key.startswith("counts/"):
            assert found[key] == pytest.approx(wanted[key], abs=1e-9), key
    assert (found["counts/images"], found["counts/texts"]) == (9, len(smaller.texts))
    assert len(problems.of_all()) == 1
    assert "picture 6" in problems.of_all()[0]


def test_strict_stops_at_a_picture_that_cannot_be_read(engine: Engine) -> None:
    whole = gallery(num_images=4)
    broken = replace(whole, pictures=(*whole.pictures[:3], b"no picture"))
    with pytest.raises(BadData, match="picture 3"):
        list(retrieval(engine, broken, problems=Problems(strict=True)))


@pytest.mark.parametrize("evaluation", [retrieval, questions, classification])
def test_scores_that_are_no_numbers_are_said(evaluation: object) -> None:
    items = {retrieval: gallery, questions: question_set, classification: labelled_set}[evaluation]()  # type: ignore[index]
    with pytest.raises(ValueError, match=r"picture \d: its tc scores are not numbers"):
        list(evaluation(indifferent(math.nan), items))  # type: ignore[operator]


def test_a_text_of_an_image_never_read_is_no_candidate(engine: Engine) -> None:
    """Standings with a mask are standings without what it hides."""
    items = gallery(num_images=6, captions=2)
    texts, _ = encode_texts(engine, items.texts, Alone())
    blocks = ImageBlocks(engine, items.pictures, problems=Problems(), ranks=Alone())
    scores = score_all(engine, blocks, texts, ["tc"])["tc"]
    owners = torch.tensor(items.owners)
    is_image = torch.arange(6) != 2
    images, standing = image_standings(scores, owners, is_image[owners], Alone())
    assert images.tolist() == [0, 1, 3, 4, 5]
    keep = is_image[owners]
    smaller = scores.rows[is_image][:, keep]
    best = torch.stack([smaller[row, (owners[keep] == image)].max() for row, image in enumerate(images.tolist())])
    assert standing.better.tolist() == (smaller > best.unsqueeze(1)).sum(1).tolist()
    own = scores.rows[owners, torch.arange(len(owners))]
    wanted = (scores.rows[is_image] > own).sum(0)
    assert text_standings(scores, owners, is_image, Alone()).better[keep].tolist() == wanted[keep].tolist()


# --- questions --------------------------------------------------------------------------------------------------------


def test_questions_are_the_first_two_of_each_pool(engine: Engine) -> None:
    items = question_set()
    found = dict(questions(engine, items, modes=["tc"]))
    scores = plain_scores(engine, Gallery(**{**base(items), "owners": ()}), "tc")
    recall: dict[str, list[float]] = {}
    hit: dict[str, list[float]] = {}
    for q, kind in enumerate(items.kinds):
        pool = items.relevant[q] + items.others[q]
        first = sorted(pool, key=lambda i: -scores[i, q])[:2]
        right = len(set(first) & set(items.relevant[q]))
        recall.setdefault(kind, []).append(right / 2)
        hit.setdefault(kind, []).append(float(right > 0))
    for name, by_kind in (("recall@2", recall), ("hit@2", hit)):
        means = {kind: sum(values) / len(values) for kind, values in by_kind.items()}
        for kind, mean in means.items():
            assert found[f"tc/{kind}/{name}"] == pytest.approx(mean)
        assert found[f"tc/average/{name}"] == pytest.approx(sum(means.values()) / 5)
    assert found["counts/questions"] == 14


def base(items: object) -> dict[str, object]:
    return {name: getattr(items, name) for name in ("split", "annotations", "pictures", "texts")}


def test_pools_with_the_relevant_first_give_an_indifferent_encoder_chance() -> None:
    items = question_set(num=10)
    found = dict(questions(indifferent(), items, modes=["ta"]))
    wanted = sum(2 / len(items.relevant[q] + items.others[q]) for q in range(10)) / 10
    values = [found[f"ta/{kind}/recall@2"] for kind in ("count", "color", "object-attributes", "shape", "relation")]
    assert sum(values) / 5 == pytest.approx(wanted, rel=1e-6)


def test_a_question_with_a_picture_that_cannot_be_read_is_left_out(engine: Engine) -> None:
    items = question_set()
    broken = replace(items, pictures=(b"no picture", *items.pictures[1:]))
    found = dict(questions(engine, broken, modes=["ta"], problems=Problems()))
    with_it = sum(0 in items.relevant[q] + items.others[q] for q in range(14))
    assert found["counts/questions"] == 14 - with_it


# --- classification ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["tc", "ta"])
def test_classification_is_argmax_over_template_means(engine: Engine, mode: str) -> None:
    items = labelled_set()
    found = dict(classification(engine, items, modes=[mode]))
    with torch.no_grad():
        means = []
        for name in items.classes:
            prompts = [template.replace("{}", name) for template in items.templates]
            units = [
                torch.nn.functional.normalize(
                    engine.model.encode_text(engine.tokenizer.encode([one])).embedding[0], dim=0
                )
                for one in prompts
            ]
            means.append(torch.nn.functional.normalize(torch.stack(units).mean(0), dim=0))
        classes = TextFeatures(torch.stack(means), torch.zeros(0, 32), torch.ones(7))
        features = engine.model.encode_image(engine.normalise(torch.stack(items.pictures)))
        scores = engine.model.score(features, classes, mode)
    right = [int(scores[i].argmax()) == label for i, label in enumerate(items.labels)]
    assert found[f"{mode}/top1"] == pytest.approx(sum(right) / len(right))
    in_five = [label in scores[i].topk(5).indices.tolist() for i, label in enumerate(items.labels)]
    assert found[f"{mode}/top5"] == pytest.approx(sum(in_five) / len(in_five))


def test_classification_is_clip_benchmarks_on_the_same_embeddings(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = pytest.importorskip("clip_benchmark.metrics.zeroshot_classification")
    monkeypatch.setattr(benchmark, "float", lambda one: one.item(), raising=False)  # numpy 2.4 wants it said
    items = labelled_set()

    class Theirs:
        def encode_image(self, images: Tensor) -> Tensor:
            return engine.model.encode_image(engine.normalise(images)).embedding

        def encode_text(self, texts: list[str]) -> Tensor:
            return engine.model.encode_text(engine.tokenizer.encode(texts)).embedding

    class Prompts(list[str]):
        def to(self, _: object) -> Prompts:
            return self

    class Batches(list[tuple[Tensor, Tensor]]):
        dataset = items

    batches = Batches([(torch.stack(items.pictures), torch.tensor(items.labels))])
    templates = [template.replace("{}", "{c}") for template in items.templates]
    theirs = benchmark.evaluate(Theirs(), batches, Prompts, list(items.classes), templates, "cpu", amp=False)
    ours = dict(classification(engine, items, modes=["ta"]))
    for mine, name in (("top1", "acc1"), ("top5", "acc5"), ("mean_per_class", "mean_per_class_recall")):
        assert ours[f"ta/{mine}"] == pytest.approx(theirs[name], abs=1e-6)


def test_an_indifferent_encoder_classifies_by_chance() -> None:
    found = dict(classification(indifferent(), labelled_set(), modes=["tc"]))
    assert found["tc/top1"] == pytest.approx(1 / 7)
    assert found["tc/top5"] == pytest.approx(5 / 7)


def test_synonyms_are_queries_of_their_own(engine: Engine) -> None:
    features, _ = class_features(engine, [("cat",), ("dog", "puppy")], ("a {}", "the {}"), Alone())
    assert features.embedding.shape == (3, 32)
    torch.testing.assert_close(features.embedding.norm(dim=1), torch.ones(3))


def test_few_classes_have_no_top_five(engine: Engine) -> None:
    items = replace(labelled_set(num=4), pictures=pictures(4), labels=(0, 1, 1, 0), classes=("cat", "dog"))
    assert not any(key.endswith("top5") for key, _ in classification(engine, items))
