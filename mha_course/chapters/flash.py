"""Attention in one pass over blocks of keys: exact, and without ever storing all the weights.

Sources: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", section 3 (the running
maximum and sum); Rabe and Staats 2021, "Self-attention Does Not Need O(n²) Memory", section 3 (the
running output, divided once at the end); Dao et al. 2022, "FlashAttention", section 3.1 (blocks, and a
backward pass that computes the weights again); Dao 2023, "FlashAttention-2", section 3.1.1 (for which it
keeps one number for each query, ``m + log(l)``).
"""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab.attention import _scores


def flash_attention(
    query: Float[Tensor, "*#batch n_q d_k"],
    key: Float[Tensor, "*#batch n_k d_k"],
    value: Float[Tensor, "*#batch n_k d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    *,
    block: int = 128,
    scale: float | None = None,
) -> Float[Tensor, "*batch n_q d_v"]:
    """The output of ``scaled_dot_product_attention``, from ``n_q * block`` scores at a time.

    For each query, three values are updated from block to block: ``m``, the highest score so far; ``l``,
    the sum of ``exp(score - m)``; ``o``, the sum of ``exp(score - m) * value``, a vector. For each block,
    with ``m_new`` the highest score up to and including it and ``c = exp(m - m_new)``,

    ``l ← c l + sum(exp(score - m_new))`` and ``o ← c o + sum(exp(score - m_new) value)``.

    After the last block ``output = o / l``. A query that may attend to nothing gets zeros, and finite
    gradients. The backward pass computes the weights of a block again, as ``exp(score - m - log(l))``, so
    memory grows with ``n`` and not ``n²`` in training too; this costs one extra matrix product, one of seven.

    Args:
        query: ``(..., n_q, d_k)``.
        key: ``(..., n_k, d_k)``.
        value: ``(..., n_k, d_v)``, one row for each key.
        mask: boolean, ``True`` = may attend, broadcastable to ``(..., n_q, n_k)``.
        block: how many keys are processed together; it need not divide ``n_k``.
        scale: ``None`` means ``1 / sqrt(d_k)``.

    Returns:
        ``(..., n_q, d_v)``, in the dtype of ``query``. It returns no weights, because it never has all of
        them. For half-precision inputs, the sums are computed in ``float32``.

    Source: Dao 2023, section 3.1.1, algorithm 1, with blocks of keys only.

    >>> flash_attention(torch.ones(5, 4), torch.ones(3, 4), torch.ones(3, 2), block=2).shape
    torch.Size([5, 2])
    """
    batch, batch_out = expect.query_key_and_value(query, key, value, mask)
    if mask is not None:
        mask = mask.expand(*batch, query.shape[-2], key.shape[-2])
    expect.whole_number("block", block)
    factor = expect.scale(scale, query.shape[-1])
    exact = torch.promote_types(query.dtype, torch.float32)
    # Outside the function below, autograd undoes the broadcasting and the change of dtype.
    wide = (x.expand(*batch_out, *x.shape[-2:]).to(exact) for x in (query, key, value))
    output, _ = _OnePass.apply(*wide, mask, block, factor)
    return output.to(query.dtype)


def merge_sums(
    m_a: Float[Tensor, "*#batch n_q 1"],
    l_a: Float[Tensor, "*#batch n_q 1"],
    o_a: Float[Tensor, "*#batch n_q d_v"],
    m_b: Float[Tensor, "*#batch n_q 1"],
    l_b: Float[Tensor, "*#batch n_q 1"],
    o_b: Float[Tensor, "*#batch n_q d_v"],
) -> tuple[Float[Tensor, "*batch n_q 1"], Float[Tensor, "*batch n_q 1"], Float[Tensor, "*batch n_q d_v"]]:
    """What two disjoint sets of keys, a and b, give together.

    For each query and a set of keys, ``m`` is the highest score, ``l`` the sum of ``exp(score - m)`` and
    ``o`` the sum of ``exp(score - m) * value``. A query that sees none of the keys has ``m = -inf`` and
    zeros in ``l`` and ``o``.

    Args:
        m_a: ``(..., n_q, 1)``, and ``m_b`` too.
        l_a: ``(..., n_q, 1)``, and ``l_b`` too.
        o_a: ``(..., n_q, d_v)``, and ``o_b`` too.
        m_b: as ``m_a``, of the other keys.
        l_b: as ``l_a``, of the other keys.
        o_b: as ``o_a``, of the other keys.

    Returns:
        ``(m, l, o)`` of all keys; ``o / l`` is the output.

    Source: Rabe and Staats 2021, section 3; Dao 2023, section 3.1.

    >>> a, b = torch.tensor([[0.0]]), torch.tensor([[-torch.inf]])
    >>> merge_sums(a, a + 1, a + 5, b, a, a)
    (tensor([[0.]]), tensor([[1.]]), tensor([[5.]]))
    """
    tensors = {"m_a": m_a, "l_a": l_a, "o_a": o_a, "m_b": m_b, "l_b": l_b, "o_b": o_b}
    for name, given in tensors.items():
        size = "d_v" if name[0] == "o" else "1"
        expect.floating(name, expect.tensor(name, given, f"(..., n_q, {size})", min_rank=2))
        if size == "1":
            expect.width(name, given, "1", 1)
    expect.same_kind(**tensors)
    expect.width("o_b", o_b, "d_v", o_a.shape[-1])
    return _merge_sums(m_a, l_a, o_a, m_b, l_b, o_b)


def _merge_sums(
    m_a: Tensor, l_a: Tensor, o_a: Tensor, m_b: Tensor, l_b: Tensor, o_b: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    highest = torch.maximum(m_a, m_b)
    from_a, from_b = torch.exp(m_a - _finite(highest)), torch.exp(m_b - _finite(highest))
    return highest, from_a * l_a + from_b * l_b, from_a * o_a + from_b * o_b


def _finite(highest: Tensor) -> Tensor:
    """A query that has seen nothing has no maximum; -inf - (-inf) would be NaN."""
    return highest.masked_fill(highest == -math.inf, 0.0)


class _OnePass(torch.autograd.Function):
    """The pass, and its gradients. It also returns ``m + log(l)`` of each query, ``(..., n_q, 1)``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        query: Float[Tensor, "*batch n_q d_k"],
        key: Float[Tensor, "*batch n_k d_k"],
        value: Float[Tensor, "*batch n_k d_v"],
        mask: Bool[Tensor, "*#batch n_q n_k"] | None,
        block: int,
        scale: float,
    ) -> tuple[Float[Tensor, "*batch n_q d_v"], Float[Tensor, "*batch n_q 1"]]:
        highest = query.new_full((*query.shape[:-1], 1), -math.inf)
        output = query.new_zeros(*query.shape[:-1], value.shape[-1])
        sums = highest, torch.zeros_like(highest), output
        for part in _blocks(key.shape[-2], block):
            scores = _block_scores(query, key, mask, part, scale)
            own = scores.amax(dim=-1, keepdim=True)
            exps = torch.exp(scores - _finite(own))
            sums = _merge_sums(*sums, own, exps.sum(dim=-1, keepdim=True), exps @ value[..., part, :])
        highest, total, output = sums
        empty = total == 0
        log_total = (highest + torch.log(total)).masked_fill(empty, math.inf)
        return output / total.masked_fill(empty, 1.0), log_total

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        query, key, value, mask, ctx.block, ctx.scale = inputs
        ctx.save_for_backward(query, key, value, mask, *output)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, grad_log_total: Tensor) -> tuple[Tensor | None, ...]:
        """With ``P`` the weights: ``dV = Pᵀ dO`` and ``dS = P (dO Vᵀ - sum(dO O))``, block by block.

        Source: Dao et al. 2022, appendix B.2; Dao 2023, section 3.1.2, algorithm 2.
        """
        query, key, value, mask, output, log_total = ctx.saved_tensors
        # The part that all scores of a row share: the row sums to 1, and m + log(l) depends on all of them.
        shared = (grad_output * output).sum(dim=-1, keepdim=True) - grad_log_total
        grad_query, grad_key, grad_value = torch.zeros_like(query), [], []
        for part in _blocks(key.shape[-2], ctx.block):
            weights = torch.exp(_block_scores(query, key, mask, part, ctx.scale) - log_total)
            grad_value.append(weights.mT @ grad_output)
            grad_scores = weights * (grad_output @ value[..., part, :].mT - shared) * ctx.scale
            grad_query = grad_query + grad_scores @ key[..., part, :]
            grad_key.append(grad_scores.mT @ query)
        return grad_query, torch.cat(grad_key, dim=-2), torch.cat(grad_value, dim=-2), None, None, None


def _blocks(n_key: int, block: int) -> Iterator[slice]:
    """The keys in blocks; a slice may end after the last key."""
    return (slice(start, start + block) for start in range(0, n_key, block))


def _block_scores(
    query: Float[Tensor, "*batch n_q d_k"],
    key: Float[Tensor, "*batch n_k d_k"],
    mask: Bool[Tensor, "*#batch n_q n_k"] | None,
    part: slice,
    scale: float,
) -> Float[Tensor, "*batch n_q block"]:
    """The scores of one block of keys; a hidden one is ``-inf``."""
    scores = _scores(query, key[..., part, :], scale)
    return scores if mask is None else scores.masked_fill(~mask[..., part], -math.inf)
