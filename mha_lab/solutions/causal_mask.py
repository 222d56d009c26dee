"""Chapter 04: hide the future."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def causal_mask(n):
    """Boolean ``(n, n)``, ``True`` = may attend."""
    position = torch.arange(n)
    return position <= position[:, None]


def _problems(draw):
    yield (3,)
    yield (1,)
    for n in draw.primes(3):
        yield (n,)


def _full(n):
    return torch.ones(n, n, dtype=torch.bool)


STEP = "1 Hide the future"
EXERCISE = Exercise(
    answer=causal_mask,
    chapter="04_masking",
    section=STEP,
    points=1,
    problems=_problems,
    same_as=("causal_mask",),
    mistakes={
        "mask-inverted": Mistake(
            "Your mask says True where a key is hidden; in this series True means may attend.",
            "4 Three conventions",
            (lambda n: _full(n).triu(1),),
        ),
        "sees-the-future": Mistake(
            "Your mask lets queries see later keys.",
            STEP,
            (lambda n: _full(n).triu(), _full, lambda n: _full(n).tril(1)),
        ),
        "hides-diagonal": Mistake(
            "Your mask hides each token from itself: query i may see key i.",
            STEP,
            (lambda n: _full(n).tril(-1),),
        ),
        "additive-mask": Mistake(
            "Your mask is made of 0 and -inf, to be added to scores; boolean is asked for.",
            "4 Three conventions",
            (
                lambda n: torch.zeros(n, n).masked_fill(~_full(n).tril(), -torch.inf),
                lambda n: torch.zeros(n, n).masked_fill(~_full(n).tril(), -1e9),
            ),
        ),
    },
)
