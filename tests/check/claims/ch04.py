"""What is said of answers to the exercises of chapter 04, asked of the numbers."""

import numpy as np

from tests.check.claims.results import claims


def boolean(got):
    return getattr(got, "dtype", None) == np.dtype(bool)


def is_mask(got, *candidates):
    """Is the result one of these boolean masks?"""
    return boolean(got) and any(np.array_equal(got, c) for c in candidates)


# --- causal_mask


def triangle(n, k=0):
    return np.tri(n, k=k, dtype=bool)


def sized_otherwise(p, e, got):
    return any(is_mask(got, triangle(k)) for k in range(1, 20) if k != p[0])


CAUSAL = {
    "one-row": lambda p, e, got: np.shape(got) in ((p[0],), (1, p[0])),
    "always-the-same-size": sized_otherwise,
}

# --- masked_softmax


def weights_of(problem, got):
    """The weights alone, where the gradient is looked at, too."""
    return got[0] if len(problem) == 3 and (isinstance(got, tuple) or got.ndim > problem[0].ndim) else got


def prepared(problem):
    s, m = np.asarray(problem[0], np.float32), np.asarray(problem[1])
    return s, np.broadcast_to(m, s.shape)


def zero_times_infinity(problem, expected, got):
    """NaN or 0 in each place, and visible places are NaN or 0 alike."""
    s, m = prepared(problem)
    w = weights_of(problem, got)
    if np.shape(w) != s.shape or not (np.isnan(w[m]).all() or (w[m] == 0).all()):
        return False
    return bool((np.isnan(w[~m]) | (w[~m] == 0)).all())


def only_empty_rows(problem, expected, got):
    """All rows that see something are right."""
    w, e = weights_of(problem, got), np.asarray(weights_of(problem, expected))
    if np.shape(w) != e.shape:
        return False
    seen = prepared(problem)[1].any(-1)
    return np.allclose(np.asarray(w)[seen], e[seen], atol=1e-3)


SOFTMAX = {
    "large-number-added": only_empty_rows,
    "uniform-for-empty-row": only_empty_rows,
    "no-gradient": lambda p, e, got: (
        len(p) == 3 and np.ndim(got[1]) == 0 and not got[1] and np.allclose(got[0], e[0], atol=1e-4)
    ),
    "zero-times-infinity": zero_times_infinity,
}

# --- padding_mask


def padding(lengths, width):
    return (np.arange(width) < np.asarray(lengths)[:, None])[:, None, None]


def last_axis_as(problem, expected, got):
    width = np.shape(got)[-1] if np.ndim(got) else problem[1]
    return width != problem[1] and is_mask(got, padding(problem[0], width))


def longest(problem, expected, got):
    return is_mask(got, padding(problem[0], int(max(problem[0]))))


def repeated(problem, expected, got):
    """Some of the rows may hide everything."""
    k = padding(*problem)[:, :, 0]
    return boolean(got) and got.ndim == 4 and got.shape[2] > 1 and np.array_equal(got.any(2), k)


PADDING = {
    "queries-repeated": repeated,
    "as-wide-as-the-longest": longest,
    "always-the-same-width": last_axis_as,
}

# --- predict_equal_scores


def three_rows(problem, expected, got):
    """They may be rounded."""
    rows = np.tri(3) / np.arange(1, 4)[:, None]
    return np.shape(got) == (3, 3) and np.allclose(got, rows, atol=0.04)


def minus_infinity(problem, expected, got):
    t = triangle(problem[0])
    if np.shape(got) != t.shape or not (got[~t] == -np.inf).all():
        return False
    return bool((got[t] == got[0, 0]).all())


EQUAL = {
    "scores-returned": minus_infinity,
    "always-three-rows": three_rows,
}

# --- mask_by_hand and packed_mask: texts side by side in one row


def packed(lengths):
    own = np.repeat(range(len(lengths)), lengths)
    return (own[:, None] == own) & triangle(len(own))


def all_of_one_length(problem, expected, got):
    """Some length divides the row into texts, the last of which may be cut off."""
    i = np.arange(sum(problem[0]))
    return is_mask(got, *((i <= i[:, None]) & (i[:, None] // m == i // m) for m in range(1, len(i) + 1)))


MASK_BY_HAND = {
    "where-the-picture-begins": lambda p, e, got: boolean(got) and got.all(),
    "border-elsewhere": lambda p, e, got: is_mask(got, *(packed([k, 5 - k]) for k in (1, 2, 4))),
    "second-text-hidden": lambda p, e, got: boolean(got) and not got[:, 3:].any() and got[4, :3].all(),
}
PACKED_MASK = {
    "one-length-for-all": all_of_one_length,
    "one-mask-for-each-text": lambda p, e, got: (
        len(got) == len(p[0]) and all(np.shape(mask) == (m, m) for mask, m in zip(got, p[0], strict=True))
    ),
}

CLAIMS = claims("causal_mask", CAUSAL)
CLAIMS |= claims("mask_by_hand", MASK_BY_HAND) | claims("masked_softmax", SOFTMAX)
CLAIMS |= claims("packed_mask", PACKED_MASK)
CLAIMS |= claims("padding_mask", PADDING) | claims("predict_equal_scores", EQUAL)
