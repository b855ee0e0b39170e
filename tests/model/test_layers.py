"""Packed attention against loops, and its two backends against each other."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from goldiclip.kernels.switch import without
from goldiclip.model import layers
from goldiclip.model.layers import Rows, TextBlock, memory_attention, packed_attention, quick_gelu, view_attention
from reference import attention_by_loops

LENGTHS = ([3], [1, 1, 1], [5, 1, 7, 2], [2, 0, 3])


def packed(lengths: list[int], heads: int = 2, size: int = 4, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """(T, 3, H, d)"""
    generator = torch.Generator().manual_seed(sum(lengths))
    return torch.randn(sum(lengths), 3, heads, size, generator=generator, dtype=dtype)


def rows_of(lengths: list[int], max_length: int | None = None) -> Rows:
    return Rows.of(torch.tensor(lengths), sum(lengths), max_length or max(lengths))


@pytest.mark.parametrize("lengths", LENGTHS)
def test_packed_attention_is_the_loop_over_each_text(lengths):
    qkv = packed(lengths)
    found = packed_attention(qkv, rows_of(lengths))
    parts = [attention_by_loops(*part.unbind(1), is_causal=True) for part in qkv.split(lengths)]
    assert_close(found, torch.cat(parts))


def test_view_attention_is_the_loop_over_each_view():
    qkv = packed([6] * 4).unflatten(0, (4, 6))
    expected = [attention_by_loops(*view.unbind(1), is_causal=False) for view in qkv]
    assert_close(view_attention(qkv), torch.stack(expected))


@pytest.mark.parametrize("lengths", LENGTHS)
def test_memory_attention_is_the_loop_over_each_image(lengths):
    query = packed(lengths)[:, 0]
    keys, values = torch.randn(2, len(lengths), 5, 2, 4, dtype=torch.float64).unbind(0)
    found = memory_attention(query, keys, values, rows_of(lengths))
    parts = enumerate(query.split(lengths))
    assert_close(found, torch.cat([attention_by_loops(part, keys[i], values[i], is_causal=False) for i, part in parts]))


def test_a_longer_padding_changes_nothing():
    qkv = packed([5, 1, 7, 2])
    tight, loose = (packed_attention(qkv, rows_of([5, 1, 7, 2], longest)) for longest in (7, 30))
    assert_close(tight, loose, rtol=0, atol=1e-14)


def fake_varlen(query, key, value, ends_q, ends_k, max_q, max_k, *, window_size=(-1, -1)):
    """What torch's kernel is documented to do, without its device."""
    assert window_size in ((-1, -1), (-1, 0))
    assert int(ends_q.diff().max()) <= max_q
    assert int(ends_k.diff().max()) <= max_k
    assert ends_q.dtype == ends_k.dtype == torch.int32
    parts = []
    for i in range(len(ends_q) - 1):
        q, k = slice(ends_q[i], ends_q[i + 1]), slice(ends_k[i], ends_k[i + 1])
        parts.append(attention_by_loops(query[q], key[k], value[k], is_causal=window_size == (-1, 0)))
    return torch.cat(parts)


def test_the_packed_backend_is_asked_for_the_same_numbers(monkeypatch):
    import torch.nn.attention.varlen as varlen

    qkv = packed([5, 1, 7, 2])
    memory = torch.randn(2, 4, 5, 2, 4, dtype=torch.float64)
    rows = rows_of([5, 1, 7, 2])
    padded = packed_attention(qkv, rows), memory_attention(qkv[:, 0], *memory, rows)
    monkeypatch.setattr(layers, "_takes_packed", lambda query: True)
    monkeypatch.setattr(varlen, "varlen_attn", fake_varlen)
    assert_close(packed_attention(qkv, rows), padded[0])
    assert_close(memory_attention(qkv[:, 0], *memory, rows), padded[1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_both_backends_agree_on_a_gpu():
    lengths = [5, 1, 77, 20]
    qkv = packed(lengths, 8, 64, torch.float32).cuda().requires_grad_()
    rows = Rows.of(torch.tensor(lengths).cuda(), sum(lengths), max(lengths))
    plain, fused = packed_attention(qkv, rows), packed_attention(qkv.bfloat16(), rows)
    with without("text_attention"):
        half = packed_attention(qkv.bfloat16(), rows)
    slow = torch.autograd.grad(plain.square().sum(), qkv)[0]
    for found in (half, fused):
        assert_close(found.float(), plain, atol=2e-2, rtol=2e-2)
        assert_close(torch.autograd.grad(found.float().square().sum(), qkv)[0], slow, atol=5e-2, rtol=5e-2)


def test_gradients_flow_to_every_input():
    qkv = packed([3, 2]).requires_grad_()
    memory = torch.randn(2, 2, 3, 2, 4, dtype=torch.float64, requires_grad=True)
    rows = rows_of([3, 2])
    assert torch.autograd.gradcheck(lambda qkv: packed_attention(qkv, rows), (qkv,))
    assert torch.autograd.gradcheck(lambda qkv, m: memory_attention(qkv[:, 0], m[0], m[1], rows), (qkv, memory))
    assert torch.autograd.gradcheck(lambda qkv: view_attention(qkv[None]), (qkv,))


def test_no_text_at_all_gives_gradients_of_zero():
    block = TextBlock(8, 2)
    block(torch.zeros(0, 8), Rows.of(torch.zeros(0, dtype=torch.int64), 0, 0)).sum().backward()
    for parameter in block.parameters():
        assert parameter.grad is not None
        assert not parameter.grad.any()


def test_quick_gelu_has_the_known_value():
    assert_close(quick_gelu(torch.tensor(1.0)), torch.tensor(0.8457957659))
    assert_close(quick_gelu(torch.tensor(-2.0)), torch.tensor(-0.0643413737), rtol=1e-5, atol=1e-7)
