"""Chapter 09: rotary embedding, neighbouring numbers as pairs."""

import math

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake, deviations
from mha_course.exercises._results import as_array, close
from mha_lab.positions import apply_rotary


def rotate_pairs(x, at):
    """``(..., n, d)`` and ``(n,)`` to ``(..., n, d)``, each pair of neighbours turned."""
    d = x.shape[-1]
    theta = 10000 ** (-torch.arange(0, d, 2) / d)
    angle = at[:, None] * theta  # (n, d / 2)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


def _problems(rng):
    yield torch.tensor([[2.0, 1.0, -1.0, 4.0], [1.0, 3.0, 5.0, 2.0]]), torch.tensor([3, 7])
    yield torch.tensor([[1.0, 2.0, -3.0, 1.0, 4.0, -2.0]]), torch.tensor([5])
    yield torch.tensor([[[2.0, 1.0]], [[-1.0, 3.0]]]), torch.tensor([4])
    yield (
        torch.tensor([[1.0, 2.0, -3.0, 1.0], [2.0, -1.0, 0.5, 3.0]]),
        torch.tensor([1800, 11]),
    )  # slow pairs show
    for lead in ((), (2,), (3, 2)):
        n, pairs = rng.primes(2, at_least=3)
        positions = torch.tensor([1 + rng.below(40) for _ in range(n)])
        yield rng.normal(*lead, n, 2 * pairs), positions


def _neighbours(x):
    return x[..., 0::2], x[..., 1::2]


def _together(a, b):
    return torch.stack([a, b], dim=-1).flatten(-2)


def _turn(a, b, cos, sin):
    return a * cos - b * sin, a * sin + b * cos


def _first_written_first(a, b, cos, sin):
    a = a * cos - b * sin
    return a, a * sin + b * cos


def _second_written_first(a, b, cos, sin):
    b = a * sin + b * cos
    return a * cos - b * sin, b


