"""Chapter 02: a lookup with a temperature."""

import math

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _softmax, deviations


def soft_lookup(query, keys, values, temperature):
    """``(d_k,)``, ``(n_k, d_k)``, ``(n_k, d_v)`` to the average of the values, ``(d_v,)``."""
    return torch.softmax(keys @ query / temperature, dim=-1) @ values


def _problems(rng):
    keys = torch.tensor([[2.0, -1.0, 0.5], [1.0, 3.0, -2.0]])
    values = torch.tensor([[4.0, -1.0, 3.0, 7.0], [2.0, 5.0, 9.0, -6.0]])
    yield torch.tensor([1.0, 2.0, 0.5]), keys, values, 2.0
    for temperature in (0.5, 3.0, 1.7):
        d_k, n_k, d_v = rng.primes(3)
        yield rng.normal(d_k), rng.normal(n_k, d_k), rng.normal(n_k, d_v), temperature
    yield rng.normal(3), rng.normal(2, 3), rng.normal(2, 1), 1.0
    # Scores near 900, and all below -900: exp of them does not fit in float64 either.
    keys = torch.tensor([[30.0, 1.0], [29.9, 2.0], [1.0, 25.0]])
    values = torch.tensor([[3.0, 7.0, -1.0, 4.0], [-2.0, 1.0, 6.0, 8.0], [5.0, 2.0, 9.0, -3.0]])
    yield torch.tensor([6.0, 0.25]), keys, values, 0.2
    yield torch.tensor([-6.0, -7.24]), keys, values, 0.2
    yield torch.tensor([6.0, 0.25]), keys, values, 90.0  # far apart, and drawn together
    # As low as the text says. The scores are so close that 1e-6 may be added to the temperature.
    keys = torch.tensor([[0.01, 0.0], [0.0, 0.005], [-0.005, 0.01]])
    yield torch.tensor([1.0, 1.0]), keys, torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, -1.0]]), 0.01


def _naive(scores):
    raised = torch.exp(scores)
    return raised / raised.sum()


def _naive_in_python(scores):
    raised = [math.exp(score) for score in scores.tolist()]
    return torch.tensor([number / sum(raised) for number in raised])


def _build(divisor=lambda q, k, t: t, weigh=_softmax.right, after=lambda t: 1, fetch=lambda w, k, v: w @ v):
    return lambda q, k, v, t: fetch(weigh(k @ q / divisor(q, k, t)) / after(t), k, v)


