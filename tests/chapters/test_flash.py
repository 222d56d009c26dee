"""Attention in one pass against the loops, the full softmax and PyTorch; and what it never holds."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mha_lab import causal_mask, scaled_dot_product_attention
from mha_lab.chapters.flash import flash_attention
from tests.references import MASKS, TOLERANCE, assert_close, looped_attention, mask_of_kind

BATCH, HEADS, N_Q, N_K, D_K, D_V = 2, 3, 5, 7, 11, 13
BLOCKS = (1, 2, 3, 5, 7, 100)  # 2, 3 and 5 do not divide the 7 keys


def problem(dtype=torch.float64, requires_grad=False):
    sizes = (N_Q, D_K), (N_K, D_K), (N_K, D_V)
    return [torch.randn(BATCH, HEADS, *size, dtype=dtype, requires_grad=requires_grad) for size in sizes]


def late(n_q, n_k):
    """Row 0 sees nothing at all; row i the last i keys only, so that its first blocks are empty."""
    return torch.tensor([[j >= n_k - i for j in range(n_k)] for i in range(n_q)])


def any_mask(kind):
    return late(N_Q, N_K) if kind == "late" else mask_of_kind(kind, BATCH, HEADS, N_Q, N_K)


KINDS = (*MASKS, "late")


def test_three_keys_by_hand():
    """Scores log 1, log 4, log 2 give the weights 1/7, 4/7, 2/7."""
    query = torch.ones(1, 1, dtype=torch.float64)
    key = torch.tensor([[1.0], [4.0], [2.0]], dtype=torch.float64).log()
    value = torch.tensor([[7.0, 0.0], [14.0, 0.0], [21.0, 7.0]], dtype=torch.float64)
    expected = torch.tensor([[1 + 8 + 6, 2.0]], dtype=torch.float64)
    for block in (1, 2, 3):
        assert_close(flash_attention(query, key, value, block=block), expected, 1e-12)
    hidden = flash_attention(query, key, value, torch.tensor([True, False, True]), block=2)
    assert_close(hidden, torch.tensor([[7 / 3 + 14, 14 / 3]], dtype=torch.float64), 1e-12)


@pytest.mark.parametrize("scale", [None, 0.3, -2.0, 0.0])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("kind", KINDS)
def test_equal_to_the_loops(kind, block, scale):
    query, key, value = problem()
    mask = any_mask(kind)
    output = flash_attention(query, key, value, mask, block=block, scale=scale)
    full = torch.ones(BATCH, HEADS, N_Q, N_K, dtype=torch.bool)
    full = full if mask is None else full & mask
    for b in range(BATCH):
        for h in range(HEADS):
            expected, _ = looped_attention(query[b, h], key[b, h], value[b, h], full[b, h], scale)
            assert_close(output[b, h], expected, 1e-12)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_output_and_gradients_equal_those_of_the_full_softmax(kind, dtype, block):
    ours = problem(dtype, requires_grad=True)
    theirs = [x.detach().clone().requires_grad_() for x in ours]
    mask = any_mask(kind)
    output = flash_attention(*ours, mask, block=block)
    expected, _ = scaled_dot_product_attention(*theirs, mask)
    assert_close(output, expected, TOLERANCE[dtype])
    upstream = torch.randn_like(output)
    output.backward(upstream)
    expected.backward(upstream)
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine.grad, other.grad, TOLERANCE[dtype])


@given(st.data())
def test_any_sizes_masks_and_blocks(data):
    size = st.integers(1, 9)
    n_q, n_k, d_k, d_v, block, seed = (
        data.draw(s) for s in (size, size, size, size, size, st.integers(0, 99))
    )
    generator = torch.Generator().manual_seed(seed)
    shapes = (n_q, d_k), (n_k, d_k), (n_k, d_v)
    query, key, value = (torch.randn(2, *s, dtype=torch.float64, generator=generator) for s in shapes)
    mask = torch.rand(2, n_q, n_k, generator=generator) < data.draw(st.sampled_from([0.0, 0.2, 0.7, 1.0]))
    expected, _ = scaled_dot_product_attention(query, key, value, mask)
    assert_close(flash_attention(query, key, value, mask, block=block), expected, 1e-12)


def test_equal_to_pytorchs_function():
    query, key, value = problem()
    mask = mask_of_kind("both", BATCH, HEADS, N_Q, N_K)
    expected = F.scaled_dot_product_attention(query, key, value, mask)
    assert_close(flash_attention(query, key, value, mask, block=3), expected, 1e-12)


def test_the_default_block_is_shorter_than_these_sequences():
    query, key, value = (torch.randn(3, 293, 5, dtype=torch.float64) for _ in range(3))
    expected, _ = scaled_dot_product_attention(query, key, value, causal_mask(293))
    assert_close(flash_attention(query, key, value, causal_mask(293)), expected, 1e-12)


@pytest.mark.parametrize("block", [2, 100])
def test_gradients_are_those_of_finite_differences(block):
    tensors = [torch.randn(2, n, 3, dtype=torch.float64, requires_grad=True) for n in (3, 5, 5)]

    def run(query, key, value):
        return flash_attention(query, key, value, late(3, 5), block=block)

    assert torch.autograd.gradcheck(run, tensors)
    assert torch.autograd.gradgradcheck(run, tensors)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_row_that_sees_nothing_is_zero_with_finite_gradients(dtype):
    tensors = problem(dtype, requires_grad=True)
    mask = late(N_Q, N_K)
    output = flash_attention(*tensors, mask, block=3)
    assert output.dtype == dtype
    assert (output[..., 0, :] == 0).all()
    assert (output[..., 1:, :] != 0).any(dim=-1).all()
    output.sum().backward()
    for tensor in tensors:
        assert tensor.grad.isfinite().all()
    assert (tensors[0].grad[..., 0, :] == 0).all()


def test_nothing_visible_anywhere():
    tensors = problem(requires_grad=True)
    output = flash_attention(*tensors, torch.zeros((), dtype=torch.bool), block=2)
    assert (output == 0).all()
    output.sum().backward()
    assert all((tensor.grad == 0).all() for tensor in tensors)


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled:UserWarning")
def test_a_search_for_nan_finds_none_on_the_way():
    with torch.autograd.detect_anomaly():
        flash_attention(*problem(requires_grad=True), late(N_Q, N_K), block=2).sum().backward()


@pytest.mark.parametrize("shift", [1e4, -1e4])
@pytest.mark.parametrize("block", BLOCKS)
def test_large_scores_neither_overflow_nor_vanish(block, shift):
    """A constant added to all scores changes nothing; here it comes in as one more column."""
    query, key, value = problem()
    moved = torch.cat([query, torch.full_like(query[..., :1], shift)], dim=-1)
    wide = torch.cat([key, torch.ones_like(key[..., :1])], dim=-1)
    expected = flash_attention(query, key, value, block=block, scale=0.3)
    assert_close(flash_attention(moved, wide, value, block=block, scale=0.3), expected, 1e-10)


@pytest.mark.parametrize("order", ["rising", "falling"])
def test_a_maximum_that_grows_with_every_key_and_one_that_never_does(order):
    query = torch.ones(1, 1, dtype=torch.float64)
    key = torch.linspace(-40, 40, 23, dtype=torch.float64)[:, None]
    key = key if order == "rising" else key.flip(0)
    value = torch.randn(23, 2, dtype=torch.float64)
    expected, _ = looped_attention(query, key, value, scale=1.0)
    for block in (1, 5):
        assert_close(flash_attention(query, key, value, block=block, scale=1.0), expected, 1e-12)


def test_halves_are_added_up_in_single_precision():
    """Equal keys, half of them with the value 1: a running sum in float16 stops at 2048, and says 1."""
    query, key = torch.zeros(1, 2, dtype=torch.float16), torch.zeros(4096, 2, dtype=torch.float16)
    value = (torch.arange(4096) < 2048).to(torch.float16)[:, None]
    output = flash_attention(query, key, value, block=1)
    assert output.item() == 0.5
    assert output.dtype == torch.float16


def test_leading_axes_broadcast():
    query, key, value = torch.randn(2, 3, 5, 4), torch.randn(2, 1, 7, 4), torch.randn(7, 6)
    tensors = [x.double().requires_grad_() for x in (query, key, value)]
    mask = late(5, 7)
    output = flash_attention(*tensors, mask, block=2)
    assert output.shape == (2, 3, 5, 6)
    expected, _ = scaled_dot_product_attention(*(x.expand(2, 3, *x.shape[-2:]) for x in tensors), mask)
    assert_close(output, expected, 1e-12)
    wanted = torch.autograd.grad(expected.square().sum(), tensors)
    for found, other in zip(torch.autograd.grad(output.square().sum(), tensors), wanted, strict=True):
        assert_close(found, other, 1e-10)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_a_gradient_may_be_asked_of_one_input_only(wanted):
    tensors = problem()
    expected = [x.clone().requires_grad_() for x in tensors]
    scaled_dot_product_attention(*expected)[0].sum().backward()
    tensors[wanted].requires_grad_()
    flash_attention(*tensors, block=2).sum().backward()
    assert_close(tensors[wanted].grad, expected[wanted].grad, 1e-12)


def test_a_leak_test_by_gradient_runs_through_it():
    x = torch.randn(5, 4, dtype=torch.float64)

    def attend(x):
        return flash_attention(x, x, x, causal_mask(5), block=2)

    influence = torch.func.jacrev(attend)(x).abs().sum(dim=(1, 3)) > 0
    assert torch.equal(influence, causal_mask(5))


def test_vmap_over_heads_is_a_leading_axis():
    query, key, value = problem()
    by_vmap = torch.func.vmap(lambda q, k, v: flash_attention(q, k, v, late(N_Q, N_K), block=2), in_dims=1)
    expected = flash_attention(query, key, value, late(N_Q, N_K), block=2)
    assert_close(by_vmap(query, key, value).transpose(0, 1), expected, 1e-12)


def test_nothing_that_came_in_is_changed():
    given_tensors = [*problem(requires_grad=True), late(N_Q, N_K)]
    before = [x.clone() for x in given_tensors]
    flash_attention(*given_tensors, block=2).sum().backward()
    assert all(torch.equal(now, then) for now, then in zip(given_tensors, before, strict=True))


class Sizes(TorchDispatchMode):
    """The most numbers in one tensor that any operation returned."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                self.largest = max(self.largest, leaf.untyped_storage().nbytes() // leaf.itemsize)
        return result


