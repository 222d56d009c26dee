"""Chapter 04: softmax over the visible keys."""

import math

import torch

from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions import _parts as parts


def masked_softmax(scores, mask):
    """Weights; hidden keys exactly 0, rows with nothing visible all 0."""
    empty = ~mask.any(dim=-1, keepdim=True)
    scores = scores.masked_fill(~mask & ~empty, -torch.inf)
    return torch.softmax(scores, dim=-1).masked_fill(empty, 0.0)


def _problems(draw):
    yield (
        torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 0.0]]),
        torch.tensor([[True, True, False], [False, True, True]]),
    )
    yield torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([[True, False], [False, False]])
    for dtype in (torch.float64, torch.float32, torch.float64):
        batch, heads, n_q, n_k = draw.primes(4)
        mask = draw.mask(batch, 1, n_q, n_k)
        mask[0, 0, 0], mask[1, 0, 1, :2] = False, True
        yield 3 * draw.normal(batch, heads, n_q, n_k, dtype=dtype), mask
    yield torch.tensor([[1.0, 2.0, 200.0]]), torch.tensor([[True, True, False]])


def _with_gradient(answer, scores, mask):
    """The weights, and whether their gradient is finite where an upstream gradient is 1."""
    scores = scores.requires_grad_()
    weights = answer(scores, mask)
    if not isinstance(weights, torch.Tensor) or not weights.requires_grad:
        return weights.detach() if isinstance(weights, torch.Tensor) else weights
    (gradient,) = torch.autograd.grad(weights.square().sum(), scores)
    return (weights.detach(), gradient) if not gradient.isfinite().all() else weights.detach()


STEP = "5 A query that may see nothing"
EXERCISE = Exercise(
    answer=masked_softmax,
    chapter="04_masking",
    section=STEP,
    points=2,
    problems=_problems,
    same_as=("masked_softmax",),
    call=_with_gradient,
    mistakes={
        "nan-for-empty-row": Mistake(
            "A query that may attend to nothing gets NaN, in its weights or their gradient; 0 is asked for.",
            STEP,
            (
                parts.nan_rows,
                lambda s, m: torch.softmax(
                    s + torch.zeros(m.shape, dtype=s.dtype).masked_fill(~m, -math.inf), -1
                ),
                lambda s, m: torch.softmax(
                    s + torch.zeros(m.shape, dtype=s.dtype).masked_fill(~m, -math.inf), -1
                ).nan_to_num(),
                lambda s, m: torch.softmax(
                    s + torch.zeros(m.shape, dtype=s.dtype).masked_fill(~m, -math.inf), -1
                ).masked_fill(~m, 0.0),
            ),
        ),
        "uniform-for-empty-row": Mistake(
            "A query that may attend to nothing gets the same weight for every key, and zeros are asked for.",
            STEP,
            (parts.uniform_rows, lambda s, m: torch.softmax(torch.where(m, s, torch.finfo(s.dtype).min), -1)),
        ),
        "mask-inverted": Mistake(
            "Your function hides the keys that may be seen: True means may attend.",
            "The inverted mask",
            (
                parts.inverted,
                parts.nan_inverted,
                lambda s, m: parts.uniform_rows(s, ~m),
                lambda s, m: torch.softmax(s.masked_fill(m, -math.inf), -1).nan_to_num(),
            ),
        ),
        "mask-after-softmax": Mistake(
            "Your function hides keys after the softmax, when they have taken their share already.",
            "2 Before the softmax, not after",
            (
                parts.masked_after,
                lambda s, m: torch.softmax(s, -1) * m / (torch.softmax(s, -1) * m).sum(-1, keepdim=True),
                lambda s, m: (
                    torch.softmax(s, -1) * m / (torch.softmax(s, -1) * m).sum(-1, keepdim=True)
                ).nan_to_num(),
            ),
        ),
        "mask-added-as-bool": Mistake(
            "Your function adds the boolean mask to the scores: True counts as 1 and hides nothing.",
            "4 Three conventions",
            (parts.mask_added, lambda s, m: torch.softmax(s + (~m), -1)),
        ),
        "multiplied-scores": Mistake(
            "Your function multiplies the scores by the mask: a score of 0 still gets a weight.",
            "1 Hide the future",
            (lambda s, m: torch.softmax(s * m, -1),),
        ),
        "mask-ignored": Mistake(
            "Your function does not use the mask.",
            "1 Hide the future",
            (
                lambda s, m: torch.softmax(s, -1),
                lambda s, m: torch.exp(s) / torch.exp(s).sum(-1, keepdim=True),
            ),
        ),
        "softmax-over-queries": Mistake(
            "Your columns sum to 1, and not your rows: the softmax runs over the queries.",
            "1 Hide the future",
            (
                lambda s, m: torch.softmax(s.masked_fill(~m, -math.inf), -2),
                lambda s, m: torch.softmax(s.masked_fill(~m, -math.inf), -2).nan_to_num(),
                lambda s, m: torch.softmax(s.masked_fill(~m, -1e9), -2),
            ),
        ),
        "not-normalised": Mistake(
            "Your rows do not sum to 1 over the visible keys.",
            "1 Hide the future",
            (lambda s, m: torch.exp(s) * m, lambda s, m: torch.exp(s.masked_fill(~m, -math.inf))),
        ),
    },
)
