"""What is said of answers to the exercises of chapter 05, asked of the numbers."""

from itertools import combinations, permutations

import numpy as np


def num(a):
    return np.asarray(a, dtype=float)


def is_one_of(got, candidates):
    if isinstance(got, tuple):
        return False
    got = num(got)
    return any(
        num(c).shape == got.shape and np.allclose(got, num(c), rtol=1e-3, atol=1e-3, equal_nan=True)
        for c in candidates
    )


# --- Contributions of the heads to the output.


def times_slices(heads, slices):
    """What each head writes with its own (d_v, d_model), one on the new axis 1."""
    return np.stack([heads[:, h] @ slices[h] for h in range(heads.shape[1])], axis=1)


def contributions(heads, w_o):
    return times_slices(heads, w_o.reshape(heads.shape[1], heads.shape[3], -1))


def rearranged(heads, w_o, order):
    b, h, n, d = heads.shape
    merged = heads.transpose(order).reshape(b, n, h * d)
    return contributions(merged.reshape(b, n, h, d).transpose(0, 2, 1, 3), w_o)


def other_axes(heads, w_o):
    orders = [o for o in permutations(range(4)) if o not in ((0, 2, 1, 3), (0, 1, 2, 3))]
    swaps = [o for o in orders if sum(i != k for i, k in enumerate(o)) == 2]
    return [rearranged(heads, w_o, o) for o in swaps]


def axis_taken_for_heads(heads, w_o, axis):
    """One result for each entry of another axis, each with a slice of w_o, as far as slices fit."""
    count, d = heads.shape[axis], heads.shape[3]
    found = []
    for entries in range(1, count + 1):
        parts = [np.take(heads, i, axis=axis) for i in range(entries)]
        rows = [w_o[i * d : (i + 1) * d] for i in range(entries)]
        if all(r.shape[0] == d for r in rows):
            found.append([p @ r for p, r in zip(parts, rows, strict=True)])
    return found


ROWS = {
    "merge-without-transpose": lambda x, w: [rearranged(x, w, (0, 1, 2, 3))],
    "other-axes-swapped": other_axes,
    "heads-take-turns": lambda x, w: [times_slices(x, [w[h :: x.shape[1]] for h in range(x.shape[1])])],
    "overlapping-slices": lambda x, w: [times_slices(x, [w[h : h + x.shape[3]] for h in range(x.shape[1])])],
    "first-rows-for-all": lambda x, w: [times_slices(x, [w[: x.shape[3]]] * x.shape[1])],
    "slices-in-reverse": lambda x, w: [times_slices(x, w.reshape(x.shape[1], x.shape[3], -1)[::-1])],
}


