"""Attention as modules with learned projections: one head, and many.

Source: Vaswani et al. 2017, section 3.2.2.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha_lab import _expect as expect
from mha_lab import _moved
from mha_lab._convert import Converts
from mha_lab._inputs import batch_first_inputs, expect_options, layer_sizes
from mha_lab.attention import _attend
from mha_lab.cache import Cache as Cache  # its old place, for files and for one release
from mha_lab.cache import _Extends
from mha_lab.heads import _merge_heads, _split_heads
from mha_lab.masks import MaskFunction

ScoreFunction = Callable[
    [Float[Tensor, "batch heads n_q d_k"], Float[Tensor, "batch heads n_k d_k"]],
    Float[Tensor, "batch heads n_q n_k"],
]
Transform = Callable[
    [Float[Tensor, "batch heads n_q d_k"], Float[Tensor, "batch kv_heads n_k d_k"]],
    tuple[Float[Tensor, "batch heads n_q d_k"], Float[Tensor, "batch kv_heads n_k d_k"]],
]


class SingleHeadAttention(nn.Module):
    """One head: project to queries, keys and values, then attend.

    ``output, weights = scaled_dot_product_attention(x W_q, context W_k, context W_v, mask)``.

    Args:
        d_model: the width of the inputs.
        d_k: the width of queries and keys; ``None`` means ``d_model``.
        d_v: the width of values and output; ``None`` means ``d_k``.
        bias: whether the projections add a bias.

    Source: Vaswani et al. 2017, section 3.2.1.

    >>> output, weights = SingleHeadAttention(d_model=4, d_k=3, d_v=2)(torch.ones(7, 5, 4))
    >>> output.shape, weights.shape
    (torch.Size([7, 5, 2]), torch.Size([7, 5, 5]))
    """

    def __init__(
        self, d_model: int, d_k: int | None = None, d_v: int | None = None, *, bias: bool = False
    ) -> None:
        super().__init__()
        self.d_model = d_model = expect.whole_number("d_model", d_model)
        self.d_k = d_model if d_k is None else expect.whole_number("d_k", d_k)
        self.d_v = self.d_k if d_v is None else expect.whole_number("d_v", d_v)
        expect.flag("bias", bias)
        self.q_proj = nn.Linear(d_model, self.d_k, bias=bias)
        self.k_proj = nn.Linear(d_model, self.d_k, bias=bias)
        self.v_proj = nn.Linear(d_model, self.d_v, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "*batch n_q d_model"],
        context: Float[Tensor, "*batch n_k d_model"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "*batch n_q d_v"], Float[Tensor, "*batch n_q n_k"]]:
        """Queries from ``x``, keys and values from ``context``.

        Args:
            x: ``(batch, n_q, d_model)``, or ``(n_q, d_model)`` without a batch.
            context: ``(batch, n_k, d_model)``; ``None`` means ``x``: self-attention.
            mask: boolean, ``True`` = may attend, broadcastable to ``(batch, n_q, n_k)``. A mask
                with a heads axis of size 1, as ``padding_mask`` makes it, is accepted too.

        Returns:
            ``(output, weights)``: ``(batch, n_q, d_v)`` and ``(batch, n_q, n_k)``.
        """
        context = x if context is None else context
        for name, value in (("x", x), ("context", context)):
            expect.tensor(name, value, "(batch, n, d_model) or (n, d_model)", min_rank=2, max_rank=3)
            expect.floating(name, value, embedded=True)
            expect.sequence(name, value)
            expect.width(name, value, "d_model", self.d_model)
            expect.fits("q_proj", self.q_proj, **{name: value})
        expect.same_batch(x=x, context=context)
        if mask is not None:
            if isinstance(mask, Tensor) and mask.ndim == x.ndim + 1:
                mask = mask.squeeze(-3)
            expect.mask_for(mask, (*x.shape[:-1], context.shape[-2]), x.device)
        query, key, value = self.q_proj(x), self.k_proj(context), self.v_proj(context)
        return _attend(query, key, value, mask, 1 / math.sqrt(self.d_k))


@_moved.old_options  # the options and files of the release before
class MultiHeadAttention(Converts, _Extends, nn.Module):
    """Several heads side by side, each with its own projections, mixed by one output projection.

    ``output = Concat(head_1, ..., head_h) W_o`` with
    ``head_i = attention(query W_q[i], key W_k[i], value W_v[i])`` and
    ``attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V``, which ``mha_lab.attention`` computes. The query
    projections of all heads are column blocks of one wide ``Linear``, and so are those of keys and of
    values; ``split_heads`` separates the heads. With the default widths, the number of parameters does not
    depend on ``num_heads``.

    Args:
        d_model: the width of the output.
        num_heads: how many heads.
        d_k: the width of a head's queries and keys; ``None`` means ``d_model // num_heads``, and
            ``num_heads`` must divide ``d_model``.
        d_v: the width of a head's values; ``None`` as for ``d_k``.
        num_kv_heads: how many heads keys and values have; it divides ``num_heads``, and ``None`` means
            ``num_heads``. Query head ``h`` uses key and value head ``h // (num_heads // num_kv_heads)``: 1 is
            multi-query attention, a number in between grouped-query attention.
        qdim, kdim, vdim: the widths of query, key and value; ``None`` means ``d_model``.
        bias: whether the four projections add a bias.
        dropout: the probability of dropping a weight, in training only.
        transform: a callable ``(query, key) -> (query, key)`` on tensors split into heads,
            ``(batch, num_heads, n_q, d_k)`` and ``(batch, num_kv_heads, n_k, d_k)``, applied before the
            scores, such as ``positions.Rotary()``. With a cache, there are more keys than queries: the
            queries are the last tokens. It works with all other options: the fused kernel, a ``score``, a
            cache. Another scale is one, too: ``lambda q, k: (2 * q, k)`` makes all scores twice as large.
        score: a callable ``(query, key) -> scores``, used in place of the scaled dot product, and not scaled
            again: ``AdditiveScore``, ``RelativePositionBias``, ``AlibiScore``. It gets the vectors of all
            queries and keys, ``num_heads`` heads of both, and returns all scores,
            ``(batch, num_heads, n_q, n_k)``. (PyTorch's
            ``flex_attention`` takes a ``score_mod(score, batch, head, q_idx, k_idx)`` instead: it gets
            one scaled dot product and its indices, and returns one score.)
        mask: a callable ``(n_query, n_key, *, device) -> mask``, for every call of the layer, such as
            ``SlidingWindow(3)``: a query sees what it and the mask of the call allow. A window is never made
            as a whole for the fused kernel, and lets the cache drop older keys.
        batch_first: ``True`` means inputs ``(batch, n, width)``; ``False`` means
            ``(n, batch, width)``. The weights are ``(batch, num_heads, n_q, n_k)`` either way.
        device, dtype: of the parameters, and so of the inputs; ``None`` means PyTorch's defaults.

    A ``transform``, ``score`` or ``mask`` that is a module is registered and trained with the layer.

    Source: Vaswani et al. 2017, section 3.2.2; Shazeer 2019, section 3 (one key and value head), and Ainslie
    et al. 2023, section 2.2 (groups).

    >>> output, weights = MultiHeadAttention(d_model=6, num_heads=3)(torch.ones(7, 5, 6))
    >>> output.shape, weights.shape
    (torch.Size([7, 5, 6]), torch.Size([7, 3, 5, 5]))
    """

    _projections = ("q_proj", "k_proj", "v_proj", "out_proj")

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        d_k: int | None = None,
        d_v: int | None = None,
        num_kv_heads: int | None = None,
        qdim: int | None = None,
        kdim: int | None = None,
        vdim: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        transform: Transform | None = None,
        score: ScoreFunction | None = None,
        mask: MaskFunction | None = None,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        sizes = layer_sizes(d_model, num_heads, num_kv_heads, d_k, d_v, qdim, kdim, vdim)
        expect_options(sizes[1], transform, score, mask, dtype, bias=bias, batch_first=batch_first)
        self.d_model, self.num_heads, self.num_kv_heads, self.d_k, self.d_v = sizes[:5]
        self.qdim, self.kdim, self.vdim = sizes[5:]
        self.dropout = expect.probability("dropout", dropout)
        self.batch_first = batch_first
        self.transform, self.score, self.mask = transform, score, mask
        self._make(bias=bias, device=device, dtype=dtype)
        self._start()

    def _make(self, **made: Any) -> None:
        """The four projections; ``made`` is their ``bias``, ``device`` and ``dtype``."""
        self.q_proj = nn.Linear(self.qdim, self.num_heads * self.d_k, **made)
        self.k_proj = nn.Linear(self.kdim, self.num_kv_heads * self.d_k, **made)
        self.v_proj = nn.Linear(self.vdim, self.num_kv_heads * self.d_v, **made)
        self.out_proj = nn.Linear(self.num_heads * self.d_v, self.d_model, **made)

    def forward(
        self,
        query: Float[Tensor, "*query_axes qdim"],
        key: Float[Tensor, "*key_axes kdim"] | None = None,
        value: Float[Tensor, "*key_axes vdim"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Float[Tensor, "*query_axes d_model"], Float[Tensor, "*batch heads n_q n_k"] | None]:
        """Attend with all heads at once.

        Args:
            query: ``(batch, n_q, qdim)``, or ``(n_q, qdim)`` without a batch.
            key: ``(batch, n_k, kdim)``; ``None`` means ``query``: self-attention.
            value: ``(batch, n_k, vdim)``; ``None`` means ``key``.
            mask: boolean, ``True`` = may attend, broadcastable to ``(batch, num_heads, n_q, n_k)``
                even if ``batch_first=False``; three axes are ``(num_heads, n_q, n_k)``, and a mask for each
                sample is ``(batch, 1, n_q, n_k)``. A query that may attend to nothing gets zeros from
                every head, so its output is the bias of ``out_proj``.
            need_weights: ``False`` uses PyTorch's fused attention, which never stores the
                weights: it takes less time, and memory that grows with ``n`` and not with ``n²``, without a
                mask, with ``is_causal``, and with a ``SlidingWindow``. A mask ``(n_q, n_k)`` is itself that
                large, and for gradients its numbers are kept, once for all heads. With a ``score`` of your
                own, the weights are computed anyway, and so they are in forward mode (``torch.func.jvp``); on
                a CPU PyTorch stores them with ``dropout`` in training, and has no second derivatives.
            is_causal: whether a query sees no later key, as with ``causal_mask(n_q, n_k)``, which then need
                not be made; together with a ``mask``, a query sees what both allow.

        Returns:
            ``(output, weights)``: ``output`` has the axes of ``query`` and is ``d_model`` wide; ``weights``
            are ``(batch, num_heads, n_q, n_k)``, after dropout and never averaged over heads, or
            ``None`` if not needed.

        In ``float16``, a score above 65504 is infinite where the weights are stored, and its row becomes NaN.
        The fused kernel computes scores in ``float32``.
        """
        flags = {"need_weights": need_weights, "is_causal": is_causal}
        query, key, value = batch_first_inputs(self, query, key, value, mask, **flags)
        heads, weights = self.attend(*self.project(query, key, value), mask, need_weights, is_causal)
        return self._output(heads, query), weights

    def project(
        self,
        query: Float[Tensor, "*batch n_q qdim"],
        key: Float[Tensor, "*batch n_k kdim"],
        value: Float[Tensor, "*batch n_k vdim"],
    ) -> tuple[
        Float[Tensor, "*batch heads n_q d_k"],
        Float[Tensor, "*batch kv_heads n_k d_k"],
        Float[Tensor, "*batch kv_heads n_k d_v"],
    ]:
        """``split(query W_q)``, ``split(key W_k)``, ``split(value W_v)``; the inputs are not checked."""
        return (
            _split_heads(self.q_proj(query), self.num_heads),
            _split_heads(self.k_proj(key), self.num_kv_heads),
            _split_heads(self.v_proj(value), self.num_kv_heads),
        )

    def attend(
        self,
        query: Float[Tensor, "*batch heads n_q d_k"],
        key: Float[Tensor, "*batch kv_heads n_k d_k"],
        value: Float[Tensor, "*batch kv_heads n_k d_v"],
        mask: Bool[Tensor, "..."] | None,
        need_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Float[Tensor, "*batch heads n_q d_v"], Float[Tensor, "*batch heads n_q n_k"] | None]:
        """All heads at once, between the projections; the inputs are not checked."""
        if self.transform is not None:
            query, key = expect.transformed(self.transform(query, key), query.shape, key.shape)
        return _attend(
            query,
            key,
            value,
            mask,
            1 / math.sqrt(self.d_k),
            dropout_p=self.dropout if self.training else 0.0,
            score=self.score,
            need_weights=need_weights,
            repeats=self.num_heads // self.num_kv_heads,
            is_causal=is_causal,
            place=self.mask,
            **self._more(),
        )

    def _output(self, heads: Tensor, query: Tensor) -> Tensor:
        """``Concat(heads) W_o``, in the caller's order of axes; a subclass may use the ``query``, too."""
        return self._order(self.out_proj(_merge_heads(heads)))

    def _more(self) -> dict[str, Any]:
        """Nothing; ``ModernAttention`` of chapter 13 hands its sinks to ``_attend``."""
        return {}

    def _order(self, x: Tensor) -> Tensor:
        """From the caller's order of axes to batch first, or back."""
        return x if self.batch_first or x.ndim == 2 else x.transpose(0, 1)

    def reset_parameters(self) -> None:
        """Draw all weights anew, as at the start; ``transform``, ``score`` and ``mask`` stay as they are.

        ``q_proj``, ``k_proj`` and ``v_proj`` are Xavier-uniform, each for itself, and the biases of the four
        projections are 0. ``torch.nn.MultiheadAttention`` does the same if ``kdim`` or ``vdim`` differs from
        its width; else it draws the three as one matrix, which makes their numbers smaller by ``sqrt(2)``.

        Raises:
            TypeError: a projection is an adapter, quantized, or has a weight that is computed.
        """
        for name in self._projections:
            expect.own_weight(name, getattr(self, name))
        self.out_proj.reset_parameters()
        self._start()

    def _start(self) -> None:
        """What ``torch.nn.Linear`` starts in another way."""
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight)
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        widths = f"d_k={self.d_k}" + (f", d_v={self.d_v}" if self.d_v != self.d_k else "")
        kv = f", num_kv_heads={self.num_kv_heads}" if self.num_kv_heads != self.num_heads else ""
        more = f", window={self.window}" if self.window else ""
        return (
            f"d_model={self.d_model}, num_heads={self.num_heads}{kv}, {widths}, dropout={self.dropout}{more}"
        )
