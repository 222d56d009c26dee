"""Linear attention: its forms against loops, the authors' update and each other; how little it can focus."""

import pytest
import torch

from mha_course.chapters.linear import (
    LinearState,
    elu_plus_one,
    largest_weights,
    linear_attention,
    linear_attention_recurrent,
    linear_attention_weights,
)
from mha_lab import scaled_dot_product_attention
from tests.references import TOLERANCE, assert_close

BATCH, HEADS, N, D_K, D_V = 2, 3, 7, 5, 11


def problem(n_q=N, dtype=torch.float64):
    sizes = (n_q, D_K), (N, D_K), (N, D_V)
    return [torch.randn(BATCH, HEADS, *size, dtype=dtype) for size in sizes]


def both_signs(x):
    """Twice as many features, some of which are 0."""
    return torch.cat([x.relu(), (-x).relu()], dim=-1)


def looped(query, key, value, feature_map, causal):
    """Katharopoulos et al. 2020, equations 4 and 8, for one sample and head."""
    weights = torch.zeros(len(query), len(key)).double()
    for i in range(len(query)):
        seen = range(i + 1) if causal else range(len(key))
        for j in seen:
            pairs = zip(feature_map(query[i]).tolist(), feature_map(key[j]).tolist(), strict=True)
            weights[i, j] = sum(a * b for a, b in pairs)
        weights[i] /= weights[i].sum()
    return weights @ value, weights


@pytest.mark.parametrize("feature_map", [elu_plus_one, both_signs])
@pytest.mark.parametrize(("causal", "n_q"), [(True, N), (False, N), (False, 4)])
def test_outputs_and_weights_are_those_of_the_loops(causal, n_q, feature_map):
    query, key, value = problem(n_q)
    output = linear_attention(query, key, value, feature_map=feature_map, causal=causal)
    weights = linear_attention_weights(query, key, feature_map=feature_map, causal=causal)
    for b in range(BATCH):
        for h in range(HEADS):
            expected, rows = looped(*(x[b, h] for x in (query, key, value)), feature_map, causal)
            assert_close(output[b, h], expected, 1e-10)
            assert_close(weights[b, h], rows, 1e-10)
    x = torch.tensor([-3.0, -0.5, 0.0, 2.0]).double()
    assert_close(elu_plus_one(x), torch.where(x > 0, x + 1, x.exp()), 1e-12)


def updated(query, key, value, eps):
    """What ``RecurrentLinearAttention`` of the authors returns, one token after the other, and its state.

    From idiap/fast-transformers, fast_transformers/recurrent/attention/self_attention/linear_attention.py:
    the state is updated first, and then read; ``eps`` is added to the denominator.
    """
    memory, normaliser, outputs = torch.zeros(D_K, D_V).double(), torch.zeros(D_K).double(), []
    for token in range(N):
        q, k, v = (x[..., token, :] for x in (query, key, value))
        f_q, f_k = (torch.where(x > 0, x + 1, x.exp()) for x in (q, k))
        memory = memory + torch.stack([v * f_k[..., i : i + 1] for i in range(D_K)], dim=-2)
        normaliser = normaliser + f_k
        read = sum(f_q[..., i : i + 1] * memory[..., i, :] for i in range(D_K))
        outputs.append(read / ((f_q * normaliser).sum(dim=-1, keepdim=True) + eps))
    return torch.stack(outputs, dim=-2), memory, normaliser


def test_outputs_and_state_are_those_of_the_authors_update_but_for_their_eps():
    """By hand: 1e-6 in a denominator of 1 or more changes an output by at most a millionth of itself."""
    query, key, value = problem()
    query[..., 0], key[..., 0] = query[..., 0].abs(), key[..., 0].abs()  # denominators above 1
    ours, state = linear_attention_recurrent(query, key, value)
    for form in (ours, linear_attention(query, key, value)):
        exact, *kept = updated(query, key, value, eps=0.0)
        assert_close(form, exact, 1e-12)
        theirs, *_ = updated(query, key, value, eps=1e-6)
        difference = (form - theirs).abs()
        assert (difference <= 1e-6 * form.abs() + 1e-12).all()
        assert 1e-8 < difference.max() < 1e-5
    for a, b in zip(state, kept, strict=True):
        assert_close(a, b, 1e-12)


