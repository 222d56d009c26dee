"""Chapter 02: a query that averages two keys."""

import math

import torch

from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions.query_for_key import _orthogonal, is_query, weights_of


def query_averaging(keys, i, j):
    """``(n_k, d_k)`` to a query ``(d_k,)`` with equal weights on keys ``i`` and ``j``."""
    wanted = (20 + math.log(len(keys))) * math.sqrt(keys.shape[1])
    # Divided by the squared length, each key has a dot product of 1 with its own part, and so of 1 in all.
    parts = [keys[k] / (keys[k] @ keys[k]) for k in (i, j)]
    return wanted * (parts[0] + parts[1])


def _problems(draw):
    yield torch.eye(3), 0, 2
    yield torch.diag(torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)), 1, 0
    for dtype in (torch.float32, torch.float64, torch.float64):
        n_k, d_k = sorted(draw.primes(2, at_least=3))
        i = draw.below(n_k)
        yield _orthogonal(draw, n_k, d_k, dtype), i, (i + 1 + draw.below(n_k - 1)) % n_k


def _accepts(query, keys, i, j):
    if not is_query(query, keys):
        return "wrong-shape"
    weights = weights_of(query, keys)
    both = weights[i] + weights[j]
    if both > 0.99:
        return None if abs(weights[i] - weights[j]) < 1e-3 else "unequal-weights"
    rest = max((w for k, w in enumerate(weights) if k not in (i, j)), default=0.0)
    if min(weights[i], weights[j]) <= rest * 1.001:
        return "unequal-weights" if max(weights[i], weights[j]) > rest * 1.001 else "wrong-key"
    return "too-flat"


EXERCISE = Exercise(
    answer=query_averaging,
    chapter="02_toy_queries_keys_values",
    section="2 One query, two equal keys",
    points=2,
    problems=_problems,
    accepts=_accepts,
    mistakes={
        "unequal-weights": Mistake(
            "The two weights differ: keys of different lengths need different amounts of each direction.",
            "2 One query, two equal keys",
            (),
        ),
        "too-flat": Mistake(
            "Your query has the right direction and is too short: the other keys keep over 0.01.",
            "5 Length is temperature",
            (),
        ),
        "wrong-key": Mistake(
            "Your query does not prefer the two asked keys.", "2 One query, two equal keys", ()
        ),
    },
)
