"""Writers: a real Phi-3 at tiny size, and a server on loopback that is slow, busy, broken and rude."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from goldiclip.config import ConfigError
from goldiclip.prepare.questions import prompt_for, read_questions
from goldiclip.prepare.stages import Questions, mark_of
from goldiclip.prepare.writers import KEY_VARIABLE, ModelWriter, ServerWriter, writer

pytest.importorskip("httpx")
from chat_server import Behaviour, Server, serving, slow

Models = Callable[[str], Path]
PROMPTS = [prompt_for("A dog."), prompt_for("A much longer caption about a dog and a cat." * 3), prompt_for("x")]


# --- in this process ------------------------------------------------------------------------------------------------


def test_a_batch_writes_what_each_prompt_gets_alone(models: Models) -> None:
    folder = str(models("phi3"))
    alone = ModelWriter(folder, batch=1, max_new_tokens=8).write(PROMPTS, Counter())
    together = ModelWriter(folder, batch=3, max_new_tokens=8).write(PROMPTS, Counter())
    assert together == alone
    assert len(set(together)) > 1


def test_the_prompt_goes_in_as_a_turn_of_the_chat(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ModelWriter(str(models("phi3")), max_new_tokens=1)
    seen: list[list[int]] = []
    generate = source.model.generate

    def listen(**inputs: object) -> object:
        seen.extend(inputs["input_ids"].tolist())  # type: ignore[attr-defined]
        return generate(**inputs)

    monkeypatch.setattr(source.model, "generate", listen)
    source.write(["Hello"], Counter())
    assert source.tokenizer.decode(seen[0]) == "<|user|>\nHello<|end|>\n<|assistant|>\n"


def test_a_model_that_writes_garbage_gives_no_questions_and_is_counted(models: Models) -> None:
    replies = ModelWriter(str(models("phi3")), max_new_tokens=8).write(PROMPTS, Counter())
    counts: Counter[str] = Counter()
    assert all(read_questions(reply or "", "A dog.", counts) == () for reply in replies)
    assert counts["reply without questions"] == len(PROMPTS)


def test_a_model_that_is_not_there_is_said(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        writer(str(tmp_path))


# --- a server -------------------------------------------------------------------------------------------------------


def ask(server: Server, prompts: list[str], **settings: object) -> tuple[list[str | None], Counter[str], list[float]]:
    """Replies, counts, and the pauses that were made (not slept)."""
    pauses: list[float] = []
    counts: Counter[str] = Counter()
    source = ServerWriter(server.url, "phi", sleep=pauses.append, **settings)  # type: ignore[arg-type]
    return source.write(prompts, counts), counts, pauses


def test_replies_come_back_in_order_with_many_in_flight() -> None:
    prompts = [f"prompt {number}" for number in range(24)]
    with serving(lambda prompt, _: slow(0.05 if "1" in prompt else 0.02, prompt.upper())) as server:
        replies, counts, _ = ask(server, prompts, in_flight=8)
    assert replies == [prompt.upper() for prompt in prompts]
    assert not counts
    assert 2 <= server.most_open <= 8
    body = server.requests[0]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("phi", 0.0, 500)


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (lambda prompt, number: slow(0.6), "timed out"),
        (lambda prompt, number: (503, b"busy"), "answered 503"),
        (lambda prompt, number: (429, b"too many"), "answered 429"),
        (lambda prompt, number: (200, b"<html>"), "answered garbage"),
        (lambda prompt, number: (200, b'{"choices": []}'), "answered garbage"),
        (lambda prompt, number: (200, b'{"choices": [{"message": {"content": null}}]}'), "answered garbage"),
    ],
)
def test_what_keeps_failing_is_tried_again_with_longer_pauses_and_then_counted(behave: Behaviour, reason: str) -> None:
    with serving(behave) as server:
        replies, counts, pauses = ask(server, ["hello"], attempts=3, timeout_seconds=0.2, first_pause_seconds=1.0)
    assert replies == [None]
    assert counts == {"request tried again": 2, f"server {reason}": 1}
    assert 1.0 <= pauses[0] <= 1.5
    assert 2.0 <= pauses[1] <= 3.0
    assert len(server.requests) == 3


def test_what_fails_once_is_mended_by_trying_again() -> None:
    with serving(lambda prompt, number: slow(0.6) if number == 0 else (200, "well")) as server:
        replies, counts, _ = ask(server, ["hello", "you"], timeout_seconds=0.3)
    assert replies == ["well", "well"]
    assert counts == {"request tried again": 2}


def test_a_request_the_server_refuses_is_not_repeated() -> None:
    with serving(lambda prompt, _: (400, b"too long") if prompt == "bad" else (200, "well")) as server:
        replies, counts, _ = ask(server, ["good", "bad"])
    assert replies == ["well", None]
    assert counts == {"server refused with 400": 1}
    assert len(server.requests) == 2


def test_a_server_that_is_not_there_is_counted() -> None:
    with serving(lambda prompt, _: (200, "")) as server:
        pass
    replies, counts, _ = ask(server, ["hello"], attempts=2)
    assert replies == [None]
    assert counts["server unreachable"] == 1


@pytest.mark.parametrize("status", [401, 404])
def test_a_wrong_key_or_model_stops_the_run_and_says_what_to_check(status: int) -> None:
    with (
        serving(lambda prompt, _: (status, b"no such model")) as server,
        pytest.raises(ConfigError, match=KEY_VARIABLE),
    ):
        ask(server, ["hello"])


def test_the_key_is_sent_and_appears_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "secret-key")
    with serving(lambda prompt, _: (200, "well")) as server:
        source = ServerWriter(server.url, "phi")
        source.write(["hello"], Counter())
    assert server.headers[0]["Authorization"] == "Bearer secret-key"
    assert "secret-key" not in str(source.fingerprint)
    assert b"secret-key" not in pickle.dumps(source)


def test_a_writer_is_named_by_address_and_model() -> None:
    source = writer("http://127.0.0.1:8000/v1#phi")
    assert isinstance(source, ServerWriter)
    assert (source.url, source.name) == ("http://127.0.0.1:8000/v1", "phi")
    with pytest.raises(ConfigError, match="#MODEL"):
        writer("http://127.0.0.1:8000/v1")


def test_a_server_that_moved_is_the_same_writer() -> None:
    """A job of a cluster listens elsewhere every day: what it answered yesterday still holds."""
    here, there, other = (Questions(f"http://{name}") for name in ("a:1/v1#phi", "b:2/v1#phi", "a:1/v1#qwen"))
    assert mark_of(here) == mark_of(there) != mark_of(other)
