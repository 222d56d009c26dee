"""Reasons of chapter 06, each tried with the smallest experiment that could refute it."""

import pytest
import torch
from torch import nn

from mha_course.chapters.cost import Traffic
from mha_course.chapters.variants import (
    BareAttention,
    SequenceFirstAttention,
    ThreeProjections,
    copy_weights,
    parts,
)

SIZES = 8, 128, 8, 32  # batch, n, num_heads, d_k
QUERIES = 8 * 128 * 8 * 32 * 4  # bytes
SCORES = 8 * 8 * 128 * 128 * 4


def traffic(run):
    with Traffic() as moved:
        run()
    return moved.bytes


def test_dividing_the_queries_moves_a_quarter_of_what_dividing_the_scores_moves():
    """The difference is the 6.3 MB of the chapter."""
    query, scores = torch.randn(SIZES), torch.randn(8, 8, 128, 128)
    assert traffic(lambda: query / 2) == 2 * QUERIES
    assert traffic(lambda: scores / 2) == 2 * SCORES == 4 * 2 * QUERIES
    assert 2 * SCORES - 2 * QUERIES == 6291456


def test_a_product_copies_its_factors_only_if_batch_and_heads_are_apart_in_memory():
    """The same product, stored in three orders; with one sample, nothing is between them."""
    apart = torch.randn(SIZES).transpose(1, 2)  # stored (batch, n, num_heads, d_k)
    adjacent = apart.contiguous()
    first = torch.randn(128, 8, 8, 32).permute(1, 2, 0, 3)  # stored (n, batch, num_heads, d_k), as (e) does
    product = 2 * QUERIES + SCORES
    assert traffic(lambda: adjacent @ adjacent.mT) == product
    assert traffic(lambda: first @ first.mT) == product
    assert traffic(lambda: apart @ apart.mT) == product + 2 * 2 * QUERIES
    assert traffic(lambda: apart[:1] @ apart[:1].mT) == product // 8


def test_zeros_give_zeros_because_there_is_no_bias():
    zeros = torch.zeros(2, 5, 12)
    assert not BareAttention(12, 3)(zeros, zeros, zeros)[0].any()
    for bias, zero in ((False, True), (True, False)):
        layer = ThreeProjections(12, 3, bias=bias)
        for parameter in layer.parameters():
            nn.init.normal_(parameter)
        assert layer(zeros, zeros, zeros)[0].any().item() != zero


def test_a_forgotten_bias_shows_as_soon_as_it_is_not_0():
    """Each of the three, alone."""
    layer, x = nn.MultiheadAttention(6, 2, batch_first=True), torch.randn(1, 4, 6)
    bare = BareAttention(6, 2)
    with torch.no_grad():
        for part, matrix in zip((bare.w_q, bare.w_k, bare.w_v), layer.in_proj_weight.chunk(3), strict=True):
            part.weight.copy_(matrix)
        bare.w_h.weight.copy_(layer.out_proj.weight)
        torch.testing.assert_close(layer(x, x, x)[0], bare(x, x, x)[0])
        for part, seen in ((0, True), (1, False), (2, True)):  # a bias of the keys moves no weight
            layer.in_proj_bias.zero_()
            layer.in_proj_bias[6 * part : 6 * part + 6] = torch.randn(6)
            assert torch.allclose(layer(x, x, x)[0], bare(x, x, x)[0], atol=1e-5) != seen


def test_all_gradients_of_parameters_agree_if_only_the_input_is_cut_off_behind_the_keys():
    """Cut off the keys themselves, and the gradient of their matrix is missing, too."""
    x = torch.randn(5, 6)
    matrices = torch.randn(3, 6, 6)
    found = {}
    for cut in ("nothing", "input", "keys"):
        one, w = x.clone().requires_grad_(), matrices.clone().requires_grad_()
        key = (one.detach() if cut == "input" else one) @ w[1]
        weights = torch.softmax((one @ w[0]) @ (key.detach() if cut == "keys" else key).T, dim=-1)
        found[cut] = torch.autograd.grad((weights @ (one @ w[2])).square().sum(), (w, one))
    for cut, same in (("input", True), ("keys", False)):
        assert torch.allclose(found[cut][0], found["nothing"][0]) == same
        assert not torch.allclose(found[cut][1], found["nothing"][1])


def test_an_axis_of_a_mask_has_length_1_where_the_mask_does_not_change_along_it():
    """In full, it gives the same output. Both masks together differ along each axis, and need all three."""
    layer, x = SequenceFirstAttention(12, 3).double(), torch.randn(5, 2, 12).double()
    causal = torch.ones(5, 5).tril().bool()[..., None]
    padding = (torch.arange(5) < torch.tensor([[3], [5]])).T[None]
    for mask in (causal, padding):
        torch.testing.assert_close(layer(x, x, x, mask), layer(x, x, x, mask.expand(5, 5, 2)))
    both = causal & padding
    assert both.shape == (5, 5, 2)
    for short in (both[:, :, :1], both[-1:]):
        assert not torch.allclose(layer(x, x, x, both), layer(x, x, x, short))
    with pytest.raises(ValueError, match="mask"):
        layer(x, x, x, padding.movedim(2, 0))


def test_a_copy_into_a_layer_without_biases_is_right_only_if_the_biases_are_0():
    source, target = ThreeProjections(6, 2), BareAttention(6, 2)
    x = torch.randn(2, 5, 6)
    with torch.no_grad():
        for bias in parts(source)[4:]:
            bias.zero_()
    copy_weights(source, target)
    torch.testing.assert_close(target(x, x, x)[0], source(x, x, x)[0])
    torch.nn.init.ones_(parts(source)[4])
    with pytest.raises(ValueError, match="bias"):
        copy_weights(source, target)
    assert not torch.allclose(target(x, x, x)[0], source(x, x, x)[0])
