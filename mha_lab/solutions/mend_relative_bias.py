"""Chapter 09: a relative bias that takes right for left."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def mend_relative_bias(table, n):
    """``(num_heads, 2 * D + 1)`` to the bias ``(num_heads, n, n)``."""
    max_distance = table.shape[1] // 2
    position = torch.arange(n)
    distance = position - position[:, None]  # key minus query
    return table[:, distance.clamp(-max_distance, max_distance) + max_distance]


def _problems(draw):
    yield torch.tensor([[1.0, 2.0, 3.0]]), 2
    yield torch.tensor([[1.0, 2.0, 3.0]]), 3
    for dtype in (torch.float32, torch.float64, torch.float64):
        max_distance, num_heads, n = draw.primes(3)
        yield draw.normal(num_heads, 2 * max_distance + 1, dtype=dtype), n
    yield draw.normal(2, 7, dtype=torch.float32), 11


def _sizes(table, n):
    return table.shape[1] // 2, torch.arange(n) - torch.arange(n)[:, None]


def _indexed(index):
    """The table, read at an index that is made from ``D`` and the distances."""

    def variant(table, n):
        D, distance = _sizes(table, n)
        return table[:, index(D, distance)]

    return variant


def _far_is_zero(table, n):
    D, distance = _sizes(table, n)
    return table[:, distance.clamp(-D, D) + D] * (distance.abs() <= D)


STEP = "3 A learned number for each distance"
EXERCISE = Exercise(
    answer=mend_relative_bias,
    chapter="09_scores_and_positions",
    section=STEP,
    points=2,
    problems=_problems,
    bug=_indexed(lambda D, distance: (-distance).clamp(-D, D) + D),
    mistakes={
        "sign-lost": Mistake(
            "Your bias is the same to the left and to the right: the sign of the distance is lost.",
            STEP,
            (
                _indexed(lambda D, distance: distance.abs().clamp(-D, D) + D),
                _indexed(lambda D, distance: D - distance.abs().clamp(-D, D)),
                _indexed(lambda D, distance: distance.abs().clamp(0, D)),
            ),
        ),
        "not-shifted": Mistake(
            "Your index is the distance itself: distance 0 stands in column D, and not in column 0.",
            STEP,
            (
                _indexed(lambda D, distance: distance.clamp(-D, D)),
                _indexed(lambda D, distance: distance.clamp(0, D)),
                _indexed(lambda D, distance: distance.clamp(0, 2 * D)),
                _indexed(lambda D, distance: (-distance).clamp(-D, D)),
            ),
        ),
        "off-by-one": Mistake(
            "Your index is one column off: distance 0 stands in column D.",
            STEP,
            (
                _indexed(lambda D, distance: distance.clamp(-D, D) + D - 1),
                _indexed(lambda D, distance: (distance.clamp(-D, D) + D - 1).clamp(min=0)),
                _indexed(lambda D, distance: (distance.clamp(-D, D) + D + 1).clamp(max=2 * D)),
            ),
        ),
        "clipped-after-shift": Mistake(
            "You clip to -D and D after D was added: clip the distance first, or clip to 0 and 2D.",
            STEP,
            (_indexed(lambda D, distance: (distance + D).clamp(-D, D)),),
        ),
        "far-is-zero": Mistake(
            "Your bias is 0 beyond the distance D: far keys share the number of D.",
            STEP,
            (_far_is_zero,),
        ),
        "causal": Mistake(
            "Your bias treats all keys after the query alike: they have distances of their own.",
            STEP,
            (
                _indexed(lambda D, distance: distance.clamp(-D, 0) + D),
                _indexed(lambda D, distance: distance.clamp(0, D) + D),
                lambda table, n: table[
                    :, _sizes(table, n)[1].clamp(-(table.shape[1] // 2), 0) + table.shape[1] // 2
                ].tril(),
            ),
        ),
    },
)
