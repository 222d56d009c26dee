"""Chapter 02: a query that focuses on one of many keys, which have a large part in common."""

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake, _queries

KEYS = "6 What do keys decide, and what do values decide?"
LENGTH = "5 Length and temperature"
LONGER = np.geomspace(1, 1e4, 60)


def query_among_128(keys, index):
    """``(n_k, d_k)`` to a query ``(d_k,)`` with at least 0.99 of the weight on ``keys[index]``."""
    own = keys[index] - keys.mean(dim=0)  # what all keys share adds the same to all scores
    return 10 * own


def _keys(rng, n_k, d_k, index=None):
    """A common part that is about three times as long as the own parts; the index of a key.

    Without an ``index``, that of the key with the smallest dot product with the common part: a query along it
    chooses another key.
    """
    common = 3 * rng.normal(d_k)
    keys = common + rng.normal(n_k, d_k)
    return keys, int((keys @ common).argmin()) if index is None else index


def _problems(rng):
    yield torch.tensor([[12.0, 1.0], [10.0, -1.0], [11.0, 3.0]]), 1
    yield _keys(rng, 128, 64)
    yield _keys(rng, 128, 64, rng.below(128))
    yield _keys(rng, 128, 64, 0)
    yield _keys(rng, 256, 128)


def _weights(query, keys):
    return _queries.softmax(_queries.scores_of(query, keys))


def _right(query, keys, index):
    return _weights(query, keys)[index] >= 0.99 - 1e-6


def _accepts(query, keys, index):
    if told := _queries.flaw(query, *keys.shape):
        return told
    query = _queries.vector(query)
    if _right(query, keys, index):
        return None
    weights = _weights(query, keys)
    best = int(weights.argmax())
    seen = (
        f"Of {len(keys)} keys of width {keys.shape[1]}, key {index} gets {_queries.share(weights[index])} of "
        f"the weight; it should get at least 0.99."
    )
    if best != index and weights[best] > 1.001 * weights[index]:
        return "wrong-key", f"{seen} Key {best} gets {_queries.share(weights[best])}."
    return "too-flat", seen


def _parallel(one, other):
    """In the same direction."""
    return one @ other > (1 - 1e-5) * np.linalg.norm(one) * np.linalg.norm(other) > 0


def _number_subtracted(query, key):
    """The key, without a number that is the same for all its entries."""
    rows = np.stack([key, np.ones(len(key))])
    amounts, *_ = np.linalg.lstsq(rows.T, query, rcond=None)
    return amounts[0] > 0 and _parallel(query, amounts @ rows)


def _others_part(query, keys, index):
    """The own part of another key."""
    own = keys - keys.mean(0)
    return any(_parallel(query, part) for j, part in enumerate(own) if j != index)


# What each name says is so of a query, its keys (in numpy) and the index.
CAUSES = {
    "zero": lambda query, keys, index: not query.any(),
    "along-the-key": lambda query, keys, index: _parallel(query, keys[index]),
    "common-part-only": lambda query, keys, index: (
        _parallel(query, keys.mean(0)) or _parallel(-query, keys.mean(0))
    ),
    "too-short": lambda query, keys, index: any(_right(n * query, torch.tensor(keys), index) for n in LONGER),
    "opposite": lambda query, keys, index: any(_right(-n * query, torch.tensor(keys), index) for n in LONGER),
    "common-part-added": lambda query, keys, index: _parallel(query, keys[index] + keys.mean(0)),
    "another-key": _others_part,
    "number-subtracted": lambda query, keys, index: _number_subtracted(query, keys[index]),
}


def _explains(problems, results):
    if any(_queries.flaw(result, *keys.shape) for (keys, _), result in zip(problems, results, strict=True)):
        return None
    cases = [
        (_queries.vector(query), keys, index)
        for (keys, index), query in zip(problems, results, strict=True)
        if not _right(_queries.vector(query), keys, index)
    ]
    cases = [(query, keys.double().numpy(), index) for query, keys, index in cases]
    for name, fits in CAUSES.items():
        # In a plane, each vector is a key minus a number, times a length.
        tells = name != "number-subtracted" or any(len(query) > 2 for query, *_ in cases)
        if tells and all(fits(*case) for case in cases):
            return name, EXERCISE.mistakes[name].says
    return None


EXERCISE = Exercise(
    answer=query_among_128,
    chapter="02_toy_queries_keys_values",
    section=KEYS,
    points=2,
    problems=_problems,
    accepts=_accepts,
    explains=_explains,
    mistakes={
        "zero": Mistake("A query of zeros has a dot product of 0 with every key.", LENGTH, ()),
        "along-the-key": Mistake(
            "Your query points along the key itself. These keys are not at right angles: they share a large "
            "part, so a query along one key has a large dot product with all of them.",
            KEYS,
            (),
        ),
        "common-part-only": Mistake(
            "Your query points along the mean of all keys, or the opposite way, whatever `index` is.",
            KEYS,
            (),
        ),
        "too-short": Mistake(
            "The direction of your query is right, but it is too short: a longer query in the same direction "
            "would be right.",
            LENGTH,
            (),
        ),
        "opposite": Mistake("The opposite direction, with the right length, would be right.", LENGTH, ()),
        "common-part-added": Mistake(
            "Your query points along the key plus the mean of all keys. Subtract the mean: it is nearly the "
            "common part.",
            KEYS,
            (),
        ),
        "another-key": Mistake(
            "Your query asks for what is special about another key. Keys are counted from 0.", KEYS, ()
        ),
        "number-subtracted": Mistake(
            "You subtracted one number from all entries of the key. What all keys share is a vector of d_k "
            "numbers.",
            KEYS,
            (),
        ),
    },
)
