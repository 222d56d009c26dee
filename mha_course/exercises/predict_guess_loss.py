"""Chapter 07: what a loss says about which answers a model knows."""

import math
from itertools import product

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake, deviations
from mha_course.exercises._results import as_array


def predict_guess_loss(num_lookups, candidates):
    """The mean cross-entropy when one answer is known, and every other answer is a guess."""
    return (num_lookups - 1) / num_lookups * math.log(candidates)


def _problems(rng):
    yield 3, 5
    yield 2, 9
    yield 5, 3
    answers, contents = rng.shuffled(range(2, 9))[:3], rng.shuffled(range(4, 20))[:3]
    yield from rng.shuffled(product(answers, contents))  # each with each, for _explains


def _build(
    guess=lambda k, c: math.log(c),
    guesses=lambda k: k - 1,
    known=lambda k, c: 0.0,
    divisor=lambda k, c: k,
    sign=1,
    unit=1.0,
):
    return lambda k, c: sign * (guesses(k) * guess(k, c) + known(k, c)) / divisor(k, c) / unit


STEP = "4 Train, and measure the gap"
CHOICES = {
    "guess": {
        "one-candidate-fewer": (
            "Your guess is spread over candidates - 1 contents. It should be spread over `candidates`.",
            (lambda k, c: math.log(c - 1),),
        ),
        "one-candidate-more": (
            "Your guess is spread over candidates + 1 contents. The right one is already a candidate.",
            (lambda k, c: math.log(c + 1),),
        ),
        "weighted-by-its-probability": (
            "You multiply the logarithm of a guess by its probability, 1 / candidates. The loss of one "
            "answer is minus the logarithm of the probability of the right content, with no factor.",
            (lambda k, c: math.log(c) / c,),
        ),
        "logarithm-missing": (
            "In your function a guess counts 1 / candidates, or candidates; its loss is minus the logarithm "
            "of its probability.",
            (lambda k, c: 1 / c, lambda k, c: c),
        ),
        "share-of-wrong-answers": (
            "Your result is the expected share of wrong answers; a loss is a mean of logarithms.",
            (lambda k, c: 1 - 1 / c,),
        ),
        "probability-of-another-content": (
            "Your logarithm is that of 1 - 1 / candidates, the probability of guessing wrong; take that of "
            "the right content.",
            (lambda k, c: -math.log(1 - 1 / c),),
        ),
        "right-or-wrong": (
            "You treat a guess as a coin with two sides, right and wrong, and add a term for each: only "
            "that of the right content counts.",
            (lambda k, c: math.log(c) / c - (1 - 1 / c) * math.log(1 - 1 / c),),
        ),
        "logarithm-of-num_lookups": (
            "Your logarithm is that of num_lookups; a guess is among candidates contents.",
            (lambda k, c: math.log(k),),
        ),
    },
    "guesses": {
        "known-answer-missing": (
            "You count only guesses: the known answer, whose loss is 0, is part of the mean too.",
            (lambda k: k,),
        ),
        "one-guess": ("You count one guess: all answers but one are guesses.", (lambda k: 1,)),
        "two-answers-known": (
            "You count num_lookups - 2 guesses: one answer is known, not two.",
            (lambda k: k - 2,),
        ),
    },
    "known": {
        "known-answer-costs-one": (
            "Your known answer costs 1: that is its probability, and its loss is minus the logarithm of "
            "that.",
            (lambda k, c: 1.0,),
        ),
        "probabilities-for-logits": (
            "In your function the known answer is not certain: the softmax of a 1 and zeros is less than 1. "
            "PyTorch's cross_entropy takes a softmax itself: it expects logits, not probabilities.",
            (lambda k, c: math.log(1 + (c - 1) / math.e),),
        ),
    },
    "divisor": {
        "added-up": (
            "Your result is a sum over answers; it should be the mean.",
            (lambda k, c: 1,),
        ),
        "divided-by-candidates": (
            "You divide the sum of the losses by candidates, or multiply it by 1 / candidates; for the "
            "mean, divide it by the number of answers.",
            (lambda k, c: c,),
        ),
        "divided-by-two": (
            "You divide the sum of the losses by 2, whatever the number of answers is.",
            (lambda k, c: 2,),
        ),
    },
    "sign": {
        "negative": (
            "Your sign is wrong: the logarithm of a probability is never above 0, and the loss is minus "
            "that.",
            (-1,),
        ),
    },
    "unit": {
        "bits": (
            "Your logarithm has base 2 or 10: for nats, use the natural logarithm, base e.",
            (math.log(2), math.log(10)),
        ),
    },
}
KNOBS = {
    knob: {name: (says, STEP, pieces) for name, (says, pieces) in choices.items()}
    for knob, choices in CHOICES.items()
}
RIGHT = _build()


def _falling(first, log):
    """Each guess among one content fewer than the one before."""
    return lambda k, c: float(sum(log(c - i) for i in range(first, first + k - 1))) / k


