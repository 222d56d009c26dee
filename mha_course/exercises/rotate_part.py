"""Chapter 15: rotary positions in the first columns of each head, as GPT-NeoX has them."""

import torch

from mha_course.exercises import Exercise, Mistake, deviations

STEP = "3 GPT-NeoX: one matrix, and a part that turns"


def rotate_part(x, cos, sin):
    """``(batch, heads, n, d)`` and ``(n, width)`` twice, to ``(batch, heads, n, d)``."""
    x, rest = x.tensor_split([cos.shape[-1]], dim=-1)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((x * cos + torch.cat((-second, first), dim=-1) * sin, rest), dim=-1)


def _problems(rng):
    quarter = torch.zeros(1, 4), torch.ones(1, 4)
    yield torch.tensor([[[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]]]), *quarter
    for more in (3, 0, 8, 1):
        batch, heads, n, pairs = rng.primes(4)
        angles = 2 * rng.normal(n, pairs).repeat(1, 2)
        yield rng.normal(batch, heads, n, 2 * pairs + more), angles.cos(), angles.sin()


def _half(x):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _neighbours(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def _twice(angles):
    """Each angle of the first half, twice side by side."""
    return angles.chunk(2, dim=-1)[0].repeat_interleave(2, dim=-1)


def _build(
    partner=lambda turned, x, width: _half(turned),
    turn=lambda x, partner, cos, sin: x * cos + partner * sin,
    join=lambda turned, rest: torch.cat((turned, rest), dim=-1),
):
    def answer(x, cos, sin):
        width = cos.shape[-1]
        turned, rest = x.tensor_split([width], dim=-1)
        return join(turn(turned, partner(turned, x, width), cos, sin), rest)

    return answer


KNOBS = {
    "partner": {
        "halves-of-the-whole-head": (
            "Your function halves the whole head. Halve only the columns that turn.",
            STEP,
            (lambda turned, x, width: _half(x)[..., :width],),
        ),
        "turned-backwards": (
            "In your function the angles have the other sign. The second half gets the minus when it moves "
            "to the front.",
            STEP,
            (lambda turned, x, width: -_half(turned),),
        ),
        "no-minus": (
            "In your function the halves swap places without a minus.",
            STEP,
            (lambda turned, x, width: turned.roll(width // 2, dims=-1),),
        ),
        "halves-not-swapped": (
            "In your function the halves stay in their places: each number meets itself and not its partner.",
            STEP,
            (
                lambda turned, x, width: turned,
                lambda turned, x, width: torch.cat(
                    [turned[..., : width // 2], -turned[..., width // 2 :]], -1
                ),
                lambda turned, x, width: torch.cat(
                    [-turned[..., : width // 2], turned[..., width // 2 :]], -1
                ),
            ),
        ),
    },
    "turn": {
        "cosine-left-out": (
            "Your function leaves the cosine out.",
            STEP,
            (lambda x, partner, cos, sin: x + partner * sin,),
        ),
        "sine-left-out": (
            "Your function leaves the sine out: it only multiplies by the cosine.",
            STEP,
            (lambda x, partner, cos, sin: x * cos,),
        ),
        "cos-and-sin-swapped": (
            "Your function has sine and cosine the other way round.",
            STEP,
            (lambda x, partner, cos, sin: x * sin + partner * cos,),
        ),
        "not-turned": (
            "Your function returns the numbers as they came.",
            STEP,
            (lambda x, partner, cos, sin: x,),
        ),
    },
    "join": {
        "rest-dropped": (
            "Your function returns only the columns that turn. The others pass unchanged.",
            STEP,
            (lambda turned, rest: turned,),
        ),
        "rest-is-zero": (
            "In your result the columns that do not turn are 0. They pass unchanged.",
            STEP,
            (lambda turned, rest: torch.cat((turned, torch.zeros_like(rest)), -1),),
        ),
        "rest-comes-first": (
            "In your result the columns that do not turn come first. They keep their places, after the "
            "others.",
            STEP,
            (lambda turned, rest: torch.cat((rest, turned), -1),),
        ),
    },
}


def _last_columns(x, cos, sin):
    rest, turned = x.tensor_split([x.shape[-1] - cos.shape[-1]], dim=-1)
    return torch.cat((rest, rotate_part(turned, cos, sin)), dim=-1)


EXERCISE = Exercise(
    answer=rotate_part,
    chapter="15_read_a_model",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={
        **deviations(_build, KNOBS, pairs=False),
        "neighbours-are-pairs": Mistake(
            "In your function neighbouring columns are a pair. Here a pair is column i and column "
            "i + width / 2.",
            STEP,
            (
                _build(lambda turned, x, width: _neighbours(turned)),
                lambda x, cos, sin: _build(lambda turned, x, width: _neighbours(turned))(
                    x, _twice(cos), _twice(sin)
                ),
            ),
        ),
        "last-columns-turned": Mistake(
            "Your function turns the last columns of each head. The first ones turn.",
            STEP,
            (_last_columns,),
        ),
    },
)
