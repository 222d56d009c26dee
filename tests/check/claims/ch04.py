"""What is said of answers to the exercises of chapter 04, asked of the numbers."""

from itertools import pairwise

import numpy as np

from tests.check.claims.results import claims, never, same, softmax


def boolean(got):
    return getattr(got, "dtype", None) == np.dtype(bool)


def is_mask(got, *candidates):
    """Is the result one of these boolean masks?"""
    return boolean(got) and any(np.array_equal(got, c) for c in candidates)


def numbers_of(mask):
    def holds(problem, expected, got):
        return not boolean(got) and same(got, mask(*problem).astype(float))

    return holds


def additive(mask):
    def holds(problem, expected, got):
        shown = mask(*problem)
        if boolean(got) or got.shape != shown.shape:
            return False
        return bool((got[shown] == 0).all() and (got[~shown] <= -1000).all())

    return holds


# --- causal_mask


def triangle(n, k=0):
    return np.tri(n, k=k, dtype=bool)


def masks(candidates):
    return lambda p, e, got: is_mask(got, *candidates(*p))


def sized_otherwise(p, e, got):
    return any(is_mask(got, triangle(k)) for k in range(1, 20) if k != p[0])


CAUSAL = {
    "mask-inverted": masks(lambda n: [~triangle(n)]),
    "sees-the-future": masks(lambda n: [triangle(n).T]),
    "hides-the-own-token": masks(lambda n: [triangle(n, -1)]),
    "one-key-too-many": masks(lambda n: [triangle(n, 1)]),
    "nothing-hidden": masks(lambda n: [np.ones((n, n), bool)]),
    "everything-hidden": masks(lambda n: [np.zeros((n, n), bool)]),
    "own-token-only": masks(lambda n: [np.eye(n, dtype=bool)]),
    "own-token-only-hidden": masks(lambda n: [~np.eye(n, dtype=bool)]),
    "numbers-in-place-of-booleans": numbers_of(triangle),
    "additive-mask": additive(triangle),
    "axes-in-front": masks(lambda n: [triangle(n)[None], triangle(n)[None, None]]),
    "one-row": lambda p, e, got: np.shape(got) in ((p[0],), (1, p[0])),
    "always-the-same-size": sized_otherwise,
    "one-token-too-many": masks(lambda n: [triangle(n + 1)]),
    "triangle-of-one-row": never,
}

# --- masked_softmax and fix_padding: in float32, where exp overflows as it does in an answer.


def masked(s, m, value=-np.inf, axis=-1):
    return softmax(np.where(m, s, np.float32(value)), axis)


def agrees(w, c, s, m):
    """As c. Rows that see nothing may be 0 or NaN, too, and 0 may have replaced the NaN of c."""
    if np.shape(w) != np.shape(c):
        return False
    empty = ~m.any(-1, keepdims=True) & np.ones(c.shape, bool)
    close = np.isclose(w, c, rtol=1e-3, atol=1e-3, equal_nan=True)
    rows = np.broadcast_to(((w == 0).all(-1) | np.isnan(w).all(-1))[..., None], c.shape)
    return bool((close | (empty & rows) | (np.isnan(c) & (w == 0))).all())


def weights_of(problem, got):
    """The weights alone, where the gradient is looked at, too."""
    return got[0] if len(problem) == 3 and (isinstance(got, tuple) or got.ndim > problem[0].ndim) else got


def prepared(problem):
    s = np.asarray(problem[0], np.float32)
    m = np.asarray(problem[1])
    if m.dtype != bool:
        m = (np.arange(s.shape[-1]) < m[:, None])[:, None, :]
    return s, np.broadcast_to(m, s.shape)


def says(candidates):
    """A predicate: the weights are one of what ``candidates`` makes of scores and mask. The rows that see
    nothing may have been left out when keys were hidden."""

    def holds(problem, expected, got):
        s, m = prepared(problem)
        w = weights_of(problem, got)
        with np.errstate(all="ignore"):
            found = candidates(s, m) + candidates(s, m | ~m.any(-1, keepdims=True))
        return not isinstance(w, tuple) and any(agrees(w, c, s, m) for c in found)

    return holds


