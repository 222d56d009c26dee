"""Only the output of attention, by PyTorch's fused kernel, which never stores the ``n_q * n_k`` weights.

``mha_lab.attention`` has the formula, and says when it is computed here.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab.heads import _repeat_kv
from mha_lab.masks import _near

BLOCK = 256  # queries for which a mask is made at a time


def attend(
    query: Float[Tensor, "... n_q d_k"],
    key: Float[Tensor, "... n_k d_k"],
    value: Float[Tensor, "... n_k d_v"],
    mask: Bool[Tensor, "..."] | None,
    scale: int | float,
    *,
    dropout_p: int | float = 0.0,
    sinks: Float[Tensor, " heads"] | None = None,
    is_causal: bool = False,
    window: int | None = None,
) -> Float[Tensor, "... n_q d_v"]:
    """The output as ``scaled_dot_product_attention`` returns it.

    The kernel turns a mask into numbers, as many as there are queries and keys. So it gets no mask where
    ``is_causal`` says enough, and otherwise ``BLOCK`` queries at a time, with the keys that they may see. An
    exported or compiled graph is one for all numbers of queries: there the kernel gets the whole mask. It
    needs four axes, of which the second is that of the heads (keys and values may have fewer), and one width:
    zeros are added to what is narrower.
    """
    rank, width, sink = query.ndim, value.shape[-1], int(sinks is not None)
    if rank < 4:
        query, key, value = (x.reshape((1,) * (4 - rank) + x.shape) for x in (query, key, value))
    if sink:
        query, key, value = _with_sink(query, key, value, sinks, scale)
    widest = max(key.shape[-1], width)
    query, key, value = (
        x if x.shape[-1] == widest else F.pad(x, (0, widest - x.shape[-1])) for x in (query, key, value)
    )
    output = _in_blocks(query, key, value, mask, scale, dropout_p, sink, is_causal, window)
    return output.reshape(output.shape[4 - rank :])[..., :width] if rank < 4 else output[..., :width]


def _in_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: int | float,
    dropout_p: int | float,
    sink: int,
    is_causal: bool,
    window: int | None,
) -> Tensor:
    """``sink`` is 1 if the first key is one, which every query sees, and ``mask`` has no column for."""
    n_q, n_k, device = query.shape[-2], key.shape[-2] - sink, query.device
    near = is_causal or window is not None
    if mask is None and not near:
        return _kernel(query, key, value, None, scale, dropout_p)
    if mask is None and window is None and n_q == n_k:
        if sink:  # a query before all others, for the sink alone: a causal square again
            query = F.pad(query, (0, 0, 1, 0))
        return _kernel(query, key, value, None, scale, dropout_p, is_causal=True)[..., sink:, :]
    one_row = not near and (mask.ndim < 2 or mask.shape[-2] == 1)
    if one_row or expect.in_transform() or (near and n_q > n_k) or (window is None and 1 < n_q <= BLOCK):
        mask = _near(mask, n_q, n_k, is_causal=is_causal, window=window, device=device)
        return _kernel(query, key, value, _see(mask, n_k, sink), scale, dropout_p)
    outputs = []
    for start in range(0, n_q, BLOCK):
        stop = min(start + BLOCK, n_q)
        last = stop + n_k - n_q if near else n_k
        first = 0 if window is None else max(0, start + n_k - n_q + 1 - window)
        some = None if mask is None else _part(mask, slice(start, stop), slice(first, last))
        if stop - start > 1:  # one query sees all of its keys
            some = _near(some, stop - start, last - first, is_causal=is_causal, window=window, device=device)
        keys, values = (_span(x, first, last, sink) for x in (key, value))
        some = _see(some, last - first, sink)
        outputs.append(_kernel(query[..., start:stop, :], keys, values, some, scale, dropout_p))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-2)


def _part(mask: Tensor, queries: slice, keys: slice) -> Tensor:
    """The rows and columns of ``mask`` for some queries and keys; an axis of size 1 stays."""
    if mask.ndim > 1 and mask.shape[-2] > 1:
        mask = mask[..., queries, :]
    return mask[..., keys] if mask.ndim and mask.shape[-1] > 1 else mask


def _span(x: Tensor, first: int, last: int, sink: int) -> Tensor:
    """Keys or values ``first`` to ``last``, and before them the sink, if any: a view, if possible."""
    if not (first and sink):
        return x[..., first : last + sink, :]
    return torch.cat([x[..., :1, :], x[..., first + 1 : last + 1, :]], dim=-2)


def _see(mask: Tensor | None, n_k: int, sink: int) -> Tensor | None:
    """A column for the sink, if any, ``True``, before those of ``n_k`` keys."""
    return see_sink(mask, n_k) if sink and mask is not None else mask


def see_sink(mask: Bool[Tensor, "..."], n_k: int) -> Bool[Tensor, "..."]:
    """One more column than keys, the first, ``True``."""
    return F.pad(torch.atleast_1d(mask).expand(*mask.shape[:-1], n_k), (1, 0), value=True)


def _kernel(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: int | float,
    dropout_p: int | float,
    is_causal: bool = False,
) -> Tensor:
    """One call of PyTorch's function.

    If a query may attend to nothing, the kernel gets a row of ``True`` instead, and the output is set to 0
    afterwards: it and its gradients do not depend on how a kernel treats such a row.
    """
    empty = None
    if mask is not None:
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        empty = ~mask.any(dim=-1, keepdim=True)
        mask = mask | empty
    grouped = key.shape[1] != query.shape[1]
    output = F.scaled_dot_product_attention(
        query, key, value, mask, dropout_p, is_causal=is_causal, scale=scale, enable_gqa=grouped
    )
    return output if empty is None else output.masked_fill(empty, 0.0)


def _with_sink(
    query: Tensor, key: Tensor, value: Tensor, sinks: Tensor, scale: int | float
) -> tuple[Tensor, Tensor, Tensor]:
    """One more key before all others, with a value of zeros, whose score for every query is its head's sink.

    ``query`` gets one more number, ``1 / scale``; keys get a 0 there, and the new key has the sink there and
    zeros elsewhere. (``sinks / scale`` could be too large for ``float16``.)
    """
    key, value = (_repeat_kv(x, query.shape[1] // key.shape[1]) for x in (key, value))
    sink = F.pad(sinks.to(key.dtype)[:, None, None], (key.shape[-1], 0)).expand(key.shape[0], -1, -1, -1)
    key = torch.cat([sink, F.pad(key, (0, 1))], dim=-2)
    return F.pad(query, (0, 1), value=1 / scale), key, F.pad(value, (0, 0, 1, 0))
