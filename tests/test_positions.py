"""Positions against loops, and against the code of published models."""

import math
import random
from importlib import import_module

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from mha_lab import MultiHeadAttention, RelativePositionBias, causal_mask, scaled_dot_product_scores
from mha_lab.positions import (
    Rotary,
    alibi_bias,
    alibi_slopes,
    apply_rotary,
    mean_rotary_score,
    rotary_frequencies,
    sinusoidal_positions,
    yarn_attention_factor,
    yarn_frequencies,
)
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
        assert_close(turned[b], apply_rotary(x[b], at[b, 0], layout=layout), 1e-5)


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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_partial_rotary_turns_the_first_numbers_and_no_others(layout):
    """Of an odd width, as if the first 14 numbers were all; frequencies in any order."""
    x, at, theta = (
        torch.randn(BATCH, HEADS, N, 23).double(),
        [5, 0, 31, 2, 2, 1000, -3],
        torch.rand(7).double(),
    )
    turned = apply_rotary(x, torch.tensor(at), layout=layout, frequencies=theta, attention_factor=1.7)
    assert torch.equal(turned[..., 14:], x[..., 14:])
    for i in range(7):
        one = x[..., list(place(layout, i, 14))]  # each pair by itself, at position m * theta_i
        expected = 1.7 * apply_rotary(one, torch.tensor(at) * theta[i])
        assert_close(turned[..., list(place(layout, i, 14))], expected, 1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_interpolation_is_a_position_between_two_tokens(layout):
    """Chen et al., formula 4. NTK-aware interpolation slows the last pair as much, the first not at all."""
    x, given = torch.randn(BATCH, HEADS, N, D).double(), {"dtype": torch.float64, "base": 500}
    slow = rotary_frequencies(D, factor=4, **given)
    between = apply_rotary(x, torch.arange(N) / 4, base=500, layout=layout)
    assert_close(apply_rotary(x, layout=layout, frequencies=slow), between, 1e-12)
    ntk = rotary_frequencies(D, base=500 * 4 ** (D / (D - 2)), dtype=torch.float64)
    assert_close(ntk[[0, -1]], torch.stack([4 * slow[0], slow[-1]]), 1e-12)


def test_yarn_keeps_fast_pairs_and_interpolates_slow_ones():
    """Fast: 32 turns and more in the trained length; slow: one turn and less."""
    plain, yarn = rotary_frequencies(128), yarn_frequencies(128, 8, 2048)
    turns = 2048 * plain / (2 * math.pi)
    fast, slow = turns >= 32, turns <= 1
    assert fast.sum() > 10
    assert slow.sum() > 10
    assert torch.equal(yarn[fast], plain[fast])
    assert torch.equal(yarn[slow], plain[slow] / 8)
    assert (yarn.diff() < 0).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_mean_score_of_ones_and_of_equal_random_vectors(layout):
    frequencies = yarn_frequencies(D, 4, 100, dtype=torch.float64)
    score = mean_rotary_score(frequencies, 13)
    query = torch.cat([torch.ones(1, 1, D), torch.randn(20_000, 1, D)]).double()
    turned = apply_rotary(query.expand(-1, 13, D), layout=layout, frequencies=frequencies)
    found = (turned * query).mean(dim=-1)
    assert_close(found[0], score, 1e-12)
    assert_close(found[1:].mean(dim=0), score, 0.01)


def test_the_module_hands_on_its_choices_and_does_not_round_them():
    """The last queries at the last keys' positions; ``half`` and ``double`` leave the frequencies alone."""
    theta = rotary_frequencies(6, base=500)
    how = {"layout": "halves", "frequencies": theta, "attention_factor": 1.3}
    layer = MultiHeadAttention(D, 2, transform=Rotary(**how)).half()
    assert layer.transform.frequencies is theta
    plain = MultiHeadAttention(D, 2, transform=Rotary()).state_dict()
    assert set(layer.state_dict()) - set(plain) == {"transform.frequencies"}
    query, key = torch.randn(BATCH, HEADS, 3, 11), torch.randn(BATCH, HEADS, N, 11)
    turned_query, turned_key = layer.transform(query, key)
    assert_close(turned_query, apply_rotary(query, torch.tensor([4, 5, 6]), **how), 1e-5)
    assert_close(turned_key, apply_rotary(key, **how), 1e-5)
    assert_close(RotaryScore(**how)(query, key), turned_query @ turned_key.mT / math.sqrt(11), 1e-5)
    assert "frequencies=(3,), layout='halves', attention_factor=1.3000" in repr(layer)


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
    assert_close(slopes, torch.tensor([2.0**-e for e in exponents], dtype=torch.float64), 1e-14)


@pytest.mark.parametrize(("n_q", "n_k"), [(5, 5), (2, 5), (5, 2), (1, 7)])
def test_alibi_is_the_formula_for_each_pair(n_q, n_k):
    slopes, bias = [1 / 16, 1 / 256, 1 / 4], alibi_bias(3, n_q, n_k)
    query, key = torch.randn(2, 3, n_q, 11), torch.randn(2, 3, n_k, 11)
    added = AlibiScore(3)(query, key) - scaled_dot_product_scores(query, key)
    assert bias.shape == (3, n_q, n_k)
    assert_close(added, bias.expand(2, -1, -1, -1), 1e-5)
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
    assert_close(torch.cat([ours[:, 0::2], ours[:, 1::2]], dim=-1), theirs, 1e-5)


def test_rotary_in_pairs_equals_gpt_js():
    x, at = torch.randn(BATCH, HEADS, N, D), torch.tensor([0, 3, 1, 40, 41, 97, 2])
    sin, cos = code_of("gptj").create_sinusoidal_positions(101, D)[at].chunk(2, dim=-1)
    theirs = code_of("gptj").apply_rotary_pos_emb(x.transpose(1, 2), sin[None], cos[None])
    assert_close(apply_rotary(x, at), theirs.transpose(1, 2), 5e-5)


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


@pytest.mark.parametrize("kind", ["linear", "yarn"])
@pytest.mark.parametrize("seed", range(20))
def test_frequencies_and_turned_vectors_equal_llamas(kind, seed):
    """A random width, base, factor and trained length each time."""
    dice, llama = random.Random(seed), code_of("llama")
    width, base, factor = 2 * dice.randint(1, 64), 10 ** dice.uniform(1.5, 6), dice.randint(2, 40)
    length, n = int(10 ** dice.uniform(1.5, 4)), dice.randint(2, 40)
    rule = {"rope_type": kind, "rope_theta": base, "factor": factor, "beta_fast": 40, "beta_slow": 2}
    config = llama.LlamaConfig(
        head_dim=width,
        max_position_embeddings=factor * length,
        rope_parameters=rule | {"original_max_position_embeddings": length},
    )
    theirs, their_factor = llama.ROPE_INIT_FUNCTIONS[kind](config)
    ours, our_factor = rotary_frequencies(width, base=base, factor=factor), 1.0
    if kind == "yarn":
        ours = yarn_frequencies(width, factor, length, base=base, beta_fast=40, beta_slow=2)
        our_factor = yarn_attention_factor(factor)
    assert our_factor == pytest.approx(their_factor, abs=1e-12)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)  # the slowest are far below 1e-5
    query, key = torch.randn(2, BATCH, HEADS, n, width)
    cos, sin = llama.LlamaRotaryEmbedding(config)(query, torch.arange(n)[None])
    expected = llama.apply_rotary_pos_emb(query, key, cos, sin)
    how = {"layout": "halves", "frequencies": theirs, "attention_factor": our_factor}
    for turned, other in zip(Rotary(**how)(query, key), expected, strict=True):
        assert_close(turned, other, 1e-5)


