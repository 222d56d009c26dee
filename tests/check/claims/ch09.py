"""What is said of answers to the exercises of chapter 09, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, of_result

# --- Relative positions: a bias for each head, and ALiBi.


def half_zero(p, e, got):
    above = np.triu(np.ones(np.shape(e)[-2:], bool), 1)
    return np.shape(got) == np.shape(e) and any(not array(got)[:, half].any() for half in (above, above.T))


# --- Rotary positions: each pair of numbers as one complex number.


def pairs(x):
    return array(x)[..., 0::2] + 1j * array(x)[..., 1::2]


def turned(p, got):
    """By what each pair was multiplied, if its length is what it was; else nothing."""
    same_lengths = np.shape(got) == np.shape(p[0]) and np.allclose(
        abs(pairs(got)), abs(pairs(p[0])), rtol=1e-3, atol=1e-3
    )
    return pairs(got) / pairs(p[0]) if same_lengths else None


def all_alike(along):
    """All pairs are turned by the same angle as the first ones along an axis."""

    def claim(p, e, got):
        q = turned(p, got)
        return q is not None and bool(np.allclose(q, q.take([0], along), rtol=1e-3, atol=2e-3))

    return claim


def one_half(p, e, got):
    """One number of each pair is what it was, and the other is not."""
    if np.shape(got) != np.shape(p[0]):
        return False
    kept = [np.allclose(f(pairs(got)), f(pairs(p[0])), rtol=1e-3, atol=1e-3) for f in (np.real, np.imag)]
    return kept[0] != kept[1]


CLAIMS = {
    ("fix_relative_bias", "half-of-it-0"): half_zero,
    ("predict_alibi_weights", "all-rows"): lambda p, e, got: np.shape(got)[-2:] == (int(p[1]),) * 2,
    ("rotate_pairs", "half-of-the-pair"): one_half,
    ("rotate_pairs", "one-speed"): all_alike(-1),
    ("rotate_pairs", "one-speed-of-another-pair"): all_alike(-1),
    ("rotate_pairs", "no-positions"): all_alike(-2),
}


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
