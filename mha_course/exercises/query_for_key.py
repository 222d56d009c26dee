"""Chapter 02: a query that focuses on one key."""

import math

import numpy as np
import torch

from mha_course.exercises import Exercise, _queries


def query_for_key(keys, index):
    """``(n_k, d_k)`` to a query ``(d_k,)`` with more than 0.99 of the weight on ``keys[index]``.

    No score may be above 100 or below -100: a huge number is no answer.
    """
    key = keys[index]
    # A query along the key leaves all other dot products at 0. Its own is to be (20 + log n_k) sqrt(d_k),
    # so it must be that long, divided by the key's length.
    wanted = (20 + math.log(len(keys))) * math.sqrt(len(key))
    return key * wanted / (key @ key)


def _problems(rng):
    yield torch.tensor([[0.1, 0.2, 0.2], [0.4, -0.3, 0.1]]), 1
    for number, keys in enumerate(_queries.all_keys(rng)):
        yield keys, rng.below(len(keys)) if number else 0
    shortest, longest = 0.01, 10.0  # that the text allows
    yield _queries.one_among(rng, 16, 2048, shortest, longest)
    yield _queries.one_among(rng, 16, 16, longest, shortest)
    yield _queries.one_among(rng, 2, 2, shortest, longest)
    yield _queries.one_among(rng, 2, 2048, longest, shortest)


def _accepts(query, keys, index):
    if told := _queries.flaw(query, *keys.shape):
        return told
    scores = _queries.scores_of(_queries.vector(query), keys)
    weights, largest = _queries.softmax(scores), abs(scores).max()
    if weights[index] > _queries.MORE:
        if largest <= _queries.LIMIT:
            return None
        return "too-long", (
            f"Key {index} gets {_queries.share(weights[index])} of the weight, but one score is "
            f"{scores[abs(scores).argmax()]:.4g}. No score may be above 100 or below -100."
            f"{_queries.unprinted(keys, [index])}"
        )
    seen = f"Key {index} gets {_queries.share(weights[index])} of the weight; it should get more than 0.99."
    more, best = _queries.unprinted(keys, [index]), int(weights.argmax())
    if np.ptp(weights) < 1e-3:
        return "all-alike", f"{seen} All {len(keys)} keys get about the same.{more}"
    if best != index and weights[best] > 1.001 * weights[index]:
        return "wrong-key", f"{seen} Key {best} gets {_queries.share(weights[best])}.{more}"
    return "too-flat", seen + more


EXERCISE = Exercise(
    answer=query_for_key,
    chapter="02_toy_queries_keys_values",
    section="5 Length and temperature",
    points=2,
    problems=_problems,
    accepts=_accepts,
    explains=_queries.explain,
    mistakes={"query-without-a-row": _queries.ROWLESS},
)
