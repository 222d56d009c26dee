"""Chapter 04: a padding mask on the wrong axis."""

import torch

from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions._parts import softmax


def mend_padding(scores, lengths):
    """``(batch, n, n)`` and ``(batch,)`` to weights ``(batch, n, n)`` that hide the padded keys."""
    real = torch.arange(scores.shape[-1]) < lengths[:, None]
    return torch.softmax(scores.masked_fill(~real[:, None, :], -torch.inf), dim=-1)


def _real(scores, lengths):
    return torch.arange(scores.shape[-1]) < lengths[:, None]


def _problems(draw):
    yield torch.zeros(1, 3, 3), torch.tensor([2])
    for dtype in (torch.float32, torch.float64, torch.float64):
        batch, n = draw.primes(2, at_least=3)  # with n = 2, one token off hides nothing
        lengths = torch.tensor([1 + draw.below(n) for _ in range(batch - 1)] + [1])
        yield draw.normal(batch, n, n, dtype=dtype), lengths


def _hide(scores, mask):
    return torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)


STEP = "3 Hide the padding"
EXERCISE = Exercise(
    answer=mend_padding,
    chapter="04_masking",
    section=STEP,
    points=2,
    problems=_problems,
    bug=lambda s, n: softmax(s, _real(s, n)[:, :, None]),
    mistakes={
        "masks-queries-too": Mistake(
            "Your function hides the padded keys, and empties the rows of the padded queries too.",
            STEP,
            (
                lambda s, n: softmax(s, _real(s, n)[:, :, None] & _real(s, n)[:, None, :]),
                lambda s, n: _hide(s, _real(s, n)[:, :, None] & _real(s, n)[:, None, :]),
                lambda s, n: softmax(s, _real(s, n)[:, None, :]) * _real(s, n)[:, :, None],
            ),
        ),
        "mask-inverted": Mistake(
            "Your function hides the real keys and shows the padding.",
            "The inverted mask",
            (
                lambda s, n: softmax(s, ~_real(s, n)[:, None, :]),
                lambda s, n: _hide(s, ~_real(s, n)[:, None, :]),
            ),
        ),
        "mask-after-softmax": Mistake(
            "Your rows do not sum to 1: the padding has taken its share before it was hidden.",
            "2 Before the softmax, not after",
            (lambda s, n: s.softmax(-1) * _real(s, n)[:, None, :],),
        ),
        "mask-ignored": Mistake("Your function hides nothing.", STEP, (lambda s, n: s.softmax(-1),)),
        "masks-queries-not-keys": Mistake(
            "Your mask still stands on the axis of the queries.",
            STEP,
            (lambda s, n: _hide(s, _real(s, n)[:, :, None]),),
        ),
        "padding-off-by-one": Mistake(
            "Your mask is one token off.",
            STEP,
            (
                lambda s, n: softmax(s, _real(s, n + 1)[:, None, :]),
                lambda s, n: softmax(s, _real(s, n - 1)[:, None, :]),
                lambda s, n: _hide(s, _real(s, n - 1)[:, None, :]),
            ),
        ),
    },
)
