"""Chapter 01: the scores of all pairs."""

import math

import torch

from mha_lab.check.exercise import Exercise, Mistake


def scaled_scores(query, key):
    """``(..., n_q, d_k)`` and ``(..., n_k, d_k)`` to ``(..., n_q, n_k)``."""
    return query @ key.mT / query.shape[-1] ** 0.5


def _problems(draw):
    yield torch.tensor([[2.0, 0.0, 0.0], [0.0, 2.0, 2.0]]), torch.tensor([[0.0, 1.0, 0.0], [3.0, 0.0, 0.0]])
    for dtype, leading in ((torch.float64, 0), (torch.float32, 1), (torch.float64, 2)):
        n_q, n_k, d_k, *batch = draw.primes(3 + leading)
        yield draw.normal(*batch, n_q, d_k, dtype=dtype), draw.normal(*batch, n_k, d_k, dtype=dtype)


def _raw(query, key):
    return query @ key.mT


STEP = "2 Scores: how well does each query match each key?"
ROOT = "5 Why divide by the square root of d_k?"
EXERCISE = Exercise(
    answer=scaled_scores,
    chapter="01_single_head_attention",
    section=STEP,
    points=1,
    problems=_problems,
    same_as=("scaled_dot_product_scores",),
    mistakes={
        "not-scaled": Mistake(
            "Your scores are the plain dot products: they are not divided by sqrt(d_k).", ROOT, (_raw,)
        ),
        "scaled-by-d_k": Mistake(
            "Your scores are divided by d_k, and not by its square root.",
            ROOT,
            (lambda q, k: _raw(q, k) / q.shape[-1],),
        ),
        "multiplied-by-sqrt": Mistake(
            "Your scores are multiplied by sqrt(d_k), and not divided by it.",
            ROOT,
            (lambda q, k: _raw(q, k) * math.sqrt(q.shape[-1]),),
        ),
        "scaled-by-length": Mistake(
            "Your scores are divided by the root of a number of tokens; the width d_k belongs there.",
            ROOT,
            (
                lambda q, k: _raw(q, k) / math.sqrt(k.shape[-2]),
                lambda q, k: _raw(q, k) / math.sqrt(q.shape[-2]),
            ),
        ),
        "key-not-transposed": Mistake(
            "Your function multiplies query and key without turning the rows of key into columns.",
            STEP,
            (lambda q, k: q @ k / math.sqrt(q.shape[-1]),),
        ),
        "queries-and-keys-swapped": Mistake(
            "Your scores have keys as rows and queries as columns: they are transposed.",
            STEP,
            (lambda q, k: k @ q.mT / math.sqrt(q.shape[-1]),),
        ),
    },
)
