"""What is said of answers to the exercises of chapter 12, asked of the numbers."""

import numpy as np

from tests.check.claims.results import claims, of_result, same

# --- rolling_window_mask


def one_window(problem, expected, got):
    """All new tokens see what one of them should see, except for later tokens."""
    new, kept, window = problem
    column, row = np.arange(kept + new), np.arange(kept, kept + new)[:, None]
    return any(same(got, (column > last - window) & (column <= row)) for last in (kept, kept + new - 1))


CLAIMS = {("rolling_window_mask", "one-window-for-all"): one_window}


# --- A mask with few keys for each query, and how far it reaches in two layers.


def reached(got):
    """The tokens that the last one reaches: by the keys of its keys."""
    return {int(key) for between in np.flatnonzero(got[-1]) for key in np.flatnonzero(got[between])}


REACH = {
    "the-picture": lambda got: not isinstance(got, np.ndarray),
    "wrong-shape": lambda got: np.shape(got) != (7, 7),
    "zeros-and-ones": lambda got: got.dtype != bool and all(number in (0, 1) for number in got.flat),
    "not-boolean": lambda got: got.dtype != bool and any(number not in (0, 1) for number in got.flat),
    "mask-inverted": lambda got: all(got[i, j] for i in range(7) for j in range(i + 1, 7)) and not got.all(),
    "sees-the-future": lambda got: any(got[i, j] for i in range(7) for j in range(i + 1, 7)),
    "own-key-hidden": lambda got: not all(got[i, i] for i in range(7)),
    "too-many-keys": lambda got: max(map(sum, got.tolist())) > 3,
    "where-the-picture-begins": lambda got: all(
        got[i, j] == (i - 3 < j <= i) for i in range(7) for j in range(7)
    ),
    "tokens-not-reached": lambda got: reached(got) < set(range(7)),
}
CLAIMS |= claims("mask_that_reaches", REACH, of_result)
