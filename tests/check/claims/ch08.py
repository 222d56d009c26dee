"""What is said of answers to the exercises of chapter 08, asked of the numbers."""

from fractions import Fraction

import numpy as np

from tests.check.claims.results import array, claims, never, of_result, same, says, softmax

CLAIMS = {}


def changed(**steps):
    """A candidate: the loop over the keys with some steps changed; in float32, where exp overflows."""

    def run(s, v, kind):
        s, v = s.astype(kind), v.astype(kind)
        h = np.full_like(s[:, :1], steps.get("start", -np.inf))
        t, o = np.zeros_like(h), np.zeros((len(s), v.shape[1]), kind)
        one = {
            "raised": lambda s, h: np.maximum(h, s),
            "correction": lambda s, h, r: np.exp(h - r),
            "weight": lambda s, h, r: np.exp(s - r),
            "total": lambda t, c, w: t * c + w,
            "output": lambda o, c, x: o * c + x,
            "keep": lambda s, h, r: r,
            "end": lambda o, t: o / t,
            "each": lambda o, t: o,
        } | steps
        for j in steps.get("keys", lambda n: range(n))(s.shape[1]):
            score = s[:, j : j + 1]
            r = one["raised"](score, h)
            c, w = one["correction"](score, h, r), one["weight"](score, h, r)
            t = one["total"](t, c, w)
            o = one["each"](one["output"](o, c, w * v[j]), t)
            h = one["keep"](score, h, r)
        return one["end"](o, t)

    return lambda s, v: [run(s, v, kind) for kind in (np.float32, np.float64)]


def either(*candidates):
    return lambda *arguments: [c for each in candidates for c in each(*arguments)]


def over_queries(f):
    return changed(total=lambda t, c, w: t * c + f(w, axis=0, keepdims=True))


def plus_correction(sign):
    return [
        changed(total=lambda t, c, w: t + sign * c + w),
        changed(total=lambda t, c, w: sign * c + w),
        changed(total=lambda t, c, w: t * c + sign * c + w),
    ]


def divided_by_all_queries(s, v):
    e = np.exp(s - s.max(-1, keepdims=True))
    return [
        softmax(s) @ v / len(s),
        e @ v / e.sum(),
        e @ v / e.sum(-1).sum(),
        e @ v / e.sum(0).sum(),
        e / e.sum(0) @ v,
    ]


def nan_at_first(problem, expected, got):
    """NaN, and nowhere a number that is wrong."""
    got = array(got)
    if not np.isnan(got).any() or got.shape != np.shape(expected):
        return False
    return np.isnan(got).all()


def old(t, c, w):
    return t + w


def shifted(*maxima):
    """The softmax after one of these was taken off, in float32 and float64, divided before or after."""

    def candidates(s, v):
        out = []
        for kind in (np.float32, np.float64):
            for m in maxima:
                e, values = np.exp((s - m(s)).astype(kind)), v.astype(kind)
                out += [e @ values / e.sum(-1, keepdims=True), e / e.sum(-1, keepdims=True) @ values]
        return out

    return candidates


def raised_for_all(s, v):
    return changed(raised=lambda s, h: np.full_like(h, max(h.max(), s.max())))(s, v)


