"""What is said of answers to the exercises of chapter 12, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, of_result, same, says, softmax


def chosen(x, heads):
    """These heads of ``x``, in this order."""
    return x[:, list(heads)]


def grouped(x, count):
    return chosen(x, [h // (count // x.shape[1]) for h in range(count)])


def tiled(x, count):
    return chosen(x, [h % x.shape[1] for h in range(count)])


def repeated(candidates):
    """Candidates of ``x``, how many query heads, KV heads, and query heads in a group."""

    def of_arguments(x, count):
        count = int(count)
        return candidates(x, count, x.shape[1], count // x.shape[1])

    return says(of_arguments)


def cut(x, count, axis):
    shape = (x.shape[0], count, *x.shape[2:])
    return np.repeat(x, count // x.shape[1], axis).reshape(shape)


def divided(x, count, kv, group):
    heads = [h // kv for h in range(count)]
    return [chosen(x, heads)] if max(heads) < kv else []


REPEAT = {
    "whole-list-repeated": lambda x, count, kv, group: [tiled(x, count)],
    "divided-by-the-number-of-heads": divided,
    "groups-in-reverse-order": lambda x, count, kv, group: [grouped(x[:, ::-1], count)],
    "first-head-for-all": lambda x, count, kv, group: [chosen(x, [0] * count)],
    "averaged": lambda x, count, kv, group: [np.repeat(x.mean(1, keepdims=True), count, 1)],
    "repeated-num_heads-times": lambda x, count, kv, group: [
        np.repeat(x, count, 1),
        np.concatenate([x] * count, 1),
    ],
    "repeated-num_kv_heads-times": lambda x, count, kv, group: [np.repeat(x, kv, 1)],
    "always-repeated-twice": lambda x, count, kv, group: [np.repeat(x, 2, 1)],
    "not-repeated": lambda x, count, kv, group: [x],
    "another-axis-repeated": lambda x, count, kv, group: [
        f(axis) for axis in (0, 2, 3) for f in (
            lambda a: np.repeat(x, group, a),
            lambda a: np.concatenate([x] * group, a),
        )
    ],
    "repeated-and-then-cut": lambda x, count, kv, group: [cut(x, count, axis) for axis in (2, 3)],
    "everything-flattened": lambda x, count, kv, group: [np.repeat(x, group)],
    "axis-not-joined": lambda x, count, kv, group: [
        np.repeat(np.expand_dims(x, axis), group, axis) for axis in (1, 2)
    ],
    "heads-in-front": lambda x, count, kv, group: [np.swapaxes(grouped(x, count), 0, 1)],
}  # fmt: skip


# --- rolling_window_mask: new token i in column p = kept + i, and column j


def drawn(visible):
    """A predicate: the cells ``(i, j)`` that are True are those of which ``visible(i, j, p, kept, w)`` is."""

    def predicate(problem, expected, got):
        cells = truth(visible, *problem)
        return np.asarray(got).dtype == bool and same(got, cells)

    return predicate


def truth(visible, new, kept, window):
    return np.array([
        [bool(visible(i, j, kept + i, kept, window)) for j in range(kept + new)] for i in range(new)
    ])  # fmt: skip


def right(i, j, p, kept, window):
    return p - window < j <= p


def made(change):
    """A predicate: the right mask, changed."""

    def predicate(problem, expected, got):
        return same(got, *change(truth(right, *problem), problem[1]))

    return predicate


def one_window(problem, expected, got):
    new, kept, _ = problem
    return any(
        same(got, truth(lambda i, j, p, k, w, row=row: kept + row - w < j <= p, *problem))
        for row in (0, new - 1)
    )


def sliced(problem, expected, got):
    new, kept, window = problem
    cells = np.zeros((new, kept + new), bool)
    for i in range(new):
        cells[i, kept + i + 1 - window : kept + i + 1] = True
    return kept < window and same(got, cells)


MASK = {
    "positions-from-0": drawn(lambda i, j, p, kept, w: i - w < j <= i),
    "no-window": drawn(lambda i, j, p, kept, w: j <= p),
    "one-key-too-many": drawn(lambda i, j, p, kept, w: p - w <= j <= p),
    "one-key-too-few": drawn(lambda i, j, p, kept, w: p - w + 1 < j <= p),
    "old-keys-only": drawn(lambda i, j, p, kept, w: j <= p - w),
    "sees-the-future": drawn(lambda i, j, p, kept, w: j > p - w),
    "own-key-hidden": drawn(lambda i, j, p, kept, w: p - w < j < p),
    "mask-inverted": made(lambda mask, kept: [~mask]),
    "rows-and-columns-swapped": made(lambda mask, kept: [mask.T]),
    "numbers-in-place-of-booleans": lambda problem, expected, got: (
        got.dtype != bool and same(got, truth(right, *problem))
    ),
    "new-keys-first": made(lambda mask, kept: [np.concatenate([mask[:, kept:], mask[:, :kept]], 1)]),
    "new-keys-left-out": made(lambda mask, kept: [mask[:, :kept]]),
    "kept-keys-left-out": made(lambda mask, kept: [mask[:, kept:]]),
    "one-window-for-all": one_window,
    "ends-before-the-own-key": drawn(lambda i, j, p, kept, w: p - w <= j < p),
    "one-row-for-all": drawn(lambda i, j, p, kept, w: kept - w < j <= kept),
    "positions-of-a-full-cache": drawn(lambda i, j, p, kept, w: i < j <= i + w),
    "window-of-a-full-cache": drawn(lambda i, j, p, kept, w: i < j <= p),
    "new-keys-without-a-window": drawn(lambda i, j, p, kept, w: j <= p and (j >= kept or j > p - w)),
    "kept-keys-without-a-window": drawn(lambda i, j, p, kept, w: j <= p and (j < kept or j > p - w)),
    "window-on-both-sides": drawn(lambda i, j, p, kept, w: abs(p - j) < w),
    "slice-with-a-negative-start": sliced,
    "window-from-the-first-key": drawn(lambda i, j, p, kept, w: i - w < j <= p),
}


# --- cache_bytes: layers with all tokens and with a window


def counted(candidates):
    """Candidates of ``total``, which has every size as an option, and of the sizes."""

    def of_arguments(layers, windowed, window, heads, kv, d_k, n):
        least, numbers = min(n, window), kv * d_k

        def total(full=layers - windowed, small=windowed, kept=least, all_=n, width=numbers, byte=4):
            return (full * all_ + small * kept) * width * byte

        return candidates(total, layers, windowed, window, heads, kv, d_k, n)

    return says(of_arguments, int)


BYTES = {
    "keys-only": lambda t, layers, some, w, h, kv, d, n: [t(byte=2)],
    "one-number-one-byte": lambda t, layers, some, w, h, kv, d, n: [t(byte=1)],
    "float32": lambda t, layers, some, w, h, kv, d, n: [t(byte=8)],
    "all-query-heads": lambda t, layers, some, w, h, kv, d, n: [t(width=h * d)],
    "size-of-a-group": lambda t, layers, some, w, h, kv, d, n: [t(width=h // kv * d)],
    "one-head": lambda t, layers, some, w, h, kv, d, n: [t(width=d)],
    "queries-kept": lambda t, layers, some, w, h, kv, d, n: [
        t(width=(h + 2 * kv) * d, byte=2), t(byte=6),
    ],
    "width-divided": lambda t, layers, some, w, h, kv, d, n: [t() / h, t() // h, t() / kv],
    "width-left-out": lambda t, layers, some, w, h, kv, d, n: [t(width=kv)],
    "windowed-layers-on-top": lambda t, layers, some, w, h, kv, d, n: [t(full=layers)],
    "window-layers-only": lambda t, layers, some, w, h, kv, d, n: [t(full=0)],
    "layers-with-a-window-left-out": lambda t, layers, some, w, h, kv, d, n: [t(small=0)],
    "window-longer-than-the-text": lambda t, layers, some, w, h, kv, d, n: [t(kept=w)] if w > n else [],
    "window-ignored": lambda t, layers, some, w, h, kv, d, n: [t(kept=n)],
    "larger-in-place-of-smaller": lambda t, layers, some, w, h, kv, d, n: [t(kept=max(n, w))],
    "one-token-fewer": lambda t, layers, some, w, h, kv, d, n: [
        t(kept=min(n, w - 1)), t(kept=min(n, w) - 1),
    ],
    "window-in-all-layers": lambda t, layers, some, w, h, kv, d, n: [t(all_=min(n, w))],
    "layers-swapped": lambda t, layers, some, w, h, kv, d, n: [t(full=some, small=layers - some)],
    "another-unit": lambda t, layers, some, w, h, kv, d, n: [
        t() / unit**power for unit in (1000, 1024) for power in (1, 2, 3)
    ],
}  # fmt: skip


# --- fix_grouped


def attend(q, k, v, divisor=None):
    return softmax(q @ np.swapaxes(k, -1, -2) / (divisor or q.shape[-1] ** 0.5)) @ v


def fetched(keys, values, divisor=lambda d: d**0.5):
    return says(lambda q, k, v: [attend(q, keys(k, q.shape[1]), values(v, q.shape[1]), divisor(q.shape[-1]))])


def reordered(q, k, v):
    group, kv = q.shape[1] // k.shape[1], k.shape[1]
    order = [g * group + i for i in range(group) for g in range(kv)]
    return [attend(q[:, order], tiled(k, q.shape[1]), tiled(v, q.shape[1]))]


def first(x, count):
    return x[:, :1]


def backwards(x, count):
    return grouped(x[:, ::-1], count)


def mean(x, count):
    return x.mean(1, keepdims=True)


def cut_up(q, k, v):
    """Keys or values, or both, are repeated along tokens or width, and then cut into heads."""
    count = q.shape[1]
    keys, values = ([grouped(x, count), cut(x, count, 2), cut(x, count, 3)] for x in (k, v))
    return [attend(q, one, other) for one in keys for other in values]


def other_axis(q, k, v):
    """A result is there only if the shapes still fit: with one group, nothing is repeated."""
    group, found = q.shape[1] // k.shape[1], []
    for axis in (0, 2):
        try:
            found.append(attend(q, np.repeat(k, group, axis), np.repeat(v, group, axis)))
        except ValueError:
            continue
    return found


def too_often(q, k, v):
    found = []
    for times in (k.shape[1], q.shape[1]):
        try:
            found.append(attend(q, np.repeat(k, times, 1), np.repeat(v, times, 1)))
        except ValueError:
            continue
    return found


def causal(q, k, v):
    scores = q @ np.swapaxes(grouped(k, q.shape[1]), -1, -2) / q.shape[-1] ** 0.5
    later = np.triu(np.ones(scores.shape[-2:], bool), 1)
    return [softmax(np.where(later, -np.inf, scores)) @ grouped(v, q.shape[1])]


def output_and_weights(problem, expected, got):
    q, k, v = map(array, problem)
    k, v = grouped(k, q.shape[1]), grouped(v, q.shape[1])
    return same(got, (attend(q, k, v), softmax(q @ np.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5)))


GROUPED = {
    "repeated-and-then-cut": says(cut_up),
    "keys-still-wrong": fetched(tiled, grouped),
    "values-still-wrong": fetched(grouped, tiled),
    "list-of-heads-repeated": fetched(tiled, tiled),
    "not-scaled": fetched(grouped, grouped, lambda d: 1.0),
    "scaled-by-d_k": fetched(grouped, grouped, lambda d: d),
    "queries-reordered": says(reordered),
    "first-head-for-all": fetched(first, first),
    "groups-in-reverse-order": fetched(backwards, backwards),
    "heads-averaged": fetched(mean, mean),
    "another-axis-repeated": says(other_axis),
    "repeated-too-often": says(too_often),
    "causal-mask": says(causal),
    "weights-as-well": output_and_weights,
}

CLAIMS = (
    {("repeat_heads", name): repeated(candidates) for name, candidates in REPEAT.items()}
    | {("rolling_window_mask", name): predicate for name, predicate in MASK.items()}
    | {("cache_bytes", name): counted(candidates) for name, candidates in BYTES.items()}
    | {("fix_grouped", name): predicate for name, predicate in GROUPED.items()}
)


# --- A mask with few keys for each query, and how far it reaches in two layers.


def reached(got):
    """The tokens that the last one reaches: by the keys of its keys."""
    return {int(key) for between in np.flatnonzero(got[-1]) for key in np.flatnonzero(got[between])}


REACH = {
    "the-picture": lambda got: not isinstance(got, np.ndarray),
    "wrong-shape": lambda got: np.shape(got) != (7, 7),
    "zeros-and-ones": lambda got: got.dtype != bool and all(number in (0, 1) for number in got.flat),
    "not-boolean": lambda got: got.dtype != bool and any(number not in (0, 1) for number in got.flat),
    "mask-inverted": lambda got: all(got[i, j] for i in range(7) for j in range(i + 1, 7)) and not got.all(),
    "sees-the-future": lambda got: any(got[i, j] for i in range(7) for j in range(i + 1, 7)),
    "own-key-hidden": lambda got: not all(got[i, i] for i in range(7)),
    "too-many-keys": lambda got: max(map(sum, got.tolist())) > 3,
    "where-the-picture-begins": lambda got: all(
        got[i, j] == (i - 3 < j <= i) for i in range(7) for j in range(7)
    ),
    "tokens-not-reached": lambda got: reached(got) < set(range(7)),
}
CLAIMS |= claims("mask_that_reaches", REACH, of_result)
