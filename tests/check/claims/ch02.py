"""What is said of answers to the exercises of chapter 02, asked of the numbers."""

import numpy as np

from tests.check.claims.results import array, claims, never, of_both, says, softmax


def shares(x):
    return x / x.sum()


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def paper(x):
    """The weights without the largest score subtracted, in float32."""
    e = np.exp(x.astype(np.float32))
    return e / e.sum()


def searched(q, k, v):
    return softmax(q @ k.T / q.shape[-1] ** 0.5) @ v


def smaller(v):
    d = v.shape[-1]
    total, peaks = np.linalg.norm(v), np.abs(v).max(-1, keepdims=True)
    columns, sums = np.linalg.norm(v, axis=0), v.sum(-1, keepdims=True)
    parts = (
        2,
        total,
        peaks,
        np.abs(v).max(),
        v.max(),
        v.max(0),
        np.abs(v).max(0),
        v.std(),
        v.sum(),
        columns,
        sums,
        d**0.5,
        d,
        len(v),
        len(v) ** 0.5,
    )
    return [unit(v), softmax(v), softmax(v, 0), *(v / part for part in parts)]


def scaled(factor):
    """The lookup with the scores multiplied by another number."""
    return lambda q, k, v: [softmax(q @ k.T * f) @ v for f in np.ravel(factor(q, k, v))]


def weighed(factor):
    """The soft lookup with the scores multiplied by another number."""
    return lambda q, k, v, t: [softmax(k @ q * f) @ v for f in np.ravel(factor(k.shape, t))]


def after(weights):
    """The soft lookup with other weights, made of scores, temperature and width."""
    return lambda q, k, v, t: [w @ v for w in weights(k @ q, t, k.shape[-1])]


def on_columns(q, k, v, t):
    w = softmax(k @ q / t)
    return [w * v, (w * v).sum(0), v @ w] if len(w) == v.shape[-1] else []


def undivided(s, t):
    """In single precision, where exp of a large score is infinite, and that of a very negative one 0."""
    e = np.exp(s / np.float32(t) - s.max())
    return e / e.sum()


def roots(q, k, v, t):
    """In single precision, where small weights are 0."""
    power = softmax((k @ q).astype(np.float32)) ** np.float32(1 / t)
    return power / power.sum() @ v


def cut_off(s, t, d):
    """Scores with a highest value, and maybe a lowest, before or after the temperature; exp may overflow."""
    limits = [(low, c) for c in [*range(1, 101), 88.7, 500, 700] for low in (-np.inf, -c)]
    cut = [y for limit in limits for y in (np.clip(s / t, *limit), np.clip(s, *limit) / t)]
    return [paper(y) for y in cut if s.max() < 0 or not np.array_equal(y, s / t)]


