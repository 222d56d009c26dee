"""Chapter 05: a bias that comes in once for each head."""

import torch

from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions._parts import bare_merge, merge


def mend_bias(heads, w_o, bias):
    """``(batch, num_heads, n, d_v)``, ``(num_heads * d_v, d_model)``, ``(d_model,)`` to the output."""
    parts = zip(heads.unbind(1), w_o.chunk(heads.shape[1]), strict=True)
    return sum(head @ rows for head, rows in parts) + bias


def _problems(draw):
    yield torch.tensor([[[[1.0]], [[2.0]]]]), torch.eye(2), torch.tensor([10.0, 20.0])
    for dtype in (torch.float32, torch.float64, torch.float64):
        batch, num_heads, n, d_v = draw.primes(4)
        (d_model,) = draw.primes(1)
        yield (
            draw.normal(batch, num_heads, n, d_v, dtype=dtype),
            draw.normal(num_heads * d_v, d_model, dtype=dtype),
            draw.normal(d_model, dtype=dtype),
        )


STEP = "4 The bias belongs to the sum, once"
EXERCISE = Exercise(
    answer=mend_bias,
    chapter="05_output_projection",
    section=STEP,
    points=2,
    problems=_problems,
    bug=lambda heads, w, b: merge(heads) @ w + heads.shape[1] * b,
    mistakes={
        "bias-ignored": Mistake(
            "Your output has no bias at all; it belongs to the sum.", STEP, (lambda x, w, b: merge(x) @ w,)
        ),
        "bias-divided": Mistake(
            "Your output has too little of the bias: once in all, not a share of it.",
            STEP,
            (lambda x, w, b: merge(x) @ w + b / x.shape[1], lambda x, w, b: merge(x) @ w + b / x.shape[2]),
        ),
        "merge-without-transpose": Mistake(
            "The bias is right; the heads are joined without swapping axes first, which mixes tokens.",
            "1 Concatenate",
            (lambda x, w, b: bare_merge(x) @ w + b,),
        ),
        "projection-per-wrong-slice": Mistake(
            "The bias is right, but the heads meet the wrong rows of w_o.",
            "6 Break it: the wrong slices of w_o",
            (
                lambda x, w, b: sum(x[:, h] @ w[h :: x.shape[1]] for h in range(x.shape[1])) + b,
                lambda x, w, b: merge(x.flip(1)) @ w + b,
            ),
        ),
        "heads-averaged": Mistake(
            "Your output is the mean over the heads; the projection is their sum.",
            "3 The projection is a sum over heads",
            (
                lambda x, w, b: merge(x) @ w / x.shape[1] + b,
                lambda x, w, b: (merge(x) @ w) / x.shape[1],
            ),
        ),
    },
)
