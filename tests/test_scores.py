"""Scores other than the dot product, one number at a time."""

from itertools import product

import pytest
import torch

from mha_lab import AdditiveScore, RelativePositionBias, scaled_dot_product_scores
from mha_lab.scores import AlibiScore, QueryKeyNorm, RotaryScore, SoftcappedScore
from tests.references import assert_close


def test_additive_score_is_the_formula_for_each_pair():
    score = AdditiveScore(d_k=5, hidden=7).double()
    query, key = torch.randn(2, 3, 11, 5).double(), torch.randn(2, 3, 13, 5).double()
    scores = score(query, key)
    assert scores.shape == (2, 3, 11, 13)
    w, u, v = score.query_proj.weight, score.key_proj.weight, score.energy.weight[0]
    for b, h, i, j in product(range(2), range(3), range(11), range(13)):
        assert_close(scores[b, h, i, j], v @ torch.tanh(w @ query[b, h, i] + u @ key[b, h, j]), 1e-12)


def test_relative_bias_starts_as_the_scaled_dot_product():
    query, key = torch.randn(2, 3, 5, 7), torch.randn(2, 3, 11, 7)
    assert_close(RelativePositionBias(3, 2)(query, key), scaled_dot_product_scores(query, key), 1e-6)


@pytest.mark.parametrize(("n_q", "n_k"), [(5, 5), (2, 5), (5, 2), (1, 7)])
def test_relative_bias_depends_on_head_and_clipped_distance(n_q, n_k):
    bias = RelativePositionBias(num_heads=2, max_distance=2)
    with torch.no_grad():
        bias.bias.copy_(torch.arange(10.0).view(2, 5))
    scores = bias(torch.zeros(1, 2, n_q, 3), torch.zeros(1, 2, n_k, 3))
    for h in range(2):
        for i in range(n_q):
            for j in range(n_k):
                distance = j - i - (n_k - n_q)
                clipped = max(-2, min(2, distance))
                assert scores[0, h, i, j] == 5 * h + clipped + 2


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
def test_relative_bias_takes_any_number_of_leading_axes(leading):
    bias = RelativePositionBias(num_heads=2, max_distance=2)
    torch.nn.init.normal_(bias.bias)
    query, key = torch.randn(*leading, 2, 5, 7), torch.randn(*leading, 2, 11, 7)
    whole = bias(query, key)
    for at in product(*map(range, leading)):
        assert_close(whole[at], bias(query[at][None], key[at][None])[0], 1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_scores_have_the_dtype_of_what_they_get(dtype):
    x = torch.randn(2, 3, 5, 4, dtype=dtype)
    for score in (AlibiScore(3), RotaryScore(), SoftcappedScore(5.0)):
        assert score(x, x).dtype == dtype


def test_the_epsilon_of_a_norm_that_is_left_out():
    """As small as the mean square of these numbers: their length becomes that of ones, over ``sqrt(2)``."""
    small = torch.full((1, 3, 4), 1e-3)
    for part in QueryKeyNorm(4)(small, small):
        assert_close(part, torch.full((1, 3, 4), 0.5**0.5), 1e-5)
    for part in QueryKeyNorm(4, eps=0.0)(small, small):
        assert_close(part, torch.ones(1, 3, 4), 1e-5)


def test_printing_shows_the_sizes():
    assert "num_heads=2, max_distance=3" in repr(RelativePositionBias(2, 3))
    assert "in_features=3, out_features=5" in repr(AdditiveScore(3, 5))
