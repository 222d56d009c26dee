"""Chapter 02: a lookup that searches in the wrong place."""

import math

import torch

from mha_course.exercises import Exercise, Mistake, _scale, _softmax, deviations


def fix_lookup(query, keys, values):
    """``(n_q, d)``, twice ``(n_k, d)`` to the output ``(n_q, d)``."""
    weights = torch.softmax(query @ keys.mT / query.shape[-1] ** 0.5, dim=-1)
    return weights @ values


def _stub(query, keys, values):
    """The chapter's."""
    scores = query @ values.mT / query.shape[-1] ** 0.5
    weights = torch.softmax(scores, dim=-1)
    return weights @ values


def _problems(rng):
    keys = torch.tensor([[2.0, -1.0], [0.5, 1.0], [-1.0, 0.25]])
    yield torch.tensor([[1.0, 2.0]]), keys, torch.tensor([[3.0, 0.5], [-1.0, 2.0], [4.0, -2.5]])
    yield torch.tensor([[1.5, -0.5], [0.25, 2.0]]), keys, torch.tensor([[6.0, 1.0], [2.0, -3.0], [-4.0, 5.0]])
    for _ in range(3):
        n_q, n_k, d = rng.primes(3)
        yield tuple(rng.normal(n, d) for n in (n_q, n_k, n_k))


def _build(
    searched=lambda q, k, v: q @ k.mT,
    divisor=_scale.right,
    weigh=_softmax.right,
    fetched=lambda w, k, v: w @ v,
):
    return lambda q, k, v: fetched(weigh(searched(q, k, v) / divisor(_scale.Sizes.of(q, k))), k, v)


def _unit(rows):
    return rows / rows.norm(dim=-1, keepdim=True)


STEP = "6 What do keys decide, and what do values decide?"
ONE, SCALE = "1 One query, one key", "11 Appendix: the scale of another layer"
SEARCHED = {
    "values-searched": (
        "Your function scores the query against the values.",
        STEP,
        (lambda q, k, v: q @ v.mT,),
    ),
    "normalised-values-searched": (
        "Your function still scores the query against the values, made shorter or longer first. The keys "
        "are not used.",
        STEP,
        (
            lambda q, k, v: q @ _unit(v).mT,
            lambda q, k, v: _unit(q) @ _unit(v).mT,
            lambda q, k, v: q @ (v / v.norm()).mT,
            lambda q, k, v: q @ (v / v.max()).mT,
            lambda q, k, v: q @ v.mT / 2,
        ),
    ),
    "keys-normalised": (
        "Your function makes the keys equally long, or keys and queries; use them as they are.",
        STEP,
        (lambda q, k, v: q @ _unit(k).mT, lambda q, k, v: _unit(q) @ _unit(k).mT),
    ),
    "keys-and-values-mixed": (
        "Your function scores the query against sums or products of keys and values.",
        STEP,
        (lambda q, k, v: q @ (k + v).mT, lambda q, k, v: q @ (k * v).mT),
    ),
    "keys-with-values": (
        "Your function scores the keys against the values: the query is not used.",
        STEP,
        (lambda q, k, v: k @ v.mT,),
    ),
    "keys-with-keys": (
        "Your function scores the keys against the keys: the query is not used.",
        STEP,
        (lambda q, k, v: k @ k.mT,),
    ),
    "scores-transposed": (
        "Your scores are (n_k, n_q), transposed: `query @ keys.mT` is (n_q, n_k), so that the softmax runs "
        "over the keys.",
        ONE,
        (lambda q, k, v: k @ q.mT, lambda q, k, v: v @ q.mT),
    ),
    "not-transposed": (
        "Your function multiplies by the keys as they are; their rows must become columns: `keys.mT`.",
        ONE,
        (lambda q, k, v: q @ k,),
    ),
}
DIVISORS = {
    name: (says.replace("d_k", "d"), section, of)
    for name, (says, section, of) in _scale.wrong(SCALE, "lengths").items()
} | {
    "another-scale": ("Your scores are multiplied by 1/8, which fits d = 64 only.", SCALE, (lambda sizes: 8,))
}
WEIGHTS = _softmax.wrong(ONE)
del WEIGHTS["equal-weights"]  # the plain mean
FETCHED = {
    "keys-fetched": (
        "Your function fetches keys; it must fetch values.",
        STEP,
        (lambda w, k, v: w @ k,),
    ),
    "keys-and-values-fetched": (
        "Your function fetches sums of keys and values; it must fetch values alone.",
        STEP,
        (lambda w, k, v: w @ (k + v), lambda w, k, v: w @ k + w @ v),
    ),
    "weights-returned": (
        "Your function returns the weights, not what is fetched.",
        ONE,
        (lambda w, k, v: w,),
    ),
    "weights-returned-too": (
        "Your function returns the weights as well as the output; it should return the output alone.",
        ONE,
        (lambda w, k, v: (w @ v, w),),
    ),
}
KNOBS = {"searched": SEARCHED, "divisor": DIVISORS, "weigh": WEIGHTS, "fetched": FETCHED}
OFTEN = {  # seen together with others; each pair costs time
    "values-searched", "normalised-values-searched", "not-scaled", "scaled-by-d_k", "half-of-d_k",
    "multiplied-by-the-root", "scaled-by-the-number-of-keys", "softmax-over-queries", "no-softmax",
    "keys-fetched", "weights-returned-too",
}  # fmt: skip
EXERCISE = Exercise(
    answer=fix_lookup,
    chapter="02_toy_queries_keys_values",
    section=STEP,
    points=1,
    problems=_problems,
    bug=_stub,
    mistakes={
        **deviations(_build, KNOBS, pairs=False),
        **deviations(_build, {knob: {k: v for k, v in t.items() if k in OFTEN} for knob, t in KNOBS.items()}),
        "plain-mean": Mistake(
            "Your function fetches the plain mean of the values: query and keys are not used.",
            STEP,
            (
                lambda q, k, v: v.mean(0).expand(len(q), -1),
                lambda q, k, v: v.mean(0),
                lambda q, k, v: v.mean(0, keepdim=True),
            ),
        ),
        "scores-returned": Mistake(
            "Your function returns the scores.", ONE, (lambda q, k, v: q @ k.mT / math.sqrt(q.shape[-1]),)
        ),
    },
)
