"""Chapter 09: where two tokens must stand so that sinusoidal positions give the lowest score."""

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake
from mha_course.exercises import _results as compare
from mha_lab import positions

SIDE, ADDED = "6 Side by side", "2 Sinusoidal positions, added to the input"
QUERY = torch.tensor([1.5, 1.0, 2.0, 0.5, 1.0, 1.5, 1.0, -0.5], dtype=torch.float64)
KEY = torch.tensor([0.5, 2.0, 1.5, 1.0, -1.0, 1.5, 1.0, 1.0], dtype=torch.float64)
BASE, COUNT, DISTANCE, BEGINS = 100, 32, -3, (8, 5)


def lowest_after_shift():
    """The positions of the query and of the key, ``(i, j)``."""
    query = torch.tensor([1.5, 1.0, 2.0, 0.5, 1.0, 1.5, 1.0, -0.5])
    key = torch.tensor([0.5, 2.0, 1.5, 1.0, -1.0, 1.5, 1.0, 1.0])
    table = positions.sinusoidal_positions(32, 8, base=100)
    scores = mha_lab.scaled_dot_product_scores(query + table, key + table)
    j = scores.diagonal(-3).argmin().item()  # all pairs in which the key is 3 places before the query
    return j + 3, j


def _scores():
    """Of the query at each position with the key at each position."""
    table = positions.sinusoidal_positions(COUNT, len(QUERY), base=BASE, dtype=torch.float64)
    return mha_lab.scaled_dot_product_scores(QUERY + table, KEY + table)


def _accepts(result):
    array = compare.as_array(result)
    kind = f"Your function returns {compare.kind(result)}."
    if compare.is_a(result, "Positions"):
        return "the-picture", "Your function returns the picture itself."
    if array is not None and array.size == 1:
        return "score-returned", kind
    if array is None or array.shape != (2,) or array.dtype == bool or (array % 1).any():
        return "wrong-shape", f"{kind} Two positions are expected, as in `(8, 5)`."
    i, j = map(int, array)
    if not (0 <= i < COUNT and 0 <= j < COUNT):
        return (
            "off-the-strip",
            f"Your positions are {i} and {j}. The strip has the positions 0 to {COUNT - 1}.",
        )
    if (i, j) == lowest_after_shift():
        return None
    seen = f"Your query is at {i} and your key at {j}. With sinusoidal positions, the score is "
    seen += f"{_scores()[i, j]:.2f}."
    if (j, i) == lowest_after_shift():
        return "swapped", seen
    if j - i != DISTANCE:
        return "another-distance", f"{seen} The distance is {j - i}."
    along = _scores().diagonal(DISTANCE)
    if (i, j) == BEGINS:
        return "where-the-picture-begins", seen
    if along[j] == along.max():
        return "highest", seen
    beside = along[max(0, j - 1) : j + 2]
    return "another-valley" if along[j] == beside.min() else "not-lowest", seen


EXERCISE = Exercise(
    answer=lowest_after_shift,
    chapter="09_scores_and_positions",
    section=SIDE,
    points=1,
    problems=lambda rng: iter([()]),
    accepts=_accepts,
    mistakes={
        "the-picture": Mistake("Its two positions are in `picture.at`.", SIDE, ()),
        "score-returned": Mistake("Return the two positions, `picture.at`, not a score.", SIDE, ()),
        "off-the-strip": Mistake("Read the positions from the picture: `picture.at`.", SIDE, ()),
        "swapped": Mistake("The position of the query comes first, and then that of the key.", SIDE, ()),
        "another-distance": Mistake(
            "The distance, which is the key's position minus the query's, must stay -3. Move both tokens "
            "together.",
            SIDE,
            (),
        ),
        "where-the-picture-begins": Mistake(
            "These are the positions with which the picture begins. Did you move the tokens, and has the "
            "kernel been restarted since? A restart forgets your positions.",
            SIDE,
            (),
        ),
        "highest": Mistake("At this distance, the score is highest here. Find where it is lowest.", SIDE, ()),
        "another-valley": Mistake(
            "One place to the left or to the right, the score is higher. But farther away it is lower: move "
            "the two tokens over the whole strip.",
            ADDED,
            (),
        ),
        "not-lowest": Mistake(
            "One place to the left or to the right, at the same distance, the score is lower. Have you "
            "chosen sinusoidal positions in the picture? With the other two, the score does not change.",
            SIDE,
            (),
        ),
    },
)
