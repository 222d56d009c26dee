"""Ways to tell attention the order of its tokens: positions that are added, distances, rotations.

``sinusoidal_positions`` is added to the embeddings; ``Rotary`` turns queries and keys; ``alibi_bias`` is
added to the scores. In all of them, the last query is at the last key's position, as in ``causal_mask``.
``rotary_frequencies`` and ``yarn_frequencies`` can slow the turning down, for texts longer than in training.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor, nn

from mha_lab import _expect as expect
from mha_lab._frequencies import (
    _above,
    _check_frequencies,
    _even,
    _frequencies_of,
    mean_rotary_score,
    rotary_frequencies,
    yarn_attention_factor,
    yarn_frequencies,
)

__all__ = [
    "Rotary",
    "alibi_bias",
    "alibi_slopes",
    "apply_rotary",
    "mean_rotary_score",
    "rotary_frequencies",
    "sinusoidal_positions",
    "yarn_attention_factor",
    "yarn_frequencies",
]


def sinusoidal_positions(
    n: int,
    d_model: int,
    *,
    base: int | float = 10000.0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Float[Tensor, "n d_model"]:
    """A fixed vector for each position, to be added to the embeddings.

    ``P[m, 2i] = sin(m * theta_i)`` and ``P[m, 2i + 1] = cos(m * theta_i)`` with
    ``theta_i = base ** (-2i / d_model)``: each pair of columns is the hand of a clock, and the
    first pair is the fastest.

    Args:
        n: how many positions, counted from 0.
        d_model: the width of the embeddings, an even number.
        base: the slowest hand goes round once in ``2 * pi * base ** (1 - 2 / d_model)`` positions, which is
            nearly ``2 * pi * base`` if ``d_model`` is large.
        dtype, device: of the result; it is computed in ``float64``.

    Returns:
        ``(n, d_model)``.

    Source: Vaswani et al. 2017, section 3.5.

    >>> sinusoidal_positions(3, 4)[0]
    tensor([0., 1., 0., 1.])
    """
    n, d_model = expect.whole_number("n", n), expect.whole_number("d_model", d_model)
    expect.float_dtype("dtype", dtype)
    _even("d_model", d_model)
    theta = _frequencies_of(d_model, _above("base", base, 0), torch.float64)
    angle = torch.arange(n, dtype=torch.float64)[:, None] * theta
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2).to(device=device, dtype=dtype)


def apply_rotary(
    x: Float[Tensor, "*batch n d"],
    positions: Real[Tensor, "*#batch n"] | None = None,
    *,
    base: int | float = 10000.0,
    layout: Literal["pairs", "halves"] = "pairs",
    frequencies: Float[Tensor, " pairs"] | None = None,
    attention_factor: int | float = 1.0,
) -> Float[Tensor, "*batch n d"]:
    """Turn each pair of numbers of ``x`` in its plane, by an angle that grows with the position.

    Pair ``i`` of token ``m``, ``(a, b)``, becomes ``(a cos t - b sin t, a sin t + b cos t)`` with
    ``t = positions[m] * theta_i`` and ``theta_i = base ** (-2i / d)``. Lengths do not change; the dot
    product of a turned query and a turned key depends on their positions only through the difference.

    Args:
        x: queries or keys of each head, ``(..., n, d)``, with an even width ``d`` if there are no
            ``frequencies``; never values.
        positions: ``(n,)``, or with leading axes that broadcast to those of ``x``; ``None`` means
            0 to ``n - 1``. For ``x`` of heads, ``(batch, heads, n, d)``, positions of each sample are
            ``(batch, 1, n)``; ``(heads, n)`` are those of each head.
        base: the larger it is, the slower the last pairs turn.
        layout: which numbers form pair ``i``: ``"pairs"`` takes the neighbours ``2i`` and ``2i + 1``
            (as in the paper, GPT-J and Meta's LLaMA), ``"halves"`` takes ``i`` and ``i + d / 2`` (as in
            GPT-NeoX, and in Hugging Face's LLaMA, whose weights were reordered for it). Weights
            trained with one layout give different scores with the other.
        frequencies: ``theta``, ``(pairs,)``, in place of those of ``base``. Only the first ``2 * pairs``
            numbers of each token are turned, as if they were all; the others pass ("partial rotary").
        attention_factor: the turned numbers are multiplied by it, see ``yarn_attention_factor``.

    Returns:
        The same shape as ``x``.

    Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding",
    sections 3.2 and 3.4.2; Black et al. 2022, "GPT-NeoX-20B: An Open-Source Autoregressive Language
    Model", "Rotary Positional Embeddings" (partial rotary).

    >>> apply_rotary(torch.ones(2, 5, 6)).shape
    torch.Size([2, 5, 6])
    >>> apply_rotary(torch.ones(2, 3), frequencies=rotary_frequencies(2))
    tensor([[ 1.0000,  1.0000,  1.0000],
            [-0.3012,  1.3818,  1.0000]])
    """
    expect.tensor("x", x, "(..., n, d)", min_rank=2)
    expect.floating("x", x)
    expect.sequence("x", x)
    _check_rotary(base, layout, frequencies, attention_factor)
    _check_pairs("x", x, frequencies)
    if positions is None:
        positions = torch.arange(x.shape[-2], device=x.device)
    else:
        _check_positions(positions, x)
    return _apply_rotary(x, positions, base, layout, frequencies, attention_factor)


def _apply_rotary(
    x: Tensor,
    positions: Tensor,
    base: int | float,
    layout: str,
    frequencies: Tensor | None = None,
    attention_factor: int | float = 1.0,
) -> Tensor:
    precise = torch.promote_types(x.dtype, torch.float32)  # bfloat16 cannot represent 257
    if frequencies is None:
        frequencies = _frequencies_of(x.shape[-1], base, precise, x.device)
    pairs = frequencies.shape[0]
    angle = positions[..., None].to(precise) * frequencies.to(x.device, precise)
    cos, sin = ((attention_factor * part).to(x.dtype) for part in (angle.cos(), angle.sin()))
    x, rest = x.tensor_split([2 * pairs], dim=-1)
    a, b = x.unflatten(-1, (pairs, 2)).unbind(-1) if layout == "pairs" else x.chunk(2, dim=-1)
    turned = a * cos - b * sin, a * sin + b * cos
    x = torch.stack(turned, dim=-1).flatten(-2) if layout == "pairs" else torch.cat(turned, dim=-1)
    return torch.cat([x, rest], dim=-1) if rest.shape[-1] else x


class Rotary(nn.Module):
    """Turns queries and keys by ``apply_rotary``, for ``MultiHeadAttention(transform=Rotary())``.

    ``(query, key)`` becomes ``(R(i) query[i], R(j) key[j])``, where ``R(m)`` turns by position ``m``. Keys
    have positions 0 to ``n_k - 1``, queries the last ``n_q`` of these. There are no parameters; given
    ``frequencies`` are a buffer, which keeps its dtype: ``layer.half()`` does not round them.

    Args:
        base, layout, frequencies, attention_factor: as in ``apply_rotary``.

    Source: Su et al. 2021, section 3.2.2.

    >>> query, key = Rotary()(torch.ones(2, 3, 5, 4), torch.ones(2, 3, 7, 4))
    >>> query.shape, key.shape
    (torch.Size([2, 3, 5, 4]), torch.Size([2, 3, 7, 4]))
    """

    def __init__(
        self,
        *,
        base: int | float = 10000.0,
        layout: Literal["pairs", "halves"] = "pairs",
        frequencies: Float[Tensor, " pairs"] | None = None,
        attention_factor: int | float = 1.0,
    ) -> None:
        super().__init__()
        _check_rotary(base, layout, frequencies, attention_factor)
        self.base, self.layout, self.attention_factor = base, layout, attention_factor
        self.register_buffer("frequencies", frequencies)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Rotary":
        given = self.frequencies
        super()._apply(fn, recurse)
        if given is not None and self.frequencies.dtype != given.dtype:
            self.frequencies = given.to(self.frequencies.device)
        return self

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *args: Any) -> None:
        """A file without the frequencies, from before they were a buffer, leaves them as they are."""
        if self.frequencies is not None and not self.frequencies.is_meta:
            state.setdefault(f"{prefix}frequencies", self.frequencies)
        super()._load_from_state_dict(state, prefix, *args)

    def forward(
        self, query: Float[Tensor, "... n_q d_k"], key: Float[Tensor, "... n_k d_k"]
    ) -> tuple[Float[Tensor, "... n_q d_k"], Float[Tensor, "... n_k d_k"]]:
        """``(..., n_q, d_k)`` and ``(..., n_k, d_k)`` to the same shapes."""
        expect.same_width(query, key)
        _check_pairs("query", query, self.frequencies)
        n_q, n_k = query.shape[-2], key.shape[-2]
        how = self.base, self.layout, self.frequencies, self.attention_factor
        return (
            _apply_rotary(query, torch.arange(n_k - n_q, n_k, device=query.device), *how),
            _apply_rotary(key, torch.arange(n_k, device=key.device), *how),
        )

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        given = self.frequencies is not None
        speed = f"frequencies=({len(self.frequencies)},)" if given else f"base={self.base}"
        factor = "" if self.attention_factor == 1 else f", attention_factor={self.attention_factor:.4f}"
        return f"{speed}, layout={self.layout!r}{factor}"


def alibi_slopes(
    num_heads: int, *, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
) -> Float[Tensor, " num_heads"]:
    """How fast each head's scores fall with the distance: ``2 ** (-8h / num_heads)``, ``h = 1, 2, ...``

    This is for a power of two. Otherwise, the slopes for the next smaller power ``p`` come first, then
    the first, third, fifth, ... of the slopes for ``2p``.

    Args:
        num_heads: how many heads.
        dtype, device: of the result.

    Returns:
        ``(num_heads,)``, between 0 and 1.

    Source: Press et al. 2022, "Train Short, Test Long: Attention with Linear Biases Enables Input
    Length Extrapolation", section 3; for other numbers of heads, the code that its authors published.

    >>> alibi_slopes(3)
    tensor([0.0625, 0.0039, 0.2500])
    """
    num_heads = expect.whole_number("num_heads", num_heads)
    expect.float_dtype("dtype", dtype)
    power = 2 ** (num_heads.bit_length() - 1)
    exponents = [8 * h / power for h in range(1, power + 1)]
    exponents += [8 * h / (2 * power) for h in range(1, 2 * (num_heads - power), 2)]
    return torch.tensor([2.0**-e for e in exponents], dtype=dtype, device=device)


def alibi_bias(
    num_heads: int,
    n_query: int,
    n_key: int | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Float[Tensor, "num_heads n_query n_key"]:
    """The bias that ALiBi adds to the scores: ``bias[h, i, j] = -slope[h] * |j - i - (n_key - n_query)|``.

    The last query is at the last key's position. The paper has a causal mask, which hides the keys after
    the query; here their bias falls with the distance in the same way.

    Args:
        num_heads: how many heads, see ``alibi_slopes``.
        n_query: number of queries.
        n_key: number of keys; ``None`` means ``n_query``.
        dtype, device: of the result.

    Returns:
        ``(num_heads, n_query, n_key)``, 0 at a query's own position, below 0 elsewhere.

    Source: Press et al. 2022, section 3.

    >>> alibi_bias(2, 3)[0, 2]
    tensor([-0.1250, -0.0625, -0.0000])
    """
    slopes = alibi_slopes(num_heads, dtype=dtype, device=device)
    n_query = expect.whole_number("n_query", n_query)
    n_key = n_query if n_key is None else expect.whole_number("n_key", n_key)
    return -slopes[:, None, None] * _distance(n_query, n_key, device).abs()


def _distance(n_query: int, n_key: int, device: torch.device | str | None) -> Int[Tensor, "n_query n_key"]:
    """Key's position minus query's position, ``(n_query, n_key)``."""
    at = torch.arange(n_key - n_query, n_key, device=device)
    return torch.arange(n_key, device=device) - at[:, None]


def _check_rotary(base: object, layout: object, frequencies: object, attention_factor: object) -> None:
    """What does not depend on the tensor that is turned."""
    if layout not in ("pairs", "halves"):
        expect.fail(ValueError, "layout", "'pairs' or 'halves'", repr(layout))
    _above("attention_factor", attention_factor, 0)
    if _above("base", base, 0) != 10000 and frequencies is not None:
        hint = "Did you mean rotary_frequencies(width, base=...)?"
        expect.fail(ValueError, "base", "no base beside frequencies", base, hint)
    if frequencies is not None:
        _check_frequencies(frequencies)


def _check_pairs(name: str, x: Tensor, frequencies: Tensor | None) -> None:
    """``x`` is wide enough to be turned."""
    width = x.shape[-1]
    if frequencies is None and (width == 0 or width % 2):
        got = f"{width}, from shape {expect.shape(x.shape)}"
        expect.fail(ValueError, name, "a last axis of even width", got, "Positions turn pairs of numbers.")
    elif frequencies is not None and width < 2 * frequencies.shape[0]:
        expected = f"at least 2 numbers for each of {len(frequencies)} frequencies"
        expect.fail(ValueError, name, expected, f"{width}, from shape {expect.shape(x.shape)}")


def _check_positions(positions: object, x: Tensor) -> None:
    """A number for each token of ``x``."""
    n = x.shape[-2]
    expect.tensor("positions", positions, "(n,) or (..., n)", min_rank=1, max_rank=x.ndim - 1)
    if positions.dtype == torch.bool or positions.is_complex():
        expect.fail(TypeError, "positions", "whole or floating-point numbers", positions.dtype)
    if positions.device != x.device:
        hint = "Did you mean positions.to(x.device)?"
        expect.fail(ValueError, "positions", f"the device of x, {x.device}", positions.device, hint)
    if positions.shape[-1] != n:
        expect.fail(ValueError, "positions", f"one for each of n = {n} tokens", expect.shape(positions.shape))
    sizes, lead = positions.shape[:-1], x.shape[:-2]
    if any(m not in (1, n) for m, n in zip(sizes, lead[len(lead) - len(sizes) :], strict=True)):
        wanted = f"leading axes that broadcast to x's {expect.shape(lead)}"
        hint = "For each sample of x (batch, heads, n, d), did you mean positions[:, None]?"
        expect.fail(ValueError, "positions", wanted, f"shape {expect.shape(positions.shape)}", hint)
