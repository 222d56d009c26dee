"""Reasons of chapter 11, each tried with the smallest experiment that could refute it."""

import math

import pytest
import torch
from torch import nn

import mha_lab


def test_shared_queries_and_keys_make_the_scores_symmetric():
    """With a matrix of their own for the keys, they are not."""
    x, one, other = torch.randn(5, 6), torch.randn(6, 4), torch.randn(6, 4)
    for keys, symmetric in ((one, True), (other, False)):
        scores = (x @ one) @ (x @ keys).T
        assert torch.allclose(scores, scores.T, atol=1e-5) == symmetric


def test_every_shared_matrix_gets_a_gradient_and_an_unused_one_does_not():
    x, w = torch.randn(5, 6), torch.randn(3, 6, 6, requires_grad=True)
    for used, reached in (((0, 1, 2), [True] * 3), ((0, 0, 0), [True, False, False])):
        q, k, v = (x @ w[i] for i in used)
        (gradient,) = torch.autograd.grad((torch.softmax(q @ k.T, dim=-1) @ v).square().sum(), w)
        assert gradient.flatten(1).any(dim=1).tolist() == reached


def test_a_layer_norm_hides_a_number_that_is_added_to_all_entries():
    """So the same change of the padding shows without it, and with a norm that subtracts no mean."""
    x = torch.randn(5, 8)
    changed = x.clone()
    changed[3:] += 1

    def moved(norm):
        outputs = (mha_lab.scaled_dot_product_attention(*[norm(each)] * 3)[0][:3] for each in (x, changed))
        return not torch.allclose(*outputs, atol=1e-5)

    assert not moved(nn.LayerNorm(8))
    assert moved(nn.RMSNorm(8))
    assert moved(nn.Identity())


def test_a_weight_of_0_does_not_stop_a_nan():
    """A NaN in the padding reaches the words, as 0 * NaN; a large number there does not."""
    value = torch.randn(1, 3, 2)
    mask = torch.tensor([True, True, False])
    weights = mha_lab.masked_softmax(torch.zeros(1, 1, 3), mask)
    for inside, spoilt in ((math.nan, True), (1e9, False)):
        value[0, 2] = inside
        assert (weights @ value).isnan().all().item() == spoilt


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_gradient_descent_lowers_the_loss_of_a_layer_with_a_bug_too(seed):
    """A softmax over the wrong axis halves it. Equal weights do not: then all tokens get the same output."""
    torch.manual_seed(seed)
    x, target = torch.randn(2, 2, 5, 21, dtype=torch.float64)
    start = torch.randn(4, 21, 21, dtype=torch.float64) / (3 * math.sqrt(21))
    for weights_of, halved in (
        (lambda scores: scores.softmax(dim=-1), True),
        (lambda scores: scores.softmax(dim=-2), True),
        (lambda scores: torch.full_like(scores, 0.2), False),
    ):
        learned = start.clone().requires_grad_()
        optimiser = torch.optim.Adam([learned], lr=0.03)
        losses = []
        for _ in range(150):
            optimiser.zero_grad()
            q, k, v = (mha_lab.split_heads(x @ matrix, 3) for matrix in learned[:3])
            output = mha_lab.merge_heads(weights_of(q @ k.mT / math.sqrt(7)) @ v) @ learned[3]
            loss = (output - target).square().mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        assert (losses[-1] < losses[0] / 2) == halved


X, W = torch.randn(2, 5, 6, dtype=torch.float64), torch.randn(4, 6, 6, dtype=torch.float64)


def layer(x, num_heads=3, mask=None, *, by=1.0, fill=None, softmax_dim=-1):
    """The output of a layer whose scores are divided by ``by`` once more, or whose hidden ones are filled."""
    q, k, v = (mha_lab.split_heads(x @ matrix, num_heads) for matrix in W[:3])
    scores = q @ k.mT / q.shape[-1] ** 0.5 / by
    if fill is not None:
        weights = torch.softmax(scores.masked_fill(~mask, fill), dim=-1)
    elif softmax_dim == -2:
        weights = torch.softmax(scores, dim=-2)
    else:
        weights = mha_lab.masked_softmax(scores, mask)
    return mha_lab.merge_heads(weights @ v) @ W[3]


