"""What is said of answers to the exercises of chapter 09, asked of the numbers."""

import numpy as np
from numpy import cos, sin

from tests.check.claims.results import array, claims, never, of_result, same, softmax

# --- The bias of relative positions: `index(rel, D, n, heads)` gives the column for each distance.


def distances(p):
    """The table, n, D, and the distances in either direction."""
    table, i = array(p[0]), np.arange(int(p[1]))
    return table, len(i), table.shape[1] // 2, (i[None] - i[:, None], i[:, None] - i[None])


def indexed(*index):
    """The bias with one of these columns for the distances, in either direction."""

    def holds(p, e, got):
        table, n, big, rels = distances(p)
        found = [f(r, big, n, len(table)) for r in rels for f in index]
        width = table.shape[1]
        return same(got, *[table[:, c] for c in found if c.min() >= -width and c.max() < width])

    return holds


def two_signs(make):
    """One of make(table, bias, columns), where the sign of the distance may be wrong, too."""

    def holds(p, e, got):
        table, _, big, rels = distances(p)
        columns = [np.clip(r, -big, big) + big for r in rels]
        return any(same(got, *make(table, table[:, c], c)) for c in columns)

    return holds


def off(k):
    return lambda r, big, n, h: np.clip(r, -big, big) + big + k


def with_size(size):
    """Another D for clipping, for the shift, or for both."""
    return [
        lambda r, big, n, h: np.clip(r, -size(big, n, h), size(big, n, h)) + size(big, n, h),
        lambda r, big, n, h: np.clip(r, -size(big, n, h), size(big, n, h)) + big,
        lambda r, big, n, h: np.clip(r, -big, big) + size(big, n, h),
    ]


def positions(n):
    return np.arange(n)[None] + np.arange(n)[:, None]


def sum_of_positions(r, big, n, h):
    return np.clip(positions(n), -big, big) + big


def one_axis(p, e, got):
    table, n = array(p[0]), int(p[1])
    big, i = table.shape[1] // 2, np.arange(n)
    lines = [np.clip(s * i + o, -big, big) + big for s in (1, 0, -1) for o in (0, 1 - n, n - 1)]
    found = [table[:, c] for c in lines]
    return same(got, *(found + [np.broadcast_to(f[:, None], (len(table), n, n)) for f in found]))


def clipped(limits, back):
    return lambda r, b, n, h: back(np.clip(r, *limits(b, n)) + b, b)


# What lies beyond D on one side at least is not that of D; what lies within is right.
NOT_CLIPPED = [
    clipped(limits, back)
    for limits in (lambda b, n: (-n, n), lambda b, n: (-b, n), lambda b, n: (-n, b))
    for back in (
        lambda c, b: c,
        lambda c, b: c % (2 * b + 1),
        lambda c, b: np.clip(c, 0, None),
        lambda c, b: np.clip(c, None, 2 * b),
    )
]


def clipped_too_soon(p, e, got):
    big = array(p[0]).shape[1] // 2
    limits = [(-a, b) for a in range(big + 1) for b in range(big + 1) if a + b < 2 * big]
    return indexed(*[clipped(lambda b, n, ends=ends: ends, lambda c, b: c) for ends in limits])(p, e, got)


def rows_indexed(p, e, got):
    table, n = array(p[0]), int(p[1])
    return array(got).shape[:2] == (n, n) and bool(
        all((table == row).all(1).any() for row in array(got).reshape(n * n, -1))
        if array(got).ndim == 3
        else False
    )


def half_zero(p, e, got):
    n = int(p[1])
    if n < 2 or array(got).shape != array(e).shape:
        return False
    g = array(got)
    upper, lower = np.triu_indices(n, 1), np.tril_indices(n, -1)
    return bool(all(np.all(h[upper] == 0) for h in g) or all(np.all(h[lower] == 0) for h in g))


def far_zero(table, bias, c):
    n = bias.shape[-1]
    big, i = table.shape[1] // 2, np.arange(n)
    return [np.where(np.abs(i[None] - i[:, None]) > big, 0, bias)]


def modulo(r, big, n, h):
    return (r + big) % (2 * big + 1)


