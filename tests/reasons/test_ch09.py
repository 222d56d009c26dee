"""Reasons of chapter 09, each tried with the smallest experiment that could refute it."""

import pytest
import torch
from torch.nn.functional import cross_entropy

import mha_lab
from mha_course.chapters import story_model
from mha_lab import MultiHeadAttention, positions
from mha_lab.scores import AlibiScore, RotaryScore

PLAIN, BLOCKS = 0, 1  # the numbers of two kernels in torch.nn.attention.SDPBackend


def test_alibi_does_not_notice_that_a_sentence_is_reversed():
    """Another shuffle changes its distances, and then it does; rotary notices both."""
    x, shuffled, reverse = torch.randn(5, 12), torch.tensor([3, 0, 4, 1, 2]), torch.arange(5).flip(0)
    for score, notices in ((AlibiScore(2), False), (RotaryScore(), True)):
        layer = MultiHeadAttention(12, 2, score=score)
        for order, seen in ((shuffled, True), (reverse, notices)):
            assert torch.allclose(layer(x[order])[0], layer(x)[0][order], atol=1e-5) != seen


def test_alibi_finds_the_noun_on_the_left_only_because_it_is_nearer():
    """With the noun on the right at distance 1 and that on the left at 2, it prefers the right one."""
    content = torch.tensor([2.8, 0, 0, 2.8])  # noun, article, saw, noun
    row = (content + positions.alibi_bias(8, 4)[0, 2]).softmax(-1)
    assert row[3] > row[0]


def test_which_bias_makes_a_cpu_compute_the_plain_formula():
    q, k, v = torch.randn(3, 2, 4, 5, 8)
    for bias, kernel in (
        (torch.randn(5, 5), BLOCKS),
        (torch.randn(1, 4, 5, 5), BLOCKS),
        (torch.randn(4, 5, 5), PLAIN),
        (torch.randn(5, 5, requires_grad=True), PLAIN),
        (torch.randn(1, 4, 5, 5, requires_grad=True), PLAIN),
    ):
        assert torch._fused_sdp_choice(q, k, v, bias) == kernel


def test_each_pair_is_a_rotation_whatever_the_projections_are():
    """A score depends on positions by the distance, but for rotary before the projections."""
    alike, (any_q, any_k) = torch.randn(8).double().expand(9, 8), torch.randn(2, 8, 8).double()
    after = positions.apply_rotary(alike @ any_q) @ positions.apply_rotary(alike @ any_k).mT
    before = (positions.apply_rotary(alike) @ any_q) @ (positions.apply_rotary(alike) @ any_k).mT
    for scores, distance_only in ((after, True), (before, False)):
        assert torch.allclose(scores[1:, 1:], scores[:-1, :-1]) == distance_only


# Trained


class Clamped(torch.nn.Module):
    """Rotary, but each distance above 28 counts as 28: more keys than in training, and no new distance."""

    def forward(self, query, key):
        n = key.shape[-2]
        last, first = torch.full((n,), 28), torch.zeros(n, dtype=torch.long)
        far = mha_lab.scaled_dot_product_scores(
            positions.apply_rotary(query, last), positions.apply_rotary(key, first)
        )
        distance = torch.arange(n)[:, None] - torch.arange(n)
        return torch.where(distance > 28, far, RotaryScore()(query, key))


@pytest.mark.unchecked
@pytest.mark.training
@pytest.mark.parametrize("seed", range(5))
def test_rotary_gets_worse_mostly_by_distances_that_were_never_seen(seed):
    """Stories of 60 tokens after a training on 30: with the same keys and no new distance, most is gone."""
    rotary = {"positions": "none", "attention": lambda _: MultiHeadAttention(64, 4, score=RotaryScore())}
    model, (stories, entropy) = story_model.train(seed, 400, **rotary), story_model.sample(300, 7, length=60)

    @torch.no_grad()
    def above(start, end):
        loss = cross_entropy(model(stories)[0][:, :-1].mT, stories[:, 1:], reduction="none")
        return (loss - entropy[:, 1:])[:, start:end].mean().item()

    trained, longer = above(5, 28), above(44, 59)
    for block in model.blocks:
        block.attention.score = Clamped()
    assert above(5, 28) == pytest.approx(trained, abs=1e-4)
    assert longer > 1.5 * trained
    assert above(44, 59) - trained < (longer - trained) / 2


@pytest.mark.unchecked
@pytest.mark.training
@pytest.mark.parametrize("seed", range(5))
def test_sinusoidal_gets_worse_by_positions_that_were_never_seen(seed):
    """15 tokens of a story with the same distances: only at positions from 30 on they are hard to predict."""
    model, (stories, entropy) = (
        story_model.train(seed, 300, positions="sinusoidal"),
        story_model.sample(300, 7, length=15),
    )
    table = 0.4 * positions.sinusoidal_positions(60, 64, base=100)

    @torch.no_grad()
    def above(start):
        x = model.token_embedding(stories) + table[start : start + 15]
        for block in model.blocks:
            x, _ = block(x)
        loss = cross_entropy(model._read_out(x)[:, :-1].mT, stories[:, 1:], reduction="none")
        return (loss - entropy[:, 1:])[:, 5:].mean().item()

    seen, never_seen = [above(start) for start in (0, 10, 15)], [above(start) for start in (30, 45)]
    assert min(never_seen) > 3 * max(seen)