@pytest.mark.parametrize("kind", [None, "causal"])
def test_it_never_holds_n_by_n_numbers_in_either_direction(kind):
    n, block = 97, 7
    tensors = [torch.randn(n, 5, requires_grad=True) for _ in range(3)]
    mask = causal_mask(n) if kind else None
    with Sizes() as ours:
        flash_attention(*tensors, mask, block=block).sum().backward()
    with Sizes() as full:
        scaled_dot_product_attention(*tensors, mask)[0].sum().backward()
    assert ours.largest == n * block
    assert full.largest == n * n


def test_what_is_kept_for_the_backward_pass_grows_with_n():
    def kept(n):
        tensors = [torch.randn(n, 5, requires_grad=True) for _ in range(3)]
        found = {}

        def pack(tensor):
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            output = flash_attention(*tensors, block=7)
        assert output.requires_grad
        return sum(found.values())

    assert kept(194) == 2 * kept(97) == 194 * (4 * 5 + 1) * 4  # query, key, value, output, m + log(l)


MISTAKES = {
    "no tensor": (([1.0], torch.ones(3, 4), torch.ones(3, 2)), {}, TypeError, "query"),
    "widths": ((torch.ones(5, 4), torch.ones(3, 2), torch.ones(3, 2)), {}, ValueError, "key"),
    "a value too few": ((torch.ones(5, 4), torch.ones(3, 4), torch.ones(2, 2)), {}, ValueError, "value"),
    "dtypes": ((torch.ones(5, 4), torch.ones(3, 4), torch.ones(3, 2).double()), {}, TypeError, "value"),
    "a mask of numbers": (
        (torch.ones(5, 4), torch.ones(3, 4), torch.ones(3, 2), torch.ones(5, 3)),
        {},
        TypeError,
        "mask",
    ),
    "a mask that does not fit": (
        (torch.ones(5, 4), torch.ones(3, 4), torch.ones(3, 2), torch.ones(3, 5, dtype=torch.bool)),
        {},
        ValueError,
        "mask",
    ),
    "block": ((torch.ones(5, 4), torch.ones(3, 4), torch.ones(3, 2)), {"block": 0}, ValueError, "block"),
    "half a block": (
        (torch.ones(5, 4), torch.ones(3, 4), torch.ones(3, 2)),
        {"block": 1.5},
        TypeError,
        "block",
    ),
    "scale": (
        (torch.ones(5, 4), torch.ones(3, 4), torch.ones(3, 2)),
        {"scale": math.nan},
        ValueError,
        "scale",
    ),
}


@pytest.mark.unchecked
@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_be_is_refused_by_name(name):
    arguments, options, error, argument = MISTAKES[name]
    with pytest.raises(error, match=f"^{argument}: expected .+, got "):
        flash_attention(*arguments, **options)
