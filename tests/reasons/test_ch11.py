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
