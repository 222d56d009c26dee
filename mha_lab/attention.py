"""Scaled dot-product attention as pure functions: scores, weights, output.

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1, equation 1.
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab import _fused, _inplace
from mha_lab.heads import _repeat_kv
from mha_lab.masks import MaskFunction, _hidden_score, _near, _seen


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
        scale: the factor for the dot products; ``None`` means ``1 / sqrt(d_k)``, which
            keeps the variance of the scores near 1 whatever ``d_k`` is.

    Returns:
        ``(..., n_q, n_k)``, a row for each query and a column for each key.

    Source: Vaswani et al. 2017, section 3.2.1 and its footnote 4 (why ``sqrt(d_k)``).

    >>> scaled_dot_product_scores(torch.ones(2, 5, 4), torch.ones(2, 3, 4)).shape
    torch.Size([2, 5, 3])
    """
    expect.query_and_key(query, key)
    return _scores(query, key, expect.scale(scale, query.shape[-1]))


def _scores(query: Tensor, key: Tensor, scale: int | float | None = None) -> Tensor:
    """No checks. Scaling the query touches ``n_q * d_k`` numbers; the scores have ``n_q * n_k``."""
    return (query * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)) @ key.mT


def masked_softmax(
    scores: Float[Tensor, "*batch n_q n_k"], mask: Bool[Tensor, "..."] | None = None
) -> Float[Tensor, "*batch n_q n_k"]:
    """Softmax over the keys that each query may attend to; hidden keys get exactly 0.

    ``weights[i, j] = exp(scores[i, j]) / sum(exp(scores[i, k]) for visible k)`` for visible ``j``.
    A query that may attend to nothing gets a row of zeros, and finite gradients. For half-precision
    scores the sum is computed in ``float32``, and the weights are rounded once, at the end.

    Args:
        scores: ``(..., n_q, n_k)``.
        mask: boolean, ``True`` = may attend, broadcastable to the shape of ``scores``; ``None``
            hides nothing.

    Returns:
        ``(..., n_q, n_k)``; each row sums to 1, or to 0 if nothing is visible.

    Source: Vaswani et al. 2017, section 3.2.3 (masking before the softmax). The row of zeros is
    what ``torch.nn.functional.scaled_dot_product_attention`` returns for such a row.

    >>> masked_softmax(torch.zeros(1, 2), torch.tensor([[True, False]]))
    tensor([[1., 0.]])
    """
    expect.tensor("scores", scores, "(..., n_q, n_k)", min_rank=2)
    expect.floating("scores", scores)
    expect.sequence("scores", scores, axis=-2)
    expect.sequence("scores", scores, axis=-1)
    if mask is not None:
        expect.mask_for(mask, scores.shape, scores.device)
    return _masked_softmax(scores, mask)


def _masked_softmax(scores: Tensor, mask: Tensor | None, sinks: Tensor | None = None) -> Tensor:
    """No checks. A sink is the score, one for each head, of one more key, which every query may see."""
    if sinks is not None:
        column = sinks[:, None, None].to(scores.dtype).expand(*scores.shape[:-1], 1)
        mask = None if mask is None else _fused.see_sink(mask, scores.shape[-1])
        return _masked_softmax(torch.cat([column, scores], dim=-1), mask)[..., 1:]
    if mask is None:
        return torch.softmax(scores, dim=-1)
    hidden, empty = _hidden_score(mask, scores.dtype)
    return torch.softmax(torch.where(mask, scores, hidden), dim=-1).masked_fill(empty, 0.0)


