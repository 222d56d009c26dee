"""Chapter 09: the weights under a linear penalty when the content is the same everywhere."""

import math

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake, deviations
from mha_course.exercises._results import as_array, close


def predict_alibi_weights(slope, n):
    """The weights ``(n,)`` of the last query, with equal dot products and a causal mask."""
    distance = torch.arange(n - 1, -1, -1)
    weights = torch.exp(-slope * distance)
    return weights / weights.sum()


def _problems(rng):
    yield 0.25, 3
    yield math.log(2), 4
    yield math.log(2), 3
    yield from zip(rng.shuffled((1 / 2, 1 / 3, 1 / 8)), rng.primes(3, at_least=3), strict=True)
    yield 0.25, 1
    yield 2.0, 101  # exp(200) is too large for float32


def _back(n):
    return torch.arange(n - 1, -1, -1)


def _share(weights):
    return weights / weights.sum()


def _build(distance=_back, fall=lambda m, d: torch.exp(-m * d), share=lambda w, m: _share(w)):
    return lambda slope, n: share(fall(slope, distance(n)), slope)


def _all_rows(m, n):
    return -m * (torch.arange(n) - torch.arange(n)[:, None]).abs()


def _causal(m, n):
    return torch.softmax(_all_rows(m, n).masked_fill(torch.ones(n, n).triu(1) > 0, -math.inf), -1)


def _explain(problems, results):
    """What the rows have in common: how they change from key to key, and whether the slope changes them."""
    rows = [as_array(result) for result in results]
    if any(row is None or row.shape != (n,) for row, (_, n) in zip(rows, problems, strict=True)):
        return None
    rows = [row.astype(float) for row in rows]
    right = [predict_alibi_weights(*problem).numpy() for problem in problems]
    long = [(row, one) for row, one in zip(rows, right, strict=True) if len(row) > 1]
    if all(close(row, row.round()) for row, _ in long):
        return "whole-numbers", "Your function returns whole numbers: were the weights rounded?"
    if close(rows[0], rows[2]):
        says = (
            f"Your function returns the same for slope {problems[0][0]} and for slope {problems[2][0]:.3f}."
        )
        return "slope-not-used", says
    if all(row[-1] and close(row / row[-1], one / one[-1]) for row, one in long):
        return "ratios-only", "The ratios of your weights are right, but their sum is not 1."
    if all(close(np.diff(row), np.diff(row)[:1]) for row, _ in long):
        says = "Your numbers change by the same amount from key to key; weights change by a factor."
        return "equal-steps", says
    if all((np.diff(row) < 0).all() for row, _ in long):
        says = "Your numbers fall from key 0 on: the last key is the query's own, at distance 0."
        return "far-keys-get-more", says
    if not all((row > 0).all() for row, _ in long):
        return None
    if all(close(row[1:] / row[:-1], row[1:2] / row[:1]) for row, _ in long):
        says = "Your numbers grow by one factor from key to key, as they should, but it is the wrong factor."
        return "another-factor", says
    return (
        "no-factor",
        "Your numbers do not grow by one factor from key to key: equal steps in the score give equal "
        "factors.",
    )