TEMPERATURE, ONE = "5 Length and temperature", "1 One query, one key"
DIVISORS = {
    "temperature-ignored": (
        "Your scores are not divided by the temperature.",
        TEMPERATURE,
        (lambda q, k, t: 1,),
    ),
    "root-in-place-of-temperature": (
        "Your scores are divided by sqrt(d_k), not by the temperature.",
        TEMPERATURE,
        (lambda q, k, t: math.sqrt(len(q)),),
    ),
    "scaled-as-well": (
        "Your scores are divided by sqrt(d_k) as well; here the temperature alone divides them.",
        TEMPERATURE,
        (lambda q, k, t: t * math.sqrt(len(q)),),
    ),
    "divided-by-d_k-as-well": (
        "Your scores are divided by d_k as well; here the temperature alone divides them.",
        TEMPERATURE,
        (lambda q, k, t: t * len(q),),
    ),
    "temperature-inverted": (
        "Your scores are multiplied by the temperature, not divided by it.",
        TEMPERATURE,
        (lambda q, k, t: 1 / t,),
    ),
    "multiplied-by-exp": (
        "Your scores are multiplied by `exp(temperature)`. Divide them by the temperature.",
        TEMPERATURE,
        (lambda q, k, t: math.exp(-t),),
    ),
    "inverted-and-scaled": (
        "Your scores are multiplied by the temperature, and divided by sqrt(d_k).",
        TEMPERATURE,
        (lambda q, k, t: math.sqrt(len(q)) / t,),
    ),
    "root-of-the-temperature": (
        "Your scores are divided by the square root of the temperature.",
        TEMPERATURE,
        (lambda q, k, t: math.sqrt(t),),
    ),
    "divided-twice": (
        "Your scores are divided by the temperature twice.",
        TEMPERATURE,
        (lambda q, k, t: t * t,),
    ),
    "scaled-by-the-number-of-keys": (
        "Your scores are divided by the square root of n_k, the number of keys, or by n_k.",
        TEMPERATURE,
        tuple(lambda q, k, t, a=a, b=b: t**a * len(k) ** b for a in (0, 1) for b in (0.5, 1)),
    ),
    "temperature-clamped": (
        "Your function replaces a temperature that is very low, or very high, by another number. The "
        "temperature can be as low as 0.01.",
        TEMPERATURE,
        tuple(lambda q, k, t, low=low: max(t, low) for low in (0.02, 0.05, 0.1, 0.2, 0.25, 0.3, 0.5, 1, 2))
        + tuple(lambda q, k, t, high=high: min(t, high) for high in (1, 2, 5, 10, 20, 50)),
    ),
    "query-normalised": (
        "Your query is scaled to length 1; its length should count.",
        TEMPERATURE,
        (lambda q, k, t: t * q.norm(),),
    ),
}
# There is one row of scores; equal weights are the plain mean.
OTHERS = "softmax-over-queries", "softmax-over-everything", "equal-weights"
WEIGHTS = {name: form for name, form in _softmax.wrong(ONE, "far").items() if name not in OTHERS} | {
    "unstable-softmax": (
        "Your function takes exp of scores that are too large or too negative: it is infinite, or 0 for all "
        "keys. Subtract the largest score first; the weights stay the same.",
        TEMPERATURE,
        (_naive, _naive_in_python),
    ),
    "softmax-over-the-query": (
        "Every weight is 1: your softmax runs over the axis of the queries, and there is one query.",
        ONE,
        (torch.ones_like,),
    ),
    "hard-lookup": (
        "Your function returns the value of the best key alone; a soft lookup averages all of them.",
        ONE,
        (lambda s: torch.nn.functional.one_hot(s.argmax(), len(s)).float(),),
    ),
}
AFTER = {
    "divided-again-after-the-softmax": (
        "Your weights are divided by the temperature after the softmax, too.",
        TEMPERATURE,
        (lambda t: t,),
    ),
}
RESULTS = {
    "row-of-a-matrix": (
        "Your result has an axis of length 1 too many; it should be (d_v,).",
        ONE,
        (lambda w, k, v: w[None] @ v, lambda w, k, v: (w @ v)[:, None]),
    ),
    "weights-on-columns": (
        "Your weights are lined up with the columns of values; each belongs to a row of values.",
        ONE,
        (lambda w, k, v: (w * v).sum(0), lambda w, k, v: (v * w).sum(0), lambda w, k, v: v @ w),
    ),
    "not-summed": (
        "Your function multiplies each value by its weight, but does not add them up.",
        ONE,
        (lambda w, k, v: w[:, None] * v,),
    ),
    "summed-over-columns": (
        "Your function adds up the numbers within each weighted value, not the values.",
        ONE,
        (lambda w, k, v: (w[:, None] * v).sum(1),),
    ),
    "divided-by-the-number-of-keys": (
        "Your function divides the weighted sum by the number of keys; the weights sum to 1 already.",
        ONE,
        (lambda w, k, v: w @ v / len(w),),
    ),
    "keys-fetched": (
        "Your function averages the keys; it should average the values.",
        ONE,
        (lambda w, k, v: w @ k,),
    ),
    "weights-returned": (
        "Your function returns the weights, not the average.",
        ONE,
        (lambda w, k, v: w,),
    ),
    "weights-returned-too": (
        "Your function returns the weights as well as the output; it should return the output alone.",
        ONE,
        (lambda w, k, v: (w @ v, w), lambda w, k, v: ((w @ v)[None], w[None])),
    ),
    "one-value-only": (
        "Your function returns one weighted value: the first or the last. Does it return within the loop?",
        ONE,
        (lambda w, k, v: w[0] * v[0], lambda w, k, v: w[-1] * v[-1]),
    ),
}
KNOBS = {"divisor": DIVISORS, "weigh": WEIGHTS, "after": AFTER, "fetch": RESULTS}
OFTEN = {  # seen together with others; each pair costs time
    "temperature-ignored", "root-in-place-of-temperature", "scaled-as-well", "temperature-inverted",
    "unstable-softmax", "divided-again-after-the-softmax", "no-softmax", "not-divided",
    "row-of-a-matrix", "keys-fetched", "weights-returned-too", "not-summed",
}  # fmt: skip
EXERCISE = Exercise(
    answer=soft_lookup,
    chapter="02_toy_queries_keys_values",
    section=TEMPERATURE,
    points=2,
    problems=_problems,
    mistakes={
        **deviations(_build, KNOBS, pairs=False),
        **deviations(_build, {knob: {k: v for k, v in t.items() if k in OFTEN} for knob, t in KNOBS.items()}),
        "maximum-not-divided": Mistake(
            "The largest score that you subtract is not divided by the temperature, but the others are.",
            TEMPERATURE,
            (lambda q, k, v, t: (e := torch.exp(k @ q / t - (k @ q).max())) / e.sum() @ v,),
        ),
        "root-of-the-weights": Mistake(
            "Your function takes the softmax first, and raises the weights to the power 1 / temperature. On "
            "paper that is the same; in floating point a small weight is 0 before the root is taken.",
            TEMPERATURE,
            (lambda q, k, v, t: (p := torch.softmax(k @ q, 0) ** (1 / t)) / p.sum() @ v,),
        ),
        "temperature-after-softmax": Mistake(
            "Your function divides by the temperature after the softmax. It must divide the scores, before "
            "the softmax.",
            TEMPERATURE,
            (
                lambda q, k, v, t: torch.softmax(k @ q, -1) @ v / t,
                lambda q, k, v, t: torch.softmax(k @ q / math.sqrt(len(q)), -1) @ v / t,
            ),
        ),
        "multiplied-after-softmax": Mistake(
            "Your function multiplies by the temperature after the softmax. It must divide the scores, "
            "before the softmax.",
            TEMPERATURE,
            (
                lambda q, k, v, t: torch.softmax(k @ q, -1) @ v * t,
                lambda q, k, v, t: torch.softmax(k @ q / math.sqrt(len(q)), -1) @ v * t,
            ),
        ),
        "power-of-the-weights": Mistake(
            "Your function takes a power of the weights, but does not divide by their sum again.",
            TEMPERATURE,
            (
                lambda q, k, v, t: torch.softmax(k @ q, -1) ** (1 / t) @ v,
                lambda q, k, v, t: torch.softmax(k @ q, -1) ** t @ v,
            ),
        ),
        "query-without-a-row": Mistake(
            "`query` is a single vector, (d_k,). Attention expects a row for each query: `query[None]`.",
            ONE,
            (
                lambda q, k, v, t: mha_lab.scaled_dot_product_attention(q, k, v, scale=1 / t)[0],
                lambda q, k, v, t: torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1 / t),
            ),
        ),
        "vector-transposed": Mistake(
            "`query` is a single vector, (d_k,). It cannot be transposed, and need not be.",
            ONE,
            (lambda q, k, v, t: k @ q.mT, lambda q, k, v, t: k @ q.transpose(0, 1)),
        ),
        "temperature-as-mask": Mistake(
            "The fourth argument is the mask. The scale is given by its name: `scale=...`.",
            TEMPERATURE,
            (
                lambda q, k, v, t: mha_lab.scaled_dot_product_attention(q[None], k, v, t)[0],
                lambda q, k, v, t: mha_lab.scaled_dot_product_attention(q[None], k, v, 1 / t)[0],
            ),
        ),
        "query-times-keys": Mistake(
            "`query @ keys` pairs the query with the columns of `keys`; the keys are its rows.",
            ONE,
            (lambda q, k, v, t: q @ k,),
        ),
        "plain-mean": Mistake(
            "Your function returns the plain mean of the values: the scores are not used.",
            ONE,
            (lambda q, k, v, t: v.mean(0), lambda q, k, v, t: v.mean(0, keepdim=True)),
        ),
    },
)
