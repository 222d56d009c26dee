"""Chapter 02: what a query twice as long does to the weights."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def predict_longer_query(weights):
    """``(n_k,)`` to the weights ``(n_k,)`` of the same query, twice as long."""
    squares = weights**2  # exp(2 s) is exp(s) squared
    return squares / squares.sum()


def _problems(draw):
    yield (torch.tensor([0.25, 0.75]),)
    for dtype in (torch.float32, torch.float64, torch.float64):
        (n_k,) = draw.primes(1)
        yield (draw.normal(n_k, dtype=dtype).softmax(0),)


STEP = "5 Length is temperature"
EXERCISE = Exercise(
    answer=predict_longer_query,
    chapter="02_toy_queries_keys_values",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={
        "unchanged-weights": Mistake(
            "You predict the same weights: but a longer query is sharper.", STEP, (lambda w: w,)
        ),
        "not-normalised": Mistake(
            "Your weights do not sum to 1: after exp comes a division.",
            STEP,
            (lambda w: w * w, lambda w: 2 * w),
        ),
        "softmax-of-weights": Mistake(
            "You take a softmax of the weights: they have been through one. The scores are their logarithms.",
            STEP,
            (lambda w: (2 * w).softmax(0), lambda w: w.softmax(0), lambda w: (w * w).softmax(0)),
        ),
        "flatter": Mistake(
            "Your weights are flatter than before: that is what a shorter query does.",
            STEP,
            (lambda w: w.sqrt() / w.sqrt().sum(),),
        ),
    },
)
