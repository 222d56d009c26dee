"""Positions against loops, against numbers worked out by hand, and against the code of published models."""

import math
import re

import pytest
import torch
from torch.nn.attention.flex_attention import flex_attention

from mha_lab import (
    AdditiveScore,
    MultiHeadAttention,
    RelativePositionBias,
    causal_mask,
    scaled_dot_product_scores,
)
from mha_lab.positions import (
    alibi_bias,
    alibi_slopes,
    apply_rotary,
    sinusoidal_positions,
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


# Sinusoidal


def test_sinusoidal_by_hand():
    table = sinusoidal_positions(3, 4, base=100)
    expected = [
        [0.0, 1.0, 0.0, 1.0],
        [0.8414710, 0.5403023, 0.0998334, 0.9950042],
        [0.9092974, -0.4161468, 0.1986693, 0.9800666],
    ]
    assert_close(table, torch.tensor(expected), 1e-6)


def test_sinusoidal_is_the_formula_for_each_number():
    table = sinusoidal_positions(13, D, dtype=torch.float64)
    for m in range(13):
        for column in range(D):
            angle = m / 10000 ** ((column - column % 2) / D)
            expected = math.cos(angle) if column % 2 else math.sin(angle)
            assert abs(table[m, column].item() - expected) < 1e-12


def test_sinusoidal_products_depend_on_the_distance_only():
    table = sinusoidal_positions(41, D, dtype=torch.float64)
    products = table @ table.mT
    for distance in range(41):
        expected = sum(math.cos(distance / 10000 ** (2 * i / D)) for i in range(D // 2))
        found = products.diagonal(distance)
        assert_close(found, torch.full_like(found, expected), 1e-12)


def test_sinusoidal_dtype_and_exactness_far_out():
    """The angle is computed in float64, so position 99 999 is as exact as position 1."""
    far = sinusoidal_positions(100_000, 2)[-1]
    assert far.dtype == torch.float32
    assert_close(far, torch.tensor([math.sin(99_999), math.cos(99_999)]), 1e-6)
    assert sinusoidal_positions(3, 2, dtype=torch.float16).dtype == torch.float16


# Rotary


def test_rotary_by_hand():
    """A quarter of a turn takes (1, 0) to (0, 1); the second pair turns a hundred times slower."""
    x = torch.tensor([[1.0, 0.0, 1.0, 0.0]])
    quarter = torch.tensor([math.pi / 2])
    slow = [math.cos(math.pi / 200), math.sin(math.pi / 200)]
    assert_close(apply_rotary(x, quarter), torch.tensor([[0.0, 1.0, *slow]]), 1e-6)
    x = torch.tensor([[1.0, 1.0, 0.0, 0.0]])  # the same two pairs as halves
    expected = torch.tensor([[0.0, slow[0], 1.0, slow[1]]])
    assert_close(apply_rotary(x, quarter, layout="halves"), expected, 1e-6)


@pytest.mark.parametrize("base", [10000, 10.0])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary_is_the_formula_for_each_pair(layout, base):
    x = torch.randn(BATCH, HEADS, N, D).double()
    at = [5, 0, 31, 2, 2, 1000, -3]
    turned = apply_rotary(x, torch.tensor(at), base=base, layout=layout)
    counted = apply_rotary(x, base=base, layout=layout)
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


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary_keeps_lengths_and_position_0(layout):
    x = torch.randn(HEADS, N, D).double()
    turned = apply_rotary(x, torch.arange(N) * 11, layout=layout)
    assert_close(turned.norm(dim=-1), x.norm(dim=-1), 1e-12)
    assert torch.equal(turned[:, 0], x[:, 0])
    assert not torch.allclose(turned[:, 1:], x[:, 1:])
    back = apply_rotary(turned, torch.arange(N) * -11, layout=layout)
    assert_close(back, x, 1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary_products_depend_on_the_distance_only(layout):
    query, key = torch.randn(2, 1, D).double()

    def product(m, n):
        at = torch.tensor([m]), torch.tensor([n])
        return apply_rotary(query, at[0], layout=layout) @ apply_rotary(key, at[1], layout=layout).mT

    for m, n in [(5, 2), (2, 5), (13, 13)]:
        assert_close(product(m + 997, n + 997), product(m, n), 1e-10)
    assert abs(product(5, 2) - product(2, 5)) > 0.01


def test_the_two_layouts_are_one_but_for_the_order_of_columns():
    x = torch.randn(HEADS, N, D)
    order = [place("pairs", i, D)[k] for k in range(2) for i in range(D // 2)]
    assert torch.equal(apply_rotary(x[..., order], layout="halves"), apply_rotary(x)[..., order])


def test_pairs_turn_like_complex_numbers():
    """Meta's LLaMA computes them so: neighbours are one complex number."""
    x, at = torch.randn(BATCH, HEADS, N, D).double(), torch.tensor([0, 3, 1, 40, 41, 97, 2])
    angle = at[:, None] / 500 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.exp(1j * angle)
    assert_close(apply_rotary(x, at, base=500), torch.view_as_real(turned).flatten(-2), 1e-12)


def test_sorted_weights_carry_a_layer_from_pairs_to_halves():
    """What the script does that ports LLaMA's weights from Meta's code to Hugging Face's."""
    x, weights = torch.randn(N, 13).double(), torch.randn(2, HEADS * D, 13).double()  # as nn.Linear: rows

    def scores(weights, layout):
        query, key = ((x @ w.mT).unflatten(-1, (HEADS, D)).transpose(0, 1) for w in weights)
        return RotaryScore(layout=layout)(query, key)

    rows = weights.unflatten(1, (HEADS, D // 2, 2)).transpose(2, 3).flatten(1, 3)
    assert_close(scores(rows, "halves"), scores(weights, "pairs"), 1e-12)
    assert not torch.allclose(scores(weights, "halves"), scores(weights, "pairs"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rotary_in_half_precision_knows_far_positions(dtype):
    """The dtype of x holds no whole number near 4097; the angle is computed more precisely."""
    x, at = torch.randn(N, D), torch.arange(N) + 4097
    turned = apply_rotary(x.to(dtype), at)
    assert turned.dtype == dtype
    assert_close(turned.float(), apply_rotary(x, at), 0.05)


def test_rotary_gradient_turns_back():
    x = torch.randn(N, D, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(N, D).double()
    (apply_rotary(x) * upstream).sum().backward()
    assert_close(x.grad, apply_rotary(upstream, -torch.arange(N)), 1e-12)


def test_no_input_is_changed():
    x, at = torch.randn(N, D), torch.arange(N)
    before = x.clone(), at.clone()
    for layout in LAYOUTS:
        apply_rotary(x, at, layout=layout)
        RotaryScore(layout=layout)(x, x)
    assert torch.equal(x, before[0])
    assert torch.equal(at, before[1])


# ALiBi


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (3, [4, 8, 2]),
        (5, [2, 4, 6, 8, 1]),
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


# Both in a layer


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


SCORES = {
    "rotary": lambda: RotaryScore(),
    "rotary in halves": lambda: RotaryScore(layout="halves"),
    "ALiBi": lambda: AlibiScore(2),
    "relative bias": lambda: biased(RelativePositionBias(2, 3)),
    "additive": lambda: AdditiveScore(6, 5),
    "none": lambda: None,
}
NO_ORDER = ("additive", "none")


def biased(score):
    torch.nn.init.normal_(score.bias)
    return score


@pytest.mark.parametrize("name", SCORES)
def test_order_is_known_and_the_place_of_the_first_token_is_not(name):
    layer = MultiHeadAttention(12, 2, score=SCORES[name]()).double()
    x, order = torch.randn(N, 12).double(), torch.tensor([4, 2, 6, 0, 1, 5, 3])
    shuffled, output = layer(x[order])[0], layer(x)[0]
    assert torch.allclose(shuffled, output[order]) == (name in NO_ORDER)
    longer = torch.cat([torch.randn(5, 12).double(), x])
    later, _ = layer(longer, mask=torch.arange(5 + N) >= 5)
    assert_close(later[5:], output, 1e-10)


@pytest.mark.parametrize("name", SCORES)
def test_a_sentence_read_backwards(name):
    layer = MultiHeadAttention(12, 2, score=SCORES[name]()).double()
    x = torch.randn(N, 12).double()
    mirrored = torch.allclose(layer(x.flip(0))[0], layer(x)[0].flip(0))
    assert mirrored == (name in (*NO_ORDER, "ALiBi"))  # ALiBi alone knows distances without a sign


@pytest.mark.parametrize("name", SCORES)
def test_the_newest_tokens_alone_get_the_last_rows(name):
    """As in generation with a cache: fewer queries than keys."""
    score = SCORES[name]() or scaled_dot_product_scores
    score = score.double() if isinstance(score, torch.nn.Module) else score
    query, key = torch.randn(2, BATCH, 2, N, 6).double()
    assert_close(score(query[..., -3:, :], key), score(query, key)[..., -3:, :], 1e-12)


@pytest.mark.parametrize("score", [RotaryScore(), AlibiScore(2)])
def test_scores_without_parameters_leave_no_trace_in_the_state_dict(score):
    layer = MultiHeadAttention(12, 2, score=score)
    assert set(layer.state_dict()) == set(MultiHeadAttention(12, 2).state_dict())
    layer(torch.randn(N, 12))[0].square().sum().backward()
    for parameter in layer.parameters():
        assert parameter.grad.isfinite().all()


def test_printing_shows_the_choices():
    assert "base=500, layout='halves'" in repr(RotaryScore(base=500, layout="halves"))
    assert "num_heads=3" in repr(AlibiScore(3))


# The code of published models


@pytest.fixture(scope="module")
def models():
    """Hugging Face's implementations; a fresh set-up of the project installs them."""
    pytest.importorskip("transformers", reason="transformers: pip install '.[pretrained]'")
    from transformers.models.bloom import modeling_bloom
    from transformers.models.gptj import modeling_gptj
    from transformers.models.llama import modeling_llama
    from transformers.models.mpt import modeling_mpt
    from transformers.models.t5 import modeling_t5

    return {
        "bloom": modeling_bloom,
        "gptj": modeling_gptj,
        "llama": modeling_llama,
        "mpt": modeling_mpt,
        "t5": modeling_t5,
    }


def test_sinusoidal_equals_gpt_js(models):
    """There all sines come first, then all cosines."""
    theirs = models["gptj"].create_sinusoidal_positions(N, D)
    ours = sinusoidal_positions(N, D)
    assert_close(torch.cat([ours[:, 0::2], ours[:, 1::2]], dim=-1), theirs, 1e-6)


def test_rotary_in_pairs_equals_gpt_js(models):
    x, at = torch.randn(BATCH, HEADS, N, D), torch.tensor([0, 3, 1, 40, 41, 97, 2])
    sin, cos = models["gptj"].create_sinusoidal_positions(101, D)[at].chunk(2, dim=-1)
    theirs = models["gptj"].apply_rotary_pos_emb(
        x.transpose(1, 2), sin[None], cos[None]
    )  # (batch, n, heads, d)
    assert_close(apply_rotary(x, at), theirs.transpose(1, 2), 1e-5)


def test_rotary_in_halves_equals_llamas(models):
    llama = models["llama"]
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
def test_alibi_equals_blooms(models, num_heads):
    """Bloom adds slope * j to column j, which is the same under a causal softmax."""
    everything = torch.ones(1, N, dtype=torch.long)
    theirs = models["bloom"].build_alibi_tensor(everything, num_heads, torch.float32)  # (heads, 1, n)
    assert_close(alibi_slopes(num_heads), theirs[:, 0, 1], 1e-6)
    content, hidden = torch.randn(num_heads, N, N), ~causal_mask(N)
    expected = (content + theirs).masked_fill(hidden, -math.inf).softmax(dim=-1)
    ours = (content + alibi_bias(num_heads, N)).masked_fill(hidden, -math.inf).softmax(dim=-1)
    assert_close(ours, expected, 1e-6)


@pytest.mark.parametrize("num_heads", [1, 2, 8, 16])
def test_alibi_equals_mpts_for_powers_of_two(models, num_heads):
    """MPT has its own order of the slopes for other numbers; the last query's row is what it stores."""
    theirs = models["mpt"].build_mpt_alibi_tensor(num_heads, N)  # (heads, 1, n)
    assert_close(alibi_bias(num_heads, 1, N), theirs, 1e-6)


@pytest.mark.parametrize(("n_q", "n_k"), [(7, 7), (3, 7)])
def test_relative_bias_equals_t5s(models, n_q, n_k):
    """Up to a distance of 7, T5's groups hold one distance each: 0 to 7 left, 17 to 23 right."""
    config = models["t5"].T5Config(d_model=HEADS * 5, d_kv=5, num_heads=HEADS)
    theirs = models["t5"].T5Attention(config, has_relative_attention_bias=True)
    ours = RelativePositionBias(HEADS, max_distance=7)
    groups = [*range(7, -1, -1), *range(17, 24)]
    ours.load_state_dict({"bias": theirs.relative_attention_bias.weight[groups].mT})
    zeros = torch.zeros(1, HEADS, n_k, 5)
    expected = theirs.compute_bias(n_k, n_k)[:, :, n_k - n_q :]
    assert expected.abs().sum() > 0
    assert_close(ours(zeros[:, :, :n_q], zeros), expected, 1e-6)


# Wrong arguments

WRONG = [
    (lambda: sinusoidal_positions(0, 4), ValueError, "n: expected at least 1"),
    (lambda: sinusoidal_positions(3, 5), ValueError, "d_model: expected an even number, got 5"),
    (lambda: sinusoidal_positions(3, 4.0), TypeError, "d_model: expected an int"),
    (lambda: sinusoidal_positions(3, 4, base=0), ValueError, "base: expected a number above 0"),
    (lambda: apply_rotary([1.0, 2.0]), TypeError, "x: expected a torch.Tensor"),
    (lambda: apply_rotary(torch.ones(4)), ValueError, "x: expected a tensor of shape (..., n, d)"),
    (lambda: apply_rotary(torch.ones(3, 5)), ValueError, "x: expected a last axis of even width"),
    (lambda: apply_rotary(torch.ones(3, 4).long()), TypeError, "x: expected a floating-point dtype"),
    (lambda: apply_rotary(torch.ones(0, 4)), ValueError, "x: expected at least one token"),
    (
        lambda: apply_rotary(torch.ones(3, 4), layout="half"),
        ValueError,
        "layout: expected 'pairs' or 'halves'",
    ),
    (lambda: apply_rotary(torch.ones(3, 4), base=-1), ValueError, "base: expected a number above 0"),
    (lambda: apply_rotary(torch.ones(3, 4), [0, 1, 2]), TypeError, "positions: expected a torch.Tensor"),
    (lambda: apply_rotary(torch.ones(3, 4), torch.arange(2)), ValueError, "positions: expected one for each"),
    (lambda: apply_rotary(torch.ones(3, 4), torch.ones(3) > 0), TypeError, "positions: expected whole or"),
    (lambda: apply_rotary(torch.ones(3, 4), torch.ones(2, 3)), ValueError, "positions: expected a tensor of"),
    (
        lambda: apply_rotary(torch.ones(2, 3, 4), torch.ones(5, 3)),
        ValueError,
        "positions: expected leading axes that broadcast",
    ),
    (
        lambda: apply_rotary(torch.ones(3, 4), torch.arange(3, device="meta")),
        ValueError,
        "positions: expected the device of x",
    ),
    (lambda: RotaryScore(layout="neox"), ValueError, "layout: expected 'pairs' or 'halves'"),
    (lambda: RotaryScore(base="10000"), TypeError, "base: expected a number"),
    (lambda: RotaryScore()(torch.ones(3, 5), torch.ones(3, 5)), ValueError, "even width"),
    (
        lambda: RotaryScore()(torch.ones(3, 4), torch.ones(3, 6)),
        ValueError,
        "key: expected the width of query",
    ),
    (lambda: alibi_slopes(0), ValueError, "num_heads: expected at least 1"),
    (lambda: alibi_bias(2, 3, 0), ValueError, "n_key: expected at least 1"),
    (lambda: AlibiScore(2.0), TypeError, "num_heads: expected an int"),
    (
        lambda: AlibiScore(2)(torch.ones(1, 3, 5, 4), torch.ones(1, 3, 5, 4)),
        ValueError,
        "query: expected shape (..., num_heads = 2, n, d_k)",
    ),
    (lambda: AlibiScore(2)(torch.ones(5, 4), torch.ones(5, 4)), ValueError, "Was it split into heads?"),
]


@pytest.mark.unchecked
@pytest.mark.parametrize(("call", "error", "message"), WRONG, ids=[message for _, _, message in WRONG])
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=re.escape(message)) as raised:
        call()
    assert re.search(r"^[\w. ]+: expected .+, got .+\.( .+[.?])?$", str(raised.value))