def _build(
    at=lambda x, p: p,
    speeds=lambda i, d, x: 10000.0 ** (-2 * i / d),
    angle=lambda t: t,
    turn=_turn,
    layout=lambda x, turn: _together(*turn(*_neighbours(x))),
):
    def answer(x, positions):
        d = x.shape[-1]
        t = angle(at(x, positions)[:, None] * speeds(torch.arange(d // 2), d, x))
        return layout(x, lambda a, b: turn(a, b, t.cos(), t.sin()))

    return answer


def _columns(order, spread):
    """In the style of GPT-J and LLaMA: cosine and sine for each column, and a partner for each."""

    def answer(x, positions):
        d = x.shape[-1]
        t = spread(positions[:, None], 10000.0 ** (-torch.arange(0, d, 2) / d), d)
        a, b = _neighbours(x) if order == "pairs" else x.chunk(2, -1)
        partner = _together(-b, a) if order == "pairs" else torch.cat([-b, a], -1)
        return x * t.cos() + partner * t.sin()

    return answer


def _sinusoid(x, positions):
    t = positions[:, None] * 10000.0 ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    return _together(t.sin(), t.cos())


def _of(*exponents):
    """Speeds from exponents of 10000."""
    return tuple(lambda i, d, x, e=e: 10000.0 ** e(i, d) for e in exponents)


def _two_axes(x, positions):
    """Two axes only, and positions of its own."""
    n, _ = x.shape
    return _build(at=lambda x, p: torch.arange(n))(x, positions)


def _explain(problems, results):
    """What turning keeps, checked on the results: the length of each pair, and a pair turned correctly."""
    found = []
    for problem, result in zip(problems, results, strict=True):
        got = as_array(result)
        if got is None or got.shape != problem[0].shape:
            return None
        found.append((problem[0].numpy(), rotate_pairs(*problem).numpy(), got))
    if all(close(expected[..., :2], got[..., :2]) for _, expected, got in found):
        return (
            "first-pair-only",
            "Pair 0 is turned correctly everywhere, but other pairs are not: are their speeds wrong?",
        )
    if all(close(_lengths(x), _lengths(got)) for x, _, got in found):
        return "other-angles", "Your pairs keep their lengths, as they should, but turn by other angles."
    if all(close(np.linalg.norm(x, axis=-1), np.linalg.norm(got, axis=-1)) for x, _, got in found):
        says = "Your rows keep their lengths, but the pairs of neighbours in them do not."
        return "other-pairs", says
    return "lengths-changed", "Turning keeps the length of a pair, but in your result lengths have changed."


def _lengths(x):
    return np.linalg.norm(x.reshape(*x.shape[:-1], -1, 2), axis=-1)


STEP = "5 Rotary: turn queries and keys"
KNOBS = {
    "layout": {
        "other-layout": (
            "Your pairs are columns r and r + d / 2; here they are neighbours, 2r and 2r + 1.",
            STEP,
            (lambda x, turn: torch.cat(turn(*x.chunk(2, -1)), -1),),
        ),
        "firsts-before-seconds": (
            "Your function takes neighbours as pairs, and writes all first numbers before all second ones: "
            "they must be side by side again.",
            STEP,
            (lambda x, turn: torch.cat(turn(*_neighbours(x)), -1),),
        ),
        "halves-dealt-out": (
            "Your function takes columns r and r + d / 2 as pairs, and writes them side by side.",
            STEP,
            (lambda x, turn: _together(*turn(*x.chunk(2, -1))),),
        ),
        "numbers-of-the-pair-swapped": (
            "Your function takes columns 1, 3, ... as the first numbers of the pairs: they are the second.",
            STEP,
            (lambda x, turn: _together(*turn(x[..., 1::2], x[..., 0::2])),),
        ),
        "results-swapped": (
            "Your two results are swapped: `a cos t - b sin t` is the first number of the pair.",
            STEP,
            (lambda x, turn: _together(*turn(*_neighbours(x))[::-1]),),
        ),
        "not-flattened": (
            "Your pairs have an axis of their own at the end: `flatten(-2)` puts them side by side.",
            STEP,
            (lambda x, turn: torch.stack(turn(*_neighbours(x)), -1),),
        ),
    },
    "turn": {
        "no-minus": (
            "Neither of your two sines has a minus: `a cos t - b sin t` has one.",
            STEP,
            (lambda a, b, c, s: (a * c + b * s, a * s + b * c),),
        ),
        "two-minuses": (
            "Both of your sines have a minus: only that of `a cos t - b sin t` has one.",
            STEP,
            (lambda a, b, c, s: (a * c - b * s, b * c - a * s),),
        ),
        "cosine-and-sine-swapped": (
            "Your cosine and sine are swapped.",
            STEP,
            (lambda a, b, c, s: (a * s - b * c, a * c + b * s),),
        ),
        "pair-not-mixed": (
            "Each of your new numbers is made from only one number of the pair: turning needs both.",
            STEP,
            (lambda a, b, c, s: (a * c, b * s), lambda a, b, c, s: (a * c, b * c)),
        ),
        "overwritten": (
            "One number of a pair is turned first, and then used for the other, which needs the old one. A "
            "slice of a tensor, such as `x[..., 1::2]`, is not a copy: it changes when the tensor changes.",
            STEP,
            (_first_written_first, _second_written_first),
        ),
    },
    "angle": {
        "turned-backwards": (
            "Your pairs turn the other way round: `a cos t + b sin t` instead of `a cos t - b sin t`.",
            STEP,
            (lambda t: -t,),
        ),
    },
    "speeds": {
        "one-speed": (
            "All your pairs turn at the same speed: pair r has its own, 10000 ** (-2r / d).",
            STEP,
            (lambda i, d, x: torch.ones(d // 2), lambda i, d, x: torch.full((d // 2,), 1 / 10000)),
        ),
        "half-the-exponent": (
            "Your exponent is -r / d, where r counts pairs; it must be -2r / d.",
            STEP,
            _of(lambda i, d: -i / d),
        ),
        "twice-the-exponent": (
            "Your exponent contains the 2 twice: the numbers of `torch.arange(0, d, 2)` are already 2r.",
            STEP,
            _of(lambda i, d: -4 * i / d),
        ),
        "counted-from-1": (
            "Your pairs are counted from 1. The first pair is r = 0, and its speed is 1.",
            STEP,
            _of(lambda i, d: -2 * (i + 1) / d),
        ),
        "without-the-minus": (
            "Your exponent has no minus, so each pair turns faster than the one before.",
            STEP,
            _of(lambda i, d: 2.0 * i / d),
        ),
        "size-from-the-front": (
            "Your exponent is divided by n, or by a size counted from the front, such as len(x) or "
            "x.shape[1]; d is the last, x.shape[-1].",
            STEP,
            tuple(lambda i, d, x, k=k: 10000.0 ** (-2 * i / x.shape[k]) for k in (0, 1, -2)),
        ),
    },
    "at": {
        "positions-ignored": (
            "Your function numbers the tokens itself, from 0 or from 1: use the given positions.",
            STEP,
            (lambda x, p: torch.arange(len(p)), lambda x, p: 1 + torch.arange(len(p))),
        ),
    },
}
RARE = {
    "layout": {
        "stacked-in-front": (
            "Your function stacks the two results along an axis in front, so the numbers of a pair are not "
            "side by side: `stack` along a new last axis.",
            STEP,
            (
                lambda x, turn: torch.stack(turn(*_neighbours(x))).reshape(x.shape),
                lambda x, turn: torch.stack(turn(*_neighbours(x))).flatten(-2),
                lambda x, turn: torch.stack(turn(*_neighbours(x)), 1).reshape(x.shape),
            ),
        ),
        "two-results": (
            "Your function returns the first numbers and the second numbers of the pairs separately.",
            STEP,
            (lambda x, turn: turn(*_neighbours(x)), lambda x, turn: torch.stack(turn(*_neighbours(x)))),
        ),
        "one-result": (
            "Your function returns one number of each pair: the other one is missing.",
            STEP,
            (lambda x, turn: turn(*_neighbours(x))[0], lambda x, turn: turn(*_neighbours(x))[1]),
        ),
    },
    "turn": {
        "minus-at-the-cosine": (
            "Your second number has a minus before `b cos t`: it is `a sin t + b cos t`.",
            STEP,
            (
                lambda a, b, c, s: (a * c - b * s, a * s - b * c),
                lambda a, b, c, s: (a * c + b * s, a * s - b * c),
            ),
        ),
        "second-number": (
            "Your second number is `a cos t + b sin t`: it is `a sin t + b cos t`.",
            STEP,
            (lambda a, b, c, s: (a * c - b * s, a * c + b * s),),
        ),
        "half-of-the-pair": (
            "Your function changes one number of each pair, and leaves the other as it was.",
            STEP,
            (lambda a, b, c, s: (a * c - b * s, b + 0 * c), lambda a, b, c, s: (a + 0 * c, a * s + b * c)),
        ),
    },
    "angle": {
        "degrees": (
            "There is a factor with pi in your angles. They are already in radians, as cos and sin expect "
            "them.",
            STEP,
            tuple(lambda t, k=k: k * t for k in (math.pi / 180, 180 / math.pi, math.pi, 2 * math.pi)),
        ),
        "angle-divided": (
            "Your angles are divided by d or by its root: do not divide them.",
            STEP,
            (lambda t: t / (2 * t.shape[-1]), lambda t: t / math.sqrt(2 * t.shape[-1])),
        ),
    },
    "speeds": {
        "one-speed-of-another-pair": (
            "All your pairs turn at the same speed: 2r is missing in the exponent -2r / d.",
            STEP,
            _of(lambda i, d: -2 / d + 0 * i, lambda i, d: -1 / d + 0 * i),
        ),
        "slowest-first": (
            "Your speeds are in the opposite order: pair 0 is the fastest, with speed 1.",
            STEP,
            (lambda i, d, x: 10000.0 ** (-2 * i.flip(0) / d),),
        ),
        "power-before-the-rest": (
            "In your speeds `**` comes first: `10000 ** -2 * r / d` is `(10000 ** -2) * r / d`. The "
            "exponent needs brackets.",
            STEP,
            (
                lambda i, d, x: 10000.0**-2 * i / d,
                lambda i, d, x: 10000.0 ** (-2 * i) / d,
                lambda i, d, x: 10000.0**-1 * 2 * i / d,
            ),
        ),
        "no-power": (
            "Your speeds are not powers of 10000: pair r has 10000 ** (-2r / d).",
            STEP,
            (
                lambda i, d, x: i,
                lambda i, d, x: 2 * i / d,
                lambda i, d, x: -2 * i / d,
                lambda i, d, x: 10000 * -2 * i / d,
                lambda i, d, x: 1 / (10000 * 2 * i / d),
            ),
        ),
        "whole-exponent": (
            "Your exponents are rounded to whole numbers: `/` keeps -2r / d as it is, `//` does not.",
            STEP,
            (lambda i, d, x: 10000.0 ** (-2 * i // d),),
        ),
        "other-base": (
            "Your speeds are powers of another number than 10000.",
            STEP,
            tuple(lambda i, d, x, b=b: b ** (-2 * i / d) for b in (1000.0, 100000.0, 10.0, math.e)),
        ),
        "down-to-1/10000": (
            "Your exponents run down to -1 for the last pair: they are -2r / d, which stays above -1.",
            STEP,
            (lambda i, d, x: 10000.0 ** -torch.linspace(0, 1, d // 2),),
        ),
    },
    "at": {
        "no-positions": (
            "Your function turns all tokens by the same angle: it uses no position, or only one.",
            STEP,
            (lambda x, p: torch.ones(len(p)), lambda x, p: p[:1]),
        ),
        "one-position-further": (
            "Your positions are one larger or one smaller than those given.",
            STEP,
            (lambda x, p: p + 1, lambda x, p: p - 1),
        ),
        "positions-from-the-first": (
            "Your positions are counted from the first token's: use them as they are.",
            STEP,
            (lambda x, p: p - p[0],),
        ),
    },
}
EXERCISE = Exercise(
    answer=rotate_pairs,
    chapter="09_scores_and_positions",
    section=STEP,
    points=2,
    problems=_problems,
    same_as=(apply_rotary,),
    explains=_explain,
    mistakes={
        **deviations(_build, KNOBS),
        **deviations(_build, RARE, pairs=False),
        "speed-per-column": Mistake(
            "The two numbers of your pairs turn at different speeds: a pair has one angle.",
            STEP,
            (
                _columns("pairs", lambda p, theta, d: p * 10000.0 ** (-torch.arange(d) / d)),
                _columns("pairs", lambda p, theta, d: p * 10000.0 ** (-2 * torch.arange(d) / d)),
                _columns("pairs", lambda p, theta, d: (p * theta).repeat(1, 2)),
                _columns("halves", lambda p, theta, d: (p * theta).repeat_interleave(2, -1)),
            ),
        ),
        "added-not-turned": Mistake(
            "Your function adds sines and cosines to x, as the sinusoidal positions do; here, turn pairs of "
            "x instead.",
            "2 Sinusoidal positions, added to the input",
            (lambda x, p: x + _sinusoid(x, p),),
        ),
        "multiplied-not-turned": Mistake(
            "Your function multiplies x by a table of sines and cosines, number by number; turning needs "
            "both numbers of a pair.",
            STEP,
            (lambda x, p: x * _sinusoid(x, p),),
        ),
        "two-axes": Mistake(
            "Your function works only for x of two axes, (n, d), and uses 0, 1, 2, ... as the positions.",
            STEP,
            (_two_axes,),
        ),
        "negative-power-of-whole-numbers": Mistake(
            "A whole number cannot be raised to a negative power here: one of the two must be a float, such "
            "as 10000.0.",
            STEP,
            (lambda x, p: torch.tensor(10000) ** -2, lambda x, p: np.array([10000]) ** -2),
        ),
    },
)
