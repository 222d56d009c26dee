"""Chapter 09: the weights that a linear penalty leaves where the content is the same everywhere."""

import math

import torch

from mha_lab.check.exercise import Exercise, Mistake


def predict_alibi_weights(slope, n):
    """The weights ``(n,)`` of the last query, with equal dot products and a causal mask."""
    distance = torch.arange(n - 1, -1, -1)
    weights = torch.exp(-slope * distance)
    return weights / weights.sum()


def _problems(draw):
    yield math.log(2), 3
    yield 0.5, 2
    yield from zip(draw.shuffled((1 / 2, 1 / 4, 1 / 8)), draw.primes(3, at_least=3), strict=True)
    yield 0.25, 1


def _share(weights):
    return weights / weights.sum()


def _back(n):
    return torch.arange(n - 1, -1, -1)


STEP = "4 ALiBi: a penalty for distance"
EXERCISE = Exercise(
    answer=predict_alibi_weights,
    chapter="09_scores_and_positions",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        "back-to-front": Mistake(
            "Your weights run the wrong way: the last key is the query's own, and gets the most.",
            STEP,
            (lambda m, n: _share(torch.exp(-m * torch.arange(n))),),
        ),
        "slope-ignored": Mistake(
            "You give every key the same weight: the dot products are equal, the penalties are not.",
            STEP,
            (lambda m, n: torch.ones(n) / n,),
        ),
        "not-normalised": Mistake(
            "Your weights have the right ratios, and do not sum to 1.",
            STEP,
            (lambda m, n: torch.exp(-m * _back(n)), lambda m, n: torch.exp(-m * torch.arange(n))),
        ),
        "scores-returned": Mistake(
            "You return the scores, from which the softmax makes the weights.",
            STEP,
            (lambda m, n: -m * _back(n), lambda m, n: m * _back(n)),
        ),
        "slope-as-factor": Mistake(
            "You multiply the weight by the slope at each step; the slope is taken from the score.",
            STEP,
            (lambda m, n: _share(m ** _back(n).float()), lambda m, n: m ** _back(n).float()),
        ),
        "falls-in-a-line": Mistake(
            "Your weights fall by the same amount at each step. The scores do; weights fall by a factor.",
            STEP,
            (
                lambda m, n: _share(1 - m * _back(n)),
                lambda m, n: _share((1 - m * _back(n)).clamp(min=0)),
                lambda m, n: 1 - m * _back(n),
                lambda m, n: _share(1 / (1 + m * _back(n))),
            ),
        ),
        "counts-from-one": Mistake(
            "Your row is one step off: distances run from 0, the query's own key, to n - 1.",
            STEP,
            (
                lambda m, n: torch.exp(-m * (_back(n) + 1)),
                lambda m, n: torch.exp(-m * _back(n)) / torch.exp(-m * torch.arange(n + 1)).sum(),
                lambda m, n: torch.exp(-m * _back(n)) / torch.exp(-m * torch.arange(1, n + 1)).sum(),
            ),
        ),
    },
)
