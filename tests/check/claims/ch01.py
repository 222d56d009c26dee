"""What is said of answers to the exercises of chapter 01, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, of_both, of_result, same, softmax


def place(got):
    """The weights of a query in the picture of step 4, and what it fetches."""
    keys, values = np.array([[4, 0], [0, 4], [-3, -3]]), np.array([10, 20, 60])
    weights = softmax(keys @ array(got) / 2**0.5)
    return weights, weights @ values


def further_out(got):
    """Somewhere on the ray through the query, beyond it, 15 is fetched."""
    return any(
        abs(place(n * array(got))[1] - 15) <= 0.51
        for n in np.linspace(1, 60, 3000)
        if n * abs(array(got)).max() < 5.31
    )


QUERY = {
    "the-picture": lambda got: not isinstance(got, np.ndarray),
    "one-number-only": lambda got: np.size(got) == 1,
    "one-number-for-each-key": lambda got: np.size(got) == 3,
    "where-the-picture-begins": lambda got: same(got, np.array([2.0, 0.0])),
    "all-three-alike": lambda got: abs(place(got)[0] - 1 / 3).max() < 0.1 and abs(place(got)[1] - 30) < 4,
    "too-near-the-centre": further_out,
    "one-key-alone": lambda got: place(got)[0][:2].max() > 0.9,
    "key-2-alone": lambda got: place(got)[0][2] > 0.9 and array(got).sum() < 0,
    "too-much": lambda got: place(got)[1] > 15.5 and place(got)[0][1:].sum() > 0.1,
    "too-much-of-key-1": lambda got: 10 + 10 * place(got)[0][1] > 15.5,
    "too-much-of-key-2": lambda got: 10 + 50 * place(got)[0][2] > 15.5,
    "too-little": lambda got: place(got)[1] < 14.5 and place(got)[0][0] > 0.5,
}
CLAIMS = claims("query_fetching_15", QUERY, of_result)


# What `max` returns is no array.
CLAIMS["most_attended_keys", "both-returned"] = lambda problem, expected, got: not isinstance(got, np.ndarray)


def attended(query, key, value, divisor):
    """Output and weights, a sentence at a time."""
    w = softmax(query @ key.swapaxes(-1, -2) / divisor)
    return w @ value, w


def head_of(problem, swapped=False, both=False, divide=np.sqrt):
    """What a head with these matrices gives, or one with a mistake in it."""
    x, w_q, w_k, w_v = map(array, problem[3:])
    query, key = x @ w_q, x @ (w_q if both else w_k)
    if swapped:
        query, key = key, query
    return attended(query, key, x @ w_v, divide(w_q.shape[1]))


def no_form(got):
    """Not what the three projections of a module are like, and not what a module returned."""
    return not (isinstance(got, tuple) and len(got) in (2, 3)) and np.shape(got)[:1] != (1,)


def alone(got):
    """Without a ``None`` in the place of the weights."""
    return got[0] if isinstance(got, tuple) and got[1] is None else got


def widths_of(problem):
    """The shapes of the weights of q_proj, k_proj and v_proj: the output width comes first."""
    return np.array([w.shape[::-1] for w in problem[4:]])


LEARNABLE = {
    "class-returned": lambda problem, got: no_form(got) and not isinstance(got, np.ndarray),
    "function-returned": lambda problem, got: no_form(got) and not isinstance(got, np.ndarray),
    "no-module": lambda problem, got: no_form(got) or isinstance(got, np.ndarray),
    "nothing-learned": lambda problem, got: not got[0].any() and got[1] + got[2] == 0,
    "other-names": lambda problem, got: not got[0].any() and got[1] + got[2] > 0,
    "one-is-missing": lambda problem, got: (got[0].sum(1) == 0).any(),
    "widths-swapped": lambda problem, got: same(got[0], widths_of(problem)[:, ::-1]),
    "value-as-wide-as-a-key": lambda problem, got: same(got[0], widths_of(problem)[[0, 1, 1]]),
    "other-widths": lambda problem, got: not same(got[0], widths_of(problem)),
    "bias-added": lambda problem, got: got[1] > 0,
    "more-parameters": lambda problem, got: got[2] > 0,
    "no-forward": lambda problem, got: isinstance(got, tuple) and len(got) == 1 and got[0] is None,
    "no-gradient": lambda problem, got: same(got[0], head_of(problem)) and 0 < got[1] <= 3,
    "output-only": lambda problem, got: same(alone(got[0]), head_of(problem)[0]),
    "weights-only": lambda problem, got: same(got[0], head_of(problem)[1]),
    "weights-first": lambda problem, got: same(got[0], head_of(problem)[::-1]),
    "queries-and-keys-swapped": lambda problem, got: same(got[0], head_of(problem, swapped=True)),
    "keys-from-w_q": lambda problem, got: same(got[0], head_of(problem, both=True)),
    "not-scaled": lambda problem, got: same(got[0], head_of(problem, divide=lambda d: 1)),
    "scaled-by-d_k": lambda problem, got: same(got[0], head_of(problem, divide=lambda d: d)),
}
CLAIMS |= claims("learnable_head", LEARNABLE, of_both)
