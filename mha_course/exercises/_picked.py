"""Heads that a learner picked in a picture: whether the result is a list of them, and if not, what it is."""

from typing import Any

from mha_course.exercises import Mistake
from mha_course.exercises import _results as compare

COUNTED = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def flaw(result: Any, num_heads: int) -> tuple[str, str] | None:
    """``None`` for a list of different heads; else the name of a mistake and what was seen."""
    if compare.is_a(result, "Heads"):
        return "the-picture", "Your function returns the picture itself; a list of heads is expected."
    array = compare.as_array(result)
    seen = f"Your function returns {compare.kind(result)}; a list of heads is expected."
    if result in ((), []) or (array is not None and array.shape == (0,)):
        return "no-head", "Your list is empty."
    if array is None:
        return "wrong-shape", seen
    if array.dtype == bool or (array.shape == (num_heads,) and set(array.tolist()) <= {0, 1}):
        return "one-entry-for-each-head", seen
    if (array != array.astype(int)).any():
        return "numbers-that-are-not-whole", seen
    if array.ndim != 1:
        return "wrong-shape", f"{seen} It should have one axis."
    if array.min() < 0 or array.max() >= num_heads:
        return "no-such-head", f"Your list is {compare.brief(array.astype(int).tolist())}."
    if len(set(array.tolist())) < array.size:
        return "a-head-twice", f"Your list is {compare.brief(array.astype(int).tolist())}."
    return None


def heads(result: Any) -> list[int]:
    """A result without a flaw, in order."""
    return sorted(compare.as_array(result).astype(int).tolist())


def mistakes(section: str, name: str, num_heads: int, empty: str) -> dict[str, Mistake]:
    """What ``flaw`` names, and a picture whose picks were lost; ``name`` is that of the picture."""
    return {
        "the-picture": Mistake(f"The picked heads are in `{name}.picked`.", section, ()),
        "one-entry-for-each-head": Mistake(
            "Your list says yes or no for each head. Return the numbers of the picked heads, as "
            f"`{name}.picked` does.",
            section,
            (),
        ),
        "numbers-that-are-not-whole": Mistake(
            f"The numbers of heads are whole. Weights and sizes are not: `{name}.weights` has the weights, "
            f"and `{name}.picked` has the heads.",
            section,
            (),
        ),
        "no-head": Mistake(f"Pick at least one head. {empty}", section, ()),
        "no-such-head": Mistake(
            f"The {COUNTED[num_heads]} heads are counted from 0 to {num_heads - 1}.", section, ()
        ),
        "a-head-twice": Mistake("A head can be picked once only.", section, ()),
        "where-the-picture-begins": Mistake(
            "Heads 0 to 3 are picked when the picture begins. Did you pick other heads, and has the "
            "kernel been restarted since? A restart forgets the picks.",
            section,
            (),
        ),
        "counted-from-1": Mistake(
            "If each number were 1 less, your list would be right. Heads are counted from 0.", section, ()
        ),
    }
