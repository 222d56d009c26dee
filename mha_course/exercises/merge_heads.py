"""Chapter 03: put the heads together again."""

from itertools import permutations

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake


def merge_heads(x):
    """``(batch, num_heads, n, d_k)`` to ``(batch, n, num_heads * d_k)``."""
    batch, num_heads, n, d_k = x.shape
    return x.transpose(1, 2).reshape(batch, n, num_heads * d_k)


def _problems(rng):
    yield (torch.arange(12.0).view(1, 2, 3, 2).transpose(1, 2).contiguous(),)
    yield (torch.arange(6.0).view(1, 2, 1, 3),)
    for _ in range(2):
        yield (rng.normal(*rng.primes(4)),)
    batch, n, num_heads, d_k = rng.primes(4)
    yield (rng.normal(batch, n, num_heads, d_k).transpose(1, 2),)


def _join(order, name="reshape"):
    """Axes in this order, then read as ``(batch, n, num_heads * d_k)``."""

    def answer(x):
        batch, num_heads, n, d_k = x.shape
        return getattr(x.permute(order), name)(batch, n, num_heads * d_k)

    return answer


def _resized(name):
    """Read as ``(batch, n, num_heads, d_k)``, then swapped, then joined."""

    def answer(x):
        batch, num_heads, n, d_k = x.shape
        return getattr(x, name)(batch, n, num_heads, d_k).transpose(1, 2).reshape(batch, n, num_heads * d_k)

    return answer


def _both(*orders):
    """Read in the shape that is asked for, or with the last two axes joined, whatever they are."""
    flat = (order for order in orders if order != (1, 2, 0, 3))  # a loop over the batch, below
    return *map(_join, orders), *(lambda x, order=order: x.permute(order).flatten(-2) for order in flat)


def _written(columns):
    """Head ``h`` is written to ``columns(h, num_heads, d_k)`` of the result."""

    def answer(x):
        batch, num_heads, n, d_k = x.shape
        merged = torch.zeros(batch, n, num_heads * d_k)
        for h in range(num_heads):
            merged[..., columns(h, num_heads, d_k)] = x[:, h]
        return merged

    return answer


BACK, VIEW = "4 Back again: merge the heads", "2 What view does"
NAMED = {(0, 2, 1, 3), (0, 1, 2, 3), (0, 2, 3, 1), (1, 0, 2, 3)}
EXERCISE = Exercise(
    answer=merge_heads,
    chapter="03_splitting_heads",
    section=BACK,
    points=1,
    problems=_problems,
    same_as=(mha_lab.merge_heads,),
    mistakes={
        "merge-without-transpose": Mistake(
            "Your function reads the numbers of x one after the other into the shape (batch, n, num_heads * "
            "d_k), without swapping heads and tokens first: numbers of different tokens end up in one row.",
            BACK,
            (_join((0, 1, 2, 3)), _join((0, 1, 2, 3), "view")),
        ),
        "view-after-transpose": Mistake(
            "Your function swaps heads and tokens, and then calls view: the numbers of one token lie in "
            "several places in memory, and view copies nothing.",
            VIEW,
            (_join((0, 2, 1, 3), "view"), lambda x: _join((0, 2, 1, 3), "view")(x.contiguous())),
        ),
        "resized-before-the-swap": Mistake(
            "Your function asks for the sizes n and num_heads in the other order before it swaps. That swaps "
            "no axes: it reads the same numbers into other rows. Swap heads and tokens first, and join after "
            "that.",
            BACK,
            (_resized("reshape"), _resized("view")),
        ),
        "heads-interleaved": Mistake(
            "Your rows take one column from each head in turn; the d_k columns of one head should be side "
            "by side.",
            VIEW,
            _both((0, 2, 3, 1)),
        ),
        "batch-and-heads-swapped": Mistake(
            "Batch and heads are swapped, as after `transpose(0, 1)`: with a batch in front, heads and "
            "tokens are axes 1 and 2.",
            BACK,
            _both((1, 0, 2, 3)),
        ),
        "wrong-axes-swapped": Mistake(
            "Before the axes are joined, they are not in the order batch, n, num_heads, d_k.",
            BACK,
            _both(*(p for p in permutations(range(4)) if p not in NAMED)),
        ),
        "sizes-from-before-the-swap": Mistake(
            "Heads and tokens are swapped, but the result still has num_heads rows of n * d_k numbers: the "
            "sizes n and num_heads are swapped. x.shape is (batch, num_heads, n, d_k) before the swap, and "
            "(batch, n, num_heads, d_k) after it.",
            BACK,
            (lambda x: x.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1),),
        ),
        "tokens-joined-with-columns": Mistake(
            "Your function joins n and d_k, the last two axes as they are; swap heads and tokens first.",
            BACK,
            (lambda x: x.flatten(2),),
        ),
        "heads-one-below-the-other": Mistake(
            "Your heads are one below the other, as more tokens or samples: `cat` along axis 1 or 0. Put "
            "them side by side, along the last axis.",
            BACK,
            (lambda x: x.flatten(1, 2), lambda x: torch.cat(x.unbind(1), 0)),
        ),
        "tokens-joined-with-heads": Mistake(
            "Your function joins n and num_heads; join num_heads and d_k instead.",
            BACK,
            (lambda x: x.transpose(1, 2).flatten(1, 2),),
        ),
        "batch-lost": Mistake(
            "Your function joins the batch with another axis; batch and n are axes of the result.",
            BACK,
            (
                lambda x: x.transpose(1, 2).reshape(-1, x.shape[1] * x.shape[3]),
                lambda x: x.reshape(-1, x.shape[1] * x.shape[3]),
                lambda x: x.transpose(1, 2).flatten(0, 1),
                lambda x: x.flatten(0, 1),
            ),
        ),
        "output-transposed": Mistake(
            "Your heads are joined correctly, but the last two axes of the result are swapped: the tokens "
            "come last.",
            BACK,
            (lambda x: x.transpose(2, 3).flatten(1, 2),),
        ),
        "not-joined": Mistake(
            "Your result still has four axes: num_heads and d_k are not joined.",
            BACK,
            tuple(lambda x, order=order: x.permute(order) for order in permutations(range(4))),
        ),
        "heads-added": Mistake(
            "Your function adds the heads up or takes their mean; put them side by side instead.",
            BACK,
            (lambda x: x.sum(1), lambda x: x.mean(1)),
        ),
        "one-head-only": Mistake(
            "Your result contains only one head. Does the loop return in its first iteration, or keep only "
            "its last?",
            BACK,
            (lambda x: x[:, 0], lambda x: x[:, -1]),
        ),
        "loop-over-the-batch": Mistake(
            "Your loop runs over axis 0, the batch; the heads are axis 1: `x[:, h]`.",
            BACK,
            (
                lambda x: torch.cat(x.unbind(0), -1),
                lambda x: torch.cat([x[h] for h in range(x.shape[1])], -1),
            ),
        ),
        "heads-overlap": Mistake(
            "Head h is written to the columns from h on, so the heads overlap; it should begin at h * d_k.",
            BACK,
            (_written(lambda h, heads, d_k: slice(h, h + d_k)),),
        ),
        "heads-reversed": Mistake(
            "Your heads come in reverse order: the last head has the first columns.",
            BACK,
            (lambda x: torch.cat(x.unbind(1)[::-1], -1),),
        ),
        "one-head-in-all": Mistake(
            "The columns of one head are repeated, but the other heads are missing.",
            BACK,
            (lambda x: x[:, 0].repeat(1, 1, x.shape[1]), lambda x: x[:, -1].repeat(1, 1, x.shape[1])),
        ),
    },
)
