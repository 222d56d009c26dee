"""Scaled dot-product attention as pure functions: scores, weights, output.

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1, equation 1.
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mha_lab import _expect as expect


def scaled_dot_product_scores(
    query: Float[Tensor, "*#batch n_q d_k"],
    key: Float[Tensor, "*#batch n_k d_k"],
    *,
    scale: float | None = None,
) -> Float[Tensor, "*batch n_q n_k"]:
    """How well each query matches each key: ``scores[i, j] = scale * (query[i] · key[j])``.

    In matrix form ``scores = scale * query @ key.mT``.

    Args:
        query: ``(..., n_q, d_k)``.
        key: ``(..., n_k, d_k)``; the leading axes broadcast with those of ``query``.
        scale: what the dot products are multiplied by; ``None`` means ``1 / sqrt(d_k)``, which
            keeps the variance of the scores near 1 whatever ``d_k`` is.

    Returns:
        ``(..., n_q, n_k)``, a row for each query and a column for each key.

    Raises:
        TypeError: an argument is no tensor, not floating-point, the dtypes differ, or ``scale`` is
            no number.
        ValueError: a rank below 2, an empty sequence, widths or leading axes that do not match,
            different devices, a ``scale`` that is not finite.

    Source: Vaswani et al. 2017, section 3.2.1 and its footnote 4 (why ``sqrt(d_k)``).

    >>> scaled_dot_product_scores(torch.ones(2, 5, 4), torch.ones(2, 3, 4)).shape
    torch.Size([2, 5, 3])
    """
    expect.query_and_key(query, key)
    factor = expect.scale(scale, query.shape[-1])
    # Scaling the query touches n_q * d_k numbers; scaling the scores would touch n_q * n_k.
    return (query * factor) @ key.mT


def masked_softmax(
    scores: Float[Tensor, "*batch n_q n_k"], mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "*batch n_q n_k"]:
    """Softmax over the keys that each query may attend to; hidden keys get exactly 0.

    ``weights[i, j] = exp(scores[i, j]) / sum(exp(scores[i, k]) for visible k)`` for visible ``j``.
    A query that may attend to nothing gets a row of zeros, and finite gradients.

    Args:
        scores: ``(..., n_q, n_k)``.
        mask: boolean, ``True`` = may attend, broadcastable to the shape of ``scores``; ``None``
            hides nothing.

    Returns:
        ``(..., n_q, n_k)``; each row sums to 1, or to 0 where nothing is visible.

    Raises:
        TypeError: ``scores`` is no floating-point tensor, or ``mask`` is not boolean.
        ValueError: a rank below 2, no key at all, or a mask that does not broadcast.

    Source: Vaswani et al. 2017, section 3.2.3 (masking before the softmax). The row of zeros is
    what ``torch.nn.functional.scaled_dot_product_attention`` fetches for such a row.

    >>> masked_softmax(torch.zeros(1, 2), torch.tensor([[True, False]]))
    tensor([[1., 0.]])
    """
    expect.tensor("scores", scores, "(..., n_q, n_k)", min_rank=2)
    expect.floating("scores", scores)
    expect.sequence("scores", scores, axis=-2)
    expect.sequence("scores", scores, axis=-1)
    if mask is None:
        return torch.softmax(scores, dim=-1)
    expect.mask_for(mask, scores.shape, scores.device)
    hidden_score, empty = _hidden_score(mask, scores)
    return torch.softmax(torch.where(mask, scores, hidden_score), dim=-1).masked_fill(empty, 0.0)


def scaled_dot_product_attention(
    query: Float[Tensor, "*#batch n_q d_k"],
    key: Float[Tensor, "*#batch n_k d_k"],
    value: Float[Tensor, "*#batch n_k d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> tuple[Float[Tensor, "*batch n_q d_v"], Float[Tensor, "*#batch n_q n_k"]]:
    """Fetch for each query the average of the values, weighted by how well their keys match.

    ``weights = softmax(scale * query @ key.mT)`` over the visible keys, ``output = weights @ value``.

    Args:
        query: ``(..., n_q, d_k)``.
        key: ``(..., n_k, d_k)``.
        value: ``(..., n_k, d_v)``, one row for each key.
        mask: boolean, ``True`` = may attend, broadcastable to ``(..., n_q, n_k)``.
        scale: ``None`` means ``1 / sqrt(d_k)``.
        dropout_p: the probability with which a weight is set to 0, the others growing by
            ``1 / (1 - dropout_p)``. Applied whenever it is above 0, as PyTorch's function does.

    Returns:
        ``(output, weights)``: ``(..., n_q, d_v)`` and ``(..., n_q, n_k)``. The weights are those
        that were used, after dropout, so that ``output`` equals ``weights @ value``.

    Raises:
        TypeError: an argument is no tensor, not floating-point (the mask: not boolean), the dtypes
            differ, or ``scale`` or ``dropout_p`` is no number.
        ValueError: ranks, sizes, leading axes or devices do not match, an empty sequence, a mask
            that does not broadcast, a ``scale`` that is not finite, a ``dropout_p`` outside ``[0, 1)``.

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.

    >>> output, weights = scaled_dot_product_attention(torch.ones(5, 4), torch.ones(3, 4), torch.ones(3, 2))
    >>> output.shape, weights.shape
    (torch.Size([5, 2]), torch.Size([5, 3]))
    """
    expect.query_key_and_value(query, key, value, mask)
    factor = expect.scale(scale, query.shape[-1])
    expect.probability("dropout_p", dropout_p)
    if dropout_p == 0.0 and _needs_no_graph(query, key, value):
        return _attend_in_blocks(query, key, value, mask, factor)
    return fetch(masked_softmax(scaled_dot_product_scores(query, key, scale=scale), mask), value, dropout_p)


def fetch(
    weights: Float[Tensor, "*#batch n_q n_k"], value: Float[Tensor, "*#batch n_k d_v"], dropout_p: float
) -> tuple[Float[Tensor, "*batch n_q d_v"], Float[Tensor, "*#batch n_q n_k"]]:
    """The last step: drop weights with probability ``dropout_p``, average the values by the rest."""
    if dropout_p > 0.0:
        weights = F.dropout(weights, dropout_p)
    return weights @ value, weights


def fused_attention(
    query: Float[Tensor, "*#batch n_q d_k"],
    key: Float[Tensor, "*#batch n_k d_k"],
    value: Float[Tensor, "*#batch n_k d_v"],
    mask: Bool[Tensor, "..."] | None,
    dropout_p: float,
) -> Float[Tensor, "*batch n_q d_v"]:
    """The output alone, by PyTorch's fused kernel: it never stores the ``n_q * n_k`` weights.

    A row that sees nothing is opened for the kernel and set to 0 afterwards, so its output and its
    gradients do not depend on what a kernel makes of such a row. The kernels want four axes.
    """
    lead = (1,) * (4 - query.ndim)
    query, key, value = (x.reshape(lead + x.shape) for x in (query, key, value))
    if mask is None:
        output = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout_p)
    else:
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        empty = ~mask.any(dim=-1, keepdim=True)
        output = F.scaled_dot_product_attention(query, key, value, mask | empty, dropout_p).masked_fill(
            empty, 0.0
        )
    return output.reshape(output.shape[len(lead) :])


BLOCK = 2**20  # scores that are worked on together: 4 MB in float32, about what a core's caches hold


def _attend_in_blocks(
    query: Float[Tensor, "*batch n_q d_k"],
    key: Float[Tensor, "*batch n_k d_k"],
    value: Float[Tensor, "*batch n_k d_v"],
    mask: Bool[Tensor, "..."] | None,
    scale: int | float,
) -> tuple[Float[Tensor, "*batch n_q d_v"], Float[Tensor, "*batch n_q n_k"]]:
    """The same output and weights where no gradient will be asked for.

    One buffer holds the scores and then the weights, and without a mask a few heads are finished
    at a time, while their scores are still in the cache.
    """
    q, k, v = (x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:]) for x in (query, key, value))
    scores = q.new_empty(len(q), q.shape[1], k.shape[1])
    output = q.new_empty(len(q), q.shape[1], v.shape[2])
    in_cache = mask is None and query.device.type == "cpu"
    step = max(1, BLOCK // (q.shape[1] * k.shape[1]) if in_cache else len(q))
    for start in range(0, len(q), step):
        part = slice(start, start + step)
        block = scores[part]
        torch.baddbmm(block, q[part], k[part].mT, beta=0, alpha=scale, out=block)
        if mask is None:
            torch.softmax(block, dim=-1, out=block)
        else:
            block = block.view(*query.shape[:-1], k.shape[1])
            hidden_score, empty = _hidden_score(mask, block)
            torch.where(mask, block, hidden_score, out=block)
            torch.softmax(block, dim=-1, out=block).masked_fill_(empty, 0.0)
        torch.bmm(scores[part], v[part], out=output[part])
    return output.view(*query.shape[:-1], v.shape[2]), scores.view(*query.shape[:-1], k.shape[1])


def _hidden_score(mask: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """What stands in for a hidden score, row by row, and which rows see nothing at all.

    ``-inf`` in an ordinary row; 0 in a row that sees nothing. A softmax over ``-inf`` alone is NaN
    in both directions; masks before and after would cover that, but not from a search for NaN
    (``torch.autograd.detect_anomaly``), which would stop at a layer that is in order.
    """
    empty = ~mask.any(dim=-1, keepdim=True) if mask.ndim else ~mask
    return torch.zeros_like(empty, dtype=scores.dtype).masked_fill(~empty, -math.inf), empty


def _needs_no_graph(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """No gradient, function transform, exporter or autocast will look at the steps in between."""
    in_transform = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
    return not (
        (torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)))
        or torch.compiler.is_compiling()
        or in_transform()
        or torch.is_autocast_enabled(query.device.type)
        or not query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
    )
