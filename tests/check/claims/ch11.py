"""What is said of answers to the exercises of chapter 11, asked of the numbers."""

import numpy as np

from tests.check.claims.results import claims, of_result

# --- mask_that_passes: the cells above the diagonal are later keys


def later(got):
    return [(i, j) for i in range(5) for j in range(5) if j > i and got[i][j]]


def all_before(got):
    return all(got[i][j] for i in range(5) for j in range(i + 1))


PASSES = {
    "the-picture": lambda got: not isinstance(got, np.ndarray),
    "numbers-in-place-of-booleans": lambda got: got.dtype != bool,
    "where-the-picture-begins": lambda got: got.all(),
    "mask-inverted": lambda got: got.sum() == 4 and got[0, 1:].all(),
    "rows-and-columns-swapped": lambda got: (~got).sum() == 4 and not got[1:, 0].any(),
    "caught": lambda got: got[0, 1:].any(),
    "hides-earlier-keys": lambda got: not all_before(got),
    "no-leak": lambda got: all_before(got) and not later(got),
    "fewer-leaks": lambda got: 0 < len(later(got)) < 6 and not got[0, 1:].any(),
}
CLAIMS = claims("mask_that_passes", PASSES, of_result)
