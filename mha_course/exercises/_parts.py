"""Right and wrong pieces of attention, from which the wrong answers of several exercises are built."""

import math

import torch
from torch import Tensor


def split(x: Tensor, heads: int) -> Tensor:
    """Right: each head gets its columns."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def bare_view(x: Tensor, heads: int) -> Tensor:
    """Wrong: several pieces of one token land in the same head."""
    return x.reshape(*x.shape[:-2], heads, x.shape[-2], x.shape[-1] // heads)


def interleaved(x: Tensor, heads: int) -> Tensor:
    """Wrong: columns given to the heads in turn."""
    return x.unflatten(-1, (-1, heads)).movedim(-1, -3)


def merge(x: Tensor) -> Tensor:
    """Right: heads side by side."""
    return x.transpose(-3, -2).flatten(-2)


def bare_merge(x: Tensor) -> Tensor:
    """Wrong: the same shape without swapping the axes first."""
    return x.reshape(*x.shape[:-3], x.shape[-2], -1)


def merge_interleaved(x: Tensor) -> Tensor:
    """Wrong: columns of the heads in turn."""
    return x.movedim(-3, -1).flatten(-2)


def softmax(scores: Tensor, mask: Tensor | None = None, dim: int = -1) -> Tensor:
    """Right, for ``dim=-1``: hidden keys and rows that see nothing get 0."""
    if mask is None:
        return torch.softmax(scores, dim)
    return torch.softmax(scores.masked_fill(~mask, -1e30), dim) * (mask & mask.any(-1, keepdim=True))


def nan_rows(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Wrong: a softmax over nothing but ``-inf``."""
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -math.inf), -1)


def uniform_rows(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Wrong: a large negative number in place of ``-inf``."""
    return torch.softmax(scores if mask is None else scores.masked_fill(~mask, -1e9), -1)


def masked_after(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Wrong: the hidden keys have taken their share already."""
    weights = torch.softmax(scores, -1)
    return weights if mask is None else weights * mask


def mask_added(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Wrong: ``True`` counts as 1."""
    return torch.softmax(scores if mask is None else scores + mask, -1)


def inverted(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Wrong: ``True`` read as hidden."""
    return softmax(scores, None if mask is None else ~mask)


def nan_inverted(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Wrong twice: ``True`` read as hidden, and NaN where that hides everything."""
    return nan_rows(scores, None if mask is None else ~mask)
