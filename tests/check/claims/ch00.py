"""What is said of answers to the exercises of chapter 00, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, of_both, same


def fetched(problem, got):
    """What each of the five tokens gets with these sizes."""
    return array(problem[0]) @ array(got)


def gets(problem, got, row):
    """Whether this token gets what the task asks for, as far as two digits show."""
    size = fetched(problem, got)[row]
    return size >= 0.494 if row == 1 else abs(size) <= 0.106


SIZES = {
    "the-picture": lambda problem, got: not isinstance(got, np.ndarray),
    "two-numbers": lambda problem, got: np.shape(got) == (2,),
    "both-numbers-of-each-value": lambda problem, got: np.shape(got)[-2:] == (5, 2),
    "weights-returned": lambda problem, got: abs(array(got).sum() - 1) < 0.03 and array(got).min() >= 0,
    "where-the-picture-begins": lambda problem, got: same(got, np.array([0, 1, 0, 0, -1])),
    "first-numbers": lambda problem, got: same(got, np.array([0, 1, -1, 0, 1])),
    "own-value-of-dog": lambda problem, got: got[1] > 1 and not gets(problem, got, 1),
    "too-much-for-saw": lambda problem, got: gets(problem, got, 1) and fetched(problem, got)[2] > 0.1,
    "too-little-for-saw": lambda problem, got: gets(problem, got, 1) and fetched(problem, got)[2] < -0.1,
    "too-little-for-dog": lambda problem, got: gets(problem, got, 2) and fetched(problem, got)[1] < 0.5,
    "neither": lambda problem, got: not gets(problem, got, 1) and not gets(problem, got, 2),
}
CLAIMS = claims("sizes_by_hand", SIZES, of_both)
