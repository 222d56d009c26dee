"""Other ways to score a query against a key, for ``MultiHeadAttention(score=...)`` and ``transform=...``.

A score is any callable ``(query, key) -> scores``, a transform any callable ``(query, key) -> (query, key)``;
those with parameters are modules.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from mha_lab import _expect as expect
from mha_lab._frequencies import _above
from mha_lab.attention import _scores, scaled_dot_product_scores
from mha_lab.positions import Rotary, _distance, alibi_bias


class AdditiveScore(nn.Module):
    """Score by a small network: ``scores[i, j] = v · tanh(W query[i] + U key[j])``.

    ``W`` and ``U`` are ``(hidden, d_k)``, ``v`` is ``(hidden,)``; all heads share them. While
    it runs, it stores ``n_q * n_k * hidden`` numbers, ``hidden`` times as many as a dot product.

    Args:
        d_k: the width of a head.
        hidden: the width of the network.

    Source: Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to Align and
    Translate", appendix A.1.2.

    >>> AdditiveScore(d_k=4, hidden=7)(torch.ones(2, 5, 4), torch.ones(2, 3, 4)).shape
    torch.Size([2, 5, 3])
    """

    def __init__(self, d_k: int, hidden: int) -> None:
        super().__init__()
        self.d_k = d_k = expect.whole_number("d_k", d_k)
        self.hidden = hidden = expect.whole_number("hidden", hidden)
        self.query_proj = nn.Linear(d_k, hidden, bias=False)
        self.key_proj = nn.Linear(d_k, hidden, bias=False)
        self.energy = nn.Linear(hidden, 1, bias=False)

    def forward(
        self, query: Float[Tensor, "*#batch n_q d_k"], key: Float[Tensor, "*#batch n_k d_k"]
    ) -> Float[Tensor, "*batch n_q n_k"]:
        """``(..., n_q, d_k)`` and ``(..., n_k, d_k)`` to ``(..., n_q, n_k)``."""
        expect.query_and_key(query, key)
        expect.width("query", query, "d_k", self.d_k)
        expect.fits("query_proj", self.query_proj, query=query)
        both = self.query_proj(query).unsqueeze(-2) + self.key_proj(key).unsqueeze(-3)
        return self.energy(torch.tanh(both)).squeeze(-1)


class RelativePositionBias(nn.Module):
    """Scaled dot product plus a learned number for each head and distance.

    ``scores[h, i, j] = query[h, i] · key[h, j] / sqrt(d_k) + bias[h, clip(distance, -D, D)]`` with
    ``distance = j - i - (n_k - n_q)`` and ``D = max_distance``: 0 is the query's own position if
    the last query is at the last key's position, as in ``causal_mask``. The bias starts at 0.

    Args:
        num_heads: how many heads the scores have.
        max_distance: all distances from this one on share one bias.

    Source: Shaw et al. 2018, "Self-Attention with Relative Position Representations", section 3.2
    (clipped distances); Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a
    Unified Text-to-Text Transformer", section 2.1 (one scalar for each head).

    >>> heads = torch.ones(1, 2, 5, 4)
    >>> RelativePositionBias(num_heads=2, max_distance=3)(heads, heads).shape
    torch.Size([1, 2, 5, 5])
    """

    def __init__(self, num_heads: int, max_distance: int) -> None:
        super().__init__()
        self.num_heads = num_heads = expect.whole_number("num_heads", num_heads)
        self.max_distance = max_distance = expect.whole_number("max_distance", max_distance)
        self.bias = nn.Parameter(torch.empty(num_heads, 2 * max_distance + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """All biases become 0, as at the start."""
        nn.init.zeros_(self.bias)

    def forward(
        self, query: Float[Tensor, "*batch heads n_q d_k"], key: Float[Tensor, "*batch heads n_k d_k"]
    ) -> Float[Tensor, "*batch heads n_q n_k"]:
        """``(..., num_heads, n_q, d_k)`` and ``(..., num_heads, n_k, d_k)`` to scores."""
        _check(query, key, self.num_heads)
        expect.same_kind(bias=self.bias, query=query)
        distance = _distance(query.shape[-2], key.shape[-2], query.device)
        index = distance.clamp(-self.max_distance, self.max_distance) + self.max_distance
        return _scores(query, key) + self.bias[:, index]

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        return f"num_heads={self.num_heads}, max_distance={self.max_distance}"


class AlibiScore(nn.Module):
    """Scaled dot product minus a fixed slope times the distance; no parameters.

    ``scores[h, i, j] = query[h, i] · key[h, j] / sqrt(d_k) + bias[h, i, j]`` with ``alibi_bias``.

    Args:
        num_heads: how many heads the scores have.

    Source: Press et al. 2022, section 3.

    >>> AlibiScore(num_heads=3)(torch.ones(2, 3, 5, 4), torch.ones(2, 3, 7, 4)).shape
    torch.Size([2, 3, 5, 7])
    """

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = expect.whole_number("num_heads", num_heads)

    def forward(
        self, query: Float[Tensor, "*batch heads n_q d_k"], key: Float[Tensor, "*batch heads n_k d_k"]
    ) -> Float[Tensor, "*batch heads n_q n_k"]:
        """``(..., num_heads, n_q, d_k)`` and ``(..., num_heads, n_k, d_k)`` to scores."""
        _check(query, key, self.num_heads)
        scores = _scores(query, key)
        n_q, n_k = scores.shape[-2:]
        return scores + alibi_bias(self.num_heads, n_q, n_k, dtype=scores.dtype, device=scores.device)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        return f"num_heads={self.num_heads}"


class RotaryScore(nn.Module):
    """Scaled dot product of queries and keys that ``Rotary`` has turned; no parameters.

    ``scores[i, j] = R(i) query[i] · R(j) key[j] / sqrt(d_k)``. As ``MultiHeadAttention(score=RotaryScore())``
    it gives what ``transform=Rotary()`` gives; only the latter can use the fused kernel.

    Args:
        options: ``base``, ``layout``, ``frequencies`` and ``attention_factor``, as in ``Rotary``.

    Source: Su et al. 2021, section 3.2.2.

    >>> RotaryScore()(torch.ones(2, 3, 5, 4), torch.ones(2, 3, 7, 4)).shape
    torch.Size([2, 3, 5, 7])
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.rotary = Rotary(**options)

    def forward(
        self, query: Float[Tensor, "*#batch n_q d_k"], key: Float[Tensor, "*#batch n_k d_k"]
    ) -> Float[Tensor, "*batch n_q n_k"]:
        """``(..., n_q, d_k)`` and ``(..., n_k, d_k)`` to ``(..., n_q, n_k)``."""
        expect.query_and_key(query, key)
        return _scores(*self.rotary(query, key))


