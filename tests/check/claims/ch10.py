"""What is said of answers to the exercises of chapter 10, asked of the numbers."""

from itertools import product

import numpy as np
import torch

from mha_lab.chapters import story_model
from mha_lab.explore._model import forward, rounded
from tests.check.claims.results import array, claims, of_result, same, says, softmax


def attend(q, k, v, hidden, divisor=None, fill=-np.inf, empty=None):
    divisor = divisor or q.shape[-1] ** 0.5
    weights = softmax(np.where(hidden, fill, q @ np.swapaxes(k, -1, -2) / divisor))
    if empty is not None:
        weights = np.where(np.all(hidden, -1, keepdims=True), empty, weights)
    return weights @ v, weights


def cache(candidates):
    """Candidates of ``see`` (shift or mask, keys, values, ...), sizes, indices, turned keys and values."""

    def of_arguments(q, k, v, old_k, old_v):
        new, old = k.shape[-2], old_k.shape[-2]
        i, j = np.arange(new)[:, None], np.arange(new + old)
        keys, values = np.concatenate([old_k, k], -2), np.concatenate([old_v, v], -2)
        turned = np.concatenate([k, old_k], -2), np.concatenate([v, old_v], -2)

        def see(hidden, keys=keys, values=values, **more):
            hidden = j > i + hidden if isinstance(hidden, int) else hidden
            return attend(q, keys, values, hidden, **more)[0]

        return candidates(see, new, old, i, j, turned, q)

    return of_arguments


def fresh(q, k, v, old_k, old_v):
    """The new tokens alone, with the triangle or without."""
    n = k.shape[-2]
    return [attend(q, k, v, np.triu(np.ones((n, n), bool), d))[0] for d in (1, n)]


def output_and_weights(problem, expected, got):
    q, k, v, old_k, old_v = map(array, problem)
    old, keys = old_k.shape[-2], np.concatenate([old_k, k], -2)
    hidden = np.arange(keys.shape[-2]) > np.arange(k.shape[-2])[:, None] + old
    return same(got, attend(q, keys, np.concatenate([old_v, v], -2), hidden))


# What a row gets in which all is hidden: NaN, zeros, or the same weight on each key.
EMPTY = [(-np.inf, None), (-np.inf, 0), (-1e9, None)]

CACHE = {
    "triangle-as-before": lambda see, new, old, i, j, turned, q: [see(0)],
    "mask-ignored": lambda see, new, old, i, j, turned, q: [see(j < 0)],
    "hides-own-key": lambda see, new, old, i, j, turned, q: [see(old - 1), see(old - 1, empty=0)],
    "sees-the-next-token": lambda see, new, old, i, j, turned, q: [see(old + 1)],
    "shifted-by-a-fixed-number": lambda see, new, old, i, j, turned, q: [see(by) for by in range(1, 8)],
    "shifted-by-the-number-of-new-tokens": lambda see, new, old, i, j, turned, q: [see(new)],
    "shifted-the-other-way": lambda see, new, old, i, j, turned, q: [
        see(-old, fill=fill, empty=e) for fill, e in EMPTY
    ],
    "shifted-by-another-axis": lambda see, new, old, i, j, turned, q: [
        see(q.shape[axis]) for axis in (0, 1, 3) if q.shape[axis] != old
    ],
    "mask-inverted": lambda see, new, old, i, j, turned, q: [
        see(j <= i + old, fill=fill, empty=e) for fill, e in EMPTY
    ],
    "first-triangle-hidden": lambda see, new, old, i, j, turned, q: [
        see(j <= i, fill=f, empty=e) for f, e in EMPTY
    ],
    "upper-triangle": lambda see, new, old, i, j, turned, q: [
        see(j < i + old, fill=f, empty=e) for f, e in EMPTY
    ],
    "only-kept-tokens-seen": lambda see, new, old, i, j, turned, q: [
        see(j + 0 * i >= old, fill=fill, empty=e) for fill, e in EMPTY
    ],
    "mask-without-a-cache-only": lambda see, new, old, i, j, turned, q: [see(0 * i + j < 0)] if old else [],
    "columns-of-the-mask-swapped": lambda see, new, old, i, j, turned, q: [see((j < new) & (j > i))],
    "keys-in-another-order": lambda see, new, old, i, j, turned, q: [see(old, keys=turned[0])],
    "values-in-another-order": lambda see, new, old, i, j, turned, q: [see(old, values=turned[1])],
    "not-scaled": lambda see, new, old, i, j, turned, q: [see(old, divisor=1)],
    "scaled-by-d_k": lambda see, new, old, i, j, turned, q: [see(old, divisor=q.shape[-1])],
    "order-swapped": lambda see, new, old, i, j, turned, q: [see(d, *turned) for d in (0, old)],
}


