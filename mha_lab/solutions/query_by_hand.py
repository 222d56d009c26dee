"""Chapter 02: a query found by dragging it."""

import torch

from mha_lab import toy
from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions.query_for_key import is_query, weights_of


def query_by_hand():
    """A query ``(2,)`` that fetches 20 from keys 0 and 2 of ``toy.plane_keys()`` alone."""
    # Keys 0 and 2 share equally where their dot products agree, 4 x = -3 x - 3 y: along (3, -7).
    return torch.tensor([1.5, -3.5])


def _accepts(query, keys, values):
    if not is_query(query, keys):
        return "wrong-shape"
    weights = weights_of(query, keys)
    first, middle, last = weights
    if middle > 0.05:
        return "wrong-key" if middle > 1.05 * min(first, last) else "too-flat"
    # A pointer moves in steps of its own, and a drag's end is not exact.
    return None if abs(weights @ values.numpy()[:, 0] - 20) <= 1 else "unequal-weights"


STEP = "5 Length is temperature"
EXERCISE = Exercise(
    answer=query_by_hand,
    chapter="02_toy_queries_keys_values",
    section=STEP,
    points=1,
    problems=lambda draw: iter([(toy.plane_keys(torch.float64), toy.plane_values(torch.float64))]),
    call=lambda answer, keys, values: answer(),
    accepts=_accepts,
    mistakes={
        "too-flat": Mistake(
            "Your query is too short: key 1 keeps more than 0.05, and the average of all three is 20, too.",
            STEP,
            (),
        ),
        "wrong-key": Mistake(
            "Key 1 has more weight than key 0 or key 2, and those two should share all of it.",
            "4 Between two keys",
            (),
        ),
        "unequal-weights": Mistake(
            "Key 1 has next to no weight, as it should, but keys 0 and 2 do not share equally.",
            "2 One query, two equal keys",
            (),
        ),
    },
)
