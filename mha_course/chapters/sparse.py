"""Keep all, read few: a cheap indexer chooses ``k`` keys for each query, and attention reads only those.

The indexer scores every key with small vectors of its own; the layer's keys and values are read for ``k``
tokens only. All of them are kept: a later query may choose others.

Source: DeepSeek-AI 2025, "DeepSeek-V3.2-Exp", section 1, equation 1 (the lightning indexer) and "Prototype of
DSA"; ``DeepseekV32Indexer`` in ``modeling_deepseek_v32.py``, ``transformers`` 5.23.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mha_lab import _expect as expect


def index_scores(
    query: Float[Tensor, "*#batch heads n_q d"],
    key: Float[Tensor, "*#batch n_k d"],
    weight: Float[Tensor, "*#batch heads n_q"],
) -> Float[Tensor, "*batch n_q n_k"]:
    """How much each query wants each key: ``scores[i, j] = sum_h weight[h, i] · relu(query[h, i] · key[j])``.

    One key for all heads; one number for each pair of tokens. A weight can be below 0. DeepSeek-V3.2 also
    multiplies by ``1 / sqrt(d · heads)``, which changes no order of keys.

    Args:
        query: ``(..., heads, n_q, d)``.
        key: ``(..., n_k, d)``.
        weight: ``(..., heads, n_q)``.

    Returns:
        ``(..., n_q, n_k)``.

    Source: DeepSeek-AI 2025, "DeepSeek-V3.2-Exp", section 1, equation 1.

    >>> query, weight = torch.tensor([[[1.0]], [[-1.0]]]), torch.tensor([[1.0], [10.0]])  # two heads
    >>> index_scores(query, torch.tensor([[3.0], [-2.0]]), weight)
    tensor([[ 3., 20.]])
    """
    expect.tensor("query", query, "(..., heads, n_q, d)", min_rank=3)
    expect.tensor("key", key, "(..., n_k, d)", min_rank=2)
    expect.tensor("weight", weight, "(..., heads, n_q)", min_rank=2)
    expect.floating("query", query)
    expect.same_kind(query=query, key=key, weight=weight)
    expect.width("key", key, "d, the width of query,", query.shape[-1])
    if weight.shape[-2:] != query.shape[-3:-1]:
        expected = f"(..., heads, n_q) = (..., {query.shape[-3]}, {query.shape[-2]}), as query has"
        expect.fail(ValueError, "weight", expected, expect.shape(weight.shape))
    return (weight.unsqueeze(-1) * (query @ key.unsqueeze(-3).mT).relu()).sum(dim=-3)


def choose(
    scores: Float[Tensor, "*batch n_q n_k"], k: int, mask: Bool[Tensor, "*#batch #n_q #n_k"] | None = None
) -> Bool[Tensor, "*batch n_q n_k"]:
    """The mask that shows each query its ``k`` visible keys with the highest scores, or all, if it has fewer.

    Args:
        scores: ``(..., n_q, n_k)``.
        k: how many keys a query reads.
        mask: ``True`` = may attend, broadcasts to ``scores``; ``None`` means that every key is visible.

    Returns:
        ``(..., n_q, n_k)``, ``True`` = may attend.

    Source: ``DeepseekV32Indexer.forward`` in ``modeling_deepseek_v32.py``, ``transformers`` 5.23.

    >>> choose(torch.tensor([[1.0, 4.0, 2.0, 3.0]]), 2)
    tensor([[False,  True, False,  True]])
    """
    expect.floating("scores", expect.tensor("scores", scores, "(..., n_q, n_k)", min_rank=2))
    expect.whole_number("k", k)
    visible = torch.ones_like(scores, dtype=torch.bool)
    if mask is not None:
        expect.mask_for(mask, scores.shape, scores.device)
        visible = visible & mask
    best = scores.masked_fill(~visible, -torch.inf).topk(min(k, scores.shape[-1]), dim=-1).indices
    return torch.zeros_like(visible).scatter(-1, best, True) & visible


def chosen_weight(
    weights: Float[Tensor, "*batch n_q n_k"], chosen: Bool[Tensor, "*#batch n_q n_k"]
) -> Float[Tensor, "*batch n_q"]:
    """The share of each query's attention weight that lies on its chosen keys.

    Args:
        weights: of full attention, ``(..., n_q, n_k)``.
        chosen: ``True`` = chosen, broadcasts to ``weights``.

    Returns:
        ``(..., n_q)``, from 0 to 1. Without the other keys, the weights of the chosen ones become larger, and
        sum to 1 again.

    >>> chosen_weight(torch.tensor([[0.5, 0.25, 0.25]]), torch.tensor([[True, False, True]]))
    tensor([0.7500])
    """
    expect.tensor("weights", weights, "(..., n_q, n_k)", min_rank=2)
    expect.mask_for(chosen, weights.shape, weights.device)
    return (weights * chosen).sum(dim=-1)


def recall(
    weights: Float[Tensor, "*batch n_q n_k"], chosen: Bool[Tensor, "*#batch n_q n_k"]
) -> Float[Tensor, "*batch n_q"]:
    """Of the keys with the highest weights, as many as were chosen: the share that was chosen.

    Args:
        weights: of full attention, ``(..., n_q, n_k)``.
        chosen: ``True`` = chosen, broadcasts to ``weights``; at least one in each row.

    Returns:
        ``(..., n_q)``, from 0 to 1.

    >>> recall(torch.tensor([[0.5, 0.25, 0.125, 0.125]]), torch.tensor([[True, False, False, True]]))
    tensor([0.5000])
    """
    expect.tensor("weights", weights, "(..., n_q, n_k)", min_rank=2)
    expect.mask_for(chosen, weights.shape, weights.device)
    chosen = chosen.expand_as(weights)
    count = chosen.sum(dim=-1, keepdim=True)
    rank = weights.argsort(dim=-1, descending=True).argsort(dim=-1)
    return ((rank < count) & chosen).sum(dim=-1) / count.squeeze(-1)


def narrowed(
    query: Float[Tensor, "*batch heads n_q d_k"], key: Float[Tensor, "*batch heads n_k d_k"], width: int
) -> tuple[Float[Tensor, "*batch heads n_q width"], Float[Tensor, "*batch n_k width"]]:
    """An indexer made from a layer's own queries and keys: one key of ``width`` numbers for all heads.

    The keys of all heads stand side by side, ``heads · d_k`` numbers for each token. Only the ``width``
    directions in which they are largest are kept, and the queries are expressed in the same directions. With
    ``width = heads · d_k``, the dot products are the layer's own. (A published indexer has projections of its
    own, which are trained.)

    Args:
        query: ``(..., heads, n_q, d_k)``.
        key: ``(..., heads, n_k, d_k)``.
        width: how many numbers a key of the indexer has, at most ``heads · d_k``.

    Returns:
        ``(query, key)``: ``(..., heads, n_q, width)`` and ``(..., n_k, width)``, for ``index_scores``.

    >>> q, k = narrowed(torch.ones(3, 5, 2), torch.ones(3, 7, 2), 1)
    >>> q.shape, k.shape
    (torch.Size([3, 5, 1]), torch.Size([7, 1]))
    """
    expect.query_and_key(query, key)
    expect.tensor("query", query, "(..., heads, n_q, d_k)", min_rank=3)
    *_, heads, _, d_k = query.shape
    if expect.whole_number("width", width) > heads * d_k:
        expect.fail(ValueError, "width", f"at most heads · d_k = {heads * d_k}", width)
    side_by_side = key.transpose(-3, -2).flatten(-2)  # (..., n_k, heads · d_k)
    sums = side_by_side.flatten(0, -2).mT @ side_by_side.flatten(0, -2)
    directions = torch.linalg.eigh(sums).eigenvectors.flip(-1)[:, :width]
    return query @ directions.unflatten(0, (heads, d_k)), side_by_side @ directions


def joined_entries(
    entry: Float[Tensor, "*batch n d"], score: Float[Tensor, "*#batch n d"], every: int
) -> Float[Tensor, "*batch m d"]:
    """One entry for each ``every`` tokens: a mean of theirs, with weights for each number of the entry.

    ``joined[w, c] = sum_j softmax_j(score[j, c]) · entry[j, c]``, over the tokens ``j`` of group ``w``. The
    last tokens, if they fill no group, have no entry yet. So the query at position ``p`` may read the first
    ``(p + 1) // every`` entries. DeepSeek-V4 also normalises each entry, and turns a part of it by the
    position of the group's first token.

    Args:
        entry: of each token, ``(..., n, d)``.
        score: of each token and number, ``(..., n, d)``; in DeepSeek-V4 a projection of the token, plus a
            learned number for each place in the group.
        every: how many tokens become one entry.

    Returns:
        ``(..., m, d)`` with ``m = n // every``.

    Source: ``DeepseekV4HCACompressor`` in ``modeling_deepseek_v4.py``, ``transformers`` 5.23.

    >>> joined_entries(torch.tensor([[1.0], [5.0], [9.0]]), torch.zeros(3, 1), 2)
    tensor([[3.]])
    """
    expect.floating("entry", expect.tensor("entry", entry, "(..., n, d)", min_rank=2))
    expect.tensor("score", score, "(..., n, d)", min_rank=2)
    expect.same_kind(entry=entry, score=score)
    if score.shape[-2:] != entry.shape[-2:]:
        expected = f"(..., n, d) = (..., {entry.shape[-2]}, {entry.shape[-1]}), as entry has"
        expect.fail(ValueError, "score", expected, expect.shape(score.shape))
    whole = entry.shape[-2] // expect.whole_number("every", every)
    groups, scores = (x[..., : whole * every, :].unflatten(-2, (whole, every)) for x in (entry, score))
    return (scores.softmax(dim=-2) * groups).sum(dim=-2)
