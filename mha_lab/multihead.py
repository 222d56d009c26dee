"""Attention as modules with learned projections: one head, and many.

Source: Vaswani et al. 2017, section 3.2.2.
"""

import copy
import math
import weakref
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha_lab import _expect as expect
from mha_lab.attention import _attend
from mha_lab.heads import _merge_heads, _split_heads

ScoreFunction = Callable[
    [Float[Tensor, "batch heads n_q d_k"], Float[Tensor, "batch heads n_k d_k"]],
    Float[Tensor, "batch heads n_q n_k"],
]
Transform = Callable[
    [Float[Tensor, "batch heads n_q d_k"], Float[Tensor, "batch kv_heads n_k d_k"]],
    tuple[Float[Tensor, "batch heads n_q d_k"], Float[Tensor, "batch kv_heads n_k d_k"]],
]
Take = Callable[[Tensor], Tensor]


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
            if isinstance(mask, Tensor) and mask.ndim == x.ndim + 1 and mask.shape[-3] == 1:
                mask = mask.squeeze(-3)
            expect.mask_for(mask, (*x.shape[:-1], context.shape[-2]), x.device)
        query, key, value = self.q_proj(x), self.k_proj(context), self.v_proj(context)
        return _attend(query, key, value, mask, 1 / math.sqrt(self.d_k))


Kept = TypeVar("Kept", bound=tuple)


def savable(cache: type[Kept]) -> type[Kept]:
    """Caches of this class can be pickled: a file cannot refer to a layer, so there ``layer`` is ``None``."""

    def without_layer(self: Kept) -> tuple[type[Kept], tuple]:
        return cache, tuple(None if isinstance(part, weakref.ref) else part for part in self)

    cache.__reduce__ = without_layer
    cache.__copy__ = lambda self: self
    cache.__deepcopy__ = lambda self, memo: cache._make(copy.deepcopy(part, memo) for part in self)
    return cache


@savable
class Cache(NamedTuple):
    """What one layer keeps of a text: keys before any ``transform``, values, and how many tokens it has read.

    ``key`` is ``(batch, num_kv_heads, n, d_k)`` and ``value`` ``(batch, num_kv_heads, n, d_v)``. ``n`` is
    ``length``, or ``min(length, window)`` in a layer with a window: there the oldest token leaves when a new
    one comes ("rolling").

    ``layer()`` is the layer that made it, and ``window`` is the window that this layer had. The reference is
    weak: a cache does not keep its layer alive, and a copy of the cache belongs to the same layer. A cache
    from a file (``pickle``, ``torch.save``) has ``layer = None``: every layer of its sizes takes it.

    ``_replace`` makes a cache of other tensors: samples chosen anew for a beam search, or the first tokens of
    a layer without a window, to go back in the text.

    >>> _, cache = MultiHeadAttention(d_model=6, num_heads=3).extend(torch.ones(2, 5, 6))
    >>> chosen = torch.tensor([1, 1, 0])
    >>> cache._replace(key=cache.key[chosen], value=cache.value[chosen]).key.shape
    torch.Size([3, 3, 5, 2])
    >>> cache._replace(key=cache.key[..., :4, :], value=cache.value[..., :4, :], length=4).key.shape
    torch.Size([2, 3, 4, 2])
    """

    key: Tensor
    value: Tensor
    length: int
    layer: weakref.ref[nn.Module] | None
    window: int | None