def empty_rows(become):
    """A predicate: rows that see something are right; of the others, one at least is as ``become`` says."""

    def holds(problem, expected, got):
        s, m = prepared(problem)
        w, full = weights_of(problem, got), m.any(-1)
        if np.shape(w) != s.shape or full.all():
            return False
        with np.errstate(all="ignore"):
            right, rows, ways = masked(s, m)[full], w[~full], become(s)
        for made in ways:
            as_said = np.isclose(rows, made[~full], rtol=1e-3, atol=1e-3, equal_nan=True).all(-1)
            if same(w[full], right) and as_said.any() and (as_said | (rows == 0).all(-1)).all():
                return True
        return False

    return holds


def nan_in_the_gradient(problem, expected, got):
    if isinstance(got, tuple) or len(problem) < 3:
        return False
    nan, full = got[1] != 0, prepared(problem)[1].any(-1)
    return same(got[0], expected[0]) and nan.any() and not nan[full].any()


def not_low_enough(s, m):
    found = [masked(s, m, -v) for v in (1, 2, 5, 9, 10, 20, 50, 99, 100, 500, 999, 1000, 10_000)]
    return found + [c * m for c in found]


def inverted(s, m):
    c = masked(s, ~m)
    full = m.all(-1, keepdims=True)
    found = [c, np.where(full, softmax(s), c), np.where(full, np.float32(1 / s.shape[-1]), c)]
    return found + [x * m for x in found] + [softmax(s) * ~m]


def taking_part(s, m):
    """Divided by what is left after hiding."""
    tops = [s.max(-1, keepdims=True), s.max()]
    exps = [softmax(s)] + [np.exp(s - top) for top in tops]
    return [
        e * m / ((e * m).sum(-1, keepdims=True) + tiny) for e in exps for tiny in (0, 1e-12, 1e-9, 1e-8, 1e-6)
    ]


def overflowing(s, m):
    exps = [np.exp(s) * m, np.where(m, np.exp(s), 0)]
    return [e / e.sum(-1, keepdims=True) for e in exps]


def zero_times_infinity(problem, expected, got):
    s, m = prepared(problem)
    w = weights_of(problem, got)
    if np.shape(w) != s.shape or not (np.isnan(w[m]).all() or (w[m] == 0).all()):
        return False
    return bool((np.isnan(w[~m]) | (w[~m] == 0)).all())


def not_normalised(s, m):
    tops = [0, s.max(-1, keepdims=True), s.max(), np.where(m, s, -np.inf).max(-1, keepdims=True)]
    return [x for e in (np.exp(s - top) for top in tops) for x in (np.where(m, e, 0), e * m)]


def scores_returned(problem, expected, got):
    s, m = prepared(problem)
    w = weights_of(problem, got)
    if np.shape(w) != s.shape or not same(w[m], s[m]):
        return False
    hidden = w[~m & m.any(-1, keepdims=True)]
    return hidden.size == 0 or bool((hidden == hidden[0]).all())


def rows_emptied(which):
    """A predicate: the rows that ``which`` names are 0, the others as the softmax makes them, without care
    for rows that see nothing."""

    def holds(problem, expected, got):
        s, m = prepared(problem)
        w = weights_of(problem, got)
        if np.shape(w) != s.shape:
            return False
        emptied, rest = which(m), m.any(-1) & ~which(m)
        with np.errstate(all="ignore"):
            return bool((w[emptied] == 0).all()) and same(w[rest], masked(s, m)[rest])

    return holds


def empty_columns(problem, expected, got):
    s, m = prepared(problem)
    given, w = np.asarray(problem[1]), weights_of(problem, got)
    with np.errstate(all="ignore"):
        for axis in range(given.ndim - 1):
            for keep in (True, False):
                some = given.any(axis, keepdims=keep)
                try:
                    cs = [np.where(some, c, 0) for c in (masked(s, m), masked(s, m, -1e9))]
                    cs += [masked(s, m | ~some), masked(s, m | ~some) * m, masked(s, m | ~some) * some]
                except ValueError:
                    continue
                if any(same(w, c) for c in cs):
                    return True
    return False


