"""What is said of answers to the exercises of chapter 13, asked of the numbers."""

import numpy as np

from tests.check.claims.results import claims, of_result, same

CLAIMS = {}


def num(x):
    return np.asarray(x, np.float64)


def says(make, cast=num):
    """A predicate: the result is one of what ``make`` returns of the arguments."""

    def holds(problem, expected, got):
        with np.errstate(all="ignore"):
            return any(same(num(got), np.asarray(one)) for one in make(*map(cast, problem)))

    return holds


def softmax(s, axis=-1):
    e = np.exp(s - s.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


# --- softmax_with_sink


def column(scores, sinks):
    return np.broadcast_to(num(sinks)[..., None, None], (*scores.shape[:-1], 1))


def whole(scores, sinks):
    """With the column of the sinks."""
    return softmax(np.concatenate([scores, column(scores, sinks)], -1))


def sums_to_1(problem, expected, got):
    return got.shape == problem[0].shape and np.allclose(got.sum(-1), 1, atol=1e-4)


def one_or_nothing(problem, expected, got):
    sums = got.sum(-1)
    nothing = num(expected).sum(-1) < 1e-6
    return got.shape == problem[0].shape and bool((np.isclose(sums, 1, atol=1e-4) | nothing).all())


def over_queries(scores, sinks):
    row = np.broadcast_to(sinks[:, None, None], (*scores.shape[:-2], 1, scores.shape[-1]))
    both = np.concatenate([scores, column(scores, sinks)], -1)
    return [softmax(np.concatenate([scores, row], -2), -2)[..., :-1, :], softmax(both, -2)[..., :-1]]


def by_hand(scores, sinks, in_sum):
    """For no shift, one by the largest score of a row, and one by the larger of this and the sink."""
    sink, top = sinks[:, None, None], scores.max(-1, keepdims=True)
    shifts = [np.zeros_like(top), top, np.maximum(top, sink)]
    found = []
    for shift in shifts:
        e = np.exp((scores - shift).astype(np.float32))
        found.append(e / (e.sum(-1, keepdims=True) + in_sum(sink).astype(np.float32)))
    return found


def overflows(problem, expected, got):
    """Only where scores or sinks are large."""
    large = max(np.abs(num(x)).max() for x in problem) > 80
    return got.shape == expected.shape and large


CLAIMS |= {
    ("softmax_with_sink", name): predicate
    for name, predicate in {
        "one-sink-for-all-heads": says(
            lambda s, k: [whole(s, np.full(len(k), one))[..., :-1] for one in (k[0], k[-1], k.mean())]
        ),
        "sign-of-the-sink": says(lambda s, k: [whole(s, -k)[..., :-1]]),
        "score-of-0-for-all": says(lambda s, k: [whole(s, 0 * k)[..., :-1], *by_hand(s, 0 * k, np.exp)[:1]]),
        "sink-kept": says(lambda s, k: [whole(s, k)]),
        "rows-sum-to-1": sums_to_1,
        "divided-again": one_or_nothing,
        "first-column-is-the-sink": says(lambda s, k: [np.roll(whole(s, k), 1, -1)[..., :-1]]),
        "all-sinks-in-each-row": says(
            lambda s, k: [
                softmax(np.concatenate([s, np.broadcast_to(k, (*s.shape[:-1], len(k)))], -1))[..., :-less]
                for less in (len(k), 1)
            ]
        ),
        "sink-without-exp": says(lambda s, k: by_hand(s, k, lambda sink: sink)),
        "sink-not-shifted": says(lambda s, k: by_hand(s, k, np.exp)[1:]),
        "unstable-softmax": overflows,
        "softmax-over-queries": says(over_queries),
        "sink-taken-off-the-weights": says(lambda s, k: [softmax(s) - k[:, None, None]]),
    }.items()
}

# --- fix_rotary_offset


def turned(x, at):
    d = x.shape[-1]
    angle = num(at)[:, None] * 10000.0 ** (-2 * np.arange(d // 2) / d)
    out = x.copy()
    out[..., 0::2] = x[..., 0::2] * np.cos(angle) - x[..., 1::2] * np.sin(angle)
    out[..., 1::2] = x[..., 0::2] * np.sin(angle) + x[..., 1::2] * np.cos(angle)
    return out


def scored(q, k):
    return q @ np.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5


def causal(scores, shift=None):
    n_q, n_k = scores.shape[-2:]
    seen = np.tri(n_q, n_k, n_k - n_q if shift is None else shift, dtype=bool)
    return softmax(np.where(seen, scores, -np.inf))


def standing(start, key_start=lambda n_q, n_k: 0):
    """The weights with queries and keys at other positions."""

    def make(q, k):
        n_q, n_k = q.shape[-2], k.shape[-2]
        at = start(n_q, n_k) + np.arange(n_q)
        return [causal(scored(turned(q, at), turned(k, key_start(n_q, n_k) + np.arange(n_k))))]

    return says(make)


def right_scores(q, k):
    n_q, n_k = q.shape[-2], k.shape[-2]
    return scored(turned(q, np.arange(n_k - n_q, n_k)), turned(k, np.arange(n_k)))


def all_at_the_end(q, k):
    n_k = k.shape[-2]
    at = np.full(q.shape[-2], n_k - 1)
    return [causal(scored(turned(q, at), turned(k, np.arange(n_k))))]


CLAIMS |= {
    ("fix_rotary_offset", name): predicate
    for name, predicate in {
        "queries-from-0": standing(lambda n_q, n_k: 0),
        "one-position-too-far": standing(lambda n_q, n_k: n_k - n_q + 1),
        "queries-after-all-keys": standing(lambda n_q, n_k: n_k),
        "starts-at-the-last-key": standing(lambda n_q, n_k: n_k - 1),
        "one-position-too-early": standing(lambda n_q, n_k: n_k - n_q - 1),
        "all-queries-at-the-end": says(all_at_the_end),
        "moved-the-other-way": standing(lambda n_q, n_k: n_q - n_k),
        "moved-by-the-number-of-queries": standing(lambda n_q, n_k: n_q),
        "query-not-turned": says(lambda q, k: [causal(scored(q, turned(k, np.arange(k.shape[-2]))))]),
        "key-not-turned": says(
            lambda q, k: [causal(scored(turned(q, np.arange(k.shape[-2] - q.shape[-2], k.shape[-2])), k))]
        ),
        "nothing-turned": says(lambda q, k: [causal(scored(q, k))]),
        "mask-lost": says(lambda q, k: [softmax(right_scores(q, k))]),
        "triangle-from-the-first-key": says(lambda q, k: [causal(right_scores(q, k), 0)]),
        "scores-returned": says(lambda q, k: [right_scores(q, k)]),
    }.items()
}

# --- norm_query_key


def split(x, d_k):
    return np.swapaxes(x.reshape(*x.shape[:-1], -1, d_k), -2, -3)


def rms(x, axis=-1):
    return np.sqrt((x**2).mean(axis, keepdims=True) + 1e-6)


def headwise(make):
    """One of what ``make`` returns of the heads and the gain."""
    return says(lambda x, g: make(split(x, len(g)), g))


def sized(*sizes):
    """Heads divided by another size, a function of the mean of their squares."""
    return headwise(lambda x, g: [g * x / size((x**2).mean(-1, keepdims=True)) for size in sizes])


def another_epsilon(problem, expected, got):
    """Only where a mean of squares is so small that epsilon counts, and only numbers that are not 0."""
    small = (split(num(problem[0]), len(problem[1])) ** 2).mean(-1, keepdims=True) < 1e-2
    factor = num(got) / num(expected)
    return got.shape == expected.shape and bool((small | np.isclose(factor, 1, rtol=1e-3)).all())


CLAIMS |= {
    ("norm_query_key", name): predicate
    for name, predicate in {
        "heads-after-tokens": headwise(lambda x, g: [np.swapaxes(g * x / rms(x), 1, 2)]),
        "heads-interleaved": says(
            lambda x, g: [g * y / rms(y) for y in [x.reshape(*x.shape[:2], len(g), -1).transpose(0, 3, 1, 2)]]
        ),
        "view-without-transpose": says(
            lambda x, g: [g * y / rms(y) for y in [x.reshape(x.shape[0], -1, x.shape[1], len(g))]]
        ),
        "mean-subtracted": headwise(lambda x, g: [g * y / rms(y) for y in [x - x.mean(-1, keepdims=True)]]),
        "length-in-place-of-rms": headwise(
            lambda x, g: [g * x / np.sqrt((x**2).sum(-1, keepdims=True) + eps) for eps in (1e-6, 0)]
        ),
        "root-missing": headwise(lambda x, g: [g * x / rms(x) ** 2]),
        "squares-missing": headwise(
            lambda x, g: [
                g * x / (np.abs(x).mean(-1, keepdims=True) + 1e-6),
                g * x / np.sqrt(np.abs(x).mean(-1, keepdims=True) + 1e-6),
            ]
        ),
        "standard-deviation": headwise(
            lambda x, g: [
                g * x / by
                for less in (0, 1)
                for s in [x.std(-1, keepdims=True, ddof=less)]
                for by in (s + 1e-6, s.clip(1e-6), np.sqrt(s**2 + 1e-6))
            ]
        ),
        "square-of-the-mean": headwise(lambda x, g: [g * x / np.sqrt(x.mean(-1, keepdims=True) ** 2 + 1e-6)]),
        "over-the-tokens": headwise(lambda x, g: [g * x / rms(x, -2)]),
        "over-everything": headwise(lambda x, g: [g * x / np.sqrt((x**2).mean() + 1e-6)]),
        "eps-missing": sized(np.sqrt),
        "eps-outside-the-root": sized(lambda mean: np.sqrt(mean) + 1e-6),
        "another-epsilon": another_epsilon,
        "not-divided": headwise(lambda x, g: [g * x]),
        "gain-missing": headwise(lambda x, g: [x / rms(x)]),
        "gain-plus-1": headwise(lambda x, g: [(1 + g) * x / rms(x)]),
        "all-heads-together": says(lambda x, g: [g * split(x / rms(x), len(g))]),
        "layer-norm": headwise(
            lambda x, g: [
                g * y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-5)
                for y in [x - x.mean(-1, keepdims=True)]
            ]
        ),
        "not-split": lambda problem, expected, got: got.shape == problem[0].shape,
        "gain-before-the-norm": headwise(lambda x, g: [g * x / rms(g * x)]),
    }.items()
}

# --- capped_score_mod


def visible(q, k, window=4):
    return ((k <= q) & (q - k < window)) | (k == 0)


def mod(make):
    """One of what ``make`` returns of the score and the two indices."""

    def holds(problem, expected, got):
        score, _, _, q, k = problem
        got = np.asarray(got, np.float64)
        return any(same(got, num(one)) for one in make(num(score), np.asarray(q), np.asarray(k)))

    return holds


def capped(s):
    return 5 * np.tanh(s / 5)


def seen(*rules):
    """The cap is right, and another rule says what is visible."""
    return mod(lambda s, q, k: [np.where(rule(q, k), capped(s), -np.inf) for rule in rules])


def unbracketed(q, k):
    """What Python makes of comparisons without brackets: of two, or of three."""
    near, first = q - k < 4, k == 0
    windows = [(k <= q) & near, k <= (q & near), q >= (k & near), (near & k) <= q, (near & q) >= k]
    return [w | first for w in windows[1:]] + [(w | k) == 0 for w in windows]


def with_cap(*caps):
    """What is visible is right, and the cap is another."""
    return mod(lambda s, q, k: [np.where(visible(q, k), cap(s), -np.inf) for cap in caps])


def low(problem, expected, got):
    hidden = np.isinf(num(expected))
    got = num(got)
    return same(got[~hidden], num(expected)[~hidden]) and bool((got[hidden] <= -1000).all())


CLAIMS |= {
    ("capped_score_mod", name): predicate
    for name, predicate in {
        "not-capped": with_cap(lambda s: s),
        "cut-off": with_cap(lambda s: s.clip(-5, 5)),
        "not-divided-by-the-cap": with_cap(lambda s: 5 * np.tanh(s)),
        "not-multiplied-by-the-cap": with_cap(lambda s: np.tanh(s / 5), np.tanh),
        "first-token-hidden": seen(lambda q, k: (k <= q) & (q - k < 4)),
        "window-one-too-long": seen(lambda q, k: visible(q, k, 5)),
        "window-one-too-short": seen(lambda q, k: visible(q, k, 3)),
        "sees-the-future": seen(
            lambda q, k: (abs(q - k) < 4) | (k == 0), lambda q, k: (q - k < 4) | (k == 0)
        ),
        "query-and-key-swapped": seen(lambda q, k: visible(k, q), lambda q, k: visible(k, q) | (k == 0)),
        "own-key-hidden": seen(*(lambda q, k, n=n: ((k < q) & (q - k < n)) | (k == 0) for n in (4, 5))),
        "no-window": seen(lambda q, k: k <= q),
        "nothing-hidden": seen(lambda q, k: k >= 0),
        "inverted": seen(lambda q, k: ~visible(q, k)),
        "hidden-scores-are-0": mod(lambda s, q, k: [np.where(visible(q, k), capped(s), 0.0)]),
        "large-negative-number": low,
        "brackets-missing": mod(
            lambda s, q, k: [np.where(found, capped(s), -np.inf) for found in unbracketed(q, k)]
        ),
        "mask-alone": lambda problem, expected, got: np.asarray(got).dtype == bool,
        "hidden-before-the-cap": mod(lambda s, q, k: [np.where(visible(q, k), capped(s), -5.0)]),
    }.items()
}


# --- far_but_known: the position of a query and of a key, on a strip of 32 places. Trained on 8 tokens.


def pair(got):
    """Both positions, if the answer has two numbers."""
    return tuple(num(got).tolist()) if isinstance(got, np.ndarray) and got.shape == (2,) else None


def last_turn(got):
    """How far pair 1 has turned, in the last turn that it began: steps of 0.4 radians."""
    left = 0.4 * abs(got[0] - got[1])
    while left >= 2 * np.pi:
        left -= 2 * np.pi
    return left


FAR = {
    "the-picture": lambda got: not isinstance(got, np.ndarray),
    "one-number": lambda got: np.size(got) == 1,
    "numbers-that-are-not-whole": lambda got: any(number % 1 for number in pair(got)),
    "not-on-the-strip": lambda got: not set(pair(got)) <= set(range(32)),
    "where-the-picture-begins": lambda got: pair(got) == (7, 0),
    "positions-swapped": lambda got: got[1] - got[0] == 22,
    "key-after-query": lambda got: got[1] > got[0],
    "inside-the-training": lambda got: 0 <= got[0] - got[1] <= 7,
    "not-the-largest": lambda got: 8 <= got[0] - got[1] < 22 and last_turn(got) <= 2.8,
    "other-side": lambda got: last_turn(got) > 2.8 and 2 * np.pi - last_turn(got) <= 2.8,
    "new-angle": lambda got: last_turn(got) > 2.8,
}
CLAIMS |= claims("far_but_known", FAR, of_result)


# --- slow_pairs: pair r turns by base ** (-2 r / d_k), and the largest distance is length - 1.


def turns(d_k, base, length, pairs=None, power=-2, first=0):
    """How many full turns each pair makes from the first token to the last."""
    r = first + np.arange(d_k // 2 if pairs is None else pairs)
    return (length - 1) * float(base) ** (power * r / d_k) / (2 * np.pi)


SLOW = {
    "exponent-halved": lambda d, b, n: (turns(d, b, n, power=-1) < 1).sum(),
    "exponent-doubled": lambda d, b, n: (turns(d, b, n, power=-4) < 1).sum(),
    "sign-of-the-exponent": lambda d, b, n: (turns(d, b, n, power=2) < 1).sum(),
    "pairs-from-1": lambda d, b, n: (turns(d, b, n, first=1) < 1).sum(),
    "as-many-pairs-as-columns": lambda d, b, n: (turns(d, b, n, pairs=d) < 1).sum(),
    "base-of-10000": lambda d, b, n: (turns(d, 1e4, n) < 1).sum(),
    "length-for-distance": lambda d, b, n: (turns(d, b, n + 1) < 1).sum(),
    "one-radian": lambda d, b, n: (turns(d, b, n) < 1 / (2 * np.pi)).sum(),
    "half-a-turn": lambda d, b, n: (turns(d, b, n) < 0.5).sum(),
    "degrees": lambda d, b, n: (turns(d, b, n) < 360 / (2 * np.pi)).sum(),
    "fast-pairs": lambda d, b, n: (turns(d, b, n) >= 1).sum(),
    "all-pairs": lambda d, b, n: d // 2,
    "columns": lambda d, b, n: 2 * (turns(d, b, n) < 1).sum(),
    "which-pairs": lambda d, b, n: np.flatnonzero(turns(d, b, n) < 1),
    "yes-or-no": lambda d, b, n: turns(d, b, n) < 1,
    "share": lambda d, b, n: (turns(d, b, n) < 1).mean(),
    "one-too-many": lambda d, b, n: (turns(d, b, n) < 1).sum() + 1,
    "one-too-few": lambda d, b, n: (turns(d, b, n) < 1).sum() - 1,
}


def counted(make):
    """A predicate: the result is this count."""

    def holds(problem, expected, got):
        wanted = np.asarray(make(*problem))
        return np.shape(got) == wanted.shape and np.allclose(num(got), num(wanted))

    return holds


CLAIMS |= claims("slow_pairs", SLOW, counted)
