"""A state in place of a cache: one matrix stands for all earlier tokens, and each new token changes it.

Linear attention adds ``key value^T`` to its matrix and never takes anything away. In this module, the matrix
also fades, by a ``decay``, and a token first erases what its own key reads, and then writes: the delta rule.
The functions here have no feature map and no normaliser. The published layers make ``query`` and ``key`` unit
vectors (``unit``), and divide ``query`` by ``sqrt(d_k)``.

Source: the steps are those of ``modeling_qwen3_next.py`` and ``modeling_kimi_linear.py`` in ``transformers``
5.23, and the tests compare with both. Papers: Schlag, Irie and Schmidhuber 2021, "Linear Transformers Are
Secretly Fast Weight Programmers" (the delta rule); Yang et al. 2024, "Parallelizing Linear Transformers with
the Delta Rule over Sequence Length" (arXiv 2406.06484: in chunks); Yang, Kautz and Hatamizadeh 2024, "Gated
Delta Networks" (arXiv 2412.06464: with a decay); Kimi Team 2025, "Kimi Linear" (arXiv 2510.26692: a decay
for each channel).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from mha_lab import _expect as expect


def unit(x: Float[Tensor, "*batch d"], eps: float = 1e-6) -> Float[Tensor, "*batch d"]:
    """``x / sqrt(|x|² + eps)``: vectors of length 1; a vector of zeros stays as it is.

    Args:
        x: ``(..., d)``.
        eps: what the length is measured against; Qwen3-Next and Kimi Linear have 1e-6.

    Returns:
        The same shape.

    Source: ``l2norm`` in ``modeling_qwen3_next.py``, ``transformers`` 5.23.

    >>> unit(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """
    expect.floating("x", expect.tensor("x", x, "(..., d)", min_rank=1))
    return x * torch.rsqrt((x * x).sum(dim=-1, keepdim=True) + eps)


def decayed_linear_attention(
    query: Float[Tensor, "*#batch n d_k"],
    key: Float[Tensor, "*#batch n d_k"],
    value: Float[Tensor, "*#batch n d_v"],
    decay: Float[Tensor, "*#batch n #d_k"] | None = None,
    state: Float[Tensor, "*#batch d_k d_v"] | None = None,
) -> tuple[Float[Tensor, "*batch n d_v"], Float[Tensor, "*batch d_k d_v"]]:
    """A matrix that fades, and to which each token adds ``key value^T``; one token after the other.

    For each token: ``S ← decay · S + key value^T``, and ``output = S^T query``. The pair of token ``j`` is
    read by token ``i`` with the product of all decays after ``j``, up to ``i``.

    Args:
        query: ``(..., n, d_k)``.
        key: ``(..., n, d_k)``.
        value: ``(..., n, d_v)``.
        decay: from 0 (forget all) to 1 (forget nothing): ``(..., n, 1)``, one number for each token, or
            ``(..., n, d_k)``, one for each row of the state; ``None`` means 1.
        state: the ``S`` that an earlier call returned; ``None`` means zeros.

    Returns:
        ``(output, state)``: ``(..., n, d_v)``, and the ``S`` after the last token, ``(..., d_k, d_v)``.

    Source: ``torch_recurrent_gated_delta_rule`` in ``modeling_qwen3_next.py``, ``transformers`` 5.23, without
    its ``kv_mem`` and with ``beta = 1``.

    >>> one = torch.ones(3, 1)
    >>> decayed_linear_attention(one, one, one, 0.5 * one)[0]
    tensor([[1.0000],
            [1.5000],
            [1.7500]])
    """
    decay, state = _checked(query, key, value, None, decay, state)
    outputs = []
    for q, k, v, a in zip(*(x.unbind(-2) for x in (query, key, value, decay)), strict=True):
        state = a.unsqueeze(-1) * state + k.unsqueeze(-1) * v.unsqueeze(-2)
        outputs.append(_read(state, q))
    return torch.stack(outputs, dim=-2), state


def delta_rule(
    query: Float[Tensor, "*#batch n d_k"],
    key: Float[Tensor, "*#batch n d_k"],
    value: Float[Tensor, "*#batch n d_v"],
    rate: Float[Tensor, "*#batch n 1"],
    decay: Float[Tensor, "*#batch n #d_k"] | None = None,
    state: Float[Tensor, "*#batch d_k d_v"] | None = None,
) -> tuple[Float[Tensor, "*batch n d_v"], Float[Tensor, "*batch d_k d_v"]]:
    """A matrix from which each token erases what its key reads, before it writes; one token after the other.

    For each token:

    * ``S ← decay · S``;
    * ``found = S^T key``, what the matrix has under this key;
    * ``S ← S + key (rate · (value - found))^T``;
    * ``output = S^T query``.

    If the key has length 1, a query equal to it then reads ``(1 - rate) · found + rate · value``. So with
    ``rate = 1`` it reads ``value``, whatever was there before. It is one step of gradient descent on
    ``|S^T key - value|² / 2``, with the step size ``rate``.

    Args:
        query: ``(..., n, d_k)``.
        key: ``(..., n, d_k)``, of length 1 in published layers.
        value: ``(..., n, d_v)``.
        rate: from 0 (write nothing) to 1 (replace): ``(..., n, 1)``; the papers call it beta.
        decay: from 0 (forget all) to 1 (forget nothing): ``(..., n, 1)``, one number for each token, as in
            Qwen3-Next, or ``(..., n, d_k)``, one for each row of the state, as in Kimi Linear; ``None``
            means 1. The papers call it alpha, and models compute its logarithm, g.
        state: the ``S`` that an earlier call returned; ``None`` means zeros.

    Returns:
        ``(output, state)``: ``(..., n, d_v)``, and the ``S`` after the last token, ``(..., d_k, d_v)``. The
        state that was passed in does not change.

    Source: ``torch_recurrent_gated_delta_rule`` in
    ``modeling_qwen3_next.py`` and ``recurrent_kimi_delta_attention`` in ``modeling_kimi_linear.py``,
    ``transformers`` 5.23.

    >>> key = torch.tensor([[1.0, 0.0], [1.0, 0.0]])  # the same key twice
    >>> value, rate = torch.tensor([[5.0], [3.0]]), torch.ones(2, 1)
    >>> delta_rule(key, key, value, rate)[0]
    tensor([[5.],
            [3.]])
    >>> decayed_linear_attention(key, key, value)[0]  # only adds
    tensor([[5.],
            [8.]])
    """
    decay, state = _checked(query, key, value, rate, decay, state)
    outputs = []
    for q, k, v, b, a in zip(*(x.unbind(-2) for x in (query, key, value, rate, decay)), strict=True):
        state = a.unsqueeze(-1) * state
        state = state + k.unsqueeze(-1) * (b * (v - _read(state, k))).unsqueeze(-2)
        outputs.append(_read(state, q))
    return torch.stack(outputs, dim=-2), state


def delta_rule_chunked(
    query: Float[Tensor, "*#batch n d_k"],
    key: Float[Tensor, "*#batch n d_k"],
    value: Float[Tensor, "*#batch n d_v"],
    rate: Float[Tensor, "*#batch n 1"],
    decay: Float[Tensor, "*#batch n #d_k"] | None = None,
    state: Float[Tensor, "*#batch d_k d_v"] | None = None,
    *,
    chunk: int = 64,
) -> tuple[Float[Tensor, "*batch n d_v"], Float[Tensor, "*batch d_k d_v"]]:
    """The same as ``delta_rule``, a chunk of tokens at once: a few products of matrices, no loop of tokens.

    Within a chunk that starts with the state ``S``, let ``d[i]`` be the product of its decays up to token
    ``i``, and ``u[i] = rate[i] (value[i] - found[i])`` what token ``i`` writes. Then
    ``found[i] = S^T (d[i] key[i]) + sum_{j < i} A[i, j] u[j]`` with
    ``A[i, j] = key[i] · (d[i] / d[j] · key[j])``, so that the ``u`` solve a triangular system:

    ``(I + rate · A) u = rate · (value - (d · key) S)``.

    Its solution is ``u = u' - w S``, and ``u'`` and ``w`` do not depend on ``S``: all chunks are solved at
    once. Only the states of the chunks follow one after the other.

    Args:
        query, key, value, rate, decay, state: as in ``delta_rule``. A decay below about 1e-38 (the smallest
            normal number) is taken for that number, since the logarithm of 0 is not a number to add.
        chunk: how many tokens a chunk has; the result does not depend on it, except for rounding.

    Returns:
        ``(output, state)``, as ``delta_rule``.

    Source: Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length",
    abstract (the representation of a product of Householder matrices, called WY);
    ``torch_chunk_gated_delta_rule`` in ``modeling_qwen3_next.py``, ``chunk_kimi_delta_attention`` in
    ``modeling_kimi_linear.py``, ``transformers`` 5.23.

    >>> x = unit(torch.arange(35.0).sin().view(7, 5))
    >>> rate = torch.full((7, 1), 0.5)
    >>> (delta_rule(x, x, x, rate)[0] - delta_rule_chunked(x, x, x, rate, chunk=3)[0]).abs().max() < 1e-6
    tensor(True)
    """
    decay, state = _checked(query, key, value, rate, decay, state)
    expect.whole_number("chunk", chunk)
    n = key.shape[-2]
    log = decay.clamp(min=torch.finfo(decay.dtype).tiny).log()
    query, key, value, rate, log = (_in_chunks(x, chunk) for x in (query, key, value, rate, log))
    log = log.cumsum(dim=-2)  # (..., chunks, chunk, 1 or d_k): log d
    faded = log.exp()
    future = torch.ones(chunk, chunk, dtype=torch.bool, device=log.device).triu(1)[..., None]
    between = (log.unsqueeze(-2) - log.unsqueeze(-3)).masked_fill(future, -torch.inf).exp()  # d[i] / d[j]
    system = rate * _products(key, key, between)
    right = torch.cat([rate * value, rate * faded * key], dim=-1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    written, w = solved.split([value.shape[-1], key.shape[-1]], dim=-1)
    weights = _products(query, key, between)
    query, key = query * faded, key * (log[..., -1:, :] - log).exp()
    outputs = []
    for q, k, u, w_, s, a in zip(
        *(x.unbind(-3) for x in (query, key, written, w, weights, faded[..., -1:, :].mT)), strict=True
    ):
        u = u - w_ @ state
        outputs.append(q @ state + s @ u)
        state = a * state + k.mT @ u
    return torch.cat(outputs, dim=-2)[..., :n, :], state


def short_convolution(
    x: Float[Tensor, "*#batch n d"],
    weight: Float[Tensor, "d width"],
    earlier: Float[Tensor, "*#batch before d"] | None = None,
) -> tuple[Float[Tensor, "*batch n d"], Float[Tensor, "*batch before d"]]:
    """Mixes each token with the ``width - 1`` tokens before it, each channel by itself.

    ``output[i, c] = sum_{t=0}^{width-1} weight[c, t] · x[i - (width - 1) + t, c]``; tokens before the first
    are zeros. The last column of ``weight`` belongs to the token itself.

    Args:
        x: ``(..., n, d)``.
        weight: ``(d, width)``.
        earlier: the ``width - 1`` tokens before ``x``, as an earlier call returned them; ``None``: zeros.

    Returns:
        ``(output, earlier)``: ``(..., n, d)``, and the last ``width - 1`` tokens, for the next call.

    Source: ``causal_conv1d_fn`` and ``causal_conv1d_update`` in ``modeling_qwen3_next.py``, ``transformers``
    5.23. Qwen3-Next and Kimi Linear have ``width = 4``, and apply ``silu`` to the output.

    >>> short_convolution(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[10.0, 1.0]]))[0]
    tensor([[ 1.],
            [12.],
            [23.]])
    """
    expect.floating("x", expect.tensor("x", x, "(..., n, d)", min_rank=2))
    expect.sequence("x", x)
    expect.tensor("weight", weight, "(d, width)", min_rank=2, max_rank=2)
    before = weight.shape[-1] - 1
    if weight.shape[0] != x.shape[-1] or before < 0:
        got = expect.shape(weight.shape)
        expect.fail(ValueError, "weight", f"(d, width) with d = {x.shape[-1]}, the width of x", got)
    if earlier is None:
        earlier = x.new_zeros(before, x.shape[-1])
    expect.tensor("earlier", earlier, "(..., width - 1, d)", min_rank=2)
    if earlier.shape[-2:] != (before, x.shape[-1]):
        expected = f"(..., width - 1, d) = (..., {before}, {x.shape[-1]})"
        expect.fail(ValueError, "earlier", expected, expect.shape(earlier.shape))
    expect.same_kind(x=x, weight=weight, earlier=earlier)
    batch = expect.leading(x=x, earlier=earlier)
    tokens = torch.cat([y.expand(*batch, *y.shape[-2:]) for y in (earlier, x)], dim=-2)
    n = x.shape[-2]
    output = sum(weight[:, t] * tokens[..., t : t + n, :] for t in range(before + 1))
    return output, tokens[..., tokens.shape[-2] - before :, :]


def _read(state: Tensor, x: Tensor) -> Tensor:
    """``state^T x`` for vectors ``(..., d_k)`` and matrices ``(..., d_k, d_v)``."""
    return (x.unsqueeze(-2) @ state).squeeze(-2)


def _products(x: Tensor, key: Tensor, between: Tensor) -> Tensor:
    """``x[i] · (between[i, j] · key[j])``, ``(..., n, n)``; one decay for all channels comes last."""
    if between.shape[-1] == 1:
        return (x @ key.mT) * between.squeeze(-1)
    return torch.einsum("...ic,...jc,...ijc->...ij", x, key, between)


def _in_chunks(x: Tensor, chunk: int) -> Tensor:
    """``(..., n, d)`` to ``(..., chunks, chunk, d)``, filled up with zeros: tokens that change nothing."""
    return F.pad(x, (0, 0, 0, -x.shape[-2] % chunk)).unflatten(-2, (-1, chunk))


def _checked(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor | None, decay: object, state: object
) -> tuple[Tensor, Tensor]:
    """``decay`` and ``state``, made where there are none, if all tensors fit together."""
    expect.query_key_and_value(query, key, value, None)
    n, d_k, d_v = *key.shape[-2:], value.shape[-1]
    if query.shape[-2] != n:
        expect.fail(ValueError, "query", f"as many tokens as key, {n}", query.shape[-2])
    decay = key.new_ones(n, 1) if decay is None else _factors("decay", decay, n, d_k)
    rates = {} if rate is None else {"rate": _factors("rate", rate, n, 1)}
    state = key.new_zeros(d_k, d_v) if state is None else state
    expect.tensor("state", state, "(..., d_k, d_v)", min_rank=2)
    if state.shape[-2:] != (d_k, d_v):
        expected, got = f"(..., d_k, d_v) = (..., {d_k}, {d_v})", expect.shape(state.shape)
        expect.fail(ValueError, "state", expected, got, "Is it of another layer?")
    expect.same_kind(query=query, decay=decay, state=state, **rates)
    expect.leading(query=query, key=key, value=value, decay=decay, state=state, **rates)
    return decay, state


def _factors(name: str, value: object, n: int, d_k: int) -> Tensor:
    """``value`` if it has a row for each token, of 1 or ``d_k`` numbers of at least 0; a decay at most 1."""
    wanted = "(..., n, 1)" if d_k == 1 else "(..., n, 1) or (..., n, d_k)"
    tensor = expect.tensor(name, value, wanted, min_rank=2)
    expect.floating(name, tensor)
    if tensor.shape[-2] != n or tensor.shape[-1] not in (1, d_k):
        hint = f"Did you mean {name}.unsqueeze(-1)?" if tensor.shape[-1] == n else ""
        expect.fail(ValueError, name, f"{wanted}, n = {n}", expect.shape(tensor.shape), hint)
    if expect.readable(tensor) and name == "decay" and not ((tensor >= 0) & (tensor <= 1)).all():
        hint = "Did you mean decay.exp()? Models compute the logarithm of the decay."
        expect.fail(ValueError, name, "numbers from 0 to 1", f"{tensor.min():g} to {tensor.max():g}", hint)
    return tensor
