"""What is said of answers to the exercises of chapter 00, asked of the numbers."""

import numpy as np


def array(x):
    x = np.asarray(x)
    return x if x.dtype == bool else x.astype(np.float64)


def same(got, *candidates):
    """Is the result one of the candidates?"""
    if isinstance(got, tuple):
        return False
    got = array(got)
    return any(
        got.shape == np.shape(c) and np.allclose(got, c, rtol=1e-3, atol=1e-3, equal_nan=True)
        for c in candidates
    )


def says(candidates):
    """A predicate: the result is one of what ``candidates`` makes of weights and values."""
    return lambda problem, expected, got: same(got, *candidates(*map(array, problem)))


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def on_columns(w, v):
    return ((v * w).sum(0), v @ w) if len(w) == v.shape[1] else ()


CLAIMS = {
    ("weighted_average", slug): says(candidates)
    for slug, candidates in {
        "plain-mean": lambda w, v: [v.mean(0)],
        "plain-sum": lambda w, v: [v.sum(0)],
        "not-summed": lambda w, v: [w[:, None] * v],
        "summed-over-columns": lambda w, v: [(w[:, None] * v).sum(1)],
        "summed-over-everything": lambda w, v: [(w[:, None] * v).sum()],
        "weights-on-columns": on_columns,
        "divided-by-the-number-of-rows": lambda w, v: [w @ v / len(w)],
        "one-row-only": lambda w, v: [*v, *(w[:, None] * v)],
        "softmax-of-the-weights": lambda w, v: [softmax(w) @ v],
        "one-row-of-a-matrix": lambda w, v: [(w @ v)[None]],
    }.items()
}