MEND_LOOKUP = {
    "values-searched": lambda q, k, v: [searched(q, v, v), searched(q, v, k)],
    "normalised-values-searched": lambda q, k, v: [
        softmax(p @ u.T / r) @ v for u in smaller(v) for p in (q, unit(q)) for r in (1, q.shape[-1] ** 0.5)
    ],
    "keys-normalised": lambda q, k, v: [
        softmax(p @ unit(k).T / s) @ v for p in (q, unit(q)) for s in (1, q.shape[-1] ** 0.5)
    ],
    "keys-and-values-mixed": lambda q, k, v: [searched(q, u, v) for u in (k + v, k * v, k - v, (k + v) / 2)],
    "keys-with-values": lambda q, k, v: [searched(k, v, v), searched(v, k, v)],
    "keys-with-keys": lambda q, k, v: [searched(k, k, v)],
    "scores-transposed": lambda q, k, v: [
        w @ v for a in (0, 1) if len(q) == len(v) for w in [softmax(k @ q.T / q.shape[-1] ** 0.5, a)]
    ],
    "not-transposed": lambda q, k, v: [softmax(q @ k / len(k) ** 0.5) @ v] if len(k) == k.shape[-1] else [],
    "not-scaled": scaled(lambda q, k, v: 1),
    "scaled-by-d": scaled(lambda q, k, v: 1 / q.shape[-1]),
    "half-of-d": scaled(lambda q, k, v: [2 / q.shape[-1], 0.5 / q.shape[-1]]),
    "multiplied-by-the-root": scaled(lambda q, k, v: q.shape[-1] ** 0.5),
    "scaled-by-the-number-of-keys": scaled(lambda q, k, v: len(k) ** -0.5),
    "scaled-by-the-number-of-queries": scaled(lambda q, k, v: len(q) ** -0.5),
    "another-scale": scaled(lambda q, k, v: 1 / 8),
    "plain-mean": lambda q, k, v: [v.mean(0), 0 * q[:, :1] + v.mean(0), v.mean(0, keepdims=True)],
    "softmax-over-queries": lambda q, k, v: [softmax(q @ k.T / q.shape[-1] ** 0.5, 0) @ v],
    "softmax-over-all": lambda q, k, v: [softmax(q @ k.T / q.shape[-1] ** 0.5, (0, 1)) @ v],
    "no-softmax": lambda q, k, v: [q @ k.T @ v, q @ k.T @ v / q.shape[-1] ** 0.5],
    "softmax-twice": lambda q, k, v: [softmax(softmax(q @ k.T / q.shape[-1] ** 0.5)) @ v],
    "keys-fetched": lambda q, k, v: [searched(q, k, k)],
    "keys-and-values-fetched": lambda q, k, v: [searched(q, k, k + v)],
    "weights-returned": lambda q, k, v: [searched(q, k, np.eye(len(k)))],
    "weights-returned-too": lambda q, k, v: [
        (o, w)[::s] for s in (1, -1) for o, w in [(searched(q, k, v), searched(q, k, np.eye(len(k))))]
    ],
    "scores-returned": lambda q, k, v: [q @ k.T, q @ k.T / q.shape[-1] ** 0.5],
}

LONGER_QUERY = {
    "unchanged-weights": lambda w: [w],
    "doubled-weights": lambda w: [2 * w],
    "squares-not-divided": lambda w: [w**2],
    "softmax-of-weights": lambda w: [softmax(w), softmax(2 * w)],
    "softmax-of-squares": lambda w: [softmax(w**2)],
    "exp-not-divided": lambda w: [np.exp(w), np.exp(2 * w)],
    "euclidean-norm": lambda w: [unit(w), unit(w**2), w**2 / np.linalg.norm(w)],
    "divided-by-the-largest": lambda w: [w / w.max(), w**2 / (w**2).max(), w**2 / w.max()],
    "fits-two-keys-only": lambda w: [w**2 / (w**2 + (1 - w) ** 2)],
    "complement": lambda w: [1 - w, shares(1 - w), shares((1 - w) ** 2)],
    "flatter": lambda w: [shares(w**0.5)],
    "roots-not-divided": lambda w: [w**0.5],
    "another-power": lambda w: [w**3, w**4, shares(w**3), shares(w**4)],
    "powers-of-two": lambda w: [2**w, shares(2**w)],
    "scores-returned": lambda w: [np.log(w), 2 * np.log(w)],
    "logarithms-as-weights": lambda w: [shares(np.log(w))],
    "mirrored": lambda w: [shares(w**2)[::-1]],
    "hard": lambda w: [np.eye(len(w))[w.argmax()]],
    "scaled-as-well": lambda w: [shares(w ** (2 / len(w) ** 0.5))],
    "uniform": lambda w: [np.full(len(w), 1 / len(w))],
    "printed-example-only": lambda w: [np.array([0.1, 0.9])],
}

