"""What is said of answers to the exercises of chapter 05, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, heads_listed, of_both

# --- The head that writes most for each token.


def is_one_head(p, e, got):
    """One head for all tokens: a single number below num_heads, perhaps repeated."""
    got = array(got)
    return got.shape in ((), p[0].shape[1:2]) and len(np.unique(got)) == 1 and 0 <= got.flat[0] < len(p[0])


def strongest_rows(p, e, got):
    w = array(p[1]).reshape(len(p[0]), -1)
    return is_one_head(p, e, got) and array(got).flat[0] == (w**2).sum(1).argmax()


CLAIMS = {
    ("most_important_head", "one-head-for-all-tokens"): is_one_head,
    ("most_important_head", "w_o-alone"): strongest_rows,
}


# --- The heads of a picture whose sizes add up to 0. A problem is what each head fetches for *saw*.


def fetched_by(problem, got):
    """What the heads of this list fetch."""
    return array(problem[0])[np.asarray(got, int)]


CANCEL = heads_listed(6, [0, 1, 2, 3]) | {
    "a-head-that-fetches-0": lambda problem, got: (abs(fetched_by(problem, got)) < 1e-3).sum() == 1,
    "counted-from-1": lambda problem, got: (
        abs(fetched_by(problem, array(got) - 1).sum()) <= 0.03
        and min(abs(fetched_by(problem, array(got) - 1))) > 0.2
    ),
    "too-much-of-the-dog": lambda problem, got: fetched_by(problem, got).sum() > 0.03,
    "too-much-of-the-cat": lambda problem, got: fetched_by(problem, got).sum() < -0.03,
}
CLAIMS |= claims("heads_that_cancel", CANCEL, of_both)
