"""Chapter 04: the weights under a causal mask when all scores are equal."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def predict_equal_scores(n):
    """The weights ``(n, n)`` of equal scores under the causal mask."""
    visible = torch.ones(n, n).tril()
    return visible / visible.sum(dim=-1, keepdim=True)


def _problems(draw):
    yield (3,)
    yield (1,)
    for n in draw.primes(3):
        yield (n,)


def _spread(visible):
    return visible / visible.sum(dim=-1, keepdim=True)


STEP = "2 Before the softmax, not after"
EXERCISE = Exercise(
    answer=predict_equal_scores,
    chapter="04_masking",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        "mask-after-softmax": Mistake(
            "Your rows do not sum to 1: the hidden keys have taken their share before they were hidden.",
            STEP,
            (lambda n: torch.ones(n, n).tril() / n,),
        ),
        "mask-ignored": Mistake(
            "You share every row among all n keys: nothing is hidden.",
            "1 Hide the future",
            (lambda n: torch.ones(n, n) / n,),
        ),
        "sees-the-future": Mistake(
            "You let each query see itself and the keys after it.",
            "1 Hide the future",
            (lambda n: _spread(torch.ones(n, n).triu()),),
        ),
        "softmax-over-queries": Mistake(
            "Your columns sum to 1: each row must.",
            STEP,
            (lambda n: _spread(torch.ones(n, n).triu()).mT,),
        ),
        "not-normalised": Mistake(
            "You show which keys are visible, with a weight of 1 each: a row has 1 to share.",
            STEP,
            (lambda n: torch.ones(n, n).tril(),),
        ),
    },
)
