"""Reasons of chapter 15, each tried with the smallest experiment that could refute it."""

import torch

from mha_lab.positions import Rotary, rotary_frequencies
from mha_lab.scores import QueryKeyNorm


def test_the_order_of_norm_and_rotation_matters_only_if_the_gains_of_a_pair_differ():
    """The root mean square is the same before and after; a gain that both columns of a pair have hides it."""
    turn, query = Rotary(layout="halves"), torch.randn(2, 3, 7, 8)
    root = [x.square().mean(dim=-1) for x in (query, turn(query, query)[0])]
    torch.testing.assert_close(*root)
    gains = {
        torch.ones(8): True,
        torch.full((8,), 3.0): True,
        1 + torch.arange(4.0).repeat(2): True,  # column i and column i + 4 are a pair
        1 + torch.arange(4.0).repeat_interleave(2): False,
        1 + torch.arange(8.0): False,
    }
    for gain, same in gains.items():
        norm = QueryKeyNorm(8)
        norm.query_norm.weight.data = gain
        orders = turn(*norm(query, query))[0], norm(*turn(query, query))[0]
        assert torch.allclose(*orders, atol=1e-5) == same


def test_frequencies_of_4_columns_turn_4_columns():
    query = torch.randn(2, 3, 7, 8)
    for width in (4, 8):
        turned, _ = Rotary(frequencies=rotary_frequencies(width), layout="halves")(query, query)
        changed = (turned[..., 1:, :] != query[..., 1:, :]).any((0, 1, 2))
        assert changed.tolist() == [i < width for i in range(8)]