@pytest.mark.parametrize("kind", ["default", "yarn"])
def test_a_layer_with_partial_rotary_equals_phis(kind):
    """Phi turns the first half of each head; only that half gets YaRN's attention factor."""
    phi = code_of("phi")
    rule = {"rope_type": kind, "rope_theta": 500.0, "partial_rotary_factor": 0.5, "factor": 4}
    rule |= {"original_max_position_embeddings": 40, "beta_fast": 6}
    config = phi.PhiConfig(
        hidden_size=HEADS * 28,
        num_attention_heads=HEADS,
        max_position_embeddings=160,
        rope_parameters=rule,
        attn_implementation="eager",
    )
    theta, factor = rotary_frequencies(14, base=500), 1.0
    if kind == "yarn":
        theta, factor = yarn_frequencies(14, 4, 40, base=500, beta_fast=6), yarn_attention_factor(4)
    transform = Rotary(layout="halves", frequencies=theta, attention_factor=factor)
    ours, theirs = (
        MultiHeadAttention(HEADS * 28, HEADS, transform=transform),
        phi.PhiAttention(config, 0).eval(),
    )
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        other = getattr(theirs, name.replace("out_proj", "dense"))
        torch.nn.init.normal_(other.bias)
        getattr(ours, name).load_state_dict(other.state_dict())
    x = torch.randn(BATCH, N, HEADS * 28)
    turn = phi.PhiRotaryEmbedding(config)(x, torch.arange(N)[None])
    for found, expected in zip(ours(x), theirs(x, turn, None), strict=True):
        assert_close(found, expected, 1e-5)


