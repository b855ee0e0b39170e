"""A whole step with every kernel and with compiled parts: the plain step's losses and gradients, no graph broken.

Run by `test_interpreted.py` where there is no GPU: then kernels are interpreted, and graphs are traced but not lowered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from goldiclip.config import Config
from goldiclip.kernels import switch
from goldiclip.kernels.switch import HAS_TRITON, INTERPRETS, without
from goldiclip.learner import Learner
from goldiclip.train.accumulate import backward, split
from goldiclip.train.optim import build_optimizer
from goldiclip.train.parallel import compile_towers
from goldiclip.types import Batch
from synthetic import make_batch

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
pytestmark = [
    pytest.mark.gpu,
    # torch's tracer looks at every tensor's gradient
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
    pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed"),
    pytest.mark.skipif(not ON_GPU and not INTERPRETS, reason="needs a CUDA device, or TRITON_INTERPRET=1"),
]


@pytest.fixture
def small(tiny: Config) -> Config:
    """Heads of 16, the least that Triton multiplies; on a GPU in the precision that is fused there."""
    return replace(tiny, run=replace(tiny.run, precision="bf16" if ON_GPU else "fp32"))


def learner_of(config: Config) -> Learner:
    return Learner(config).to(DEVICE).train()


def pieces(config: Config, seed: int, images: int = 3, micro_batch: int = 0) -> list[Batch]:
    return [piece.to(DEVICE) for piece in split(make_batch(config, images, seed=seed), micro_batch)]


def step(learner: Learner, batches: list[Batch]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Losses by term, and gradients by parameter."""
    learner.zero_grad(set_to_none=True)
    terms = backward(learner, batches).terms
    gradients = {name: p.grad.clone() for name, p in learner.named_parameters() if p.grad is not None}
    return {name: value.clone() for name, value in terms.items()}, gradients


def agree(found: tuple[dict[str, Tensor], ...], plain: tuple[dict[str, Tensor], ...]) -> None:
    """To half precision's rounding on a GPU; else to float32's, of all gradients that are not rounding themselves."""
    limit = 5e-2 if ON_GPU else 1e-4  # two plain steps, in bf16 and float32, are 2e-2 apart
    largest = max(gradient.norm() for gradient in plain[1].values())
    for one, other in zip(found, plain, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert (one[name] - other[name]).norm() <= limit * max(other[name].norm(), 1e-2 * largest), name


@pytest.mark.parametrize("negatives", ["one", "all"])
@pytest.mark.parametrize("micro_batch", [0, 2], ids=["whole", "accumulated"])
def test_kernels_change_no_step(
    small: Config, negatives: str, micro_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    retrieval = replace(small.objective.retrieval, negatives=negatives)
    config = replace(small, objective=replace(small.objective, retrieval=retrieval))
    learner, batches, asked = learner_of(config), pieces(config, 0, micro_batch=micro_batch), set()
    fuses = switch.fuses
    for user in ("model.layers", "model.pooling", "kernels.token_cross_entropy", "kernels.soft_cross_entropy"):
        monkeypatch.setattr(f"goldiclip.{user}.fuses", lambda name, tensor: asked.add(name) or fuses(name, tensor))
    found = step(learner, batches)
    assert asked == set(switch.FUSED) - {"gelu"}  # which only a compiler fuses
    with without():
        plain = step(learner, batches)
    agree(found, plain)


@pytest.fixture
def no_graphs_left() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("no_graphs_left")
def test_compiled_parts_change_no_step_break_no_graph_and_take_any_texts(small: Config) -> None:
    """Batches are ragged: after two of them no further one is compiled for."""
    config, plain, compiled = small, learner_of(small), learner_of(small)
    compile_towers(compiled, fullgraph=True, **({} if ON_GPU else {"backend": "eager"}))
    optimizer = build_optimizer(compiled, config)
    for seed in range(2):
        step(compiled, pieces(config, seed))
        optimizer.step()
        compiled.update_teacher()
    plain.load_state_dict(compiled.state_dict())
    with torch._dynamo.config.patch(error_on_recompile=True):
        agree(step(compiled, pieces(config, 2)), step(plain, pieces(config, 2)))