ONLINE = {
    "total-not-corrected": changed(total=old),
    "new-key-corrected-in-total": changed(total=lambda t, c, w: (t + w) * c),
    "only-the-new-key-corrected-in-total": changed(total=lambda t, c, w: t + w * c),
    "total-corrected-twice": either(
        changed(total=lambda t, c, w: t * c * c + w), changed(total=lambda t, c, w: (t * c + w) * c)
    ),
    "total-of-all-queries": either(
        over_queries(np.sum),
        over_queries(np.mean),
        *(changed(total=lambda t, c, w, f=f: t + f(w)) for f in (np.sum, np.mean)),
    ),
    "correction-added-to-total": either(*plus_correction(1), *plus_correction(-1)),
    "total-of-the-last-key": either(
        changed(total=lambda t, c, w: w),
        changed(total=lambda t, c, w: c * w),
        changed(total=lambda t, c, w: c + w),
    ),
    "total-without-weight": changed(total=lambda t, c, w: t * c),
    "output-not-corrected": changed(output=lambda o, c, x: o + x),
    "new-key-corrected-in-output": changed(output=lambda o, c, x: (o + x) * c),
    "only-the-new-key-corrected-in-output": changed(output=lambda o, c, x: o + x * c),
    "output-corrected-twice": changed(output=lambda o, c, x: o * c * c + x),
    "output-of-the-last-key": changed(output=lambda o, c, x: x),
    "not-corrected": changed(total=old, output=lambda o, c, x: o + x),
    "correction-from-the-score": changed(correction=lambda s, h, r: np.exp(h - s)),
    "weight-as-correction": changed(correction=lambda s, h, r: np.exp(s - r)),
    "weight-inverted": changed(weight=lambda s, h, r: np.exp(r - s)),
    "weight-without-maximum": changed(weight=lambda s, h, r: np.exp(s)),
    "maximum-not-subtracted": shifted(lambda s: 0),
    "newest-score-as-maximum": changed(raised=lambda s, h: s),
    "one-maximum-for-all-queries": either(shifted(np.max, lambda s: s.max(0)), raised_for_all),
    "starts-at-0": changed(start=0.0),
    "highest-never-raised": changed(keep=lambda s, h, r: h),
    "highest-is-the-last-score": changed(keep=lambda s, h, r: s),
    "divided-at-each-key": either(
        changed(each=lambda o, t: o / t, end=lambda o, t: o), changed(each=lambda o, t: o / t)
    ),
    "divided-at-each-key-only": changed(each=lambda o, t: o / t, end=lambda o, t: o),
    "not-divided": changed(end=lambda o, t: o),
    "divided-by-all-queries": divided_by_all_queries,
    "divided-by-the-number-of-queries": lambda s, v: [softmax(s) @ v / len(s)],
    "multiplied-by-the-total": changed(end=lambda o, t: o * t),
    "weight-and-correction-exchanged": changed(
        weight=lambda s, h, r: np.exp(h - r), correction=lambda s, h, r: np.exp(s - r)
    ),
    "softmax-over-queries": lambda s, v: [softmax(s, 0) @ v],
    "no-softmax": lambda s, v: [s @ v, s @ v / s.shape[1], s @ v / s.sum(-1, keepdims=True)],
    "scaled-again": lambda s, v: [softmax(s / n**0.5) @ v for n in (*v.shape, *s.shape)],
    "first-key-twice": either(
        changed(keys=lambda n: [0, *range(n)]), lambda s, v: [softmax(np.c_[s, s[:, :1]]) @ np.r_[v, v[:1]]]
    ),
    "plain-mean": lambda s, v: [np.repeat(v.mean(0, keepdims=True), len(s), 0)],
}
CLAIMS |= claims("fix_online_softmax", ONLINE, says)
CLAIMS["fix_online_softmax", "nan-from-the-first-key"] = nan_at_first
CLAIMS["fix_online_softmax", "python-max"] = never


def block(m=np.maximum, corrections=None, safe=True, back=None, lo=None):
    """Candidates: the merging of two halves, with some of its steps changed."""

    def run(ma, la, oa, mb, lb, ob):
        one = m(ma, mb)
        base = np.where(np.isinf(one), 0.0, one) if safe else one
        ca, cb = np.exp(ma - base), np.exp(mb - base)
        out = []
        for c in corrections(ma, mb, base, ca, cb) if corrections else [(ca, cb)]:
            da, db = c[2:] or c[:2]
            sums, o = c[0] * la + c[1] * lb, da * oa + db * ob
            for pair in lo(sums, o, la, oa, lb, ob, ca, cb) if lo else [(sums, o)]:
                for first in back(one, base, ma, mb) if back else [one]:
                    out.append((first, *pair))
        return out

    return run


