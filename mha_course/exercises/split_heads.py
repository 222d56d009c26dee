"""Chapter 03: cut the width into heads."""

from itertools import permutations

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, deviations
from mha_course.exercises._heads import interleaved


def split_heads(x, num_heads):
    """``(batch, n, d_model)`` to ``(batch, num_heads, n, d_k)``."""
    batch, n, d_model = x.shape
    return x.reshape(batch, n, num_heads, d_model // num_heads).transpose(1, 2)


def problems(rng):
    """Numbers that show where they come from, one token, four sizes, and a tensor that is not contiguous."""
    yield torch.arange(12.0).view(1, 2, 6), 3
    yield torch.arange(6.0).view(1, 1, 6), 2
    for _ in range(2):
        batch, n, num_heads, d_k = rng.primes(4)
        yield rng.normal(batch, n, num_heads * d_k), num_heads
    batch, n, num_heads, d_k = rng.primes(4)
    yield rng.normal(n, batch, num_heads * d_k).transpose(0, 1), num_heads
    yield rng.normal(3, 5, 14), 2  # the tokens cannot be cut into heads of one size, on every draw


def _stacked(columns):
    """The slices of ``columns(h, num_heads, d_k)`` as ``(batch, n, num_heads, ...)``."""

    def cut(x, num_heads):
        d_k = x.shape[-1] // num_heads
        return torch.stack([x[..., columns(h, num_heads, d_k)] for h in range(num_heads)], 2)

    return cut


def _build(cut=lambda x, h: x.unflatten(-1, (h, -1)), order=(0, 2, 1, 3)):
    return lambda x, num_heads: cut(x, num_heads).permute(order)


VIEW, BARE, STACK = "2 What view does", "3 The bare view", "5 Four ways to write it"
CUTS = {
    "pieces-of-num_heads": (
        "Your rows are cut into d_k pieces of num_heads columns; cut them into num_heads pieces of d_k "
        "columns.",
        VIEW,
        (lambda x, h: x.unflatten(-1, (-1, h)),),
    ),
    "heads-overlap": (
        "Your heads begin at columns 0, 1, 2 and so on, and overlap; head h should begin at column h * d_k.",
        BARE,
        (_stacked(lambda h, heads, d_k: slice(h, h + d_k)),),
    ),
    "one-head-in-all": (
        "All heads of your result contain the columns of one head. Is one tensor filled again and again, "
        "and stored each time?",
        BARE,
        (
            _stacked(lambda h, heads, d_k: slice((heads - 1) * d_k, None)),
            _stacked(lambda h, heads, d_k: slice(0, d_k)),
        ),
    ),
    "heads-reversed": (
        "Your heads come in reverse order: the last columns are in head 0.",
        BARE,
        (_stacked(lambda h, heads, d_k: slice((heads - 1 - h) * d_k, (heads - h) * d_k)),),
    ),
}
NAMED = {(0, 2, 1, 3), (0, 1, 2, 3), (1, 0, 2, 3), (2, 0, 1, 3), (0, 2, 3, 1)}
ORDERS = {
    "not-transposed": (
        "No axes are swapped after the cut: the tokens still come before the heads.",
        BARE,
        ((0, 1, 2, 3),),
    ),
    "batch-and-tokens-swapped": (
        "After the cut, axes 0 and 1 are swapped, as `transpose(0, 1)` does: with a batch in front, these "
        "are batch and tokens.",
        BARE,
        ((1, 0, 2, 3),),
    ),
    "heads-in-front-of-the-batch": (
        "Your heads come before the batch; the batch should come first.",
        STACK,
        ((2, 0, 1, 3),),
    ),
    "last-axes-swapped": (
        "The last two axes of your result are swapped: the tokens come last.",
        BARE,
        ((0, 2, 3, 1),),
    ),
    "wrong-axes-swapped": (
        "The axes of your result come in another order than batch, heads, tokens, columns of the head.",
        BARE,
        tuple(p for p in permutations(range(4)) if p not in NAMED),
    ),
}


def _read_as(sizes, order, name="reshape", before=None):
    """The numbers read on into other sizes, then axes swapped; both are orders of batch, heads, n, d_k."""

    def answer(x, num_heads):
        batch, n, d_model = x.shape
        all_sizes = (batch, num_heads, n, d_model // num_heads)
        x = x if before is None else x.transpose(*before)
        return getattr(x, name)([all_sizes[i] for i in sizes]).permute(order)

    return answer


def _of_one_sentence(sizes, swap, name):
    """The numbers read into n, heads and d_k, in this order, and two axes swapped: right for one sentence."""

    def answer(x, num_heads):
        _, n, d_model = x.shape
        all_sizes = (n, num_heads, d_model // num_heads)
        cut = getattr(x, name)([all_sizes[i] for i in sizes])
        return cut if swap is None else cut.transpose(*swap)

    return answer


def _orders(sizes):
    """Leave the axes, swap the middle two, or bring them into the order that is asked for."""
    return {(0, 1, 2, 3), (0, 2, 1, 3), tuple(sizes.index(i) for i in range(4))}


ASKED = (0, 1, 2, 3)
OTHER_SIZES = [
    (sizes, order)
    for sizes in permutations(range(4))
    if sizes[:2] != (0, 2)
    for order in _orders(sizes)
    if (sizes, order) != (ASKED, ASKED)
]
MISTAKES = {
    **deviations(_build, {"cut": CUTS, "order": ORDERS}),
    "view-without-transpose": Mistake(
        "Your function reads the numbers of x one after the other into the shape (batch, num_heads, n, "
        "d_k): several pieces of one token land in the same head.",
        BARE,
        (_read_as(ASKED, ASKED), _read_as(ASKED, ASKED, "view")),
    ),
    "heads-interleaved": Mistake(
        "Your columns are given to the heads in turn: head h gets columns h, h + num_heads and so on. It "
        "should get d_k neighbouring columns.",
        VIEW,
        (interleaved,),
    ),
    "sizes-in-another-order": Mistake(
        "The sizes in your view or reshape do not begin with batch and n: that cuts or mixes tokens, and no "
        "swap of axes afterwards puts them together.",
        BARE,
        tuple(_read_as(*other, name) for other in OTHER_SIZES for name in ("reshape", "view")),
    ),
    "swapped-before-the-cut": Mistake(
        "Your function swaps axes of x before it cuts. Cut the width into heads first, while each row is "
        "whole; then swap axes.",
        BARE,
        tuple(
            _read_as(sizes, order, name, swap)
            for name in ("reshape", "view")
            for swap in ((1, 2), (0, 1))
            for sizes in ((0, 1, 2, 3), (0, 2, 1, 3))
            for order in ((0, 1, 2, 3), (0, 2, 1, 3))
        ),
    ),
    "one-head-only": Mistake(
        "Your result contains only one head. Does the loop return in its first iteration, or keep only its "
        "last?",
        BARE,
        (lambda x, h: x[..., : x.shape[-1] // h], lambda x, h: x[..., -(x.shape[-1] // h) :]),
    ),
    "joined-not-stacked": Mistake(
        "Your heads are joined along an existing axis, as `cat` does; they need a new axis, which `stack` "
        "makes.",
        STACK,
        (lambda x, h: torch.cat(x.chunk(h, -1), 1), lambda x, h: torch.cat(x.chunk(h, -1), 0)),
    ),
    "heads-in-the-batch": Mistake(
        "Your function joins the heads with the batch, in one axis: (batch * num_heads, n, d_k). They need "
        "an axis of their own, after the batch.",
        STACK,
        (lambda x, h: x.unflatten(-1, (h, -1)).transpose(1, 2).flatten(0, 1),),
    ),
    "batch-lost": Mistake(
        "Your function joins batch and n into one axis, and they stay joined.",
        BARE,
        tuple(
            lambda x, h, order=order: x.reshape(-1, h, x.shape[-1] // h).permute(order)
            for order in ((0, 1, 2), (1, 0, 2), (0, 2, 1))
        ),
    ),
    "batch-not-in-the-sizes": Mistake(
        "The sizes in your view or reshape have no batch: they fit one sentence only, and x may have more.",
        BARE,
        tuple(
            _of_one_sentence(sizes, swap, name)
            for name in ("reshape", "view")
            for sizes in permutations(range(3))
            for swap in (None, (0, 1), (1, 2), (0, 2))
        ),
    ),
    "not-cut": Mistake(
        "The last axis of your result is still d_model wide: it is not cut into heads.",
        BARE,
        (lambda x, h: x, lambda x, h: x[:, None], lambda x, h: x[:, None].expand(-1, h, -1, -1)),
    ),
    "slices-of-another-width": Mistake(
        "Not all your slices are d_k columns wide: head h has the columns from h * d_k up to (h + 1) * d_k.",
        BARE,
        (
            _stacked(lambda h, heads, d_k: slice(h * d_k, h + 1 * d_k)),
            _stacked(lambda h, heads, d_k: slice(h * d_k, d_k)),
            _stacked(lambda h, heads, d_k: slice(h * heads, (h + 1) * heads)),
        ),
    ),
    "tokens-cut": Mistake(
        "Your function cuts the axis of the tokens; cut the last axis, d_model, into heads.",
        BARE,
        (
            lambda x, h: torch.stack(x.chunk(h, 1), 1),
            lambda x, h: torch.stack(
                [x[:, i * (x.shape[-1] // h) : (i + 1) * (x.shape[-1] // h)] for i in range(h)], 1
            ),
        ),
    ),
}
EXERCISE = Exercise(
    answer=split_heads,
    chapter="03_splitting_heads",
    section=BARE,
    points=1,
    problems=problems,
    same_as=(mha_lab.split_heads,),
    mistakes=MISTAKES,
)
