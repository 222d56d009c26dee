"""Chapter 02: a query that focuses on one key."""

import math

import numpy as np
import torch

from mha_lab.check.exercise import Exercise, Mistake


def query_for_key(keys, index):
    """``(n_k, d_k)`` to a query ``(d_k,)`` with more than 0.99 of the weight on ``keys[index]``."""
    key = keys[index]
    # A query along the key leaves all other dot products at 0. Its own is to be (20 + log n_k) sqrt(d_k),
    # so it must be that long, divided by the key's length.
    wanted = (20 + math.log(len(keys))) * math.sqrt(len(key))
    return key * wanted / (key @ key)


def _orthogonal(draw, n_k, d_k, dtype):
    """Rows at right angles, of lengths from 0.2 to 5."""
    basis, _ = torch.linalg.qr(draw.normal(d_k, d_k))
    lengths = torch.exp(draw.normal(n_k).clamp(-1.6, 1.6))
    return (basis[:n_k] * lengths[:, None]).to(dtype)


def _problems(draw):
    yield torch.eye(3), 1
    yield 0.1 * torch.eye(2, dtype=torch.float64), 0
    for dtype in (torch.float32, torch.float64, torch.float64):
        n_k, d_k = sorted(draw.primes(2))
        yield _orthogonal(draw, n_k, d_k, dtype), draw.below(n_k)


def weights_of(query, keys):
    """The weights of one query, in numpy."""
    keys = keys.double().numpy()
    scores = keys @ query.array.astype(np.float64) / math.sqrt(keys.shape[1])
    raised = np.exp(scores - scores.max())
    return raised / raised.sum()


def is_query(query, keys):
    """A vector of ``d_k`` finite numbers."""
    array = getattr(query, "array", None)
    return (
        array is not None and array.shape == (keys.shape[1],) and bool(np.isfinite(array.astype(float)).all())
    )


def _accepts(query, keys, index):
    if not is_query(query, keys):
        return "wrong-shape"
    weights = weights_of(query, keys)
    if weights.argmax() != index or weights[index] <= 1.001 / len(keys):
        return "wrong-key"
    return None if weights[index] > 0.99 else "too-flat"


EXERCISE = Exercise(
    answer=query_for_key,
    chapter="02_toy_queries_keys_values",
    section="1 One query, one key",
    points=1,
    problems=_problems,
    accepts=_accepts,
    mistakes={
        "too-flat": Mistake(
            "Your query has the right direction and is too short: the weight stays below 0.99.",
            "5 Length is temperature",
            (),
        ),
        "wrong-key": Mistake(
            "Your query does not give the asked key the largest weight.", "1 One query, one key", ()
        ),
    },
)
