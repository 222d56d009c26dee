"""Positions against loops, and against the code of published models."""

import math
from importlib import import_module

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from mha_lab import MultiHeadAttention, RelativePositionBias, causal_mask, scaled_dot_product_scores
from mha_lab.positions import alibi_bias, alibi_slopes, apply_rotary, sinusoidal_positions
from mha_lab.scores import AlibiScore, RotaryScore
from tests.references import assert_close, looped_attention

BATCH, HEADS, N, D = 2, 3, 7, 22  # a rotary width is even: twice a prime
LAYOUTS = ("pairs", "halves")


def place(layout, i, d):
    """The two columns of pair ``i``."""
    return (2 * i, 2 * i + 1) if layout == "pairs" else (i, i + d // 2)


def looped_rotary(x, positions, base, layout):
    """One pair of one token at a time, ``(n, d)``."""
    d, turned = x.shape[1], torch.zeros_like(x)
    for row, position in enumerate(positions):
        for i in range(d // 2):
            first, second = place(layout, i, d)
            angle = position / base ** (2 * i / d)
            a, b = float(x[row, first]), float(x[row, second])
            turned[row, first] = a * math.cos(angle) - b * math.sin(angle)
            turned[row, second] = a * math.sin(angle) + b * math.cos(angle)
    return turned


@pytest.mark.parametrize(("base", "given"), [(10000, {}), (100, {"base": 100})])
def test_sinusoidal_is_the_formula_for_each_number(base, given):
    table = sinusoidal_positions(13, D, dtype=torch.float64, **given)
    assert table.shape == (13, D)
    for m in range(13):
        for column in range(D):
            angle = m / base ** ((column - column % 2) / D)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert abs(table[m, column].item() - expected) < 1e-12


def test_sinusoidal_dtype_and_exactness_far_out():
    """The angle is computed in float64, so position 99 999 is as exact as position 1."""
    far = sinusoidal_positions(100_000, 2)[-1]
    assert far.dtype == torch.float32
    assert_close(far, torch.tensor([math.sin(99_999), math.cos(99_999)]), 1e-6)
    assert sinusoidal_positions(3, 2, dtype=torch.float16).dtype == torch.float16


@pytest.mark.parametrize(
    ("base", "layout", "given"),
    [
        (10000, "pairs", {}),
        (10, "pairs", {"base": 10}),
        (500.0, "halves", {"base": 500.0, "layout": "halves"}),
    ],
)
def test_rotary_is_the_formula_for_each_pair(base, layout, given):
    x = torch.randn(BATCH, HEADS, N, D).double()
    at = [5, 0, 31, 2, 2, 1000, -3]
    turned = apply_rotary(x, torch.tensor(at), **given)
    counted = apply_rotary(x, **given)
    for b in range(BATCH):
        for h in range(HEADS):
            assert_close(turned[b, h], looped_rotary(x[b, h], at, base, layout), 1e-12)
            assert_close(counted[b, h], looped_rotary(x[b, h], range(N), base, layout), 1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary_with_positions_of_each_sample(layout):
    x, at = torch.randn(BATCH, HEADS, N, D), torch.randint(50, (BATCH, 1, N))
    turned = apply_rotary(x, at, layout=layout)
    for b in range(BATCH):
        assert torch.equal(turned[b], apply_rotary(x[b], at[b, 0], layout=layout))


def test_pairs_turn_like_complex_numbers():
    """Meta's LLaMA computes them so: neighbours are one complex number."""
    x, at = torch.randn(BATCH, HEADS, N, D).double(), torch.tensor([0, 3, 1, 40, 41, 97, 2])
    angle = at[:, None] / 500 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.exp(1j * angle)
    assert_close(apply_rotary(x, at, base=500), torch.view_as_real(turned).flatten(-2), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rotary_in_half_precision_knows_far_positions(dtype):
    """The dtype of x holds no whole number near 4097; the angle is computed more precisely."""
    x, at = torch.randn(N, D), torch.arange(N) + 4097
    turned = apply_rotary(x.to(dtype), at)
    assert turned.dtype == dtype
    assert_close(turned.float(), apply_rotary(x, at), 0.05)


def test_no_input_is_changed():
    x, at = torch.randn(N, D), torch.arange(N)
    before = x.clone(), at.clone()
    for layout in LAYOUTS:
        apply_rotary(x, at, layout=layout)
        RotaryScore(layout=layout)(x, x)
    assert torch.equal(x, before[0])
    assert torch.equal(at, before[1])


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (7, [2, 4, 6, 8, 1, 3, 5]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (13, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5, 4.5]),
    ],
)
def test_slopes_by_hand(num_heads, exponents):
    slopes = alibi_slopes(num_heads, dtype=torch.float64)
    assert_close(slopes, torch.tensor([2.0**-e for e in exponents], dtype=torch.float64), 1e-15)


@pytest.mark.parametrize(("n_q", "n_k"), [(5, 5), (2, 5), (5, 2), (1, 7)])
def test_alibi_is_the_formula_for_each_pair(n_q, n_k):
    slopes, bias = [1 / 16, 1 / 256, 1 / 4], alibi_bias(3, n_q, n_k)
    query, key = torch.randn(2, 3, n_q, 11), torch.randn(2, 3, n_k, 11)
    added = AlibiScore(3)(query, key) - scaled_dot_product_scores(query, key)
    assert bias.shape == (3, n_q, n_k)
    assert_close(added, bias.expand(2, -1, -1, -1), 1e-6)
    for h in range(3):
        for i in range(n_q):
            for j in range(n_k):
                distance = abs(i + n_k - n_q - j)  # the last query stands on the last key
                assert bias[h, i, j] == -slopes[h] * distance


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_takes_the_slopes():
    """PyTorch's kernel with a function that changes each score: no bias is stored."""
    query, key, value = torch.randn(3, BATCH, HEADS, N, D).double()
    slopes = alibi_slopes(HEADS, dtype=torch.float64)

    def closer_is_better(score, batch, head, i, j):
        return score - slopes[head] * (i - j).abs()

    found = flex_attention(query, key, value, score_mod=closer_is_better)
    assert_close(found, AlibiScore(HEADS)(query, key).softmax(dim=-1) @ value, 1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary_score_is_the_loop_for_each_head(layout):
    query, key = torch.randn(BATCH, HEADS, 5, D).double(), torch.randn(BATCH, HEADS, N, D).double()
    scores = RotaryScore(base=500, layout=layout)(query, key)
    assert scores.shape == (BATCH, HEADS, 5, N)
    for b in range(BATCH):
        for h in range(HEADS):
            turned_query = looped_rotary(query[b, h], range(2, 7), 500, layout)
            turned_key = looped_rotary(key[b, h], range(N), 500, layout)
            weights = looped_attention(turned_query, turned_key, turned_key)[1]
            assert_close(scores[b, h].softmax(dim=-1), weights, 1e-12)


@pytest.mark.parametrize("score", [RotaryScore(), AlibiScore(2)])
def test_scores_without_parameters_leave_no_trace_in_the_state_dict(score):
    layer = MultiHeadAttention(12, 2, score=score)
    assert set(layer.state_dict()) == set(MultiHeadAttention(12, 2).state_dict())
    layer(torch.randn(N, 12))[0].square().sum().backward()
    for parameter in layer.parameters():
        assert parameter.grad.isfinite().all()


def test_printing_shows_the_choices():
    assert "base=500, layout='halves'" in repr(RotaryScore(base=500, layout="halves"))
    assert "base=10000.0, layout='pairs'" in repr(RotaryScore())
    assert "num_heads=3" in repr(AlibiScore(3))


def code_of(name):
    """Hugging Face's implementation of a published model; a fresh set-up of the project installs it."""
    pytest.importorskip("transformers", reason="transformers: pip install '.[pretrained]'")
    return import_module(f"transformers.models.{name}.modeling_{name}")


def test_sinusoidal_equals_gpt_js():
    """There all sines come first, then all cosines."""
    theirs = code_of("gptj").create_sinusoidal_positions(N, D)
    ours = sinusoidal_positions(N, D)
    assert_close(torch.cat([ours[:, 0::2], ours[:, 1::2]], dim=-1), theirs, 1e-6)


def test_rotary_in_pairs_equals_gpt_js():
    x, at = torch.randn(BATCH, HEADS, N, D), torch.tensor([0, 3, 1, 40, 41, 97, 2])
    sin, cos = code_of("gptj").create_sinusoidal_positions(101, D)[at].chunk(2, dim=-1)
    theirs = code_of("gptj").apply_rotary_pos_emb(x.transpose(1, 2), sin[None], cos[None])
    assert_close(apply_rotary(x, at), theirs.transpose(1, 2), 1e-5)


def test_rotary_in_halves_equals_llamas():
    llama = code_of("llama")
    config = llama.LlamaConfig(hidden_size=HEADS * D, num_attention_heads=HEADS, head_dim=D, rope_theta=500.0)
    query, key = torch.randn(2, BATCH, HEADS, N, D)
    at = torch.tensor([0, 3, 1, 40, 41, 97, 2]).expand(BATCH, N)
    cos, sin = llama.LlamaRotaryEmbedding(config)(query, at)
    their_query, their_key = llama.apply_rotary_pos_emb(query, key, cos, sin)
    assert_close(apply_rotary(query, at[:, None], base=500.0, layout="halves"), their_query, 1e-5)
    assert_close(apply_rotary(key, at[:, None], base=500.0, layout="halves"), their_key, 1e-5)
    cos, sin = llama.LlamaRotaryEmbedding(config)(query, torch.arange(N)[None])
    their_query, their_key = llama.apply_rotary_pos_emb(query, key, cos, sin)
    scores = RotaryScore(base=500.0, layout="halves")(query, key)
    assert_close(scores, their_query @ their_key.mT / math.sqrt(D), 1e-5)


@pytest.mark.parametrize("num_heads", [1, 2, 3, 5, 7, 8, 11, 13, 16, 29, 64])
def test_alibi_equals_blooms(num_heads):
    """Bloom adds slope * j to column j, which is the same under a causal softmax."""
    everything = torch.ones(1, N, dtype=torch.long)
    theirs = code_of("bloom").build_alibi_tensor(everything, num_heads, torch.float32)  # (heads, 1, n)
    assert_close(alibi_slopes(num_heads), theirs[:, 0, 1], 1e-6)
    content, hidden = torch.randn(num_heads, N, N), ~causal_mask(N)
    expected = (content + theirs).masked_fill(hidden, -math.inf).softmax(dim=-1)
    ours = (content + alibi_bias(num_heads, N)).masked_fill(hidden, -math.inf).softmax(dim=-1)
    assert_close(ours, expected, 1e-6)


@pytest.mark.parametrize("num_heads", [1, 2, 8, 16])
def test_alibi_equals_mpts_for_powers_of_two(num_heads):
    """MPT has its own order of the slopes for other numbers; the last query's row is what it stores."""
    theirs = code_of("mpt").build_mpt_alibi_tensor(num_heads, N)  # (heads, 1, n)
    assert_close(alibi_bias(num_heads, 1, N), theirs, 1e-6)


@pytest.mark.parametrize(("n_q", "n_k"), [(7, 7), (3, 7)])
def test_relative_bias_equals_t5s(n_q, n_k):
    """Up to a distance of 7, T5's groups hold one distance each: 0 to 7 left, 17 to 23 right."""
    t5 = code_of("t5")
    config = t5.T5Config(d_model=HEADS * 5, d_kv=5, num_heads=HEADS)
    theirs = t5.T5Attention(config, has_relative_attention_bias=True)
    ours = RelativePositionBias(HEADS, max_distance=7)
    groups = [*range(7, -1, -1), *range(17, 24)]
    ours.load_state_dict({"bias": theirs.relative_attention_bias.weight[groups].mT})
    zeros = torch.zeros(1, HEADS, n_k, 5)
    expected = theirs.compute_bias(n_k, n_k)[:, :, n_k - n_q :]
    assert expected.abs().sum() > 0
    assert_close(ours(zeros[:, :, :n_q], zeros), expected, 1e-6)
