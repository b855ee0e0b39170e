"""The cost of annotation: arithmetic as the real models count it, and what follows from it."""

from __future__ import annotations

import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from goldiclip.cli import main
from goldiclip.config import ConfigError
from goldiclip.plan.annotation import DETECTORS, WRITERS, Annotation
from goldiclip.plan.devices import device_named


@pytest.mark.parametrize("name", ["owlv2-base", "owlv2-large"])
def test_a_detector_costs_what_the_real_class_computes(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = DETECTORS[name]
    vision = {"hidden_size": sizes.width, "intermediate_size": 4 * sizes.width, "num_hidden_layers": sizes.depth}
    vision |= {"num_attention_heads": sizes.width // 64, "image_size": sizes.image, "patch_size": sizes.patch}
    text = {"hidden_size": sizes.text_width, "intermediate_size": 4 * sizes.text_width, "num_hidden_layers": 12}
    text |= {"num_attention_heads": sizes.text_width // 64}
    config = transformers.Owlv2Config(text_config=text, vision_config=vision, projection_dim=sizes.text_width)
    with torch.device("meta"):
        model = transformers.Owlv2ForObjectDetection(config).eval()
        ids = torch.ones(8, 16, dtype=torch.int64)
        pixels = torch.zeros(1, 3, sizes.image, sizes.image)
    with FlopCounterMode(display=False) as counted, torch.no_grad():
        model(input_ids=ids, pixel_values=pixels)
    assert sizes.flops(phrases=8) == pytest.approx(counted.get_total_flops(), rel=0.03)


def test_a_writer_has_the_size_of_the_real_class() -> None:
    transformers = pytest.importorskip("transformers")
    shape = {"hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32}
    with torch.device("meta"):
        model = transformers.Phi3ForCausalLM(transformers.Phi3Config(vocab_size=32_064, **shape))
    assert WRITERS["phi-3.5-mini"].billions == pytest.approx(model.num_parameters() / 1e9, rel=2e-3)


def test_thirty_million_images_cost_what_their_seconds_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "annotate", "--gpus", "4", "--dollars-per-hour", "2"]) == 0
    said = capsys.readouterr().out
    assert "annotating 30,000,000 samples on 4 × h200" in said
    each = sum(Annotation().seconds(device_named("h200")).values())
    hours = 3e7 * each / 4 / 3600
    found = re.search(r"^all +([\d.]+) +([\d,]+) +([\d.]+) +\$([\d,]+)", said, flags=re.M)
    assert found
    assert float(found[1]) == pytest.approx(1e3 * each, abs=0.01)
    assert float(found[3]) == pytest.approx(hours, abs=0.1)
    assert float(found[4].replace(",", "")) == pytest.approx(8 * hours, abs=1)


def test_larger_batches_write_faster_until_arithmetic_limits() -> None:
    device = device_named("h200")
    rates = [Annotation(batch=batch).seconds(device)["questions: write the answer"] for batch in (1, 16, 256)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 20 * rates[2]


def test_stages_can_be_left_out() -> None:
    assert set(Annotation(writer="none").seconds(device_named("h200"))) == {"boxes"}
    assert Annotation(detector="none", writer="none").seconds(device_named("h200")) == {}


def test_without_models_only_cores_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "annotate", "detector=none", "writer=none", "--samples", "1800000"]) == 0
    assert "without models: 1 core-hours" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "said"),
    [("writr=none", "did you mean writer"), ("writer=gpt", "expected phi-3.5-mini, 7b, none"), ("batch=0", "above 0")],
)
def test_what_the_plan_does_not_know_is_said(word: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Annotation().changed([word])