def finite(x):
    return np.where(np.isinf(x), 0.0, x)


def rescaled(ma, mb, base, ca, cb):
    return [
        (np.ones_like(ca), np.exp(finite(mb) - finite(ma))),
        (np.exp(finite(ma) - finite(mb)), 1 + 0 * cb),
    ]


def m_finite(problem, expected, got):
    if not isinstance(got, tuple) or len(got) != 3 or np.shape(got[0]) != np.shape(expected[0]):
        return False
    m, right = array(got[0]), array(expected[0])
    unseen = np.isneginf(right)
    return bool(
        unseen.any()
        and np.all(np.isfinite(m[unseen]) & (m[unseen] < -1e3))
        and same(m[~unseen], right[~unseen])
    )


def nan_if_empty(problem, expected, got):
    """NaN in the rows without any score, and everything else right."""
    if not isinstance(got, tuple) or len(got) != 3:
        return False
    unseen = np.isneginf(array(expected[0]))[:, 0]
    if not unseen.any() or [np.shape(g) for g in got] != [np.shape(e) for e in expected]:
        return False
    nan = np.isnan(array(got[1])[unseen]).all() or np.isnan(array(got[2])[unseen]).all()
    return bool(
        nan and all(same(array(g)[~unseen], array(e)[~unseen]) for g, e in zip(got, expected, strict=True))
    )


def part(which):
    """A predicate: the right three results, but only these, or in this order."""

    def predicate(problem, expected, got):
        with np.errstate(all="ignore"):
            return same(got, *which(*map(array, expected)))

    return predicate


def m_is(candidates):
    def predicate(problem, expected, got):
        ma, _, _, mb, _, _ = map(array, problem)
        if not isinstance(got, tuple) or len(got) != 3:
            return False
        with np.errstate(all="ignore"):
            return any(same(got[0], c) for c in candidates(ma, mb))

    return predicate


def on_paper(*arguments):
    """exp(m), added up as it is, and divided afterwards; in float32."""
    ma, la, oa, mb, lb, ob = (np.asarray(x, np.float32) for x in arguments)
    m, out = np.maximum(ma, mb), []
    ea, eb, e = np.exp(ma), np.exp(mb), np.exp(m)
    for f in (e, np.where(np.isinf(m), np.float32(1), e)):
        out.append((m, (ea * la + eb * lb) / f, (ea * oa + eb * ob) / f))
        out.append((m, ea / f * la + eb / f * lb, ea / f * oa + eb / f * ob))
    return out


def plain(x):
    return np.where(np.isneginf(x), 0.0, x)


def at_zero(ma, la, oa, mb, lb, ob):
    a, b = plain(ma), plain(mb)
    m = np.maximum(a, b)
    e = np.maximum(ma, mb)
    ca, cb = np.exp(ma - finite(e)), np.exp(mb - finite(e))
    out = [(m, ca * la + cb * lb, ca * oa + cb * ob)]
    for x, y in ((a, b), (ma, mb)):
        for back in (m, np.where(np.isneginf(ma) & np.isneginf(mb), -np.inf, m)):
            ca, cb = np.exp(x - m), np.exp(y - m)
            out.append((back, ca * la + cb * lb, ca * oa + cb * ob))
    return out


def both(f):
    """These, and the same with 0 for what has no score."""

    def with_zeros(*arguments):
        return [(m, *(np.where(np.isneginf(m), 0.0, x) for x in sums)) for m, *sums in f(*arguments)]

    return either(f, with_zeros)


def keyed(sums, o, la, oa, lb, ob, ca, cb):
    return [(ca * la + cb, o), (ca + cb * lb, o), (ca + cb, o)]


def share(sums):
    return np.where(sums == 0, 1.0, sums)


