"""Chapter 03: put the heads together again."""

import torch

from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions import _parts as parts


def merge_heads(x):
    """``(batch, num_heads, n, d_k)`` to ``(batch, n, num_heads * d_k)``."""
    batch, num_heads, n, d_k = x.shape
    return x.transpose(1, 2).reshape(batch, n, num_heads * d_k)


def _problems(draw):
    yield (torch.tensor([[[[0.0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]]),)
    for dtype in (torch.float32, torch.float64, torch.int64):
        yield ((10 * draw.normal(*draw.primes(4))).to(dtype),)
    batch, n, num_heads, d_k = draw.primes(4)
    yield (draw.normal(batch, n, num_heads, d_k).transpose(1, 2),)


EXERCISE = Exercise(
    answer=merge_heads,
    chapter="03_splitting_heads",
    section="4 Back again, and an error that helps",
    points=1,
    problems=_problems,
    same_as=("merge_heads",),
    mistakes={
        "merge-without-transpose": Mistake(
            "Your output equals x.reshape(batch, n, d_model): without swapping axes first, tokens are mixed.",
            "4 Back again, and an error that helps",
            (
                parts.bare_merge,
                lambda x: x.view(x.shape[0], x.shape[2], -1),
                lambda x: x.contiguous().view(x.shape[0], x.shape[2], -1),
            ),
        ),
        "view-after-transpose": Mistake(
            "Your function calls view on a transposed tensor, whose numbers lie in another order in memory.",
            "4 Back again, and an error that helps",
            (
                lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], x.shape[1] * x.shape[3]),
                lambda x: x.transpose(1, 2).flatten(-2).transpose(1, 2).view(x.shape[0], x.shape[2], -1),
            ),
        ),
        "heads-interleaved": Mistake(
            "Your output takes a column from each head in turn; the columns of one head belong side by side.",
            "5 Four ways to write it",
            (parts.merge_interleaved,),
        ),
    },
)
