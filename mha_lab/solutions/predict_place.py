"""Chapter 03: where one number goes when heads are split."""

from mha_lab.check.exercise import Exercise, Mistake


def predict_place(token, column, n, num_heads, d_k):
    """The index ``(head, row, place)`` where ``split_heads`` puts ``x[token, column]``."""
    return column // d_k, token, column % d_k


def _problems(draw):
    yield 1, 3, 3, 2, 3
    yield 2, 4, 3, 2, 3
    for _ in range(6):
        n, num_heads, d_k = draw.primes(3)
        yield draw.below(n), draw.below(num_heads * d_k), n, num_heads, d_k
    yield 3, 7, 5, 3, 4


def _bare_view(token, column, n, num_heads, d_k):
    head, rest = divmod(token * num_heads * d_k + column, n * d_k)
    return head, rest // d_k, rest % d_k


STEP = "3 The bare view"
EXERCISE = Exercise(
    answer=predict_place,
    chapter="03_splitting_heads",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        "view-without-transpose": Mistake(
            "You predict what the bare view does: it counts through memory, and cuts tokens apart.",
            STEP,
            (_bare_view,),
        ),
        "heads-interleaved": Mistake(
            "You deal the columns out to the heads in turn: head h gets d_k columns that stand together.",
            "2 What view does",
            (lambda t, c, n, h, d: (c % h, t, c // h),),
        ),
        "not-transposed": Mistake(
            "You name the head second: after the transpose it is the first index.",
            STEP,
            (lambda t, c, n, h, d: (t, c // d, c % d),),
        ),
        "divided-by-heads": Mistake(
            "You cut the columns into pieces of num_heads; a head is d_k columns wide.",
            "2 What view does",
            (lambda t, c, n, h, d: (c // h, t, c % h),),
        ),
        "column-not-counted-anew": Mistake(
            "Your last index counts the columns of x; in a head they count from 0 to d_k - 1 again.",
            "2 What view does",
            (lambda t, c, n, h, d: (c // d, t, c),),
        ),
    },
)
