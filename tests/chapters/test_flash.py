"""Attention in one pass against the loops, the full softmax and PyTorch; and what it never holds."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mha_course.chapters.cost import kept_for_backward
from mha_course.chapters.flash import flash_attention, merge_sums
from mha_lab import causal_mask, scaled_dot_product_attention
from tests.references import MASKS, TOLERANCE, assert_close, looped_attention, mask_of_kind, problem


def late(n_q, n_k):
    """Row 0 sees nothing at all; row i the last i keys only, so that its first blocks are empty."""
    return torch.tensor([[j >= n_k - i for j in range(n_k)] for i in range(n_q)])


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("block", "scale"), [(1, None), (2, 0.3), (3, -2.0), (5, None), (7, 0.3), (100, 0.0)]
)
@pytest.mark.parametrize("kind", [*MASKS, "late"])
def test_equal_to_the_loops_and_with_gradients_to_the_full_softmax(kind, block, scale, dtype):
    ours = problem(dtype, requires_grad=True)
    theirs = [x.detach().clone().requires_grad_() for x in ours]
    mask = late(5, 7) if kind == "late" else mask_of_kind(kind)
    output = flash_attention(*ours, mask, block=block, scale=scale)
    looped, _ = looped_attention(*theirs, mask, scale)
    assert_close(output, looped.to(dtype), TOLERANCE[dtype])
    expected, _ = scaled_dot_product_attention(*theirs, mask, scale=scale)
    upstream = torch.randn_like(output)
    output.backward(upstream)
    expected.backward(upstream)
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine.grad, other.grad, 4 * TOLERANCE[dtype])
        assert torch.equal(mine, other)  # what came in stays as it was


def test_equal_to_pytorchs_function_over_several_blocks_of_the_default_size():
    tensors = [torch.randn(3, 293, 5, dtype=torch.float64) for _ in range(3)]
    expected = F.scaled_dot_product_attention(*tensors, is_causal=True)
    assert_close(flash_attention(*tensors, causal_mask(293)), expected, 1e-12)


def test_gradients_are_those_of_finite_differences():
    tensors = [torch.randn(2, n, 3, dtype=torch.float64, requires_grad=True) for n in (3, 5, 5)]

    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda q, k, v: flash_attention(q, k, v, late(3, 5), block=2), tensors)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_row_that_sees_nothing_is_zero_with_finite_gradients(dtype):
    tensors = problem(dtype, requires_grad=True)
    output = flash_attention(*tensors, late(5, 7), block=3)
    assert output.dtype == dtype
    assert (output[..., 0, :] == 0).all()
    assert (output[..., 1:, :] != 0).any(dim=-1).all()
    output.sum().backward()
    assert all(tensor.grad.isfinite().all() for tensor in tensors)
    assert (tensors[0].grad[..., 0, :] == 0).all()


@pytest.mark.parametrize("shift", [1e4, -1e4])
@pytest.mark.parametrize("block", [1, 3, 100])
def test_large_scores_neither_overflow_nor_vanish(block, shift):
    """A constant added to all scores changes nothing; here it comes in as one more column."""
    query, key, value = problem()
    moved = torch.cat([query, torch.full_like(query[..., :1], shift)], dim=-1)
    wide = torch.cat([key, torch.ones_like(key[..., :1])], dim=-1)
    expected = flash_attention(query, key, value, block=block, scale=0.3)
    assert_close(flash_attention(moved, wide, value, block=block, scale=0.3), expected, 1e-10)


def test_halves_are_added_up_in_single_precision():
    """Equal keys, half of them with the value 1: a running sum in float16 stops at 2048, and says 1."""
    query, key = torch.zeros(1, 2, dtype=torch.float16), torch.zeros(4096, 2, dtype=torch.float16)
    value = (torch.arange(4096) < 2048).to(torch.float16)[:, None]
    assert flash_attention(query, key, value, block=1).item() == 0.5


def test_leading_axes_broadcast():
    query, key, value = torch.randn(2, 3, 5, 4), torch.randn(2, 1, 7, 4), torch.randn(7, 6)
    tensors = [x.double().requires_grad_() for x in (query, key, value)]
    output = flash_attention(*tensors, late(5, 7), block=2)
    expected, _ = scaled_dot_product_attention(*(x.expand(2, 3, *x.shape[-2:]) for x in tensors), late(5, 7))
    assert_close(output, expected, 1e-12)
    found, wanted = (torch.autograd.grad(x.square().sum(), tensors) for x in (output, expected))
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other, 1e-10)


def test_a_leak_test_by_gradient_runs_through_it_for_many_texts_at_once():
    def attend(x):
        return flash_attention(x, x, x, causal_mask(5), block=2)

    influence = torch.func.vmap(torch.func.jacrev(attend))(torch.randn(3, 5, 4, dtype=torch.float64))
    assert torch.equal(influence.abs().sum(dim=(2, 4)) > 0, causal_mask(5).expand(3, 5, 5))


class Sizes(TorchDispatchMode):
    """The most numbers in one tensor that any operation returned."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                self.largest = max(self.largest, leaf.untyped_storage().nbytes() // leaf.itemsize)
        return result


