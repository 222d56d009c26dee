"""A cache that does not grow: it keeps the first tokens of a text and the most recent ones."""

import weakref
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from mha_course._expect import instance
from mha_lab import _expect as expect
from mha_lab._inputs import batch_first_inputs
from mha_lab.cache import _expect_kept, savable
from mha_lab.multihead import MultiHeadAttention


@savable
class StreamCache(NamedTuple):
    """What one layer keeps of a text: keys before any ``transform``, values, and how many tokens it has read.

    ``key`` is ``(batch, num_kv_heads, n, d_k)`` and ``value`` ``(batch, num_kv_heads, n, d_v)``, with
    ``n = min(length, first + recent)``: the first ``first`` tokens, then the last ``recent``.

    ``layer()`` is the layer that made it. The reference is weak: a cache does not keep its layer alive. A
    cache from a file has ``layer = None``, and every layer of its sizes takes it.
    """

    key: Tensor
    value: Tensor
    length: int
    layer: weakref.ref[MultiHeadAttention] | None
    first: int
    recent: int


def attend_in_stream(
    layer: MultiHeadAttention,
    x: Float[Tensor, "batch 1 d_model"],
    cache: StreamCache | None = None,
    *,
    first: int = 1,
    recent: int,
) -> tuple[Float[Tensor, "batch 1 d_model"], StreamCache]:
    """Self-attention of one new token to the first tokens of the text and to the most recent ones.

    ``K = [K_first; K_recent; x W_k]``, split into heads, and the same for ``V``. If there are more than
    ``first + recent`` keys, the oldest recent key leaves before the new token attends. Without positions in
    the layer, the outputs are those for the whole text under the mask
    ``j <= i and (j < first or j > i - recent)``.

    A ``transform`` or ``score`` with positions, such as ``Rotary``, counts them inside the cache: the keys
    have the positions 0 to ``n - 1``, and the query has the last one, however long the text is.

    Args:
        layer: self-attention with any options, but without a ``mask`` of its own.
        x: ``(batch, 1, d_model)``, the new token.
        cache: the cache that an earlier call with this layer returned; ``None`` starts a new text.
        first: how many tokens at the start of the text are kept for ever; 0 makes a plain window.
        recent: how many of the last tokens are kept, the new one included.

    Returns:
        ``(output, cache)``: ``(batch, 1, d_model)``, and the keys and values of at most ``first + recent``
        tokens. The cache that was passed in does not change.

    Source: Xiao et al. 2023, "Efficient Streaming Language Models with Attention Sinks", section 3.2.

    >>> layer, cache = MultiHeadAttention(d_model=6, num_heads=3), None
    >>> for token in torch.ones(2, 9, 6).split(1, dim=1):
    ...     output, cache = attend_in_stream(layer, token, cache, first=1, recent=4)
    >>> output.shape, cache.key.shape, cache.length
    (torch.Size([2, 1, 6]), torch.Size([2, 3, 5, 2]), 9)
    """
    instance("layer", layer, MultiHeadAttention)
    if layer.mask is not None:
        hint = "first and recent already say which keys are seen."
        expect.fail(ValueError, "layer.mask", "None", layer.mask, hint)
    first = expect.whole_number("first", first, at_least=0)
    recent = expect.whole_number("recent", recent)
    x, _, _ = batch_first_inputs(layer, x, name="x")
    if x.shape[-2] != 1:
        got = f"{x.shape[-2]}, from shape {expect.shape(x.shape)}"
        expect.fail(ValueError, "x", "one new token", got, "Did you mean x.split(1, dim=1)?")
    kept, length = [], 1
    if cache is not None:
        _expect_fits(layer, x, cache, first, recent)
        kept, length = cache[:2], cache.length + 1
    if length > first + recent:  # the oldest recent token leaves
        kept = [torch.cat([part[..., :first, :], part[..., first + 1 :, :]], dim=-2) for part in kept]
    output, key, value = layer._extend(x, *kept)
    return output, StreamCache(key, value, length, weakref.ref(layer), first, recent)


def _expect_fits(layer: MultiHeadAttention, x: Tensor, cache: StreamCache, first: int, recent: int) -> None:
    """``layer`` made ``cache`` for a batch of this size, and for the same numbers of tokens."""
    if not isinstance(cache, StreamCache):
        expect.fail(TypeError, "cache", "the StreamCache that an earlier call returned", type(cache).__name__)
    if cache.layer is not None and cache.layer() is not layer:
        hint = "Are the caches in the order of the layers?"
        expect.fail(ValueError, "cache", "a cache of this layer", "one of another layer", hint)
    if (cache.first, cache.recent) != (first, recent):
        got = f"first = {cache.first} and recent = {cache.recent}"
        expect.fail(ValueError, "cache", f"first = {first} and recent = {recent}", got)
    _expect_kept(layer, x, cache.key, cache.value, min(cache.length, first + recent))
