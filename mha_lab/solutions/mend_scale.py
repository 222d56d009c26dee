"""Chapter 01: a scale that fits one size only."""

import math

import torch

from mha_lab.check.exercise import Exercise, Mistake


def mend_scale(x, w_q, w_k):
    """``(..., n, d_model)`` and two ``(d_model, d_k)`` to scaled scores ``(..., n, n)``."""
    query, key = x @ w_q, x @ w_k
    return query @ key.mT / query.shape[-1] ** 0.5


def _bug(x, w_q, w_k):
    query, key = x @ w_q, x @ w_k
    return query @ key.mT / math.sqrt(x.shape[-1])


def _divided_by(divisor):
    return lambda x, w_q, w_k: (x @ w_q) @ (x @ w_k).mT / divisor(x, w_q)


def _problems(draw):
    yield torch.eye(2), torch.ones(2, 1), torch.ones(2, 1)
    for dtype in (torch.float32, torch.float64, torch.float64):
        batch, n, d_model, d_k = draw.primes(4)
        x = draw.normal(batch, n, d_model, dtype=dtype)
        yield x, draw.normal(d_model, d_k, dtype=dtype), draw.normal(d_model, d_k, dtype=dtype)


STEP = "5 Why divide by the square root of d_k?"
EXERCISE = Exercise(
    answer=mend_scale,
    chapter="01_single_head_attention",
    section=STEP,
    points=2,
    problems=_problems,
    bug=_bug,
    mistakes={
        "not-scaled": Mistake(
            "Your scores are not divided at all: they spread by sqrt(d_k).",
            STEP,
            (_divided_by(lambda x, w: 1),),
        ),
        "scaled-by-d_k": Mistake(
            "Your scores are divided by d_k itself; the spread is its square root.",
            STEP,
            (_divided_by(lambda x, w: w.shape[1]),),
        ),
        "scaled-by-length": Mistake(
            "Your scores are divided by the square root of n, the number of tokens.",
            STEP,
            (_divided_by(lambda x, w: math.sqrt(x.shape[-2])),),
        ),
        "scaled-by-d_model": Mistake(
            "Your scores are divided by the width of x; the sum in a dot product has d_k terms.",
            STEP,
            (_bug, _divided_by(lambda x, w: x.shape[-1])),
        ),
        "shared-projection": Mistake(
            "Queries and keys come from the same matrix in your function.",
            "6 Put together",
            (lambda x, q, k: (x @ q) @ (x @ q).mT / math.sqrt(q.shape[1]),),
        ),
    },
)
