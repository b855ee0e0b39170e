"""Language models behind one small protocol: any instruct model of transformers, or any OpenAI-compatible server."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import torch

from goldiclip.config import ConfigError
from goldiclip.prepare.detectors import _transformers, from_folder_or_hub, in_batches

PHI = "microsoft/Phi-3.5-mini-instruct"
MAX_NEW_TOKENS = 500  # the paper's
KEY_VARIABLE = "GOLDICLIP_WRITER_KEY"


class Writer(Protocol):
    @property
    def fingerprint(self) -> Mapping[str, Any]:
        """What its answers depend on."""
        ...

    def write(self, prompts: Sequence[str], counts: Counter[str]) -> list[str | None]:
        """A reply to each prompt; None, and a reason counted, where there is none to be had."""
        ...


def writer(name: str, device: str = "cpu", batch: int = 32) -> Writer:
    """A writer by name: a model folder or hub id, or `http://HOST:PORT/v1#MODEL` for a server."""
    if name.startswith(("http://", "https://")):
        url, _, model = name.partition("#")
        if not model:
            raise ConfigError(f"writer {name!r}: say which model the server shall run: {name}#MODEL")
        return ServerWriter(url, model)
    return ModelWriter(name, device, batch)


# --- in this process ------------------------------------------------------------------------------------------------


class ModelWriter:
    """A causal language model of transformers: greedy, batched, padded on the left."""

    def __init__(
        self, model: str = PHI, device: str = "cpu", batch: int = 32, max_new_tokens: int = MAX_NEW_TOKENS
    ) -> None:
        transformers = _transformers()
        self.device = torch.device(device)
        self.precision = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        try:
            self.tokenizer: Any = from_folder_or_hub(transformers.AutoTokenizer, model, padding_side="left")
            self.model: Any = from_folder_or_hub(transformers.AutoModelForCausalLM, model, dtype=self.precision)
        except (OSError, ValueError) as error:
            raise ConfigError(f"writer {model!r} cannot be loaded: {str(error)[:300]}") from error
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.model.eval().to(self.device)
        self.name, self.batch, self.max_new_tokens = model, batch, max_new_tokens

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        precision = str(self.precision).removeprefix("torch.")
        return {"writer": "transformers", "model": self.name, "precision": precision, "tokens": self.max_new_tokens}

    def write(self, prompts: Sequence[str], counts: Counter[str]) -> list[str | None]:
        # Neighbours in length share a batch, so that little of it is padding.
        order = sorted(range(len(prompts)), key=lambda at: (len(prompts[at]), at))
        replies, self.batch = in_batches([prompts[at] for at in order], self._batch, self.batch, counts)
        found: list[str | None] = [None] * len(prompts)
        for at, reply in zip(order, replies):
            found[at] = reply
        return found

    @torch.inference_mode()
    def _batch(self, prompts: Sequence[str]) -> list[str]:
        texts = [self._as_chat(prompt) for prompt in prompts]
        is_plain = self.tokenizer.chat_template is None  # a chat template writes the special tokens itself
        tokens = self.tokenizer(texts, padding=True, add_special_tokens=is_plain, return_tensors="pt").to(self.device)
        tokens.pop("token_type_ids", None)
        written = self.model.generate(
            **tokens, do_sample=False, max_new_tokens=self.max_new_tokens, pad_token_id=self.tokenizer.pad_token_id
        )
        replies = written[:, tokens["input_ids"].shape[1] :]
        return [str(text) for text in self.tokenizer.batch_decode(replies, skip_special_tokens=True)]

    def _as_chat(self, prompt: str) -> str:
        if self.tokenizer.chat_template is None:
            return prompt
        turn = [{"role": "user", "content": prompt}]
        return str(self.tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))


# --- a server -------------------------------------------------------------------------------------------------------


class ServerWriter:
    """Any OpenAI-compatible server (vLLM, SGLang, llama.cpp, …): many requests in flight, each tried again.

    A key, where the server wants one, is read from GOLDICLIP_WRITER_KEY; it is written nowhere.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        in_flight: int = 32,
        attempts: int = 5,
        timeout_seconds: float = 120.0,
        first_pause_seconds: float = 1.0,
        max_new_tokens: int = MAX_NEW_TOKENS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url, self.name, self.in_flight, self.attempts = url.rstrip("/"), model, in_flight, attempts
        self.timeout_seconds, self.first_pause_seconds = timeout_seconds, first_pause_seconds
        self.max_new_tokens = max_new_tokens
        self._sleep = sleep

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return {"writer": "server", "model": self.name, "tokens": self.max_new_tokens}

    def write(self, prompts: Sequence[str], counts: Counter[str]) -> list[str | None]:
        tallies = [Counter[str]() for _ in prompts]
        with self._session() as client, ThreadPoolExecutor(max_workers=self.in_flight) as pool:
            replies = list(pool.map(partial(self._ask, client), prompts, tallies))
        for tally in tallies:
            counts.update(tally)
        return replies

    def _ask(self, client: Any, prompt: str, counts: Counter[str]) -> str | None:
        reason = ""
        for attempt in range(self.attempts):
            if attempt:
                counts["request tried again"] += 1
                self._sleep(self._pause(prompt, attempt))
            reply, reason = self._attempt(client, prompt)
            if reply is not None:
                return reply
            if reason.startswith("refused"):
                break
        counts[f"server {reason}"] += 1
        return None

    def _pause(self, prompt: str, attempt: int) -> float:
        """Doubling, and spread by up to a half so that requests refused together do not come back together."""
        spread = 1.0 + 0.5 * random.Random(f"{prompt}{attempt}").random()
        return min(self.first_pause_seconds * 2 ** (attempt - 1), 60.0) * spread

    def _attempt(self, client: Any, prompt: str) -> tuple[str | None, str]:
        """(reply, "") or (None, reason). What a later attempt cannot mend begins with "refused"."""
        httpx = _httpx()
        body = {
            "model": self.name,
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": self.max_new_tokens,
            "temperature": 0.0,
            "seed": 0,
        }
        try:
            answer = client.post(f"{self.url}/chat/completions", json=body)
        except httpx.TimeoutException:
            return None, "timed out"
        except httpx.HTTPError:
            return None, "unreachable"
        if answer.status_code in (401, 403, 404):
            said = f"writer {self.url}: the server answers {answer.status_code} for model {self.name!r}"
            raise ConfigError(f"{said}: {answer.text[:200]!r}; check the address, the model's name and {KEY_VARIABLE}")
        if answer.status_code == 429 or answer.status_code >= 500:
            return None, f"answered {answer.status_code}"
        if answer.status_code != 200:
            return None, f"refused with {answer.status_code}"
        return _content(answer)

    def _session(self) -> Any:
        key = os.environ.get(KEY_VARIABLE)
        limits = _httpx().Limits(max_connections=self.in_flight)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return _httpx().Client(timeout=self.timeout_seconds, limits=limits, headers=headers)


def _content(answer: Any) -> tuple[str | None, str]:
    try:
        content = answer.json()["choices"][0]["message"]["content"]
    except (ValueError, LookupError, TypeError):
        return None, "answered garbage"
    return (content, "") if isinstance(content, str) else (None, "answered garbage")


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise ConfigError("a writer behind a server needs httpx: pip install 'goldiclip[prepare]'") from error
    return httpx