def split_output(x, w):
    out, h = contributions(x, w).sum(1), x.shape[1]
    width = -(-out.shape[-1] // h)
    found = []
    for pieces in (
        np.array_split(out, h, axis=-1),
        [out[..., i * width : (i + 1) * width] for i in range(h)],
    ):
        if len({p.shape for p in pieces}) == 1:
            found += [np.stack(pieces, axis=1), np.stack(pieces, axis=2)]
    if out.shape[-1] % h == 0:
        found.append(np.stack([out[..., i::h] for i in range(h)], axis=1))
    return found


def not_alone(x, w):
    slices = w.reshape(x.shape[1], x.shape[3], -1)
    return [
        np.einsum("bnd,hde->bhne", x.sum(1), slices),
        np.einsum("bhnd,de->bhne", x, slices.sum(0)),
    ]


def all_rows(x, w):
    d = x.shape[3]
    if w.shape[0] != d:
        return []
    return [np.stack([x[:, h] @ w[:, h * d : (h + 1) * d] for h in range(x.shape[1])], axis=1)]


def cut_transpose(x, w):
    h, d, t = x.shape[1], x.shape[3], w.T
    found = [t.reshape(h, d, -1)] if t.size == h * d * (t.size // (h * d)) else []
    rows = [t[i * d : (i + 1) * d] for i in range(h)]
    found += [rows] if all(r.shape[0] == d for r in rows) else []
    return [times_slices(x, s) for s in found]


def joined(x, w):
    c = contributions(x, w)
    return [np.concatenate(list(c.swapaxes(0, 1)), axis=a) for a in (0, 1, 2)]


def swapped_axes_of_w(x, w):
    seen = w.reshape(x.shape[3], x.shape[1], -1)
    found = [times_slices(x, seen.swapaxes(0, 1))]
    return found + ([times_slices(x, seen)] if x.shape[1] == x.shape[3] else [])


def batch_for_heads(x, w):
    found = []
    for parts in axis_taken_for_heads(x, w, 0):
        found += [np.stack(parts, 0), np.stack(parts, 1)]
    b, rows = x.shape[0], w.shape[0]
    if rows == b * x.shape[3]:
        found.append(x @ w.reshape(b, x.shape[3], -1)[:, None])
    return found


ALONE = {
    "summed-over-heads": lambda x, w: [contributions(x, w).sum(1, keepdims=k) for k in (False, True)],
    "heads-averaged": lambda x, w: [contributions(x, w).mean(1, keepdims=k) for k in (False, True)],
    "not-swapped-back": lambda x, w: [contributions(x, w).swapaxes(1, 2)],
    "heads-in-front": lambda x, w: [contributions(x, w).swapaxes(0, 1)],
    "heads-last": lambda x, w: [np.moveaxis(contributions(x, w), 1, -1)],
    "joined-not-stacked": joined,
    "running-sums": lambda x, w: [contributions(x, w).cumsum(1)],
    "first-head-only": lambda x, w: [contributions(x, w)[:, 0], contributions(x, w)[:, :1]],
    "last-head-only": lambda x, w: [contributions(x, w)[:, -1], contributions(x, w)[:, -1:]],
    "output-split": split_output,
    "output-shared-equally": lambda x, w: [
        0 * contributions(x, w) + contributions(x, w).mean(1, keepdims=True)
    ],
    "whole-output-for-each-head": lambda x, w: [
        0 * contributions(x, w) + contributions(x, w).sum(1, keepdims=True)
    ],
    "no-output-projection": lambda x, w: [x],
    "heads-not-alone": not_alone,
    "all-rows-of-w_o": all_rows,
    "axes-of-w_o-swapped": swapped_axes_of_w,
    "transpose-of-w_o": cut_transpose,
    "too-narrow": lambda x, w: [contributions(x, w)[..., :1].repeat(x.shape[3], -1)],
    "batch-taken-for-heads": batch_for_heads,
}


def side_by_side(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def transposed_projection(x, w):
    return [side_by_side(x) @ w.T] if w.shape[1] == x.shape[1] * x.shape[3] else []


def sums_over_other_axes(x, w):
    c = contributions(x, w)
    return [c.sum(a) for a in (0, 2, 3)] + [side_by_side(x).sum(a) @ w for a in (0, 1)]


def not_merged(x, w):
    return [x @ w, (x @ w).sum(1)] if w.shape[0] == x.shape[3] else []


ADDED = {
    "heads-averaged": lambda x, w: [contributions(x, w).mean(1)],
    "first-head-only": lambda x, w: [contributions(x, w)[:, 0]],
    "last-head-only": lambda x, w: [contributions(x, w)[:, -1]],
    "head-added-twice": lambda x, w: [
        c.sum(1) + c[:, h] for c in [contributions(x, w)] for h in range(c.shape[1])
    ],
}
OUTPUT = ADDED | {
    "not-summed-over-heads": lambda x, w: [contributions(x, w), contributions(x, w).swapaxes(0, 1)],
    "summed-over-another-axis": sums_over_other_axes,
    "no-output-projection": lambda x, w: [side_by_side(x)],
    "projection-transposed": transposed_projection,
    "not-merged": not_merged,
    "too-narrow": lambda x, w: [contributions(x, w).sum(1)[..., :1].repeat(w.shape[0], -1)],
}


def claim(make, finish=lambda c: c):
    return lambda p, e, got: is_one_of(got, [finish(c) for c in make(num(p[0]), num(p[1]))])


def with_bias(make):
    """Whatever became of the bias: right, not fixed, a share, none."""

    def holds(p, e, got):
        x, w, bias = map(num, p)
        h = x.shape[1]
        return is_one_of(got, [c + k * bias for c in make(x, w) for k in (0, 1, h, 1 / h, -1, h - 1, h + 1)])

    return holds


def bias_of(shares):
    """The right sum over the heads, and the bias as `shares` makes it."""

    def holds(p, e, got):
        x, w, bias = map(num, p)
        return is_one_of(got, [contributions(x, w).sum(1) + s for s in shares(x, w, bias, x.shape[1])])

    return holds


def another_size(x, w, bias, h):
    sizes = {*x.shape, *w.shape, x.ndim, w.ndim} - {h, 0}
    sizes |= {s * t for s in sizes | {h} for t in sizes | {h}} - {h}
    return [k * bias / s for s in sizes for k in (1, h)]


def divided(p, e, got):
    x, w, bias = map(num, p)
    h = x.shape[1]
    return is_one_of(got, [contributions(x, w).mean(1) + k * bias / h for k in (1, h)])


def bias_in_w(p, e, got):
    x, w, bias = map(num, p)
    out = contributions(x, w + bias).sum(1)
    shared = contributions(x, w + bias / x.shape[1]).sum(1)
    return is_one_of(got, [out, out + bias, out + x.shape[1] * bias, shared])


def bias_in_heads(p, e, got):
    """The bias joins the heads where it has their width; where it does not, an error is raised."""
    x, w, bias = map(num, p)
    side = side_by_side(x)
    fits = side.shape[-1] == len(bias)
    return fits and is_one_of(got, [(side + n * bias) @ w for n in (1, x.shape[1])])


def another_axis(x, w):
    return [sum(parts) for a in (0, 2) for parts in axis_taken_for_heads(x, w, a)]


def another_loop(p, e, got):
    if not isinstance(got, tuple):
        return with_bias(another_axis)(p, e, got)
    x = num(p[0])
    return any(isinstance(got[0], tuple) and is_one_of(got[0][0], [np.take(x, 0, axis=a)]) for a in (0, 2, 3))


BIAS = {
    "bias-for-each-head": lambda x, w, b, h: [h * b],
    "bias-ignored": lambda x, w, b, h: [0 * b],
    "bias-once-too-often": lambda x, w, b, h: [(h + 1) * b],
    "one-bias-taken-off": lambda x, w, b, h: [(h - 1) * b],
    "bias-halved": lambda x, w, b, h: [h * b / 2],
    "one-share-only": lambda x, w, b, h: [b / h],
    "heads-own-share-of-the-bias": lambda x, w, b, h: [np.where(np.arange(len(b)) < len(w), b, 0)],
    "bias-subtracted": lambda x, w, b, h: [-b, -h * b],
    "divided-by-another-size": another_size,
    "bias-for-one-head-only": lambda x, w, b, h: [b * (h == 1)],
    "share-rounded-down": lambda x, w, b, h: [h * (b // h)],
}

# --- Multi-head attention.


def softmax(s, axis=-1):
    with np.errstate(all="ignore"):
        e = np.exp(s - np.max(s, axis=axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)


def cut(y, h):
    b, n, d = y.shape
    return y.reshape(b, n, h, d // h).swapaxes(1, 2)


def cut_bare(y, h):
    b, n, d = y.shape
    return y.reshape(b, h, n, d // h)


def cut_in_turn(y, h):
    b, n, d = y.shape
    return y.reshape(b, n, d // h, h).transpose(0, 3, 1, 2)


def cut_overlapping(y, h):
    d = y.shape[-1] // h
    return np.stack([y[..., i : i + d] for i in range(h)], axis=1)


def cut_d_k(y, h):
    return cut(y, y.shape[-1] // h)


def merge_bare(c):
    b, h, n, d = c.shape
    return c.reshape(b, n, h * d)


def merge_in_turn(c):
    b, h, n, d = c.shape
    return c.transpose(0, 2, 3, 1).reshape(b, n, h * d)


def hide(s, m):
    w = softmax(np.where(m, s, -np.inf))
    return np.where(m.any(-1, keepdims=True), w, 0)


def fill(value):
    return lambda s, m: softmax(np.where(m, s, value))


def fill_and_zero(value):
    return lambda s, m: np.where(m.any(-1, keepdims=True), fill(value)(s, m), 0)


def causal(s, m, zero=True):
    return hide(s, np.tril(np.ones(s.shape[-2:], bool)) & np.ones(s.shape, bool))


def run(p, cut=cut, merge=side_by_side, scale=None, weigh=hide, w=None, scores=None, apply=None, mask=None):
    x, *mats = map(num, p[:5])
    h = int(p[5])
    m = p[6] if len(p) > 6 else None
    mats = w(x, *mats) if w else mats
    q, k, v = (cut(y if y is not None else x, h) for y in (x @ a if a is not None else x for a in mats[:3]))
    d_model, d = x.shape[-1], x.shape[-1] // h
    with np.errstate(all="ignore"):
        s = q @ k.swapaxes(-1, -2)
        s = s / np.sqrt(d) if scale is None else scale(s, d, h, d_model, x.shape[1])
        s = scores(s) if scores else s
        m = np.ones(s.shape, bool) if m is None else np.broadcast_to(np.asarray(m, bool), s.shape)
        a = weigh(s, mask(m) if mask else m)
        heads = apply(a, v) if apply else a @ v
        out = merge(heads)
        return (out @ mats[3] if mats[3] is not None else out), a


def pair(got):
    return got if isinstance(got, tuple) and len(got) == 2 else None


def attend(*options, output=None):
    """Both results are those of the attention with one of these changes."""

    def holds(p, e, got):
        got = pair(got)
        for o in options:
            try:
                out, a = run(p, **o)
            except (ValueError, IndexError):
                continue
            if got and is_one_of(got[0], [output(out, p) if output else out]) and is_one_of(got[1], [a]):
                return True
        return False

    return holds


def masked(*weigh, **others):
    need = attend(*[{"weigh": f} | others for f in weigh])
    return lambda p, e, got: len(p) > 6 and p[6] is not None and need(p, e, got)


def empty_rows(p):
    m = np.asarray(p[6], bool) if len(p) > 6 and p[6] is not None else np.ones((1, 1), bool)
    b, n, _ = p[0].shape
    m = np.broadcast_to(m, (b, int(p[5]), n, n))
    return ~m.any(-1)


def row_weights(test):
    """In the weights, or in the output that they give, of a query that may attend to nothing."""

    def holds(p, e, got):
        got, rows = pair(got), empty_rows(p)
        if not got or not rows.any():
            return False
        a, out = num(got[1]), num(got[0])
        if a.shape != num(e[1]).shape or out.shape != num(e[0]).shape:
            return False
        return test(p, a[rows], out[rows.all(1)])

    return holds


def uniform(p, a, out):
    x, h = num(p[0]), int(p[5])
    flat = run(p[:6], weigh=lambda s, m: np.full(s.shape, 1 / s.shape[-1]))[0]
    rows = empty_rows(p).all(1)
    same = rows.any() and len(out) and np.allclose(out, flat[rows], rtol=1e-3, atol=1e-3) and h
    return bool(np.allclose(a, 1 / x.shape[1], atol=1e-3) or same)


def after(s, m):
    return softmax(s) * m


def times_mask(s, m):
    return softmax(s * m)


def inf_times(s, m):
    return any_nan


def any_nan(p, e, got):
    """A visible key has NaN, in a row that has visible keys."""
    got = pair(got)
    if not got or len(p) < 7 or num(got[1]).shape != num(e[1]).shape:
        return False
    _b, _n, _ = p[0].shape
    m = np.broadcast_to(np.asarray(p[6], bool), num(e[1]).shape)
    return bool(np.isnan(num(got[1]))[m].any() or np.all(num(got[1]) == 0) or np.isnan(num(got[0])).all())


def large(p, e, got):
    options = [f(v) for v in (1e3, 1e4, 1e9, np.inf) for f in (fill, fill_and_zero)]
    adds = [lambda s, m, v=v: softmax(s + np.where(m, 0, v)) for v in (1e3, 1e9, np.inf)]
    zeroed = [lambda s, m, f=f: np.nan_to_num(f(s, m)) for f in options + adds]
    return masked(*options, *adds, *zeroed)(p, e, got)


def some(**where):
    """w_q, w_k, w_v, w_o in another way: each of the given choices of them."""
    return [{"w": f} for f in where.values()]


def choices(values):
    """Exchange one or more of w_q, w_k, w_v by values(index, mats) (None: x itself)."""
    found = []
    for size in (1, 2, 3):
        for which in combinations(range(3), size):
            found.append(
                {
                    "w": lambda x, *m, which=which: (
                        [values(i, m) if i in which else m[i] for i in range(3)] + [m[3]]
                    )
                }
            )
    return found


def one_for_two():
    found = []
    for order in [(i, j, k) for i in range(3) for j in range(3) for k in range(3)]:
        if len(set(order)) < 3:
            found.append({"w": lambda x, *m, o=order: [m[o[0]], m[o[1]], m[o[2]], m[3]]})
    return found


def with_scale(*fs):
    return attend(*[{"scale": f} for f in fs])


def weights_only(make):
    """The output is right; the second result is made from the right scores or weights."""

    def holds(p, e, got):
        got = pair(got)
        return bool(got) and is_one_of(got[0], [e[0]]) and is_one_of(got[1], make(p, num(e[1])))

    return holds


def raw_scores(p, a):
    found = []
    for scale in (None, lambda s, *_: s):
        s = run(p, scale=scale, weigh=lambda s, m: s)[1]
        m = np.asarray(p[6], bool) if len(p) > 6 and p[6] is not None else True
        found += [s] + [np.where(np.broadcast_to(m, s.shape), s, v) for v in (-np.inf, -1e9, 0)]
    return found


def one_zero(p, e, got):
    got, rows = pair(got), empty_rows(p)
    if not got or not rows.all(1).any():
        return False
    if num(got[0]).shape != num(e[0]).shape or num(got[1]).shape != num(e[1]).shape:
        return False
    zeros = [np.all(num(got[0])[rows.all(1)] == 0), np.all(num(got[1])[rows] == 0)]
    return bool(zeros[0] != zeros[1])


def nan_in_weights_only(p, e, got):
    got, empty = pair(got), empty_rows(p)
    if not got or not empty.any():
        return False
    output, weights = num(got[0]), num(got[1])
    return bool(np.isnan(weights[empty]).all() and (output[empty.any(1)] == 0).all())


def nan_in_weights_and_output_right(p, e, got):
    got, empty = pair(got), empty_rows(p)
    if not got or not empty.any():
        return False
    return bool(np.isnan(num(got[1])[empty]).all() and np.allclose(num(got[0]), num(e[0]), 1e-4, 1e-5))


def tokens_among_heads(p, e, got):
    x, wq, wk, wv, wo = map(num, p[:5])
    h, (b, n, d) = int(p[5]), p[0].shape
    q, k, v = ((x @ w).reshape(b, n, h, d // h) for w in (wq, wk, wv))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(d // h)
    found = [softmax(s)]
    if len(p) > 6 and p[6] is not None:
        try:
            m = np.broadcast_to(np.asarray(p[6], bool), s.shape)
        except ValueError:
            return False
        found = [hide(s, m), softmax(np.where(m, s, -np.inf))]
    outs = [
        o
        for a in found
        for o in ((a @ v).reshape(b, n, d) @ wo, (a @ v).swapaxes(1, 2).reshape(b, n, d) @ wo)
    ]
    got = pair(got)
    return bool(got) and is_one_of(got[1], found) and is_one_of(got[0], outs)


def swap_batch(y, h):
    b, n, d = y.shape
    return y.reshape(b, n, h, d // h).swapaxes(0, 1)


def batch_and_tokens(p, e, got):
    x, wq, wk, wv, wo = map(num, p[:5])
    h, (b, n, d) = int(p[5]), p[0].shape
    got = pair(got)
    if not got:
        return False
    q, k, v = (swap_batch(x @ w, h) for w in (wq, wk, wv))
    a = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(d // h))
    c = a @ v
    outs = [c.swapaxes(0, 1).reshape(b, n, d) @ wo, c.reshape(b, n, d) @ wo]
    merged = run(p, merge=lambda c: c.swapaxes(0, 1).reshape(b, n, d))[0]
    return is_one_of(got[0], [*outs, merged]) and is_one_of(got[1], [a, e[1]])


def rows_of_w(p, e, got):
    """Head h has the rows h * d_k to (h + 1) * d_k: w.view(heads, d_k, d_model), with x cut to fit."""
    x, *mats = map(num, p[:5])
    h, (_b, _n, d) = int(p[5]), p[0].shape
    got = pair(got)
    if not got:
        return False
    y = cut(x, h)
    q, k, _v = (y @ w.reshape(h, d // h, d)[None] for w in mats[:3])
    m = np.asarray(p[6], bool) if len(p) > 6 and p[6] is not None else True
    found = []
    for size in (d // h, d):
        s = q @ k.swapaxes(-1, -2) / np.sqrt(size)
        found.append(hide(s, np.broadcast_to(m, s.shape)))
    transposed = attend({"w": lambda x, *m: [*(a.T for a in m[:3]), m[3]]})(p, e, got)
    return transposed or is_one_of(got[1], found)


def bool_added(s, m):
    return softmax(s + m)


def swapped_mask(m):
    return m.swapaxes(-1, -2)


def raw(f):
    return lambda s, m: f(np.where(m, s, -np.inf))


def divided_after(p, e, got):
    got, d = pair(got), p[0].shape[-1] // int(p[5])
    if not got:
        return False
    out, a = run(p, scale=lambda s, *_: s)
    both = is_one_of(got[0], [out / np.sqrt(d), out]) and is_one_of(got[1], [a / np.sqrt(d), a])
    return both and not (is_one_of(got[0], [out]) and is_one_of(got[1], [a]))


def no_weights(p, e, got):
    return not isinstance(got, tuple) and num(got).shape == num(e[0]).shape


NAN = row_weights(lambda p, a, out: bool(np.isnan(a).any() or np.isnan(out).any()))
IN_TURN = {"cut": cut_in_turn}
MHA = {
    "nan-for-empty-row": NAN,
    "uniform-for-empty-row": row_weights(uniform),
    "mask-ignored": masked(lambda s, m: softmax(s)),
    "mask-inverted": masked(
        *[lambda s, m, f=f: f(s, ~m) for f in (hide, fill(-np.inf), fill(-1e9))],
        lambda s, m: np.where(m.any(-1, keepdims=True), fill(-np.inf)(s, ~m), 0),
        lambda s, m: np.where(m, fill(-np.inf)(s, ~m), 0),
    ),
    "mask-after-softmax": masked(after, lambda s, m: np.where(m, softmax(s), -np.inf)),
    "hidden-scores-zero": masked(
        *[
            f(v)
            for f in (fill, fill_and_zero)
            for v in (0, 1e-9, -1e-9, 1e-6, -1e-6, 1e-4, -1e-4, -0.01, 0.01, -0.1)
        ]
    ),
    "hidden-scores-large": large,
    "zero-times-infinity": any_nan,
    "causal-whatever-the-mask": attend({"weigh": causal}, {"weigh": lambda s, m: hide(s, np.tril(m))}),
    "mask-added-as-bool": masked(
        bool_added, lambda s, m: np.where(m.any(-1, keepdims=True), bool_added(s, m), 0)
    ),
    "mask-transposed": masked(hide, fill(-np.inf), fill(-1e9), mask=swapped_mask),
    "mask-with-an-axis-too-many": lambda p, e, got: (
        len(p) > 6
        and p[6] is not None
        and bool(pair(got))
        and (num(got[1]).ndim == 5 or num(got[1]).shape != num(e[1]).shape)
    ),
    "if-mask": lambda p, e, got: (
        masked(lambda s, m: softmax(s))(p, e, got)
        or (len(p) > 6 and p[6] is not None and num(p[6]).size == 1)
    ),
    "softmax-over-queries": attend(
        {"weigh": lambda s, m: softmax(np.where(m, s, -np.inf), -2)},
        {"weigh": lambda s, m: np.nan_to_num(softmax(np.where(m, s, -np.inf), -2))},
        {"weigh": lambda s, m: np.where(m.any(-1, keepdims=True), softmax(np.where(m, s, -np.inf), -2), 0)},
    ),
    "softmax-over-heads": attend(
        {"weigh": lambda s, m: softmax(np.where(m, s, -np.inf), 1)},
        {"weigh": lambda s, m: np.nan_to_num(softmax(np.where(m, s, -np.inf), 1))},
        {"weigh": lambda s, m: np.where(m.any(-1, keepdims=True), softmax(np.where(m, s, -np.inf), 1), 0)},
    ),
    "no-softmax": attend(
        {"weigh": lambda s, m: s},
        {"weigh": lambda s, m: np.where(m, s, 0)},
        {"weigh": lambda s, m: np.where(m, s, -np.inf)},
        {"weigh": lambda s, m: np.where(m.any(-1, keepdims=True), np.where(m, s, -np.inf), 0)},
        {"weigh": lambda s, m: np.where(m, s, -1e9)},
    ),
    "softmax-twice": attend(
        {"weigh": lambda s, m: softmax(hide(s, m))},
        {"weigh": lambda s, m: hide(hide(s, m), m)},
        {"weigh": lambda s, m: softmax(fill(-np.inf)(s, m))},
        {"weigh": lambda s, m: np.where(m.any(-1, keepdims=True), softmax(hide(s, m)), 0)},
    ),
    "not-scaled": with_scale(lambda s, d, *_: s),
    "scaled-by-d_k": with_scale(lambda s, d, *_: s / d),
    "half-of-d_k": with_scale(lambda s, d, *_: s / (d / 2)),
    "scaled-by-d_model": with_scale(lambda s, d, h, dm, n: s / np.sqrt(dm)),
    "scaled-by-another-size": with_scale(
        lambda s, d, h, dm, n: s / np.sqrt(h), lambda s, d, h, dm, n: s / np.sqrt(n)
    ),
    "multiplied-by-the-root": with_scale(lambda s, d, *_: s * np.sqrt(d)),
    "view-without-transpose": attend({"cut": cut_bare}, {"cut": cut_bare, "merge": merge_bare}),
    "heads-take-turns": attend(IN_TURN, IN_TURN | {"merge": merge_in_turn}),
    "overlapping-slices": attend({"cut": cut_overlapping}),
    "d_k-heads": attend({"cut": cut_d_k}, {"cut": cut_d_k, "scale": lambda s, d, h, *_: s / np.sqrt(h)}),
    "merge-without-transpose": attend({"merge": merge_bare}),
    "merged-in-turn": attend({"merge": merge_in_turn}),
    "one-matrix-for-two": attend(*one_for_two()),
    "keys-and-values-swapped": attend({"w": lambda x, q, k, v, o: [q, v, k, o]}),
    "queries-and-keys-swapped": attend(
        {"w": lambda x, q, k, v, o: [k, q, v, o]}, {"scores": lambda s: s.swapaxes(-1, -2)}
    ),
    "matrices-transposed": attend({"w": lambda x, q, k, v, o: [q.T, k.T, v.T, o]}),
    "not-projected": attend(*choices(lambda i, m: None)),
    "no-output-projection": attend({"w": lambda x, q, k, v, o: [q, k, v, None]}),
    "output-matrix-transposed": attend({"w": lambda x, q, k, v, o: [q, k, v, o.T]}),
    "input-added": attend({}, output=lambda out, p: out + num(p[0])),
    "weights-transposed": attend({"apply": lambda a, v: a.swapaxes(-1, -2) @ v}),
    "no-weights": no_weights,
    "weights-first": lambda p, e, got: (
        bool(pair(got)) and is_one_of(got[0], [e[1]]) and is_one_of(got[1], [e[0]])
    ),
    "scores-for-weights": weights_only(raw_scores),
    "weights-averaged-over-heads": weights_only(lambda p, a: [a.mean(1), a.mean(1, keepdims=True)]),
    "weights-of-one-head": weights_only(
        lambda p, a: [c for h in range(a.shape[1]) for c in (a[:, h], a[:, h : h + 1])]
    ),
    "weights-with-heads-in-front": weights_only(lambda p, a: [a.swapaxes(0, 1)]),
    "mask-in-a-loop": lambda p, e, got: len(p) > 6 and p[6] is not None and np.ndim(p[6]) > 2,
    "zeros-in-one-result": one_zero,
    "nan-replaced-in-the-output": nan_in_weights_only,
    "nan-replaced-in-what-is-fetched": nan_in_weights_and_output_right,
    "no-transpose": attend({"cut": cut_bare, "merge": merge_bare}),
    "heads-take-turns-throughout": attend(IN_TURN | {"merge": merge_in_turn}),
    "all-matrices-transposed": attend({"w": lambda x, *m: [a.T for a in m]}),
    "scaled-after-the-softmax": divided_after,
    "heads-behind-tokens": tokens_among_heads,
    "batch-and-tokens-swapped": batch_and_tokens,
    "rows-of-w_q": rows_of_w,
    "heads-meet-a-whole-matrix": lambda p, e, got: int(p[5]) == 1,
}

# --- Numbers of parameters.


def count(make):
    """make(d_model, heads, d_k, bias) gives the numbers of which the answer may be one."""

    def holds(p, e, got):
        d, h, bias = int(p[0]), int(p[1]), bool(p[2])
        return np.shape(got) == () and is_one_of(got, make(d, h, d // h, bias))

    return holds


def plus(matrices, biases):
    """These numbers of matrices, and with a bias any of these numbers of it (or the right one, or none)."""
    return lambda d, h, k, b: [
        m + c for m in matrices(d, h, k) for c in ([0, 4 * d, *biases(d, h, k)] if b else [0])
    ]


def biases_only(biases):
    return lambda d, h, k, b: [4 * d * d + c for c in biases(d, h, k)] if b else []


def any_bias(d, h, k):
    return [c * s for c in range(1, 5) for s in (d, k, 1)] + [
        h * d * 4,
        3 * h * d + d,
        3 * k + d,
        3 * h * k + d,
    ]


COUNTS = {
    "no-output-projection": plus(lambda d, h, k: [3 * d * d], any_bias),
    "full-matrices-for-each-head": plus(lambda d, h, k: [4 * h * d * d, (3 * h + 1) * d * d], any_bias),
    "one-head-only": plus(lambda d, h, k: [4 * d * k, 3 * d * k + d * d, 3 * d * k], any_bias),
    "square-of-d_k": plus(
        lambda d, h, k: [
            4 * k * k,
            3 * k * k + d * d,
            4 * h * k * k,
            3 * h * k * k + d * d,
            3 * k * k + k * d,
        ],
        any_bias,
    ),
    "output-of-one-head": plus(lambda d, h, k: [3 * d * d + k * d], any_bias),
    "output-times-heads": plus(lambda d, h, k: [(3 + h) * d * d], any_bias),
    "fewer-matrices": plus(lambda d, h, k: [d * d, 2 * d * d], any_bias),
    "more-matrices": lambda d, h, k, b: [
        m * d * d + c * d for m in range(5, 5 + 4 * h) for c in (range(5 + 4 * h) if b else [0])
    ],
    "number-of-matrices": lambda d, h, k, b: (
        [3, 4, 4 * h, 3 * h + 1] + ([8, 5, 7, 4 + 4 * d, 4 + d] if b else [])
    ),
    "columns-only": plus(lambda d, h, k: [4 * d, 3 * d], any_bias),
    "bias-ignored": lambda d, h, k, b: [4 * d * d] if b else [],
    "fewer-biases": biases_only(lambda d, h, k: [d, 2 * d, 3 * d]),
    "bias-of-one-number": biases_only(lambda d, h, k: [1, 2, 3, 4, 4 * h, 3 * h, 3 * h + d]),
    "output-bias-for-each-head": biases_only(lambda d, h, k: [3 * d + h * d]),
    "bias-for-each-head": biases_only(lambda d, h, k: [4 * h * d, 3 * h * d + d, h * d]),
    "bias-of-one-head": biases_only(lambda d, h, k: [4 * k, 3 * k + d, k]),
    "bias-as-a-matrix": biases_only(lambda d, h, k: [4 * d * d, d * d]),
    "bias-in-rows-and-columns": lambda d, h, k, b: [4 * (d + 1) ** 2] if b else [],
    "more-biases": biases_only(lambda d, h, k: [c * d for c in range(5, 8 + 8 * h)]),
    "nothing-without-bias": lambda d, h, k, b: [] if b else [0],
    "bias-always": lambda d, h, k, b: [] if b else [4 * d * d + 4 * d],
    "bias-inverted": lambda d, h, k, b: [4 * d * d] if b else [4 * d * d + 4 * d],
    "biases-alone": lambda d, h, k, b: [4 * d] if b else [],
    "matrices-without-bias-only": lambda d, h, k, b: [] if b else [4 * d],
}


CLAIMS = (
    {("head_contributions", s): claim(f) for s, f in (ROWS | ALONE).items()}
    | {("fix_bias", s): with_bias(lambda x, w, f=f: [c.sum(1) for c in f(x, w)]) for s, f in ROWS.items()}
    | {("fix_bias", s): with_bias(f) for s, f in ADDED.items()}
    | {("fix_bias", s): bias_of(f) for s, f in BIAS.items()}
    | {
        ("fix_bias", "all-divided"): divided,
        ("fix_bias", "one-contribution-per-head"): with_bias(OUTPUT["not-summed-over-heads"]),
        ("fix_bias", "bias-added-to-w_o"): bias_in_w,
        ("fix_bias", "bias-before-w_o"): bias_in_heads,
        ("fix_bias", "other-axis-taken-apart"): another_loop,
        ("fix_bias", "added-into-the-bias"): lambda p, e, got: np.shape(got) == tuple(p[2].shape),
    }
    | {("multi_head_attention", s): f for s, f in MHA.items()}
    | {("output_projection", s): claim(f, lambda c: c.sum(1)) for s, f in ROWS.items()}
    | {("output_projection", s): claim(f) for s, f in OUTPUT.items()}
    | {("predict_parameters", s): count(f) for s, f in COUNTS.items()}
)


# --- The heads of a picture whose sizes add up to 0. A problem is what each head fetches for *saw*.


def fetched_by(fetched, got):
    """What the heads of this list fetch."""
    return num(fetched)[num(got).astype(int)]


CANCEL = {
    "the-picture": lambda fetched, got: not isinstance(got, np.ndarray),
    "one-entry-for-each-head": lambda fetched, got: len(got) == 6 and set(num(got)) <= {0, 1},
    "numbers-that-are-not-whole": lambda fetched, got: (num(got) % 1 != 0).any(),
    "no-head": lambda fetched, got: len(got) == 0,
    "no-such-head": lambda fetched, got: min(got) < 0 or max(got) > 5,
    "a-head-twice": lambda fetched, got: len(set(num(got))) < len(got),
    "where-the-picture-begins": lambda fetched, got: sorted(got) == [0, 1, 2, 3],
    "a-head-that-fetches-0": lambda fetched, got: (abs(fetched_by(fetched, got)) < 1e-3).sum() == 1,
    "counted-from-1": lambda fetched, got: (
        abs(fetched_by(fetched, num(got) - 1).sum()) <= 0.03
        and min(abs(fetched_by(fetched, num(got) - 1))) > 0.2
    ),
    "too-much-of-the-dog": lambda fetched, got: fetched_by(fetched, got).sum() > 0.03,
    "too-much-of-the-cat": lambda fetched, got: fetched_by(fetched, got).sum() < -0.03,
}
CLAIMS |= {
    ("heads_that_cancel", name): lambda problem, expected, got, holds=holds: bool(holds(problem[0], got))
    for name, holds in CANCEL.items()
}


# --- The head that writes most, for each token.


def chosen(make):
    """A predicate: ``make`` gives candidates from the contributions, (num_heads, n, d_model)."""
    return lambda p, e, got: is_one_of(got, make(contributions(num(p[0])[None], num(p[1]))[0]))


def norms(written):
    return np.sqrt((written**2).sum(-1))


def sliced(make):
    """A predicate: the head with the largest norm, with other rows of w_o."""
    return lambda p, e, got: is_one_of(got, [norms(c[0]).argmax(0) for c in make(num(p[0])[None], num(p[1]))])


def is_one_head(p, e, got):
    """One head for all tokens: a single number below num_heads, perhaps repeated."""
    got = num(got)
    n = p[0].shape[1]
    return got.shape in ((), (n,)) and len(np.unique(got)) == 1 and 0 <= got.flat[0] < len(p[0])


def norms_multiplied(p, e, got):
    x, w = num(p[0]), num(p[1])
    strength = np.sqrt((w.reshape(len(x), -1) ** 2).sum(1))
    return is_one_of(got, [(norms(x) * strength[:, None]).argmax(0)])


def cut_output(p, e, got):
    x, w = num(p[0])[None], num(p[1])
    return is_one_of(got, [norms(c[0]).argmax(0) for c in split_output(x, w)])


def value_and_index(p, e, got):
    """Two results of which the second is right, or the name of what `max` returns."""
    if isinstance(got, tuple):
        return len(got) == 2 and is_one_of(got[1], [e])
    got_array = np.asarray(got)
    if got_array.dtype == object:
        return got.dtype == "both results of `max` (values and indices)"
    return len(got_array) == 2 and is_one_of(got_array[1], [e])


def strongest_rows(p, e, got):
    w = num(p[1]).reshape(len(p[0]), -1)
    return is_one_head(p, e, got) and num(got).flat[0] == (w**2).sum(1).argmax()


MOST = {
    "summed-not-normed": lambda c: [c.sum(-1).argmax(0), abs(c.sum(-1)).argmax(0)],
    "sum-of-absolute-values": lambda c: [abs(c).sum(-1).argmax(0)],
    "largest-number": lambda c: [c.max(-1).argmax(0), abs(c).max(-1).argmax(0)],
    "norm-over-the-tokens": lambda c: [np.sqrt((c**2).sum(1)).argmax(0)],
    "norm-over-the-heads": lambda c: [np.sqrt((c**2).sum(0)).argmax(a) for a in (0, 1)],
    "norm-over-everything": lambda c: [0],
    "first-token-only": lambda c: [norms(c).argmax(0)[0]],
    "flat-index": lambda c: [norms(c).argmax()],
    "token-for-each-head": lambda c: [norms(c).argmax(1)],
    "norm-not-index": lambda c: [norms(c).max(0)],
    "all-norms": lambda c: [norms(c), norms(c).T],
    "smallest": lambda c: [norms(c).argmin(0)],
    "counted-from-1": lambda c: [norms(c).argmax(0) + 1],
}
CLAIMS |= {("most_important_head", name): chosen(make) for name, make in MOST.items()}
CLAIMS |= {
    ("most_important_head", name): sliced(ROWS[name])
    for name in ("heads-take-turns", "overlapping-slices", "first-rows-for-all", "slices-in-reverse")
}
CLAIMS |= {
    ("most_important_head", "one-head-for-all-tokens"): is_one_head,
    ("most_important_head", "values-without-w_o"): lambda p, e, got: is_one_of(
        got, [f(num(p[0])).argmax(0) for f in (norms, lambda x: abs(x).sum(-1), lambda x: x.sum(-1))]
    ),
    ("most_important_head", "w_o-alone"): strongest_rows,
    ("most_important_head", "norms-multiplied"): norms_multiplied,
    ("most_important_head", "output-split"): cut_output,
    ("most_important_head", "value-and-index"): value_and_index,
    ("most_important_head", "all-rows-of-w_o"): lambda p, e, got: False,
}
