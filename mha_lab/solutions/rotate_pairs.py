"""Chapter 09: rotary embedding, neighbouring numbers as pairs."""

import torch

import mha_lab.positions  # noqa: F401 (so that `same_as` finds it)
from mha_lab.check.exercise import Exercise, Mistake


def rotate_pairs(x, positions):
    """``(..., n, d)`` and ``(n,)`` to ``(..., n, d)``, each pair of neighbours turned."""
    d = x.shape[-1]
    theta = 10000 ** (-torch.arange(0, d, 2) / d)
    angle = positions[:, None] * theta  # (n, d / 2)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1).flatten(-2)


def _problems(draw):
    yield torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([1, 2])
    yield torch.tensor([[1.0, 0.0, 0.0, 1.0]]), torch.tensor([3])
    for lead in ((), (2,), (3, 2)):
        n, pairs = draw.primes(2, at_least=3)
        positions = torch.tensor([1 + draw.below(40) for _ in range(n)])
        yield draw.normal(*lead, n, 2 * pairs, dtype=torch.float32), positions


def _angles(x, positions):
    d = x.shape[-1]
    return positions[:, None] * 10000 ** (-torch.arange(0, d, 2) / d)


def _neighbours(x):
    return x[..., 0::2], x[..., 1::2]


def _together(a, b):
    return torch.stack([a, b], dim=-1).flatten(-2)


def _turn(pair, t):
    a, b = pair
    return a * t.cos() - b * t.sin(), a * t.sin() + b * t.cos()


def _halves(x):
    return x.chunk(2, dim=-1)


def _of(angles):
    """All else right, with other angles."""
    return lambda x, p: _together(*_turn(_neighbours(x), angles(x, p)))


def _combined(combine):
    """All else right, with another combination of ``a``, ``b``, cosine and sine."""

    def variant(x, positions):
        t = _angles(x, positions)
        return _together(*combine(*_neighbours(x), t.cos(), t.sin()))

    return variant


def _powers(exponent):
    """Frequencies from an exponent for each pair, ``i`` of ``d / 2``."""
    return _of(lambda x, p: p[:, None] * 10000 ** exponent(torch.arange(x.shape[-1] // 2), x.shape[-1]))


def _per_column(x, positions):
    d = x.shape[-1]
    t = positions[:, None] * 10000 ** (-torch.arange(d) / d)
    swapped = _together(-x[..., 1::2], x[..., 0::2])
    return x * t.cos() + swapped * t.sin()


def _sinusoid(x, positions):
    t = _angles(x, positions)
    return _together(t.sin(), t.cos())


STEP = "5 Rotary: turn queries and keys"
EXERCISE = Exercise(
    answer=rotate_pairs,
    chapter="09_scores_and_positions",
    section=STEP,
    points=2,
    problems=_problems,
    same_as=("positions.apply_rotary",),
    mistakes={
        "other-layout": Mistake(
            "Your pairs are columns i and i + d / 2; here they are neighbours, 2i and 2i + 1.",
            "Two layouts",
            (lambda x, p: torch.cat(_turn(_halves(x), _angles(x, p)), dim=-1),),
        ),
        "layouts-mixed": Mistake(
            "Your numbers are turned rightly and put back elsewhere: read and write the pairs in one layout.",
            "Two layouts",
            (
                lambda x, p: torch.cat(_turn(_neighbours(x), _angles(x, p)), dim=-1),
                lambda x, p: _together(*_turn(_halves(x), _angles(x, p))),
            ),
        ),
        "turned-backwards": Mistake(
            "Your pairs turn the other way round: the minus belongs to the first number of the pair.",
            STEP,
            (_of(lambda x, p: -_angles(x, p)),),
        ),
        "sign-lost": Mistake(
            "Your pairs change their length: one of the two sines has a minus, the other has none.",
            STEP,
            (
                _combined(lambda a, b, cos, sin: (a * cos + b * sin, a * sin + b * cos)),
                _combined(lambda a, b, cos, sin: (a * cos - b * sin, b * cos - a * sin)),
                _combined(lambda a, b, cos, sin: (a * cos - b * sin, a * sin - b * cos)),
            ),
        ),
        "pair-not-mixed": Mistake(
            "Your numbers are multiplied one by one: turning needs both numbers of the pair in each result.",
            STEP,
            (
                _combined(lambda a, b, cos, sin: (a * cos, b * sin)),
                _combined(lambda a, b, cos, sin: (a * cos, b * cos)),
                _combined(lambda a, b, cos, sin: (a * sin, b * cos)),
            ),
        ),
        "overwritten": Mistake(
            "Your second number is made from the first one after it was turned: keep the old one until then.",
            STEP,
            (
                _combined(
                    lambda a, b, cos, sin: (a * cos - b * sin, (a * cos - b * sin) * sin + b * cos),
                ),
            ),
        ),
        "one-speed": Mistake(
            "All your pairs turn at the same speed: pair i has its own, 10000 ** (-2i / d).",
            STEP,
            (
                _of(lambda x, p: p[:, None] * torch.ones(x.shape[-1] // 2)),
                _of(lambda x, p: p[:, None] * torch.full((x.shape[-1] // 2,), 1 / 10000)),
            ),
        ),
        "wrong-speed": Mistake(
            "Your pairs turn, at other speeds: pair i turns by 10000 ** (-2i / d) for each position.",
            STEP,
            (
                _powers(lambda i, d: -i / d),
                _powers(lambda i, d: -4 * i / d),
                _powers(lambda i, d: -2 * (i + 1) / d),
                _powers(lambda i, d: 2.0 * i / d),
                _of(lambda x, p: p[:, None] * torch.arange(x.shape[-1] // 2)),
            ),
        ),
        "speed-per-column": Mistake(
            "The two numbers of your pairs turn at different speeds: a pair has one angle.",
            STEP,
            (_per_column,),
        ),
        "positions-ignored": Mistake(
            "Your tokens stand at 0, 1, 2, ...: their positions are given, and may start anywhere.",
            STEP,
            (_of(lambda x, p: _angles(x, torch.arange(len(p)))),),
        ),
        "added-not-turned": Mistake(
            "You add sines and cosines to x, as the sinusoidal positions do; here pairs of x are turned.",
            "2 Sinusoidal positions, added to the input",
            (lambda x, p: x + _sinusoid(x, p), lambda x, p: x * _sinusoid(x, p)),
        ),
    },
)
