"""The delta rule: by loop, in chunks and by hand, and against the layers of Qwen3-Next and Kimi Linear."""

import pytest
import torch
import torch.nn.functional as F

from mha_course.chapters.delta import (
    decayed_linear_attention,
    delta_rule,
    delta_rule_chunked,
    short_convolution,
    unit,
)
from mha_course.chapters.linear import linear_attention_recurrent
from tests.references import assert_close

BATCH, HEADS, N, D_K, D_V = 2, 3, 17, 5, 7


def problem(n=N, *, channels=1, heads=HEADS, dtype=torch.float64):
    """Queries and unit keys, values, rates from 0 to 1 and decays from 0.4 to 1."""
    draw = torch.randn(BATCH, heads, n, 2 * D_K + D_V, dtype=dtype)
    query, key, value = draw.split([D_K, D_K, D_V], dim=-1)
    rate = torch.rand(BATCH, heads, n, 1, dtype=dtype)
    decay = 1 - 0.6 * torch.rand(BATCH, heads, n, channels, dtype=dtype)
    return query, unit(key), value, rate, decay


def by_numbers(query, key, value, rate, decay, erase=True):
    """Gated DeltaNet's equation for one sample and head: ``S_t = D S - rate k (k^T D S) + rate k v^T``."""
    state, outputs = torch.zeros(D_K, D_V).double(), []
    for i in range(len(query)):
        faded = torch.diag(decay[i].expand(D_K)) @ state
        keep = torch.eye(D_K).double() - (rate[i] * torch.outer(key[i], key[i]) if erase else 0)
        state = keep @ faded + rate[i] * torch.outer(key[i], value[i])
        outputs.append(state.T @ query[i])
    return torch.stack(outputs), state


@pytest.mark.parametrize("channels", [1, D_K])
def test_the_loop_is_the_published_equation(channels):
    query, key, value, rate, decay = problem(channels=channels)
    output, state = delta_rule(query, key, value, rate, decay)
    added, sums = decayed_linear_attention(query, key, rate * value, decay)
    for b in range(BATCH):
        for h in range(HEADS):
            one = [x[b, h] for x in (query, key, value, rate, decay)]
            for (ours, kept), erase in (((output, state), True), ((added, sums), False)):
                expected, last = by_numbers(*one, erase=erase)
                assert_close(ours[b, h], expected, 1e-10)
                assert_close(kept[b, h], last, 1e-10)


@pytest.mark.parametrize("channels", [1, D_K])
@pytest.mark.parametrize("chunk", [1, 4, N, 64])
def test_chunks_give_what_the_loop_gives(chunk, channels):
    query, key, value, rate, decay = problem(channels=channels)
    decay[0, 0, 3] = 0.0  # forgets all
    before = torch.randn(BATCH, HEADS, D_K, D_V).double()
    for rest in ((decay, before), (None, before), (decay, None)):
        output, state = delta_rule(query, key, value, rate, *rest)
        chunked, last = delta_rule_chunked(query, key, value, rate, *rest, chunk=chunk)
        assert_close(chunked, output, 1e-10)
        assert_close(last, state, 1e-10)


@pytest.mark.parametrize("form", [delta_rule, delta_rule_chunked])
def test_a_text_can_be_continued_and_a_head_can_share_its_key(form):
    query, key, value, rate, decay = problem(channels=D_K)
    shared = key[:, :1]
    whole, state = form(query, shared, value, rate, decay)
    assert_close(whole, form(query, shared.expand_as(key), value, rate, decay)[0], 1e-12)
    first, kept = form(*(x[..., :6, :] for x in (query, shared, value, rate, decay)))
    rest, last = form(*(x[..., 6:, :] for x in (query, shared, value, rate, decay)), kept)
    assert_close(torch.cat([first, rest], dim=-2), whole, 1e-10)
    assert_close(last, state, 1e-10)


def test_gradients_of_both_forms_agree():
    inputs = [x.requires_grad_() for x in problem(channels=D_K)]
    one, two = (
        torch.autograd.grad(form(*inputs)[0].square().sum(), inputs)
        for form in (delta_rule, lambda *x: delta_rule_chunked(*x, chunk=4))
    )
    for a, b in zip(one, two, strict=True):
        assert_close(a, b, 1e-8)


def test_long_texts_with_strong_decay_stay_finite_in_float32():
    query, key, value, rate, decay = problem(257, channels=D_K, dtype=torch.float32)
    decay = decay * 1e-6
    expected, _ = delta_rule(query, key, value, rate, decay)
    assert_close(delta_rule_chunked(query, key, value, rate, decay)[0], expected, 1e-5)


def test_without_decay_and_erasing_it_is_linear_attention_without_its_denominator():
    query, key, value, *_ = (x.abs() for x in problem())
    output, state = linear_attention_recurrent(query, key, value, feature_map=lambda x: x)
    ours, memory = decayed_linear_attention(query, key, value)
    assert_close(memory, state.memory, 1e-10)
    assert_close(ours / (query * key.cumsum(dim=-2)).sum(dim=-1, keepdim=True), output, 1e-10)


