"""Chapter 11: a mask with as many leaks as a test for leaks lets through, painted in a picture."""

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake
from mha_course.exercises import _results as compare

HEADS, MASKS = "3 A bug in the heads", "4 Bugs in the masks"
N = 5
LEAKS = np.triu(np.ones((N, N), dtype=bool), 1)


def mask_that_passes():
    """The boolean mask ``(5, 5)``, ``True`` = may attend: only query 0 sees no later key."""
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[0, 1:] = False
    return mask


def _accepts(result):
    array = compare.as_array(result)
    kind = f"Your function returns {compare.kind(result)}."
    if compare.is_a(result, "Mask"):
        return "the-picture", "Your function returns the picture itself."
    if array is None or array.shape != (N, N):
        return "wrong-shape", f"{kind} A mask of shape (5, 5) is expected."
    if array.dtype != bool:
        return "numbers-in-place-of-booleans", f"{kind} Its numbers are not booleans."
    right = mask_that_passes().numpy()
    if np.array_equal(array, right):
        return None
    leaks, hidden = int((array & LEAKS).sum()), int((~array & ~LEAKS).sum())
    future = int(array[0, 1:].sum())
    caught = "catches it" if future else "does not catch it"
    seen = f"Your mask shows {leaks} of 10 later keys, and hides {hidden} of 15 that a causal mask shows. "
    seen += f"`blind_to_the_future` {caught}."
    if array.all():
        return "where-the-picture-begins", seen
    if np.array_equal(array, ~right):
        return "mask-inverted", seen
    if np.array_equal(array, right.T):
        return "rows-and-columns-swapped", seen
    if future:
        return "caught", seen
    if hidden:
        return "hides-earlier-keys", seen
    return ("no-leak" if not leaks else "fewer-leaks"), seen


EXERCISE = Exercise(
    answer=mask_that_passes,
    chapter="11_bug_clinic",
    section=HEADS,
    points=1,
    problems=lambda rng: iter([()]),
    accepts=_accepts,
    mistakes={
        "the-picture": Mistake("Return its mask: `editor.mask`.", HEADS, ()),
        "numbers-in-place-of-booleans": Mistake(
            "`editor.mask` has booleans, True for may attend.", MASKS, ()
        ),
        "where-the-picture-begins": Mistake(
            "Your mask hides nothing, and that is how the picture begins. Did the kernel restart after you "
            "painted? Then the picture has forgotten your mask: paste the code that the button Copy gives.",
            HEADS,
            (),
        ),
        "mask-inverted": Mistake("Your mask is inverted: True means may attend.", MASKS, ()),
        "rows-and-columns-swapped": Mistake(
            "Rows and columns are swapped: a row belongs to a query, and a column to a key.", MASKS, ()
        ),
        "caught": Mistake("In your mask, query 0 sees a later key, so output 0 changes.", HEADS, ()),
        "hides-earlier-keys": Mistake(
            "A query should see at least the keys that a causal mask shows: its own and the earlier ones.",
            HEADS,
            (),
        ),
        "no-leak": Mistake("This is the causal mask, which is right: no query sees a later key.", HEADS, ()),
        "fewer-leaks": Mistake(
            "Your mask leaks, and the test does not see it. But more leaks are possible. Which output does "
            "the test compare?",
            HEADS,
            (),
        ),
    },
)
