"""Chapter 06: three projections in one matrix."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def pack_qkv(w_q, w_k, w_v):
    """Three ``(d_model, d)`` to one ``(d_model, 3 * d)``: ``x @ w`` is queries, keys, values side by side."""
    return torch.cat([w_q, w_k, w_v], dim=1)


def _problems(draw):
    yield torch.ones(2, 2), 2 * torch.ones(2, 2), 3 * torch.ones(2, 2)
    for dtype in (torch.float32, torch.float64, torch.float64):
        d_model, d = draw.primes(2)
        yield tuple(draw.normal(d_model, d, dtype=dtype) for _ in range(3))


STEP = "1 One matrix for three projections"
EXERCISE = Exercise(
    answer=pack_qkv,
    chapter="06_five_ways",
    section=STEP,
    points=1,
    problems=_problems,
    mistakes={
        "stacked-on-rows": Mistake(
            "You put the matrices on top of each other: x @ w would need an x three times as wide.",
            STEP,
            (lambda *w: torch.cat(w, dim=0), lambda *w: torch.cat([m.mT for m in w], dim=1).mT),
        ),
        "transposed": Mistake(
            "You return the transpose, as torch.nn.Linear stores it; here x is multiplied from the left.",
            STEP,
            (lambda *w: torch.cat(w, dim=1).mT,),
        ),
        "new-axis": Mistake(
            "You return three matrices in one tensor of three axes: one product needs one matrix.",
            STEP,
            (lambda *w: torch.stack(w), lambda *w: torch.stack(w, dim=1), lambda *w: torch.stack(w, dim=-1)),
        ),
        "columns-interleaved": Mistake(
            "You deal the columns out in turn, q, k, v, q, k, v; the blocks belong side by side.",
            STEP,
            (lambda *w: torch.stack(w, dim=-1).flatten(1),),
        ),
        "wrong-order": Mistake(
            "All blocks are there, in another order than queries, keys, values.",
            STEP,
            tuple(
                lambda *w, order=order: torch.cat([w[i] for i in order], dim=1)
                for order in ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
            ),
        ),
    },
)
