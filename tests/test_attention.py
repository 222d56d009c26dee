"""Scores, softmax and attention against hand-worked numbers, loops, and PyTorch's function."""

import math

import pytest
import torch
import torch.nn.functional as F

from mha_lab import (
    _fused,
    _inplace,
    causal_mask,
    masked_softmax,
    scaled_dot_product_attention,
    scaled_dot_product_scores,
)
from mha_lab.attention import _attend, _path
from tests.references import MASKS, TOLERANCE, Shapes, assert_close, looped_attention, mask_of_kind, problem


def fused(query, key, value, mask=None):
    return _fused.attend(query, key, value, mask, 1 / math.sqrt(query.shape[-1]))


def stored(query, key, value, mask=None):
    return scaled_dot_product_attention(query, key, value, mask)[0]


def test_scores_by_hand():
    query = torch.tensor([[1.0, 2, 0, 2]])
    key = torch.tensor([[2.0, 1, 5, 0], [0, 3, 5, 1]])
    assert scaled_dot_product_scores(query, key).tolist() == [[2, 4]]  # 4 / sqrt(4), 8 / sqrt(4)
    assert scaled_dot_product_scores(query, key, scale=1.0).tolist() == [[4, 8]]
    assert scaled_dot_product_scores(query, key, scale=-0.25).tolist() == [[-1, -2]]


def test_softmax_by_hand():
    scores = torch.tensor([[0.0, math.log(2), math.log(5)]], dtype=torch.float64)
    assert_close(masked_softmax(scores), torch.tensor([[1 / 8, 2 / 8, 5 / 8]], dtype=torch.float64), 1e-14)
    hidden = masked_softmax(scores, torch.tensor([True, True, False]))
    assert_close(hidden, torch.tensor([[1 / 3, 2 / 3, 0]], dtype=torch.float64), 1e-14)
    assert hidden[0, 2] == 0
    scores = torch.tensor([[1.0, math.inf, 1.0], [1.0, 1.0, 1e38]])  # a hidden one may be anything but NaN
    mask = torch.tensor([[True, False, True], [True, True, False]])
    assert masked_softmax(scores, mask).tolist() == [[0.5, 0, 0.5], [0.5, 0.5, 0]]


@pytest.mark.parametrize("shift", [1e4, -1e4])
def test_large_scores_neither_overflow_nor_vanish(shift):
    scores = torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64)
    assert_close(masked_softmax(scores + shift), masked_softmax(scores), 1e-10)


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("kind", MASKS)
def test_attention_equals_the_loops(kind, scale):
    query, key, value = problem()
    mask = mask_of_kind(kind)
    output, weights = scaled_dot_product_attention(query, key, value, mask, scale=scale)
    expected, expected_weights = looped_attention(query, key, value, mask, scale)
    assert_close(output, expected, 1e-12)
    assert_close(weights, expected_weights, 1e-12)


@pytest.mark.parametrize("path", [stored, fused])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", MASKS)
def test_output_and_gradients_equal_pytorchs_function(kind, dtype, path):
    mask = mask_of_kind(kind)
    ours = problem(dtype, requires_grad=True)
    theirs = [x.detach().clone().requires_grad_() for x in ours]
    output = path(*ours, mask)
    expected = F.scaled_dot_product_attention(*theirs, None if mask is None else torch.atleast_2d(mask))
    assert_close(output, expected, TOLERANCE[dtype])
    upstream = torch.randn_like(output)
    output.backward(upstream)
    expected.backward(upstream)
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine.grad, other.grad, TOLERANCE[dtype])


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (2, 3, 5)])
@pytest.mark.parametrize("path", [stored, fused])
def test_any_number_of_leading_axes(leading, path):
    query, key, value = (torch.randn(*leading, n, 4).double() for n in (3, 5, 5))
    mask = torch.rand(3, 5) > 0.3
    assert_close(path(query, key, value, mask), looped_attention(query, key, value, mask)[0], 1e-12)


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize(
    ("q", "k", "v"), [((2, 3), (2, 1), ()), ((2,), (1,), (2,)), ((), (), (2,)), ((0,), (0,), (0,))]
)
def test_leading_axes_broadcast(q, k, v, gradient):
    given = [torch.randn(*size, 4, requires_grad=gradient) for size in ((*q, 3), (*k, 5), (*v, 5))]
    wide = [x.expand(*torch.broadcast_shapes(q, k, v), *x.shape[-2:]) for x in given]
    output, weights = scaled_dot_product_attention(*given)
    expected, expected_weights = scaled_dot_product_attention(*wide)
    assert_close(output, expected, 1e-5)
    assert_close(weights.expand_as(expected_weights), expected_weights, 1e-5)


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize(("query", "key"), [((3,), (3, 3)), ((3, 3), (3,)), ((3, 3, 3), (3, 3))])
def test_other_leading_axes_are_not_taken_for_the_same(query, key, gradient):
    """As many heads as queries, so that axes counted from the wrong end look equal."""
    q, k = torch.randn(*query, 3, 4).double(), torch.randn(*key, 5, 4).double()
    common = torch.broadcast_shapes(query, key)
    expected = looped_attention(q.expand(*common, 3, 4), *[k.expand(*common, 5, 4)] * 2, None)
    q.requires_grad_(gradient)
    for found, wanted in zip(scaled_dot_product_attention(q, k, k), expected, strict=True):
        assert_close(found.expand_as(wanted), wanted, 1e-12)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (2, 3, 5)])
