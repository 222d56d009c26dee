"""Chapter 09: a relative bias that confuses right and left."""

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake, deviations
from mha_course.exercises._results import as_array, close, plain, same


def fix_relative_bias(table, n):
    """``(num_heads, 2 * D + 1)`` to the bias ``(num_heads, n, n)``."""
    max_distance = table.shape[1] // 2
    position = torch.arange(n)
    distance = position - position[:, None]  # key minus query
    return table[:, distance.clamp(-max_distance, max_distance) + max_distance]


def _stub(table, n):
    """(num_heads, 2 * D + 1) to the bias (num_heads, n, n)."""
    max_distance = table.shape[1] // 2
    position = torch.arange(n)
    distance = position[:, None] - position
    return table[:, distance.clamp(-max_distance, max_distance) + max_distance]


def _problems(rng):
    yield torch.tensor([[1.0, 2.0, 4.0], [-3.0, 0.5, 6.0]]), 2
    yield torch.tensor([[5.0, 1.0, 3.0, -2.0, 4.0]]), 4
    max_distance, num_heads, n = sorted(rng.primes(3))
    yield rng.normal(num_heads, 2 * max_distance + 1), n
    n, num_heads, max_distance = sorted(rng.primes(3))
    yield rng.normal(num_heads, 2 * max_distance + 1), n
    yield rng.normal(2, 7), 11
    yield rng.normal(5, 3), 7  # an index that is too small or too large is out of range here, on every draw


def _right(n):
    return torch.arange(n) - torch.arange(n)[:, None]


def _build(
    middle=lambda table, n: table.shape[1] // 2,
    distance=_right,
    index=lambda d, D: d.clamp(-D, D) + D,
    read=lambda table, index: table[:, index],
    turn=lambda bias: bias,
):
    def answer(table, n):
        return turn(read(table, index(distance(n), middle(table, n))))

    return answer


def _zero(where):
    """A bias of 0 at some distances."""

    def answer(table, n):
        D, d = table.shape[1] // 2, _right(n)
        return table[:, d.clamp(-D, D) + D] * where(d, D)

    return answer


def _pairs(knobs, one):
    """Two mistakes at once, of which this is one."""
    return {name: mistake for name, mistake in deviations(_build, knobs).items() if one in mistake.of}


def _explain(problems, results):
    """The column that a distance gets, if it is not the right one."""
    if all(same(plain(_stub(*p)), result) for p, result in zip(problems, results, strict=True)):
        return None
    for (table, n), result in zip(problems, results, strict=True):
        got, D = as_array(result), table.shape[1] // 2
        if got is None or got.shape != (len(table), n, n):
            return None
        for distance in sorted(range(1 - n, n), key=abs):
            diagonal = np.diagonal(got, distance, 1, 2)
            if not close(diagonal[:, :1], diagonal):
                says = f"D = {D}, n = {n}: pairs at distance {distance} get different numbers in one head."
                return "not-by-distance", says
            column = max(-D, min(D, distance)) + D
            found = [c for c in range(2 * D + 1) if close(diagonal[:, :1], table[:, c : c + 1].numpy())]
            if len(found) == 1 and found[0] != column:
                says = f"With D = {D} and n = {n}, distance {distance} gets the number of column {found[0]}; "
                return "another-column", f"{says}its own is in column {column}."
    return None


