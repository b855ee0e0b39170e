"""From drawn scenes to a page that finds them, by the commands a user types."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from goldiclip.cli import main
from goldiclip.data.shards import Shards
from goldiclip.inference.command import open_index
from goldiclip.types import Sample

words = pytest.importorskip("goldiclip.web.words", reason="the serve extra is not installed")
work = pytest.importorskip("goldiclip.web.work", reason="the serve extra is not installed")

SCENES = 24
QUICK = "data.vocabulary=corpus data.captions=1 data.max_sentences=1 data.views.num_local=1 optim.lr=4e-3"


def run(*said: object) -> None:
    assert main([str(word) for word in said]) == 0


def test_what_was_learned_is_found_shown_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    simple = ["--kinds=8", "--max-objects=1", "--repeats=0", "--rivals=0", "--occlusion=0", "--size=48"]
    run("scenes", "corpus", "--count", SCENES, "--held-out", 0, "--workers", 1, *simple)
    training = ["data.train=corpus/train/*.tar", f"run.batch={SCENES}", f"run.samples={90 * SCENES}", *QUICK.split()]
    run("train", "tiny", *training, "--out", "run")
    run("index", "corpus/train/*.tar", "--encoder", "run", "--out", "index", "--device", "cpu")
    assert f"{SCENES} pictures ({SCENES} new" in capsys.readouterr().out

    page = work.Work(open_index("index", device="cpu"), lambda text: [])
    samples = list(Shards("corpus/train/*.tar"))
    captions = [next(one.text for one in sample.captions if one.source == "short") for sample in samples]
    ranks = []
    for sample, caption in zip(samples, captions):
        found = page.search(words.Search(text=caption, k=SCENES))
        ranks.append([hit.id for hit in found.hits].index(sample.key))
        assert page.thumbnail(found.hits[0].id, 64)[:2] == b"\xff\xd8"
    assert np.mean(np.array(ranks) < 5) > 0.5, ranks  # by chance 0.21
    assert page.caption(words.Captioning(image=samples[0].key)).text

    run("search", captions[0], "--index", "index", "--k", 3, "--device", "cpu")
    assert len(capsys.readouterr().out.strip().splitlines()) == 4
    formats = ("encoder", "open_clip", "vectors")
    probe = retrieval_set(samples, captions)
    run("export", "run", "--formats", *formats, "--index", "index", "--pictures", probe)
    table = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert tuple(row[0] for row in table) == formats
    assert all(float(row[2]) < 1e-2 for row in table), table
    assert all(row[5] == "+0.000" for row in table[:2]), table


def retrieval_set(samples: list[Sample], captions: list[str]) -> Path:
    entries = []
    for sample, caption in zip(samples, captions):
        Path(f"{sample.key}.jpg").write_bytes(sample.image)
        entries.append({"image": f"{sample.key}.jpg", "captions": [caption]})
    Path("retrieval.json").write_text(json.dumps({"annotations": entries}))
    return Path("retrieval.json")
