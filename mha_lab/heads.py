"""Splitting the width of a tensor into heads, and merging the heads again.

Raises: every function here checks its arguments before it computes anything. It raises ``TypeError`` for a
wrong type or dtype, and ``ValueError`` for a shape, size, number or device that does not fit. A function
says more only if it can raise for another reason.

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
    expect.whole_number("num_heads", num_heads)
    d_model = x.shape[-1]
    expect.divides("num_heads", num_heads, "d_model", d_model)
    return x.unflatten(-1, (num_heads, d_model // num_heads)).transpose(-3, -2)


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
    return x.transpose(-3, -2).flatten(-2)
