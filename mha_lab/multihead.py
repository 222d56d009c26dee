"""Attention as modules with learned projections: one head, and many.

Source: Vaswani et al. 2017, section 3.2.2.
"""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha_lab import _expect as expect
from mha_lab.attention import _attend
from mha_lab.heads import _merge_heads, _split_heads
from mha_lab.masks import sliding_window_mask

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
        self.d_model = expect.whole_number("d_model", d_model)
        self.d_k = d_model if d_k is None else expect.whole_number("d_k", d_k)
        self.d_v = self.d_k if d_v is None else expect.whole_number("d_v", d_v)
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
            expect.floating(name, value)
            expect.sequence(name, value)
            expect.width(name, value, "d_model", self.d_model)
            expect.same_kind(**{"q_proj.weight": self.q_proj.weight, name: value})
        expect.same_batch(x=x, context=context)
        if mask is not None:
            if isinstance(mask, Tensor) and mask.ndim == x.ndim + 1 and mask.shape[-3] == 1:
                mask = mask.squeeze(-3)
            expect.mask_for(mask, (*x.shape[:-1], context.shape[-2]), x.device)
        query, key, value = self.q_proj(x), self.k_proj(context), self.v_proj(context)
        return _attend(query, key, value, mask, 1 / math.sqrt(self.d_k))


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
    ) -> None:
        super().__init__()
        self.d_model = expect.whole_number("d_model", d_model)
        self.num_heads = expect.whole_number("num_heads", num_heads)
        if d_k is None or d_v is None:
            expect.divides("num_heads", num_heads, "d_model", d_model)
        self.d_k = d_model // num_heads if d_k is None else expect.whole_number("d_k", d_k)
        self.d_v = d_model // num_heads if d_v is None else expect.whole_number("d_v", d_v)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        expect.whole_number("num_kv_heads", self.num_kv_heads)
        expect.divides("num_kv_heads", self.num_kv_heads, "num_heads", num_heads)
        self.window = None if window is None else expect.whole_number("window", window)
        self.qdim = d_model if qdim is None else expect.whole_number("qdim", qdim)
        self.kdim = d_model if kdim is None else expect.whole_number("kdim", kdim)
        self.vdim = d_model if vdim is None else expect.whole_number("vdim", vdim)
        self.dropout = expect.probability("dropout", dropout)
        expect.function("transform", transform, "(query, key) -> (query, key)")
        expect.function("score", score, "(query, key) -> scores")
        self.transform = transform
        self.score = score
        self.batch_first = batch_first
        self.q_proj = nn.Linear(self.qdim, num_heads * self.d_k, bias=bias)
        self.k_proj = nn.Linear(self.kdim, self.num_kv_heads * self.d_k, bias=bias)
        self.v_proj = nn.Linear(self.vdim, self.num_kv_heads * self.d_v, bias=bias)
        self.out_proj = nn.Linear(num_heads * self.d_v, d_model, bias=bias)
        self.gate_proj = nn.Linear(self.qdim, num_heads * self.d_v, bias=bias) if gate else None
        self.sinks = nn.Parameter(torch.zeros(num_heads)) if sinks else None
        for projection in (self.q_proj, self.k_proj, self.v_proj):
            nn.init.xavier_uniform_(projection.weight)
        if bias:
            for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
                nn.init.zeros_(projection.bias)

    def forward(
        self,
        query: Float[Tensor, "*query_axes qdim"],
        key: Float[Tensor, "*key_axes kdim"] | None = None,
        value: Float[Tensor, "*key_axes vdim"] | None = None,
        mask: Bool[Tensor, "..."] | None = None,
        *,
        need_weights: bool = True,
    ) -> tuple[Float[Tensor, "*query_axes d_model"], Float[Tensor, "*batch heads n_q n_k"] | None]:
        """Attend with all heads at once.

        Args:
            query: ``(batch, n_q, qdim)``, or ``(n_q, qdim)`` without a batch.
            key: ``(batch, n_k, kdim)``; ``None`` means ``query``: self-attention.
            value: ``(batch, n_k, vdim)``; ``None`` means ``key``.
            mask: boolean, ``True`` = may attend, broadcastable to ``(batch, num_heads, n_q, n_k)``
                even if ``batch_first=False``. A query that may attend to nothing gets zeros from
                every head, so its output is the bias of ``out_proj``.
            need_weights: ``False`` uses PyTorch's fused attention, which never stores the
                weights: it takes less time, and memory that grows with ``n`` and not with ``n²``.
                With a ``score`` of your own, the weights are computed anyway, and on a CPU PyTorch
                stores them with ``dropout`` in training.

        Returns:
            ``(output, weights)``: ``output`` has the axes of ``query`` and is ``d_model`` wide; ``weights``
            are ``(batch, num_heads, n_q, n_k)``, after dropout and never averaged over heads, or
            ``None`` if not needed.
        """
        query, key, value = self._inputs(query, key, value, mask)
        heads, weights = self.attend(*self.project(query, key, value), mask, need_weights)
        return self._order(self.mix(heads, query)), weights

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
    ) -> tuple[Float[Tensor, "*batch heads n_q d_v"], Float[Tensor, "*batch heads n_q n_k"] | None]:
        """All heads at once, between the projections; the inputs are not checked."""
        if self.transform is not None:
            shapes = query.shape, key.shape
            query, key = expect.transformed(self.transform(query, key), *shapes)
        if self.window is not None:
            near = sliding_window_mask(
                query.shape[-2], key.shape[-2], window=self.window, device=query.device
            )
            mask = near if mask is None else mask & near
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
        )

    def mix(
        self, heads: Float[Tensor, "*batch heads n_q d_v"], query: Float[Tensor, "*batch n_q qdim"]
    ) -> Float[Tensor, "*batch n_q d_model"]:
        """``Concat(heads) W_o``, gated if the layer has a gate; the inputs are not checked."""
        concat = _merge_heads(heads)
        if self.gate_proj is not None:
            concat = concat * torch.sigmoid(self.gate_proj(query))
        return self.out_proj(concat)

    def _inputs(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, checked before anything is computed, and with the batch first."""
        key = query if key is None else key
        value = key if value is None else value
        sequence_axis = -2 if self.batch_first else 0
        order = "batch, n" if self.batch_first else "n, batch"
        inputs = (("query", query, "qdim"), ("key", key, "kdim"), ("value", value, "vdim"))
        for name, x, width in inputs:
            expect.tensor(name, x, f"({order}, {width}) or (n, {width})", min_rank=2, max_rank=3)
            expect.floating(name, x)
            expect.sequence(name, x, sequence_axis)
            if name == "value" and x is key and self.vdim != self.kdim:
                expected = f"a tensor of width vdim = {self.vdim}"
                expect.fail(
                    ValueError, name, expected, "none, which means value = key", "Pass value as well."
                )
            expect.width(name, x, width, getattr(self, width))
            expect.same_kind(**{"q_proj.weight": self.q_proj.weight, name: x})
        expect.same_batch(0 if self.batch_first else 1, query=query, key=key, value=value)
        if key.shape[sequence_axis] != value.shape[sequence_axis]:
            got = expect.shape(value.shape)
            expected = f"as many tokens as key, {key.shape[sequence_axis]}"
            expect.fail(ValueError, "value", expected, got, "Do key and value come from one sequence?")
        if mask is not None:
            batch = () if query.ndim == 2 else (query.shape[0 if self.batch_first else 1],)
            n_query, n_key = query.shape[sequence_axis], key.shape[sequence_axis]
            expect.mask_for(mask, (*batch, self.num_heads, n_query, n_key), query.device)
        return self._order(query), self._order(key), self._order(value)

    def _order(self, x: Tensor) -> Tensor:
        """From the caller's order of axes to batch first, or back."""
        return x if self.batch_first or x.ndim == 2 else x.transpose(0, 1)

    @classmethod
    def from_torch(cls, module: nn.MultiheadAttention) -> "MultiHeadAttention":
        """A copy of PyTorch's layer, with the same weights, dtype, device and training mode.

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
        _copy(_torch_parameters(module), layer._parts())
        return layer.train(module.training)

    def to_torch(self) -> nn.MultiheadAttention:
        """PyTorch's layer with a copy of these weights: the inverse of ``from_torch``.

        Raises:
            ValueError: PyTorch's layer has no ``score``, ``transform``, ``window``, ``sinks`` or ``gate``, no
                ``qdim`` other than ``d_model``, no heads of a width other than ``d_model // num_heads``, and
                as many key and value heads as query heads.

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
        module = nn.MultiheadAttention(
            self.d_model,
            self.num_heads,
            dropout=self.dropout,
            bias=self.q_proj.bias is not None,
            kdim=self.kdim,
            vdim=self.vdim,
            batch_first=self.batch_first,
        ).to(self.out_proj.weight)
        _copy(self._parts(), _torch_parameters(module))
        return module.train(self.training)

    def _parts(self, take: Take = lambda p: p) -> list[Tensor]:
        return _weights_then_biases((self.q_proj, self.k_proj, self.v_proj, self.out_proj), take)

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


def _weights_then_biases(projections: Sequence[nn.Linear], take: Take = lambda p: p) -> list[Tensor]:
    """The weights of query, key, value and output, then their biases, if any."""
    biases = [take(p.bias) for p in projections if p.bias is not None]
    return [take(p.weight) for p in projections] + biases


def _torch_parameters(module: nn.MultiheadAttention, take: Take = lambda p: p) -> list[Tensor]:
    """The weights, then the biases, of PyTorch's layer, in the order of ``_parts``.

    PyTorch may store those of query, key and value in one tensor: ``take`` gets it before it is cut.
    """
    if module.in_proj_weight is not None:
        weights = list(take(module.in_proj_weight).chunk(3))
    else:
        weights = [take(p) for p in (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)]
    weights.append(take(module.out_proj.weight))
    if module.in_proj_bias is None:
        return weights
    return [*weights, *take(module.in_proj_bias).chunk(3), take(module.out_proj.bias)]


@torch.no_grad()
def _copy(sources: list[Tensor], targets: list[Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)
