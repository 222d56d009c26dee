"""Chapter 03: sizes for which the bare view cuts each token in half, found in a picture."""

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake
from mha_course.exercises import _results as compare

BARE = "3 The bare view"
BEGINS = (3, 2, 2)


def split_by_hand():
    """What the picture shows at the step *transpose*, ``(num_heads, n, d_k)``, for the sizes found."""
    # A head of the bare view has n * d_k numbers, and a token has num_heads * d_k: twice as many.
    return torch.arange(8).view(2, 4, 1).transpose(0, 1)


def _sizes(array):
    """``(n, num_heads, d_k)`` if these are the numbers of the step *transpose*."""
    num_heads, n, d_k = array.shape
    split = np.arange(array.size).reshape(n, num_heads, d_k).swapaxes(0, 1)
    return (n, num_heads, d_k) if np.array_equal(array, split) else None


def _bare(n, num_heads, d_k):
    """In words, which tokens each head of the bare view has."""
    tokens = (np.arange(n * num_heads * d_k) // (num_heads * d_k)).reshape(num_heads, -1)
    heads = []
    for head, row in enumerate(tokens):
        found = [str(token) for token in np.unique(row)]
        heads.append(f"head {head} has token{'s' * (len(found) > 1)} {' and '.join(found)}")
    return "; ".join(heads)


def _accepts(result):
    array = compare.as_array(result)
    kind = f"Your function returns {compare.kind(result)}."
    if compare.is_a(result, "Split"):
        return "the-picture", "Your function returns the picture itself."
    if compare.is_a(result, "Size") or (array is not None and array.shape == (3,)):
        return "sizes-only", kind
    if array is None or array.ndim not in (2, 3) or array.dtype == bool or not array.size:
        return "wrong-shape", f"{kind} A tensor of shape (num_heads, n, d_k) is expected."
    if array.ndim == 2:
        return "another-step", kind
    if not (found := _sizes(array)):
        memory = np.array_equal(array.ravel(), np.arange(array.size))
        return "order-of-memory" if memory else "other-numbers", kind
    n, num_heads, d_k = found
    if n > 1 and num_heads == 2 * n:
        return None
    seen = (
        f"Your sizes are n = {n}, num_heads = {num_heads} and d_k = {d_k}. In the bare view, {_bare(*found)}."
    )
    if found == BEGINS:
        return "where-the-picture-begins", seen
    if n == 1 or num_heads == 1:
        return "one-token" if n == 1 else "one-head", seen
    if n % num_heads == 0:
        return "one-whole-token" if n == num_heads else "several-whole-tokens", seen
    return "mixed-heads" if num_heads % n else "wrong", seen


EXERCISE = Exercise(
    answer=split_by_hand,
    chapter="03_splitting_heads",
    section=BARE,
    points=1,
    problems=lambda rng: iter([()]),
    accepts=_accepts,
    mistakes={
        "the-picture": Mistake("What it shows is in `picture.result`.", BARE, ()),
        "sizes-only": Mistake(
            "Return the tensor that the picture shows at the step *3 transpose*: `picture.result`.", BARE, ()
        ),
        "another-step": Mistake(
            "Only the first and the last step show a tensor with two axes. Choose the step *3 transpose*.",
            BARE,
            (),
        ),
        "order-of-memory": Mistake(
            "Its numbers are in the order of memory, as in the step *2 view* and in the bare view. Choose "
            "the step *3 transpose*, and return `picture.result`.",
            BARE,
            (),
        ),
        "where-the-picture-begins": Mistake(
            "These are the sizes with which the picture begins. Did you change them, and has the kernel been "
            "restarted since? A restart forgets your sizes.",
            BARE,
            (),
        ),
        "one-token": Mistake("There is only one token. Use at least two.", BARE, ()),
        "one-head": Mistake("There is only one head, so no token can be in two heads.", BARE, ()),
        "one-whole-token": Mistake(
            "Each head has one colour, but each token is whole, in one head. A head should have half of a "
            "token.",
            BARE,
            (),
        ),
        "several-whole-tokens": Mistake(
            "Each head has several whole tokens. Is a head too long, or a token too short?", BARE, ()
        ),
        "mixed-heads": Mistake(
            "At least one head has numbers of more than one token: a new token begins inside it.",
            BARE,
            (),
        ),
    },
)