def test_each_write_is_a_step_of_gradient_descent():
    _, key, value, rate, _ = problem(1)
    before = torch.randn(BATCH, HEADS, D_K, D_V).double().requires_grad_()
    loss = ((key @ before - value) ** 2).sum() / 2
    (slope,) = torch.autograd.grad(loss, before)
    _, after = delta_rule(key, key, value, rate, None, before)
    assert_close(after, before - rate * slope, 1e-10)


def test_the_convolution_is_pytorchs_and_can_be_continued():
    x, weight = torch.randn(BATCH, N, D_V).double(), torch.randn(D_V, 4).double()
    expected = F.conv1d(x.mT, weight[:, None], padding=3, groups=D_V)[..., :N].mT
    output, _ = short_convolution(x, weight)
    assert_close(output, expected, 1e-10)
    pieces, kept = [], None
    for piece in x.split([1, 2, 5, 9], dim=-2):
        piece, kept = short_convolution(piece, weight, kept)
        pieces.append(piece)
    assert_close(torch.cat(pieces, dim=-2), output, 1e-10)
    assert_close(kept, x[:, -3:], 0)
    assert_close(short_convolution(x, weight[:, 3:])[0], x * weight[:, 3], 1e-10)


def tokens_first(*tensors):
    """``(batch, heads, n, ...)`` to the ``(batch, n, heads, ...)`` of ``transformers``."""
    return [x.transpose(1, 2) for x in tensors]


def largest_difference(record_property, name, ours, theirs):
    largest = (ours - theirs).abs().max().item()
    record_property(f"largest difference, {name}", largest)
    assert largest < 2e-6, name


@pytest.mark.parametrize("form", [delta_rule, delta_rule_chunked])
def test_it_is_the_gated_delta_rule_of_qwen3_next(form, record_property):
    """One decay for each token; two heads share a query and a key; 131 tokens: over two chunks."""
    module = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    query, key, _, _, _ = problem(131, dtype=torch.float32)
    _, _, value, rate, decay = problem(131, heads=2 * HEADS, dtype=torch.float32)
    before = torch.randn(BATCH, 2 * HEADS, D_K, D_V)
    grouped = [x.repeat_interleave(2, dim=1) for x in (query, key)]
    q, k = unit(grouped[0]) / D_K**0.5, unit(grouped[1])
    output, state = form(q, k, value, rate, decay, before)
    given = tokens_first(query, key, value, decay[..., 0].log(), rate[..., 0])
    for theirs in (module.torch_recurrent_gated_delta_rule, module.torch_chunk_gated_delta_rule):
        expected, last = theirs(
            *given, initial_state=before, output_final_state=True, use_qk_l2norm_in_kernel=True
        )
        largest_difference(record_property, theirs.__name__, output, expected.transpose(1, 2))
        largest_difference(record_property, theirs.__name__, state, last)


@pytest.mark.parametrize("form", [delta_rule, delta_rule_chunked])
def test_it_is_kimi_delta_attention(form, record_property):
    """A decay for each channel of the key."""
    module = pytest.importorskip("transformers.models.kimi_linear.modeling_kimi_linear")
    query, key, value, rate, decay = problem(131, channels=D_K, dtype=torch.float32)
    before = torch.randn(BATCH, HEADS, D_K, D_V)
    output, state = form(unit(query) / D_K**0.5, unit(key), value, rate, decay, before)
    given = tokens_first(query, key, value, decay.log(), rate[..., 0])
    for theirs in (module.recurrent_kimi_delta_attention, module.chunk_kimi_delta_attention):
        expected, last = theirs(
            *given, initial_state=before, output_final_state=True, use_qk_l2norm_in_kernel=True
        )
        largest_difference(record_property, theirs.__name__, output, expected.transpose(1, 2))
        largest_difference(record_property, theirs.__name__, state, last)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rate": torch.ones(N)}, "rate"),
        ({"rate": torch.ones(HEADS, N)}, r"Did you mean rate.unsqueeze\(-1\)"),
        ({"decay": -torch.ones(N, 1).double()}, r"Did you mean decay.exp\(\)"),
        ({"decay": torch.ones(N, 4).double()}, "decay"),
        ({"state": torch.ones(D_V, D_K).double()}, "state"),
        ({"query": torch.ones(N + 1, D_K).double()}, "query"),
        ({"value": torch.ones(N, D_V)}, "dtype"),
    ],
)
@pytest.mark.parametrize("form", [delta_rule, delta_rule_chunked])
def test_what_does_not_fit_gets_a_sentence(form, changes, words):
    names = "query", "key", "value", "rate", "decay"
    with pytest.raises((ValueError, TypeError), match=words):
        form(**{**dict(zip(names, problem(), strict=True)), **changes})
