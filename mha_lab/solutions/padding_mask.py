"""Chapter 04: hide the padding."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def padding_mask(lengths, max_length):
    """``(batch,)`` to boolean ``(batch, 1, 1, max_length)``, ``True`` = may attend."""
    return (torch.arange(max_length) < lengths[:, None])[:, None, None, :]


def _problems(draw):
    yield torch.tensor([1, 2]), 3
    for _ in range(3):
        batch, longest = draw.primes(2)
        yield torch.tensor([draw.below(longest + 1) for _ in range(batch)]), longest
    yield torch.tensor([0, 5]), 5


def _plain(lengths, max_length):
    return torch.arange(max_length) < lengths[:, None]


STEP = "3 Hide the padding"
EXERCISE = Exercise(
    answer=padding_mask,
    chapter="04_masking",
    section=STEP,
    points=1,
    problems=_problems,
    same_as=("padding_mask",),
    mistakes={
        "mask-inverted": Mistake(
            "Your mask says True at the padding; in this series True means may attend.",
            "The inverted mask",
            (
                lambda n, m: ~_plain(n, m)[:, None, None, :],
                lambda n, m: (torch.arange(m) > n[:, None])[:, None, None, :],
            ),
        ),
        "padding-off-by-one": Mistake(
            "Your mask is one token off: of a sentence of length 3, the positions 0, 1 and 2 are real.",
            STEP,
            (
                lambda n, m: (torch.arange(m) <= n[:, None])[:, None, None, :],
                lambda n, m: (torch.arange(m) < n[:, None] - 1)[:, None, None, :],
            ),
        ),
        "masks-queries-not-keys": Mistake(
            "Your mask stands on the axis of the queries: it hides rows, and a mask must hide columns.",
            STEP,
            (lambda n, m: _plain(n, m)[:, None, :, None],),
        ),
        "wrong-shape": Mistake(
            "Your mask has other axes than (batch, 1, 1, max_length), and would line up with the wrong ones.",
            STEP,
            (_plain, lambda n, m: _plain(n, m)[:, None, :], lambda n, m: _plain(n, m)[None, None]),
        ),
    },
)
