"""Reasons of chapter 13, each tried with the smallest experiment that could refute it."""

import math
from functools import cache

import pytest
import torch

import mha_lab
from bench import rope
from mha_course.chapters import story_model
from mha_lab import MultiHeadAttention, positions
from mha_lab.positions import Rotary, apply_rotary
from mha_lab.scores import QueryKeyNorm
from tests.chapters.test_five_trainings import SEEDS


def test_a_head_is_fainter_because_of_its_sink():
    """The sums of the rows change places with the sinks, and are 1 without them."""
    layer, x = MultiHeadAttention(8, 2, sinks=True), torch.randn(5, 8)
    layer.requires_grad_(False)
    sums = []
    for sinks in ([0.0, 2.0], [2.0, 0.0], [-torch.inf, -torch.inf]):
        layer.sinks.copy_(torch.tensor(sinks))
        sums.append(layer(x)[1].sum(dim=-1).mean(dim=-1))
    assert sums[0][1] < sums[0][0] < 1
    assert sums[1][0] < sums[1][1] < 1
    torch.testing.assert_close(sums[2], torch.ones(2))


def test_the_root_mean_square_in_float16_would_overflow_and_epsilon_keeps_zeros():
    x = torch.tensor([[[400.0, 300.0]]])
    assert x.half().square().isinf().any()
    normed = QueryKeyNorm(2).half()(x.half(), x.half())[0]
    torch.testing.assert_close(normed.float(), x / x.square().mean().sqrt(), atol=1e-3, rtol=0)
    zeros = torch.zeros(1, 1, 2)
    assert torch.equal(QueryKeyNorm(2)(zeros, zeros)[0], zeros)
    assert (zeros / zeros.square().mean().sqrt()).isnan().all()


def test_a_gain_makes_the_bound_larger():
    norm = QueryKeyNorm(64)
    x = torch.randn(1, 1, 64)
    scores = []
    for gain in (1.0, 2.0):
        torch.nn.init.constant_(norm.query_norm.weight, gain)
        scores.append(mha_lab.scaled_dot_product_scores(*norm(x, x)).item())
    assert scores == pytest.approx([8, 16], rel=1e-3)


def test_a_key_whose_value_is_zero_lets_a_head_output_zero_and_low_scores_do_not():
    value = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    for low in (-1.0, -100.0):
        assert (torch.full((2,), low).softmax(dim=0) @ value).tolist() == [0.5, 0.5]
    padded = torch.cat([value, torch.zeros(1, 2)])
    assert (torch.tensor([0.0, 0.0, 100.0]).softmax(dim=0) @ padded).abs().max() < 1e-6


def test_a_transform_that_counts_from_0_is_right_for_whole_texts_and_wrong_for_new_tokens():
    query, key = torch.randn(2, 8, 4)
    right = apply_rotary(query) @ apply_rotary(key).mT
    turned = apply_rotary(key)
    assert torch.allclose(apply_rotary(query[6:], torch.arange(6, 8)) @ turned.mT, right[6:], atol=1e-5)
    assert not torch.allclose(apply_rotary(query[6:]) @ turned.mT, right[6:], atol=1e-2)


def test_what_interpolation_does_to_neighbours_and_to_the_longest_distance():
    theta = positions.rotary_frequencies(4)
    slower = positions.rotary_frequencies(4, factor=4)
    torch.testing.assert_close(124 * slower, 31 * theta)
    seen = torch.arange(32)[:, None] * theta % (2 * math.pi)
    gaps = (seen[:, 0] - slower[0]).abs()
    assert slower[0] == 0.25
    assert gaps.min() > 0.02  # no distance from 0 to 31 gave pair 0 this angle to a neighbour
    assert seen[1, 0] == 1


def test_why_the_lines_of_appendix_12_fall_as_they_do():
    """Slow pairs alone hardly move the mean near distance 0, and fast ones alone make it fall."""
    plain = positions.rotary_frequencies(16)
    rules = {
        "plain": plain,
        "NTK-aware": positions.rotary_frequencies(16, base=10000 * 4 ** (16 / 14)),
        "YaRN": positions.yarn_frequencies(16, factor=4, length=32),
        "partial": torch.nn.functional.pad(positions.rotary_frequencies(4), (0, 6)),
    }
    fall = {name: 1 - positions.mean_rotary_score(theta, 2)[1].item() for name, theta in rules.items()}
    assert max(fall.values()) < 1.2 * min(fall.values())
    for theta in rules.values():
        assert theta[0] == 1
        without = theta.clone()
        without[0] = 0
        assert 1 - positions.mean_rotary_score(without, 2)[1] < 0.15 * max(fall.values())
    stretched = positions.mean_rotary_score(plain / 4, 125)[::4]
    torch.testing.assert_close(stretched, positions.mean_rotary_score(plain, 32))
    turns = 32 * rules["YaRN"][:2] / (2 * math.pi)
    assert turns.tolist() == pytest.approx([5.1, 1.0], abs=0.05)


def test_a_pair_has_the_same_angle_again_after_a_full_turn():
    turn, x = Rotary(frequencies=torch.tensor([2 * math.pi / 5])), torch.randn(1, 1, 2).expand(1, 7, 2)
    turned = turn(x, x)[0][0]
    torch.testing.assert_close(turned[1], turned[6], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(turned[1], turned[5], atol=1e-2)


def test_the_model_cannot_read_beyond_its_table():
    model = story_model.load()
    with pytest.raises(ValueError, match="30"):
        model(torch.zeros(1, 31, dtype=torch.long))


# Trained models


@cache
def trained(seed):
    texts = rope.stories()
    return rope.train(texts[rope.HELD_OUT :], seed), texts[:100]


class Nearer(torch.nn.Module):
    """Rotary scores in which a key that is more than 31 tokens away has the angles of distance 31."""

    def forward(self, query, key):
        (n, width), i = query.shape[-2:], torch.arange(query.shape[-2])
        whole = apply_rotary(query, i) @ apply_rotary(key, i).mT
        at_31 = apply_rotary(query, torch.full((n,), 31)) @ key.mT
        return torch.where(i[:, None] - i > 31, at_31, whole) / math.sqrt(width)


@pytest.mark.unchecked
@pytest.mark.parametrize("seed", SEEDS)
@torch.no_grad()
def test_known_angles_repair_the_loss_at_128_tokens_with_as_many_keys(seed):
    """Only the angles of far keys change. So the number of keys is not what makes the loss worse."""
    with torch.enable_grad():
        model, texts = trained(seed)
    plain = [rope.under(model, rope.RULES["plain"], texts[:, :n]) for n in (32, 128)]
    for block in model.blocks:
        block.attention.transform, block.attention.score = None, Nearer()
    nearer = [rope.loss(model, texts[:, :n]).item() for n in (32, 128)]
    for block in model.blocks:
        block.attention.score = None
    assert nearer[0] == pytest.approx(plain[0], abs=1e-4)
    assert plain[1] > plain[0] + 0.03
    assert nearer[1] < plain[0] + 0.01


@pytest.mark.unchecked
@pytest.mark.parametrize("seed", SEEDS)
def test_columns_that_are_no_longer_turned_raise_the_loss_at_every_length(seed):
    """The columns that are still turned keep their frequencies."""
    model, texts = trained(seed)
    quarter = Rotary(frequencies=positions.rotary_frequencies(16)[:2])
    for n in rope.LENGTHS:
        plain = rope.under(model, rope.RULES["plain"], texts[:, :n])
        assert rope.under(model, quarter, texts[:, :n]) > plain + 0.05