def axis_dropped(s, m):
    c = masked(s, m)
    e = np.exp(np.where(m, s, -np.inf))
    ways = [
        lambda: np.where(m.any(-1), c, 0),
        lambda: e / e.sum(-1),
        lambda: np.exp(s - s.max(-1)) * m / (np.exp(s - s.max(-1)) * m).sum(-1),
    ]
    found = []
    for way in ways:
        try:
            found.append(way())
        except ValueError:
            continue
    return found


def right_but_for_empty_rows(problem, expected, got):
    return says(lambda s, m: [masked(s, m), masked(s, m, -1e9)])(problem, expected, got)


def of_own_shape(problem, expected, got):
    """An index of the own shape works: it hides what is to be hidden."""
    return np.shape(problem[0]) == np.shape(problem[1]) and right_but_for_empty_rows(problem, expected, got)


hidden_late = says(lambda s, m: [np.where(m, softmax(s), 0)])


def of_own_shape_but_for_empty_rows(problem, expected, got):
    """The index works here, and a row that sees nothing holds something else than 0."""
    _, m = prepared(problem)
    w = weights_of(problem, got)
    if np.shape(problem[0]) != np.shape(problem[1]) or np.shape(w) != m.shape:
        return False
    empty = w[~m.any(-1)]
    return empty.size > 0 and bool(((empty != 0) | np.isnan(empty)).any(-1).all())


def without_gradient(problem, expected, got):
    if len(problem) == 3:
        return isinstance(got, tuple) and got[1] is None
    return right_but_for_empty_rows(problem, expected, got)


BOTH = {
    "masked-after-softmax": says(lambda s, m: [np.where(m, softmax(s), v) for v in (0, -np.inf)]),
    "hidden-scores-take-part": says(taking_part),
    "exp-overflows": says(overflowing),
    "scores-multiplied": says(lambda s, m: [softmax(s * m), softmax(s * m) * m]),
    "mask-added-as-bool": says(lambda s, m: [softmax(s + m), softmax(s + m) * m]),
    "mask-ignored": says(lambda s, m: [softmax(s), np.exp(s) / np.exp(s).sum(-1, keepdims=True)]),
    "softmax-over-queries": says(lambda s, m: [masked(s, m, v, -2) for v in (-np.inf, -1e9)]),
    "scores-returned": scores_returned,
    "arguments-of-masked-fill": never,
}
SOFTMAX = BOTH | {
    "nan-for-empty-row": empty_rows(lambda s: [s * np.nan]),
    "nan-in-the-gradient": nan_in_the_gradient,
    "overwritten-in-place": without_gradient,
    "no-gradient": lambda p, e, got: (
        len(p) == 3 and np.ndim(got[1]) == 0 and not got[1] and np.allclose(got[0], e[0], atol=1e-4)
    ),
    "empty-row-not-zeroed": empty_rows(lambda s: [softmax(s)]),
    "uniform-for-empty-row": empty_rows(lambda s: [np.ones_like(s) / s.shape[-1]]),
    "fill-not-low-enough": says(not_low_enough),
    "mask-inverted": says(inverted),
    "inverted-mask-added-as-bool": says(lambda s, m: [softmax(s + ~m), softmax(s + ~m) * m]),
    "bool-subtracted": never,
    "zero-times-infinity": zero_times_infinity,
    "large-number-added": empty_rows(lambda s: [softmax(s - np.float32(10**k)) for k in range(3, 7)]),
    "indexed-with-a-smaller-mask": of_own_shape,
    "indexed-and-empty-row": of_own_shape_but_for_empty_rows,
    "indexed-after-softmax": lambda p, e, got: np.shape(p[0]) == np.shape(p[1]) and hidden_late(p, e, got),
    "softmax-over-an-axis-from-the-front": says(
        lambda s, m: [masked(s, m, v, axis) for axis in (0, 1) for v in (-np.inf, -1e9)]
    ),
    "softmax-over-everything": says(
        lambda s, m: [masked(s, m, v, tuple(range(s.ndim))) for v in (-np.inf, -1e9)]
    ),
    "not-normalised": says(not_normalised),
    "plus-infinity": says(lambda s, m: [masked(s, m, np.inf)]),
    "visible-rows-emptied": rows_emptied(lambda m: m.any(-1) & ~m.all(-1)),
    "full-rows-emptied": rows_emptied(lambda m: m.any(-1)),
    "empty-columns": empty_columns,
    "axis-dropped": says(axis_dropped),
}


