"""Chapter 05: what each head writes."""

import torch

from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions import _parts as parts
from mha_lab.solutions.output_projection import _problems


def head_contributions(heads, w_o):
    """``(batch, heads, n, d_v)`` and ``(heads * d_v, d_model)`` to ``(batch, heads, n, d_model)``."""
    return heads @ w_o.unflatten(0, (heads.shape[1], heads.shape[3]))


STEP = "3 The projection is a sum over heads"
EXERCISE = Exercise(
    answer=head_contributions,
    chapter="05_output_projection",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={
        "projection-per-wrong-slice": Mistake(
            "Your heads meet the wrong rows of w_o: head h owns the rows h * d_v to (h + 1) * d_v.",
            "6 Break it: the wrong slices of w_o",
            (
                lambda h, w: h @ w.unflatten(0, (h.shape[3], h.shape[1])).transpose(0, 1),
                lambda h, w: h @ w.unflatten(0, (h.shape[1], -1)).flip(0),
                lambda h, w: h @ w[: h.shape[3]],
            ),
        ),
        "summed-over-heads": Mistake(
            "Your function returns the sum over the heads; one contribution per head is asked for.",
            STEP,
            (lambda h, w: parts.merge(h) @ w,),
        ),
        "output-shared-equally": Mistake(
            "Your function gives each head an equal share of the whole output.",
            STEP,
            (lambda h, w: (parts.merge(h) @ w / h.shape[1])[:, None].expand(-1, h.shape[1], -1, -1),),
        ),
        "no-output-projection": Mistake(
            "Your function returns the heads as they came: w_o is not used.",
            "2 What is lost without the projection",
            (lambda h, w: h.clone(),),
        ),
        "not-swapped-back": Mistake(
            "Your contributions have the axes (batch, n, num_heads, d_model): swap tokens and heads.",
            STEP,
            (lambda h, w: (h @ w.unflatten(0, (h.shape[1], -1))).transpose(1, 2),),
        ),
        "heads-not-alone": Mistake(
            "Your slices of w_o have the right size, and heads and slices are paired all with all.",
            STEP,
            (
                lambda h, w: torch.einsum("bhnk,gkm->bhgnm", h, w.unflatten(0, (h.shape[1], -1))).sum(2),
                lambda h, w: torch.einsum("bhnk,gkm->bhgnm", h, w.unflatten(0, (h.shape[1], -1))).sum(1),
            ),
        ),
    },
)
