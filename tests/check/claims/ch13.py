"""What is said of answers to the exercises of chapter 13, asked of the numbers."""

import numpy as np

from tests.check.claims.results import claims, of_result


def num(x):
    return np.asarray(x, np.float64)


# --- softmax_with_sink


def sums_to_1(problem, expected, got):
    return got.shape == problem[0].shape and np.allclose(got.sum(-1), 1, atol=1e-4)


def one_or_nothing(problem, expected, got):
    sums = got.sum(-1)
    nothing = num(expected).sum(-1) < 1e-6
    return got.shape == problem[0].shape and bool((np.isclose(sums, 1, atol=1e-4) | nothing).all())


def overflows(problem, expected, got):
    """Only where scores or sinks are large."""
    large = max(np.abs(num(x)).max() for x in problem) > 80
    return got.shape == expected.shape and large


# --- norm_query_key


def another_epsilon(problem, expected, got):
    """Only where a mean of squares is so small that epsilon counts, and only numbers that are not 0."""
    heads = num(problem[0]).reshape(*problem[0].shape[:-1], -1, len(problem[1])).swapaxes(-2, -3)
    small = (heads**2).mean(-1, keepdims=True) < 1e-2
    factor = num(got) / num(expected)
    return got.shape == expected.shape and bool((small | np.isclose(factor, 1, rtol=1e-3)).all())


CLAIMS = {
    ("softmax_with_sink", "rows-sum-to-1"): sums_to_1,
    ("softmax_with_sink", "divided-again"): one_or_nothing,
    ("softmax_with_sink", "unstable-softmax"): overflows,
    ("norm_query_key", "another-epsilon"): another_epsilon,
    ("norm_query_key", "not-split"): lambda problem, expected, got: got.shape == problem[0].shape,
    ("capped_score_mod", "mask-alone"): lambda problem, expected, got: np.asarray(got).dtype == bool,
}


# --- far_but_known: the position of a query and of a key, on a strip of 32 places. Trained on 8 tokens.


def pair(got):
    """Both positions, if the answer has two numbers."""
    return tuple(num(got).tolist()) if isinstance(got, np.ndarray) and got.shape == (2,) else None


def last_turn(got):
    """How far pair 1 has turned, in the last turn that it began: steps of 0.4 radians."""
    left = 0.4 * abs(got[0] - got[1])
    while left >= 2 * np.pi:
        left -= 2 * np.pi
    return left


FAR = {
    "the-picture": lambda got: not isinstance(got, np.ndarray),
    "one-number": lambda got: np.size(got) == 1,
    "numbers-that-are-not-whole": lambda got: any(number % 1 for number in pair(got)),
    "not-on-the-strip": lambda got: not set(pair(got)) <= set(range(32)),
    "where-the-picture-begins": lambda got: pair(got) == (7, 0),
    "positions-swapped": lambda got: got[1] - got[0] == 22,
    "key-after-query": lambda got: got[1] > got[0],
    "inside-the-training": lambda got: 0 <= got[0] - got[1] <= 7,
    "not-the-largest": lambda got: 8 <= got[0] - got[1] < 22 and last_turn(got) <= 2.8,
    "other-side": lambda got: last_turn(got) > 2.8 and 2 * np.pi - last_turn(got) <= 2.8,
    "new-angle": lambda got: last_turn(got) > 2.8,
}
CLAIMS |= claims("far_but_known", FAR, of_result)