@pytest.mark.parametrize("num_heads", [1, 2, 3, 5, 7, 8, 11, 13, 16, 29, 64])
def test_alibi_equals_blooms(num_heads):
    """Bloom adds slope * j to column j, which is the same under a causal softmax."""
    everything = torch.ones(1, N, dtype=torch.long)
    theirs = code_of("bloom").build_alibi_tensor(everything, num_heads, torch.float32)  # (heads, 1, n)
    assert_close(alibi_slopes(num_heads), theirs[:, 0, 1], 1e-6)
    content, hidden = torch.randn(num_heads, N, N), ~causal_mask(N)
    expected = (content + theirs).masked_fill(hidden, -math.inf).softmax(dim=-1)
    ours = (content + alibi_bias(num_heads, N)).masked_fill(hidden, -math.inf).softmax(dim=-1)
    assert_close(ours, expected, 1e-5)


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


def test_what_is_left_out_has_the_papers_numbers():
    """Each default, written out; numbers of pairs that are rounded would hide a ``beta`` of 31."""
    x = torch.randn(2, N, 12)
    assert torch.equal(
        sinusoidal_positions(9, 6), sinusoidal_positions(9, 6, base=10000, dtype=torch.float32)
    )
    assert torch.equal(
        rotary_frequencies(6), rotary_frequencies(6, base=10000, factor=1, dtype=torch.float32)
    )
    for length in (300, 4096):
        written = {"base": 10000, "beta_fast": 32, "beta_slow": 1, "truncate": True, "dtype": torch.float32}
        assert torch.equal(yarn_frequencies(64, 4, length), yarn_frequencies(64, 4, length, **written))
        written["truncate"] = False
        exact = yarn_frequencies(64, 4, length, truncate=False)
        assert torch.equal(exact, yarn_frequencies(64, 4, length, **written))
    written = {"base": 10000, "layout": "pairs", "attention_factor": 1}
    assert torch.equal(apply_rotary(x), apply_rotary(x, **written))
    assert torch.equal(Rotary()(x, x)[0], Rotary(**written)(x, x)[0])
    assert alibi_slopes(3).dtype == alibi_bias(3, 5).dtype == torch.float32


@pytest.mark.parametrize("truncate", [True, False])
def test_yarn_where_no_pair_lies_between_fast_and_slow_ones(truncate):
    """``low`` equals ``high``: the pairs up to there stay as they are, and the others are interpolated."""
    length, slow = (10, 100) if truncate else (round(2 * math.pi * 1e4), 1)  # low = high = 0, or nearly 4
    share = torch.tensor([0, 1, 1, 1]) if truncate else torch.zeros(4)
    plain = rotary_frequencies(8)
    found = yarn_frequencies(8, 4, length, beta_slow=slow, beta_fast=slow + 1e-9, truncate=truncate)
    assert_close(found, plain * (1 - share) + plain / 4 * share, 1e-6)


def test_a_factor_below_1_leaves_the_scores_alone():
    assert yarn_attention_factor(0.5) == yarn_attention_factor(1) == 1
    assert yarn_attention_factor(2) > 1
