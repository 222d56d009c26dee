"""What is said of answers to the exercises of chapter 07, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, heads_listed, of_both


def minus_inf(problem, expected, got):
    """Nothing finite is left: -inf times a row of w_o is there in every number."""
    return bool(np.shape(got) == np.shape(expected) and not np.isfinite(array(got)).any())


def rounded(problem, expected, got):
    right, got = float(array(expected)), array(got)
    return got.shape == () and any(
        np.isclose(float(got), f(right * 10**k) / 10**k, atol=1e-7)
        for k in range(5)
        for f in (np.round, np.floor, np.ceil)
    )


CLAIMS = {
    ("ablate_head", "minus-infinity"): minus_inf,
    ("predict_guess_loss", "rounded"): rounded,
    ("predict_guess_loss", "true-or-false"): lambda problem, expected, got: np.asarray(got).dtype == bool,
}

# --- heads_to_keep: a problem is the weights (heads, questions, n), and the places of the two records


def serves(problem, heads, answer):
    """Whether one of the heads has its largest weight on this record in every question."""
    weights, places = (np.asarray(part) for part in problem)
    return any(
        all(row[place] == max(row) for row, place in zip(weights[head], places[:, answer], strict=True))
        for head in np.asarray(heads).astype(int)
    )


def both_serve(problem, heads):
    return serves(problem, heads, 0) and serves(problem, heads, 1)


KEPT = heads_listed(8, [0, 1, 2, 3]) | {
    "counted-from-1": lambda problem, got: len(got) == 2 and both_serve(problem, got - 1),
    "more-than-two": lambda problem, got: len(got) > 2 and both_serve(problem, got),
    "first-answer-lost": lambda problem, got: not serves(problem, got, 0) and serves(problem, got, 1),
    "second-answer-lost": lambda problem, got: serves(problem, got, 0) and not serves(problem, got, 1),
    "both-answers-lost": lambda problem, got: not serves(problem, got, 0) and not serves(problem, got, 1),
}
CLAIMS |= claims("heads_to_keep", KEPT, of_both)
