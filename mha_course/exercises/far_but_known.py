"""Chapter 13: a distance found in a picture, beyond those of the training, at which no angle is new."""

import math

from mha_course.exercises import Exercise, Mistake
from mha_course.exercises import _results as compare

ANGLES = "5 Rotary positions at other lengths"
THETAS = (1.0, 0.4)  # of the two pairs, in radians for each token
LENGTH, PLACES = 8, 32  # of the texts in the training, and of the picture's strip
BEGIN = (7, 0)  # where the picture begins


def far_but_known():
    """The positions of a query and a key that are as far apart as the picture allows, with known angles."""
    return 22, 0


def angles(distance):
    """Of both pairs at a distance, after full turns."""
    return [distance * theta % (2 * math.pi) for theta in THETAS]


def known(distance):
    """Whether both pairs are in the range of their angles in the training.

    A pair that made a full turn there has no angle outside this range.
    """
    largest = [(LENGTH - 1) * theta for theta in THETAS]
    return all(angle <= most for angle, most in zip(angles(distance), largest, strict=True))


FARTHEST = max(filter(known, range(PLACES)))


def _form(result):
    """What is wrong with the form of two positions, and what was seen."""
    if compare.is_a(result, "Positions"):
        return "the-picture", "Your function returns the picture itself; two positions are expected."
    array = compare.as_array(result)
    if array is None or array.dtype == bool or array.shape not in ((), (1,), (2,)):
        return "wrong-shape", f"Your function returns {compare.kind(result)}; two positions are expected."
    if array.shape != (2,):
        return "one-number", f"Your function returns {compare.kind(result)}; two positions are expected."
    if (array != array.round()).any():
        seen = ", ".join(f"{number:.4g}" for number in array.tolist())
        return "numbers-that-are-not-whole", f"Your function returns {seen}."
    if array.min() < 0 or array.max() >= PLACES:
        return "not-on-the-strip", f"Your positions are {_told(array)}."
    return None


def _told(array):
    query, key = array.astype(int).tolist()
    return f"{query} for the query and {key} for the key"


def _accepts(result):
    if told := _form(result):
        return told
    query, key = compare.as_array(result).astype(int).tolist()
    distance = abs(query - key)
    turned = angles(distance)[1]
    limit = (LENGTH - 1) * THETAS[1]
    seen = f"Your positions are {query} for the query and {key} for the key, so the distance is {distance}."
    if key > query:
        return ("positions-swapped" if distance == FARTHEST else "key-after-query"), seen
    if distance == FARTHEST:
        return None
    if (query, key) == BEGIN:
        return "where-the-picture-begins", seen
    if distance < LENGTH:
        return "inside-the-training", seen
    if known(distance):
        return "not-the-largest", seen
    seen += f" There, after full turns, pair 1 has turned by {turned:.2f} radians."
    return ("other-side" if 2 * math.pi - turned <= limit else "new-angle"), seen


def _says(sentence):
    return Mistake(sentence, ANGLES, ())


EXERCISE = Exercise(
    answer=far_but_known,
    chapter="13_longer_texts",
    section=ANGLES,
    points=1,
    problems=lambda rng: iter([()]),
    call=lambda answer: answer(),
    accepts=_accepts,
    mistakes={
        "the-picture": _says("The two positions are in `dials.at`."),
        "one-number": _says(
            "One number says how far apart the tokens are. Return two numbers, as `dials.at` does: the "
            "position of the query, then that of the key."
        ),
        "numbers-that-are-not-whole": _says("A position is a whole number. Return `dials.at`."),
        "not-on-the-strip": _says("The positions of the picture are 0 to 31."),
        "where-the-picture-begins": _says(
            "The distance 7 is in training, too: look for a larger one. The picture begins with these two "
            "positions, and has them again after the kernel restarts."
        ),
        "positions-swapped": _says(
            "The distance is right, but your key comes after the query. Return the query's position first."
        ),
        "key-after-query": _says(
            "In your answer, the key comes after the query. With a causal mask, no query sees such a key."
        ),
        "inside-the-training": _says(
            "This distance is in training, too: its texts had 8 tokens, so the distances were 0 to 7. "
            "Look for a larger one."
        ),
        "not-the-largest": _says(
            "At this distance no angle is new, but there is a larger distance for which this is true, too."
        ),
        "other-side": _says(
            "The angle between the two hands of pair 1 is small enough, but the hand of the query is on the "
            "other side: in training, pair 1 never turned by more than 2.8 radians."
        ),
        "new-angle": _says(
            "Pair 1 has an angle that it did not have in training. There, it turned by at most 2.8 radians."
        ),
    },
)