def halves(ma, la, oa, mb, lb, ob):
    """o of the averages of both halves, with the corrections, or weighted by the sums."""
    m = np.maximum(ma, mb)
    ca, cb = np.exp(ma - finite(m)), np.exp(mb - finite(m))
    out = []
    for a, b in (
        (oa / la, ob / lb),
        (oa / share(la), ob / share(lb)),
        (np.nan_to_num(oa / la), np.nan_to_num(ob / lb)),
    ):
        sums = ca * la + cb * lb
        for o in (
            ca * a + cb * b,
            (a + b),
            (a + b) / 2,
            (ca * a + cb * b) / sums,
            (ca * a + cb * b) / share(sums),
        ):
            out.append((m, sums, o))
    return out


def undivided(m, sums, o):
    return [(m, sums, x) for d in (sums, share(sums)) for x in (o / d, np.nan_to_num(o / d))]


def block32(**steps):
    return lambda *a: block(**steps)(*(x.astype(np.float32) for x in a)) + block(**steps)(*a)


def to_one_half(ma, la, oa, mb, lb, ob):
    out = []
    for base in (ma, mb):
        ca, cb = np.exp(ma - base), np.exp(mb - base)
        out += [(m, ca * la + cb * lb, ca * oa + cb * ob) for m in (base, np.maximum(ma, mb))]
    return out


