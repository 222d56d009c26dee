"""What is said of answers to the exercises of chapter 03, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, of_result, same


def not_cut(problem, expected, got):
    x, h = problem
    return h > 1 and not isinstance(got, tuple) and np.shape(got)[-1:] == (x.shape[2],)


def other_widths(problem, expected, got):
    """The slices of one head at least, as they stand in the result, are not d_k wide."""
    if isinstance(got, tuple):
        return any(np.shape(g)[-1:] != np.shape(expected)[-1:] for g in got)
    *axes, width = np.shape(expected)
    return sorted(np.shape(got)[:-1]) == sorted(axes) and np.shape(got)[-1] != width


def with_weights(problem, expected, got):
    several = isinstance(got, tuple) or np.ndim(got) == 1 + np.ndim(expected)
    return several and any(same(g, expected) for g in got)


CLAIMS = {(exercise, "not-cut"): not_cut for exercise in ("fix_split", "split_heads")} | {
    ("fix_split", "slices-of-another-width"): other_widths,
    ("split_heads", "slices-of-another-width"): other_widths,
    ("merge_heads", "not-joined"): lambda problem, expected, got: np.ndim(got) == 4,
    ("per_head_weights", "returns-more-than-the-weights"): with_weights,
}

# --- split_by_hand: the step and the sizes, read back from the numbers


def shown(got):
    """Tokens, heads and columns, if these are the numbers of the third step; else zeros."""
    h, n, d = np.shape(got) if np.ndim(got) == 3 else (0, 0, 0)
    x = np.arange(n * h * d).reshape(n, h * d)
    right = [x[:, i * d : (i + 1) * d] for i in range(h)]
    return (n, h, d) if h and np.array_equal(got, right) else (0, 0, 0)


def bare_tokens(got):
    """The tokens in each head of the bare view."""
    n, h, d = shown(got)
    return [{i // (h * d) for i in range(k * n * d, (k + 1) * n * d)} for k in range(h)]


def whole_tokens(got, least, most):
    heads = bare_tokens(got)
    once = sum(map(len, heads)) == len(set().union(*heads))
    return once and all(least <= len(head) <= most for head in heads)


BY_HAND = {
    "the-picture": lambda got: not isinstance(got, np.ndarray),
    "sizes-only": lambda got: not isinstance(got, np.ndarray) or got.shape == (3,),
    "another-step": lambda got: got.ndim == 2,
    "order-of-memory": lambda got: np.array_equal(got.ravel(), np.arange(got.size)) and got.ndim == 3,
    "where-the-picture-begins": lambda got: shown(got) == (3, 2, 2),
    "one-token": lambda got: shown(got)[0] == 1,
    "one-head": lambda got: shown(got)[1] == 1,
    "one-whole-token": lambda got: whole_tokens(got, 1, 1),
    "several-whole-tokens": lambda got: whole_tokens(got, 2, 99),
    "mixed-heads": lambda got: (
        any(len(head) > 1 for head in bare_tokens(got)) and not whole_tokens(got, 1, 99)
    ),
}
CLAIMS |= claims("split_by_hand", BY_HAND, of_result)

# --- reorder_checkpoint: row c * num_heads + h of w is row h * d_k + c of the result


def columns_moved(problem, expected, got):
    """The columns in another order, and every one is there."""
    w = array(problem[0])
    order = [np.flatnonzero((w == column[:, None]).all(0)) for column in array(got).T]
    return np.shape(got) == w.shape and sorted(int(i[0]) for i in order if len(i)) == list(range(w.shape[1]))


def torn(problem, expected, got):
    """The same numbers, and some row of the result has numbers of several rows."""
    w, got = array(problem[0]), array(got)
    rows = {tuple(sorted(row)) for row in w}
    every = np.array_equal(np.sort(w, None), np.sort(got, None))
    return got.shape == w.shape and every and any(tuple(sorted(row)) not in rows for row in got)


CLAIMS |= {
    ("reorder_checkpoint", "columns-moved"): columns_moved,
    ("reorder_checkpoint", "numbers-in-other-rows"): torn,
}
