"""What is said of answers to the exercises of chapter 05, asked of the numbers."""

import contextlib
from itertools import combinations, permutations, product

import numpy as np

from tests.check.claims.results import array, claims, heads_listed, never, of_both, same, softmax

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
    return [np.einsum("bnd,hde->bhne", x.sum(1), slices), np.einsum("bhnd,de->bhne", x, slices.sum(0))]


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
    return lambda p, e, got: same(got, *[finish(c) for c in make(array(p[0]), array(p[1]))])


def with_bias(make):
    """Whatever became of the bias: right, not fixed, a share, none."""

    def holds(p, e, got):
        x, w, bias = map(array, p)
        h = x.shape[1]
        return same(got, *[c + k * bias for c in make(x, w) for k in (0, 1, h, 1 / h, -1, h - 1, h + 1)])

    return holds


def bias_of(shares):
    """The right sum over the heads, and the bias as `shares` makes it."""

    def holds(p, e, got):
        x, w, bias = map(array, p)
        return same(got, *[contributions(x, w).sum(1) + s for s in shares(x, w, bias, x.shape[1])])

    return holds


def another_size(x, w, bias, h):
    sizes = {*x.shape, *w.shape, x.ndim, w.ndim} - {h, 0}
    sizes |= {s * t for s in sizes | {h} for t in sizes | {h}} - {h}
    return [k * bias / s for s in sizes for k in (1, h)]


def divided(p, e, got):
    x, w, bias = map(array, p)
    h = x.shape[1]
    return same(got, *[contributions(x, w).mean(1) + k * bias / h for k in (1, h)])


def bias_in_w(p, e, got):
    x, w, bias = map(array, p)
    out = contributions(x, w + bias).sum(1)
    shared = contributions(x, w + bias / x.shape[1]).sum(1)
    return same(got, out, out + bias, out + x.shape[1] * bias, shared)


def bias_in_heads(p, e, got):
    """The bias joins the heads where it has their width; where it does not, an error is raised."""
    x, w, bias = map(array, p)
    side = side_by_side(x)
    fits = side.shape[-1] == len(bias)
    return fits and same(got, *[(side + n * bias) @ w for n in (1, x.shape[1])])


def another_axis(x, w):
    return [sum(parts) for a in (0, 2) for parts in axis_taken_for_heads(x, w, a)]


def another_loop(p, e, got):
    if not isinstance(got, tuple):
        return with_bias(another_axis)(p, e, got)
    x = array(p[0])
    return any(isinstance(got[0], tuple) and same(got[0][0], np.take(x, 0, axis=a)) for a in (0, 2, 3))


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


def zeroed(f):
    """The same, with 0 in the rows that may attend to nothing."""
    return lambda s, m: np.where(m.any(-1, keepdims=True), f(s, m), 0)


def fill(value, axis=-1):
    return lambda s, m: softmax(np.where(m, s, value), axis)


def fill_and_zero(value):
    return zeroed(fill(value))


hide = fill_and_zero(-np.inf)


def causal(s, m):
    return hide(s, np.tril(np.ones(s.shape[-2:], bool)) & np.ones(s.shape, bool))


def mask_of(p):
    return np.asarray(p[6], bool) if len(p) > 6 and p[6] is not None else None


def run(p, cut=cut, merge=side_by_side, scale=None, weigh=hide, w=None, scores=None, apply=None, mask=None):
    x, *mats = map(array, p[:5])
    h, m = int(p[5]), mask_of(p)
    mats = w(x, *mats) if w else mats
    q, k, v = (cut(x if a is None else x @ a, h) for a in mats[:3])
    d_model, d = x.shape[-1], x.shape[-1] // h
    with np.errstate(all="ignore"):
        s = q @ k.swapaxes(-1, -2)
        s = s / np.sqrt(d) if scale is None else scale(s, d, h, d_model, x.shape[1])
        s = scores(s) if scores else s
        m = np.broadcast_to(True if m is None else m, s.shape)
        a = weigh(s, mask(m) if mask else m)
        out = merge(apply(a, v) if apply else a @ v)
        return (out if mats[3] is None else out @ mats[3]), a