MERGE = {
    "m-set-to-0": block(back=lambda one, base, ma, mb: [base]),
    "empty-half-as-0": at_zero,
    "one-half-corrected": block(corrections=lambda ma, mb, base, ca, cb: [(1.0, cb), (ca, 1.0)]),
    "always-the-same-half": block(  # the higher half has the factor 1, so the product is the lower half's
        corrections=lambda ma, mb, base, ca, cb: [(ca * cb, 1.0), (1.0, ca * cb)]
    ),
    "not-corrected": block(corrections=lambda ma, mb, base, ca, cb: [(1.0, 1.0)]),
    "correction-inverted": either(
        block(corrections=lambda ma, mb, base, ca, cb: [(1 / ca, 1 / cb)]),
        block(
            corrections=lambda ma, mb, base, ca, cb: [(np.exp(base - finite(ma)), np.exp(base - finite(mb)))]
        ),
        block(corrections=lambda ma, mb, base, ca, cb: [(1 / ca, 1 / cb)], safe=False),
    ),
    "corrections-exchanged": block(corrections=lambda ma, mb, base, ca, cb: [(cb, ca)]),
    "corrected-to-each-other": both(
        either(
            block(corrections=lambda ma, mb, b, ca, cb: [(np.exp(ma - mb), np.exp(mb - ma))]),
            block(corrections=lambda ma, mb, b, ca, cb: [(np.exp(mb - ma), np.exp(ma - mb))]),
            block(
                corrections=lambda ma, mb, b, ca, cb: [
                    (np.exp(finite(ma) - finite(mb)), np.exp(finite(mb) - finite(ma)))
                ]
            ),
            block(corrections=lambda ma, mb, b, ca, cb: [(1.0, np.exp(mb - ma)), (np.exp(ma - mb), 1.0)]),
        )
    ),
    "correction-without-exp": either(
        block(corrections=lambda ma, mb, b, ca, cb: [(ma - b, mb - b), (b - ma, b - mb)]),
        block(corrections=lambda ma, mb, b, ca, cb: [(ma - b, mb - b), (b - ma, b - mb)], safe=False),
        block(corrections=lambda ma, mb, b, ca, cb: [(finite(ma) - b, finite(mb) - b)]),
    ),
    "no-common-maximum": block32(corrections=lambda ma, mb, b, ca, cb: [(np.exp(ma), np.exp(mb))]),
    "sum-not-corrected": block(corrections=lambda ma, mb, b, ca, cb: [(1.0, 1.0, ca, cb)]),
    "half-as-one-key": block(lo=keyed),
    "output-not-corrected": block(corrections=lambda ma, mb, b, ca, cb: [(ca, cb, 1.0, 1.0)]),
    "output-times-l": block(
        lo=lambda sums, o, la, oa, lb, ob, ca, cb: [(sums, ca * la * oa + cb * lb * ob), (sums, sums * o)]
    ),
    "halves-divided": halves,
    "rescaled-to-one-half": both(
        either(
            to_one_half,
            lambda *a: block(m=lambda ma, mb: ma, corrections=rescaled)(*a),
            lambda *a: block(m=lambda ma, mb: mb, corrections=rescaled)(*a),
            block(corrections=rescaled),
            block(corrections=lambda ma, mb, b, ca, cb: [(1.0, np.exp(mb - ma)), (np.exp(ma - mb), 1.0)]),
            block(m=lambda ma, mb: ma, corrections=lambda ma, mb, b, ca, cb: [(1.0, np.exp(mb - ma))]),
            block(m=lambda ma, mb: mb, corrections=lambda ma, mb, b, ca, cb: [(np.exp(ma - mb), 1.0)]),
        )
    ),
    "unstable-softmax": on_paper,
    "unstable-and-nan-for-empty-row": on_paper,
    "ratio-of-two-m": either(
        block(corrections=lambda ma, mb, b, ca, cb: [(ma / b, mb / b), (b / ma, b / mb)]),
        block(corrections=lambda ma, mb, b, ca, cb: [(ma / b, mb / b), (b / ma, b / mb)], safe=False),
        block(corrections=lambda ma, mb, b, ca, cb: [(np.exp(ma / b), np.exp(mb / b))]),
    ),
}
CLAIMS |= claims("merge_blocks", MERGE, says)
CLAIMS |= {
    ("merge_blocks", "nan-for-empty-row"): nan_if_empty,
    ("merge_blocks", "m-made-finite"): m_finite,
    ("merge_blocks", "minimum"): m_is(lambda ma, mb: [np.minimum(ma, mb)]),
    ("merge_blocks", "one-m-for-all-queries"): m_is(
        lambda ma, mb: (
            [c for x in [np.maximum(ma, mb).max()] for c in (x, np.full_like(ma, x), np.full((1, 1), x))]
            + [np.full_like(ma, ma.max()), np.full_like(mb, mb.max())]
        )
    ),
    ("merge_blocks", "another-m"): m_is(lambda ma, mb: [ma + mb, (ma + mb) / 2, np.logaddexp(ma, mb)]),
    ("merge_blocks", "divided-too-early"): part(undivided),
    ("merge_blocks", "output-only"): part(
        lambda m, sums, o: [o, o / sums, o / share(sums), np.nan_to_num(o / sums), (o,), (o / sums,)]
    ),
    ("merge_blocks", "m-left-out"): part(lambda m, sums, o: [(sums, o)]),
    ("merge_blocks", "another-order"): part(
        lambda m, sums, o: [(m, o, sums), (sums, m, o), (sums, o, m), (o, m, sums), (o, sums, m)]
    ),
    ("merge_blocks", "python-max"): never,
}


def counts(candidates):
    """A predicate: the count is one of what ``candidates`` makes of P, S and the arguments."""

    def predicate(problem, expected, got):
        q, k, d, h = (float(x) for x in problem)
        got = array(got)
        p, s = 4 * (q + k) * d * d, 4 * q * k * d
        return got.shape in {(), (1,)} and any(
            np.isclose(float(got.sum()), c, rtol=1e-6) for c in candidates(p, s, q, k, d, h)
        )

    return predicate


def parts(problem, expected, got):
    items = [array(g) for g in got] if isinstance(got, tuple) else [array(got)]
    values = np.concatenate([i.ravel() for i in items])
    return bool(len(values) > 1 and np.isclose(values.sum(), float(array(expected))))


def some_times(x, s, q, k, d):
    """One or more of the four projections count x times."""
    return [
        2 * (n * q + m * k) * d * d + s
        for n in (2, 1 + x, 2 * x)
        for m in (2, 1 + x, 2 * x)
        if n != 2 or m != 2
    ]