SOFT_LOOKUP = {
    "temperature-ignored": weighed(lambda shape, t: 1),
    "root-in-place-of-temperature": weighed(lambda shape, t: shape[1] ** -0.5),
    "scaled-as-well": weighed(lambda shape, t: shape[1] ** -0.5 / t),
    "divided-by-d_k-as-well": weighed(lambda shape, t: 1 / shape[1] / t),
    "temperature-inverted": weighed(lambda shape, t: t),
    "inverted-and-scaled": weighed(lambda shape, t: t * shape[1] ** -0.5),
    "root-of-the-temperature": weighed(lambda shape, t: [t**-0.5, (t * shape[1]) ** -0.5]),
    "divided-twice": weighed(lambda shape, t: t**-2),
    "scaled-by-the-number-of-keys": weighed(
        lambda shape, t: [f / g for f in (shape[0] ** -0.5, 1 / shape[0]) for g in (1, t)]
    ),
    "query-normalised": lambda q, k, v, t: [softmax(k @ unit(q) / r) @ v for r in (t, 1)],
    "unstable-softmax": after(lambda s, t, d: [paper(s / t)]),
    "divided-again-after-the-softmax": after(lambda s, t, d: [softmax(s / t) / t]),
    "softmax-twice": after(lambda s, t, d: [softmax(softmax(s / t) / r) for r in (1, t)]),
    "no-softmax": after(lambda s, t, d: [s / t, s]),
    "no-exp": after(lambda s, t, d: [shares(s)]),
    "not-normalised": after(lambda s, t, d: [np.exp(s / t), np.exp((s - s.max()) / t)]),
    "hard-lookup": lambda q, k, v, t: [v[(k @ q).argmax()]],
    "scores-cut-off": after(cut_off),
    "softmax-over-the-query": lambda q, k, v, t: [v.sum(0), v.sum(0)[None]],
    "row-of-a-matrix": lambda q, k, v, t: [
        y for z in [softmax(k @ q / t) @ v] for y in (z[None], z[:, None])
    ],
    "weights-on-columns": on_columns,
    "not-summed": lambda q, k, v, t: [softmax(k @ q / t)[:, None] * v],
    "summed-over-columns": lambda q, k, v, t: [softmax(k @ q / t) * v.sum(1)],
    "divided-by-the-number-of-keys": after(lambda s, t, d: [softmax(s / t) / len(s)]),
    "keys-fetched": lambda q, k, v, t: [softmax(k @ q / t) @ k],
    "weights-returned": lambda q, k, v, t: [softmax(k @ q / t)],
    "weights-returned-too": lambda q, k, v, t: [
        (w @ v, w)[::s] for s in (1, -1) for row in [softmax(k @ q / t)] for w in (row, row[None])
    ],
    "one-value-only": lambda q, k, v, t: [softmax(k @ q / t)[i] * v[i] for i in (0, -1)],
    "root-of-the-weights": lambda q, k, v, t: [roots(q, k, v, t)],
    "maximum-not-divided": lambda q, k, v, t: [undivided((k @ q).astype(np.float32), t) @ v],
    "temperature-after-softmax": after(
        lambda s, t, d: [softmax(s) / t, softmax(s / d**0.5) / t, softmax(softmax(s) / t)]
    ),
    "multiplied-after-softmax": after(lambda s, t, d: [softmax(s) * t, softmax(s / d**0.5) * t]),
    "power-of-the-weights": after(lambda s, t, d: [softmax(s.astype(np.float32)) ** p for p in (t, 1 / t)]),
    "temperature-as-mask": after(lambda s, t, d: [softmax(s / d**0.5), np.full(len(s), np.nan)]),
    "query-times-keys": lambda q, k, v, t: [softmax(q @ k / t) @ v] if len(q) == len(k) else [],
    "plain-mean": lambda q, k, v, t: [v.mean(0), v.mean(0, keepdims=True)],
    "temperature-clamped": lambda q, k, v, t: [
        softmax(k @ q / other) @ v for n in (1, 2, 2.5, 3, 5) for e in (0.01, 0.1, 1, 10) for other in [n * e]
    ],
}


CLAIMS = {
    (exercise, name): says(candidates)
    for exercise, table in {
        "fix_lookup": MEND_LOOKUP,
        "predict_longer_query": LONGER_QUERY,
        "soft_lookup": SOFT_LOOKUP,
    }.items()
    for name, candidates in table.items()
} | {
    ("query_averaging", "query-without-a-row"): never,
    ("query_for_key", "query-without-a-row"): never,
    ("soft_lookup", "query-without-a-row"): never,
    ("soft_lookup", "vector-transposed"): never,
}


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
CLAIMS |= {("query_by_hand", name): holds for name, holds in BY_HAND.items()}


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
