"""Chapter 02: a query found by dragging it."""

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake, _queries
from mha_course.exercises import _results as compare
from mha_lab import toy

LENGTH, PICTURE = "5 Length and temperature", "4 A query by hand"


def query_by_hand():
    """A query ``(2,)`` that fetches 20 from keys 0 and 2 of ``toy.plane_keys()`` alone."""
    # Keys 0 and 2 share equally where their dot products agree, 4 x = -3 x - 3 y: along (3, -7).
    return torch.tensor([1.5, -3.5])


def _fetched(query, keys, values):
    """The weights and the fetched number."""
    weights = _queries.softmax(_queries.scores_of(query, keys))
    return weights, float(weights @ values.numpy()[:, 0])


def _right(query, keys, values):
    weights, fetched = _fetched(query, keys, values)
    # A pointer moves in steps, so the end of a drag is not exact.
    return weights[1] <= 0.05 + 1e-6 and abs(fetched - 20) <= 1 + 1e-6


def _accepts(query, keys, values):
    if told := _queries.flaw(query, *keys.shape):
        return told
    x, y = query = _queries.vector(query)
    if _right(query, keys, values):
        return None
    (first, middle, last), fetched = _fetched(query, keys, values)
    seen = (
        f"Your query ({x:.4g}, {y:.4g}) fetches {fetched:.1f}; the weights are {first:.3f}, {middle:.3f} "
        f"and {last:.3f}. It should fetch 19 to 21, with at most 0.05 on key 1."
    )
    if middle <= 0.05:
        more, less = (0, 2) if first > last else (2, 0)
        return (
            "unequal-weights",
            f"{seen} Key {more} has more than key {less}: make their two dot products equal.",
        )
    return "wrong-key" if middle > min(first, last) else "too-flat", seen


def _explains(problems, results):
    ((keys, values),), (result,) = problems, results
    if compare.is_a(result, "KeyPlane"):
        return "the-picture", "That is the picture itself. Return the two numbers of its query."
    if _queries.flaw(result, *keys.shape):
        return None
    query = _queries.vector(result)

    def right(other):
        return _right(other, keys, values)

    if np.allclose(query, [0.3, 0.1], atol=1e-5):
        return "where-the-picture-begins", EXERCISE.mistakes["where-the-picture-begins"].says
    longer = next((n for n in (1.5, 2, 3, 5, 10, 20, 50, 100) if right(n * query)), None)
    if longer:
        cause = (
            f"The direction is close enough, but the query is too short: {longer} times as long, it would "
            f"be right."
        )
        if right(2**0.5 * query):
            cause += ' With the scale 1 it would be right as it is: was "no scale" chosen?'
        return "too-short", cause
    if right(query / 2**0.5):
        return "other-scale", 'With the scale 1/d_k it would be right as it is: was "1/d_k" chosen?'
    if right(query[::-1].copy()):
        return (
            "numbers-swapped",
            "With its two numbers in the other order it would be right: first x, then y.",
        )
    if any(right(-n * query) for n in (1, 2, 5, 10, 50)):
        return "opposite", "Your query points the opposite way from a right one."
    weights, fetched = _fetched(query, keys, values)
    if abs(fetched - 20) <= 1 and weights[1] > 0.9:
        return "key-1-alone", "20 is also the value of key 1, and here it comes from key 1."
    if abs(fetched - 20) <= 1 and np.ptp(weights) < 0.02:
        return "all-alike", EXERCISE.mistakes["all-alike"].says
    rows = keys.double().numpy()
    between = rows[0] + rows[2]
    if np.allclose(query / np.linalg.norm(query), between / np.linalg.norm(between), atol=1e-3):
        says = "Your query points along the sum of keys 0 and 2: its dot products with them are not equal."
        return "sum-of-the-keys", says
    return None


EXERCISE = Exercise(
    answer=query_by_hand,
    chapter="02_toy_queries_keys_values",
    section="2 One query, two equal keys",
    points=1,
    problems=lambda rng: iter([(toy.plane_keys(), toy.plane_values())]),
    call=lambda answer, keys, values: answer(),
    accepts=_accepts,
    explains=_explains,
    mistakes={
        "where-the-picture-begins": Mistake(
            "(0.3, 0.1) is where the picture begins. Did you drag the query?", PICTURE, ()
        ),
        "all-alike": Mistake(
            "20 is also the mean of all three values: all keys have about the same weight.", PICTURE, ()
        ),
        "wrong-shape": Mistake(
            "Return the two numbers of one query, first x, then y, in one vector.", "1 One query, one key", ()
        ),
        "too-short": Mistake("Your query is too short.", LENGTH, ()),
        "too-flat": Mistake(
            "The three weights are too much alike: a longer query in the same direction gives key 1 less. "
            "The direction is not right yet, either: the dot products with keys 0 and 2 should be equal.",
            LENGTH,
            (),
        ),
    },
)