STEP = "4 ALiBi: a penalty for distance"
KNOBS = {
    "distance": {
        "back-to-front": (
            "Your weights grow with the distance: the last key is the query's own, at distance 0.",
            STEP,
            (torch.arange,),
        ),
        "counts-from-one": (
            "Your distances run from 1 to n: the query's own key has distance 0.",
            STEP,
            (lambda n: _back(n) + 1,),
        ),
    },
    "fall": {
        "all-alike": (
            "Your function gives every key the same weight: the dot products are equal, but the penalties "
            "are not.",
            STEP,
            (lambda m, d: torch.ones(len(d)),),
        ),
        "fixed-factor": (
            "Your weights fall by the same factor for every slope: the slope is not used.",
            STEP,
            (lambda m, d: 0.5**d, lambda m, d: torch.exp(-1.0 * d)),
        ),
        "straight-line": (
            "Your weights fall by the same amount at each step. The scores do; weights fall by a factor.",
            STEP,
            (lambda m, d: 1 - m * d,),
        ),
        "line-cut-at-0": (
            "Your weights are made of 1 - slope * distance, a straight line. The "
            "scores are a line; the weights fall by a factor at each step.",
            STEP,
            (lambda m, d: (1 - m * d).clamp(min=0),),
        ),
        "penalty-on-the-mean": (
            "You subtract the penalty from 1 / n, the weight of all keys without ALiBi, and numbers below 0 "
            "become 0. Subtract the penalty from the scores, before the softmax.",
            STEP,
            (lambda m, d: (1 / len(d) - m * d).clamp(min=0), lambda m, d: 1 / len(d) - m * d),
        ),
        "hyperbola": (
            "Your weights are 1 over a number that grows by the same amount at each step; a penalty on the "
            "score makes the weight fall by a factor.",
            STEP,
            (lambda m, d: 1 / (1 + m * d), lambda m, d: 1 / (1 + d), lambda m, d: 1 / (1 / m + 1 + d)),
        ),
        "slope-as-factor": (
            "Each of your weights is `slope` times the weight after it. The slope is subtracted from the "
            "score, and the weight is `exp` of the score.",
            STEP,
            (lambda m, d: m ** d.float(),),
        ),
        "one-minus-slope-as-factor": (
            "Each of your weights is `1 - slope` times the weight after it; the `exp` of the scores gives "
            "another factor.",
            STEP,
            (lambda m, d: (1 - m) ** d.float(),),
        ),
        "powers-of-2": (
            "Your weights are powers of 2; a softmax makes powers of e.",
            STEP,
            (lambda m, d: 2 ** (-m * d),),
        ),
        "divided-by-the-slope": (
            "Your function divides the distance by the slope; the penalty is slope times distance.",
            STEP,
            (lambda m, d: torch.exp(-d / m),),
        ),
        "distance-squared": (
            "Your penalty grows with the square of the distance; ALiBi's grows with the distance itself.",
            STEP,
            (lambda m, d: torch.exp(-m * d**2), lambda m, d: torch.exp(-((m * d) ** 2))),
        ),
        "penalty-divided": (
            "Your function divides the penalty by something: only dot products are divided, by sqrt(d_k).",
            STEP,
            (lambda m, d: torch.exp(-m * d / 2), lambda m, d: torch.exp(-m * d / math.sqrt(len(d)))),
        ),
        "no-exp": (
            "Your function uses the scores as weights: there is no `exp` in between.",
            STEP,
            (lambda m, d: -m * d, lambda m, d: m * d),
        ),
    },
    "share": {
        "not-normalised": (
            "Your function does not divide by the sum of the row.",
            STEP,
            (lambda w, m: w,),
        ),
        "divided-by-n": (
            "Your function divides by n, the number of keys; the row must sum to 1.",
            STEP,
            (lambda w, m: w / len(w),),
        ),
        "divided-by-another-sum": (
            "Your function divides by a sum that is not that of its own n numbers.",
            STEP,
            (
                lambda w, m: w / torch.exp(-m * torch.arange(len(w) + 1)).sum(),
                lambda w, m: w / torch.exp(-m * torch.arange(1, len(w) + 1)).sum(),
                lambda w, m: w * (1 - math.exp(-m)),
                lambda w, m: w / _back(len(w)).sum(),
            ),
        ),
        "divided-by-the-length": (
            "Your function divides by the length of the row as a vector; its plain sum must become 1.",
            STEP,
            (lambda w, m: w / w.norm(),),
        ),
    },
}
FOUND = deviations(_build, KNOBS)
del FOUND["counts-from-one"]  # alone it is right: dividing by the sum takes the factor out again
EXERCISE = Exercise(
    answer=predict_alibi_weights,
    chapter="09_scores_and_positions",
    section=STEP,
    points=1,
    problems=_problems,
    explains=_explain,
    mistakes={
        "fixed-answer": Mistake(
            "Your function returns the three numbers of the example, whatever the slope and n are.",
            STEP,
            (lambda m, n: torch.tensor([1, 2, 4]) / 7,),
        ),
        "line-without-the-slope": Mistake(
            "Your numbers are a straight line, and the slope is not used. The scores are a line; the "
            "weights fall by a factor.",
            STEP,
            (
                lambda m, n: _share(n - _back(n)),
                lambda m, n: _share(torch.arange(n)),
                lambda m, n: 1 - _back(n) / n,
                lambda m, n: n - _back(n),
            ),
        ),
        "penalty-added": Mistake(
            "Your function adds the penalty to the score, but does not divide by the sum of the row.",
            STEP,
            (lambda m, n: torch.exp(m * _back(n)),),
        ),
        "one-softmax-more": Mistake(
            "Your function takes a softmax of numbers that are already the result of `exp`.",
            STEP,
            (
                lambda m, n: torch.softmax(torch.exp(-m * _back(n)), 0),
                lambda m, n: torch.softmax(_share(torch.exp(-m * _back(n))), 0),
                lambda m, n: torch.softmax(torch.exp(-m * torch.arange(n)), 0),
                lambda m, n: torch.softmax(_share(torch.exp(-m * torch.arange(n))), 0),
            ),
        ),
        "logarithms": Mistake(
            "Your function returns the logarithms of the weights.",
            STEP,
            (lambda m, n: torch.log_softmax(-m * _back(n), 0),),
        ),
        "scores-returned": Mistake(
            "Your function returns slope times distance, as in the scores; it should return the weights.",
            STEP,
            (lambda m, n: -m * _back(n), lambda m, n: m * _back(n), lambda m, n: -m * torch.arange(n)),
        ),
        "all-rows": Mistake(
            "Your function returns a row for each of the n queries; it should return only that of the last "
            "one.",
            STEP,
            (
                _causal,
                lambda m, n: torch.softmax(_all_rows(m, n), -1),
                lambda m, n: torch.exp(_all_rows(m, n)),
            ),
        ),
        "first-row": Mistake(
            "Your function returns the row of the first query, which sees only its own key.",
            STEP,
            (lambda m, n: _causal(m, n)[0],),
        ),
        "negative-step": Mistake(
            "A tensor cannot be read backwards with `[::-1]`: use `.flip(0)`.",
            STEP,
            (lambda m, n: torch.arange(n)[::-1],),
        ),
        "counts-down-without-a-step": Mistake(
            "`torch.arange` counts up unless it is given a step: its third argument.",
            STEP,
            (lambda m, n: torch.arange(n - 1, -1),),
        ),
        "a-list-times-a-number": Mistake(
            "A list of numbers cannot be multiplied entry by entry: turn it into a tensor, or take its "
            "numbers one by one.",
            STEP,
            (lambda m, n: -m * [0.0], lambda m, n: math.exp([0.0])),
        ),
        **FOUND,
    },
)