class SoftcappedScore(nn.Module):
    """Scaled dot product that stays between ``-cap`` and ``cap``; no parameters.

    ``scores = cap * tanh(s / cap)`` with ``s[i, j] = query[i] · key[j] / sqrt(d_k)``. Scores that are small
    compared with ``cap`` hardly change.

    Args:
        cap: the limit, above 0.

    Source: Gemma Team 2024, "Gemma 2: Improving Open Language Models at a Practical Size", section 2.

    >>> SoftcappedScore(50.0)(torch.full((1, 1, 4), 1e3), torch.ones(1, 1, 4))
    tensor([[[50.]]])
    """

    def __init__(self, cap: int | float) -> None:
        super().__init__()
        self.cap = _above("cap", cap, 0)

    def forward(
        self, query: Float[Tensor, "*#batch n_q d_k"], key: Float[Tensor, "*#batch n_k d_k"]
    ) -> Float[Tensor, "*batch n_q n_k"]:
        """``(..., n_q, d_k)`` and ``(..., n_k, d_k)`` to ``(..., n_q, n_k)``."""
        return self.cap * torch.tanh(scaled_dot_product_scores(query, key) / self.cap)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        return f"cap={self.cap}"


class QueryKeyNorm(nn.Module):
    """A transform that gives all queries one length, and all keys another, for each head.

    ``query`` becomes ``gain * query / rms(query)`` with ``rms(x) = sqrt(mean(x ** 2) + eps)`` over the
    ``d_k`` numbers of a head, and ``key`` changes in the same way with a gain of its own. A gain, ``(d_k,)``,
    is learned, the same in all heads, and starts at 1: then no score is above ``sqrt(d_k)``.

    Args:
        d_k: the width of a head.
        eps: keeps the division finite.

    Source: Henry et al. 2020, "Query-Key Normalization for Transformers" (lengths of 1, and one learned
    factor of the scores in place of ``1 / sqrt(d_k)``); ``q_norm`` and ``k_norm`` in ``transformers``,
    ``models/qwen3/modeling_qwen3.py`` (this form).

    >>> query, key = QueryKeyNorm(d_k=4)(torch.full((1, 2, 4), 9.0), torch.ones(1, 3, 4))
    >>> query[0, 0], key.shape
    (tensor([1., 1., 1., 1.], grad_fn=<SelectBackward0>), torch.Size([1, 3, 4]))
    """

    def __init__(self, d_k: int, *, eps: float = 1e-6) -> None:
        super().__init__()
        self.d_k = d_k = expect.whole_number("d_k", d_k)
        if expect.real_number("eps", eps) < 0:
            expect.fail(ValueError, "eps", "at least 0", eps)
        self.query_norm = nn.RMSNorm(d_k, eps=eps)
        self.key_norm = nn.RMSNorm(d_k, eps=eps)

    def forward(
        self, query: Float[Tensor, "*batch heads n_q d_k"], key: Float[Tensor, "*batch kv_heads n_k d_k"]
    ) -> tuple[Float[Tensor, "*batch heads n_q d_k"], Float[Tensor, "*batch kv_heads n_k d_k"]]:
        """``(..., heads, n_q, d_k)`` and ``(..., kv_heads, n_k, d_k)`` to the same shapes."""
        expect.same_width(query, key)
        expect.width("query", query, "d_k", self.d_k)
        return self.query_norm(query), self.key_norm(key)


