"""Chapter 04: hide the future."""

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, deviations


def causal_mask(n):
    """Boolean ``(n, n)``, ``True`` = may attend."""
    position = torch.arange(n)
    return position <= position[:, None]


def _problems(rng):
    yield (3,)
    yield (4,)
    yield (1,)
    yield (2,)
    for n in rng.shuffled((5, 6, 7)):
        yield (n,)


def _full(n):
    return torch.ones(n, n, dtype=torch.bool)


def _build(visible=lambda n: _full(n).tril(), form=lambda mask: mask, size=lambda n: n):
    return lambda n: form(visible(size(n)))


STEP, CONVENTIONS = "1 Hide the future", "4 Three conventions"
VISIBLE = {
    "mask-inverted": (
        "Your mask is True where a key is hidden; in this course True means may attend.",
        CONVENTIONS,
        (lambda n: _full(n).triu(1),),
    ),
    "sees-the-future": (
        "In your mask query i sees the keys from i on: rows and columns are swapped, or the comparison is "
        "reversed.",
        STEP,
        (lambda n: _full(n).triu(),),
    ),
    "hides-the-own-token": (
        "Your mask hides each token from itself: query i may see key i.",
        STEP,
        (lambda n: _full(n).tril(-1),),
    ),
    "one-key-too-many": (
        "In your mask query i sees one key too many, key i + 1.",
        STEP,
        (lambda n: _full(n).tril(1),),
    ),
    "nothing-hidden": ("Your mask hides nothing.", STEP, (_full,)),
    "everything-hidden": ("Your mask hides everything.", STEP, (lambda n: ~_full(n),)),
    "own-token-only": (
        "In your mask query i sees only key i.",
        STEP,
        (lambda n: torch.eye(n) > 0,),
    ),
    "own-token-only-hidden": (
        "Your mask hides key i from query i, and nothing else.",
        STEP,
        (lambda n: torch.eye(n) < 1,),
    ),
}
FORMS = {
    "numbers-in-place-of-booleans": (
        "Your mask contains the numbers 0 and 1. A comparison, or `.bool()`, turns them into booleans.",
        STEP,
        (lambda mask: mask.float(),),
    ),
    "additive-mask": (
        "Your mask contains 0 and -inf (or a large negative number), to be added to scores; it should "
        "contain booleans.",
        CONVENTIONS,
        tuple(
            lambda mask, hidden=hidden: torch.zeros(mask.shape).masked_fill(~mask, hidden)
            for hidden in (-torch.inf, -1e9, -1e4)
        ),
    ),
    "axes-in-front": (
        "Your mask has axes of size 1 in front, as for a batch and heads; it should be (n, n).",
        STEP,
        (lambda mask: mask[None], lambda mask: mask[None, None]),
    ),
    "one-row": (
        "Your mask has only one row: compare a column of positions, `[:, None]`, with a row of them to get "
        "n rows.",
        STEP,
        (lambda mask: mask[0], lambda mask: mask.diagonal(), lambda mask: mask[-1]),
    ),
}
SIZES = {
    "always-the-same-size": (
        "Your mask has the same size for every n.",
        STEP,
        tuple(lambda n, size=size: size for size in (2, 3, 4, 5)),
    ),
    "one-token-too-many": ("Your mask is for n + 1 tokens.", STEP, (lambda n: n + 1,)),
}
EXERCISE = Exercise(
    answer=causal_mask,
    chapter="04_masking",
    section=STEP,
    points=1,
    problems=_problems,
    same_as=(mha_lab.causal_mask,),
    mistakes={
        **deviations(_build, {"visible": VISIBLE, "form": FORMS, "size": SIZES}),
        "triangle-of-one-row": Mistake(
            "A triangle needs rows and columns, but here there is only one row of n numbers.",
            STEP,
            (lambda n: torch.ones(n).tril(), lambda n: torch.ones(n).triu()),
        ),
    },
)
