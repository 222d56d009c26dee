"""Chapter 00: the average of rows under weights."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def weighted_average(weights, values):
    """``(n_k,)`` and ``(n_k, d_v)`` to ``(d_v,)``."""
    return weights @ values


def _problems(draw):
    yield torch.tensor([0.25, 0.75]), torch.tensor([[0.0, 8.0], [4.0, 0.0]])
    for dtype in (torch.float32, torch.float64, torch.float64):
        n_k, d_v = draw.primes(2)
        yield draw.normal(n_k, dtype=dtype).softmax(0), draw.normal(n_k, d_v, dtype=dtype)


EXERCISE = Exercise(
    answer=weighted_average,
    chapter="00_start_here",
    section="Three rules that carry you through all shapes",
    points=1,
    problems=_problems,
    mistakes={
        "not-weighted": Mistake(
            "Your function returns the plain mean of the rows: the weights are not used.",
            "4 The first heatmap",
            (lambda w, v: v.mean(0), lambda w, v: v.sum(0)),
        ),
        "not-summed": Mistake(
            "Your function multiplies each row by its weight, and does not add the rows up.",
            "Three rules that carry you through all shapes",
            (lambda w, v: w[:, None] * v,),
        ),
        "weights-on-columns": Mistake(
            "Your function weighs the columns of values; the weights belong to the rows.",
            "Three rules that carry you through all shapes",
            (lambda w, v: v @ w, lambda w, v: (v * w).sum(-1)),
        ),
        "divided-again": Mistake(
            "Your function divides by the number of rows; the weights sum to 1 already.",
            "4 The first heatmap",
            (lambda w, v: w @ v / len(w),),
        ),
    },
)
