"""What is said of answers to the exercises of chapter 03, asked of the numbers."""

from itertools import combinations, permutations

import numpy as np

from tests.check.claims.results import array, claims, of_result, same, says, softmax


def _says(candidates):
    """Sizes stay whole numbers."""
    return says(candidates, lambda x: x if isinstance(x, int) else array(x))


def swap(x, i=-2, j=-1):
    return np.swapaxes(x, i, j)


def orders(x):
    return [x.transpose(p) for p in permutations(range(x.ndim))]


def sizes(x, h):
    """Batch, n, num_heads, d_k."""
    return *x.shape[:2], h, x.shape[2] // h


def cut(x, h):
    return x.reshape(sizes(x, h))


def split(x, h):
    return swap(cut(x, h), 1, 2)


def bare(x, h):
    b, n, h, d = sizes(x, h)
    return x.reshape(b, h, n, d)


def pieces(x, h):
    b, n, h, d = sizes(x, h)
    return swap(x.reshape(b, n, d, h), 1, 2)


def in_turn(x, h):
    b, n, h, d = sizes(x, h)
    return x.reshape(b, n, d, h).transpose(0, 3, 1, 2)


def overlapping(x, h):
    return np.stack([x[:, :, i : i + x.shape[2] // h] for i in range(h)], 1)


def one_of(y):
    """One head only, with or without its axis."""
    return [z for i in range(y.shape[1]) for z in (y[:, i], y[:, i : i + 1])]


def copied(y):
    return [np.stack([y[:, i]] * y.shape[1], 1) for i in range(y.shape[1])]


def joined(y):
    return [np.concatenate(list(swap(y, 0, 1)), axis) for axis in range(3)]


def resized(x, h):
    """Read into sizes that do not begin with batch and n, the axes put in any order afterwards."""
    s = sizes(x, h)
    return [
        z for p in permutations(range(4)) if p[:2] != (0, 1) for z in orders(x.reshape([s[i] for i in p]))
    ]


def swapped_first(x, h):
    b, n, h, d = sizes(x, h)
    return [
        z
        for y in orders(x)[1:]
        for s in ((b, n, h, d), (b, n, d, h), (b, h, n, d))
        for z in orders(y.reshape(s))
    ]


def tokens_cut(x, h):
    """Cut into num_heads pieces, or as many as chunk makes of so few tokens."""
    b, n, width = x.shape
    cuts = {h, -(-n // -(-n // h))}
    return [
        z
        for m in cuts
        if n % m == 0
        for s in ((m, n // m), (n // m, m))
        for z in orders(x.reshape(b, *s, width))
    ]


def one_sentence(x, h):
    """All numbers read into n, heads and d_k in any order, which is possible for one sentence only."""
    b, *s = sizes(x, h)
    return [z for p in permutations(s) for z in orders(x.reshape(p))] if b == 1 else []


def not_cut(problem, expected, got):
    x, h = problem
    return h > 1 and not isinstance(got, tuple) and np.shape(got)[-1:] == (x.shape[2],)


def other_widths(problem, expected, got):
    """The slices of one head at least, as they stand in the result, are not d_k wide."""
    if isinstance(got, tuple):
        return any(np.shape(g)[-1:] != np.shape(expected)[-1:] for g in got)
    *axes, width = np.shape(expected)
    return sorted(np.shape(got)[:-1]) == sorted(axes) and np.shape(got)[-1] != width


SPLIT = {
    "pieces-of-num_heads": lambda x, h: [pieces(x, h), swap(pieces(x, h), 1, 2)],
    "heads-overlap": lambda x, h: [overlapping(x, h)],
    "one-head-in-all": lambda x, h: copied(split(x, h)),
    "heads-reversed": lambda x, h: [split(x, h)[:, ::-1]],
    "not-transposed": lambda x, h: [cut(x, h)],
    "batch-and-tokens-swapped": lambda x, h: [swap(cut(x, h), 0, 1)],
    "heads-in-front-of-the-batch": lambda x, h: [cut(x, h).transpose(2, 0, 1, 3), swap(cut(x, h), 0, 2)],
    "last-axes-swapped": lambda x, h: [swap(split(x, h))],
    "wrong-axes-swapped": lambda x, h: orders(split(x, h))[1:],
    "view-without-transpose": lambda x, h: [bare(x, h)],
    "heads-interleaved": lambda x, h: [in_turn(x, h)],
    "sizes-in-another-order": resized,
    "swapped-before-the-cut": swapped_first,
    "one-head-only": lambda x, h: one_of(split(x, h)),
    "joined-not-stacked": lambda x, h: joined(split(x, h)),
    "batch-lost": lambda x, h: orders(cut(x, h).reshape(-1, h, x.shape[2] // h)),
    "batch-not-in-the-sizes": one_sentence,
    "tokens-cut": tokens_cut,
}


def overlaid(x):
    b, h, n, d = x.shape
    put, added = np.zeros((2, b, n, h * d))
    for i in range(h):
        put[:, :, i : i + d] = x[:, i]
        added[:, :, i : i + d] += x[:, i]
    return [put, added]


def other_orders(x):
    """The last two axes joined, or the sizes of the result asked for, after another order of the axes."""
    b, h, n, d = x.shape
    ways = [x.transpose(p) for p in permutations(range(4)) if p != (0, 2, 1, 3)]
    return [y.reshape(s) for y in ways for s in ((b, n, h * d), (*y.shape[:2], -1))]


def batch_joined(x):
    """The batch joined with one or more other axes, in any order."""
    b, h, n, d = x.shape
    out = [y.reshape(b * n, h * d) for y in (x, swap(x, 1, 2))]
    for p in permutations(range(4)):
        y, at = x.transpose(p), p.index(0)
        for i in range(4):
            for j in range(i + 2, 5):
                if i <= at < j:
                    z = y.reshape(*y.shape[:i], -1, *y.shape[j:])
                    out.append(z)
                    out += [z.reshape(*z.shape[:k], -1, *z.shape[k + 2 :]) for k in range(z.ndim - 1)]
    return out


def batch_loop(x):
    rounds = [list(x)] + ([list(x[: x.shape[1]])] if x.shape[1] <= len(x) else [])
    return [np.concatenate(r, axis) for r in rounds for axis in range(3)]


def resized_first(x):
    """The sizes n and num_heads exchanged, then any two axes swapped, then the sizes that are asked for."""
    b, h, n, d = x.shape
    return [y.reshape(b, n, h * d) for y in orders(x.reshape(b, n, h, d))]


MERGE = {
    "resized-before-the-swap": resized_first,
    "merge-without-transpose": lambda x: [x.reshape(len(x), x.shape[2], -1)],
    "view-after-transpose": lambda x: [],
    "heads-interleaved": lambda x: [x.transpose(0, 2, 3, 1).reshape(len(x), x.shape[2], -1)],
    "batch-and-heads-swapped": lambda x: [
        z
        for y in (swap(x, 0, 1), swap(swap(x, 0, 1), 1, 2))
        for z in (y.reshape(len(x), x.shape[2], -1), y.reshape(*y.shape[:2], -1))
    ],
    "wrong-axes-swapped": other_orders,
    "sizes-from-before-the-swap": lambda x: [swap(x, 1, 2).reshape(*x.shape[:2], -1)],
    "tokens-joined-with-columns": lambda x: [x.reshape(*x.shape[:2], -1)],
    "heads-one-below-the-other": lambda x: joined(x)[:2],
    "tokens-joined-with-heads": lambda x: [y.reshape(len(x), -1, x.shape[3]) for y in (x, swap(x, 1, 2))],
    "batch-lost": batch_joined,
    "output-transposed": lambda x: [swap(joined(x)[2])],
    "heads-added": lambda x: [x.sum(1), x.mean(1)],
    "one-head-only": one_of,
    "loop-over-the-batch": batch_loop,
    "heads-overlap": overlaid,
    "heads-reversed": lambda x: [joined(x[:, ::-1])[2]],
    "one-head-in-all": lambda x: [joined(y)[2] for y in copied(x)],
}


def product(a, b):
    """Of all rows of a and columns of b, where the sizes allow it."""
    try:
        return [a @ b]
    except ValueError:
        return []


def scores(q, k, h, way=split):
    q, k = way(q, h), way(k, h)
    return q @ swap(k) / q.shape[-1] ** 0.5


def weights(q, k, h, way=split):
    return softmax(scores(q, k, h, way))


def scaled(factor):
    """The scores divided by other numbers, made of batch, n_q, n_k, num_heads and d_k."""

    def candidates(q, k, h):
        d = q.shape[2] // h
        raw = scores(q, k, h) * d**0.5
        return [softmax(raw / f) for f in np.ravel(factor(*q.shape[:2], k.shape[1], h, d))]

    return candidates


def pieced(q, k, h):
    raw = pieces(q, h) @ swap(pieces(k, h))
    return [softmax(raw / f**0.5) for f in (h, q.shape[2] // h)]


def by_root(raw, q, h):
    return [softmax(s / (q.shape[2] // h) ** 0.5) for s in raw]


def other_axes(q, k, h):
    pairs = [(i, j) for i, j in combinations(range(4), 2) if (i, j) != (2, 3)]
    return by_root([s for i, j in pairs for s in product(split(q, h), swap(split(k, h), i, j))], q, h)


def unsplit(q, k, h):
    raw = q @ swap(k)
    ways = [softmax(raw / f**0.5) for f in (1, q.shape[2], q.shape[2] // h)]
    return [z for w in ways for z in (w, w[:, None], np.stack([w] * h, 1))]


def fetched(q, k, h):
    out = [weights(q, k, h) @ split(k, h)]
    out += [w for w in product(weights(q, k, h), split(q, h))]
    return [z for y in out for z in (y, joined(y)[2])]


def with_weights(problem, expected, got):
    several = isinstance(got, tuple) or np.ndim(got) == 1 + np.ndim(expected)
    return several and any(same(g, expected) for g in got)


def weights_cut(q, k, h):
    """One set of weights from all columns, its keys or its queries dealt out to the heads."""
    n, m, d = q.shape[1], k.shape[1], q.shape[2]
    found = []
    for w in [softmax(q @ swap(k) / f**0.5) for f in (1, d, d // h)]:
        found += [split(w, h), cut(w, h), bare(w, h)] if m % h == 0 else []
        found += [w.reshape(len(w), h, n // h, m)] if n % h == 0 else []
    return found


def half_split(q, k, h):
    d = q.shape[2] // h
    raw = product(split(q, h), swap(k)[:, None]) + product(q[:, None], swap(split(k, h)))
    return [softmax(s / f**0.5) for s in raw for f in (d, d * h)]


PER_HEAD = {
    "view-without-transpose": lambda q, k, h: [weights(q, k, h, bare)],
    "heads-interleaved": lambda q, k, h: [weights(q, k, h, in_turn)],
    "heads-overlap": lambda q, k, h: [weights(q, k, h, overlapping)],
    "pieces-of-num_heads": pieced,
    "queries-and-keys-swapped": lambda q, k, h: [weights(k, q, h)],
    "key-viewed-as-turned": lambda q, k, h: [
        softmax(split(q, h) @ t / (q.shape[-1] // h) ** 0.5)
        for t in (
            k.reshape(len(k), h, -1, k.shape[1]),
            k.reshape(len(k), -1, h, k.shape[1]).swapaxes(1, 2),
        )
    ],
    "one-tensor-for-both": lambda q, k, h: [weights(q, q, h), weights(k, k, h)],
    "not-scaled": scaled(lambda b, n_q, n_k, h, d: 1),
    "scaled-by-d_k": scaled(lambda b, n_q, n_k, h, d: d),
    "half-of-d_k": scaled(lambda b, n_q, n_k, h, d: [d / 2, d * 2]),
    "multiplied-by-the-root": scaled(lambda b, n_q, n_k, h, d: d**-0.5),
    "scaled-by-d_model": scaled(lambda b, n_q, n_k, h, d: (h * d) ** 0.5),
    "scaled-by-d_model-itself": scaled(lambda b, n_q, n_k, h, d: h * d),
    "scaled-by-num_heads": scaled(lambda b, n_q, n_k, h, d: [h, h**0.5]),
    "scaled-by-another-axis": scaled(lambda b, n_q, n_k, h, d: [b**0.5, n_q**0.5, n_k**0.5]),
    "scaled-twice": scaled(lambda b, n_q, n_k, h, d: d**1.5),
    "softmax-over-queries": lambda q, k, h: [softmax(scores(q, k, h), 2)],
    "softmax-over-heads": lambda q, k, h: [softmax(scores(q, k, h), 1)],
    "softmax-over-the-batch": lambda q, k, h: [softmax(scores(q, k, h), 0)],
    "softmax-over-everything": lambda q, k, h: [
        softmax(scores(q, k, h), axes) for m in (2, 3, 4) for axes in combinations(range(4), m)
    ],
    "scores-returned": lambda q, k, h: [scores(q, k, h), scores(q, k, h) * (q.shape[2] // h) ** 0.5],
    "softmax-twice": lambda q, k, h: [softmax(weights(q, k, h))],
    "log-softmax": lambda q, k, h: [np.log(weights(q, k, h))],
    "not-normalised": lambda q, k, h: [
        np.exp(s - m) for s in [scores(q, k, h)] for m in (0, s.max(-1, keepdims=True), s.max())
    ],
    "divided-by-the-sum": lambda q, k, h: [s / s.sum(-1, keepdims=True) for s in [scores(q, k, h)]],
    "weights-averaged-over-heads": lambda q, k, h: [
        f(weights(q, k, h), 1, keepdims=keep) for f in (np.mean, np.sum) for keep in (False, True)
    ],
    "heads-in-front-of-the-batch": lambda q, k, h: [swap(weights(q, k, h), 0, 1)],
    "heads-not-axis-1": lambda q, k, h: [
        weights(q, k, h).transpose(p) for p in permutations(range(4)) if p.index(1) > 1
    ],
    "result-transposed": lambda q, k, h: [swap(weights(q, k, h))],
    "not-transposed": lambda q, k, h: by_root(product(cut(q, h), swap(cut(k, h))), q, h),
    "key-not-transposed": lambda q, k, h: by_root(product(split(q, h), split(k, h)), q, h),
    "wrong-axes-of-key-swapped": other_axes,
    "summed-over-tokens": lambda q, k, h: by_root(product(swap(split(q, h)), split(k, h)), q, h),
    "one-head-only": lambda q, k, h: one_of(weights(q, k, h)),
    "one-head-in-all": lambda q, k, h: copied(weights(q, k, h)),
    "joined-not-stacked": lambda q, k, h: joined(weights(q, k, h)),
    "not-split": unsplit,
    "output-returned": fetched,
    "one-length-for-both": lambda q, k, h: [
        softmax(split(q, h) @ swap(split(x, h)) / (q.shape[2] // h) ** 0.5)
        for x in ([k.reshape(-1, *q.shape[1:])] if k.size % q[0].size == 0 else [])
        if len(x) in (1, len(q))
    ],
    "key-not-split": half_split,
    "weights-cut-into-heads": weights_cut,
    "scaled-after-the-softmax": lambda q, k, h: [
        softmax(s) / r for r in [(q.shape[2] // h) ** 0.5] for s in (scores(q, k, h) * r, scores(q, k, h))
    ],
}


def numbers(got):
    """The numbers that were returned; three of them may have become one array."""
    bare = isinstance(got, tuple) and all(np.ndim(g) == 0 for g in got)
    return np.array([float(g) for g in got]) if bare else np.asarray(got, float)


def part(i, candidates):
    """The number at ``i`` of three is one of those that ``candidates`` makes of the arguments."""

    def predicate(problem, expected, got):
        got = numbers(got)
        return got.shape == (3,) and same(got[i], *candidates(*map(int, problem)))

    return predicate


def wrong_start(problem, expected, got):
    """The place is the column minus a number made of head or token and a size, which is not h * d_k."""
    token, column, n, h, d = map(int, problem)
    got = numbers(got)
    if got.shape != (3,) or same(got[2], expected[2]):
        return False
    heads = [float(got[0]), column // d, token, 1]
    starts = [(i + j) * s for i in heads for j in (-1, 0, 1) for s in (1, h, d, n, h * d)]
    return same(got[2], *(column - s for s in starts))


def from_bare(t, c, n, h, d):
    flat = t * h * d + c
    return flat // (n * d), flat // d % n, flat % d


def whole(candidates):
    """The result is one of those that ``candidates`` makes of the arguments."""
    return lambda problem, expected, got: same(numbers(got), *map(np.array, candidates(*map(int, problem))))


def reordered(problem, expected, got):
    return same(numbers(got), *map(np.array, list(permutations(numbers(expected)))[1:]))


def in_table(problem, expected, got):
    parts = got if isinstance(got, tuple) else (got,)
    flat = np.concatenate([np.ravel(g) for g in parts])
    return any(np.ndim(g) for g in parts) and same(flat, numbers(expected))


PLACE = {
    "head-by-num_heads": part(0, lambda t, c, n, h, d: [c // h]),
    "head-in-turn": part(0, lambda t, c, n, h, d: [c % h]),
    "head-is-the-remainder": part(0, lambda t, c, n, h, d: [c % d]),
    "head-rounded": part(0, lambda t, c, n, h, d: [round(c / d), int(c / d + 0.5), -(-c // d)]),
    "head-not-whole": part(0, lambda t, c, n, h, d: [c / d]),
    "head-from-1": part(0, lambda t, c, n, h, d: [c // d + 1]),
    "head-of-the-bare-view": part(0, lambda *p: [from_bare(*p)[0]]),
    "head-from-the-token": part(0, lambda t, c, n, h, d: [t, t % h, t // h, t % d, t // d, t * h // n]),
    "head-by-n": part(0, lambda t, c, n, h, d: [c // n, c % n, c * n // d, c // (n * d), c // (n * h)]),
    "row-of-the-bare-view": part(1, lambda *p: [from_bare(*p)[1]]),
    "row-counted-in-pieces": part(1, lambda t, c, n, h, d: [(t * h * d + c) // d, t * h, t * h + h]),
    "row-through-all-heads": part(1, lambda t, c, n, h, d: [c // d * n + t]),
    "row-from-1": part(1, lambda t, c, n, h, d: [t + 1]),
    "row-is-not-the-token": lambda problem, expected, got: (
        numbers(got).shape == (3,) and not same(numbers(got)[1], problem[0])
    ),
    "column-not-counted-anew": part(2, lambda t, c, n, h, d: [c]),
    "place-by-num_heads": part(2, lambda t, c, n, h, d: [c % h]),
    "place-in-turn": part(2, lambda t, c, n, h, d: [c // h]),
    "place-is-the-quotient": part(2, lambda t, c, n, h, d: [c // d]),
    "d_k-subtracted-once": part(2, lambda t, c, n, h, d: [c, c - d]),
    "place-from-a-wrong-start": wrong_start,
    "place-from-1": part(2, lambda t, c, n, h, d: [c % d + 1]),
    "place-by-n": part(2, lambda t, c, n, h, d: [c % n, c // n]),
    "not-transposed": whole(lambda t, c, n, h, d: [(t, c // d, c % d)]),
    "head-and-place-exchanged": whole(lambda t, c, n, h, d: [(c % d, t, c // d)]),
    "another-order": reordered,
    "heads-interleaved": whole(lambda t, c, n, h, d: [(c % h, t, c // h)]),
    "divided-by-heads": whole(lambda t, c, n, h, d: [(c // h, t, c % h)]),
    "divided-by-d_model": whole(lambda t, c, n, h, d: [(c // (h * d), t, c % (h * d))]),
    "nothing-left-for-the-place": whole(lambda t, c, n, h, d: [(c / d, t, 0)]),
    "two-heads-only": whole(lambda t, c, n, h, d: [(0, t, c) if c < d else (1, t, c - d)]),
    "head-begins-one-too-late": whole(
        lambda t, c, n, h, d: [
            (i, t, p) for i in {(c - 1) // d, max(c - 1, 0) // d} for p in (c - i * d, c % d, (c - 1) % d)
        ]
    ),
    "view-without-transpose": whole(lambda *p: [from_bare(*p)]),
    "counted-from-1": whole(lambda t, c, n, h, d: [(c // d + 1, t + 1, c % d + 1)]),
    "inside-a-table": in_table,
    "place-in-memory": whole(lambda t, c, n, h, d: [t * h * d + c]),
    "head-and-place-alone": whole(lambda t, c, n, h, d: [(c // d, c % d)]),
}

COMPARED = {
    "fix_split": {k: v for k, v in SPLIT.items() if k != "heads-interleaved"}
    | {
        "bug-still-there": SPLIT["heads-interleaved"],
        "permute-as-it-was": lambda x, h: [cut(x, h).transpose(0, 3, 1, 2)],
    },
    "split_heads": SPLIT,
    "merge_heads": MERGE,
    "per_head_weights": PER_HEAD,
}

CLAIMS = (
    {(exercise, name): _says(c) for exercise, table in COMPARED.items() for name, c in table.items()}
    | {("predict_place", name): predicate for name, predicate in PLACE.items()}
    | {(exercise, "not-cut"): not_cut for exercise in ("fix_split", "split_heads")}
    | {(exercise, "slices-of-another-width"): other_widths for exercise in ("fix_split", "split_heads")}
    | {
        ("merge_heads", "not-joined"): lambda problem, expected, got: np.ndim(got) == 4,
        ("per_head_weights", "returns-more-than-the-weights"): with_weights,
    }
)

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


def together(w, h):
    return np.array([w[c * h + head] for head in range(h) for c in range(len(w) // h)])


def dealt(w, h):
    d = len(w) // h
    return np.array([w[head * d + c] for c in range(d) for head in range(h)])


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


def narrow(w, h, d):
    """The rows put together with this d_k: all numbers read on, or only as many rows as it asks for."""
    found = []
    if w.size % (d * h) == 0:
        read = swap(w.reshape(d, h, -1), 0, 1)
        found += [read.reshape(w.shape), read.reshape(h * d, -1)]
    if d * h <= len(w):
        rows = np.array([w[c * h + head] for head in range(h) for c in range(d)])
        found += [rows, np.concatenate([rows, np.zeros_like(w[d * h :])])]
    return found


REORDER = {
    "other-direction": lambda w, h: [dealt(w, h)],
    "nothing-moved": lambda w, h: [w],
    "not-joined": lambda w, h: [np.stack([w[i::h] for i in range(h)])],
    "heads-side-by-side": lambda w, h: [np.concatenate([w[i::h] for i in range(h)], 1)],
    "d_k-from-the-columns": lambda w, h: narrow(w, h, w.shape[1] // h),
    "one-head-only": lambda w, h: (
        [w[i::h] for i in range(h)] + [w[i * (len(w) // h) :][: len(w) // h] for i in range(h)]
    ),
    "transposed": lambda w, h: [together(w, h).T, dealt(w, h).T],
    "reversed-inside-a-head": lambda w, h: [np.concatenate([w[i::h][::-1] for i in range(h)])],
}
CLAIMS |= claims("reorder_checkpoint", REORDER, _says) | {
    ("reorder_checkpoint", "columns-moved"): columns_moved,
    ("reorder_checkpoint", "numbers-in-other-rows"): torn,
}