@pytest.mark.parametrize("feature_map", [elu_plus_one, both_signs])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_the_recurrent_form_is_the_parallel_form_with_gradients_and_in_pieces(dtype, feature_map):
    inputs = [x.requires_grad_() for x in problem(dtype=dtype)]
    upstream, found = torch.randn(BATCH, HEADS, N, D_V, dtype=dtype), []
    for pieces in (None, [N], [1] * N, [4, 1, 2]):
        state, outputs = None, []
        for piece in zip(*(x.split(pieces or N, dim=-2) for x in inputs), strict=True):
            if pieces is None:
                outputs.append(linear_attention(*piece, feature_map=feature_map))
            else:
                output, state = linear_attention_recurrent(*piece, state, feature_map=feature_map)
                outputs.append(output)
        output = torch.cat(outputs, dim=-2)
        found.append([output, *torch.autograd.grad((output * upstream).sum(), inputs)])
        if state is not None:
            features = feature_map(inputs[1])
            assert_close(state.memory, features.mT @ inputs[2], TOLERANCE[dtype])
            assert_close(state.normaliser, features.sum(dim=-2), TOLERANCE[dtype])
    for other in found[1:]:
        for expected, actual in zip(found[0], other, strict=True):
            assert_close(actual, expected, 10 * TOLERANCE[dtype])


def test_a_query_without_a_feature_in_common_gets_zeros_and_finite_gradients():
    query, key, value = -torch.ones(3, 2), torch.ones(3, 2), torch.ones(3, 5)
    query.requires_grad_()
    for causal in (True, False):
        output = linear_attention(query, key, value, feature_map=torch.relu, causal=causal)
        assert (output == 0).all()
        assert torch.autograd.grad(output.sum(), query)[0].isfinite().all()
        assert (linear_attention_weights(query, key, feature_map=torch.relu, causal=causal) == 0).all()


@pytest.mark.parametrize("d_k", [2, 8])
def test_no_query_exceeds_the_largest_weights_and_some_query_reaches_them(d_k):
    """Of 64 keys of one length, the softmax picks out each; here the mean of the limits is below d_k / 64."""
    key = torch.randn(64, d_k, dtype=torch.float64)
    key *= d_k**0.5 / key.norm(dim=-1, keepdim=True)
    limit = largest_weights(key)
    assert limit.mean() < d_k / 64
    _, softmax = scaled_dot_product_attention(1e7 * key, key, key)
    assert softmax.diagonal().min() > 0.9
    best = torch.zeros(64, dtype=torch.float64)
    for scale in (1, 10, 100):
        query = torch.cat([scale * torch.randn(1000, d_k).double(), scale * key])
        best = torch.maximum(best, linear_attention_weights(query, key, causal=False).amax(dim=0))
    assert (best < limit + 1e-12).all()
    one_feature = torch.full((d_k, d_k), -40.0).fill_diagonal_(1e6).double()
    reached = linear_attention_weights(one_feature, key, causal=False).amax(dim=0)
    assert_close(reached, limit, 1e-10)


def ones(*sizes):
    return torch.ones(sizes)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: linear_attention(ones(3, 2), ones(5, 2), ones(5, 4)), ValueError, "causal=False"),
        (lambda: linear_attention(ones(5, 2), ones(5, 3), ones(5, 4)), ValueError, "the width of query"),
        (lambda: linear_attention(ones(5, 2).long(), ones(5, 2), ones(5, 4)), TypeError, "query.float"),
        (lambda: linear_attention_weights(ones(3, 2), ones(5, 2)), ValueError, "causal=False"),
        (lambda: linear_attention(*[-ones(5, 2)] * 3, feature_map=lambda x: x), ValueError, "at least 0"),
        (lambda: linear_attention(*[ones(5, 2)] * 3, feature_map=None), TypeError, "feature_map"),
        (lambda: linear_attention(*[ones(5, 2)] * 3, feature_map=lambda x: 1.0), TypeError, "got float"),
        (lambda: linear_attention(*[ones(5, 2)] * 3, feature_map=torch.sum), ValueError, "feature_map"),
        (lambda: largest_weights(ones(0, 2)), ValueError, "at least one token"),
        (lambda: elu_plus_one([1.0]), TypeError, "a torch.Tensor"),
        (lambda: linear_attention_recurrent(*[ones(5, 2)] * 3, (1, 2)), TypeError, "got tuple"),
        (
            lambda: linear_attention_recurrent(*[ones(5, 2)] * 3, LinearState(ones(2, 3), ones(2))),
            ValueError,
            "another layer",
        ),
        (
            lambda: linear_attention_recurrent(*[ones(4, 5, 2)] * 3, LinearState(ones(3, 2, 2), ones(3, 2))),
            ValueError,
            "state.memory",
        ),
    ],
)
def test_wrong_arguments_are_named(call, error, says):
    with pytest.raises(error, match=says):
        call()
