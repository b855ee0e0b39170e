"""The cache agrees with reading whole texts, beams are at least as good as greed, and a grammar is obeyed."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from goldiclip.config import Config
from goldiclip.data.tasks import parse_box
from goldiclip.data.tokenizer import Tokenizer
from goldiclip.inference.generate import Reader, generate
from goldiclip.inference.grammar import BoxGrammar
from goldiclip.model.goldiclip import GoldiCLIP
from goldiclip.types import ImageFeatures, Texts

PROMPT = [49406, 320, 1125, 539]


@pytest.fixture
def model(tiny: Config) -> GoldiCLIP:
    model = GoldiCLIP(tiny.model).double().eval()
    torch.nn.init.normal_(model.head.weight)  # far from uniform, so that every step has a clear winner
    return model


def memory(images: int) -> torch.Tensor:
    return torch.randn(images, 16, 32, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def whole_logits(model: GoldiCLIP, keys: torch.Tensor, rows: list[list[int]]) -> torch.Tensor:
    """(R, vocabulary) by reading each row whole, against its own image."""
    texts = Texts.pack(rows)
    features = ImageFeatures(keys.mean(1), keys, keys)
    return model.head(model.decode(texts, features, torch.arange(len(rows))))[texts.last]


@torch.no_grad()
def test_reading_piece_by_piece_is_reading_whole(model: GoldiCLIP) -> None:
    keys = memory(3)
    rows = [[*PROMPT, 10 + i, 20 + i, 30] for i in range(3)]
    reader = Reader(model, keys)
    for start, stop in ((0, 4), (4, 5), (5, 7)):
        logits = reader.read(torch.tensor([row[start:stop] for row in rows]))
        torch.testing.assert_close(logits, whole_logits(model, keys, [row[:stop] for row in rows]).float())


@torch.no_grad()
def test_selected_hypotheses_go_on_with_their_own_past(model: GoldiCLIP) -> None:
    keys = memory(2)
    rows = [[*PROMPT, 10], [*PROMPT, 11]]
    reader = Reader(model, keys)
    reader.read(torch.tensor(rows))
    reader.select(torch.tensor([1, 1, 0]))
    logits = reader.read(torch.tensor([[5], [6], [7]]))
    expected = whole_logits(model, keys[[1, 1, 0]], [[*rows[1], 5], [*rows[1], 6], [*rows[0], 7]])
    torch.testing.assert_close(logits, expected.float())


@torch.no_grad()
def test_greedy_takes_the_likeliest_token_each_time(model: GoldiCLIP) -> None:
    keys = memory(2)
    said = generate(model, keys, PROMPT, end=-1, max_tokens=5)
    for image, generated in enumerate(said):
        row = list(PROMPT)
        logs = []
        for token in generated.ids:
            odds = whole_logits(model, keys[image : image + 1], [row])[0].log_softmax(-1)
            assert token == int(odds.argmax())
            logs.append(float(odds.max()))
            row.append(token)
        assert generated.confidence == pytest.approx(torch.tensor(logs).mean().exp().item(), rel=1e-4)
        assert not generated.finished


@torch.no_grad()
def test_the_end_ends_and_is_not_said(model: GoldiCLIP) -> None:
    keys = memory(1)
    first, second = generate(model, keys, PROMPT, end=-1, max_tokens=2)[0].ids
    (stopped,) = generate(model, keys, PROMPT, end=second, max_tokens=9)
    assert stopped.ids == [first]
    assert stopped.finished


@torch.no_grad()
def test_enough_beams_find_the_best_of_all(model: GoldiCLIP) -> None:
    """Among the texts of three tokens from a small grammar, beam search over all of them finds the likeliest."""
    keys, words = memory(1), [7, 8, 9]

    def log_odds(text: tuple[int, ...]) -> float:
        total = 0.0
        for i, token in enumerate(text):
            logits = whole_logits(model, keys, [[*PROMPT, *text[:i]]])[0]
            total += float(logits[words].log_softmax(-1)[words.index(token)])
        return total

    best = max(product(words, repeat=3), key=log_odds)
    (said,) = generate(model, keys, PROMPT, end=-1, max_tokens=3, beams=27, grammar=lambda _: words)
    assert tuple(said.ids) == best


def test_a_prompt_without_room_is_refused(model: GoldiCLIP) -> None:
    with pytest.raises(ValueError, match="77"):
        generate(model, memory(1), [1] * 77, end=2)


def test_a_model_without_a_decoder_says_so(tiny: Config) -> None:
    from goldiclip.recipes import recipe

    with pytest.raises(ValueError, match="no decoder"):
        generate(GoldiCLIP(recipe("tiny/flair").model), memory(1).float(), PROMPT, end=2)


TOKENIZER = Tokenizer()


@given(st.integers(2, 300), st.randoms(use_true_random=False))
def test_whatever_the_grammar_allows_is_a_box(size: int, chance: object) -> None:
    grammar = BoxGrammar(TOKENIZER, size)
    said: list[int] = []
    while not said or said[-1] != TOKENIZER.eot:
        said.append(chance.choice(list(grammar(said))))
        assert len(said) <= 18
    x0, y0, x1, y1 = parse_box(TOKENIZER.decode(said))
    assert 0 <= x0 < x1 < size
    assert 0 <= y0 < y1 < size


@given(st.data())
def test_the_grammar_allows_every_box(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 300))
    x0, x1 = sorted(data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True)))
    y0, y1 = sorted(data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True)))
    grammar = BoxGrammar(TOKENIZER, size)
    tokens = TOKENIZER.tokens(f"[{x0}, {y0}, {x1}, {y1}]")
    for i, token in enumerate([*tokens, TOKENIZER.eot]):
        assert token in grammar(tokens[:i])


@torch.no_grad()
def test_a_box_is_said_whatever_the_model_thinks(model: GoldiCLIP) -> None:
    grammar = BoxGrammar(TOKENIZER, 32)
    for said in generate(model, memory(3), PROMPT, end=TOKENIZER.eot, beams=3, grammar=grammar):
        assert parse_box(TOKENIZER.decode(said.ids)) is not None
        assert said.finished


@torch.no_grad()
def test_only_what_was_chosen_counts_as_confidence(model: GoldiCLIP) -> None:
    """Brackets that a grammar forces are certain, and would make any box look so."""
    keys, forced, free = memory(1), [5], [7, 8]
    grammar = [forced, free, forced, free, forced]
    (said,) = generate(model, keys, PROMPT, end=-1, max_tokens=5, beams=4, grammar=lambda ids: grammar[len(ids)])
    odds = 1.0
    for place in (1, 3):
        logits = whole_logits(model, keys, [[*PROMPT, *said.ids[:place]]])[0]
        odds *= float(logits[free].softmax(-1)[free.index(said.ids[place])])
    assert said.confidence == pytest.approx(odds**0.5, rel=1e-4)