FLOPS = {
    "all-projections-of-the-queries": lambda p, s, q, k, d, h: [8 * q * d * d + s],
    "all-projections-of-the-keys": lambda p, s, q, k, d, h: [8 * k * d * d + s],
    "output-of-the-keys": lambda p, s, q, k, d, h: [2 * (q + 3 * k) * d * d + s],
    "three-projections-of-the-queries": lambda p, s, q, k, d, h: [2 * (3 * q + k) * d * d + s],
    "no-output-projection": lambda p, s, q, k, d, h: [2 * (q + 2 * k) * d * d + s],
    "one-projection-of-the-keys": lambda p, s, q, k, d, h: [2 * (n * q + k) * d * d + s for n in (1, 2)],
    "three-projections-of-one-length": lambda p, s, q, k, d, h: [6 * n * d * d + s for n in (q, k)],
    "projections-halved": lambda p, s, q, k, d, h: [p / 2 + s],
    "projections-of-both": lambda p, s, q, k, d, h: [n * (q + k) * d * d + s for n in (6, 8)],
    "projections-without-tokens": lambda p, s, q, k, d, h: [n * d * d + s for n in (1, 2, 3, 4, 6, 8)],
    "projections-for-each-head": lambda p, s, q, k, d, h: some_times(h, s, q, k, d),
    "projections-of-one-head": lambda p, s, q, k, d, h: some_times(1 / h, s, q, k, d),
    "projections-of-d_k-by-d_k": lambda p, s, q, k, d, h: [p / h + s, p / h**2 + s],
    "scores-halved": lambda p, s, q, k, d, h: [p + s / 2],
    "scores-of-one-length": lambda p, s, q, k, d, h: [
        p + 2 * d * (a + b) for a in (q * q, k * k, q * k) for b in (q * q, k * k, q * k)
    ],
    "scores-of-all-tokens": lambda p, s, q, k, d, h: [p + 4 * d * (q + k) ** 2],
    "scores-of-both-with-themselves": lambda p, s, q, k, d, h: [p + n * d * (q * q + k * k) for n in (2, 4)],
    "lengths-added": lambda p, s, q, k, d, h: [p + n * d * (q + k) for n in (2, 4)],
    "counted-per-head": lambda p, s, q, k, d, h: [p + s * h, p + s * (h + 1) / 2],
    "one-head": lambda p, s, q, k, d, h: [p + s / h, p + s * (1 + 1 / h) / 2],
    "multiplications-only": lambda p, s, q, k, d, h: [(p + s) / 2],
    "everything-times-heads": lambda p, s, q, k, d, h: [(p + s) * h],
    "everything-divided-by-heads": lambda p, s, q, k, d, h: [(p + s) / h],
    "projections-forgotten": lambda p, s, q, k, d, h: [s],
    "projections-only": lambda p, s, q, k, d, h: [p],
}
CLAIMS |= claims("predict_flops", FLOPS, counts)
CLAIMS["predict_flops", "not-added-up"] = parts


def fits(candidates):
    """A predicate: the number is one of what ``candidates`` makes of the room and the five sizes."""

    def predicate(problem, expected, got):
        got = array(got)
        right = [float(c) for c in candidates(*(int(x) for x in problem))]
        return got.shape in {(), (1,)} and any(np.isclose(float(got.sum()), c, rtol=1e-6) for c in right)

    return predicate