STEP = "3 A learned number for each distance"
BUG = {
    "query-minus-key": (
        "Your distance is still the query's position minus the key's.",
        STEP,
        (lambda n: -_right(n),),
    ),
}
DISTANCES = {
    "sign-lost": (
        "Your bias is the same to the left and to the right: the sign of the distance is lost.",
        STEP,
        (lambda n: _right(n).abs(), lambda n: -_right(n).abs()),
    ),
    "one-side-only": (
        "In your bias all keys on one side of the query get the number of distance 0.",
        STEP,
        (lambda n: _right(n).clamp(max=0), lambda n: _right(n).clamp(min=0)),
    ),
    "no-distance": (
        "Your distance is 0 for all pairs: subtract a column of positions from a row of them.",
        STEP,
        (lambda n: torch.zeros(1, n).long(), lambda n: torch.zeros(n, 1).long(), lambda n: 0 * _right(n)),
    ),
    "one-axis-of-positions": (
        "Your distance has only one axis; it needs one for the queries and one for the keys.",
        STEP,
        (torch.arange, lambda n: torch.zeros(n).long()),
    ),
    "sum-of-positions": (
        "Your function adds the two positions; the distance is their difference.",
        STEP,
        (lambda n: torch.arange(n) + torch.arange(n)[:, None],),
    ),
}
KNOBS = {
    "middle": {
        "one-too-small": (
            "Your D is one too small: the table has 2 D + 1 columns.",
            STEP,
            (lambda table, n: table.shape[1] // 2 - 1,),
        ),
        "middle-from-the-heads": (
            "Your D is computed from the number of heads, the first axis of the table; distances are the "
            "second.",
            STEP,
            (lambda table, n: table.shape[0] // 2, lambda table, n: table.shape[0]),
        ),
        "middle-as-in-step-3": (
            "Your D is 2 for every table; this table has 2 D + 1 columns, so D can be read from it.",
            STEP,
            (lambda table, n: 2,),
        ),
        "middle-from-n": (
            "Your D is computed from n; compute it from the number of columns, 2 D + 1.",
            STEP,
            (lambda table, n: n - 1, lambda table, n: n // 2, lambda table, n: n),
        ),
    },
    "index": {
        "shifted-too-far": (
            "Your function adds 2 D or 2 D + 1 to the distance: distance 0 is in column D.",
            STEP,
            (
                lambda d, D: d.clamp(-D, D) + 2 * D,
                lambda d, D: d.clamp(-D, D) + 2 * D + 1,
                lambda d, D: d.clamp(-2 * D, 2 * D) + 2 * D,
                lambda d, D: d.clamp(-2 * D - 1, 2 * D + 1) + 2 * D + 1,
            ),
        ),
        "not-shifted": (
            "D is not added to your distances: distance 0 is in column D, not in column 0.",
            STEP,
            (
                lambda d, D: d.clamp(-D, D),
                lambda d, D: d.clamp(0, D),
                lambda d, D: d.clamp(0, 2 * D),
                lambda d, D: d.clamp(max=D),
            ),
        ),
        "one-column-off": (
            "Your index is one column off: distance 0 is in column D.",
            STEP,
            (
                lambda d, D: d.clamp(-D, D) + D - 1,
                lambda d, D: d.clamp(-D, D) + D + 1,
                lambda d, D: d.clamp(-D - 1, D + 1) + D + 1,
                lambda d, D: (d.clamp(-D, D) + D - 1).clamp(min=0),
                lambda d, D: (d.clamp(-D, D) + D + 1).clamp(max=2 * D),
            ),
        ),
        "counted-from-the-end": (
            "Your function reads distance 0 at index -D: negative indices count from the end, where -1 is "
            "the last, so that is column D + 1, not D.",
            STEP,
            (lambda d, D: d.clamp(-D, D) - D, lambda d, D: -d.clamp(-D, D) - D),
        ),
        "clipped-after-the-shift": (
            "Your function clips to -D and D after it has added D: clip the distance first.",
            STEP,
            (lambda d, D: (d + D).clamp(-D, D),),
        ),
        "not-clipped": (
            "Your distances are not clipped on both sides to -D and D.",
            STEP,
            (lambda d, D: d + D, lambda d, D: d.clamp(max=D) + D, lambda d, D: d.clamp(min=-D) + D),
        ),
        "clipped-too-soon": (
            "Your distances are clipped to less than D on some side.",
            STEP,
            (
                lambda d, D: d.clamp(-D, D - 1) + D,
                lambda d, D: d.clamp(-D + 1, D) + D,
                lambda d, D: d.clamp(-D + 1, D - 1) + D,
                lambda d, D: d.clamp(-1, 1) + D,
            ),
        ),
        "wrapped-around": (
            "Your far distances start again at the other end of the table: clip them instead.",
            STEP,
            (lambda d, D: (d + D) % (2 * D + 1),),
        ),
    },
    "read": {
        "heads-turned-around": (
            "Your function reads the heads in the reverse order; the columns are the distances.",
            STEP,
            (lambda table, index: table.flip(0)[:, index],),
        ),
        "sign-of-the-bias": (
            "Your function changes the sign of the bias: only the distance has the wrong sign.",
            STEP,
            (lambda table, index: -table[:, index],),
        ),
        "rows-indexed": (
            "Your index picks rows of the table: they are the heads, and the columns are the distances.",
            STEP,
            (lambda table, index: table[index],),
        ),
        "one-head": (
            "Your function reads only one head of the table.",
            STEP,
            (lambda table, index: table[0, index], lambda table, index: table[0][index][None]),
        ),
    },
    "turn": {
        "heads-last": (
            "Your heads are the last axis: `.T` reverses all axes, `.mT` swaps only the last two.",
            STEP,
            (lambda bias: bias.permute(*range(bias.ndim - 1, -1, -1)), lambda bias: bias.movedim(0, -1)),
        ),
        "heads-in-the-middle": (
            "Your heads are the middle axis: `.transpose(0, 1)` swaps the heads with the queries.",
            STEP,
            (lambda bias: bias.transpose(0, 1), lambda bias: bias.movedim(0, 1)),
        ),
        "half-of-it-0": (
            "Your bias is 0 on one side of the diagonal, but all keys have a number.",
            STEP,
            (torch.tril, torch.triu),
        ),
    },
}
LOST = {"distance": {"sign-lost": DISTANCES["sign-lost"]}, "index": KNOBS["index"]}
EXERCISE = Exercise(
    answer=fix_relative_bias,
    chapter="09_scores_and_positions",
    section=STEP,
    points=1,
    problems=_problems,
    explains=_explain,
    bug=_stub,
    mistakes={
        **deviations(_build, {"distance": DISTANCES, **KNOBS}, pairs=False),
        **_pairs({"distance": BUG, **KNOBS}, "query-minus-key"),
        **_pairs(LOST, "sign-lost"),
        "far-is-zero": Mistake(
            "Your bias is 0 for keys that are further away than D: they should get the number of distance D.",
            STEP,
            (_zero(lambda d, D: d.abs() <= D),),
        ),
        "far-is-zero-and-query-minus-key": Mistake(
            f"Your bias is 0 for keys that are further away than D. And: {BUG['query-minus-key'][0]}",
            STEP,
            (lambda table, n: _zero(lambda d, D: d.abs() <= D)(table, n).mT,),
            ("far-is-zero", "query-minus-key"),
        ),
        "negative-step": Mistake(
            "A tensor cannot be read backwards with `[::-1]`: use `.flip(1)` to reverse the columns.",
            STEP,
            (lambda table, n: table[:, ::-1],),
        ),
    },
)