def keys(problem):
    s, m = prepared(problem)
    return s, np.asarray(problem[1]), m[:, 0], np.arange(s.shape[-1])


def fixes(mask):
    """A predicate: the scores are masked so, whatever becomes of rows that see nothing then."""

    def holds(problem, expected, got):
        s, lengths, k, at = keys(problem)
        if isinstance(got, tuple):
            return False
        found = []
        for m in mask(lengths[:, None], at, k):
            try:
                x, m = np.broadcast_arrays(s, m)
            except ValueError:
                continue
            with np.errstate(all="ignore"):
                left_out = masked(x, m | ~m.any(-1, keepdims=True))
                found += [(c, x, m) for c in (masked(x, m), masked(x, m, -1e9), left_out)]
        return any(agrees(got, *one) for one in found)

    return holds


def not_in_front(lengths, at, k):
    t = k.T
    return [
        k[None],
        k[None, :, None],
        k[None, :, :, None],
        k[None, None],
        t,
        t[:, None],
        t[None],
        t[:, :, None],
    ]


def mask_returned(problem, expected, got):
    k = keys(problem)[2]
    shapes = (k.shape, (k.shape[0], 1, k.shape[1]), (k.shape[0], 1, 1, k.shape[1]), np.shape(expected))
    if np.shape(got) not in shapes:
        return False
    mask = k.reshape(k.shape[0], *[1] * (got.ndim - 2), k.shape[1]) & np.ones(got.shape, bool)
    return same(got.astype(float), mask.astype(float)) or same(got.astype(float), (~mask).astype(float))


def turned(problem, expected, got):
    """The mask may lie along the axis of the queries, as it does in what is to be fixed."""
    s = prepared(problem)[0]
    swapped = (s.swapaxes(1, 2), *problem[1:])
    ways = [lambda length, at, k: [k[:, None]], lambda length, at, k: [k[:, :, None]]]
    return any(fixes(w)(swapped, 0, got) or fixes(w)(problem, 0, got.swapaxes(1, 2)) for w in ways)


FIX = BOTH | {
    "mask-inverted": fixes(lambda length, at, k: [~k[:, None]]),
    "shows-one-padding": fixes(lambda length, at, k: [(at <= length)[:, None]]),
    "hides-the-last-token": fixes(lambda length, at, k: [(at < length - 1)[:, None]]),
    "padding-at-the-front": fixes(lambda length, at, k: [(at >= len(at) - length)[:, None]]),
    "masks-queries-not-keys": fixes(lambda length, at, k: [k[:, :, None]]),
    "masks-queries-too": fixes(lambda length, at, k: [k[:, :, None] & k[:, None]]),
    "masks-either": fixes(lambda length, at, k: [k[:, :, None] | k[:, None]]),
    "axis-of-queries-missing": fixes(lambda length, at, k: [k[None]]),
    "an-axis-too-many": fixes(lambda length, at, k: [k[:, None, None], k[:, None, :, None]]),
    "batch-not-in-front": fixes(not_in_front),
    "softmax-over-the-batch": says(lambda s, m: [masked(s, m, v, 0) for v in (-np.inf, -1e9)]),
    "scores-turned": turned,
    "mask-returned": mask_returned,
    "a-row-against-a-row": fixes(lambda length, at, k: [at < length[:, 0]] if len(k) == len(at) else []),
    "all-lengths-at-once": never,
    "as-wide-as-the-longest": never,
    "future-hidden-too": fixes(lambda length, at, k: [k[:, None] & triangle(len(at))]),
}

# --- padding_mask


