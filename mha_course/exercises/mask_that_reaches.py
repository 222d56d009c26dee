"""Chapter 12: a mask painted in a picture, with few keys for each query, that reaches far in two layers."""

import numpy as np

from mha_course.exercises import Exercise, Mistake
from mha_course.exercises import _results as compare
from mha_lab.masks import sliding_window_mask

WINDOW = "4 Only the last tokens"
N, MOST = 7, 3


def mask_that_reaches():
    """A boolean mask ``(7, 7)``: 3 keys for each query at most; in two layers, the last one reaches all."""
    mask = sliding_window_mask(7, window=3)
    mask[6, 4], mask[6, 2] = False, True  # 5 has seen 3 and 4, and 2 has seen 0 and 1
    return mask


def _form(result):
    """What is wrong with the form of a mask, and what was seen."""
    if compare.is_a(result, "Mask"):
        return "the-picture", "Your function returns the picture itself; its mask is expected."
    array = compare.as_array(result)
    if array is None or array.shape != (N, N):
        return "wrong-shape", f"Your function returns {compare.kind(result)}."
    if array.dtype != bool:
        name = "zeros-and-ones" if np.isin(array, (0, 1)).all() else "not-boolean"
        return name, f"Your mask has dtype {array.dtype}; bool is expected."
    return None


def _accepts(result):
    if told := _form(result):
        return told
    mask = compare.as_array(result)
    later = np.argwhere(np.triu(mask, 1))
    if later.size:
        hidden = np.tril(~mask).sum()
        name = "mask-inverted" if mask[np.triu_indices(N, 1)].all() and hidden else "sees-the-future"
        return name, "Query {} sees key {}.".format(*later[0])
    if not mask.diagonal().all():
        return "own-key-hidden", f"Query {mask.diagonal().argmin()} does not see its own key."
    if (sums := mask.sum(axis=1)).max() > MOST:
        return "too-many-keys", f"Query {sums.argmax()} sees {sums.max()} keys."
    missing = np.flatnonzero(~(mask @ mask)[-1]).tolist()
    if not missing:
        return None
    seen = f"In two layers, query {N - 1} does not reach: {', '.join(map(str, missing))}."
    if (mask == sliding_window_mask(N, window=MOST).numpy()).all():
        return "where-the-picture-begins", seen
    return "tokens-not-reached", seen


EXERCISE = Exercise(
    answer=mask_that_reaches,
    chapter="12_smaller_caches",
    section=WINDOW,
    points=1,
    problems=lambda rng: iter([()]),
    accepts=_accepts,
    mistakes={
        "the-picture": Mistake("That is the picture itself. Return its mask: `editor.mask`.", WINDOW, ()),
        "wrong-shape": Mistake(
            "The mask has a row for each of 7 queries and a column for each of 7 keys.", WINDOW, ()
        ),
        "zeros-and-ones": Mistake(
            "Your mask contains the numbers 0 and 1. A comparison, or `.bool()`, turns them into booleans.",
            WINDOW,
            (),
        ),
        "not-boolean": Mistake(
            "A mask contains True and False, but your function returns other numbers. The mask of the "
            "picture is `editor.mask`.",
            WINDOW,
            (),
        ),
        "mask-inverted": Mistake(
            "In your mask, each query sees all later keys and not all earlier ones. Did you write True for "
            "hidden? Here, True means that the query may see the key.",
            WINDOW,
            (),
        ),
        "sees-the-future": Mistake(
            "In your mask, a query sees a later key. Only its own key and earlier ones are allowed.",
            WINDOW,
            (),
        ),
        "own-key-hidden": Mistake(
            "In your mask, a query does not see its own key. Each query should.", WINDOW, ()
        ),
        "too-many-keys": Mistake("In your mask, a query sees more than 3 keys.", WINDOW, ()),
        "where-the-picture-begins": Mistake(
            "This is the window of 3, and that is how the picture begins. Did the kernel restart after you "
            "painted? Then the picture has forgotten your mask: paste the code that the button Copy gives.",
            WINDOW,
            (),
        ),
        "tokens-not-reached": Mistake(
            "The last token does not reach all tokens in two layers. It reaches the keys that it sees, and "
            "the keys that these see.",
            WINDOW,
            (),
        ),
    },
)