def log_softmax(x, axis=-1):
    x = x - x.max(axis, keepdims=True)
    return x - np.log(np.exp(x).sum(axis, keepdims=True))


def pick(x, tokens):
    return np.take_along_axis(x, tokens[..., None], -1)[..., 0]


def loss(lp, tokens):
    return -pick(lp, tokens).mean()


def float32_loss(x, t):
    """The formulas that are right on paper, in float32."""
    x, t = x[:, :-1].astype(np.float32), t[:, 1:]
    e = np.exp(x)
    return [
        loss(np.log(e / e.sum(-1, keepdims=True)), t),
        loss(np.log(softmax(x)), t),
        loss(x - np.log(e.sum(-1, keepdims=True)), t),
    ]


def flattened(lp, t):
    """The shift along all texts in a row, if there are several; the last may be judged by the first."""
    lp, many, t = lp.reshape(-1, lp.shape[-1]), len(t) > 1, t.ravel()
    return [loss(lp[:-1], t[1:]), loss(lp, np.roll(t, -1))] if many else []


def viewed(x, t, lp, p):
    """The numbers of (batch, n, vocab) read as (batch, vocab, n), before or after the shift."""
    before = np.swapaxes(x.reshape(len(x), x.shape[2], -1), 1, 2)[:, :-1]
    after = np.swapaxes(x[:, :-1].reshape(len(x), x.shape[2], -1), 1, 2)
    return [loss(log_softmax(y), t[:, 1:]) for y in (before, after)]


# Of the logits x, the tokens t, the log probabilities lp, and the losses p of the predictions.
LOSS = {
    "not-shifted": lambda x, t, lp, p: [loss(lp, t), loss(lp[:, :-1], t[:, :-1]), loss(lp[:, 1:], t[:, 1:])],
    "shifted-backwards": lambda x, t, lp, p: [loss(lp[:, 1:], t[:, :-1])],
    "rolled-around": lambda x, t, lp, p: [loss(lp, np.roll(t, -1, 1))],
    "rolled-backwards": lambda x, t, lp, p: [loss(lp, np.roll(t, 1, 1))],
    "shifted-after-flattening": lambda x, t, lp, p: flattened(lp, t),
    "shifted-along-the-batch": lambda x, t, lp, p: [loss(lp[:-1], t[1:]), loss(lp, np.roll(t, -1, 0))],
    "vocabulary-not-swapped": viewed,
    "two-ahead": lambda x, t, lp, p: [loss(lp[:, :-2], t[:, 2:])],
    "only-the-last-prediction": lambda x, t, lp, p: [p[:, -1].mean()],
    "first-text-only": lambda x, t, lp, p: [p[0].mean()],
    "softmax-twice": lambda x, t, lp, p: [loss(log_softmax(np.exp(lp))[:, :-1], t[:, 1:])],
    "logarithm-missing": lambda x, t, lp, p: [-np.exp(-p).mean()],
    "softmax-over-positions": lambda x, t, lp, p: [
        loss(log_softmax(x, 1)[:, :-1], t[:, 1:]),
        loss(log_softmax(x[:, :-1], 1), t[:, 1:]),
    ],
    "averaged-over-the-vocabulary": lambda x, t, lp, p: [-lp[:, :-1].mean()],
    "no-softmax": lambda x, t, lp, p: [sign * loss(x[:, :-1], t[:, 1:]) for sign in (1, -1)],
    "sign-missing": lambda x, t, lp, p: [-p.mean()],
    "bits": lambda x, t, lp, p: [p.mean() / np.log(2), p.mean() / np.log(10)],
    "unstable-softmax": lambda x, t, lp, p: float32_loss(x, t),
    "summed": lambda x, t, lp, p: [p.sum(), p.sum() / len(p), p.sum() / p.shape[1]],
    "divided-by-all-tokens": lambda x, t, lp, p: [p.sum() / t.size],
    "divided-by-one-text": lambda x, t, lp, p: [p.sum() / p.shape[1], p.sum() / t.shape[1]],
    "divided-by-the-batch": lambda x, t, lp, p: [p.sum() / len(p)],
    "not-averaged": lambda x, t, lp, p: [p, p.ravel(), p.mean(0), p.mean(1), p.sum(0), p.sum(1)],
    "averaged-before-the-logarithm": lambda x, t, lp, p: [
        -np.log(np.exp(-p.astype(np.float32)).mean(axis)).mean() for axis in (None, 0, 1)
    ],
    "perplexity": lambda x, t, lp, p: [np.exp(np.float32(p.mean()))],
}


def losses(candidates):
    def of_arguments(x, t):
        t = t.astype(int)
        lp = log_softmax(x)
        return candidates(x, t, lp, -pick(lp[:, :-1], t[:, 1:]))

    return of_arguments