def pads(candidates):
    """A predicate: the result is one of these masks (batch, keys), with the axes of length 1 in place."""
    return lambda p, e, got: is_mask(got, *[c[:, None, None] for c in candidates(*column(*p))])


def column(lengths, width):
    return np.asarray(lengths)[:, None], np.arange(width)


def real(lengths, width):
    length, at = column(lengths, width)
    return at < length


def padding(lengths, width):
    return real(lengths, width)[:, None, None]


def shaped(candidates):
    return lambda p, e, got: is_mask(got, *candidates(real(*p)))


def without_full(length, at):
    return [(at < length) & (length < len(at))]


def last_axis_as(problem, expected, got):
    width = np.shape(got)[-1] if np.ndim(got) else problem[1]
    return width != problem[1] and is_mask(got, padding(problem[0], width))


def longest(problem, expected, got):
    return is_mask(got, padding(problem[0], int(max(problem[0]))))


def repeated(problem, expected, got):
    """Some of the rows may hide everything."""
    k = padding(*problem)[:, :, 0]
    return boolean(got) and got.ndim == 4 and got.shape[2] > 1 and np.array_equal(got.any(2), k)


def entry_by_entry(problem, expected, got):
    lengths, width = np.asarray(problem[0]), problem[1]
    if len(lengths) not in (1, width) or not boolean(got):
        return False
    row = np.arange(width) < lengths
    return any(
        np.array_equal(got, np.broadcast_to(row.reshape(s), got.shape)) for s in ((-1,), (-1, 1, 1, 1))
    )


PADDING = {
    "mask-inverted": pads(lambda length, at: [at >= length]),
    "shows-one-padding": pads(lambda length, at: [at <= length]),
    "hides-the-last-token": pads(lambda length, at: [at < length - 1]),
    "inverted-and-off-by-one": pads(lambda length, at: [at > length]),
    "padding-at-the-front": pads(lambda length, at: [at >= len(at) - length, at > len(at) - length]),
    "length-only": pads(lambda length, at: [at == length, at == length - 1]),
    "nothing-hidden": pads(lambda length, at: [at + 0 * length >= 0]),
    "full-sentence-hidden": pads(without_full),
    "sentence-visible-whole": pads(lambda length, at: [(length > 0) & (at >= 0)]),
    "one-length-for-all": pads(lambda length, at: [at < 0 * length + one for one in length]),
    "two-axes-missing": shaped(lambda k: [k]),
    "one-axis-missing": shaped(lambda k: [k[:, None]]),
    "masks-queries-not-keys": shaped(lambda k: [k[:, None, :, None], k[:, :, None, None], k[:, :, None]]),
    "axes-in-front": shaped(lambda k: [k[None], k[None, None], k[None, None, None], k[None, :, None]]),
    "queries-repeated": repeated,
    "batch-and-keys-swapped": shaped(
        lambda k: [k.T, k.T[None], k.T[:, None], k.T[None, None], k.T[:, None, None], k.T[None, :, None]]
    ),
    "reshaped-in-place-of-turned": shaped(lambda k: [k.T.reshape(len(k), 1, 1, -1)]),
    "numbers-in-place-of-booleans": numbers_of(padding),
    "additive-mask": additive(padding),
    "as-wide-as-the-longest": longest,
    "always-the-same-width": last_axis_as,
    "a-row-against-a-row": entry_by_entry,
    "all-lengths-at-once": never,
}

# --- predict_equal_scores


def equals(*makes):
    """A predicate: the result is one of what these make of the triangle, rows i and columns j. Rows in which
    nothing is seen may be 0, NaN, or shared equally."""

    def holds(problem, expected, got):
        n = problem[0]
        t, i, j = np.tri(n), np.arange(n)[:, None], np.arange(n)[None]
        for make in makes:
            with np.errstate(all="ignore"):
                c = np.asarray(make(t, i, j), float)
            if np.shape(got) != c.shape:
                continue
            free = np.isnan(c).all(-1)
            empty = (got[free] == 0) | np.isnan(got[free]) | np.isclose(got[free], 1 / n)
            if same(got[~free], c[~free]) and empty.all():
                return True
        return False

    return holds


