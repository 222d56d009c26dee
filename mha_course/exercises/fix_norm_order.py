"""Chapter 15: a norm of the queries that comes after the rotation in place of before it."""

import torch

from mha_course.exercises import Exercise, Mistake, deviations

STEP = "5 Break it: a comparison that sees nothing"


def _turned(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _normed(x):
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()


def fix_norm_order(query, gain, cos, sin):
    """``(batch, heads, n, d_k)``, ``(d_k,)`` and ``(n, d_k)`` twice, to ``(batch, heads, n, d_k)``."""
    rms = (query.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    query = gain * query / rms
    half_1, half_2 = query.chunk(2, dim=-1)
    return query * cos + torch.cat((-half_2, half_1), dim=-1) * sin


def _stub(query, gain, cos, sin):
    half_1, half_2 = query.chunk(2, dim=-1)
    query = query * cos + torch.cat((-half_2, half_1), dim=-1) * sin
    rms = (query.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()
    return gain * query / rms


def _problems(rng):
    angle = torch.full((1, 2), 0.6), torch.full((1, 2), 0.8)
    yield torch.tensor([[[[1.0, 7.0]]]]), torch.tensor([2.0, 3.0]), *angle
    for _ in range(3):
        batch, heads, n, pairs = rng.primes(4)
        angles = 2 * rng.normal(n, pairs).repeat(1, 2)
        x = 1 + 2 * rng.normal(batch, heads, n, 2 * pairs)
        yield x, 1 + rng.normal(2 * pairs), angles.cos(), angles.sin()


def _build(
    gained=lambda normed, gain: gain * normed,
    norm=_normed,
    turn=_turned,
):
    return lambda query, gain, cos, sin: turn(gained(norm(query), gain), cos, sin)


KNOBS = {
    "gained": {
        "gain-left-out": ("Your function leaves the gain out.", STEP, (lambda normed, gain: normed,)),
        "gain-squared": (
            "Your function multiplies by the gain twice before the rotation.",
            STEP,
            (lambda normed, gain: gain * gain * normed,),
        ),
    },
    "norm": {
        "not-normalised": (
            "Your function does not divide by the root mean square.",
            STEP,
            (lambda x: x,),
        ),
        "length-in-place-of-rms": (
            "Your function divides by the length of each vector. Divide by the root of the mean of its "
            "squares.",
            STEP,
            (lambda x: x / x.norm(dim=-1, keepdim=True),),
        ),
        "mean-subtracted": (
            "Your function subtracts the mean, as a LayerNorm does. Here the mean stays.",
            STEP,
            (lambda x: _normed(x - x.mean(dim=-1, keepdim=True)),),
        ),
    },
    "turn": {
        "not-turned": ("Your function does not turn the queries.", STEP, (lambda x, cos, sin: x,)),
        "turned-twice": (
            "Your function turns the queries twice.",
            STEP,
            (lambda x, cos, sin: _turned(_turned(x, cos, sin), cos, sin),),
        ),
        "turned-backwards": (
            "In your function the angles have the other sign.",
            STEP,
            (lambda x, cos, sin: _turned(x, cos, -sin),),
        ),
        "neighbours-are-pairs": (
            "In your function neighbouring columns are a pair. Here a pair is column i and column "
            "i + d_k / 2.",
            STEP,
            (
                lambda x, cos, sin: (
                    x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2) * sin
                ),
            ),
        ),
    },
}


def _old_halves(query, gain, cos, sin):
    return gain * _normed(query) * cos + _turned(query, torch.zeros_like(cos), sin)


EXERCISE = Exercise(
    answer=fix_norm_order,
    chapter="15_read_a_model",
    section=STEP,
    points=1,
    problems=_problems,
    bug=_stub,
    mistakes={
        **deviations(_build, KNOBS, pairs=False),
        "gain-after-the-rotation": Mistake(
            "Your function still multiplies by the gain after the rotation. The gain belongs to columns of "
            "the projection, before they turn.",
            STEP,
            (_stub,),
        ),
        "gain-before-and-after": Mistake(
            "Your function multiplies by the gain before the rotation, and once more after it.",
            STEP,
            (
                lambda query, gain, cos, sin: gain * fix_norm_order(query, gain, cos, sin),
                lambda query, gain, cos, sin: gain * _normed(fix_norm_order(query, gain, cos, sin)),
            ),
        ),
        "halves-cut-before-the-norm": Mistake(
            "In your function the halves are those of the query before the norm. Cut them after it.",
            STEP,
            (_old_halves,),
        ),
        "norm-after-the-gain": Mistake(
            "In your function the last root mean square is that of numbers that have the gain already. "
            "Divide by that of the query, before the gain.",
            STEP,
            (
                lambda query, gain, cos, sin: _turned(_normed(gain * query), cos, sin),
                lambda query, gain, cos, sin: _normed(_turned(gain * query, cos, sin)),
                lambda query, gain, cos, sin: _normed(fix_norm_order(query, gain, cos, sin)),
            ),
        ),
    },
)
