"""What is said of answers to the exercises of chapter 01, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, of_both, of_result, same, says, softmax


def paper(x, axis=-1):
    """The softmax as it stands on paper, in float32."""
    e = np.exp(x.astype(np.float32))
    return e / e.sum(axis, keepdims=True)


def along(x, axis):
    """Softmaxes whose sum runs along the axis, with what may be subtracted before."""
    shifts = (0, x.max(), top(x), top(x, axis))
    return [paper(x - shift, axis) for shift in shifts]


def mT(x):
    return np.swapaxes(x, -1, -2)


def mul(a, b):
    """``[a @ b]``, or nothing where the shapes do not fit."""
    try:
        return [a @ b]
    except ValueError:
        return []


def times(a, b):
    """``[a * b]``, or nothing where the shapes do not fit."""
    try:
        return [a * b]
    except ValueError:
        return []


def top(x, axis=-1):
    return x.max(axis, keepdims=True)


def norm(x):
    return np.linalg.norm(x, axis=-1, keepdims=True)


def total(x):
    return x.sum(-1, keepdims=True)


def front(x):
    """The softmaxes over the axes that are not the last."""
    return [y for axis in range(x.ndim - 1) for y in along(x, axis)]


def divided_before(problem, expected, got):
    """One number c, above 1, for the whole tensor: softmax(scores / c)."""
    x, got = array(problem[0]), array(got)
    if x.shape != got.shape or not np.all(got >= 0):
        return False
    seen = got > 1e-12
    share = seen / seen.sum(-1, keepdims=True)
    b = np.log(np.where(seen, got, 1))
    a, b = (seen * (y - (share * y).sum(-1, keepdims=True)) for y in (x, b))
    s = (a * b).sum() / (a * a).sum()
    return bool(0 < s < 0.999 and same(got, softmax(s * x)))


def cut(x):
    limits = [c for c in [*range(1, 101), 88.7, 500, 700] if c < abs(x).max()]
    return [f(np.clip(x, low, c)) for c in limits for low in (-np.inf, -c) for f in (softmax, paper)]


WEIGHTS = {
    "softmax-over-queries": lambda x: along(x, -2),
    "softmax-over-an-axis-from-the-front": front,
    "softmax-over-everything": lambda x: along(x, None),
    "unstable-softmax": lambda x: [paper(x)],
    "shifted-by-the-overall-maximum": lambda x: [paper(x - x.max())],
    "shifted-by-a-constant": lambda x: [paper(x - c) for c in range(100, 1201, 4)],
    "shifted-by-the-mean": lambda x: [paper(x - x.mean(-1, keepdims=True)), paper(x - x.mean())],
    "shifted-by-the-minimum": lambda x: [paper(x - x.min(-1, keepdims=True)), paper(x - x.min())],
    "shifted-along-another-axis": lambda x: [
        paper(x - x.max(axis, keepdims=True)) for axis in range(x.ndim - 1)
    ],
    "clamped": cut,
    "divided-by-the-maximum": lambda x: [f(x / m) for m in (top(x), x.max()) for f in (softmax, paper)],
    "divided-by-the-largest-size": lambda x: [
        f(x / m) for m in (top(abs(x)), abs(x).max()) for f in (softmax, paper)
    ],
    "absolute-values-divided": lambda x: [abs(x) / total(abs(x))],
    "not-divided": lambda x: [np.exp((x - m).astype(np.float32)) for m in (0, top(x), x.max())],
    "divided-without-exp": lambda x: [
        x / total(x),
        (x - top(x)) / total(x - top(x)),
        (x - top(x)) / total(x),
    ],
    "only-shifted": lambda x: [x - top(x), x - x.max()],
    "softmax-twice": lambda x: [softmax(softmax(x))],
    "log-softmax": lambda x: [x - top(x) - np.log(np.exp(x - top(x)).sum(-1, keepdims=True))],
    "one-key-takes-all": lambda x: [np.eye(x.shape[-1])[x.argmax(-1)]],
    "scores-returned": lambda x: [x],
}

# What the dot products are divided by, from the shapes of queries, keys and x.
FACTORS = {
    "not-scaled": lambda q, k, x: [1],
    "scaled-by-d_k": lambda q, k, x: [q.shape[-1]],
    "half-of-d_k": lambda q, k, x: [q.shape[-1] / 2, q.shape[-1] * 2],
    "multiplied-by-the-root": lambda q, k, x: [q.shape[-1] ** -0.5],
    "scaled-by-an-axis-from-the-front": lambda q, k, x: [
        n**0.5 for y in (q, k, x) for n in y.shape[:2] if n != q.shape[-1]
    ],
}
SELF_FACTORS = FACTORS | {
    "scaled-by-length": lambda q, k, x: [x.shape[-2] ** 0.5],
    "scaled-by-d_model": lambda q, k, x: [x.shape[-1] ** 0.5],
}
SCALE_FACTORS = SELF_FACTORS | {
    "scaled-by-d_model-itself": lambda q, k, x: [x.shape[-1]],
    "scaled-twice": lambda q, k, x: [(x.shape[-1] * q.shape[-1]) ** 0.5],
    "scaled-by-a-fixed-number": lambda q, k, x: [2, 3, 4, 5, 8, 10, 16, 2**0.5, 3**0.5, 512**0.5],
    "matrices-transposed": lambda q, k, x: [x.shape[-1] ** 0.5],
}
CROSS_FACTORS = FACTORS | {
    "scaled-by-a-fixed-number": lambda q, k, x: [3**0.5, 2],
    "scaled-twice": lambda q, k, x: [q.shape[-1] ** 1.5],
    "scaled-by-the-number-of-queries": lambda q, k, x: [q.shape[-2] ** 0.5],
    "scaled-by-the-number-of-keys": lambda q, k, x: [k.shape[-2] ** 0.5],
}
HEAD_FACTORS = SELF_FACTORS | {
    "scaled-by-a-fixed-number": lambda q, k, x: [3**0.5, 2],
    "scaled-twice": lambda q, k, x: [q.shape[-1] ** 1.5],
}


def with_root(products, q):
    """Products as they are, and divided by the root of d_k."""
    return [*products, *(p / q.shape[-1] ** 0.5 for p in products)]


def fixed(factors):
    return lambda x, wq, wk: [x @ wq @ mT(x @ wk) / f for f in factors(x @ wq, x @ wk, x)]


def cross(factors):
    return lambda q, k: [q @ mT(k) / f for f in factors(q, k, q)]


SCORES = {name: cross(factors) for name, factors in CROSS_FACTORS.items()} | {
    "key-not-transposed": lambda q, k: with_root(mul(q, k), q),
    "reshaped-keys": lambda q, k: with_root([q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])], q),
    "queries-and-keys-swapped": lambda q, k: with_root([k @ mT(q)], q),
    "summed-over-queries": lambda q, k: with_root(mul(mT(q), k), q),
    "entry-by-entry": lambda q, k: with_root([z for y in times(q, k) for z in (y, y.sum(-1))], q),
    "divided-by-a-length": lambda q, k: with_root(
        [q @ mT(k) / n for n in (norm(q), mT(norm(k)), norm(q) * mT(norm(k)))], q
    ),
    "keys-with-keys": lambda q, k: with_root([k @ mT(k)], q),
    "queries-with-queries": lambda q, k: with_root([q @ mT(q)], q),
    "softmax-taken": lambda q, k: [softmax(s) for s in with_root([q @ mT(k)], q)],
}
SCALE = {name: fixed(factors) for name, factors in SCALE_FACTORS.items()} | {
    "shared-projection": lambda x, wq, wk: [x @ wq @ mT(x @ wq) / wq.shape[1] ** 0.5],
    "transposed": lambda x, wq, wk: [x @ wk @ mT(x @ wq) / wq.shape[1] ** 0.5],
}

ZERO = {
    "zero-weights": lambda v: [np.zeros(v.shape[1]), np.zeros(v.shape)],
    "not-normalised": lambda v: [v.sum(0)],
    "divided-by-the-width": lambda v: [v.sum(0) / v.shape[1]],
    "one-value": list,
    "largest-value": lambda v: [v.max(0)],
    "mean-over-columns": lambda v: [v.mean(1), v.mean(1, keepdims=True)],
    "mean-of-everything": lambda v: [v.mean(), np.full(v.shape[1], v.mean())],
    "softmax-of-the-values": lambda v: [
        f(softmax(v, axis))
        for axis in (0, 1)
        for f in (np.array, lambda s: (s * v).sum(0), lambda s: s.mean(0))
    ],
    "weights-returned": lambda v: [np.full(len(v), 1 / len(v)), np.full((1, len(v)), 1 / len(v))],
    "axis-kept": lambda v: [v.mean(0)[None]],
    "one-for-each-key": lambda v: [np.tile(v.mean(0), (len(v), 1))],
}


def score(q, k):
    return q @ mT(k) / q.shape[-1] ** 0.5


def result(weights, v):
    return weights @ v, weights


def attend(q, k, v):
    return result(softmax(score(q, k)), v)


def head(candidates):
    """Candidates of queries, keys, values, and of the weights as they are to be."""

    def of_arguments(x, wq, wk, wv):
        q, k, v = x @ wq, x @ wk, x @ wv
        return candidates(x, q, k, v, softmax(score(q, k)))

    return of_arguments


def scaled(factors):
    return head(lambda x, q, k, v, w: [result(softmax(q @ mT(k) / f), v) for f in factors(q, k, x)])


def plain(q, k):
    return softmax(q @ mT(k))


def raised(q, k):
    return [np.exp(score(q, k)), np.exp(score(q, k) - top(score(q, k)))]


HEAD = {name: scaled(factors) for name, factors in HEAD_FACTORS.items()} | {
    name: head(candidates)
    for name, candidates in {
        "one-matrix-for-all": lambda x, q, k, v, w: [attend(q, q, q)],
        "keys-from-w_q": lambda x, q, k, v, w: [attend(q, q, v)],
        "queries-from-w_k": lambda x, q, k, v, w: [attend(k, k, v)],
        "queries-and-keys-swapped": lambda x, q, k, v, w: [attend(k, q, v)],
        "values-from-w_k": lambda x, q, k, v, w: [result(w, k)],
        "values-from-w_q": lambda x, q, k, v, w: [result(w, q)],
        "no-value-projection": lambda x, q, k, v, w: [result(w, x)],
        "no-projections": lambda x, q, k, v, w: [
            result(softmax(x @ mT(x) / n**0.5), y) for n in (x.shape[-1], q.shape[-1]) for y in (x, v)
        ],
        "softmax-over-queries": lambda x, q, k, v, w: [result(softmax(score(q, k), -2), v)],
        "softmax-over-an-axis-from-the-front": lambda x, q, k, v, w: [
            result(s, v) for s in front(score(q, k))
        ],
        "softmax-over-everything": lambda x, q, k, v, w: [
            result(np.exp(score(q, k)) / np.exp(score(q, k)).sum(), v)
        ],
        "no-softmax": lambda x, q, k, v, w: [result(score(q, k), v)],
        "softmax-twice": lambda x, q, k, v, w: [result(softmax(w), v)],
        "equal-weights": lambda x, q, k, v, w: [result(0 * w + 1 / w.shape[-1], v)],
        "not-divided": lambda x, q, k, v, w: [result(e, v) for e in raised(q, k)],
        "weights-transposed": lambda x, q, k, v, w: [(mT(w) @ v, w)],
        "order-turned": lambda x, q, k, v, w: [(o, w) for o in (*mul(v, w), mT(v) @ w, mT(mT(v) @ w))],
        "output-transposed": lambda x, q, k, v, w: [(mT(w @ v), w)],
        "output-only": lambda x, q, k, v, w: [w @ v],
        "weights-only": lambda x, q, k, v, w: [w],
        "results-swapped": lambda x, q, k, v, w: [(w, w @ v)],
        "scores-returned": lambda x, q, k, v, w: [(w @ v, s) for s in with_root([q @ mT(k)], q)],
        "scaled-after-the-softmax": lambda x, q, k, v, w: [result(plain(q, k) / q.shape[-1] ** 0.5, v)],
        "weights-not-scaled": lambda x, q, k, v, w: [(w @ v, plain(q, k))],
        "output-not-scaled": lambda x, q, k, v, w: [(plain(q, k) @ v, w)],
    }.items()
}

CLAIMS = {
    (exercise, name): says(candidates)
    for exercise, claims in {
        "attention_weights": WEIGHTS,
        "fix_scale": SCALE,
        "predict_zero_query": ZERO,
        "scaled_scores": SCORES,
        "single_head_attention": HEAD,
    }.items()
    for name, candidates in claims.items()
} | {("attention_weights", "scaled-as-well"): divided_before}


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
CLAIMS |= claims("query_fetching_15", QUERY, of_result)


def first_of(w):
    """For each head and query, the key with the largest weight."""
    return np.array([[row.tolist().index(row.max()) for row in head] for head in w])


def voted(w):
    """The key that is first for the most queries; of several, the smallest or the one found first."""
    counts = [np.bincount(firsts, minlength=w.shape[-1]) for firsts in first_of(w)]
    tied = [np.flatnonzero(count == count.max()) for count in counts]
    earliest = [next(k for k in row if k in keys) for row, keys in zip(first_of(w), tied, strict=True)]
    return [np.array([keys[0] for keys in tied]), np.array(earliest)]


def together(w):
    """The best key of all heads, as one number and for each head; for each query of all heads."""
    received = sum(head.sum(0) for head in w)
    key = received.argmax()
    each = sum(w).argmax(-1)
    return [np.array(key), np.array([key]), np.full(len(w), key), each]


def received(w):
    return np.stack([[head[:, j].sum() for j in range(w.shape[2])] for head in w])


def largest_single(w):
    """The key of the largest weight of a head; of several, the first in the row or the first key."""
    by_row = [np.unravel_index(head.argmax(), head.shape)[1] for head in w]
    return [np.array(by_row), np.array([head.max(0).argmax() for head in w])]


MOST = {
    "key-0-everywhere": lambda w: [np.zeros(len(w))],
    "one-query-only": lambda w: [first_of(w)[:, i] for i in range(w.shape[1])],
    "largest-single-weight": largest_single,
    "smallest-single-weight": lambda w: [w.min(1).argmax(1)],
    "counted-firsts": voted,
    "heads-together": together,
    "heads-compared": lambda w: [received(w).argmax(0), np.array(received(w).argmax()), w.argmax(0)],
    "one-for-each-query": lambda w: [first_of(w)],
    "one-for-each-key": lambda w: [first_of(mT(w))],
    "totals-returned": lambda w: [received(w), received(w) / w.shape[1]],
    "largest-total": lambda w: [received(w).max(1), received(w).max(1) / w.shape[1]],
    "axis-kept": lambda w: [received(w).argmax(1)[:, None], received(w).argmax(1)[None]],
    "counted-from-1": lambda w: [received(w).argmax(1) + 1],
}
CLAIMS |= claims("most_attended_keys", MOST, says)
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
    return not (isinstance(got, tuple) and len(got) == 3) and np.shape(got)[:1] != (1,)


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
    "output-only": lambda problem, got: same(got[0], head_of(problem)[0]),
    "weights-only": lambda problem, got: same(got[0], head_of(problem)[1]),
    "weights-first": lambda problem, got: same(got[0], head_of(problem)[::-1]),
    "query-and-key-swapped": lambda problem, got: same(got[0], head_of(problem, swapped=True)),
    "one-projection-for-both": lambda problem, got: same(got[0], head_of(problem, both=True)),
    "not-scaled": lambda problem, got: same(got[0], head_of(problem, divide=lambda d: 1)),
    "scaled-by-d_k": lambda problem, got: same(got[0], head_of(problem, divide=lambda d: d)),
    "no-super-init": lambda problem, got: False,
}
CLAIMS |= claims("learnable_head", LEARNABLE, of_both)