def products(*choices):
    return [int(np.prod(c)) for c in product(*choices)]


def squares(layers, heads, n, d):
    """Of ``n`` tokens, or without them, a matrix for each."""
    return products((1, 2), (1, layers), (1, heads), (1, n), (d * d, (d // heads) ** 2))


def pairs(layers, heads, n, d):
    return products((1, 2), (1, layers), (1, heads), (n * n,), (1, d, d // heads))


def maps(layers, heads, n, d):
    return products((1, 2), (1, layers), (1, heads), (n * n,))


def sums(layers, heads, n, d):
    a, b, c = layers, n, d
    whole = [a + b + c, a + b + c + heads, a + b + c + 2, a + b + c + heads + 2]
    partial = [a * (b + c), b * (a + c), c * (a + b), a * b + c, a * c + b, b * c + a, b * c * (a + heads)]
    return [f * y for f in (1, 2) for y in whole + partial]


COUNTS = {
    "keys-only": lambda layers, heads, n, d: [layers * n * d],
    "queries-kept": lambda layers, heads, n, d: [3 * layers * n * d],
    "one-layer": lambda layers, heads, n, d: [2 * n * d],
    "counted-per-head": lambda layers, heads, n, d: [2 * layers * heads * n * d],
    "one-head": lambda layers, heads, n, d: [2 * layers * n * d // heads],
    "width-left-out": lambda layers, heads, n, d: [2 * layers * n, 2 * layers * n * heads],
    "width-squared": squares,
    "one-token": lambda layers, heads, n, d: [2 * layers * d],
    "pairs-of-tokens": pairs,
    "added-up-over-the-steps": lambda layers, heads, n, d: [layers * d * n * (n + s) for s in (1, -1)],
    "one-token-fewer": lambda layers, heads, n, d: [2 * layers * d * (n - 1)],
    "one-token-more": lambda layers, heads, n, d: [2 * layers * d * (n + 1)],
    "bytes": lambda layers, heads, n, d: [2 * layers * n * d * b for b in (2, 4)],
    "eight-texts": lambda layers, heads, n, d: [16 * layers * n * d],
    "weights-instead": maps,
    "weights-as-well": lambda layers, heads, n, d: [
        2 * layers * n * d + m for m in maps(layers, heads, n, d)
    ],
    "parameters": lambda layers, heads, n, d: products((1, 2, 3, 4, 8, 12), (1, layers), (d * d,)),
    "added-not-multiplied": sums,
}


def line(w, offset=-1):
    return np.diagonal(w, offset, -2, -1)


def best(w):
    hits = w[..., 1:, :].argmax(-1) == np.arange(w.shape[-1] - 1)
    return [hits.mean(-1), hits.sum(-1), hits.sum(-1) / w.shape[-1]]


def earlier(w):
    total, n = np.tril(w, -1).sum((-1, -2)), w.shape[-1]
    return [total, total / n, total / (n - 1), total / n**2, total / (n * (n - 1) / 2)]


PREVIOUS = {
    "next-token": lambda w: [line(w, 1).mean(-1)],
    "own-token": lambda w: [line(w, 0).mean(-1), line(w, 0)[..., 1:].mean(-1)],
    "two-back": lambda w: [line(w, -2).mean(-1)],
    "all-earlier-tokens": earlier,
    "whole-block": lambda w: [w[..., 1:, :-1].mean((-1, -2)), w[..., 1:, :-1].sum((-1, -2))],
    "rolled-around": lambda w: [
        (line(w).sum(-1) + w[..., 0, -1]) / n for n in (w.shape[-1], w.shape[-1] - 1)
    ],
    "argmax": best,
    "first-column": lambda w: [w[..., 1:, 0].mean(-1), w[..., 0].mean(-1)],
    "last-row-only": lambda w: [w[..., -1, -2]],
    "axes-in-front": lambda w: [np.diagonal(w, -1, 0, 1).mean(-1)],
    "divided-by-n": lambda w: [line(w).sum(-1) / w.shape[-1]],
    "summed": lambda w: [line(w).sum(-1)],
    "averaged-over-heads": lambda w: [
        line(w).mean(),
        *([line(w).mean((-2, -1)), line(w).mean((0, -1))] if w.ndim > 2 else []),
    ],
    "averaged-over-tokens-of-the-wrong-axis": lambda w: [line(w).mean(0)],
    "not-averaged": lambda w: [line(w)],
    "largest": lambda w: [line(w).max(-1)],
}


def of_the_loss(claim):
    """In a training, the loss comes with whether it has a gradient."""
    return lambda problem, expected, got: (
        claim(problem[:2], expected[0], got[0]) if len(problem) == 3 else claim(problem, expected, got)
    )


CLAIMS = (
    {("fix_cache", name): says(cache(candidates)) for name, candidates in CACHE.items()}
    | {("fix_cache", "cache-ignored"): says(fresh), ("fix_cache", "weights-as-well"): output_and_weights}
    | {("next_token_loss", name): of_the_loss(says(losses(candidates))) for name, candidates in LOSS.items()}
    | {("next_token_loss", "no-gradient"): lambda problem, expected, got: len(problem) == 2 or not got[1]}
    | {("predict_cache", name): says(candidates, int) for name, candidates in COUNTS.items()}
    | {("predict_cache", "true-or-false"): lambda problem, expected, got: got.dtype == bool}
    | {("previous_token_score", name): says(candidates) for name, candidates in PREVIOUS.items()}
)


# --- Bits for each byte. A problem is a loss, a number of tokens, and a number of bytes.


def amounts(candidates):
    """Candidates of the loss ``x``, tokens ``t`` and bytes ``b``; a result is near one of them."""

    def holds(problem, expected, got):
        return any(np.isclose(float(got), value, rtol=1e-3) for value in candidates(*map(float, problem)))

    return holds


LN2 = float(np.log(2))
CLAIMS |= {
    ("bits_per_byte", name): amounts(candidates)
    for name, candidates in {
        "nats": lambda x, t, b: [x * t / b],
        "multiplied-by-log-2": lambda x, t, b: [x * LN2 * t / b],
        "base-10": lambda x, t, b: [x * t / b / np.log(10)],
        "divided-by-2": lambda x, t, b: [x / 2 * t / b],
        "logarithm-of-the-loss": lambda x, t, b: [np.log(x) * t / b, np.log2(x) * t / b],
        "perplexity": lambda x, t, b: [np.exp(x) * t / b, np.exp(x) * t / b / LN2],
        "bytes-per-token": lambda x, t, b: [x / LN2 * b / t],
        "per-token": lambda x, t, b: [x / LN2],
        "whole-text": lambda x, t, b: [x / LN2 * t],
        "loss-as-a-sum": lambda x, t, b: [x / LN2 / b, x / LN2 / t],
        "divided-by-both": lambda x, t, b: [x / LN2 / (t * b)],
        "per-bit": lambda x, t, b: [x / LN2 * t / b / 8],
        "times-8": lambda x, t, b: [8 * x / LN2 * t / b],
        "whole-division": lambda x, t, b: [0.0],
    }.items()
}


# --- Heads that the model of the picture does not need, on the four texts.

MODEL = rounded(story_model.load())
RIGHT = {"Ada amused Ben": "she", "Ada admired Ben": "he", "Ben amused Ada": "he", "Ben admired Ada": "she"}


@torch.no_grad()
def smallest(heads):
    """The smallest probability of a right word, with these heads silent in the picture."""
    acts = ["silent" if divmod(i, 4) in set(heads) else "" for i in range(8)]
    found = []
    for text, word in RIGHT.items():
        logits = forward(MODEL, story_model.encode(f"{text} because").tolist(), acts)["logits"][-1]
        found.append(logits.softmax(-1)[story_model.NUMBER[word]].item())
    return min(found)


def pairs(got):
    return [tuple(int(number) for number in pair) for pair in got]


def known(got):
    return all(layer in (0, 1) and head in range(4) for layer, head in pairs(got))


SPARE = {
    "the-picture": lambda got: not isinstance(got, np.ndarray | tuple | list),
    "none-silent": lambda got: len(got) == 0,
    "no-pairs": lambda got: not all(np.shape(pair) == (2,) for pair in got) if np.iterable(got) else True,
    "head-before-layer": lambda got: smallest([(b, a) for a, b in pairs(got)]) >= 0.9,
    "counted-from-1": lambda got: smallest([(a - 1, b - 1) for a, b in pairs(got)]) >= 0.9,
    "no-such-head": lambda got: not known(got),
    "a-head-twice": lambda got: len(set(pairs(got))) < len(pairs(got)),
    "fewer-than-four": lambda got: len(pairs(got)) < 4,
    "more-than-four": lambda got: len(pairs(got)) > 4,
    "the-heads-left-on": lambda got: (
        smallest({divmod(i, 4) for i in range(8)} - set(pairs(got))) >= 0.9 and len(pairs(got)) == 4
    ),
    "pointing-head-silent": lambda got: (1, 0) in pairs(got) and smallest(pairs(got)) < 0.9,
    "another-answer": lambda got: smallest(pairs(got)) < 0.5,
    "not-sure-enough": lambda got: 0.5 <= smallest(pairs(got)) < 0.9,
}
CLAIMS |= claims("heads_to_spare", SPARE, of_result)
