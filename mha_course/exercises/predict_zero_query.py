"""Chapter 01: what does a query of zeros fetch?"""

import torch

from mha_course.exercises import Exercise, Mistake


def predict_zero_query(values):
    """``(n_k, d_v)`` to the output ``(d_v,)`` for a query of zeros."""
    return values.mean(dim=0)  # all scores are 0, so all weights are equal


def _problems(rng):
    yield (torch.tensor([[0.0, 8.0], [4.0, 1.0], [-1.0, 3.0]]),)
    yield (torch.tensor([[1.0, 6.0, 2.0], [5.0, -2.0, 7.0]]),)
    for _ in range(3):
        yield (rng.normal(*rng.primes(2)),)


STEP = "3 Weights: from scores to numbers that sum to 1"
AVERAGE = "4 Output: the weighted average of the values"
EXERCISE = Exercise(
    answer=predict_zero_query,
    chapter="01_single_head_attention",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        "zero-weights": Mistake(
            "You return zeros. A score of 0 is not a weight of 0: what is exp(0)?",
            STEP,
            (lambda v: torch.zeros_like(v[0]), lambda v: torch.zeros_like(v)),
        ),
        "not-normalised": Mistake(
            "You add up all values: every weight is 1, not 1 / n_k. Either the division is missing, or your "
            "softmax runs over an axis of length 1.",
            STEP,
            (lambda v: v.sum(0),),
        ),
        "divided-by-the-width": Mistake(
            "Every weight is 1 / d_v, or the sum is divided by d_v, a value's width. There are n_k values.",
            STEP,
            (lambda v: v.sum(0) / v.shape[1],),
        ),
        "one-value": Mistake(
            "You return a single one of the values: nothing makes one key better than another.",
            STEP,
            (lambda v: v[0], lambda v: v[-1]),
        ),
        "largest-value": Mistake(
            "You return the largest number of each column: nothing makes one key better than another.",
            STEP,
            (lambda v: v.amax(0),),
        ),
        "mean-over-columns": Mistake(
            "You average each value over its own numbers; the average runs over the keys.",
            AVERAGE,
            (lambda v: v.mean(1), lambda v: v.mean(1, keepdim=True)),
        ),
        "mean-of-everything": Mistake(
            "You average all numbers into one; each column has an average of its own.",
            AVERAGE,
            (lambda v: v.mean(), lambda v: torch.full((v.shape[1],), v.mean().item())),
        ),
        "softmax-of-the-values": Mistake(
            "You put the values through a softmax. Take the softmax of the scores, which are all 0.",
            STEP,
            (
                lambda v: torch.softmax(v, 0),
                lambda v: torch.softmax(v, -1),
                lambda v: torch.softmax(v, 0).mean(0),
            ),
        ),
        "weights-returned": Mistake(
            "You return the weights, 1 / n_k for each key. The output is the average of the values with "
            "these weights.",
            AVERAGE,
            (lambda v: torch.ones(len(v)) / len(v),),
        ),
        "axis-kept": Mistake(
            "Your result has an axis of length 1 too many: (1, d_v) instead of (d_v,).",
            AVERAGE,
            (lambda v: v.mean(0, keepdim=True),),
        ),
        "one-for-each-key": Mistake(
            "You return the mean once for each key; there is one query, so one row comes out.",
            AVERAGE,
            (lambda v: v.mean(0).expand_as(v),),
        ),
    },
)
