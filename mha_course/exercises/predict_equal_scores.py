"""Chapter 04: the weights under a causal mask when all scores are equal."""

import torch

from mha_course.exercises import Exercise, Mistake, deviations


def predict_equal_scores(n):
    """The weights ``(n, n)`` of equal scores under the causal mask."""
    visible = torch.ones(n, n).tril()
    return visible / visible.sum(dim=-1, keepdim=True)


def _problems(rng):
    yield (3,)
    yield (4,)
    yield (1,)
    yield (2,)
    for n in rng.shuffled((5, 6, 7)):
        yield (n,)


def _ones(n):
    return torch.ones(n, n)


def _number(n):
    """1 to n, as a column."""
    return torch.arange(1, n + 1)[:, None]


def _build(visible=lambda n: _ones(n).tril(), share=lambda v: v / v.sum(-1, keepdim=True)):
    return lambda n: share(visible(n))


def _three(third):
    return lambda n: torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [third] * 3])


FUTURE, AFTER = "1 Hide the future", "2 Before or after the softmax?"
SHAPES = "3 Hide the padding"  # how shapes line up
VISIBLE = {
    "sees-the-future": (
        "Your query i sees the keys from i on, not those up to i.",
        FUTURE,
        (lambda n: _ones(n).triu(),),
    ),
    "mask-ignored": ("In your function every query sees all n keys: nothing is hidden.", FUTURE, (_ones,)),
    "one-key-too-many": (
        "Your query i sees one key too many, key i + 1.",
        FUTURE,
        (lambda n: _ones(n).tril(1),),
    ),
    "mask-inverted": (
        "Your query i sees the keys after i, not those up to i.",
        "4 Three conventions",
        (lambda n: _ones(n).triu(1),),
    ),
    "own-token-only": ("Your query i sees only key i.", FUTURE, (torch.eye,)),
}
SHARES = {
    "divided-by-n": (
        "You divide every row by n, hidden keys included: they take their share, and are only then hidden.",
        AFTER,
        (lambda v: v / len(v),),
    ),
    "columns-divided": (
        "Your divisors are a row, so they divide the columns; as a column, they would divide the rows. "
        "`keepdim=True` keeps the axis of a sum, and `[:, None]` adds one.",
        SHAPES,
        (lambda v: v / v.sum(-1),),
    ),
    "softmax-over-queries": (
        "You divide each column by its own sum; divide each row by its own sum, so that the weights of a "
        "query sum to 1.",
        AFTER,
        (lambda v: v / v.sum(-2, keepdim=True),),
    ),
    "divided-by-everything": (
        "You divide by the sum over all rows: the weights of each row should sum to 1.",
        AFTER,
        (lambda v: v / v.sum(),),
    ),
    "not-normalised": (
        "You give each visible key a weight of 1: the weights of a row should sum to 1.",
        AFTER,
        (lambda v: v,),
    ),
    "softmax-of-the-triangle": (
        "You take the softmax with a score of 0 for hidden keys: exp(0) is 1, so they get a weight.",
        AFTER,
        tuple(lambda v, score=score: torch.softmax(score * v, -1) for score in (1, 0.5, 2, 3, 5, 10)),
    ),
    "divided-in-whole-numbers": (
        "You divide with `//`, which gives whole numbers; `/` keeps the fraction.",
        AFTER,
        (lambda v: v // v.sum(-1, keepdim=True),),
    ),
}
EXERCISE = Exercise(
    answer=predict_equal_scores,
    chapter="04_masking",
    section=AFTER,
    points=1,
    problems=_problems,
    mistakes={
        **deviations(_build, {"visible": VISIBLE, "share": SHARES}),
        "own-token-hidden": Mistake(
            "Your query i sees the keys before i, but not its own: row 0 then has no key.",
            FUTURE,
            (
                lambda n: _ones(n).tril(-1) / torch.arange(n).clamp(min=1)[:, None],
                lambda n: _ones(n).tril(-1) / torch.arange(n)[:, None],
                lambda n: _ones(n).tril(-1) / _number(n),
                lambda n: _ones(n).tril(-1) / n,
                lambda n: _ones(n).tril(-1),
            ),
        ),
        "divided-by-i": Mistake(
            "You divide row i by i; rows are counted from 0, so row i sees i + 1 keys.",
            AFTER,
            (
                lambda n: _ones(n).tril() / torch.arange(n)[:, None],
                lambda n: (_ones(n).tril() / torch.arange(n)[:, None]).nan_to_num(posinf=0),
                lambda n: _ones(n).tril() / torch.arange(n).clamp(min=1)[:, None],
            ),
        ),
        "triangle-forgotten": Mistake(
            "You divide by the right number in every row, but give the hidden keys the same weight.",
            FUTURE,
            (lambda n: (1 / _number(n)).expand(n, n),),
        ),
        "one-over-the-key": Mistake(
            "You divide by the number of the column; how many keys are visible depends on the row.",
            FUTURE,
            (lambda n: (1 / _number(n)).mT.expand(n, n),),
        ),
        "scores-returned": Mistake(
            "You return scores, with -inf at the hidden keys; return the weights.",
            FUTURE,
            tuple(
                lambda n, score=score: torch.full((n, n), score).masked_fill(_ones(n).triu(1) > 0, -torch.inf)
                for score in (0.0, 1.0)
            ),
        ),
        "triangle-of-one-row": Mistake(
            "A triangle needs rows and columns, but here there is only one row of n numbers.",
            FUTURE,
            (lambda n: torch.ones(n).tril(), lambda n: torch.ones(n).triu()),
        ),
        "always-three-rows": Mistake(
            "Your function returns the same three rows for every n.",
            AFTER,
            tuple(map(_three, (1 / 3, 0.3, 0.33, 0.333, 0.3333))),
        ),
    },
)
