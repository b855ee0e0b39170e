"""Others' weights from a file to everything one can do with them, by the commands alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from open_clip.model import CLIP
from PIL import Image

from goldiclip.cli import main
from goldiclip.inference.command import open_index

words = pytest.importorskip("goldiclip.web.words", reason="the serve extra is not installed")
work = pytest.importorskip("goldiclip.web.work", reason="the serve extra is not installed")

WIDTH = 64
VISION = {"image_size": 32, "patch_size": 8, "width": 128, "layers": 2, "head_width": 64}
TEXT = {"context_length": 77, "vocab_size": 49408, "width": WIDTH, "heads": 1, "layers": 2}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for seed in range(9):
        coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize((40, 32), Image.Resampling.BICUBIC).save(folder / f"{seed}.png")
    return folder


def clip() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return CLIP(WIDTH, VISION, TEXT, init_logit_bias=-9.0).state_dict()


def flair() -> dict[str, torch.Tensor]:
    """A CLIP's towers with FLAIR's pooling and names around them."""
    state = clip()
    state["image_post.proj"], state["text_post.proj"] = state.pop("visual.proj"), state.pop("text_projection")
    attention = torch.nn.MultiheadAttention(WIDTH, 8)
    state |= {f"visual_proj.attn.{name}": tensor for name, tensor in attention.state_dict().items()}
    norms = torch.nn.LayerNorm(WIDTH).state_dict()
    for norm in ("ln_q", "ln_k", "ln_v"):
        state |= {f"visual_proj.{norm}.{name}": tensor for name, tensor in norms.items()}
    return state


def run(*said: object) -> None:
    assert main([str(word) for word in said]) == 0


def test_flair_is_indexed_searched_drawn_and_exported(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"state_dict": flair()}, tmp_path / "flair.pt")
    monkeypatch.chdir(tmp_path)
    encoder = ("--encoder", "flair:flair.pt", "--device", "cpu")
    run("index", photos, "--out", "index", *encoder)
    assert "16 patches at int8" in capsys.readouterr().out
    monkeypatch.chdir(photos)  # the index knows where its encoder is, wherever it is asked from
    run("search", "a red hat", "--index", tmp_path / "index", "--k", "3", "--device", "cpu")
    assert capsys.readouterr().out.count(".png") == 3
    monkeypatch.chdir(tmp_path)
    run("heatmap", photos / "1.png", "a red hat", "two dogs", *encoder)
    run("segment", photos / "1.png", "sky", "sea", *encoder)
    for drawn in ("heatmap.png", "segments.png"):
        with Image.open(drawn) as sheet:
            assert sheet.width > 800
    run("export", "flair:flair.pt", "--out", "out", "--formats", "encoder", "open_clip")
    assert "max error" in capsys.readouterr().out
    assert main(["caption", str(photos / "1.png"), *encoder]) == 2
    assert "no decoder" in capsys.readouterr().err
    served = work.Work(open_index(str(tmp_path / "index"), device="cpu"), lambda text: [])
    about = served.about()
    assert (about.looks_twice, about.speaks, about.segments) == (True, False, ["value", "sink", "attention"])


def test_a_clip_is_searched_by_its_one_stage(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(clip(), tmp_path / "clip.pt")
    run("index", photos, "--out", tmp_path / "index", "--encoder", f"open_clip:{tmp_path / 'clip.pt'}")
    assert f"{2 * WIDTH} bytes a picture" in capsys.readouterr().out  # of patches nothing is kept
    run("search", "a red hat", "--index", tmp_path / "index", "--image", photos / "3.png", "--k", "2")
    served = work.Work(open_index(str(tmp_path / "index"), device="cpu"), lambda text: [])
    assert served.about().looks_twice is False
    found = served.search(words.Search(text="a red hat", k=4))
    assert found.hits == found.first
    assert len(found.hits) == 4
