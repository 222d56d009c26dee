"""Splitting the width of a tensor into heads, and merging the heads again.

Source: Vaswani et al. 2017, section 3.2.2.
"""

from jaxtyping import Shaped
from torch import Tensor

from mha_lab import _expect as expect


def split_heads(
    x: Shaped[Tensor, "*batch n d_model"], num_heads: int
) -> Shaped[Tensor, "*batch num_heads n d_k"]:
    """Give each head its own ``d_k = d_model // num_heads`` columns of every token.

    ``split[..., h, i, c] = x[..., i, h * d_k + c]``: head ``h`` sees all tokens, and the columns
    ``h * d_k`` to ``(h + 1) * d_k`` of each token. The result is a view of ``x`` whenever PyTorch
    can make one; nothing is copied.

    Args:
        x: ``(..., n, d_model)``.
        num_heads: how many heads; it must divide ``d_model``.

    Returns:
        ``(..., num_heads, n, d_k)``.

    Source: Vaswani et al. 2017, section 3.2.2 (``d_k = d_model / h``).

    >>> import torch
    >>> split_heads(torch.ones(2, 5, 6), num_heads=3).shape
    torch.Size([2, 3, 5, 2])
    """
    expect.tensor("x", x, "(..., n, d_model)", min_rank=2)
    expect.sequence("x", x)
    num_heads = expect.whole_number("num_heads", num_heads)
    expect.divides("num_heads", num_heads, "d_model", x.shape[-1])
    return _split_heads(x, num_heads)


def _split_heads(x: Tensor, num_heads: int) -> Tensor:
    return x.unflatten(-1, (num_heads, x.shape[-1] // num_heads)).transpose(-3, -2)


def merge_heads(x: Shaped[Tensor, "*batch num_heads n d_k"]) -> Shaped[Tensor, "*batch n d_model"]:
    """Put the heads' columns side by side again: the inverse of ``split_heads``.

    ``merged[..., i, h * d_k + c] = x[..., h, i, c]``, the concatenation of the paper's
    ``Concat(head_1, ..., head_h)``.

    Args:
        x: ``(..., num_heads, n, d_k)``.

    Returns:
        ``(..., n, num_heads * d_k)``.

    Source: Vaswani et al. 2017, section 3.2.2.

    >>> import torch
    >>> merge_heads(torch.ones(2, 3, 5, 2)).shape
    torch.Size([2, 5, 6])
    """
    expect.tensor("x", x, "(..., num_heads, n, d_k)", min_rank=3)
    expect.sequence("x", x)
    return _merge_heads(x)


def _merge_heads(x: Tensor) -> Tensor:
    return x.transpose(-3, -2).flatten(-2)


def repeat_kv(
    x: Shaped[Tensor, "*batch kv_heads n width"], repeats: int
) -> Shaped[Tensor, "*batch num_heads n width"]:
    """Keys or values for every query head, if groups of ``repeats`` query heads share one.

    ``repeated[..., h, i, c] = x[..., h // repeats, i, c]``: query heads that are neighbours form a group.

    Args:
        x: ``(..., num_kv_heads, n, width)``.
        repeats: query heads for each head of ``x``, ``num_heads // num_kv_heads``.

    Returns:
        ``(..., num_kv_heads * repeats, n, width)``; for ``repeats = 1``, ``x`` itself.

    Source: Ainslie et al. 2023, "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
    Checkpoints", section 2.2; the order of the heads is that of ``enable_gqa`` in
    ``torch.nn.functional.scaled_dot_product_attention``.

    >>> import torch
    >>> repeat_kv(torch.tensor([[[7.0]], [[8.0]]]), 2).flatten()
    tensor([7., 7., 8., 8.])
    """
    expect.tensor("x", x, "(..., num_kv_heads, n, width)", min_rank=3)
    return _repeat_kv(x, expect.whole_number("repeats", repeats))


def _repeat_kv(x: Tensor, repeats: int) -> Tensor:
    return x if repeats == 1 else x.repeat_interleave(repeats, dim=-3)
