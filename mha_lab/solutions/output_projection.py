"""Chapter 05: concatenate and project."""

import torch

from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions import _parts as parts


def output_projection(heads, w_o):
    """``(batch, num_heads, n, d_v)`` and ``(num_heads * d_v, d_model)`` to ``(batch, n, d_model)``."""
    return heads.transpose(1, 2).flatten(-2) @ w_o


def _problems(draw):
    heads = torch.tensor([[[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]])
    yield heads, torch.tensor([[1.0, 0.0], [0.0, 10.0]])
    for dtype in (torch.float64, torch.float32, torch.float64):
        batch, num_heads, n, d_v, d_model = draw.primes(5)
        yield (
            draw.normal(batch, num_heads, n, d_v, dtype=dtype),
            draw.normal(num_heads * d_v, d_model, dtype=dtype),
        )


STEP = "3 The projection is a sum over heads"
EXERCISE = Exercise(
    answer=output_projection,
    chapter="05_output_projection",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        "merge-without-transpose": Mistake(
            "Your heads were merged without swapping the axes first, so tokens are mixed.",
            "1 Concatenate",
            (lambda h, w: parts.bare_merge(h) @ w,),
        ),
        "projection-per-wrong-slice": Mistake(
            "Your columns of the heads meet the wrong rows of w_o: those of one head belong side by side.",
            "6 Break it: the wrong slices of w_o",
            (lambda h, w: parts.merge_interleaved(h) @ w, lambda h, w: parts.merge(h.flip(1)) @ w),
        ),
        "no-output-projection": Mistake(
            "Your function returns the concatenated heads: w_o is not used.",
            "2 What is lost without the projection",
            (lambda h, w: parts.merge(h),),
        ),
        "projection-transposed": Mistake(
            "Your function multiplies by the transpose of w_o, as nn.Linear does with its weight.",
            STEP,
            (lambda h, w: parts.merge(h) @ w.mT,),
        ),
        "not-summed-over-heads": Mistake(
            "Your function returns one contribution per head; the output is their sum.",
            STEP,
            (lambda h, w: h @ w.unflatten(0, (h.shape[1], -1)),),
        ),
    },
)
