"""Chapter 01: a query found by moving it, judged by what it fetches."""

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake, _queries
from mha_course.exercises import _results as compare

STEP = "4 Output: the weighted average of the values"
SCORES = "2 Scores: how well does each query match each key?"
KEYS = ((4.0, 0.0), (0.0, 4.0), (-3.0, -3.0))
VALUES = ((10.0,), (20.0,), (60.0,))
REACH = 5.3  # of the picture, to each side


def query_fetching_15():
    """A query ``(2,)`` that fetches 15 in the chapter's picture."""
    # Keys 0 and 1 share equally where their dot products agree, 4 x = 4 y, far enough from key 2.
    return torch.tensor([2.0, 2.0])


def _weights(query, keys):
    return _queries.softmax(_queries.scores_of(query, keys))


def _right(query, keys, values):
    # An arrow key moves the query in steps, and the picture shows two digits.
    return abs(_weights(query, keys) @ values.numpy()[:, 0] - 15) <= 0.5 + 1e-6


def _accepts(query, keys, values):
    array = compare.as_array(query)
    if compare.is_a(query, "KeyPlane"):
        return "the-picture", "Your function returns the picture itself; a query of shape (2,) is expected."
    if told := _queries.flaw(query, *keys.shape):
        sizes = {1: "one-number-only", len(keys): "one-number-for-each-key"}
        return sizes.get(getattr(array, "size", 0), told[0]), told[1]
    if _right(array, keys, values):
        return None
    x, y = query = _queries.vector(query)
    weights = _weights(query, keys)
    fetched = float(weights @ values.numpy()[:, 0])
    seen = (
        f"Your query ({x:.4g}, {y:.4g}) fetches {fetched:.2f}; the weights are {weights[0]:.3f}, "
        f"{weights[1]:.3f} and {weights[2]:.3f}. It should fetch 14.5 to 15.5."
    )
    if np.allclose(query, keys[0].numpy() / 2, atol=1e-5):
        return "where-the-picture-begins", seen
    if np.ptp(weights) < 0.1:
        return "all-three-alike", seen
    further = (n * query for n in np.geomspace(1, 50, 400) if abs(n * query).max() < REACH)
    if any(_right(place, keys, values) for place in further):
        return "too-near-the-centre", seen
    if weights.max() > 0.9:
        return ("one-key-alone", "one-key-alone", "key-2-alone")[weights.argmax()], seen
    if fetched < 15:
        return "too-little", seen
    # A weight of 0.11 on key 2, or of 0.55 on key 1, brings 10 to 15.5 without the other key.
    alone = "too-much-of-key-2" if weights[2] > 0.11 else "too-much-of-key-1"
    return alone if weights[2] > 0.11 or weights[1] > 0.55 else "too-much", seen


EXERCISE = Exercise(
    answer=query_fetching_15,
    chapter="01_single_head_attention",
    section=STEP,
    points=1,
    problems=lambda rng: iter([(torch.tensor(KEYS), torch.tensor(VALUES))]),
    call=lambda answer, keys, values: answer(),
    accepts=_accepts,
    mistakes={
        "the-picture": Mistake("The place of the query is in `picture.query`.", STEP, ()),
        "one-number-only": Mistake(
            "One number can be what a query fetches, but the query itself has two numbers: its place in the "
            "picture.",
            STEP,
            (),
        ),
        "one-number-for-each-key": Mistake(
            "Weights and scores have one number for each key. A query has two numbers: its place in the "
            "picture.",
            STEP,
            (),
        ),
        "where-the-picture-begins": Mistake(
            "(2, 0) is where the picture begins. Did you move the query, and has the kernel been restarted "
            "since? After a restart, it is at (2, 0) again.",
            STEP,
            (),
        ),
        "all-three-alike": Mistake(
            "All three keys get nearly the same weight, so the query fetches about their mean, 30.", STEP, ()
        ),
        "too-near-the-centre": Mistake(
            "The direction is good, but the query is too near the centre: further out in the same direction "
            "it would fetch 15. The dot products grow with the length of the query, and so do their "
            "differences.",
            STEP,
            (),
        ),
        "one-key-alone": Mistake(
            "Nearly all of the weight is on one key, so the query fetches little else than the value of this "
            "key. The other keys get more if their dot products are nearer to the largest one.",
            SCORES,
            (),
        ),
        "key-2-alone": Mistake(
            "Nearly all of the weight is on key 2, which has the value 60. The query is on the side of that "
            "key.",
            SCORES,
            (),
        ),
        "too-much": Mistake(
            "Keys 1 and 2, with the values 20 and 60, have too much of the weight together.", STEP, ()
        ),
        "too-much-of-key-1": Mistake("Key 1, with the value 20, has too much of the weight.", STEP, ()),
        "too-much-of-key-2": Mistake("Key 2, with the value 60, has too much of the weight.", STEP, ()),
        "too-little": Mistake("Key 0, with the value 10, has too much of the weight.", STEP, ()),
    },
)
