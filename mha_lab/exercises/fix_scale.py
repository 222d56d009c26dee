"""Chapter 01: a scale that fits one size only."""

import math

import torch

from mha_lab.exercises import Exercise, Mistake, deviations
from mha_lab.exercises import scaled_scores as scores


def fix_scale(x, w_q, w_k):
    """``(..., n, d_model)`` and two ``(d_model, d_k)`` to scaled scores ``(..., n, n)``."""
    query, key = x @ w_q, x @ w_k
    return query @ key.mT / query.shape[-1] ** 0.5


def _stub(x, w_q, w_k):
    d = x.shape[-1]
    query = x @ w_q
    key = x @ w_k
    return query @ key.mT / d**0.5


def _problems(rng):
    x, w_q = torch.tensor([[1.0, 2.0, 0.5], [-1.0, 3.0, 1.0]]), torch.tensor([[2.0], [1.0], [3.0]])
    yield x, w_q, torch.tensor([[1.0], [4.0], [-2.0]])
    w_q, w_k = (
        torch.tensor([[2.0, 1.0], [1.0, -1.0], [3.0, 2.0]]),
        torch.tensor([[1.0, 0.0], [4.0, 2.0], [-2.0, 1.0]]),
    )
    yield x, w_q, w_k
    for leading in (0, 1, 1, 2):
        n, d_model, d_k, *batch = rng.primes(3 + leading)
        yield rng.normal(*batch, n, d_model), rng.normal(d_model, d_k), rng.normal(d_model, d_k)
    yield rng.normal(1, n, d_model), rng.normal(d_model, d_k), rng.normal(d_model, d_k)


def _build(product=lambda q, k: q @ k.mT, divisor=lambda q, x: math.sqrt(q.shape[-1]), keys=lambda q, k: k):
    return lambda x, w_q, w_k: product(x @ w_q, x @ keys(w_q, w_k)) / divisor(x @ w_q, x)


STEP = "5 Why divide by the square root of d_k?"
DIVISORS = {
    "not-scaled": (scores.DIVISORS["not-scaled"][0], STEP, (lambda q, x: 1,)),
    "scaled-by-d_k": scores.DIVISORS["scaled-by-d_k"],
    "half-of-d_k": scores.DIVISORS["half-of-d_k"],
    "multiplied-by-the-root": scores.DIVISORS["multiplied-by-the-root"],
    "scaled-by-length": (
        "Your scores are divided by the square root of n, the number of tokens.",
        STEP,
        (lambda q, x: math.sqrt(x.shape[-2]),),
    ),
    "scaled-by-d_model": (
        "Your scores are divided by the square root of the width of x, as before; the sum in a dot "
        "product has d_k "
        "terms.",
        STEP,
        (lambda q, x: math.sqrt(x.shape[-1]),),
    ),
    "scaled-by-d_model-itself": (
        "Your scores are divided by the width of x; divide by the square root of d_k, the number of "
        "terms in a dot "
        "product.",
        STEP,
        (lambda q, x: x.shape[-1],),
    ),
    "scaled-twice": (
        "Your scores are divided by the square root of d_model and by that of d_k: only the root of d_k "
        "is needed.",
        STEP,
        (lambda q, x: math.sqrt(x.shape[-1] * q.shape[-1]),),
    ),
    "scaled-by-an-axis-from-the-front": (
        "Your scores are divided by the square root of a size counted from the front, such as "
        "query.shape[1] or "
        "len(query). This size is d_k for some shapes only; shape[-1], counted from the end, always is.",
        STEP,
        (lambda q, x: math.sqrt(q.shape[1]), lambda q, x: math.sqrt(q.shape[0])),
    ),
    "scaled-by-a-fixed-number": (
        "Your scores are divided by a number that fits one width only: 2 is the root of 4, 8 that of 64.",
        STEP,
        (lambda q, x: 2, lambda q, x: 4, lambda q, x: 8),
    ),
}
KEYS = {
    "shared-projection": (
        "In your function queries and keys come from the same matrix, w_q.",
        "6 Put together",
        (lambda q, k: q,),
    ),
}
EXERCISE = Exercise(
    answer=fix_scale,
    chapter="01_single_head_attention",
    section=STEP,
    points=2,
    problems=_problems,
    bug=_stub,
    mistakes={
        **deviations(_build, {"divisor": DIVISORS, "keys": KEYS}),
        "transposed": Mistake(
            "Your scores have keys as rows and queries as columns: they are transposed.",
            STEP,
            (lambda x, q, k: (x @ k) @ (x @ q).mT / math.sqrt(q.shape[1]),),
        ),
        "matrices-transposed": Mistake(
            "Your function takes d_k from the wrong side of w_q: w_q is (d_model, d_k).",
            STEP,
            (lambda x, q, k: (x @ q) @ (x @ k).mT / math.sqrt(k.shape[-2]),),
        ),
    },
)