def test_equal_leading_axes_need_one_buffer_and_others_do_not_fit_into_it(leading):
    query, key = torch.randn(*leading, 3, 4), torch.randn(*leading, 5, 4)
    assert _inplace.applies(query, key, key)
    assert not _inplace.applies(query, key[None], key)
    assert not _inplace.applies(query, key, key[None])
    assert not _inplace.applies(query.requires_grad_(), key, key)


EMPTY = {  # rows 1 and 3 of five see nothing
    "one for all": torch.tensor([[i not in (1, 3) and j <= i for j in range(7)] for i in range(5)]),
    "a whole sample": torch.tensor([[[[False] * 7]], [[[True] * 7]]]),
    "everything": torch.zeros((), dtype=torch.bool),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("path", [stored, fused])
@pytest.mark.parametrize("mask", list(EMPTY.values()), ids=list(EMPTY))
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled:UserWarning")
def test_a_row_that_sees_nothing_is_zero_with_finite_gradients(mask, path, dtype):
    """A search for NaN finds none on the way, either."""
    tensors = problem(dtype, requires_grad=True)
    with torch.autograd.detect_anomaly():
        output = path(*tensors, mask)
        output.sum().backward()
    weights = scaled_dot_product_attention(*tensors, mask)[1]
    empty = ~mask.expand_as(weights).any(dim=-1)
    assert (weights[empty] == 0).all()
    assert (output[empty] == 0).all()
    if not empty.all():
        assert (output[~empty] != 0).any(dim=-1).all()
    for tensor in tensors:
        assert tensor.grad.isfinite().all()
    assert (tensors[0].grad[empty] == 0).all()


def test_zeros_do_not_depend_on_what_the_kernel_makes_of_an_empty_row(monkeypatch):
    """Kernels differ there; this one gives NaN, as the plain formula does."""

    def kernel(query, key, value, attn_mask=None, dropout_p=0.0, **options):
        scores = query @ key.mT * options["scale"]
        return scores.masked_fill(~attn_mask, -math.inf).softmax(dim=-1) @ value

    tensors = problem(requires_grad=True)
    mask = EMPTY["one for all"]
    expected = stored(*tensors, mask)
    monkeypatch.setattr(F, "scaled_dot_product_attention", kernel)
    output = fused(*tensors, mask)
    assert_close(output, expected, 1e-12)
    output.sum().backward()
    for tensor in tensors:
        assert tensor.grad.isfinite().all()


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("mask", [None, *EMPTY.values()], ids=["none", *EMPTY])
def test_nothing_that_came_in_is_changed(mask, grad):
    tensors = problem(requires_grad=grad)
    scores = torch.randn(2, 3, 5, 7)
    given = [*tensors, scores, *([] if mask is None else [mask])]
    before = [x.clone() for x in given]
    scaled_dot_product_attention(*tensors, mask)
    fused(*tensors, mask)
    scaled_dot_product_scores(*tensors[:2], scale=2.0)
    masked_softmax(scores, mask)
    for now, then in zip(given, before, strict=True):
        assert torch.equal(now, then)


@pytest.mark.parametrize("block", [1, 5 * 7, 4 * 5 * 7, 2**20])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("kind", [*MASKS, *EMPTY])
def test_the_path_without_gradients_gives_the_same_numbers(kind, scale, block, monkeypatch):
    """It works in place and block by block; six heads are six, six, two and one blocks here."""
    monkeypatch.setattr(_inplace, "BLOCK", block)
    tensors = problem(requires_grad=True)
    mask = EMPTY[kind] if kind in EMPTY else mask_of_kind(kind)
    with_grad = scaled_dot_product_attention(*tensors, mask, scale=scale)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            without = scaled_dot_product_attention(*tensors, mask, scale=scale)
        for one, other in zip(with_grad, without, strict=True):
            assert_close(other, one.detach(), 1e-12)
            assert not other.requires_grad


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_a_gradient_may_be_asked_of_one_input_only(wanted):
    tensors = problem()
    expected = [x.clone().requires_grad_() for x in tensors]
    stored(*expected).sum().backward()
    tensors[wanted].requires_grad_()
    stored(*tensors).sum().backward()
    assert_close(tensors[wanted].grad, expected[wanted].grad, 1e-12)


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize(
    ("given", "without_gradient"),
    [
        ({}, "in place"),
        ({"dropout_p": 0.1}, "weights"),
        ({"sinks": torch.zeros(3)}, "weights"),
        ({"repeats": 3}, "in place"),
        ({"need_weights": False}, "fused"),
        ({"need_weights": False, "dropout_p": 0.1, "sinks": torch.zeros(3)}, "fused"),
        ({"score": scaled_dot_product_scores}, "score"),
        ({"score": scaled_dot_product_scores, "need_weights": False}, "score"),
    ],
)
def test_the_options_decide_the_path_as_the_table_says(given, without_gradient, gradient):
    options = {"dropout_p": 0.0, "score": None, "sinks": None, "need_weights": True} | given
    expected = "weights" if gradient and without_gradient == "in place" else without_gradient
    assert _path(*problem(requires_grad=gradient), **options) == expected


def test_shared_keys_and_values_need_one_buffer_too():
    query, key, value = problem()
    options = {"dropout_p": 0.0, "score": None, "sinks": None, "need_weights": True}
    assert _path(query, key[:, :1], value[:, :1], repeats=3, **options) == "in place"
    assert _path(query, key[:, :1], value[:, :1], **options) == "weights"
    output, weights = _attend(query, key[:, :1], value[:, :1], None, 0.3, repeats=3)
    expected = looped_attention(query, *(x[:, :1].expand_as(x) for x in (key, value)), None, 0.3)
    assert_close(output, expected[0], 1e-12)
    assert_close(weights, expected[1], 1e-12)


@pytest.mark.parametrize("sinks", [None, torch.zeros(3, dtype=torch.float64)])
@pytest.mark.parametrize("d_v", [1, 11, 13])
@pytest.mark.parametrize("gradient", [True, False])
def test_the_fused_path_stores_no_weights_whatever_the_widths(gradient, d_v, sinks):
    query, key, value = problem(requires_grad=gradient)
    columns = 7 + (sinks is not None)
    for need_weights in (False, True):
        with Shapes() as shapes:
            _attend(query, key, value[..., :d_v], None, 0.3, sinks=sinks, need_weights=need_weights)
        assert bool(shapes.weights(5, columns)) == need_weights


def test_dropout_draws_what_pytorch_draws():
    """Without a gradient, too, where nothing else needs the weights before it."""
    weights, value = torch.softmax(torch.randn(5, 7), dim=-1), torch.randn(7, 11)
    torch.manual_seed(3)
    expected = F.dropout(weights, 0.4)
    torch.manual_seed(3)
    output, dropped = scaled_dot_product_attention(
        weights.log(), torch.eye(7), value, scale=1.0, dropout_p=0.4
    )
    assert_close(dropped, expected, 1e-6)
    assert_close(output, expected @ value, 1e-5)
    tensors, state = problem(), torch.get_rng_state()
    stored(*tensors)
    assert torch.equal(torch.get_rng_state(), state)


def test_gradients_are_those_of_finite_differences():
    tensors = [torch.randn(2, n, 3, dtype=torch.float64, requires_grad=True) for n in (3, 5, 5)]
    mask = causal_mask(3, 5)
    mask[1] = False
    for path in (stored, fused):
        assert torch.autograd.gradcheck(lambda q, k, v, path=path: path(q, k, v, mask), tensors)