def times(factors):
    """Whole tokens, if one takes so many times the right bytes."""
    return lambda room, *sizes: [room // (token(*sizes) * f) for f in factors(*sizes)]


def token(layers, heads, d_k, size):
    return 2 * layers * heads * d_k * size


def whole_table(room, layers, heads, d_k, size):
    """As many rows and columns as fit, one table for each head, in one layer or in all."""
    entries = [a * heads * b for a in (1, layers, 2 * layers) for b in (4, size)]
    return [np.floor(np.sqrt(room // e)) for e in entries]


def table_and_keys(room, layers, heads, d_k, size):
    n = np.arange(1, 200_000, dtype=float)
    taken = layers * heads * size * (n * n + 2 * d_k * n)
    return [float((taken <= room).sum())]


CONTEXT = {
    "keys-only": times(lambda *sizes: [Fraction(1, 2)]),
    "queries-kept": times(lambda *sizes: [Fraction(3, 2)]),
    "one-layer": times(lambda layers, heads, d_k, size: [Fraction(1, layers)]),
    "one-head": times(lambda layers, heads, d_k, size: [Fraction(1, heads)]),
    "heads-counted-twice": times(lambda layers, heads, d_k, size: [heads]),
    "width-left-out": times(lambda layers, heads, d_k, size: [Fraction(1, d_k)]),
    "width-squared": times(lambda layers, heads, d_k, size: [d_k]),
    "numbers-not-bytes": times(lambda layers, heads, d_k, size: [Fraction(1, size)]),
    "bits": times(lambda layers, heads, d_k, size: [8, Fraction(8, size)]),
    "always-float32": times(lambda layers, heads, d_k, size: [Fraction(4, size)]),
    "always-float16": times(lambda layers, heads, d_k, size: [Fraction(2, size)]),
    "rounded-up": lambda room, *sizes: [np.ceil(room / token(*sizes))],
    "rounded-to-nearest": lambda room, *sizes: [np.round(room / token(*sizes))],
    "not-rounded": lambda room, *sizes: [room / token(*sizes)],
    "one-token-fewer": lambda room, *sizes: [room // token(*sizes) - 1],
    "one-token-more": lambda room, *sizes: [room // token(*sizes) + 1],
    "square-root": lambda room, *sizes: [
        f(np.sqrt(room / token(*sizes))) for f in (np.floor, np.ceil, float)
    ],
    "what-is-left": lambda room, *sizes: [room % token(*sizes)],
    "bytes-of-one-token": lambda room, *sizes: [token(*sizes)],
    "multiplied-by-room": lambda room, *sizes: [room * token(*sizes)],
    "upside-down": lambda room, *sizes: [token(*sizes) / room, token(*sizes) // room],
    "weights-instead": whole_table,
    "weights-as-well": table_and_keys,
}
CLAIMS |= claims("longest_context", CONTEXT, fits)

# --- uncorrected_mean: six scores, read in pairs


def two_outputs(got):
    """The output if no sum is corrected, and the right one, key by key."""
    top, weights = -np.inf, []
    for pair in np.asarray(got, dtype=float).reshape(3, 2):
        top = max(top, *pair)
        weights += [0.0 if score == -np.inf else np.exp(score - top) for score in pair]
    values = 10.0 * np.arange(1, 7)
    whole = softmax(np.asarray(got, dtype=float))
    return values @ weights / sum(weights), values @ whole


def six(holds):
    """About six numbers, and their two outputs."""
    return lambda got: np.shape(got) == (6,) and holds(np.asarray(got, dtype=float), *two_outputs(got))


UNCORRECTED = {
    "the-picture": lambda got: not isinstance(got, np.ndarray),
    "output-returned": lambda got: np.size(got) == 1,
    "where-the-picture-begins": six(lambda s, w, r: np.allclose(np.exp(s), [1, 4, 2, 8, 1, 4], rtol=1e-2)),
    "all-equal": six(lambda s, w, r: s.max() - s.min() < 0.02 and abs(w - r) < 0.2),
    "weights-returned": six(lambda s, w, r: abs(s.sum() - 1) < 0.01),
    "right-output-too-small": six(lambda s, w, r: abs(w - 35) <= 0.5 and r < 54),
    "keys-counted-differently": six(lambda s, w, r: abs(w - 35) > 0.5 and r >= 54),
    "neither-output": six(lambda s, w, r: abs(w - 35) > 0.5 and r < 54),
}
CLAIMS |= claims("uncorrected_mean", UNCORRECTED, of_result)