class TransformSequence(nn.Sequential):
    """Several transforms of queries and keys as one: the first is applied first.

    >>> both = TransformSequence(QueryKeyNorm(4), Rotary())
    >>> query, key = both(torch.ones(2, 3, 5, 4), torch.ones(2, 1, 5, 4))
    >>> query.shape, key.shape
    (torch.Size([2, 3, 5, 4]), torch.Size([2, 1, 5, 4]))
    """

    def forward(
        self, query: Float[Tensor, "*batch heads n_q d_k"], key: Float[Tensor, "*batch kv_heads n_k d_k"]
    ) -> tuple[Float[Tensor, "*batch heads n_q d_k"], Float[Tensor, "*batch kv_heads n_k d_k"]]:
        """``(..., heads, n_q, d_k)`` and ``(..., kv_heads, n_k, d_k)`` to the same shapes."""
        for transform in self:
            query, key = transform(query, key)
        return query, key


def _check(query: Tensor, key: Tensor, num_heads: int) -> None:
    """Both are split into ``num_heads`` heads."""
    expect.query_and_key(query, key)
    for name, x in (("query", query), ("key", key)):
        if x.ndim < 3 or x.shape[-3] != num_heads:
            expected = f"shape (..., num_heads = {num_heads}, n, d_k)"
            hint = "Was it split into heads, and into as many?"
            expect.fail(ValueError, name, expected, expect.shape(x.shape), hint)