def scaled_dot_product_attention(
    query: Float[Tensor, "*#batch n_q d_k"],
    key: Float[Tensor, "*#batch n_k d_k"],
    value: Float[Tensor, "*#batch n_k d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> tuple[Float[Tensor, "*batch n_q d_v"], Float[Tensor, "*#batch n_q n_k"]]:
    """For each query, the average of the values, weighted by how well their keys match.

    ``weights = softmax(scale * query @ key.mT)`` over the visible keys, ``output = weights @ value``.

    Args:
        query: ``(..., n_q, d_k)``.
        key: ``(..., n_k, d_k)``.
        value: ``(..., n_k, d_v)``, one row for each key.
        mask: boolean, ``True`` = may attend, broadcastable to ``(..., n_q, n_k)``.
        scale: ``None`` means ``1 / sqrt(d_k)``.
        dropout_p: the probability that a weight is set to 0; the others are multiplied by
            ``1 / (1 - dropout_p)``. It applies whenever it is above 0, as in PyTorch's function.

    Returns:
        ``(output, weights)``: ``(..., n_q, d_v)`` and ``(..., n_q, n_k)``. The weights are those
        that were used, after dropout, so that ``output`` equals ``weights @ value``.

    Source: Vaswani et al. 2017, section 3.2.1, equation 1.

    >>> output, weights = scaled_dot_product_attention(torch.ones(5, 4), torch.ones(3, 4), torch.ones(3, 2))
    >>> output.shape, weights.shape
    (torch.Size([5, 2]), torch.Size([5, 3]))
    """
    expect.query_key_and_value(query, key, value, mask)
    factor = expect.scale(scale, query.shape[-1])
    return _attend(query, key, value, mask, factor, dropout_p=expect.probability("dropout_p", dropout_p))


def _path(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    dropout_p: int | float,
    score: Callable[..., Tensor] | None,
    sinks: Tensor | None,
    need_weights: bool,
    repeats: int = 1,
) -> Literal["score", "fused", "in place", "weights"]:
    """How the output is computed: the first row that applies. Nothing else decides it.

    The costs are those of PyTorch 2.13 on a CPU with 8 heads, as ``python -m bench paths`` measures them: how
    many numbers are stored for each head, query and key (of 2048 tokens), and the time divided by that of the
    fused path. In a range, the larger number is with a mask, if nothing else is said.

    ======== ======================================= ======================= =======================
    path     options                                 without a gradient      forward and backward
    ======== ======================================= ======================= =======================
    score    a ``score`` (a soft cap is one)         2 to 3, time 2.3 to 3.6 3 to 4, time 1.7 to 2.4
    fused    ``need_weights=False``                  0 to 0.1, time 1        0.2 to 0.5, time 1
             the same with sinks                     0.2, time 1.1 to 1.2    0.3 to 0.7, time 1.2
             the same with dropout                   3, and 0.5 with a mask; 4, time 2 to 3
                                                     time 5 to 7
    in place no dropout, no sinks, and no gradient   1, time 1.7 to 2.2
             (see ``_inplace.applies``)
    weights  all others                                                      3 to 4, time 1.7 to 2.4
             the same with sinks                     3 to 4, time 3 to 5     3 to 4, time 2.2 to 2.7
             the same with dropout                   4, time 5.4 to 7        5, time 3 to 3.3
    ======== ======================================= ======================= =======================

    In the first row, the score is the plain dot product. A mask and a window go with every path. For the
    fused path, a mask ``(n_q, n_k)`` becomes numbers, ``_fused.BLOCK`` rows at a time and once for all heads,
    and a gradient keeps them. ``is_causal`` alone needs none, with sinks or without; a window one of a block.
    Shared keys and values (``repeats``) are repeated for all but the fused path, which changes neither
    column. A cache asks with ``need_weights=False`` for the new queries only, so ``n_q`` is 1 for one more
    token.
    """
    if score is not None:
        return "score"
    if not (need_weights or expect.forward_mode()):  # the kernel has no forward derivative
        return "fused"
    in_place = dropout_p == 0.0 and sinks is None and _inplace.applies(query, key, value, repeats)
    return "in place" if in_place else "weights"


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: int | float,
    *,
    dropout_p: int | float = 0.0,
    score: Callable[..., Tensor] | None = None,
    sinks: Tensor | None = None,
    need_weights: bool = True,
    repeats: int = 1,
    is_causal: bool = False,
    place: MaskFunction | None = None,
) -> tuple[Tensor, Tensor | None]:
    """No checks, but for what ``score`` and ``place`` return. ``repeats`` query heads share one of keys.

    With ``is_causal``, a query sees no later key; ``place`` is a function that makes a mask. What
    ``causal_mask`` and ``SlidingWindow`` make, the fused path needs for a few queries at a time.
    """
    window = None
    if place is not None:
        mask, window = _seen(mask, place, (*query.shape[:-1], key.shape[-2]), query.device)
    options = {"dropout_p": dropout_p, "sinks": sinks}
    path = _path(query, key, value, score=score, need_weights=need_weights, repeats=repeats, **options)
    if path == "fused":
        output = _fused.attend(query, key, value, mask, scale, is_causal=is_causal, window=window, **options)
        return output, None
    if is_causal or window is not None:
        sizes = query.shape[-2], key.shape[-2]
        mask = _near(mask, *sizes, is_causal=is_causal, window=window, device=query.device)
    key, value = _repeat_kv(key, repeats), _repeat_kv(value, repeats)
    if path == "in place":
        return _inplace.attend(query, key, value, mask, scale)
    if path == "score":
        scores = expect.scored(score(query, key), (*query.shape[:-1], key.shape[-2]))
    else:
        scores = _scores(query, key, scale)
    output, weights = _weighted_sum(_masked_softmax(scores, mask, sinks), value, dropout_p)
    return output, weights if need_weights else None


def _weighted_sum(
    weights: Float[Tensor, "*#batch n_q n_k"], value: Float[Tensor, "*#batch n_k d_v"], dropout_p: int | float
) -> tuple[Float[Tensor, "*batch n_q d_v"], Float[Tensor, "*#batch n_q n_k"]]:
    """The last step: drop weights with probability ``dropout_p``, and average the values by the rest."""
    if dropout_p > 0.0:
        weights = F.dropout(weights, dropout_p)
    return weights @ value, weights