def _explains(problems, results):
    """Which of the two factors is wrong: one depends on the number of answers, one on that of candidates."""
    arrays = [as_array(result) for result in results]
    if any(a is None or a.shape or a.dtype == bool or not np.isfinite(a) or not a for a in arrays):
        return None
    values = [float(array) for array in arrays]
    factors = _law(problems, [v / math.log(c) for v, (_, c) in zip(values, problems, strict=True)], 0)
    losses = _law(problems, [v * k / (k - 1) for v, (k, _) in zip(values, problems, strict=True)], 1)
    if factors and not losses:
        k = next(k for k in factors if abs(factors[k] - (k - 1) / k) > 1e-3)
        says = f"For {k} answers your loss is {factors[k]:.4g} times ln(candidates), whatever candidates is."
        return "share-of-guesses", f"{says} How many of the answers are guesses?"
    if losses and not factors:
        c = next(c for c in losses if abs(losses[c] - math.log(c)) > 1e-3)
        says = f"All answers but one count, as they should, but a guess among {c} counts {losses[c]:.4g}."
        return "loss-of-a-guess", f"{says} What is minus the logarithm of its probability?"
    return None


def _law(problems, values, which):
    """``{size: value}`` if the values depend on this size alone."""
    found = {}
    for problem, value in zip(problems, values, strict=True):
        found.setdefault(problem[which], []).append(value)
    if any(max(group) - min(group) > 1e-3 * max(map(abs, group)) for group in found.values()):
        return None
    return {size: group[0] for size, group in found.items()}


EXERCISE = Exercise(
    answer=predict_guess_loss,
    chapter="07_why_more_heads",
    section=STEP,
    points=1,
    problems=_problems,
    explains=_explains,
    mistakes={
        **deviations(_build, KNOBS),
        "half-always": Mistake(
            "Your function takes half of ln(candidates), whatever the number of answers is.",
            STEP,
            (lambda k, c: math.log(c) / 2,),
        ),
        "one-answer-too-many": Mistake(
            "You count num_lookups guesses and the known answer as well; it is one of the num_lookups.",
            STEP,
            (lambda k, c: k / (k + 1) * math.log(c),),
        ),
        "divided-by-the-guesses": Mistake(
            "Your function divides the loss of one guess by the number of guesses.",
            STEP,
            (lambda k, c: math.log(c) / (k - 1),),
        ),
        "averaged-before-the-logarithm": Mistake(
            "You take the logarithm of a mean; the loss is the mean of logarithms, one for each answer.",
            STEP,
            (
                lambda k, c: -math.log((1 + (k - 1) / c) / k),
                lambda k, c: math.log((1 + (k - 1) / c) / k),
                lambda k, c: math.log((1 + (k - 1) * c) / k),
            ),
        ),
        "share-inside-the-logarithm": Mistake(
            "The share of guesses, or of answers that are known, is inside your logarithm; put it in front "
            "of the logarithm, as in every mean.",
            STEP,
            (
                lambda k, c: math.log(c * (k - 1) / k),
                lambda k, c: -math.log((k - 1) / k / c),
                lambda k, c: math.log((k - 1) / k / c),
                lambda k, c: (k - 1) / k * math.log(c * k / (k - 1)),
                lambda k, c: (k - 1) / k * math.log(c * k / (k - 1)) + math.log(k) / k,
            ),
        ),
        "share-of-right-answers": Mistake(
            "Your result is the mean probability of the right content, or minus that: a loss is a mean of "
            "logarithms.",
            STEP,
            (lambda k, c: (1 + (k - 1) / c) / k, lambda k, c: -(1 + (k - 1) / c) / k),
        ),
        "perplexity": Mistake(
            "Your function returns exp of the loss, or of minus the loss; return the loss itself.",
            STEP,
            (lambda k, c: math.exp(RIGHT(k, c)), lambda k, c: math.exp(-RIGHT(k, c))),
        ),
        "arguments-swapped": Mistake(
            "Your function uses candidates as the number of answers, and num_lookups as that of contents.",
            STEP,
            (lambda k, c: RIGHT(c, k),),
        ),
        "fewer-from-guess-to-guess": Mistake(
            "Each of your guesses is among one content fewer than the one before; every guess is among "
            "`candidates`.",
            STEP,
            tuple(
                _falling(first, log)
                for first in (0, 1)
                for log in (math.log, lambda n: torch.tensor(float(n)).log().item())
            ),
        ),
        "not-averaged": Mistake(
            "Your function returns one number for each answer; it should return their mean.",
            STEP,
            tuple(
                lambda k, c, sign=sign, order=order: [0.0, *[sign * math.log(c)] * (k - 1)][::order]
                for sign in (1, -1)
                for order in (1, -1)
            ),
        ),
        "infinite": Mistake(
            "Your mean contains a probability of 0, whose loss is infinite: the known answer has "
            "probability 1.",
            STEP,
            (lambda k, c: math.inf,),
        ),
        "brackets-missing": Mistake(
            "`num_lookups - 1` needs brackets around it: `*` and `/` come before `-`.",
            STEP,
            (lambda k, c: k - math.log(c) / k,),
        ),
        "rounded": Mistake(
            "Your result is rounded.",
            STEP,
            tuple(lambda k, c, digits=digits: round(RIGHT(k, c), digits) for digits in (1, 2, 3)),
        ),
        "true-or-false": Mistake(
            "You return whether the loss is above or below ln 2; return the loss itself.",
            STEP,
            (lambda k, c: RIGHT(k, c) > math.log(2), lambda k, c: RIGHT(k, c) < math.log(2)),
        ),
    },
)
