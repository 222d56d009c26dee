"""What is said of answers to the exercises of chapter 07, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, heads_listed, never, of_both, same, says

CLAIMS = {}


def merge(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def without(x, index, axis):
    """x with 0 at this index of the axis."""
    x = x.copy()
    np.moveaxis(x, axis, 0)[index] = 0
    return x


class Layer:
    """The heads and their rows of w_o; ``c[h]`` is what head h writes."""

    def __init__(self, x, w, head):
        self.x, self.w, self.i = x, w, int(head)
        self.b, self.h, self.n, self.d = x.shape
        self.own = slice(self.i * self.d, (self.i + 1) * self.d)
        self.rows = w.reshape(self.h, self.d, -1)
        self.c = np.array([x[:, h] @ self.rows[h] for h in range(self.h)])
        self.whole, self.rest = self.c.sum(0), self.c.sum(0) - self.c[self.i]
        self.others = [h for h in range(self.h) if h != self.i]

    def meets(self, rows):
        """The sum over the other heads, where head h meets ``rows(h)``."""
        return sum(self.x[:, h] @ rows(h) for h in self.others)

    def minus_rows(self, *index):
        return merge(self.x) @ without(self.w, index if len(index) > 1 else index[0], 0)


def layer(candidates):
    return says(lambda x, w, head: candidates(Layer(x, w, head)))


def axis_left_out(axis):
    """One index of this axis of heads is left out, in all heads: set to 0, or cut out."""

    def candidates(s):
        out = []
        for i in range(s.x.shape[axis]):
            out.append(merge(without(s.x, i, axis)) @ s.w)
            if axis == 2:
                out.append(np.delete(s.whole, i, 1))
        return out

    return candidates


AXES = (0,), (1,), (2,), (3,), (0, 1), (1, 2), (1, 3), (2, 3), (0, 2), (1, 2, 3), (0, 1, 2), (0, 1, 2, 3)


def averages(s):
    x, out = s.x, []
    for source in (x, x[:, s.others], x[:, s.i : s.i + 1]):
        for m in (source.mean(axes, keepdims=True) for axes in AXES):
            if m.shape[1] in (1, s.h):
                y = x.copy()
                y[:, s.i] = m[:, s.i if m.shape[1] > 1 else 0]
                out.append(merge(y) @ s.w)
    return out


def columns_zero(problem, expected, got):
    """Some columns are 0, and the others those of the whole output."""
    s = Layer(*map(array, problem))
    got = array(got)
    if got.shape != s.whole.shape:
        return False
    zero = np.all(got == 0, (0, 1))
    return bool(zero.any() and same(got[..., ~zero], s.whole[..., ~zero]))


def unmerged(s):
    x, out = s.x, []
    for y in (without(x, s.i, 1), x):
        for z in (y.reshape(s.b, s.n, -1), y.transpose(0, 1, 3, 2).reshape(s.b, s.n, -1)):
            out += [z @ s.w, z @ without(s.w, s.own, 0)]
    keep, rows = np.delete(x, s.i, 1), np.delete(s.w, np.arange(s.w.shape[0])[s.own], 0)
    return [*out, keep.reshape(s.b, s.n, -1) @ rows]


def in_turns(s):
    w = s.w.reshape(s.d, s.h, -1)
    return [s.meets(lambda h: w[:, h])]


def minus_infinity(s):
    out = []
    for how in (0, 1):
        x = s.x.copy()
        x[:, s.i] = -np.inf
        out.append(merge(x) @ s.w if how else s.rest + x[:, s.i] @ s.rows[s.i])
    return out


def minus_inf(problem, expected, got):
    """Nothing finite is left: -inf times a row of w_o is there in every number."""
    got = array(got)
    return bool(got.shape == np.shape(expected) and not np.isfinite(got).any())


def others_rows_too(problem, expected, got):
    """Own rows of w_o count nothing, nor do some of the others, or some columns."""
    s, got = Layer(*map(array, problem)), array(got)
    if got.shape != s.whole.shape:
        return False
    live = np.any(got != 0, (0, 1))
    terms = np.array([(merge(s.x)[..., r : r + 1] * s.w[r])[..., live].ravel() for r in range(len(s.w))])
    target = got[..., live].ravel()
    if np.linalg.matrix_rank(terms) == len(terms):
        masks = [np.round(np.linalg.lstsq(terms.T, target, rcond=None)[0])]
    else:
        masks = [np.array([k >> r & 1 for r in range(len(terms))]) for k in range(2 ** min(len(terms), 12))]
    for mask in masks:
        some = not live.all() or mask.sum() < len(mask) - s.d
        if set(mask) <= {0, 1} and not mask[s.own].any() and some and same(mask @ terms, target):
            return True
    return False


def mask_elsewhere(s):
    out = []
    for axis in (axis for axis in (0, 2, 3) if s.x.shape[axis] in (s.h, 1)):
        mask = without(np.ones(s.h), s.i, 0).reshape([s.h if k == axis else 1 for k in range(4)])
        kept = [merge(s.x * m) for m in (mask, 1 - mask)[: 1 + (s.x.shape[axis] == s.h)]]
        out += [y @ s.w for y in kept if y.shape[-1] == len(s.w)]
    return out


def other_rows(s):
    z, total, out = merge(np.delete(s.x, s.i, 1)), s.w.shape[0], []
    for r in range(total - s.d + 1):
        if r != s.i * s.d:
            out.append(z @ np.delete(s.w, np.arange(r, r + s.d), 0))
    for r in range(s.h):
        out.append(z @ np.delete(s.w, np.arange(r, total, s.h), 0))
    return out


def other_subtracted(s):
    x, total = s.x[:, s.i], s.w.shape[0]
    rows = [s.w[r : r + s.d] for r in range(total - s.d + 1) if r != s.i * s.d]
    rows += [s.w[r :: s.h][: s.d] for r in range(s.h)]
    return [s.whole - x @ r for r in rows]


def share(problem, expected, got):
    s = Layer(*map(array, problem))
    got = array(got)
    if got.shape != s.whole.shape:
        return False
    c = (got * s.whole).sum() / (s.whole**2).sum()
    return bool(0 < c < 0.999 and same(got, c * s.whole))


def unprojected(s):
    x = without(s.x, s.i, 1)
    out = [y.reshape(s.b, s.n, -1) for y in (x, s.x, np.delete(s.x, s.i, 1))]
    return [
        *out,
        merge(s.x),
        merge(x),
        x,
        np.delete(s.x, s.i, 1),
        merge(np.delete(s.x, s.i, 1)),
        x.sum(1),
        s.x.sum(1),
    ]


def transposed(s):
    if s.w.shape[0] != s.w.shape[1]:
        return []
    w = s.w.T
    out = [merge(without(s.x, s.i, 1)) @ w, merge(s.x) @ without(w, s.own, 0)]
    return [*out, merge(s.x) @ without(s.w, s.own, 0).T, merge(s.x) @ w]


def batch_as_heads(s):
    x = s.x
    out = []
    if s.i < s.b:
        left = merge(without(x, s.i, 0)) @ s.w
        out = [np.delete(s.whole, s.i, 0), s.whole - left, left]
    if s.b == 1 and s.i == 0:
        out.append(np.zeros(()))
    terms = [x[b] @ s.rows[b] for b in range(min(s.b, s.h))]
    out += [sum(terms), sum((y for b, y in enumerate(terms) if b != s.i), np.zeros_like(terms[0]))]
    if s.b * s.d == s.w.shape[0]:
        t = x.transpose(1, 2, 0, 3)
        for y in (without(t, s.i, 2), t) if s.i < s.b else (t,):
            out.append(y.reshape(s.h, s.n, -1) @ s.w)
    return out


def heads_of_others(s, stacks):
    return [np.stack(list(stacks), axis) for axis in (0, 1, 2, 3)]


ABLATE = {
    "nothing-removed": lambda s: [s.whole],
    "only-this-head": lambda s: [s.c[s.i]],
    "token-removed": axis_left_out(2),
    "sample-removed": axis_left_out(0),
    "column-removed": axis_left_out(3),
    "heads-behind-removed-too": lambda s: [s.c[: s.i].sum(0)],
    "heads-before-removed-too": lambda s: [s.c[s.i + 1 :].sum(0)],
    "head-before-removed": lambda s: [s.whole - s.c[s.i - 1]],
    "head-behind-removed": lambda s: [s.whole - s.c[(s.i + 1) % s.h]],
    "first-head-removed": lambda s: [s.whole - s.c[0]],
    "last-head-removed": lambda s: [s.whole - s.c[-1]],
    "one-other-head-only": lambda s: [s.c[h] for h in s.others],
    "replaced-by-average": averages,
    "rows-from-head-on": lambda s: [s.minus_rows(slice(s.i, s.i + s.d))],
    "one-row-removed": lambda s: [s.minus_rows(r) for r in range(len(s.w))],
    "rows-of-all-heads": lambda s: [s.minus_rows(slice(r, None, s.h)) for r in range(s.h)],
    "rows-of-another-width": lambda s: [
        s.minus_rows(slice(s.i * n, (s.i + 1) * n)) for n in range(1, len(s.w) + 1) if n != s.d
    ],
    "merge-without-transpose": unmerged,
    "heads-take-turns": in_turns,
    "overlapping-slices": lambda s: [s.meets(lambda h: s.w[h : h + s.d])],
    "first-rows-for-all": lambda s: [s.meets(lambda h: s.rows[0])],
    "rows-of-this-head-for-all": lambda s: [s.meets(lambda h: s.rows[s.i])],
    "heads-averaged": lambda s: [s.rest / s.h, s.rest / (s.h - 1)],
    "rescaled": lambda s: [s.rest * s.h / (s.h - 1)],
    "not-summed-over-heads": lambda s: heads_of_others(s, without(s.c, s.i, 0)) + heads_of_others(s, s.c),
    "other-heads-not-summed": lambda s: heads_of_others(s, s.c[s.others]),
    "sample-dropped": lambda s: [np.delete(s.whole, i, 0) for i in range(s.b)] + [s.whole] * (s.i >= s.b),
    "loop-ends-at-this-head": lambda s: [s.c[: s.i].sum(0)] + ([np.zeros(())] if s.i == 0 else []),
    "mask-on-another-axis": mask_elsewhere,
    "this-head-for-all": lambda s: [sum(s.x[:, s.i] @ s.rows[h] for h in s.others)],
    "other-rows": other_rows,
    "other-rows-subtracted": other_subtracted,
    "no-output-projection": unprojected,
    "projection-transposed": transposed,
    "batch-taken-for-heads": batch_as_heads,
}
CLAIMS |= claims("ablate_head", ABLATE, layer)
CLAIMS |= {
    ("ablate_head", "columns-of-w_o"): columns_zero,
    ("ablate_head", "rows-of-others-too"): others_rows_too,
    ("ablate_head", "minus-infinity"): minus_inf,
    ("ablate_head", "share-of-the-whole"): share,
    ("ablate_head", "rows-of-w_o-left"): never,
    ("ablate_head", "columns-of-heads-left"): never,
    ("ablate_head", "all-rows-of-w_o"): never,
}


def ends(mean, half):
    return np.array([mean - half, mean + half])


class Gaps:
    def __init__(self, one, two, t):
        self.one, self.two, self.t = one, two, float(t)
        self.s, self.p = one.shape
        self.all = two - one
        self.g, self.of_problems = self.all.mean(1), self.all.mean(0)
        self.mean, self.n = self.all.mean(), len(one)

    def interval(self, gaps=None, t=None, by=None, ddof=1):
        gaps = self.g if gaps is None else gaps
        by = gaps.size**0.5 if by is None else by
        return ends(gaps.mean(), (self.t if t is None else t) * gaps.std(ddof=ddof) / by)

    def around(self, spread, by=None):
        return ends(self.mean, self.t * spread / (self.n**0.5 if by is None else by))


def gaps(candidates):
    return says(lambda one, two, t: candidates(Gaps(one, two, t)))


def unrelated(g):
    a, b = g.one.mean(1), g.two.mean(1)
    u, v = a.var(ddof=1), b.var(ddof=1)
    spreads = [
        (u + v) ** 0.5,
        ((u + v) / 2) ** 0.5,
        u**0.5 + v**0.5,
        (u**0.5 + v**0.5) / 2,
        (u + v) ** 0.5 * 2**0.5,
    ]
    spreads += [np.r_[a, b].std(ddof=1)]
    return [g.around(x, by) for x in spreads for by in (None, (2 * g.n) ** 0.5)]


def spread_less(g):
    return [
        ends(g.mean, h) for h in (g.t, g.t / g.n**0.5, g.t / g.n, g.t / g.all.size**0.5, 1 / g.n**0.5, 0.0)
    ]


def read_off(g):
    out = []
    for x in (g.g, g.all.ravel(), g.of_problems):
        out.append([x.min(), x.max()])
        for a in (0.5, 1, 2.5, 5, 10, 16, 25):
            out.append(np.percentile(x, [a, 100 - a]))
    return out


def clamp(g):
    right = g.interval()
    return [np.clip(right, a, b) for a, b in ((-1, 1), (0, 1), (0, None), (-1, None), (None, 1))]


INTERVAL = {
    "bug-still-there": lambda g: [g.interval(g.all, ddof=d) for d in (0, 1)],
    "spread-of-problems": lambda g: [g.interval(g.all, by=n**0.5) for n in (g.s, g.p, g.s * g.p)],
    "averaged-over-seeds": lambda g: [g.interval(g.of_problems)],
    "counts-for-shares": lambda g: [g.interval(g.all.sum(1))],
    "gap-inverted": lambda g: [g.interval(-g.g)],
    "biased-spread": lambda g: [g.interval(ddof=0)],
    "variance": lambda g: [g.around(g.g.var(ddof=1))],
    "unpaired": unrelated,
    "counts-problems": lambda g: [g.interval(by=n**0.5) for n in (g.p, g.s * g.p)],
    "not-divided": lambda g: [g.interval(by=1)],
    "divided-by-n": lambda g: [g.interval(by=g.n)],
    "half-of-n": lambda g: [g.interval(by=2 * g.n), g.interval(by=g.n / 2)],
    "root-of-n-minus-1": lambda g: [g.interval(by=(g.n - 1) ** 0.5)],
    "counts-both-groups": lambda g: [g.interval(by=(2 * g.n) ** 0.5)],
    "five-seeds": lambda g: [g.interval(by=5**0.5)],
    "multiplied-by-the-root": lambda g: [g.interval(by=g.n**-0.5)],
    "table-of-the-chapter": lambda g: [g.interval(t=t) for t in (12.71, 2.776)],
    "normal-quantile": lambda g: [g.interval(t=1.96)],
    "t-left-out": lambda g: [g.interval(t=1)],
    "ends-swapped": lambda g: [g.interval()[::-1]],
    "mean-and-half": lambda g: (
        [[g.mean, h] for h in [g.interval()[1] - g.mean]] + [[g.interval()[1] - g.mean, g.mean]]
    ),
    "around-0": lambda g: [g.interval() - g.mean],
    "around-each-gap": lambda g: [
        np.stack([g.g - h, g.g + h], axis) for h in [g.interval()[1] - g.mean] for axis in (0, 1)
    ],
    "averaged-over-everything": lambda g: [[np.nan, np.nan], [g.mean, g.mean]],
    "seeds-averaged-and-counted": lambda g: [g.interval(g.of_problems, by=g.s**0.5)],
    "counts-models": lambda g: [g.interval(by=2**0.5)],
    "spread-left-out": spread_less,
    "fixed-t": lambda g: [g.interval(t=t) for t in (2, 2.776, 12.71)],
    "spread-of-one-model": lambda g: [g.around(x.mean(1).std(ddof=1)) for x in (g.one, g.two)],
    "spreads-averaged": lambda g: [
        g.around(g.all.std(axis, ddof=d).mean(), n**0.5)
        for axis in (0, 1)
        for d in (0, 1)
        for n in (g.s, g.p)
    ],
    "half-as-wide": lambda g: [g.interval(by=2 * g.n**0.5)],
    "gains-only": lambda g: [g.interval(np.maximum(g.all, 0).mean(1))],
    "one-model-only": lambda g: [g.interval(x.mean(1)) for x in (g.one, g.two)],
    "absolute-gap": lambda g: [g.interval(np.abs(g.g)), g.interval(np.abs(g.all).mean(1))],
    "clamped": clamp,
    "read-off-the-gaps": read_off,
}
CLAIMS |= claims("fix_interval", INTERVAL, gaps)
CLAIMS |= {("fix_interval", name): never for name in ("stack-of-numbers", "whole-numbers")}


def loss(candidates):
    """A predicate: one number, which is one of what ``candidates`` makes of the arguments."""

    def predicate(problem, expected, got):
        n, c = (float(x) for x in problem)
        with np.errstate(all="ignore"):
            return not isinstance(got, tuple) and any(
                np.shape(x) == np.shape(got)
                and np.allclose(array(got), x, rtol=1e-5, atol=1e-6, equal_nan=True)
                for x in candidates(n, c, (n - 1) / n, np.log(c))
            )

    return predicate


def one_each(problem, expected, got):
    """One number for each answer: ln(candidates) for all, or for all but one, which has 0."""
    n, c = int(problem[0]), float(problem[1])
    if isinstance(got, tuple) or np.shape(got) != (n,):
        return False
    return same(np.sort(np.abs(got)), [0] + [np.log(c)] * (n - 1), [np.log(c) / n] * n)


def coin(c):
    return -(np.log(1 / c) / c + (1 - 1 / c) * np.log(1 - 1 / c))


def two_sides(n, c, q, ln):
    sides = [
        coin(c),
        ln - np.log(1 - 1 / c),
        1 / c * ln - np.log(1 - 1 / c),
        ln - (c - 1) * np.log(1 - 1 / c),
    ]
    return [k * x for x in sides for k in (q, 1, n - 1)]


def rounded(problem, expected, got):
    right, got = float(array(expected)), array(got)
    return got.shape == () and any(
        np.isclose(float(got), f(right * 10**k) / 10**k, atol=1e-7)
        for k in range(5)
        for f in (np.round, np.floor, np.ceil)
    )


GUESS = {
    "one-candidate-fewer": lambda n, c, q, ln: [q * np.log(c - 1)],
    "one-candidate-more": lambda n, c, q, ln: [q * np.log(c + 1)],
    "weighted-by-its-probability": lambda n, c, q, ln: [q * ln / c],
    "logarithm-missing": lambda n, c, q, ln: [
        sign * (a + (n - 1) * x) / n for x in (c, 1 / c) for a in (0, 1) for sign in (1, -1)
    ],
    "share-of-wrong-answers": lambda n, c, q, ln: [q * (1 - 1 / c)],
    "probability-of-another-content": lambda n, c, q, ln: [-q * np.log(1 - 1 / c)],
    "right-or-wrong": two_sides,
    "logarithm-of-num_lookups": lambda n, c, q, ln: [q * np.log(n)],
    "known-answer-missing": lambda n, c, q, ln: [ln],
    "one-guess": lambda n, c, q, ln: [ln / n],
    "two-answers-known": lambda n, c, q, ln: [(n - 2) / n * ln],
    "known-answer-costs-one": lambda n, c, q, ln: [1 / n + q * ln],
    "probabilities-for-logits": lambda n, c, q, ln: [(np.log(np.e + c - 1) - 1) / n + q * ln],
    "added-up": lambda n, c, q, ln: [(n - 1) * ln],
    "divided-by-candidates": lambda n, c, q, ln: [(n - 1) * ln / c],
    "divided-by-two": lambda n, c, q, ln: [(n - 1) * ln / 2],
    "negative": lambda n, c, q, ln: [-q * ln],
    "bits": lambda n, c, q, ln: [q * np.log2(c), q * np.log10(c)],
    "half-always": lambda n, c, q, ln: [ln / 2],
    "one-answer-too-many": lambda n, c, q, ln: [n * ln / (n + 1)],
    "divided-by-the-guesses": lambda n, c, q, ln: [ln / (n - 1)],
    "averaged-before-the-logarithm": lambda n, c, q, ln: [
        s * np.log((1 + (n - 1) * x) / n) for x in (c, 1 / c) for s in (1, -1)
    ],
    "share-inside-the-logarithm": lambda n, c, q, ln: [
        *(s * x for x in (np.log(c * q), np.log(c / q), q * np.log(c / q)) for s in (1, -1)),
        q * np.log(c / q) + np.log(n) / n,
    ],
    "share-of-right-answers": lambda n, c, q, ln: [s * (1 + (n - 1) / c) / n for s in (1, -1)],
    "perplexity": lambda n, c, q, ln: [np.exp(q * ln), np.exp(-q * ln)],
    "arguments-swapped": lambda n, c, q, ln: [(c - 1) / c * np.log(n)],
    "fewer-from-guess-to-guess": lambda n, c, q, ln: [
        sum(np.log(np.maximum(c - i, low)) for i in range(a, int(n) - 1 + a)) / n
        for a in (0, 1)
        for low in (-np.inf, 0, 1)
    ],
    "infinite": lambda n, c, q, ln: [np.inf],
    "brackets-missing": lambda n, c, q, ln: [n - ln / n, n * ln - 1 / n, n - 1 / n * ln, ln * n - 1, n - ln],
}
CLAIMS |= claims("predict_guess_loss", GUESS, loss)
CLAIMS |= {
    ("predict_guess_loss", "not-averaged"): one_each,
    ("predict_guess_loss", "rounded"): rounded,
    ("predict_guess_loss", "true-or-false"): lambda problem, expected, got: np.asarray(got).dtype == bool,
}


# --- The two heads that differ least.


def pairs_by(number, smallest=True):
    """The pairs of different heads for which ``number(one, other)`` is smallest or largest, as lists."""

    def candidates(w):
        found = {(i, j): number(w[i], w[j]) for i in range(len(w)) for j in range(i + 1, len(w))}
        best = (min if smallest else max)(found.values())
        return [list(pair) for pair, value in found.items() if abs(value - best) < 1e-6]

    return candidates


def differ(one, other):
    return np.abs(one - other).sum()


def differences(w):
    return np.array([differ(w[i], w[j]) for i in range(len(w)) for j in range(i + 1, len(w))])


def place_in_a_table(w):
    (i, j), *_ = pairs_by(differ)(w)
    return [i * len(w) + j, differences(w).argmin()]


def near_head_0(w):
    order = np.argsort([differ(head, w[0]) for head in w], kind="stable")
    return [order[:2]]


SIMILAR = {
    "a-head-and-itself": lambda w: [[i, i] for i in range(len(w))],
    "signs-cancel": lambda w: pairs_by(lambda a, b: round((a - b).sum(), 3))(w),
    "first-keys-only": lambda w: (
        pairs_by(lambda a, b: (a.argmax(-1) != b.argmax(-1)).sum())(w)
        + pairs_by(lambda a, b: np.abs(a.max(-1) - b.max(-1)).sum())(w)
    ),
    "queries-added-up": pairs_by(lambda a, b: np.abs(a.sum(0) - b.sum(0)).sum()),
    "dot-product": pairs_by(lambda a, b: (a * b).sum(), smallest=False),
    "largest-single-difference": pairs_by(lambda a, b: np.abs(a - b).max()),
    "squared-instead-of-absolute": lambda w: (
        pairs_by(lambda a, b: ((a - b) ** 2).sum())(w)
        + pairs_by(lambda a, b: (a * b).sum() / np.sqrt((a**2).sum() * (b**2).sum()), smallest=False)(w)
    ),
    "largest-row": pairs_by(lambda a, b: np.abs(a - b).sum(-1).max()),
    "one-query-only": lambda w: [
        pair for i in (0, -1) for pair in pairs_by(lambda a, b, i=i: np.abs(a[i] - b[i]).sum())(w)
    ],
    "neighbours-only": lambda w: [
        [i, i + 1] for i in [int(np.argmin([differ(w[i], w[i + 1]) for i in range(len(w) - 1)]))]
    ],
    "head-0-only": near_head_0,
    "least-similar": pairs_by(differ, smallest=False),
    "larger-index-first": lambda w: [pair[::-1] for pair in pairs_by(differ)(w)],
    "place-in-the-table": place_in_a_table,
    "difference-returned": lambda w: [
        differences(w).min(), differences(w).min() / w[0].size, differences(w),
    ],
    "counted-from-1": lambda w: [[i + 1, j + 1] for i, j in pairs_by(differ)(w)],
}  # fmt: skip
CLAIMS |= claims("most_similar_heads", SIMILAR, says)


# --- heads_to_keep: a problem is the weights (heads, questions, n), and the places of the two records


def serves(problem, heads, answer):
    """Whether one of the heads has its largest weight on this record in every question."""
    weights, places = (np.asarray(part) for part in problem)
    return any(
        all(row[place] == max(row) for row, place in zip(weights[head], places[:, answer], strict=True))
        for head in np.asarray(heads).astype(int)
    )


def both_serve(problem, heads):
    return serves(problem, heads, 0) and serves(problem, heads, 1)


KEPT = heads_listed(8, [0, 1, 2, 3]) | {
    "counted-from-1": lambda problem, got: len(got) == 2 and both_serve(problem, got - 1),
    "more-than-two": lambda problem, got: len(got) > 2 and both_serve(problem, got),
    "first-answer-lost": lambda problem, got: not serves(problem, got, 0) and serves(problem, got, 1),
    "second-answer-lost": lambda problem, got: serves(problem, got, 0) and not serves(problem, got, 1),
    "both-answers-lost": lambda problem, got: not serves(problem, got, 0) and not serves(problem, got, 1),
}
CLAIMS |= claims("heads_to_keep", KEPT, of_both)