def of_pair(test):
    """A predicate about an output and weights: ``test(problem, expected, output, weights)``."""

    def holds(p, e, got):
        return isinstance(got, tuple) and len(got) == 2 and bool(test(p, e, *map(array, got)))

    return holds


def attend(*options, output=None):
    """Both results are those of the attention with one of these changes."""

    @of_pair
    def holds(p, e, out, weights):
        for o in options:
            with contextlib.suppress(ValueError, IndexError):
                right, a = run(p, **o)
                if same(out, output(right, p) if output else right) and same(weights, a):
                    return True
        return False

    return holds


def changed(step):
    """Predicates about this step of ``run``: one of these functions is in its place."""
    return lambda *fs: attend(*[{step: f} for f in fs])


weighing, with_scale, projecting = map(changed, ("weigh", "scale", "w"))


def masked(*weigh, **others):
    need = attend(*[{"weigh": f} | others for f in weigh])
    return lambda p, e, got: mask_of(p) is not None and need(p, e, got)


def empty_rows(p):
    b, n, _ = p[0].shape
    m = mask_of(p)
    return ~np.broadcast_to(True if m is None else m, (b, int(p[5]), n, n)).any(-1)


def row_weights(test):
    """In the weights, or in the output that they give, of a query that may attend to nothing."""

    @of_pair
    def holds(p, e, out, weights):
        rows = empty_rows(p)
        if not rows.any() or (out.shape, weights.shape) != (e[0].shape, e[1].shape):
            return False
        return test(p, weights[rows], out[rows.all(1)])

    return holds


def uniform(p, a, out):
    flat = run(p[:6], weigh=lambda s, m: np.full(s.shape, 1 / s.shape[-1]))[0]
    rows = empty_rows(p).all(1)
    return np.allclose(a, 1 / p[0].shape[1], atol=1e-3) or (rows.any() and len(out) and same(out, flat[rows]))


def after(s, m):
    return softmax(s) * m


@of_pair
def any_nan(p, e, out, weights):
    """A visible key has NaN, in a row that has visible keys."""
    if len(p) < 7 or weights.shape != e[1].shape:
        return False
    visible = np.broadcast_to(np.asarray(p[6], bool), weights.shape)
    return np.isnan(weights)[visible].any() or np.all(weights == 0) or np.isnan(out).all()


def large(p, e, got):
    options = [f(v) for v in (1e3, 1e4, 1e9, np.inf) for f in (fill, fill_and_zero)]
    options += [lambda s, m, v=v: softmax(s + np.where(m, 0, v)) for v in (1e3, 1e9, np.inf)]
    return masked(*options, *[lambda s, m, f=f: np.nan_to_num(f(s, m)) for f in options])(p, e, got)


def not_projected(*which):
    """These of w_q, w_k and w_v are left out."""
    return lambda x, *m: [None if i in which else a for i, a in enumerate(m)]


NOT_PROJECTED = [not_projected(*which) for size in (1, 2, 3) for which in combinations(range(3), size)]
ONE_FOR_TWO = [
    lambda x, *m, order=order: [*(m[i] for i in order), m[3]]
    for order in product(range(3), repeat=3)
    if len(set(order)) < 3
]


def weights_only(make):
    """The output is right; the second result is made from the right scores or weights."""
    return of_pair(lambda p, e, out, weights: same(out, e[0]) and same(weights, *make(p, array(e[1]))))


def raw_scores(p, a):
    found, m = [], mask_of(p)
    for scale in (None, lambda s, *_: s):
        s = run(p, scale=scale, weigh=lambda s, m: s)[1]
        shown = np.broadcast_to(True if m is None else m, s.shape)
        found += [s] + [np.where(shown, s, v) for v in (-np.inf, -1e9, 0)]
    return found


@of_pair
def one_zero(p, e, out, weights):
    rows = empty_rows(p)
    if not rows.all(1).any() or (out.shape, weights.shape) != (e[0].shape, e[1].shape):
        return False
    return np.all(out[rows.all(1)] == 0) != np.all(weights[rows] == 0)


