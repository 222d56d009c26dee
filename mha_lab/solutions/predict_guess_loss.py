"""Chapter 07: what a loss says about which answers a model knows."""

import math

import torch

from mha_lab.check.exercise import Exercise, Mistake


def predict_guess_loss(num_lookups, candidates):
    """The mean cross-entropy of answers of which one is known, and each other is a guess."""
    return (num_lookups - 1) / num_lookups * math.log(candidates)


def _problems(draw):
    yield 2, 2
    yield 3, 2  # here no mistake gives what another gives
    for _ in range(4):
        num_lookups, candidates = draw.primes(2)
        yield num_lookups, candidates
    yield 3, 1


def _as_tensor(answer, num_lookups, candidates):
    """Plain numbers and tensors alike, compared up to rounding."""
    result = answer(num_lookups, candidates)
    if isinstance(result, int | float) and not isinstance(result, bool):
        return torch.tensor(result, dtype=torch.float64)
    if isinstance(result, torch.Tensor) and result.is_floating_point():
        return result.double()
    return result


STEP = "4 Train, and measure the gap"
EXERCISE = Exercise(
    answer=predict_guess_loss,
    chapter="07_why_more_heads",
    section=STEP,
    points=1,
    problems=_problems,
    call=_as_tensor,
    mistakes={
        "all-guessed": Mistake(
            "You count every answer as a guess: one of them is known, and costs nothing.",
            STEP,
            (lambda k, c: math.log(c),),
        ),
        "one-guessed": Mistake(
            "You count one guess only: all answers but one are guesses.",
            STEP,
            (lambda k, c: math.log(c) / k,),
        ),
        "not-averaged": Mistake(
            "You add up the answers' losses: the loss is their mean.",
            STEP,
            (lambda k, c: (k - 1) * math.log(c),),
        ),
        "bits": Mistake(
            "Your logarithm has base 2: PyTorch's cross-entropy uses the natural one.",
            STEP,
            (lambda k, c: (k - 1) / k * math.log2(c), lambda k, c: (k - 1) / k * math.log10(c)),
        ),
        "logarithm-of-the-mean": Mistake(
            "You average the probabilities and take the logarithm then: the loss averages the logarithms.",
            STEP,
            (lambda k, c: -math.log((1 + (k - 1) / c) / k),),
        ),
        "share-of-wrong-answers": Mistake(
            "You predict how many answers are wrong: a loss is minus the logarithm of a probability.",
            STEP,
            (lambda k, c: (k - 1) / k * (1 - 1 / c), lambda k, c: (1 + (k - 1) / c) / k),
        ),
        "negative": Mistake(
            "Your loss has the wrong sign: the logarithm of a probability is negative, its loss is not.",
            STEP,
            (lambda k, c: (k - 1) / k * math.log(1 / c),),
        ),
    },
)
