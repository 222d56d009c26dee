"""Chapter 01: the scores of all pairs."""

import math

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _scale, _scores, deviations


def scaled_scores(query, key):
    """``(..., n_q, d_k)`` and ``(..., n_k, d_k)`` to ``(..., n_q, n_k)``."""
    return query @ key.mT / query.shape[-1] ** 0.5


def _problems(rng):
    key = torch.tensor([[1.0, 4.0, 0.5], [2.0, 0.0, 1.0], [-1.0, 1.0, 2.0], [3.0, 0.5, -1.0]])
    yield torch.tensor([[2.0, -1.0, 3.0], [1.0, 2.0, 2.0]]), key
    yield torch.tensor([[2.0, -1.0, 3.0], [1.0, 2.0, 2.0]]), key[:1]
    yield torch.tensor([[3.0, 1.0]]), torch.tensor([[2.0, 5.0], [-1.0, 4.0], [0.5, 1.5]])
    query = torch.tensor([[[1.0, 2.0, 3.0]], [[0.5, -1.0, 2.0]]])
    yield query, torch.tensor([[[2.0, 1.0, -1.0], [3.0, 0.5, 1.0]], [[1.0, 4.0, 2.0], [-2.0, 1.5, 3.0]]])
    for leading in (0, 1, 1, 2):
        n_q, n_k, d_k, *batch = rng.primes(3 + leading)
        yield rng.normal(*batch, n_q, d_k), rng.normal(*batch, n_k, d_k)


def _build(product=_scores.right, divisor=_scale.right, normed=lambda q, k: 1.0):
    return lambda query, key: (
        product(query, key) / (divisor(_scale.Sizes.of(query, key)) * normed(query, key))
    )


STEP = "2 Scores: how well does each query match each key?"
ROOT = "5 Why divide by the square root of d_k?"
SIZES = _scale.wrong(STEP, "front", "fixed")  # which number d_k is, not why its root divides
DIVISORS = SIZES | _scale.wrong(ROOT, "lengths")
LENGTHS = {
    "divided-by-a-length": (
        "Your scores are divided by the length of each vector, its norm; sqrt(d_k) is one number for all.",
        ROOT,
        tuple(
            lambda query, key, of=of: of(
                query.norm(dim=-1, keepdim=True), key.norm(dim=-1, keepdim=True).mT, query.shape[-1] ** 0.5
            )
            for of in (
                lambda q, k, root: q / root,
                lambda q, k, root: k / root,
                lambda q, k, root: q * k / root,
            )
        ),
    ),
}
EXERCISE = Exercise(
    answer=scaled_scores,
    chapter="01_single_head_attention",
    section=STEP,
    points=1,
    problems=_problems,
    same_as=(mha_lab.scaled_dot_product_scores,),
    mistakes={
        **deviations(_build, {"product": _scores.wrong(STEP), "divisor": DIVISORS}),
        **deviations(_build, {"normed": LENGTHS}, pairs=False),
        "softmax-taken": Mistake(
            "Your function returns weights: it takes the softmax of the scores. Return the scores.",
            STEP,
            (
                lambda q, k: torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1),
                lambda q, k: torch.softmax(q @ k.mT, -1),
            ),
        ),
    },
)
