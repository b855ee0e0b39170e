"""The Triton kernels equal their plain twins, in value and gradient, at odd sizes: on a GPU, or interpreted."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from goldiclip.kernels.soft_cross_entropy import Temperatures, soft_cross_entropy, soft_cross_entropy_plain
from goldiclip.kernels.switch import HAS_TRITON, INTERPRETS, fuses, without
from goldiclip.kernels.token_cross_entropy import token_cross_entropy, token_cross_entropy_plain
from goldiclip.model.pooling import Pooling, mean_attention, mean_attention_plain

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# The interpreter knows no bfloat16: there float16 shows that half precision is widened where it has to be.
DTYPES = [torch.bfloat16] if torch.cuda.is_available() else [torch.float32, torch.float16]
DTYPE = DTYPES[0]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed"),
    pytest.mark.skipif(
        DEVICE == "cpu" and not INTERPRETS, reason="needs a CUDA device, or TRITON_INTERPRET=1 (test_interpreted.py)"
    ),
]


@pytest.fixture(autouse=True, params=DTYPES, ids=str)
def dtype(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "DTYPE", request.param)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    """Of a precision that the kernels read exactly."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DTYPE).to(DEVICE)


def check(fused: Callable[..., Tensor], plain: Callable[..., Tensor], *inputs: Tensor, half: float = 1e-2) -> None:
    """Value and gradients against the twin's in float64, as shares of their norms; `half` is half precision's share."""
    limit = half if DTYPE.itemsize == 2 else 1e-5
    found, expected = [], []
    for results, function, dtype in ((found, fused, DTYPE), (expected, plain, torch.float64)):
        leaves = [x.to(dtype).requires_grad_() for x in inputs]
        value = function(*leaves)
        upstream = torch.randn(value.shape, generator=torch.Generator().manual_seed(9)).to(value)
        results += [value, *torch.autograd.grad(value, leaves, upstream)]
    for one, other in zip(found, expected, strict=True):
        assert torch.isfinite(one).all()
        assert (one.double() - other).norm() <= limit * other.norm().clamp(min=1e-6)


LENGTHS = ([1], [32, 33], [77, 1, 5, 28, 64, 2], [3, 0, 40])


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("heads", "width"), [(1, 64), (3, 16)])
def test_short_attention(lengths: list[int], causal: bool, heads: int, width: int) -> None:
    from goldiclip.kernels.attention import short_attention, short_attention_plain

    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device=DEVICE)
    check(
        lambda qkv: short_attention(qkv, offsets, max(lengths), causal),
        lambda qkv: short_attention_plain(qkv, offsets, max(lengths), causal),
        drawn(sum(lengths), 3, heads, width),
    )


@pytest.mark.parametrize(("images", "texts", "patches"), [(1, 1, 1), (2, 5, 36), (3, 130, 9), (1, 33, 196)])
@pytest.mark.parametrize(("heads", "width"), [(1, 64), (2, 16)])
def test_mean_attention(images: int, texts: int, patches: int, heads: int, width: int) -> None:
    queries, keys = drawn(heads, texts, width, seed=1), drawn(images, patches, heads, width).transpose(1, 2)
    assert fuses("mean_attention", queries)
    check(mean_attention, mean_attention_plain, queries, keys)


@pytest.mark.parametrize("is_own", [False, True], ids=["texts of all", "its own texts"])
@pytest.mark.parametrize(
    ("images", "texts", "patches", "heads", "width"),
    [(1, 1, 1, 1, 16), (3, 5, 36, 2, 32), (2, 130, 9, 4, 64), (5, 17, 130, 2, 64), (2, 8, 197, 1, 128)],
)
def test_scoring(
    images: int, texts: int, patches: int, heads: int, width: int, is_own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cosines, and the gradients of texts, patches and the pooling's weights, two images at a time."""
    from goldiclip.kernels import scores

    monkeypatch.setattr(scores, "BLOCK_ELEMENTS", 2 * texts * width)
    torch.manual_seed(0)
    pooling, trained = Pooling(width, heads), ("query.weight", "key.weight", "value.weight", "out.weight", "out.bias")
    weights = [torch.randn_like(pooling.get_parameter(name)) * 0.3 for name in trained]

    def cosine(texts: Tensor, keys: Tensor, values: Tensor, *weights: Tensor) -> Tensor:
        given = dict(zip(trained, weights, strict=True))
        inputs = texts, keys, values
        return torch.func.functional_call(copy.deepcopy(pooling).to(texts), given, inputs, {"what": "cosine"})

    def plain(*inputs: Tensor) -> Tensor:
        with without():
            return cosine(*inputs)

    asked = drawn(images, texts, width) if is_own else drawn(texts, width)
    told = drawn(images, patches, width, seed=1), drawn(images, patches, width, seed=2)
    assert fuses("scoring", told[0])
    assert scores.fits(width, heads)
    check(cosine, plain, asked, *told, *(weight.to(DTYPE).to(DEVICE) for weight in weights), half=5e-2)


@pytest.mark.parametrize(("tokens", "vocabulary"), [(1, 1), (7, 13), (5, 4099), (33, 9000)])
def test_token_cross_entropy(tokens: int, vocabulary: int) -> None:
    targets = torch.randint(vocabulary, (tokens,), generator=torch.Generator().manual_seed(1)).to(DEVICE)
    check(
        lambda hidden, weight: token_cross_entropy(hidden, weight, targets),
        lambda hidden, weight: token_cross_entropy_plain(hidden, weight, targets),
        drawn(tokens, 16),
        drawn(vocabulary, 16, seed=1) * 0.3,
    )


@pytest.mark.parametrize(
    "sizes", [(1, 1, 1, 1, 5), (2, 3, 2, 4, 1025), (1, 5, 1, 6, 4100)], ids=lambda s: "×".join(map(str, s))
)
def test_soft_cross_entropy(sizes: tuple[int, ...]) -> None:
    pools, images, global_views, local_views, prototypes = sizes
    teacher, weight = drawn(pools, images, global_views, 16, seed=1), drawn(prototypes, 16, seed=2)
    centres = drawn(pools, prototypes, seed=3).float()

    def run(function: Callable[..., object], of: str) -> Callable[..., Tensor]:
        def call(student: Tensor, own: Tensor) -> Tensor:
            wide = torch.float64 if own.dtype == torch.float64 else torch.float32
            args = (student, own, teacher.to(own), weight.to(own), centres.to(wide), Temperatures(0.5, 0.2))
            return getattr(function(*args), of)

        return call

    student, own = drawn(pools, images, local_views, 16), drawn(prototypes, 16, seed=4) * 0.3
    # logits are of half precision before a temperature multiplies them by five
    check(run(soft_cross_entropy, "total"), run(soft_cross_entropy_plain, "total"), student, own, half=4e-2)
    for part in ("cross_entropy", "entropy"):
        found = run(soft_cross_entropy, part)(student, own)
        expected = run(soft_cross_entropy_plain, part)(student.double(), own.double())
        assert (found.double() - expected).norm() <= 1e-2 * expected.norm()
