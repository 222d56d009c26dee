"""What the predicates are made of: results in NumPy, compared with candidates."""

import numpy as np


def array(x):
    """In float64, or boolean."""
    x = np.asarray(x)
    return x if x.dtype == bool else x.astype(np.float64)


def same(got, *candidates):
    """Is the result one of the candidates? A tuple stands for several results."""
    if isinstance(got, tuple):
        return any(isinstance(c, tuple) and len(c) == len(got) and all(map(same, got, c)) for c in candidates)
    got = array(got)  # results of one shape come as one array
    candidates = [
        np.stack(c) if isinstance(c, tuple) and len({x.shape for x in c}) == 1 else c for c in candidates
    ]
    return any(
        not isinstance(c, tuple)
        and got.shape == np.shape(c)
        and np.allclose(got, c, rtol=1e-3, atol=1e-3, equal_nan=True)
        for c in candidates
    )


def softmax(x, axis=-1):
    """Along one axis."""
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def claims(exercise, table, predicate=lambda claim: claim):
    """The part of ``CLAIMS`` about one exercise: a predicate is made of each entry of a table."""
    return {(exercise, name): predicate(about) for name, about in table.items()}


def of_result(holds):
    """A predicate about the result alone."""
    return lambda problem, expected, got: bool(holds(got))


def of_both(holds):
    """A predicate about the problem and the result."""
    return lambda problem, expected, got: bool(holds(problem, got))


def heads_listed(count, begins):
    """What is said of a list of heads that a picture asks for, and with which it ``begins``."""
    return {
        "the-picture": lambda problem, got: not isinstance(got, np.ndarray),
        "one-entry-for-each-head": lambda problem, got: len(got) == count and set(array(got)) <= {0, 1},
        "numbers-that-are-not-whole": lambda problem, got: (array(got) % 1 != 0).any(),
        "no-head": lambda problem, got: len(got) == 0,
        "no-such-head": lambda problem, got: min(got) < 0 or max(got) >= count,
        "a-head-twice": lambda problem, got: len(set(array(got))) < len(got),
        "where-the-picture-begins": lambda problem, got: sorted(got) == begins,
    }
