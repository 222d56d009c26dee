"""Chapter 03: heads with the right shape and the wrong columns."""

from dataclasses import replace

import mha_lab
from mha_course.exercises import Exercise, Mistake
from mha_course.exercises.split_heads import BARE, MISTAKES, ORDERS, VIEW, problems


def fix_split(x, num_heads):
    """``(batch, n, d_model)`` to ``(batch, num_heads, n, d_k)``."""
    batch, n, d_model = x.shape
    return x.reshape(batch, n, num_heads, d_model // num_heads).permute(0, 2, 1, 3)


def _stub(x, num_heads):
    batch, n, d_model = x.shape
    d_k = d_model // num_heads
    return x.reshape(batch, n, d_k, num_heads).permute(0, 3, 1, 2)


# The bug and its order of axes have names of their own here.
OTHERS = {name: mistake for name, mistake in MISTAKES.items() if name != "heads-interleaved"}
OTHERS["wrong-axes-swapped"] = replace(
    swapped := OTHERS["wrong-axes-swapped"],
    variants=tuple(
        variant
        for variant, order in zip(swapped.variants, ORDERS["wrong-axes-swapped"][2], strict=True)
        if order != (0, 3, 1, 2)
    ),
)
EXERCISE = Exercise(
    answer=fix_split,
    chapter="03_splitting_heads",
    section=VIEW,
    points=2,
    problems=problems,
    same_as=(mha_lab.split_heads,),
    bug=_stub,
    mistakes={
        "permute-as-it-was": Mistake(
            "Your columns are cut correctly, but the axes are then put in the order 0, 3, 1, 2, as before: "
            "the heads are no longer axis 3.",
            BARE,
            (lambda x, h: x.unflatten(-1, (h, -1)).permute(0, 3, 1, 2),),
        ),
        "bug-still-there": Mistake(
            "Your columns are given to the heads in turn, as before: head h gets columns h, h + num_heads "
            "and so on. It should get d_k neighbouring columns.",
            VIEW,
            (_stub,),
        ),
        **OTHERS,
    },
)
