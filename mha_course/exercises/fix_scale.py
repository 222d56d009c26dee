"""Chapter 01: a scale that fits one size only."""

import math

import torch

from mha_course.exercises import Exercise, Mistake, _scale, deviations


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


def _build(divisor=_scale.right, keys=lambda q, k: k):
    def answer(x, w_q, w_k):
        query, key = x @ w_q, x @ keys(w_q, w_k)
        return query @ key.mT / divisor(_scale.Sizes.of(query, key, x.shape[-1]))

    return answer


STEP = "5 Why divide by the square root of d_k?"
DIVISORS = _scale.wrong(STEP, "d_model", "tokens", "front") | {
    "scaled-by-d_model": (
        "Your scores are divided by the square root of the width of x, as before; the sum in a dot product "
        "has d_k terms.",
        STEP,
        (lambda sizes: math.sqrt(sizes.d_model),),
    ),
    "scaled-twice": (
        "Your scores are divided by the square root of d_model and by that of d_k: only the root of d_k "
        "is needed.",
        STEP,
        (lambda sizes: math.sqrt(sizes.d_model * sizes.d_k),),
    ),
    "scaled-by-a-fixed-number": (
        "Your scores are divided by a number that fits one width only: 2 is the root of 4, 8 that of 64.",
        STEP,
        (lambda sizes: 2, lambda sizes: 4, lambda sizes: 8),
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
