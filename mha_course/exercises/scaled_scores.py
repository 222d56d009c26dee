"""Chapter 01: the scores of all pairs."""

import math

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _scale, deviations


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


def _product(query, key):
    return query @ key.mT


def _build(product=_product, divisor=_scale.right, normed=lambda q, k: 1.0):
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
PRODUCTS = {
    "key-not-transposed": (
        "Your function multiplies query and key without turning the rows of key into columns.",
        STEP,
        (lambda q, k: q @ k,),
    ),
    "reshaped-keys": (
        "Your function gives key the shape of its transpose with view or reshape. They keep the order of the "
        "numbers, so the columns of your matrix are not the keys: use key.mT.",
        STEP,
        (lambda q, k: q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2]),),
    ),
    "queries-and-keys-swapped": (
        "Your scores have keys as rows and queries as columns: they are transposed.",
        STEP,
        (lambda q, k: k @ q.mT,),
    ),
    "summed-over-queries": (
        "Your sum runs over the tokens: query.mT @ key pairs the columns of query with those of key.",
        STEP,
        (lambda q, k: q.mT @ k,),
    ),
    "entry-by-entry": (
        "Your function pairs query and key entry by entry; pair each query with every key.",
        STEP,
        (lambda q, k: q * k, lambda q, k: (q * k).sum(-1)),
    ),
    "keys-with-keys": (
        "Your function pairs the keys with the keys: the queries are not used.",
        STEP,
        (lambda q, k: k @ k.mT,),
    ),
    "queries-with-queries": (
        "Your function pairs the queries with the queries: the keys are not used.",
        STEP,
        (lambda q, k: q @ q.mT,),
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
        **deviations(_build, {"product": PRODUCTS, "divisor": DIVISORS}),
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
