"""Chapter 03: where one number goes when heads are split."""

import math

import torch

from mha_course.exercises import Exercise, Mistake, deviations


def predict_place(token, column, n, num_heads, d_k):
    """The index ``(head, row, place)`` where ``split_heads`` puts ``x[token, column]``."""
    return column // d_k, token, column % d_k


def _problems(rng):
    yield 6, 11, 7, 6, 4
    yield 1, 3, 3, 2, 3
    yield 3, 7, 5, 3, 4
    yield 0, 0, 2, 3, 5
    for _ in range(6):
        n, num_heads, d_k = rng.primes(3)
        yield rng.below(n), rng.below(num_heads * d_k), n, num_heads, d_k
    yield 4, 21, 5, 11, 2
    yield 2, 33, 3, 5, 7


def _build(
    head=lambda t, c, n, h, d: c // d,
    row=lambda t, c, n, h, d: t,
    place=lambda t, c, n, h, d: c % d,
    order=(0, 1, 2),
):
    def answer(*sizes):
        found = head(*sizes), row(*sizes), place(*sizes)
        return tuple(found[i] for i in order)

    return answer


def _of_columns(columns=lambda c, h, d: divmod(c, d), **pieces):
    return _build(
        head=lambda t, c, n, h, d: columns(c, h, d)[0],
        place=lambda t, c, n, h, d: columns(c, h, d)[1],
        **pieces,
    )


def _bare_view(t, c, n, h, d):
    head, rest = divmod(t * h * d + c, n * d)
    return head, rest // d, rest % d


