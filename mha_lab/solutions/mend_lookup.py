"""Chapter 02: a lookup that searches in the wrong place."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def mend_lookup(query, keys, values):
    """``(n_q, d)``, twice ``(n_k, d)`` to the output ``(n_q, d)``."""
    weights = torch.softmax(query @ keys.mT / query.shape[-1] ** 0.5, dim=-1)
    return weights @ values


def _lookup(query, keys, values, scale=None, dim=-1):
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return torch.softmax(query @ keys.mT * scale, dim=dim) @ values


def _problems(draw):
    yield torch.eye(2)[:1], torch.tensor([[8.0, 0.0], [0.0, 8.0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for dtype in (torch.float32, torch.float64, torch.float64):
        n_q, n_k, d = draw.primes(3)
        yield tuple(draw.normal(n, d, dtype=dtype) for n in (n_q, n_k, n_k))


STEP = "6 Keys decide the weights, values only what is fetched"
EXERCISE = Exercise(
    answer=mend_lookup,
    chapter="02_toy_queries_keys_values",
    section=STEP,
    points=1,
    problems=_problems,
    bug=lambda q, k, v: _lookup(q, v, v),
    mistakes={
        "values-used-as-keys": Mistake(
            "Your function scores the query against the values.", STEP, (lambda q, k, v: _lookup(q, v, k),)
        ),
        "keys-fetched": Mistake(
            "Your function fetches keys: what comes back must be an average of values.",
            STEP,
            (lambda q, k, v: _lookup(q, k, k),),
        ),
        "not-scaled": Mistake(
            "Your scores are not divided by sqrt(d_k).",
            "3 The right scale for this example",
            (lambda q, k, v: _lookup(q, k, v, scale=1),),
        ),
        "softmax-over-queries": Mistake(
            "Your weights sum to 1 over the queries.",
            "1 One query, one key",
            (lambda q, k, v: _lookup(q, k, v, dim=0),),
        ),
    },
)
