"""What is said of answers to the exercises of chapter 02, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, of_both, softmax

# --- query_by_hand: what a longer query in the same direction does


def along(problem, query, length):
    keys, values = (array(a) for a in problem)
    weights = softmax(keys @ (length * array(query)) / 2**0.5)
    return weights, (weights @ values).item()


def too_short(problem, expected, got):
    return any(w[1] <= 0.05 and abs(x - 20) <= 1 for w, x in (along(problem, got, n) for n in range(1, 101)))


def too_flat(problem, expected, got):
    now, longer = along(problem, got, 1)[0][1], along(problem, got, 2)[0][1]
    towards = array(problem[0]) @ array(got)
    return longer < now and abs(towards[0] - towards[2]) > 1e-3 and not too_short(problem, expected, got)


BY_HAND = {
    "too-short": too_short,
    "too-flat": too_flat,
    "where-the-picture-begins": lambda problem, expected, got: np.allclose(array(got), [0.3, 0.1], atol=1e-5),
    "all-alike": lambda problem, expected, got: np.ptp(along(problem, got, 1)[0]) < 0.02,
    "wrong-shape": lambda problem, expected, got: np.shape(got) != (2,),
}
CLAIMS = claims("query_by_hand", BY_HAND)


# --- query_among_128: keys with a common part


def angle(one, other):
    cosine = one @ other / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-30)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def stretched(query, keys, index, sign=1):
    """A query of this direction, or of the opposite one, puts 0.99 on the key, if it is long enough."""
    scores = sign * keys @ query
    return scores.argmax() == index and (np.delete(scores, index) < scores[index]).all()


AMONG = {
    "zero": lambda q, k, i: not q.any(),
    "along-the-key": lambda q, k, i: angle(q, k[i]) < 0.3 and (np.median(k @ q) > 0),
    "common-part-only": lambda q, k, i: min(angle(q, k.mean(0)), angle(-q, k.mean(0))) < 0.3,
    "too-short": stretched,
    "opposite": lambda q, k, i: stretched(q, k, i, -1),
    "common-part-added": lambda q, k, i: angle(q, k[i] + k.mean(0)) < 0.3,
    "another-key": lambda q, k, i: (
        angle(q, (k - k.mean(0))[i]) > 1 and min(angle(q, own) for own in k - k.mean(0)) < 0.3
    ),
    "number-subtracted": lambda q, k, i: (
        any(angle(q, k[i] - number) < 0.3 for number in np.linspace(0, 2 * abs(k[i]).max(), 2000))
        or any(angle(q, k[i] + number) < 0.3 for number in np.linspace(0, 2 * abs(k[i]).max(), 2000))
    ),
}


def among(holds):
    return of_both(lambda problem, got: holds(array(got), array(problem[0]), int(problem[1])))


CLAIMS |= claims("query_among_128", AMONG, among)
