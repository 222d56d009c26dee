"""What a layer keeps of a text, so that each new token is computed alone.

Source: Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need", section 2.4.
"""

import copy
import weakref
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from mha_lab import _expect as expect
from mha_lab._inputs import batch_first_inputs
from mha_lab.masks import SlidingWindow

_Kept = TypeVar("_Kept", bound=tuple)


def savable(cache: type[_Kept]) -> type[_Kept]:
    """Caches of this class can be pickled: a file cannot refer to a layer, so there ``layer`` is ``None``.

    ``torch.load`` takes no class from a file that it has not been told of.
    """

    def without_layer(self: _Kept) -> tuple[type[_Kept], tuple]:
        return cache, tuple(None if isinstance(part, weakref.ref) else part for part in self)

    cache.__reduce__ = without_layer
    torch.serialization.add_safe_globals([cache])
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

    >>> from mha_lab import MultiHeadAttention
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


class _Extends:
    """The part of ``MultiHeadAttention`` that reads a text in pieces."""

    @property
    def window(self) -> int | None:
        """How many keys a query sees, if the ``mask`` is a ``SlidingWindow``."""
        return self.mask.window if isinstance(self.mask, SlidingWindow) else None

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

        >>> from mha_lab import MultiHeadAttention
        >>> layer = MultiHeadAttention(d_model=6, num_heads=3)
        >>> output, cache = layer.extend(torch.ones(2, 5, 6))
        >>> output, cache = layer.extend(torch.ones(2, 1, 6), cache)
        >>> output.shape, cache.key.shape
        (torch.Size([2, 1, 6]), torch.Size([2, 3, 6, 2]))
        """
        x, _, _ = batch_first_inputs(self, x, name="x")
        kept, length, window = (), x.shape[-2], self.window
        if cache is not None:
            _expect_made_by(self, "cache", cache)
            n = cache.length if window is None else min(cache.length, window)
            _expect_kept(self, x, *cache[:2], n)
            kept, length = cache[:2], length + cache.length
        if mask is not None:
            expect.mask_for(mask, (*x.shape[:-2], self.num_heads, x.shape[-2], length), x.device)
        if window is not None and kept and kept[0].shape[-2] == window:  # no query sees the oldest
            kept = [part[..., 1:, :] for part in kept]
        output, *kept = self._extend(x, *kept, mask=mask)
        if window is not None and kept[0].shape[-2] > window:  # a view would keep the others alive
            kept = [part[..., -window:, :].clone() for part in kept]
        return output, Cache(*kept, length, weakref.ref(self), window)

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


def _expect_made_by(layer: nn.Module, name: str, cache: object, layers: Sequence[nn.Module] = ()) -> None:
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


def _expect_kept(layer: nn.Module, x: Tensor, key: Tensor, value: Tensor, n: int) -> None:
    """``key`` and ``value`` are ``n`` tokens that ``layer`` kept, for the batch of ``x`` and of its dtype."""
    wanted = [(*x.shape[:-2], layer.num_kv_heads, n, width) for width in (layer.d_k, layer.d_v)]
    if [tuple(key.shape), tuple(value.shape)] != wanted:
        got = f"{expect.shape(key.shape)} and {expect.shape(value.shape)}"
        hint = "Does the cache belong to this batch?"
        expect.fail(ValueError, "cache", f"shapes {wanted[0]} and {wanted[1]}", got, hint)
    expect.same_kind(**{"x": x, "cache.key": key, "cache.value": value})