class MultiHeadAttention(nn.Module):
    """Several heads side by side, each with its own projections, mixed by one output projection.

    ``output = Concat(head_1, ..., head_h) W_o`` with
    ``head_i = attention(query W_q[i], key W_k[i], value W_v[i])``. The query projections of all
    heads are column blocks of one wide ``Linear``, and so are those of keys and of values;
    ``split_heads`` separates the heads. With the default widths, the number of parameters does not depend
    on ``num_heads``.

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
            ``(batch, num_heads, n, d_k)``, applied before the scores, such as ``positions.Rotary()``.
            It works with all other options: the fused kernel, a ``score``, a cache of keys.
        score: a callable ``(query, key) -> scores`` on the same tensors, used in place of the scaled
            dot product: ``AdditiveScore``, ``RelativePositionBias``, ``AlibiScore``. It gets the vectors of
            all queries and keys, and returns all scores, ``(batch, num_heads, n_q, n_k)``. (PyTorch's
            ``flex_attention`` takes a ``score_mod(score, batch, head, q_idx, k_idx)`` instead: it gets
            one scaled dot product and its indices, and returns one score.)
        window: a query sees only the last ``window`` keys up to its own position, as in
            ``sliding_window_mask``; ``None`` means all keys.
        sinks: whether each head learns the score of one more key, whose value is zero, so that a query can
            attend to none of the others: ``weights[i, j] = exp(s[i, j]) / (exp(sink) + sum(exp(s[i])))``.
        gate: whether each head's output is multiplied by ``sigmoid(query W_g)`` before ``out_proj``.
        batch_first: ``True`` means inputs ``(batch, n, width)``; ``False`` means
            ``(n, batch, width)``. The weights are ``(batch, num_heads, n_q, n_k)`` either way.
        device, dtype: of the parameters, and so of the inputs; ``None`` means PyTorch's defaults.

    A ``transform`` or ``score`` that is a module is registered and trained with the layer. At the start,
    ``q_proj``, ``k_proj`` and ``v_proj`` are Xavier-uniform, each for itself, and the biases of the four
    projections are 0. ``torch.nn.MultiheadAttention`` does the same if ``kdim`` or ``vdim`` differs from its
    width; else it draws the three as one matrix, which makes their numbers smaller by ``sqrt(2)``.

    Source: Vaswani et al. 2017, section 3.2.2; Shazeer 2019, section 3 (one key and value head), and Ainslie
    et al. 2023, section 2.2 (groups); Qiu et al. 2025, "Gated Attention for Large Language Models:
    Non-linearity, Sparsity, and Attention-Sink-Free", section 2.2 (the gate); OpenAI 2025, "gpt-oss-120b &
    gpt-oss-20b Model Card", section 2.2, and ``models/gpt_oss/modeling_gpt_oss.py`` in ``transformers`` (the
    sinks).

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
        window: int | None = None,
        sinks: bool = False,
        gate: bool = False,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.d_model = d_model = expect.whole_number("d_model", d_model)
        self.num_heads = num_heads = expect.whole_number("num_heads", num_heads)
        if d_k is None or d_v is None:
            expect.divides("num_heads", num_heads, "d_model", d_model)
        self.d_k = d_model // num_heads if d_k is None else expect.whole_number("d_k", d_k)
        self.d_v = d_model // num_heads if d_v is None else expect.whole_number("d_v", d_v)
        kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.num_kv_heads = expect.whole_number("num_kv_heads", kv_heads)
        expect.divides("num_kv_heads", self.num_kv_heads, "num_heads", num_heads)
        self.window = None if window is None else expect.whole_number("window", window)
        self.qdim = d_model if qdim is None else expect.whole_number("qdim", qdim)
        self.kdim = d_model if kdim is None else expect.whole_number("kdim", kdim)
        self.vdim = d_model if vdim is None else expect.whole_number("vdim", vdim)
        self.dropout = expect.probability("dropout", dropout)
        for name, value in (("bias", bias), ("sinks", sinks), ("gate", gate), ("batch_first", batch_first)):
            expect.flag(name, value)
        expect.function("transform", transform, "(query, key) -> (query, key)")
        expect.function("score", score, "(query, key) -> scores")
        scored = getattr(score, "num_heads", num_heads)
        if scored != num_heads:
            expect.fail(ValueError, "score", f"one with num_heads = {num_heads}, as the layer", scored)
        self.transform = transform
        self.score = score
        self.batch_first = batch_first
        if dtype is not None:
            expect.float_dtype("dtype", dtype)
        made = {"device": device, "dtype": dtype}
        self.q_proj = nn.Linear(self.qdim, num_heads * self.d_k, bias=bias, **made)
        self.k_proj = nn.Linear(self.kdim, self.num_kv_heads * self.d_k, bias=bias, **made)
        self.v_proj = nn.Linear(self.vdim, self.num_kv_heads * self.d_v, bias=bias, **made)
        self.out_proj = nn.Linear(num_heads * self.d_v, d_model, bias=bias, **made)
        self.gate_proj = nn.Linear(self.qdim, num_heads * self.d_v, bias=bias, **made) if gate else None
        self.sinks = nn.Parameter(torch.empty(num_heads, **made)) if sinks else None
        self._start()

    def reset_parameters(self) -> None:
        """Draw all weights anew, as at the start; a ``transform`` and a ``score`` stay as they are.

        Raises:
            TypeError: a projection is an adapter, quantized, or has a weight that is computed.
        """
        names = [*self._projections] + ["gate_proj"] * (self.gate_proj is not None)
        for name in names:
            expect.own_weight(name, getattr(self, name))
        for name in names[3:]:
            getattr(self, name).reset_parameters()
        self._start()

    def _start(self) -> None:
        """What ``torch.nn.Linear`` starts in another way."""
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight)
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            if projection.bias is not None:
                nn.init.zeros_(projection.bias)
        if self.sinks is not None:
            nn.init.zeros_(self.sinks)

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
                mask, with ``is_causal``, and with a ``window``. A mask ``(n_q, n_k)`` is itself that large,
                and for gradients its numbers are kept, once for all heads. With a ``score`` of your own, the
                weights are computed anyway, and so they are in forward mode (``torch.func.jvp``); on a CPU
                PyTorch stores them with ``dropout`` in training, and has no second derivatives.
            is_causal: whether a query sees no later key, as with ``causal_mask(n_q, n_k)``, which then need
                not be made; together with a ``mask``, a query sees what both allow.

        Returns:
            ``(output, weights)``: ``output`` has the axes of ``query`` and is ``d_model`` wide; ``weights``
            are ``(batch, num_heads, n_q, n_k)``, after dropout and never averaged over heads, or
            ``None`` if not needed.

        In ``float16``, a score above 65504 is infinite where the weights are stored, and its row becomes NaN.
        The fused kernel computes scores in ``float32``.
        """
        expect.flag("need_weights", need_weights)
        expect.flag("is_causal", is_causal)
        query, key, value = self._inputs(query, key, value, mask)
        heads, weights = self.attend(*self.project(query, key, value), mask, need_weights, is_causal)
        return self._output(heads, query), weights

    def extend(
        self,
        x: Float[Tensor, "*axes qdim"],
        cache: Cache | None = None,
        mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "*axes d_model"], Cache]:
        """Causal self-attention of new tokens to all tokens so far, whose keys and values are kept.

        ``K = [K_cache; split(x W_k)]`` and ``V = [V_cache; split(x W_v)]``; only the new tokens have queries.
        A token's key and value depend on that token alone, and under the causal mask no later token changes
        an earlier output, so the result equals the last ``n_new`` rows of ``forward`` for the whole text with
        a causal mask. The weights are not computed, as with ``need_weights=False``.

        Args:
            x: ``(batch, n_new, qdim)``, the new tokens, or in another form that ``forward`` takes.
            cache: the cache that an earlier call of this layer returned; ``None`` means that there are no
                earlier tokens.
            mask: hides keys for other reasons than their order, such as the padding before shorter prompts of
                a batch; as in ``forward``, with ``n_k = cache.length + n_new``, for all tokens so far.

        Returns:
            ``(output, cache)``: ``output`` has the axes of ``x`` and is ``d_model`` wide; the cache has keys
            and values of all tokens so far, or of the last ``window``. The one passed in does not change.

        Raises:
            TypeError: ``x``, ``cache`` or ``mask`` has a wrong type, or not all have one dtype.
            ValueError: ``x`` has a wrong rank or width, or the cache is of another batch, layer or window; or
                the layer has keys or values of another width than queries; or the mask does not broadcast.

        Source: Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need", section 2.4
        (attention one token at a time, with keys and values kept); Jiang et al. 2023, "Mistral 7B", section 2
        (the rolling cache).

        >>> layer = MultiHeadAttention(d_model=6, num_heads=3)
        >>> output, cache = layer.extend(torch.ones(2, 5, 6))
        >>> output, cache = layer.extend(torch.ones(2, 1, 6), cache)
        >>> output.shape, cache.key.shape
        (torch.Size([2, 1, 6]), torch.Size([2, 3, 6, 2]))
        """
        x, _, _ = self._inputs(x, name="x")
        kept, length = (), x.shape[-2]
        if cache is not None:
            _expect_made_by(self, "cache", cache)
            n = cache.length if self.window is None else min(cache.length, self.window)
            _expect_kept(self, x, *cache[:2], n)
            kept, length = cache[:2], length + cache.length
        if mask is not None:
            expect.mask_for(mask, (*x.shape[:-2], self.num_heads, x.shape[-2], length), x.device)
        if self.window is not None and kept and kept[0].shape[-2] == self.window:  # no query sees the oldest
            kept = [part[..., 1:, :] for part in kept]
        output, *kept = self._extend(x, *kept, mask=mask)
        if self.window is not None and kept[0].shape[-2] > self.window:  # a view would keep the others alive
            kept = [part[..., -self.window :, :].clone() for part in kept]
        return output, Cache(*kept, length, weakref.ref(self), self.window)

    def _extend(self, x: Tensor, *kept: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """The output for new tokens, and keys and values: those kept before, if any, and the new ones."""
        query, *new = self.project(x, x, x)
        key, value = (torch.cat(both, dim=-2) for both in zip(kept, new, strict=True)) if kept else new
        n_new, n = query.shape[-2], key.shape[-2]
        if mask is not None and mask.ndim and mask.shape[-1] > 1:
            mask = mask[..., -n:]
        is_causal = n_new > 1  # one token may see everything
        heads, _ = self.attend(query, key, value, mask, need_weights=False, is_causal=is_causal)
        return self._output(heads, x), key, value

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
            shapes = query.shape, key.shape
            query, key = expect.transformed(self.transform(query, key), *shapes)
        return _attend(
            query,
            key,
            value,
            mask,
            1 / math.sqrt(self.d_k),
            dropout_p=self.dropout if self.training else 0.0,
            score=self.score,
            sinks=self.sinks,
            need_weights=need_weights,
            repeats=self.num_heads // self.num_kv_heads,
            is_causal=is_causal,
            window=self.window,
        )

    def _output(self, heads: Tensor, query: Tensor) -> Tensor:
        """``Concat(heads) W_o``, gated if the layer has a gate, in the caller's order of axes."""
        concat = _merge_heads(heads)
        if self.gate_proj is not None:
            concat = concat * torch.sigmoid(self.gate_proj(query))
        return self._order(self.out_proj(concat))

    def _inputs(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        name: str = "query",
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, checked before anything is computed, and with the batch first.

        Each tensor is checked once, even if it is all three; the caller knows the query as ``name``.
        """
        key = query if key is None else key
        value = key if value is None else value
        sequence_axis, batch_axis, order = (-2, 0, "batch, n") if self.batch_first else (0, 1, "n, batch")
        inputs = (
            (name, query, "qdim", False),
            ("key", key, "kdim", key is query),
            ("value", value, "vdim", value is key),
        )
        for name, x, width, checked in inputs:
            if not checked:
                expect.tensor(name, x, f"({order}, {width}) or (n, {width})", min_rank=2, max_rank=3)
                expect.floating(name, x, embedded=True)
                expect.sequence(name, x, sequence_axis)
            elif name == "value" and self.vdim != self.kdim:
                expected = f"a tensor of width vdim = {self.vdim}"
                expect.fail(
                    ValueError, name, expected, "none, which means value = key", "Pass value as well."
                )
            expect.width(name, x, width, getattr(self, width))
        tensors = {name: x for name, x, _, checked in inputs if not checked}
        expect.fits("q_proj", self.q_proj, **tensors)
        if len(tensors) > 1:
            expect.same_batch(batch_axis, **tensors)
        n_query, n_key = query.shape[sequence_axis], key.shape[sequence_axis]
        if value.shape[sequence_axis] != n_key:
            got, expected = expect.shape(value.shape), f"as many tokens as key, {n_key}"
            expect.fail(ValueError, "value", expected, got, "Do key and value come from one sequence?")
        if mask is not None:
            batch = () if query.ndim == 2 else (query.shape[batch_axis],)
            expect.mask_for(mask, (*batch, self.num_heads, n_query, n_key), query.device)
        return self._order(query), self._order(key), self._order(value)

    def _order(self, x: Tensor) -> Tensor:
        """From the caller's order of axes to batch first, or back."""
        return x if self.batch_first or x.ndim == 2 else x.transpose(0, 1)

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> "MultiHeadAttention":
        """A copy of PyTorch's layer: the same weights, dtype, device, training mode and frozen parameters.

        Its masks are different: in PyTorch's boolean masks, ``True`` = hidden; convert them with
        ``mask_from_blocked``.

        Raises:
            TypeError: ``module`` is not a ``torch.nn.MultiheadAttention``.
            ValueError: it was made with ``add_bias_kv`` or ``add_zero_attn``, which add a key
                that belongs to no token.

        >>> MultiHeadAttention.from_torch(nn.MultiheadAttention(6, 3)).num_heads
        3
        """
        if not isinstance(module, nn.MultiheadAttention):
            expect.fail(TypeError, "module", "a torch.nn.MultiheadAttention", type(module).__name__)
        expect.linear("module.out_proj", module.out_proj)
        if module.bias_k is not None or module.add_zero_attn:
            expected = "a layer without add_bias_kv and add_zero_attn"
            expect.fail(ValueError, "module", expected, "one that adds a key that belongs to no token")
        layer = cls(
            module.embed_dim,
            module.num_heads,
            kdim=module.kdim,
            vdim=module.vdim,
            bias=module.in_proj_bias is not None,
            dropout=module.dropout,
            batch_first=module.batch_first,
        ).to(module.out_proj.weight)
        _copy(_parts(module), _parts(layer))
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_(_of_torch(module, name).requires_grad)
        return layer.train(module.training)

    def to_torch(self) -> nn.MultiheadAttention:
        """PyTorch's layer with a copy of these weights: the inverse of ``from_torch``.

        Raises:
            TypeError: a projection is no ``torch.nn.Linear``, but an adapter, or quantized.
            ValueError: PyTorch's layer has no ``score``, ``transform``, ``window``, ``sinks`` or ``gate``, no
                ``qdim`` other than ``d_model``, no heads of a width other than ``d_model // num_heads``, as
                many key and value heads as query heads, and four biases or none.

        >>> MultiHeadAttention(6, 3).to_torch().num_heads
        3
        """
        d_k = self.d_model // self.num_heads
        wanted = {"qdim": self.d_model, "d_k": d_k, "d_v": d_k, "num_kv_heads": self.num_heads}
        wanted |= dict.fromkeys(("score", "transform", "window", "sinks", "gate_proj"))
        for name, value in wanted.items():
            if getattr(self, name) != value:
                got = repr(getattr(self, name))
                expect.fail(ValueError, name, f"{value}, the only value in PyTorch's layer", got)
        projections = {name: self.get_submodule(name) for name in self._projections}
        for name, projection in projections.items():
            expect.linear(name, projection)
        biased = [name for name, projection in projections.items() if projection.bias is not None]
        if len(biased) not in (0, len(projections)):
            expect.fail(ValueError, "bias", "one in each of the four projections, or in none", f"{biased}")
        module = nn.MultiheadAttention(
            self.d_model,
            self.num_heads,
            dropout=self.dropout,
            bias=bool(biased),
            kdim=self.kdim,
            vdim=self.vdim,
            batch_first=self.batch_first,
        ).to(self.out_proj.weight)
        _copy(_parts(self), _parts(module))
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        for name, projection in projections.items():
            for kind in ("weight", "bias") if biased else ("weight",):
                if getattr(projection, kind).requires_grad:
                    _of_torch(module, f"{name}.{kind}").requires_grad_()
        return module.train(self.training)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        widths = f"d_k={self.d_k}" + (f", d_v={self.d_v}" if self.d_v != self.d_k else "")
        kv = f", num_kv_heads={self.num_kv_heads}" if self.num_kv_heads != self.num_heads else ""
        more = (f", window={self.window}" if self.window else "") + (
            ", sinks" if self.sinks is not None else ""
        )
        return (
            f"d_model={self.d_model}, num_heads={self.num_heads}{kv}, {widths}, dropout={self.dropout}{more}"
        )


def _parts(layer: nn.Module, take: Take = lambda p: p) -> list[Tensor]:
    """The weights of query, key, value and output, then their biases, if any.

    ``take`` gets each parameter. One that holds query, key and value is cut into three afterwards.
    """
    if isinstance(layer, nn.MultiheadAttention):
        inputs = layer.in_proj_weight, layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight
        weights = *(p for p in inputs if p is not None), layer.out_proj.weight
        biases = layer.in_proj_bias, layer.out_proj.bias
    else:
        projections = [layer.get_submodule(name) for name in layer._projections]
        weights, biases = ([getattr(one, kind) for one in projections] for kind in ("weight", "bias"))
    parts = []
    for *inputs, output in (weights, biases):
        if output is not None:
            parts += [part for p in inputs for part in take(p).chunk(3 // len(inputs))]
            parts.append(take(output))
    return parts


def _of_torch(module: nn.MultiheadAttention, name: str) -> nn.Parameter:
    """PyTorch's parameter that holds what ``name`` is in our layer."""
    projection, kind = name.split(".")
    if projection == "out_proj":
        return getattr(module.out_proj, kind)
    packed = getattr(module, f"in_proj_{kind}")
    return getattr(module, f"{projection}_{kind}") if packed is None else packed


@torch.no_grad()
def _copy(sources: list[Tensor], targets: list[Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)


def _expect_made_by(
    layer: MultiHeadAttention, name: str, cache: object, layers: Sequence[MultiHeadAttention] = ()
) -> None:
    """``layer`` made ``cache``, and has the same window; ``layers`` can be named by their numbers."""
    if not isinstance(cache, Cache):
        expect.fail(TypeError, name, "the Cache that an earlier call returned", type(cache).__name__)
    made_by = layer if cache.layer is None else cache.layer()
    if made_by is layer and cache.window == layer.window:
        return
    names = {id(layer): "this layer"} | {id(one): f"layer {i}" for i, one in enumerate(layers)}
    if made_by is layer:
        hint = "Was the layer's window changed?"
    elif id(made_by) in names:
        hint = "Are the caches in the order of the layers?"
    else:
        hint = "Was it made by another model, or by a copy of this one?"
    wanted = f"a cache of {names[id(layer)]}, with window = {layer.window}"
    got = f"one of {names.get(id(made_by), 'another layer')}, with window = {cache.window}"
    expect.fail(ValueError, name, wanted, got, hint)


def _expect_kept(layer: MultiHeadAttention, x: Tensor, key: Tensor, value: Tensor, n: int) -> None:
    """``key`` and ``value`` are ``n`` tokens that ``layer`` kept, for the batch of ``x`` and of its dtype."""
    wanted = [(*x.shape[:-2], layer.num_kv_heads, n, width) for width in (layer.d_k, layer.d_v)]
    if [tuple(key.shape), tuple(value.shape)] != wanted:
        got = f"{expect.shape(key.shape)} and {expect.shape(value.shape)}"
        hint = "Does the cache belong to this batch?"
        expect.fail(ValueError, "cache", f"shapes {wanted[0]} and {wanted[1]}", got, hint)
    expect.same_kind(**{"x": x, "cache.key": key, "cache.value": value})
