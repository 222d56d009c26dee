"""Chapter 03: cut the width into heads."""

import torch

from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions import _parts as parts


def split_heads(x, num_heads):
    """``(batch, n, d_model)`` to ``(batch, num_heads, n, d_k)``."""
    batch, n, d_model = x.shape
    return x.reshape(batch, n, num_heads, d_model // num_heads).transpose(1, 2)


def _problems(draw):
    yield torch.arange(12.0).view(1, 3, 4), 2
    for dtype in (torch.float32, torch.float64, torch.int64):
        batch, n, num_heads, d_k = draw.primes(4)
        yield (10 * draw.normal(batch, n, num_heads * d_k)).to(dtype), num_heads
    batch, n, num_heads, d_k = draw.primes(4)
    yield draw.normal(n, batch, num_heads * d_k).transpose(0, 1), num_heads


EXERCISE = Exercise(
    answer=split_heads,
    chapter="03_splitting_heads",
    section="3 The bare view",
    points=1,
    problems=_problems,
    same_as=("split_heads",),
    mistakes={
        "view-without-transpose": Mistake(
            "Your output equals x.view(batch, num_heads, n, d_k): tokens were cut across heads.",
            "3 The bare view",
            (parts.bare_view, lambda x, h: x.view(x.shape[0], h, x.shape[1], x.shape[2] // h)),
        ),
        "heads-interleaved": Mistake(
            "Your columns are dealt out to the heads in turn: (d_k, heads) where (heads, d_k) belongs.",
            "5 Four ways to write it",
            (parts.interleaved,),
        ),
        "not-transposed": Mistake(
            "Your output is (batch, n, num_heads, d_k): the heads must come in front of the tokens.",
            "3 The bare view",
            (lambda x, h: x.unflatten(-1, (h, -1)),),
        ),
        "wrong-axes-swapped": Mistake(
            "Your cut is right, and then two other axes were swapped: heads and tokens are axes 1 and 2.",
            "3 The bare view",
            (
                lambda x, h: x.unflatten(-1, (h, -1)).transpose(2, 3),
                lambda x, h: x.unflatten(-1, (h, -1)).transpose(1, 3),
                lambda x, h: x.unflatten(-1, (h, -1)).transpose(0, 2),
                lambda x, h: x.unflatten(-1, (h, -1)).transpose(0, 1),
            ),
        ),
    },
)
