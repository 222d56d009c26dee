"""What is said of answers to the exercises of chapter 14, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array

CLAIMS = {
    ("backup_pair", "diagonal-counts"): lambda problem, expected, got: (
        got[0] == got[1] and array(problem[1])[int(got[0]), int(got[0])] < float(problem[0])
    ),
    ("backup_pair", "neighbours-only"): lambda problem, expected, got: abs(got[1] - got[0]) == 1,
    ("backup_pair", "place-in-the-table"): lambda problem, expected, got: np.asarray(got).ndim == 0,
}


# --- second_lookup_by_hand: a row of seven letters, and the keys that each of them sees

LETTERS = "sabacba"  # start a b a c b a


def after(i):
    """The keys just after the earlier places of this letter; *start* if there are none."""
    return [j + 1 for j in range(i) if LETTERS[j] == LETTERS[i]] or [0]


SECOND = np.array([[key in after(i) for key in range(7)] for i in range(7)])
CLAIMS |= {
    ("second_lookup_by_hand", "first-lookup"): lambda p, e, got: (
        got.dtype == bool and (got[1:] == np.eye(7)[:-1].astype(bool)).all() and not got[0, 1:].any()
    ),
    ("second_lookup_by_hand", "numbers-in-place-of-booleans"): lambda p, e, got: (
        got.dtype != bool and (got == SECOND).all()
    ),
    ("second_lookup_by_hand", "additive-mask"): lambda p, e, got: (
        (got[SECOND] == 0).all() and (got[~SECOND] <= -1e4).all()
    ),
}
