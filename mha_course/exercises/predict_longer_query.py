"""Chapter 02: what a query twice as long does to the weights."""

import torch

from mha_course.exercises import Exercise, Mistake


def predict_longer_query(weights):
    """``(n_k,)`` to the weights ``(n_k,)`` of the same query, twice as long."""
    squares = weights**2  # exp(2 s) is exp(s) squared
    return squares / squares.sum()


def _problems(rng):
    yield (torch.tensor([0.25, 0.75]),)
    yield (torch.tensor([0.5, 0.125, 0.375]),)
    yield (torch.tensor([0.875, 0.125]),)
    for spread in (1, 2, 4):
        (n_k,) = rng.primes(1, at_least=3)
        yield ((spread * rng.normal(n_k)).softmax(0),)


def _share(numbers):
    return numbers / numbers.sum()


STEP = "5 Length and temperature"
MISTAKES = {
    "unchanged-weights": (
        "Your function returns the old weights. (Doubling all of them changes nothing, once they are "
        "divided by their sum.)",
        lambda w: w,
        lambda w: _share(2 * w),
    ),
    "doubled-weights": ("Your function doubles the weights: they sum to 2.", lambda w: 2 * w),
    "squares-not-divided": (
        "Your function squares the weights, but does not divide by the sum of the squares. (The sum of the "
        "old weights is 1: dividing by that changes nothing.)",
        lambda w: w * w,
    ),
    "softmax-of-weights": (
        "Your function takes a softmax of the weights, or of twice the weights, as if they were scores. "
        "They are already the result of a softmax.",
        lambda w: (2 * w).softmax(0),
        lambda w: w.softmax(0),
    ),
    "softmax-of-squares": (
        "Your function squares the weights, and then takes a softmax; dividing by the sum is enough.",
        lambda w: (w * w).softmax(0),
    ),
    "exp-not-divided": (
        "Your function takes exp of the weights, or of twice the weights, as if they were scores.",
        lambda w: w.exp(),
        lambda w: (2 * w).exp(),
    ),
    "euclidean-norm": (
        "Your function divides by the Euclidean length, not by the sum. The new weights must sum to 1.",
        lambda w: w * w / (w * w).norm(),
        lambda w: w * w / w.norm(),
        lambda w: w / w.norm(),
    ),
    "divided-by-the-largest": (
        "Your function divides by the largest number, not by the sum.",
        lambda w: w * w / (w * w).max(),
        lambda w: w / w.max(),
    ),
    "fits-two-keys-only": (
        "Your function divides by w ** 2 + (1 - w) ** 2. For two keys that is the sum of all squares; for "
        "three it is not.",
        lambda w: w * w / (w * w + (1 - w) ** 2),
    ),
    "complement": (
        "Your function returns 1 - w, divided by its sum or not: the largest weight becomes the smallest.",
        lambda w: 1 - w,
        lambda w: _share(1 - w),
    ),
    "flatter": (
        "Your function takes the roots of the weights: that is what a query of half the length does.",
        lambda w: _share(w.sqrt()),
    ),
    "roots-not-divided": ("Your function takes the root of the weights.", lambda w: w.sqrt()),
    "another-power": (
        "Your function takes the third or fourth power: that is a query three or four times as long.",
        lambda w: _share(w**3),
        lambda w: _share(w**4),
    ),
    "powers-of-two": (
        "Your function takes 2 to the power of each weight, not each weight to the power of 2.",
        lambda w: 2**w,
        lambda w: _share(2**w),
    ),
    "scores-returned": (
        "Your function returns logarithms of weights, or twice them: a softmax turns those into weights.",
        lambda w: w.log(),
        lambda w: 2 * w.log(),
    ),
    "logarithms-as-weights": (
        "Your function divides logarithms by their sum; a softmax turns logarithms into weights.",
        lambda w: _share(w.log()),
    ),
    "mirrored": ("Your weights are the right ones in the opposite order.", lambda w: _share(w * w).flip(0)),
    "hard": (
        "Your function gives all the weight to one key. A query twice as long increases its weight, but "
        "leaves some weight for the others.",
        lambda w: torch.nn.functional.one_hot(w.argmax(), len(w)).float(),
    ),
    "scaled-as-well": (
        "Your function doubles the scores, and divides them by the square root of the number of keys; "
        "the query is "
        "twice as long, and nothing else changes.",
        lambda w: (2 * w.log() / len(w) ** 0.5).softmax(0),
    ),
    "uniform": ("Your function gives all keys the same weight.", lambda w: torch.full_like(w, 1 / len(w))),
    "printed-example-only": (
        "Your function returns the example of the text, 0.1 and 0.9, for any weights.",
        lambda w: torch.tensor([0.1, 0.9]),
    ),
}
EXERCISE = Exercise(
    answer=predict_longer_query,
    chapter="02_toy_queries_keys_values",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={name: Mistake(says, STEP, variants) for name, (says, *variants) in MISTAKES.items()},
)
