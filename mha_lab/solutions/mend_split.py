"""Chapter 03: heads with the right shape and the wrong columns."""

import torch

from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions._parts import bare_view, interleaved, split


def mend_split(x, num_heads):
    """``(batch, n, d_model)`` to ``(batch, num_heads, n, d_k)``."""
    batch, n, d_model = x.shape
    return x.reshape(batch, n, num_heads, d_model // num_heads).permute(0, 2, 1, 3)


def _problems(draw):
    yield torch.arange(6.0).view(1, 1, 6), 2
    for dtype in (torch.float32, torch.float64, torch.float64):
        batch, n, num_heads, d_k = draw.primes(4)
        yield draw.normal(batch, n, num_heads * d_k, dtype=dtype), num_heads


STEP = "2 What view does"
EXERCISE = Exercise(
    answer=mend_split,
    chapter="03_splitting_heads",
    section=STEP,
    points=2,
    problems=_problems,
    same_as=("split_heads",),
    bug=interleaved,
    mistakes={
        "view-without-transpose": Mistake(
            "Your function cuts tokens across heads, as the bare view does.",
            "3 The bare view",
            (bare_view,),
        ),
        "not-transposed": Mistake(
            "Your result is (batch, n, num_heads, d_k): the heads are not in front of the tokens yet.",
            STEP,
            (lambda x, h: split(x, h).transpose(1, 2),),
        ),
        "wrong-axes-swapped": Mistake(
            "The columns are right now, and the axes come in the wrong order.",
            STEP,
            (
                lambda x, h: split(x, h).transpose(2, 3),
                lambda x, h: split(x, h).permute(0, 3, 2, 1),
                lambda x, h: split(x, h).permute(0, 3, 1, 2),
                lambda x, h: x.unflatten(-1, (h, -1)).permute(0, 3, 1, 2),
            ),
        ),
    },
)