@pytest.mark.parametrize("mask", [None, causal_mask(97)], ids=["no mask", "causal"])
def test_it_never_holds_n_by_n_numbers_in_either_direction(mask):
    tensors = [torch.randn(97, 5, requires_grad=True) for _ in range(3)]
    with Sizes() as ours:
        flash_attention(*tensors, mask, block=7).sum().backward()
    with Sizes() as full:
        scaled_dot_product_attention(*tensors, mask)[0].sum().backward()
    assert (ours.largest, full.largest) == (97 * 7, 97 * 97)


def test_what_is_kept_for_the_backward_pass_grows_with_n():
    def kept(n):
        tensors = [torch.randn(n, 5, requires_grad=True) for _ in range(3)]
        return kept_for_backward(lambda: flash_attention(*tensors, block=7))

    assert kept(194) == 2 * kept(97) == 194 * (4 * 5 + 1) * 4  # query, key, value, output, m + log(l)


def sums(scores, value):
    highest = scores.amax(dim=-1, keepdim=True)
    weights = torch.exp(scores - highest.masked_fill(highest == -torch.inf, 0.0))
    return highest, weights.sum(dim=-1, keepdim=True), weights @ value


def test_two_sets_of_keys_merged_are_one_set():
    """The first query sees nothing, the second nothing of one set; the third has large scores."""
    scores, value = torch.randn(2, 3, 7, dtype=torch.float64), torch.randn(2, 7, 5, dtype=torch.float64)
    scores[:, 0], scores[:, 1, :4], scores[:, 2] = -torch.inf, -torch.inf, scores[:, 2] + 1e4
    merged = merge_sums(*sums(scores[..., :4], value[:, :4]), *sums(scores[..., 4:], value[:, 4:]))
    for found, expected in zip(merged, sums(scores, value), strict=True):
        assert torch.equal(found.isinf(), expected.isinf())
        assert_close(found.nan_to_num(), expected.nan_to_num(), 1e-10)


ONE, M = torch.ones(3, 4), torch.zeros(3, 1)


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("call", "error", "argument"),
    [
        (lambda: flash_attention(ONE, ONE, ONE[:2]), ValueError, "value"),
        (lambda: flash_attention(ONE, ONE, ONE, torch.ones(3, 5).bool()), ValueError, "mask"),
        (lambda: flash_attention(ONE, ONE, ONE, block=0), ValueError, "block"),
        (lambda: merge_sums(1.0, M, ONE, M, M, ONE), TypeError, "m_a"),
        (lambda: merge_sums(M, M, ONE, M, ONE, ONE), ValueError, "l_b"),
        (lambda: merge_sums(M, M, ONE, M, M, ONE[:, :2]), ValueError, "o_b"),
    ],
)
def test_what_cannot_be_is_refused_by_name(call, error, argument):
    with pytest.raises(error, match=f"^{argument}: expected .+, got "):
        call()