def moved(x, real, mask):
    """Whether the outputs of real tokens change with the padding."""
    changed = torch.where(real[..., None], x, torch.randn_like(x))
    return not torch.allclose(layer(x, mask=mask)[real], layer(changed, mask=mask)[real])


@pytest.mark.parametrize("num_heads", [1, 2, 3, 6])
def test_divided_by_the_root_of_d_model_the_divisor_is_too_large_by_the_root_of_h(num_heads):
    wrong = layer(X, num_heads, by=num_heads**0.5)
    q, k, v = (mha_lab.split_heads(X @ matrix, num_heads) for matrix in W[:3])
    published = mha_lab.merge_heads(torch.softmax(q @ k.mT / 6**0.5, dim=-1) @ v) @ W[3]
    torch.testing.assert_close(published, wrong)
    assert torch.allclose(wrong, layer(X, num_heads)) == (num_heads == 1)


def test_rows_that_do_not_sum_to_1_give_no_average():
    """Equal tokens hide it: then, every row sums to 1 whichever axis the softmax takes."""
    equal = X[:, :1].expand(2, 5, 6).clone()
    value = mha_lab.merge_heads(mha_lab.split_heads(equal @ W[2], 3)) @ W[3]
    torch.testing.assert_close(layer(equal), value)
    torch.testing.assert_close(layer(equal, softmax_dim=-2), value)
    ones = torch.ones(2, 5, 1, dtype=torch.float64)
    scores = X @ X.mT
    torch.testing.assert_close(torch.softmax(scores, dim=-1) @ ones, ones)
    assert not torch.allclose(torch.softmax(scores, dim=-2) @ ones, ones)


@pytest.mark.parametrize("num_heads", [1, 3])
def test_a_bare_reshape_mixes_tokens_only_with_more_than_one_head(num_heads):
    token = torch.arange(5.0)[None, :, None].expand(1, 5, 6)  # each number says its token
    heads = mha_lab.split_heads(token, num_heads)
    torch.testing.assert_close(heads.transpose(1, 2).reshape(1, 5, 6), token)
    assert torch.equal(heads.reshape(1, 5, 6), token) == (num_heads == 1)


@pytest.mark.parametrize(
    ("is_word", "causal", "found"),
    [
        ([1, 1, 1, 0, 0], False, True),
        ([1, 1, 1, 0, 0], True, False),
        ([0, 0, 1, 1, 1], True, True),
        ([1, 1, 0, 1, 1], True, True),
    ],
)
def test_a_mask_that_hides_queries_shows_only_where_a_real_token_sees_padding(is_word, causal, found):
    real = torch.tensor([is_word, [1] * 5]).bool()
    seen = mha_lab.causal_mask(5) if causal else torch.ones(5, 5).bool()
    assert not moved(X, real, real[:, None, None] & seen)
    assert moved(X, real, real[:, None, :, None] & seen) == found


@pytest.mark.parametrize(("fill", "safe"), [(-1e4, 1), (-1e9, 1e3)])
def test_a_fill_with_a_number_is_right_only_if_no_score_is_as_low(fill, safe):
    real = torch.tensor([[True, True, True, False, False], [True] * 5])[:, None, None]
    for size, right in ((safe, True), (1000 * safe, False)):
        filled = layer(size * X, mask=real, fill=fill)
        assert torch.allclose(filled, layer(size * X, mask=real)) == right


