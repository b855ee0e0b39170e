"""An encoder goes to the hub and comes back, by the hub's own client."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import torch
from hub_server import hub

from goldiclip.config import Config, resolve
from goldiclip.data.tokenizer import Tokenizer, merged_tokens
from goldiclip.inference.engine import Engine
from goldiclip.model.goldiclip import GoldiCLIP

TEXTS = ["a red hat", "two dogs"]

# Another process: the client reads where the hub is once, when it is imported.
PUSH = """
import sys
from goldiclip import Engine
print(Engine.load(sys.argv[1], device="cpu").push_to_hub("somebody/hats", with_decoder=False, token="secret"))
"""
FETCH = """
import sys, torch
import goldiclip
from goldiclip import Engine
texts = sys.argv[2:]
first = Engine.from_pretrained("somebody/hats", cache_dir=sys.argv[1], device="cpu").embed_texts(texts)
again = Engine.from_pretrained("somebody/hats", cache_dir=sys.argv[1], local_files_only=True, device="cpu")
loaded = goldiclip.load("somebody/hats", device="cpu")
assert torch.equal(first, again.embed_texts(texts)) and torch.equal(first, loaded.embed_texts(texts))
print(loaded.name, again.modes, first.flatten().tolist())
try:
    goldiclip.load("somebody/nothing")
except FileNotFoundError as error:
    print(error)
"""


def run(code: str, *words: str, home: Path, url: str) -> str:
    environment = {**os.environ, "HF_ENDPOINT": url, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stdout


def test_an_encoder_goes_to_the_hub_and_comes_back(tiny: Config, tmp_path: Path) -> None:
    text = replace(tiny.model.text, tokens=merged_tokens(TEXTS))  # a small file
    config = resolve(replace(tiny, model=replace(tiny.model, text=text)))
    engine = Engine(
        GoldiCLIP(config.model, seed=7), image_size=32, tokenizer=Tokenizer.of(config.model.text), config=config
    )
    engine.save_pretrained(tmp_path / "encoder")
    expected = engine.embed_texts(TEXTS).cpu()
    with hub() as running:
        said = run(PUSH, str(tmp_path / "encoder"), home=tmp_path / "home", url=running.url)
        assert said.strip().startswith(f"{running.url}/somebody/hats/commit/")
        assert "Bearer secret" in running.tokens
        files = running.files["somebody/hats"]
        assert {"model.safetensors", "config.yaml", "README.md", "vocab.json", "merges.txt"} <= set(files)
        assert b"library_name: goldiclip" in files["README.md"]
        files["pytorch_model.bin"] = b"a pickle"  # which nobody asks for
        printed = run(FETCH, str(tmp_path / "cache"), *TEXTS, home=tmp_path / "home", url=running.url).splitlines()
    assert printed[0].startswith("somebody/hats ('tc', 'ta'")
    numbers = torch.tensor([float(one) for one in printed[0].rpartition("[")[2].rstrip("]").split(",")])
    torch.testing.assert_close(numbers.view(2, -1), expected)
    assert "somebody/nothing: no such folder here, and the hub did not give it" in printed[1]
    assert not list(tmp_path.rglob("pytorch_model.bin"))