@of_pair
def nan_in_weights_only(p, e, out, weights):
    empty = empty_rows(p)
    return empty.any() and np.isnan(weights[empty]).all() and (out[empty.any(1)] == 0).all()


@of_pair
def nan_in_weights_and_output_right(p, e, out, weights):
    empty = empty_rows(p)
    return empty.any() and np.isnan(weights[empty]).all() and np.allclose(out, e[0], 1e-4, 1e-5)


@of_pair
def tokens_among_heads(p, e, out, weights):
    x, wq, wk, wv, wo = map(array, p[:5])
    h, (b, n, d), m = int(p[5]), p[0].shape, mask_of(p)
    q, k, v = ((x @ w).reshape(b, n, h, d // h) for w in (wq, wk, wv))
    s = q @ k.swapaxes(-1, -2) / np.sqrt(d // h)
    found = [softmax(s)] if m is None else [f(s, np.broadcast_to(m, s.shape)) for f in (hide, fill(-np.inf))]
    outs = [y.reshape(b, n, d) @ wo for a in found for y in (a @ v, (a @ v).swapaxes(1, 2))]
    return same(weights, *found) and same(out, *outs)


@of_pair
def batch_and_tokens(p, e, out, weights):
    x, wq, wk, wv, wo = map(array, p[:5])
    h, (b, n, d) = int(p[5]), p[0].shape
    q, k, v = ((x @ w).reshape(b, n, h, d // h).swapaxes(0, 1) for w in (wq, wk, wv))
    a = softmax(q @ k.swapaxes(-1, -2) / np.sqrt(d // h))
    outs = [y.reshape(b, n, d) @ wo for y in ((a @ v).swapaxes(0, 1), a @ v)]
    merged = run(p, merge=lambda c: c.swapaxes(0, 1).reshape(b, n, d))[0]
    return same(out, *outs, merged) and same(weights, a, e[1])


@of_pair
def rows_of_w(p, e, out, weights):
    """Head h has the rows h * d_k to (h + 1) * d_k: w.view(heads, d_k, d_model), with x cut to fit."""
    x, *mats = map(array, p[:5])
    h, d, m = int(p[5]), x.shape[-1], mask_of(p)
    q, k = (cut(x, h) @ w.reshape(h, d // h, d)[None] for w in mats[:2])
    scores = [q @ k.swapaxes(-1, -2) / np.sqrt(size) for size in (d // h, d)]
    found = [hide(s, np.broadcast_to(True if m is None else m, s.shape)) for s in scores]
    transposed = projecting(lambda x, *m: [*(a.T for a in m[:3]), m[3]])
    return transposed(p, e, (out, weights)) or same(weights, *found)


def bool_added(s, m):
    return softmax(s + m)


@of_pair
def divided_after(p, e, out, weights):
    root = np.sqrt(p[0].shape[-1] // int(p[5]))
    right, a = run(p, scale=lambda s, *_: s)
    both = same(out, right / root, right) and same(weights, a / root, a)
    return both and not (same(out, right) and same(weights, a))


def no_weights(p, e, got):
    return not isinstance(got, tuple) and array(got).shape == e[0].shape


def softmaxes(axis):
    """Along another axis, with whatever becomes of rows that may attend to nothing."""
    f = fill(-np.inf, axis)
    return weighing(f, lambda s, m: np.nan_to_num(f(s, m)), zeroed(f))


NAN = row_weights(lambda p, a, out: bool(np.isnan(a).any() or np.isnan(out).any()))
IN_TURN = {"cut": cut_in_turn}
MHA = {
    "nan-for-empty-row": NAN,
    "uniform-for-empty-row": row_weights(uniform),
    "mask-ignored": masked(lambda s, m: softmax(s)),
    "mask-inverted": masked(
        *[lambda s, m, f=f: f(s, ~m) for f in (hide, fill(-np.inf), fill(-1e9))],
        zeroed(lambda s, m: fill(-np.inf)(s, ~m)),
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
    "causal-whatever-the-mask": weighing(causal, lambda s, m: hide(s, np.tril(m))),
    "mask-added-as-bool": masked(bool_added, zeroed(bool_added)),
    "mask-transposed": masked(hide, fill(-np.inf), fill(-1e9), mask=lambda m: m.swapaxes(-1, -2)),
    "mask-with-an-axis-too-many": of_pair(
        lambda p, e, out, weights: mask_of(p) is not None and weights.shape != e[1].shape
    ),
    "if-mask": lambda p, e, got: (
        masked(lambda s, m: softmax(s))(p, e, got) or (mask_of(p) is not None and mask_of(p).size == 1)
    ),
    "softmax-over-queries": softmaxes(-2),
    "softmax-over-heads": softmaxes(1),
    "no-softmax": weighing(
        lambda s, m: s,
        *[lambda s, m, v=v: np.where(m, s, v) for v in (0, -np.inf, -1e9)],
        zeroed(lambda s, m: np.where(m, s, -np.inf)),
    ),
    "softmax-twice": weighing(
        lambda s, m: softmax(hide(s, m)),
        lambda s, m: hide(hide(s, m), m),
        lambda s, m: softmax(fill(-np.inf)(s, m)),
        zeroed(lambda s, m: softmax(hide(s, m))),
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
    "one-matrix-for-two": projecting(*ONE_FOR_TWO),
    "keys-and-values-swapped": projecting(lambda x, q, k, v, o: [q, v, k, o]),
    "queries-and-keys-swapped": attend(
        {"w": lambda x, q, k, v, o: [k, q, v, o]}, {"scores": lambda s: s.swapaxes(-1, -2)}
    ),
    "matrices-transposed": projecting(lambda x, q, k, v, o: [q.T, k.T, v.T, o]),
    "not-projected": projecting(*NOT_PROJECTED),
    "no-output-projection": projecting(lambda x, q, k, v, o: [q, k, v, None]),
    "output-matrix-transposed": projecting(lambda x, q, k, v, o: [q, k, v, o.T]),
    "input-added": attend({}, output=lambda out, p: out + array(p[0])),
    "weights-transposed": attend({"apply": lambda a, v: a.swapaxes(-1, -2) @ v}),
    "no-weights": no_weights,
    "weights-first": of_pair(lambda p, e, out, weights: same(out, e[1]) and same(weights, e[0])),
    "scores-for-weights": weights_only(raw_scores),
    "weights-averaged-over-heads": weights_only(lambda p, a: [a.mean(1), a.mean(1, keepdims=True)]),
    "weights-of-one-head": weights_only(
        lambda p, a: [c for h in range(a.shape[1]) for c in (a[:, h], a[:, h : h + 1])]
    ),
    "weights-with-heads-in-front": weights_only(lambda p, a: [a.swapaxes(0, 1)]),
    "mask-in-a-loop": lambda p, e, got: mask_of(p) is not None and mask_of(p).ndim > 2,
    "zeros-in-one-result": one_zero,
    "nan-replaced-in-the-output": nan_in_weights_only,
    "nan-replaced-in-what-is-fetched": nan_in_weights_and_output_right,
    "no-transpose": attend({"cut": cut_bare, "merge": merge_bare}),
    "heads-take-turns-throughout": attend(IN_TURN | {"merge": merge_in_turn}),
    "all-matrices-transposed": projecting(lambda x, *m: [a.T for a in m]),
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
        return np.shape(got) == () and same(got, *make(d, h, d // h, bias))

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


CLAIMS = claims("head_contributions", ROWS | ALONE, claim) | claims("multi_head_attention", MHA)
CLAIMS |= claims("output_projection", ROWS, lambda f: claim(f, lambda c: c.sum(1)))
CLAIMS |= claims("output_projection", OUTPUT, claim) | claims("predict_parameters", COUNTS, count)
CLAIMS |= claims("fix_bias", ROWS, lambda f: with_bias(lambda x, w: [c.sum(1) for c in f(x, w)]))
CLAIMS |= claims("fix_bias", ADDED, with_bias) | claims("fix_bias", BIAS, bias_of)
CLAIMS |= {
    ("fix_bias", "all-divided"): divided,
    ("fix_bias", "one-contribution-per-head"): with_bias(OUTPUT["not-summed-over-heads"]),
    ("fix_bias", "bias-added-to-w_o"): bias_in_w,
    ("fix_bias", "bias-before-w_o"): bias_in_heads,
    ("fix_bias", "other-axis-taken-apart"): another_loop,
    ("fix_bias", "added-into-the-bias"): lambda p, e, got: np.shape(got) == tuple(p[2].shape),
}


# --- The heads of a picture whose sizes add up to 0. A problem is what each head fetches for *saw*.


def fetched_by(problem, got):
    """What the heads of this list fetch."""
    return array(problem[0])[np.asarray(got, int)]


CANCEL = heads_listed(6, [0, 1, 2, 3]) | {
    "a-head-that-fetches-0": lambda problem, got: (abs(fetched_by(problem, got)) < 1e-3).sum() == 1,
    "counted-from-1": lambda problem, got: (
        abs(fetched_by(problem, array(got) - 1).sum()) <= 0.03
        and min(abs(fetched_by(problem, array(got) - 1))) > 0.2
    ),
    "too-much-of-the-dog": lambda problem, got: fetched_by(problem, got).sum() > 0.03,
    "too-much-of-the-cat": lambda problem, got: fetched_by(problem, got).sum() < -0.03,
}
CLAIMS |= claims("heads_that_cancel", CANCEL, of_both)


# --- The head that writes most, for each token.


def chosen(make):
    """A predicate: ``make`` gives candidates from the contributions, (num_heads, n, d_model)."""
    return lambda p, e, got: same(got, *make(contributions(array(p[0])[None], array(p[1]))[0]))


def norms(written):
    return np.sqrt((written**2).sum(-1))


def sliced(make):
    """A predicate: the head with the largest norm, with other rows of w_o."""
    return lambda p, e, got: same(got, *[norms(c[0]).argmax(0) for c in make(array(p[0])[None], array(p[1]))])


def is_one_head(p, e, got):
    """One head for all tokens: a single number below num_heads, perhaps repeated."""
    got = array(got)
    n = p[0].shape[1]
    return got.shape in ((), (n,)) and len(np.unique(got)) == 1 and 0 <= got.flat[0] < len(p[0])


def norms_multiplied(p, e, got):
    x, w = array(p[0]), array(p[1])
    strength = np.sqrt((w.reshape(len(x), -1) ** 2).sum(1))
    return same(got, (norms(x) * strength[:, None]).argmax(0))


def cut_output(p, e, got):
    x, w = array(p[0])[None], array(p[1])
    return same(got, *[norms(c[0]).argmax(0) for c in split_output(x, w)])


def value_and_index(p, e, got):
    """Two results of which the second is right, or the name of what `max` returns."""
    if isinstance(got, tuple):
        return len(got) == 2 and same(got[1], e)
    got_array = np.asarray(got)
    if got_array.dtype == object:
        return got.dtype == "both results of `max` (values and indices)"
    return len(got_array) == 2 and same(got_array[1], e)


def strongest_rows(p, e, got):
    w = array(p[1]).reshape(len(p[0]), -1)
    return is_one_head(p, e, got) and array(got).flat[0] == (w**2).sum(1).argmax()


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
CLAIMS |= claims("most_important_head", MOST, chosen)
CLAIMS |= {
    ("most_important_head", name): sliced(ROWS[name])
    for name in ("heads-take-turns", "overlapping-slices", "first-rows-for-all", "slices-in-reverse")
}
CLAIMS |= {
    ("most_important_head", "one-head-for-all-tokens"): is_one_head,
    ("most_important_head", "values-without-w_o"): lambda p, e, got: same(
        got, *[f(array(p[0])).argmax(0) for f in (norms, lambda x: abs(x).sum(-1), lambda x: x.sum(-1))]
    ),
    ("most_important_head", "w_o-alone"): strongest_rows,
    ("most_important_head", "norms-multiplied"): norms_multiplied,
    ("most_important_head", "output-split"): cut_output,
    ("most_important_head", "value-and-index"): value_and_index,
    ("most_important_head", "all-rows-of-w_o"): never,
}