def hidden_as_0(problem, expected, got):
    """All visible keys of a row have one score, the same in all rows, and the hidden ones 0."""
    n = problem[0]
    if np.shape(got) != (n, n) or n < 2 or not (got > 0).all():
        return False
    return same(got, softmax(np.tri(n) * np.log(got[0, 0] / got[0, 1])))


def by_i(problem, expected, got):
    """Whatever became of row 0."""
    n = problem[0]
    divided = np.tri(n)[1:] / np.arange(1, n)[:, None]
    return (
        np.shape(got) == (n, n)
        and same(got[1:], divided)
        and bool((np.isnan(got[0, 1:]) | (got[0, 1:] == 0)).all())
    )


def three_rows(problem, expected, got):
    """They may be rounded."""
    rows = np.tri(3) / np.arange(1, 4)[:, None]
    return np.shape(got) == (3, 3) and np.allclose(got, rows, atol=0.04)


def shared(t):
    return t / t.sum(-1, keepdims=True)


def minus_infinity(problem, expected, got):
    t = triangle(problem[0])
    if np.shape(got) != t.shape or not (got[~t] == -np.inf).all():
        return False
    return bool((got[t] == got[0, 0]).all())


EQUAL = {
    "sees-the-future": equals(lambda t, i, j: shared(t.T)),
    "mask-ignored": equals(lambda t, i, j: shared(0 * t + 1)),
    "one-key-too-many": equals(lambda t, i, j: shared(j <= i + 1)),
    "mask-inverted": equals(lambda t, i, j: shared(j > i)),
    "own-token-only": equals(lambda t, i, j: i == j),
    "divided-by-n": equals(lambda t, i, j: t / len(t)),
    "columns-divided": equals(lambda t, i, j: t / (j + 1)),
    "softmax-over-queries": equals(lambda t, i, j: t / t.sum(0)),
    "divided-by-everything": equals(lambda t, i, j: t / t.sum()),
    "not-normalised": equals(lambda t, i, j: t),
    "softmax-of-the-triangle": hidden_as_0,
    "divided-in-whole-numbers": equals(lambda t, i, j: t // (i + 1)),
    "own-token-hidden": equals(
        lambda t, i, j: shared(j < i),
        *[lambda t, i, j, k=k: (j < i) / (1, i + 1, len(t))[k] for k in range(3)],
    ),
    "divided-by-i": by_i,
    "triangle-forgotten": equals(lambda t, i, j: 1 / (i + 1) + 0 * t),
    "one-over-the-key": equals(lambda t, i, j: 1 / (j + 1) + 0 * t, lambda t, i, j: t / (j + 1)),
    "scores-returned": minus_infinity,
    "triangle-of-one-row": never,
    "always-three-rows": three_rows,
}

# --- mask_by_hand and packed_mask: queries i and keys j, and the texts from a to b


def drawn(visible):
    """A predicate: the cells (i, j) that are True are those of which ``visible(i, j, own, borders)`` is so;
    ``own`` says whether they are in one text, ``borders`` where texts begin, with the end of the row."""

    def cells(lengths):
        n, borders = sum(lengths), [0, *np.cumsum(lengths).tolist()]

        def own(i, j, borders=borders):
            return any(a <= i < b and a <= j < b for a, b in pairwise(borders))

        return np.array([[bool(visible(i, j, own, borders)) for j in range(n)] for i in range(n)])

    return cells


def rows_of(problem):
    return problem[0] if problem else [3, 2]


def cells_are(*masks):
    return lambda p, e, got: is_mask(got, *(mask(rows_of(p)) for mask in masks))


PACKED = drawn(lambda i, j, own, b: own(i, j) and j <= i)


def moved(by):
    """The inner borders moved, as far as the row goes."""

    def visible(i, j, own, b):
        return j <= i and own(i, j, [0, *(border + by for border in b[1:-1]), b[-1]])

    return drawn(visible)


def same_length(i, j, own, b):
    def length(k):
        return next(end - start for start, end in pairwise(b) if start <= k < end)

    return j <= i and length(i) == length(j)


def all_of_one_length(problem, expected, got):
    """Some length divides the row into texts, the last of which may be cut off."""
    n = sum(problem[0])
    i, j = np.arange(n)[:, None], np.arange(n)
    return is_mask(got, *((j <= i) & (i // m == j // m) for m in range(1, n + 1)))


def after_one_length(problem, expected, got):
    """Each text is a triangle that begins at the length of the text before it; the last one is whole."""
    lengths = problem[0]
    begins = [0, *lengths[:-1]]
    ends = [begin + length for begin, length in zip(begins, lengths, strict=True)]

    def inside(some):
        n = sum(lengths)
        return np.array(
            [[any(a <= j <= i < b for a, b in some) for j in range(n)] for i in range(n)]
        )  # fmt: skip

    every = inside(list(zip(begins, ends, strict=True)))
    last = slice(begins[-1], ends[-1])
    whole = np.array_equal(got[last, last], every[last, last] & np.tri(lengths[-1], dtype=bool))
    return boolean(got) and not (got & ~every).any() and whole


PAINTED = {
    "not-causal": cells_are(drawn(lambda i, j, own, b: own(i, j))),
    "sees-the-future": cells_are(drawn(lambda i, j, own, b: own(i, j) and j >= i)),
    "hides-the-own-token": cells_are(drawn(lambda i, j, own, b: own(i, j) and j < i)),
    "later-tokens-only": cells_are(drawn(lambda i, j, own, b: own(i, j) and j > i)),
    "reads-other-texts": cells_are(drawn(lambda i, j, own, b: j <= i)),
    "other-texts-only": cells_are(drawn(lambda i, j, own, b: not own(i, j) and j <= i)),
    "or-in-place-of-and": cells_are(drawn(lambda i, j, own, b: own(i, j) or j <= i)),
    "mask-inverted": cells_are(lambda lengths: ~PACKED(lengths)),
    "numbers-in-place-of-booleans": numbers_of(lambda *problem: PACKED(rows_of(problem))),
    "additive-mask": additive(lambda *problem: PACKED(rows_of(problem))),
}
MASK_BY_HAND = PAINTED | {
    "where-the-picture-begins": lambda p, e, got: boolean(got) and got.all(),
    "border-elsewhere": lambda p, e, got: is_mask(got, *(PACKED([k, 5 - k]) for k in (1, 2, 4))),
    "second-text-hidden": lambda p, e, got: boolean(got) and not got[:, 3:].any() and got[4, :3].all(),
}
PACKED_MASK = PAINTED | {
    "length-in-place-of-index": cells_are(drawn(same_length)),
    "border-one-too-late": cells_are(moved(1)),
    "border-one-too-early": cells_are(moved(-1)),
    "last-token-left-out": cells_are(
        drawn(lambda i, j, own, b: own(i, j) and j <= i and i + 1 not in b and j + 1 not in b)
    ),
    "blocks-on-top-of-each-other": cells_are(
        lambda lengths: (
            PACKED([max(lengths)] + [1] * (sum(lengths) - max(lengths)))
            & (np.arange(sum(lengths)) < max(lengths))
        )
    ),
    "begins-after-one-length": after_one_length,
    "one-length-for-all": all_of_one_length,
    "one-mask-for-each-text": lambda p, e, got: (
        len(got) == len(p[0]) and all(np.shape(mask) == (m, m) for mask, m in zip(got, p[0], strict=True))
    ),
}

FUTURE = ("maximum-of-nothing", "input-transposed", "input-of-another-size", "input-without-two-axes")
CLAIMS = claims("causal_mask", CAUSAL) | claims("leaks_future", dict.fromkeys(FUTURE, never))
CLAIMS |= claims("mask_by_hand", MASK_BY_HAND) | claims("masked_softmax", SOFTMAX)
CLAIMS |= claims("packed_mask", PACKED_MASK) | claims("fix_padding", FIX)
CLAIMS |= claims("padding_mask", PADDING) | claims("predict_equal_scores", EQUAL)
