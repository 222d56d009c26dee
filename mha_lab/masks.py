"""Masks in one convention, ``True`` = may attend, and conversions to and from the others.

=========== ======================= ==========================================================
convention  a hidden key is         who uses it
=========== ======================= ==========================================================
mask        ``False``               this package, ``torch.nn.functional.scaled_dot_product_attention``
blocked     ``True``                ``torch.nn.MultiheadAttention``'s boolean masks
additive    ``-inf`` (visible: 0)   masks that are added to the scores before the softmax
=========== ======================= ==========================================================
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from mha_lab import _expect as expect

MaskFunction = Callable[..., Bool[Tensor, "..."]]


def causal_mask(
    n_query: int, n_key: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "n_query n_key"]:
    """Each query sees the keys up to its own position; the last query sees the last key.

    ``mask[i, j] = j <= i + (n_key - n_query)``. With fewer queries than keys, the queries are
    the newest tokens, as in generation with a cache. With more, the first queries see nothing.

    Args:
        n_query: number of queries, at least 1.
        n_key: number of keys; ``None`` means ``n_query``.
        device: the device of the mask; ``None`` means PyTorch's default.

    Returns:
        ``(n_query, n_key)``, boolean, ``True`` = may attend.

    Source: Vaswani et al. 2017, section 3.2.3 (masking in the decoder).

    >>> causal_mask(2, 3)
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    """
    n_query = expect.whole_number("n_query", n_query)
    n_key = n_query if n_key is None else expect.whole_number("n_key", n_key)
    return torch.ones(n_query, n_key, dtype=torch.bool, device=device).tril(n_key - n_query)


def sliding_window_mask(
    n_query: int, n_key: int | None = None, *, window: int, device: torch.device | str | None = None
) -> Bool[Tensor, "n_query n_key"]:
    """Each query sees the last ``window`` keys up to its own position; the last query sees the last key.

    ``mask[i, j] = p - window < j <= p`` with ``p = i + (n_key - n_query)``: a causal mask without the keys
    that are ``window`` or more positions back. Through ``L`` layers, a token is reached by tokens that are
    at most ``L * (window - 1)`` positions before it.

    Args:
        n_query, n_key, device: as in ``causal_mask``.
        window: how many keys a query sees, its own included.

    Returns:
        ``(n_query, n_key)``, boolean, ``True`` = may attend.

    Source: Beltagy et al. 2020, "Longformer: The Long-Document Transformer", section 3.1 (a window with half
    of its keys on each side); Jiang et al. 2023, "Mistral 7B", section 2 (only earlier keys, the first at
    ``p - window``). The window is counted as in ``transformers``.

    >>> sliding_window_mask(2, 4, window=2)
    tensor([[False,  True,  True, False],
            [False, False,  True,  True]])
    """
    window = expect.whole_number("window", window)
    mask = causal_mask(n_query, n_key, device=device)
    return mask.triu(mask.shape[1] - mask.shape[0] - window + 1)


@dataclass(frozen=True)
class SlidingWindow:
    """``sliding_window_mask`` with a window that is chosen once, for ``MultiHeadAttention(mask=...)``.

    Args:
        window: how many keys a query sees, its own included.

    >>> SlidingWindow(2)(2, 4)
    tensor([[False,  True,  True, False],
            [False, False,  True,  True]])
    """

    window: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "window", expect.whole_number("window", self.window))

    def __call__(
        self, n_query: int, n_key: int | None = None, *, device: torch.device | str | None = None
    ) -> Bool[Tensor, "n_query n_key"]:
        """``(n_query, n_key)``, boolean, ``True`` = may attend."""
        return sliding_window_mask(n_query, n_key, window=self.window, device=device)


def padding_mask(
    lengths: Integer[Tensor, " batch"] | Sequence[int], max_length: int | None = None
) -> Bool[Tensor, "batch 1 1 max_length"]:
    """Hide the padding at the end of each sample: ``mask[b, 0, 0, j] = j < lengths[b]``.

    Args:
        lengths: how many real tokens each sample has, ``(batch,)``; 0 hides the whole sample.
        max_length: how long the padded samples are; ``None`` means the longest of ``lengths``. Where Python
            cannot look at them (``torch.vmap``, ``torch.compile``, export, the meta device), it is needed,
            and ``lengths`` are not checked.

    Returns:
        ``(batch, 1, 1, max_length)``, boolean, ``True`` = may attend; it broadcasts over heads and
        queries.

    Raises:
        TypeError: ``lengths`` are not whole numbers.
        ValueError: a rank other than 1, a negative length, one above ``max_length``, or no length above 0
            without ``max_length``.

    >>> padding_mask([2, 3])[:, 0, 0]
    tensor([[ True,  True, False],
            [ True,  True,  True]])
    """
    if not isinstance(lengths, Tensor):
        if isinstance(lengths, str) or not isinstance(lengths, Sequence):
            expect.fail(TypeError, "lengths", "a tensor or a list of ints", type(lengths).__name__)
        for length in lengths:
            expect.whole_number("lengths", length, at_least=0)
        lengths = torch.tensor(lengths, dtype=torch.long)
    expect.tensor("lengths", lengths, "(batch,)", min_rank=1, max_rank=1)
    if lengths.dtype == torch.bool or lengths.is_floating_point() or lengths.is_complex():
        hint = (
            "Is this already a mask? Did you mean mask[:, None, None, :]?"
            if lengths.dtype == torch.bool
            else ""
        )
        expect.fail(TypeError, "lengths", "whole numbers", lengths.dtype, hint)
    if max_length is not None:
        max_length = expect.whole_number("max_length", max_length)
    if max_length is None or expect.readable(lengths):
        max_length = _longest(lengths, max_length)
    return (torch.arange(max_length, device=lengths.device) < lengths[:, None])[:, None, None, :]


def _longest(lengths: Tensor, max_length: int | None) -> int:
    """``max_length``, or the largest of ``lengths``, all of which are possible."""
    shortest, longest = (int(lengths.min()), int(lengths.max())) if lengths.numel() else (0, 0)
    if shortest < 0:
        expect.fail(ValueError, "lengths", "no length below 0", shortest)
    if max_length is None and longest == 0:
        hint = "Pass max_length=... if every sample really is empty."
        expect.fail(ValueError, "lengths", "at least one length above 0", lengths.tolist(), hint)
    if max_length is not None and longest > max_length:
        hint = "max_length is the width of the padded batch, x.shape[1]."
        expect.fail(ValueError, "lengths", f"no length above max_length = {max_length}", longest, hint)
    return longest if max_length is None else max_length


def mask_from_blocked(blocked: Bool[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """From ``True`` = hidden (``torch.nn.MultiheadAttention``) to ``True`` = may attend.

    Args:
        blocked: boolean, any shape.

    >>> mask_from_blocked(torch.tensor([False, True]))
    tensor([ True, False])
    """
    expect.tensor("blocked", blocked, "(...)", min_rank=0)
    expect.boolean("blocked", blocked, "For a mask of 0 and -inf, did you mean mask_from_additive?")
    return ~blocked


def mask_to_blocked(mask: Bool[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """From ``True`` = may attend to ``True`` = hidden (``torch.nn.MultiheadAttention``).

    Args:
        mask: boolean, any shape.

    >>> mask_to_blocked(torch.tensor([True, False]))
    tensor([False,  True])
    """
    expect.tensor("mask", mask, "(...)", min_rank=0)
    expect.boolean("mask", mask, "For a mask of 0 and -inf, did you mean mask_from_additive?")
    return ~mask


def mask_from_additive(bias: Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """From 0 and ``-inf``, added to the scores, to ``True`` = may attend.

    Args:
        bias: floating-point, any shape, holding only 0 and ``-inf``. Where Python cannot look at the numbers
            (``torch.vmap``, ``torch.compile``, export, the meta device), they are not checked.

    Raises:
        TypeError: not a floating-point tensor.
        ValueError: a number other than 0 and ``-inf``. A finite number such as ``-1e9`` does not hide
            a key. Add a real bias to the scores instead.

    >>> mask_from_additive(torch.tensor([0.0, -math.inf]))
    tensor([ True, False])
    """
    expect.tensor("bias", bias, "(...)", min_rank=0)
    if bias.dtype == torch.bool:
        hint = "A boolean mask: use it as it is, or mask_from_blocked if True means hidden."
        expect.fail(TypeError, "bias", "a floating-point tensor of 0 and -inf", bias.dtype, hint)
    expect.floating("bias", bias)
    visible = bias == 0
    if expect.readable(bias) and (other := bias[~(visible | (bias == -math.inf))]).numel():
        hint = "To hide keys with a large negative number, use bias.masked_fill(bias < -1e4, -math.inf)."
        expect.fail(ValueError, "bias", "only 0 and -inf", other.flatten()[0].item(), hint)
    return visible


def mask_to_additive(
    mask: Bool[Tensor, "*shape"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*shape"]:
    """From ``True`` = may attend to 0 and ``-inf``, to be added to scores of ``dtype``.

    A row of only ``-inf`` gives NaN in a plain softmax, but not in ``masked_softmax`` with the
    boolean mask.

    Args:
        mask: boolean, any shape.
        dtype: the floating-point dtype of the scores.

    >>> mask_to_additive(torch.tensor([True, False]), torch.float32)
    tensor([0., -inf])
    """
    expect.tensor("mask", mask, "(...)", min_rank=0)
    expect.boolean("mask", mask, "For a mask of 0 and -inf, did you mean to use it as it is?")
    expect.float_dtype("dtype", dtype, "Did you mean scores.dtype?")
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -math.inf)


def _near(
    mask: Bool[Tensor, "..."] | None,
    n_query: int,
    n_key: int,
    *,
    is_causal: bool,
    window: int | None,
    device: torch.device,
) -> Bool[Tensor, "..."] | None:
    """What ``mask`` lets a query see, if it sees no later key and, with a window, only the last ones."""
    if window is not None:
        near = sliding_window_mask(n_query, n_key, window=window, device=device)
    elif is_causal:
        near = causal_mask(n_query, n_key, device=device)
    else:
        return mask
    return near if mask is None else mask & near


def _seen(
    mask: Bool[Tensor, "..."] | None, place: MaskFunction, scores: Sequence[int], device: torch.device
) -> tuple[Bool[Tensor, "..."] | None, int | None]:
    """What ``mask`` and the function ``place`` let a query see, but for a window, which stays a number."""
    if isinstance(place, SlidingWindow):
        return mask, place.window
    made = place(scores[-2], scores[-1], device=device)
    expect.mask_for(made, scores, device)
    return made if mask is None else mask & made, None


def _hidden_score(
    mask: Bool[Tensor, "..."], dtype: torch.dtype
) -> tuple[Float[Tensor, "*rows"], Bool[Tensor, "*rows"]]:
    """The number that replaces hidden scores in each row, and which rows see nothing.

    It is ``-inf`` in an ordinary row, and 0 in a row that sees nothing. A softmax over only ``-inf`` is
    NaN, forward and backward. Masking the result would remove the NaN, but a search for NaN
    (``torch.autograd.detect_anomaly``) would still find it, and stop at a correct layer.
    """
    empty = ~mask.any(dim=-1, keepdim=True) if mask.ndim else ~mask
    return torch.zeros_like(empty, dtype=dtype).masked_fill(~empty, -math.inf), empty
