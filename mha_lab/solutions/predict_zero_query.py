"""Chapter 01: what does a query of zeros fetch?"""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def predict_zero_query(values):
    """``(n_k, d_v)`` to the output ``(d_v,)`` for a query of zeros."""
    return values.mean(dim=0)  # all scores are 0, so all weights are equal


def _problems(draw):
    yield (torch.tensor([[0.0, 8.0], [4.0, 0.0]]),)
    for dtype in (torch.float32, torch.float64, torch.float64):
        yield (draw.normal(*draw.primes(2), dtype=dtype),)


STEP = "3 Weights: from scores to numbers that sum to 1"
EXERCISE = Exercise(
    answer=predict_zero_query,
    chapter="01_single_head_attention",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        "zero-weights": Mistake(
            "You predict an output of 0: but scores of 0 are no weights of 0. What is exp(0)?",
            STEP,
            (lambda v: torch.zeros_like(v[0]),),
        ),
        "not-normalised": Mistake(
            "You predict the sum of all values: exp(0) is 1 for each key, and then comes a division.",
            STEP,
            (lambda v: v.sum(0),),
        ),
        "one-value": Mistake(
            "You predict a single value: nothing makes one key better than another.",
            STEP,
            (lambda v: v[0], lambda v: v[-1], lambda v: v.amax(0)),
        ),
        "weights-on-columns": Mistake(
            "You average each value over its own numbers; the average runs over the keys.",
            "4 Output: the weighted average of the values",
            (lambda v: v.mean(1),),
        ),
    },
)