BARE = "3 The bare view"
HEADS = {
    "head-by-num_heads": (
        "Your head is column // num_heads, which counts pieces that are num_heads wide; a head is d_k wide.",
        BARE,
        (lambda t, c, n, h, d: c // h,),
    ),
    "head-in-turn": (
        "Your head is column % num_heads: it changes with every column, but a head is d_k neighbouring "
        "columns.",
        BARE,
        (lambda t, c, n, h, d: c % h,),
    ),
    "head-is-the-remainder": (
        "Your head is column % d_k, which is the place inside a head.",
        BARE,
        (lambda t, c, n, h, d: c % d,),
    ),
    "head-rounded": (
        "Your head is column / d_k, rounded to the nearest whole number or up; `//` rounds down.",
        BARE,
        (
            lambda t, c, n, h, d: round(c / d),
            lambda t, c, n, h, d: math.floor(c / d + 0.5),
            lambda t, c, n, h, d: math.ceil(c / d),
        ),
    ),
    "head-not-whole": (
        "Your head is column / d_k, which is not always a whole number; `//` makes it one.",
        BARE,
        (lambda t, c, n, h, d: c / d,),
    ),
    "head-from-1": (
        "Your heads are counted from 1, not from 0.",
        BARE,
        (lambda t, c, n, h, d: c // d + 1,),
    ),
    "head-of-the-bare-view": (
        "Your head is that of the bare view, which counts through all tokens; each token has columns in "
        "every head.",
        BARE,
        (lambda *sizes: _bare_view(*sizes)[0],),
    ),
    "head-from-the-token": (
        "Your head comes from the token; each token has columns in every head.",
        BARE,
        (
            lambda t, c, n, h, d: t,
            lambda t, c, n, h, d: t // h,
            lambda t, c, n, h, d: t % h,
            lambda t, c, n, h, d: t // d,
        ),
    ),
    "head-by-n": (
        "Your head is computed with n, the number of tokens; how wide a head is does not depend on it.",
        BARE,
        (lambda t, c, n, h, d: c // n, lambda t, c, n, h, d: c % n),
    ),
}
ROWS = {
    "row-of-the-bare-view": (
        "Your row is that of the bare view, which puts pieces of one token into different rows; after the "
        "split a token keeps its row.",
        BARE,
        (lambda *sizes: _bare_view(*sizes)[1],),
    ),
    "row-counted-in-pieces": (
        "Your row counts pieces of d_k through all tokens; a token keeps its row.",
        BARE,
        (lambda t, c, n, h, d: t * h + c // d,),
    ),
    "row-through-all-heads": (
        "Your row counts on from head to head, as if the heads were below each other in one table; each "
        "head has rows of its own, counted from 0.",
        BARE,
        (lambda t, c, n, h, d: t + n * (c // d),),
    ),
    "row-from-1": ("Your row is counted from 1, not from 0.", BARE, (lambda t, c, n, h, d: t + 1,)),
    "row-is-not-the-token": (
        "Your row is computed from other numbers; after the split a token keeps its row, whatever the sizes "
        "are.",
        BARE,
        (
            lambda t, c, n, h, d: t % h,
            lambda t, c, n, h, d: t // h,
            lambda t, c, n, h, d: t % d,
            lambda t, c, n, h, d: t // d,
            lambda t, c, n, h, d: c,
            lambda t, c, n, h, d: c // d,
            lambda t, c, n, h, d: c % d,
            lambda t, c, n, h, d: c // n,
            lambda t, c, n, h, d: c % n,
            lambda t, c, n, h, d: n,
        ),
    ),
}
PLACES = {
    "column-not-counted-anew": (
        "Your place is the column of x; inside a head, columns are counted from 0 again.",
        BARE,
        (lambda t, c, n, h, d: c,),
    ),
    "place-by-num_heads": (
        "Your place is column % num_heads, which counts up to num_heads; a head is d_k wide.",
        BARE,
        (lambda t, c, n, h, d: c % h,),
    ),
    "place-in-turn": (
        "Your place is column // num_heads, as if the columns were given to the heads in turn.",
        BARE,
        (lambda t, c, n, h, d: c // h,),
    ),
    "place-is-the-quotient": (
        "Your place is column // d_k, which is the head.",
        BARE,
        (lambda t, c, n, h, d: c // d,),
    ),
    "d_k-subtracted-once": (
        "You subtract d_k from the column at most once; head h begins at column h * d_k.",
        BARE,
        (
            lambda t, c, n, h, d: c - d,
            lambda t, c, n, h, d: c - d if c >= d else c,
        ),
    ),
    "place-from-a-wrong-start": (
        "Your place is counted from a column at which its head does not begin: head h begins at column h * "
        "d_k.",
        BARE,
        (
            lambda t, c, n, h, d: c - h * (c // d),
            lambda t, c, n, h, d: c - c // d,
            lambda t, c, n, h, d: c - h,
            lambda t, c, n, h, d: c - d * h,
            lambda t, c, n, h, d: c - d * (c // d + 1),
        ),
    ),
    "place-from-1": (
        "Your place is counted from 1, not from 0.",
        BARE,
        (lambda t, c, n, h, d: c % d + 1,),
    ),
    "place-by-n": (
        "Your place is computed with n, the number of tokens; a head is d_k wide, however many tokens there "
        "are.",
        BARE,
        (lambda t, c, n, h, d: c % n, lambda t, c, n, h, d: c // n),
    ),
}
ORDERS = {
    "not-transposed": (
        "You name the token first and the head second: after the transpose, the head is the first index.",
        BARE,
        ((1, 0, 2),),
    ),
    "head-and-place-exchanged": ("Your head and your place are swapped.", BARE, ((2, 1, 0),)),
    "another-order": (
        "Your three numbers come in another order than (head, row, place).",
        BARE,
        ((0, 2, 1), (1, 2, 0), (2, 0, 1)),
    ),
}
COLUMNS = {  # head and place, both wrong in the same way
    "heads-interleaved": (
        "You give the columns to the heads in turn; head h gets d_k neighbouring columns.",
        BARE,
        (lambda c, h, d: (c % h, c // h),),
    ),
    "divided-by-heads": (
        "You cut the columns into pieces of num_heads; a head is d_k columns wide.",
        BARE,
        (lambda c, h, d: (c // h, c % h),),
    ),
    "divided-by-d_model": (
        "You divide by d_model, the width of all heads together; a head is d_k columns wide.",
        BARE,
        (lambda c, h, d: (c // (h * d), c % (h * d)),),
    ),
    "nothing-left-for-the-place": (
        "Your head is column / d_k with its fraction, so nothing is left for the place; `//` makes a whole "
        "number.",
        BARE,
        (lambda c, h, d: (c / d, c - c / d * d),),
    ),
    "two-heads-only": (
        "Your function knows only heads 0 and 1; there can be more.",
        BARE,
        (lambda c, h, d: (int(c >= d), c - d * int(c >= d)),),
    ),
    "head-begins-one-too-late": (
        "You give the first column of a head to the head before it: head h begins at column h * d_k.",
        BARE,
        (
            lambda c, h, d: (max(c - 1, 0) // d, c - max(c - 1, 0) // d * d),
            lambda c, h, d: (-(-c // d) - 1, c - (-(-c // d) - 1) * d),
        ),
    ),
}
EXERCISE = Exercise(
    answer=predict_place,
    chapter="03_splitting_heads",
    section=BARE,
    points=1,
    problems=_problems,
    results=("head", "row", "place"),
    mistakes={
        **deviations(_build, {"head": HEADS, "row": ROWS, "place": PLACES, "order": ORDERS}),
        **deviations(
            _of_columns,
            {"columns": COLUMNS, "row": ROWS, "order": {"not-transposed": ORDERS["not-transposed"]}},
        ),
        "view-without-transpose": Mistake(
            "You predict what the bare view does: it counts through memory, and puts pieces of one token "
            "into different rows.",
            BARE,
            (_bare_view,),
        ),
        "counted-from-1": Mistake(
            "All three numbers are counted from 1, not from 0.",
            BARE,
            (lambda t, c, n, h, d: (c // d + 1, t + 1, c % d + 1),),
        ),
        "inside-a-table": Mistake(
            "Your numbers are right, but they are in a table or in tensors of length 1, as `nonzero()` "
            "returns them: take the numbers out.",
            BARE,
            (
                lambda t, c, n, h, d: torch.tensor([[c // d, t, c % d]]),
                lambda t, c, n, h, d: tuple(torch.tensor([i]) for i in (c // d, t, c % d)),
            ),
        ),
        "place-in-memory": Mistake(
            "Your function returns one number, the place of x[token, column] in memory; the index has three "
            "numbers.",
            BARE,
            (lambda t, c, n, h, d: t * h * d + c,),
        ),
        "head-and-place-alone": Mistake(
            "Your function returns the head and the place; the row should be between them.",
            BARE,
            (lambda t, c, n, h, d: (c // d, c % d),),
        ),
    },
)
