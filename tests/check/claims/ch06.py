"""What is said of answers to the exercises of chapter 06, asked of the numbers."""

from itertools import permutations, product

import numpy as np

from tests.check.claims.results import claims, never, of_both, same, says


def orders(x):
    """All orders of the axes, but the one that it has."""
    return [x.transpose(p) for p in permutations(range(x.ndim))][1:]


# --- One product in place of three: y is x @ w_qkv, (batch, n, 3 * d_model).

AXES = "bnthd"  # batch, tokens, three, heads, columns of a head
CUTS = ["".join(p) for p in permutations(AXES)]


def read(y, h, cut, front=()):
    """The last axis, or all of y, read in the order of ``cut``; then (three, batch, heads, n, d_k)."""
    b, n, width = y.shape
    size = dict(zip(AXES, (b, n, 3, h, width // 3 // h), strict=True))
    return y.reshape([size[a] for a in cut]).transpose([cut.index(a) for a in "tbhnd"])


def fused(*cuts):
    return lambda x, w, h: [read(x @ w, int(h), cut) for cut in cuts]


def blocks(x, w):
    """(three, batch, n, d_model)."""
    return np.stack(np.split(x @ w, 3, -1))


def right(x, w, h):
    return read(x @ w, int(h), "bnthd")


def by_view(x, w, h):
    """The matrix read as three in place of cut between its columns."""
    return [right(x, np.concatenate(list(w.reshape(3, len(w), len(w))), 1), h)]


def each_by_view(x, w, h):
    return [blocks(x, w).reshape(3, len(x), int(h), x.shape[1], -1)]


def turned_first(x, w, h):
    y, h = blocks(x, w), int(h)
    t, b, n, d = y.shape
    y = y.swapaxes(2, 3)
    return [y.reshape(t, b, h, n, d // h), y.reshape(t, b, n, h, d // h).swapaxes(2, 3)]


def apart(axis):
    """Taken apart along one axis, if that one has three entries; the others in any order."""

    def candidates(x, w, h):
        found = []
        for y in fused("bnthd", "bnhtd")(x, w, h):
            rest = np.moveaxis(y, "tbhnd".index(axis), 0)
            found += [rest.transpose(0, *p) for p in permutations(range(1, 5))] if len(rest) == 3 else []
        return found

    return candidates


def moved(x, w, h):
    """Columns of w in one order, read in another; nothing that one way to read them gives alone."""
    h, y = int(h), x @ w
    size, columns = {"t": 3, "h": h, "d": len(w) // h}, np.arange(3 * len(w))[None, None]
    cuts = ["bn" + "".join(p) for p in permutations("thd")]
    alone = {read(columns, h, cut).tobytes() for cut in cuts}
    found = {}
    for cut, order in product(cuts, permutations(range(3))):
        order = columns.reshape([size[a] for a in cut[2:]]).transpose(order).reshape(columns.shape)
        for z in (read(order, h, other) for other in cuts):
            found[z.tobytes()] = z[:, 0, :, 0]
    return [
        np.moveaxis(y[..., z], 1, -2).transpose(1, 0, 2, 3, 4) for k, z in found.items() if k not in alone
    ]


def all_numbers(problem, expected, got):
    """All that is asked for in one tensor, whose axis of length 3 is not the first."""
    if isinstance(got, tuple) or np.shape(got)[0] == 3 or sorted(np.shape(got)) != sorted(np.shape(expected)):
        return False
    return same(np.sort(np.ravel(got)), np.sort(np.ravel(expected)))


def along_the_batch(x, w, h):
    """A third of the texts each, as they are or brought to the shape of a block."""
    (b, n, d), y, h = x.shape, x @ w, int(h)
    if b % 3:
        return []
    y = y.reshape(3, b // 3, n, 3 * d)
    split = y.reshape(3, b // 3, n, h, -1)
    shaped = [y.reshape(3, b, *s) for s in ((n, d), (h, n, d // h), (n, h, d // h))]
    return [y, split, split.swapaxes(2, 3), *shaped, shaped[-1].swapaxes(2, 3)]


def rows_cut(x, w, h):
    """A third of the rows each, on the columns of x that fit, or brought to the shape of a block."""
    if len(w) % 3:
        return []
    y = np.stack([a @ m for a, m in zip(np.split(x, 3, -1), np.split(w, 3), strict=True)])
    split = y.reshape(*y.shape[:3], int(h), -1)
    return [y, split, split.swapaxes(2, 3), *by_view(x, w, h)]


FUSED = {
    "matrix-cut-by-view": by_view,
    "axes-in-another-order": lambda x, w, h: [
        right(x, w, h).transpose(0, *p) for p in permutations(range(1, 5)) if p != (1, 2, 3, 4)
    ],
    "one-result-twice": lambda x, w, h: [
        right(x, w, h)[list(p)] for p in product(range(3), repeat=3) if len(set(p)) < 3
    ],
    "head-by-head": fused("bnhtd"),
    "heads-interleaved": fused("bntdh"),
    "blocks-interleaved": fused("bnhdt", "bndht"),
    "three-put-in-front-by-view": fused(*(c for c in CUTS if c.index("t") < c.index("n"))),
    "heads-put-in-front-by-view": fused(*(c for c in CUTS if c.index("h") < c.index("n"))),
    "view-without-transpose": each_by_view,
    "transposed-before-the-cut": turned_first,
    "not-transposed": lambda x, w, h: [right(x, w, h).swapaxes(2, 3)],
    "not-split": lambda x, w, h: [blocks(x, w)],
    "wrong-order": lambda x, w, h: [right(x, w, h)[list(p)] for p in list(permutations(range(3)))[1:]],
    "taken-apart-along-the-heads": apart("h"),
    "taken-apart-along-another-axis": lambda x, w, h: [z for a in "bhnd" for z in apart(a)(x, w, h)],
    "query-scaled": lambda x, w, h: [
        np.concatenate([y[:1] / n**0.5, y[1:]]) for y in [right(x, w, h)] for n in (len(w), h, len(w) / h)
    ],
    "columns-moved-and-read-otherwise": moved,
    "cut-along-the-batch": along_the_batch,
    "rows-of-the-matrix-cut": rows_cut,
    "too-many-parts": lambda x, w, h: [w, np.stack(np.split(x @ w, len(w), -1))],
}

# --- One matrix of three.


def side(*w):
    return np.concatenate(w, 1)


def below(*w):
    return np.concatenate(w, 0)


def diagonal(*w):
    n, d = w[0].shape
    out = np.zeros((3 * n, 3 * d))
    for i in range(3):
        out[i * n : (i + 1) * n, i * d : (i + 1) * d] = w[i]
    return out


def reshaped(*w):
    """All numbers of the three, taken along their axes in some order, in rows of 3 * d."""
    stack = np.stack(w)
    return [z.reshape(stack.shape[1], -1) for z in [stack, *orders(stack)] if z.shape[1:] != stack.shape[::2]]


def one_row(problem, expected, got):
    return (
        not isinstance(got, tuple)
        and np.shape(got) in ((got.size,), (1, got.size))
        and np.shape(expected)[0] > 1
        and same(np.sort(np.ravel(got)), np.sort(np.ravel(expected)))
    )


PACK = {
    "wrong-order": lambda *w: [side(*p) for p in list(permutations(w))[1:]],
    "stacked-on-rows": lambda *w: [below(*p) for p in permutations(w)],
    "rows-in-turn": lambda *w: [np.stack(w, 1).reshape(-1, w[0].shape[1])],
    "transposed": lambda *w: [side(*w).T],
    "each-one-transposed": lambda *w: [side(*(m.T for m in w))],
    "brought-into-shape": reshaped,
    "columns-interleaved": lambda *w: [np.stack(w, -1).reshape(len(w[0]), -1)],
    "still-three": lambda *w: [np.stack(w), *orders(np.stack(w))],
    "added-up": lambda *w: [sum(w)],
    "block-diagonal": lambda *w: [diagonal(*w)],
    "one-block-twice": lambda *w: [
        side(*(w[i] for i in p)) for p in product(range(3), repeat=3) if len(set(p)) < 3
    ],
    "a-block-is-missing": lambda *w: [side(*p) for p in permutations(w, 2)],
    "the-example": lambda *w: [np.tile([1, 1, 2, 2, 3, 3], (2, 1))],
    "rows-taken-for-columns": lambda *w: [side(*(m[:, : len(m)] for m in w))],
}

CLAIMS = (
    {("fix_packed", name): says(candidates) for name, candidates in FUSED.items()}
    | {("pack_qkv", name): says(candidates) for name, candidates in PACK.items()}
    | {("pack_qkv", "flattened"): one_row}
    | {("fix_packed", "three-not-in-front"): all_numbers, ("fix_packed", "view-that-cannot-be"): never}
    | {("pack_qkv", name): never for name in ("not-in-a-list", "one-tensor-joined")}
)

# --- The rows of one head's keys in a checkpoint that goes head by head.


def rows_of(numbers):
    """A predicate: the rows of ``weight`` with these numbers; ``numbers(d_k, num_heads, h)``."""

    def predicate(problem, expected, got):
        weight, heads, h = np.asarray(problem[0]), problem[1], problem[2]
        d_k = weight.shape[1] // heads
        found = [np.asarray(list(i)) for i in numbers(d_k, heads, h)]
        return same(got, *(weight[i[i < len(weight)].astype(int)] for i in found))

    return predicate


def span(first, count):
    return range(first, first + count)


def lies_apart(problem, expected, got):
    """Rows of ``weight`` that stand at equal distances, more than one."""
    weight, got = np.asarray(problem[0]), np.asarray(got)
    if got.shape != np.asarray(expected).shape:
        return False
    places = [int(np.flatnonzero((weight == row).all(1))[0]) for row in got]
    return len(places) == 1 or set(np.diff(places)) in [{problem[1]}, {3 * problem[1]}]


def columns_of(problem, expected, got):
    """Columns of ``weight`` that follow one another, perhaps none or fewer than d_k."""
    weight, got = np.asarray(problem[0]), np.asarray(got)
    count = got.shape[-1] if got.ndim == 2 else -1
    starts = range(weight.shape[1] - count + 1) if count >= 0 else ()
    return len(got) == len(weight) and any(same(got, weight[:, s : s + count]) for s in starts)


def of_transpose(problem, expected, got):
    weight, heads, h = np.asarray(problem[0]), problem[1], problem[2]
    d = weight.shape[1]
    turned = np.ascontiguousarray(weight.T)
    return same(got, turned.reshape(heads, 3, -1, d)[h, 1], turned.reshape(3, heads, -1, d)[1, h])


def cut_as_a_product(problem, expected, got):
    """The middle of three pieces of the last axis of ``weight``, whole or some rows; or of a view."""
    weight, heads, h = np.asarray(problem[0]), problem[1], problem[2]
    d = weight.shape[1]
    size = -(-d // 3)
    piece = weight[:, size : 2 * size]
    some = [piece[a:b] for a in range(len(piece) + 1) for b in (a + d // heads, a + 3 * d // heads)]
    viewed = weight.reshape(d, heads, 3, d // heads)[:, h, 1]
    return same(got, piece, *some, viewed, viewed.T)


def all_three(problem, expected, got):
    weight, heads, h = np.asarray(problem[0]), problem[1], problem[2]
    own = weight.reshape(heads, 3, -1, weight.shape[1])[h]
    return same(got, own, own.reshape(-1, weight.shape[1]))


def all_keys(problem, expected, got):
    weight = np.asarray(problem[0])
    keys = weight.reshape(problem[1], 3, -1, weight.shape[1])[:, 1]
    return same(got, keys, keys.reshape(-1, weight.shape[1]))


KEYS = {
    "three-blocks": lambda d, heads, h: [span((heads + h) * d, d)],
    "queries-of-three-blocks": lambda d, heads, h: [span(h * d, d)],
    "values-of-three-blocks": lambda d, heads, h: [span((2 * heads + h) * d, d)],
    "rows-of-the-query": lambda d, heads, h: [span(3 * h * d, d)],
    "rows-of-the-value": lambda d, heads, h: [span((3 * h + 2) * d, d)],
    "rows-in-turn": lambda d, heads, h: [range(3 * h * d + i, 3 * (h + 1) * d, 3) for i in range(3)],
    "a-head-has-three-parts": lambda d, heads, h: [span((h + 1) * d, d)],
    "both-orders-at-once": lambda d, heads, h: [span((heads + 3 * h) * d, d)],
    "another-head": lambda d, heads, h: (
        [span((3 * (other % heads) + 1) * d, d) for other in (h - 1, h + 1)] + [[]] * (h == heads - 1)
    ),
    "always-head-0": lambda d, heads, h: [span(d, d)],
    "one-row-off": lambda d, heads, h: [
        span((3 * h + 1) * d + first, d - first + last)
        for first, last in ((1, 1), (-1, -1), (0, -1), (0, 1), (1, 0), (-1, 0))
    ],
    "two-of-three": lambda d, heads, h: [span((3 * h + i) * d, 2 * d) for i in (0, 1)],
    "always-64-numbers": lambda d, heads, h: [span((3 * h + 1) * 64, 64)],
    "d_k-from-the-rows": lambda d, heads, h: [span(3 * d * (i * h + 1), 3 * d) for i in (1, 3)],
}
CLAIMS |= claims("key_weights_of_head", KEYS, rows_of)
CLAIMS |= {
    ("key_weights_of_head", "heads-in-turn"): lies_apart,
    ("key_weights_of_head", "all-three-of-the-head"): all_three,
    ("key_weights_of_head", "keys-of-all-heads"): all_keys,
    ("key_weights_of_head", "columns"): columns_of,
    ("key_weights_of_head", "cut-like-the-product"): cut_as_a_product,
    ("key_weights_of_head", "transpose-cut"): of_transpose,
    ("key_weights_of_head", "transposed"): lambda problem, expected, got: same(got, np.asarray(expected).T),
}


# --- w_o_by_hand: a problem is what the heads fetch, in the new order, the old matrix, and the right outputs


def outputs_off(problem, got):
    """For which tokens the outputs with this matrix are wrong."""
    concat, _, wanted = (np.asarray(part, dtype=float) for part in problem)
    return [
        not np.allclose(row @ np.asarray(got), right, atol=0.01)
        for row, right in zip(concat, wanted, strict=True)
    ]


def right_rows(problem, got):
    """Which rows are those of the old matrix for the head that is there now."""
    old = np.asarray(problem[1])
    return [np.allclose(np.asarray(got)[row], old[(row + 2) % 4]) for row in range(4)]


TYPED = {
    "the-picture": lambda problem, got: not isinstance(got, np.ndarray),
    "output-returned": lambda problem, got: np.shape(got) in ((4,), (5, 4)),
    "not-finite": lambda problem, got: not np.isfinite(got).all(),
    "where-the-picture-begins": lambda problem, got: np.allclose(got, problem[1]),
    "columns-moved": lambda problem, got: np.allclose(np.asarray(got)[:, [2, 3, 0, 1]], problem[1]),
    "rows-in-reverse": lambda problem, got: np.allclose(np.asarray(got)[[3, 2, 1, 0]], problem[1]),
    "transposed": lambda problem, got: np.allclose(np.asarray(got).T, problem[1]),
    "one-head-only": lambda problem, got: (
        right_rows(problem, got)[:2] == [True] * 2 or right_rows(problem, got)[2:] == [True] * 2
    ),
    "sizes-where-they-were": lambda problem, got: (
        right_rows(problem, got) == [True, False, True, False]
        and np.allclose(np.asarray(got)[[1, 3]], np.asarray(problem[1])[[1, 3]])
        and np.allclose(np.asarray(got)[[3, 1]], np.roll(np.asarray(problem[1]), 2, 0)[[1, 3]])
    ),
    "sizes-not-right": lambda problem, got: (
        right_rows(problem, got) == [True, False, True, False]
        and [bool(np.any(np.abs(row[[1, 3]]) > 0.005)) for row in np.asarray(problem[0])]
        == [token == 2 for token in range(5)]
        and outputs_off(problem, got) == [token == 2 for token in range(5)]
    ),
    "noun-and-verb-not-right": lambda problem, got: (
        right_rows(problem, got) == [False, True, False, True] and any(outputs_off(problem, got))
    ),
    "right-for-saw-only": lambda problem, got: (
        not outputs_off(problem, got)[2] and any(outputs_off(problem, got))
    ),
    "an-output-differs": lambda problem, got: any(outputs_off(problem, got)),
}
CLAIMS |= claims("w_o_by_hand", TYPED, of_both)