def test_dropout_breaks_the_properties_of_a_correct_layer():
    """With its dropout off, PyTorch's layer has them."""
    pytorchs = nn.MultiheadAttention(6, 3, dropout=0.5, batch_first=True).double()
    for training in (True, False):
        pytorchs.train(training)
        output, weights = pytorchs(X, X, X)
        assert torch.allclose(weights.sum(dim=-1), torch.ones(2, 5).double()) != training
        assert torch.allclose(pytorchs(X[:1], X[:1], X[:1])[0], output[:1]) != training


def test_a_layer_that_attends_across_the_batch_sees_no_token_of_its_own_sample():
    """So later tokens do not reach it, without any mask. Within a sample, they do."""
    later = X.clone()
    later[:, 1:] = torch.randn(2, 4, 6)
    across = [layer(each.transpose(0, 1)).transpose(0, 1)[:, 0] for each in (X, later)]
    torch.testing.assert_close(*across)
    assert not torch.allclose(layer(X)[:, 0], layer(later)[:, 0])


def test_a_mask_of_samples_fits_the_queries_only_if_there_are_as_many():
    for samples, fits in ((5, True), (2, False), (1, True)):
        x, real = X[:1].expand(samples, 5, 6), torch.ones(samples, 5).bool()
        if fits:
            torch.testing.assert_close(layer(x, mask=real), layer(x))
        else:
            with pytest.raises(ValueError, match="mask"):
                layer(x, mask=real)
            with pytest.raises(RuntimeError):
                torch.zeros(samples, 3, 5, 5).masked_fill(~real, 0)


def test_the_bare_comparison_finds_nothing_and_allclose_stretches():
    one, other = torch.zeros(3, 2), torch.zeros(4, 3, 2)
    one.shape == other.shape  # noqa: B015
    with pytest.raises(AssertionError):
        assert one.shape == other.shape
    assert torch.allclose(one, other)
    with pytest.raises(AssertionError, match="shape"):
        torch.testing.assert_close(one, other)


def test_a_mask_that_one_layer_forgets_shows_in_the_whole_model_only():
    """Each of the two layers is right by itself; whichever of them gets no mask, padding comes through."""
    real = torch.tensor([[True, True, True, False, False], [True] * 5])
    mask = real[:, None, None]
    changed = torch.where(real[..., None], X, torch.randn_like(X))
    for masks, found in (((mask, mask), False), ((None, mask), True), ((mask, None), True)):
        one, other = (layer(layer(each, mask=masks[0]), mask=masks[1])[real] for each in (X, changed))
        assert torch.allclose(one, other) != found
    assert not moved(X, real, mask)


@pytest.mark.parametrize("sample", range(5))
def test_a_token_sees_what_the_row_of_its_place_shows_and_not_that_of_its_sample(sample):
    """Five samples of 5 to 1 real tokens, and a mask ``(5, 5)``: the first token of each sees row 0."""
    real = torch.arange(5) < torch.arange(5, 0, -1)[:, None]
    x = torch.randn(5, 5, 6, dtype=torch.float64)
    changed = torch.where(real[..., None], x, torch.randn_like(x))
    for mask, seen in ((real, sample > 0), (real[:, None, None], False)):
        before, after = (layer(each, mask=mask)[sample, 0] for each in (x, changed))
        assert torch.allclose(before, after) != seen


@pytest.mark.parametrize("batch_first", [True, False])
def test_without_batch_first_a_token_sees_the_same_place_of_the_other_samples(batch_first):
    theirs = nn.MultiheadAttention(6, 3, batch_first=batch_first).double()
    weights = theirs(X, X, X)[1]
    assert weights.shape == ((2, 5, 5) if batch_first else (5, 2, 2))
    influence = torch.func.jacrev(lambda x: theirs(x, x, x)[0][0, 1])(X)
    seen = influence.abs().sum(dim=(0, 3)) > 0  # by token 1 of sample 0: (2, 5)
    expected = torch.zeros(2, 5, dtype=torch.bool)
    expected[(0, slice(None)) if batch_first else (slice(None), 1)] = True
    assert torch.equal(seen, expected)