BIAS = {
    "sign-lost": indexed(
        lambda r, b, n, h: np.clip(abs(r), -b, b) + b, lambda r, b, n, h: b - np.clip(abs(r), -b, b)
    ),
    "one-side-only": indexed(
        lambda r, b, n, h: np.clip(r, 0, b) + b, lambda r, b, n, h: np.clip(r, -b, 0) + b
    ),
    "no-distance": indexed(
        lambda r, b, n, h: 0 * r + b, lambda r, b, n, h: 0 * r[:1] + b, lambda r, b, n, h: 0 * r[:, :1] + b
    ),
    "one-axis-of-positions": one_axis,
    "sum-of-positions": indexed(sum_of_positions),
    "one-too-small": indexed(*with_size(lambda b, n, h: b - 1)),
    "middle-from-the-heads": indexed(
        *[
            f
            for g in (lambda b, n, h: h // 2, lambda b, n, h: h, lambda b, n, h: (h - 1) // 2)
            for f in with_size(g)
        ]
    ),
    "middle-as-in-step-3": indexed(*with_size(lambda b, n, h: 2)),
    "middle-from-n": indexed(
        *[
            f
            for g in (lambda b, n, h: n // 2, lambda b, n, h: n - 1, lambda b, n, h: n)
            for f in with_size(g)
        ],
        *with_size(lambda b, n, h: (n - 1) // 2),
    ),
    "shifted-too-far": indexed(
        *[lambda r, b, n, h, k=k: np.clip(r, -b, b) + 2 * b + k for k in (0, 1)],
        *[lambda r, b, n, h, k=k: (np.clip(r, -b, b) + 2 * b + k).clip(0, 2 * b) for k in (0, 1)],
    ),
    "not-shifted": indexed(
        lambda r, b, n, h: np.clip(r, 0, 2 * b),
        lambda r, b, n, h: np.clip(r, None, b),
        lambda r, b, n, h: r,
        lambda r, b, n, h: np.clip(r, -b, b),
        lambda r, b, n, h: np.clip(r, 0, b),
    ),
    "one-column-off": indexed(
        off(1), off(-1), *[lambda r, b, n, h, k=k: off(k)(r, b, n, h).clip(0, 2 * b) for k in (1, -1)]
    ),
    "counted-from-the-end": indexed(lambda r, b, n, h: np.clip(r, -b, b) - b),
    "clipped-after-the-shift": indexed(lambda r, b, n, h: np.clip(r + b, -b, b)),
    "not-clipped": indexed(*NOT_CLIPPED),
    "clipped-too-soon": clipped_too_soon,
    "wrapped-around": indexed(modulo),
    "heads-turned-around": two_signs(lambda t, b, c: [b[::-1]]),
    "sign-of-the-bias": two_signs(lambda t, b, c: [-b]),
    "rows-indexed": rows_indexed,
    "one-head": two_signs(
        lambda t, b, c: [x for h in range(len(t)) for x in (b[h], b[h : h + 1], 0 * b + b[h])]
    ),
    "heads-last": two_signs(lambda t, b, c: [b.transpose(1, 2, 0)]),
    "heads-in-the-middle": two_signs(lambda t, b, c: [b.transpose(1, 0, 2)]),
    "half-of-it-0": half_zero,
    "far-is-zero": two_signs(far_zero),
    "negative-step": never,
}

# --- ALiBi.


def right(a, n):
    w = np.exp(-a * np.arange(n)[::-1])
    return w / w.sum()


def row(test):
    """test(slope, n, got) for a result that is one row, of n numbers."""

    def holds(p, e, got):
        a, n, got = float(p[0]), int(p[1]), array(got)
        return got.shape == (n,) and bool(test(a, n, got))

    return holds


def among(make):
    """One of make(slope, n, distance), where distance is n - 1, ..., 1, 0."""
    return lambda p, e, got: same(got, *make(float(p[0]), int(p[1]), np.arange(int(p[1]))[::-1] * 1.0))


def close(x, y):
    return np.allclose(x, y, rtol=1e-3, atol=1e-3)


def factor(g, f):
    return len(g) < 2 or close(g[:-1], f * g[1:]) or close(g[1:], f * g[:-1])


def fixed(a, n, g):
    """A geometric row, whose factor is one that the slope does not give."""
    if n < 2 or np.any(g <= 0):
        return False
    f = g[:-1] / g[1:]
    usual = [np.exp(-1), 0.5, 0.25, 2**-8, 0.1, np.e, 2, 4, 1 / 3, 0.9, 0.75]
    return close(f, f[0]) and any(np.isclose(f[0], u, rtol=1e-3) for u in usual)


def straight(a, n, g):
    return n < 3 or (close(np.diff(g), np.diff(g)[0]) and not close(g, g[0])) or (n < 2)


def cut_line(a, n, g):
    inside = g > 1e-9
    return np.all(g >= 0) and (inside.sum() < 3 or close(np.diff(np.diff(g[inside])), 0))


def hyperbolic(a, n, g):
    if np.any(g == 0):
        return False
    d = np.diff(1 / g)
    return n >= 2 and np.allclose(d, d[0], rtol=1e-2, atol=1e-3) and not close(g, g[0])


def powers_of_2(a, n, d):
    w = 2.0 ** (-a * d)
    return [w, w / w.sum(), w / n, 2.0**-d, 2.0**-d / (2.0**-d).sum()]


def with_penalty(f):
    return among(lambda a, n, d: [x for s in f(a, n, d) for x in (softmax(-s), np.exp(-s))])


def proportional(g, w):
    return abs(g).sum() > 0 and np.allclose(g / g[-1] * w[-1], w, rtol=1e-3, atol=1e-3) if g[-1] else False


def scores(a, n, d):
    s = -a * d
    with np.errstate(all="ignore"):
        return [s, -s, s / s.sum(), 1 + s, (1 + s) / (1 + s).sum(), s / n, (1 + s) / n, 1 - s]


def another_sum(a, n, g):
    w = right(a, n)
    if not np.isfinite(g).all():
        return n == 1
    return proportional(g, w) and abs(g.sum() - 1) > 1e-3 and not close(g, w / w[-1])


ALIBI = {
    "fixed-answer": among(lambda a, n, d: [right(0.25, 3), right(np.log(2), 3)]),
    "line-without-the-slope": row(lambda a, n, g: straight(a, n, g)),
    "penalty-added": among(lambda a, n, d: [np.exp(a * d), a * d + np.exp(0 * d), np.exp(a * d[::-1])]),
    "one-softmax-more": among(
        lambda a, n, d: [softmax(w[::s]) for w in (right(a, n), np.exp(-a * d)) for s in (1, -1)]
    ),
    "logarithms": among(lambda a, n, d: [np.log(right(a, n)), np.log2(right(a, n)), np.log10(right(a, n))]),
    "scores-returned": among(lambda a, n, d: [a * d, -a * d, a * d[::-1], -a * d[::-1]]),
    "all-rows": lambda p, e, got: array(got).ndim >= 2 and array(got).shape[-2:] == (int(p[1]), int(p[1])),
    "first-row": among(lambda a, n, d: [np.eye(n)[0], np.eye(n)[0][:1]]),
    "negative-step": never,
    "counts-down-without-a-step": lambda p, e, got: array(got).size == 0,
    "a-list-times-a-number": never,
    "back-to-front": row(lambda a, n, g: n > 1 and np.all(np.diff(g) <= 0) and g[0] > g[-1]),
    "all-alike": row(lambda a, n, g: close(g, g[0])),
    "fixed-factor": row(fixed),
    "straight-line": row(straight),
    "line-cut-at-0": row(cut_line),
    "penalty-on-the-mean": among(
        lambda a, n, d: [x for s in (1 / n - a * d, np.maximum(1 / n - a * d, 0)) for x in (s, s / s.sum())]
    ),
    "hyperbola": row(hyperbolic),
    "slope-as-factor": row(lambda a, n, g: factor(g, a)),
    "one-minus-slope-as-factor": row(lambda a, n, g: factor(g, 1 - a)),
    "powers-of-2": among(powers_of_2),
    "divided-by-the-slope": with_penalty(lambda a, n, d: [d / a]),
    "distance-squared": with_penalty(lambda a, n, d: [a * d * d, (a * d) ** 2]),
    "penalty-divided": row(
        lambda a, n, g: (
            n > 1
            and np.all(g > 0)
            and close(np.diff(np.diff(np.log(g))), 0)
            and 1e-9 < np.log(g[-1] / g[-2]) < a * 0.999
        )
    ),
    "no-exp": among(scores),
    "not-normalised": among(lambda a, n, d: [np.exp(-a * d)]),
    "divided-by-n": among(lambda a, n, d: [np.exp(-a * d) / n]),
    "divided-by-another-sum": row(another_sum),
    "divided-by-the-length": among(lambda a, n, d: [right(a, n) / np.linalg.norm(right(a, n))]),
}

# --- Rotary positions.


def turn(a, b, t):
    return a * np.cos(t) - b * np.sin(t), a * np.sin(t) + b * np.cos(t)


def neighbours(x):
    return x[..., 0::2], x[..., 1::2]


def halves(x):
    return x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]


def side_by_side(a, b):
    return np.stack([a, b], -1).reshape(*a.shape[:-1], -1)


def one_after_other(a, b):
    return np.concatenate([a, b], -1)


def exponents(d):
    return -np.arange(0, d, 2) / d


def rotated(pairs=neighbours, speeds=None, turned=turn, write=side_by_side, pos=None, angle=None):
    def make(x, p):
        d = x.shape[-1]
        with np.errstate(all="ignore"):
            s = np.asarray(speeds(x, d) if speeds else 10000.0 ** exponents(d)) * np.ones(d // 2)
            t = (pos(p, x) if pos else p)[:, None] * s
            t = angle(t, d) if angle else t
            return write(*turned(*pairs(x), t))

    return make


def rope(*makers):
    def holds(p, e, got):
        x, positions = array(p[0]), array(p[1])
        found = []
        for f in makers:
            try:
                found.append(f(x, positions))
            except (ValueError, IndexError):
                continue
        return same(got, *found)

    return holds


def changed(step):
    """Predicates about this step of ``rotated``: one of these functions is in its place."""
    return lambda *fs: rope(*[rotated(**{step: f}) for f in fs])


speeds, angles, counted, formulas = map(changed, ("speeds", "angle", "pos", "turned"))


def swapped(f):
    return lambda x: f(x)[::-1]


def overwrite_a(a, b, t):
    new = a * cos(t) - b * sin(t)
    return new, new * sin(t) + b * cos(t)


def overwrite_b(a, b, t):
    new = a * sin(t) + b * cos(t)
    return a * cos(t) - new * sin(t), new


def not_mixed(p, e, got):
    """Each number depends on one number of its pair: it is that number times something."""
    makers = [
        lambda a, b, t: (a * cos(t), b * sin(t)),
        lambda a, b, t: (a * cos(t), b * cos(t)),
        lambda a, b, t: (a * sin(t), b * cos(t)),
        lambda a, b, t: (a * cos(t) - a * sin(t), b * sin(t) + b * cos(t)),
        lambda a, b, t: (a * cos(t) + a * sin(t), b * cos(t) - b * sin(t)),
        lambda a, b, t: (a * cos(t) - a * sin(t), b * cos(t) - b * sin(t)),
        lambda a, b, t: (a * cos(t) + a * sin(t), b * cos(t) + b * sin(t)),
        lambda a, b, t: (a * cos(t) - a * sin(t), a * sin(t) + a * cos(t)),
        lambda a, b, t: (b * cos(t) - b * sin(t), b * sin(t) + b * cos(t)),
        lambda a, b, t: (a * sin(t), b * sin(t)),
    ]
    return formulas(*makers)(p, e, got)


def phases(p, got):
    x, got = array(p[0]), array(got)
    if got.shape != x.shape:
        return None
    z, w = (neighbours(v)[0] + 1j * neighbours(v)[1] for v in (x, got))
    if not np.allclose(abs(z), abs(w), rtol=1e-3, atol=1e-3):
        return None
    return w / z


def whichever_speed(p, e, got):
    """One speed, whichever: found from the first pair of a token, and true for all."""
    q = phases(p, got)
    return q is not None and bool(np.allclose(q, q[..., :1], rtol=1e-3, atol=2e-3))


def same_for_all_tokens(p, e, got):
    q = phases(p, got)
    return q is not None and bool(np.allclose(q, q[..., :1, :], rtol=1e-3, atol=2e-3))


def other_base(p, e, got):
    bases = [2, 10, 100, 1000, 1024, 5000, 50000, 500000, 1e5, 1e6, np.e, 1 / 10000, 512, 256, 9999, 10001]
    x = array(p[0])
    bases += [x.shape[-1], x.shape[-2], np.pi, 2 * np.pi]
    return rope(*[rotated(speeds=lambda x, d, b=b: float(b) ** exponents(d)) for b in bases if b > 0])(
        p, e, got
    )


def own_numbers(start):
    return lambda p, x: np.arange(x.shape[-2]) + start


def added(p, e, got):
    """got - x is a table of sines and cosines of the positions: it does not depend on x."""
    x, pos, got = array(p[0]), array(p[1]), array(got)
    if got.shape != x.shape:
        return False
    t = pos[:, None] * 10000.0 ** exponents(x.shape[-1])
    tables = [
        f(a, b) for f in (side_by_side, one_after_other) for a, b in ((sin(t), cos(t)), (cos(t), sin(t)))
    ]
    return any(close(got, x + k) for k in tables) or bool(np.all(abs(got - x) <= 1.001))


def multiplied(p, e, got):
    x, pos, got = array(p[0]), array(p[1]), array(got)
    t = pos[:, None] * 10000.0 ** exponents(x.shape[-1])
    kinds = [(f(t), g(t)) for f in (sin, cos) for g in (sin, cos)]
    return same(got, *[x * f(a, b) for f in (side_by_side, one_after_other) for a, b in kinds])


def per_column(p, e, got):
    x, pos = array(p[0]), array(p[1])
    d = x.shape[-1]
    c = np.arange(d)
    a, b = neighbours(x)
    for s in (10000.0 ** (-c / d), 10000.0 ** (-2 * c / d), 10000.0 ** (-2 * (c % (d // 2)) / d)):
        t = pos[:, None] * s
        u, v = neighbours(t)
        found = [
            side_by_side(a * cos(u) - b * sin(u), a * sin(v) + b * cos(v)),
            side_by_side(a * cos(u) - b * sin(v), a * sin(u) + b * cos(v)),
        ]
        if same(got, *found):
            return True
    return False


def one_half(p, e, got):
    x, got = array(p[0]), array(got)
    if got.shape != x.shape:
        return False
    kept = [close(g, h) for g, h in zip(neighbours(got), neighbours(x), strict=True)]
    return bool(kept[0] != kept[1])


def pieces(p, e, got):
    x, pos = array(p[0]), array(p[1])
    a, b = turn(*neighbours(x), pos[:, None] * 10000.0 ** exponents(x.shape[-1]))
    return a, b


def in_front(p, e, got):
    a, b = pieces(p, e, got)
    stacks = [np.stack([a, b], axis) for axis in range(a.ndim)]
    shapes = [s.reshape(array(e).shape) for s in stacks]
    flat = [s.reshape(*s.shape[:-2], -1) for s in stacks if s.ndim > 1]
    return same(got, *(stacks + shapes + flat))


HALVES = {"pairs": halves, "write": one_after_other}
ROPE = {
    "other-layout": rope(rotated(**HALVES)),
    "firsts-before-seconds": rope(rotated(write=one_after_other)),
    "halves-dealt-out": rope(rotated(pairs=halves)),
    "numbers-of-the-pair-swapped": rope(
        rotated(pairs=swapped(neighbours)),
        rotated(pairs=swapped(neighbours), write=lambda a, b: side_by_side(b, a)),
    ),
    "results-swapped": rope(rotated(write=lambda a, b: side_by_side(b, a))),
    "not-flattened": rope(rotated(write=lambda a, b: np.stack([a, b], -1))),
    "no-minus": formulas(lambda a, b, t: (a * cos(t) + b * sin(t), a * sin(t) + b * cos(t))),
    "two-minuses": formulas(lambda a, b, t: (a * cos(t) - b * sin(t), -a * sin(t) + b * cos(t))),
    "cosine-and-sine-swapped": formulas(lambda a, b, t: (a * sin(t) - b * cos(t), a * cos(t) + b * sin(t))),
    "pair-not-mixed": not_mixed,
    "overwritten": formulas(overwrite_a, overwrite_b),
    "turned-backwards": angles(lambda t, d: -t),
    "one-speed": whichever_speed,
    "half-the-exponent": speeds(lambda x, d: 10000.0 ** (exponents(d) / 2)),
    "twice-the-exponent": speeds(lambda x, d: 10000.0 ** (exponents(d) * 2)),
    "counted-from-1": speeds(lambda x, d: 10000.0 ** (exponents(d) - 2 / d)),
    "size-from-the-front": speeds(
        *[lambda x, d, i=i: 10000.0 ** (exponents(d) * d / x.shape[i]) for i in (0, 1, -2)]
    ),
    "positions-ignored": counted(own_numbers(0), own_numbers(1)),
    "stacked-in-front": in_front,
    "two-results": lambda p, e, got: same(got, pieces(p, e, got)),
    "one-result": lambda p, e, got: same(got, *pieces(p, e, got)),
    "minus-at-the-cosine": formulas(
        *[lambda a, b, t, s=s: (a * cos(t) - b * sin(t), s * a * sin(t) - b * cos(t)) for s in (1, -1)],
        lambda a, b, t: (a * cos(t) + b * sin(t), a * sin(t) - b * cos(t)),
    ),
    "second-number": formulas(lambda a, b, t: (a * cos(t) - b * sin(t), a * cos(t) + b * sin(t))),
    "half-of-the-pair": one_half,
    "degrees": angles(
        *[
            lambda t, d, k=k: t * k
            for c in (1, 2, 0.5, 1 / 180, 1 / 360, 180)
            for k in (np.pi * c, 1 / (np.pi * c))
        ]
    ),
    "angle-divided": angles(lambda t, d: t / d, lambda t, d: t / np.sqrt(d)),
    "one-speed-of-another-pair": whichever_speed,
    "slowest-first": speeds(lambda x, d: 10000.0 ** exponents(d)[::-1]),
    "power-before-the-rest": speeds(
        lambda x, d: 10000.0**-2 * np.arange(d // 2) / d,
        lambda x, d: 10000.0**-1 * np.arange(0, d, 2) / d,
        lambda x, d: -(10000.0**2) * np.arange(d // 2) / d,
        lambda x, d: 1 / (10000.0**2) * np.arange(d // 2) / d,
        lambda x, d: 10000.0 ** -np.arange(0, d, 2) / d,
    ),
    "no-power": speeds(
        lambda x, d: 10000.0 * exponents(d),
        lambda x, d: -10000.0 * exponents(d),
        exponents and (lambda x, d: exponents(d)),
        lambda x, d: -exponents(d),
        lambda x, d: 1 / (1 + np.arange(d // 2)),
        lambda x, d: np.arange(d // 2),
        lambda x, d: np.arange(d // 2) + 1,
        lambda x, d: np.exp(exponents(d)),
        lambda x, d: 10000.0 / (1 + np.arange(d // 2)),
    ),
    "whole-exponent": speeds(
        lambda x, d: 10000.0 ** np.floor(exponents(d)),
        lambda x, d: 10000.0 ** -np.floor(-exponents(d)),
        lambda x, d: 10000.0 ** np.round(exponents(d)),
        lambda x, d: 10000.0 ** (-2.0 * (np.arange(d // 2) // d)),
    ),
    "other-base": other_base,
    "down-to-1/10000": speeds(lambda x, d: 10000.0 ** np.linspace(0, -1, d // 2)),
    "no-positions": same_for_all_tokens,
    "one-position-further": counted(lambda p, x: p + 1, lambda p, x: p - 1),
    "positions-from-the-first": counted(lambda p, x: p - p[0]),
    "speed-per-column": per_column,
    "added-not-turned": added,
    "multiplied-not-turned": multiplied,
    "two-axes": counted(own_numbers(0)),
    "negative-power-of-whole-numbers": never,
}

CLAIMS = claims("fix_relative_bias", BIAS) | claims("predict_alibi_weights", ALIBI)
CLAIMS |= claims("rotate_pairs", ROPE)


# --- One new token and a cache of turned keys.


def turned(x, at, **layout):
    """(num_heads, d) or (num_heads, n, d), each token at its position: `at` is a number or (n,)."""
    return rotated(**layout)(x, np.broadcast_to(at, x.shape[-2:-1]))


def scored(query, key, cache):
    """Scores with the old keys, then with the new one."""
    keys = np.concatenate([cache, key[:, None]], axis=1)
    return np.einsum("hd,hnd->hn", query, keys) / query.shape[-1] ** 0.5


def token(make):
    """One of what ``make`` returns of the new query, the new key, the old keys and their number."""

    def holds(p, e, got):
        q, k, old = map(array, p)
        return same(got, *make(q, k, old, old.shape[1]))

    return holds


def new_scores(q, k, old, n):
    return scored(turned(q, n), turned(k, n), old)


NEW_TOKEN = {
    "query-not-turned": lambda q, k, old, n: [scored(q, turned(k, n), old)],
    "new-key-not-turned": lambda q, k, old, n: [scored(turned(q, n), k, old)],
    "nothing-turned": lambda q, k, old, n: [scored(q, k, old)],
    "cache-turned-again": lambda q, k, old, n: [
        scored(turned(q, n), turned(k, n), turned(old, np.arange(n)))
    ],
    "new-key-first": lambda q, k, old, n: [np.roll(new_scores(q, k, old, n), 1, axis=1)],
    "new-key-left-out": lambda q, k, old, n: [new_scores(q, k, old, n)[:, :-1]],
    "not-scaled": lambda q, k, old, n: [new_scores(q, k, old, n) * q.shape[-1] ** 0.5],
    "weights-returned": lambda q, k, old, n: [softmax(new_scores(q, k, old, n))],
    "heads-taken-for-tokens": lambda q, k, old, n: [
        scored(turned(q, np.arange(len(q))), turned(k, np.arange(len(q))), old)
    ],
    "one-position-too-far": lambda q, k, old, n: [scored(turned(q, n + 1), turned(k, n + 1), old)],
    "one-position-too-early": lambda q, k, old, n: [scored(turned(q, n - 1), turned(k, n - 1), old)],
    "other-layout": lambda q, k, old, n: [scored(turned(q, n, **HALVES), turned(k, n, **HALVES), old)],
    "axis-kept": lambda q, k, old, n: [
        new_scores(q, k, old, n)[:, None],
        new_scores(q, k, old, n)[..., None],
    ],
}
CLAIMS |= claims("score_new_token", NEW_TOKEN, token)

# --- lowest_after_shift: the query at i, the key at j, with sinusoidal positions of base 100


def shifted_score(i, j):
    def hand(p):
        return [f(p * 100 ** (-r / 4)) for r in range(4) for f in (np.sin, np.cos)]

    query = np.array([1.5, 1.0, 2.0, 0.5, 1.0, 1.5, 1.0, -0.5]) + hand(i)
    key = np.array([0.5, 2.0, 1.5, 1.0, -1.0, 1.5, 1.0, 1.0]) + hand(j)
    return query @ key / np.sqrt(8)


SHIFTED = [shifted_score(j + 3, j) for j in range(29)]  # at the distance -3, by the position of the key


def at_distance(holds):
    """About the position of a key that is three places before the query."""

    def claim(got):
        i, j = (int(x) for x in np.ravel(got))
        around = [SHIFTED[k] for k in (j - 1, j + 1) if 0 <= k < len(SHIFTED)]
        return i - j == 3 and holds(SHIFTED[j], around)

    return claim


LOWEST = {
    "the-picture": lambda got: not isinstance(got, np.ndarray | tuple | list),
    "score-returned": lambda got: np.size(got) == 1,
    "off-the-strip": lambda got: np.size(got) == 2 and (np.min(got) < 0 or np.max(got) > 31),
    "swapped": lambda got: SHIFTED.index(min(SHIFTED)) == np.ravel(got)[0] == np.ravel(got)[1] - 3,
    "another-distance": lambda got: np.ravel(got)[1] - np.ravel(got)[0] != -3,
    "where-the-picture-begins": lambda got: np.ravel(got).tolist() == [8, 5],
    "highest": at_distance(lambda here, around: here == max(SHIFTED)),
    "another-valley": at_distance(lambda here, around: min(SHIFTED) < here < min(around)),
    "not-lowest": at_distance(lambda here, around: here > min(around)),
}
CLAIMS |= claims("lowest_after_shift", LOWEST, of_result)
