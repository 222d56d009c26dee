"""Ways to tell attention the order of its tokens: positions that are added, distances, rotations.

``sinusoidal_positions`` is added to the embeddings; ``Rotary`` turns queries and keys; ``alibi_bias`` is
added to the scores. In all of them, the last query is at the last key's position, as in ``causal_mask``.

Raises: every function here checks its arguments before it computes anything. It raises ``TypeError`` for a
wrong type or dtype, and ``ValueError`` for a shape, size, number or device that does not fit. A function
says more only if it can raise for another reason.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int, Real
from torch import Tensor, nn

from mha_lab import _expect as expect


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
        base: the period of the slowest hand is nearly ``2 * pi * base`` positions.
        dtype, device: of the result; it is computed in ``float64``.

    Returns:
        ``(n, d_model)``.

    Source: Vaswani et al. 2017, section 3.5.

    >>> sinusoidal_positions(3, 4)[0]
    tensor([0., 1., 0., 1.])
    """
    expect.whole_number("n", n)
    _even("d_model", expect.whole_number("d_model", d_model))
    angle = torch.arange(n, dtype=torch.float64)[:, None] * _frequencies(d_model, base, torch.float64)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2).to(device=device, dtype=dtype)


def apply_rotary(
    x: Float[Tensor, "*batch n d"],
    positions: Real[Tensor, "*#batch n"] | None = None,
    *,
    base: int | float = 10000.0,
    layout: Literal["pairs", "halves"] = "pairs",
) -> Float[Tensor, "*batch n d"]:
    """Turn each pair of numbers of ``x`` in its plane, by an angle that grows with the position.

    Pair ``i`` of token ``m``, ``(a, b)``, becomes ``(a cos t - b sin t, a sin t + b cos t)`` with
    ``t = positions[m] * theta_i`` and ``theta_i = base ** (-2i / d)``. Lengths do not change; the dot
    product of a turned query and a turned key depends on their positions only through the difference.

    Args:
        x: queries or keys of each head, ``(..., n, d)``, with an even width ``d``; never values.
        positions: ``(n,)``, or with leading axes that broadcast to those of ``x``; ``None`` means
            0 to ``n - 1``.
        base: the larger it is, the slower the last pairs turn.
        layout: which numbers form pair ``i``: ``"pairs"`` takes the neighbours ``2i`` and ``2i + 1``
            (as in the paper, GPT-J and Meta's LLaMA), ``"halves"`` takes ``i`` and ``i + d / 2`` (as in
            GPT-NeoX, and in Hugging Face's LLaMA, whose weights were reordered for it). Weights
            trained with one layout give different scores with the other.

    Returns:
        The same shape as ``x``.

    Source: Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding",
    sections 3.2 and 3.4.2.

    >>> apply_rotary(torch.ones(2, 5, 6)).shape
    torch.Size([2, 5, 6])
    """
    expect.tensor("x", x, "(..., n, d)", min_rank=2)
    expect.floating("x", x)
    expect.sequence("x", x)
    n, d = x.shape[-2:]
    _even("x", d, f"a last axis of even width, from shape {expect.shape(x.shape)}")
    if layout not in ("pairs", "halves"):
        expect.fail(ValueError, "layout", "'pairs' or 'halves'", repr(layout))
    if positions is None:
        positions = torch.arange(n, device=x.device)
    _check_positions(positions, x)
    precise = torch.promote_types(x.dtype, torch.float32)  # bfloat16 cannot represent 257
    angle = positions[..., None].to(precise) * _frequencies(d, base, precise, x.device)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.unflatten(-1, (d // 2, 2)).unbind(-1) if layout == "pairs" else x.chunk(2, dim=-1)
    turned = a * cos - b * sin, a * sin + b * cos
    return torch.stack(turned, dim=-1).flatten(-2) if layout == "pairs" else torch.cat(turned, dim=-1)


class Rotary(nn.Module):
    """Turns queries and keys by ``apply_rotary``, for ``MultiHeadAttention(transform=Rotary())``.

    ``(query, key)`` becomes ``(R(i) query[i], R(j) key[j])``, where ``R(m)`` turns by position ``m``. Keys
    have positions 0 to ``n_k - 1``, queries the last ``n_q`` of these. There are no parameters.

    Args:
        base, layout: as in ``apply_rotary``.

    Source: Su et al. 2021, section 3.2.2.

    >>> query, key = Rotary()(torch.ones(2, 3, 5, 4), torch.ones(2, 3, 7, 4))
    >>> query.shape, key.shape
    (torch.Size([2, 3, 5, 4]), torch.Size([2, 3, 7, 4]))
    """

    def __init__(self, *, base: int | float = 10000.0, layout: Literal["pairs", "halves"] = "pairs") -> None:
        super().__init__()
        self.base, self.layout = base, layout
        apply_rotary(torch.ones(1, 2), base=base, layout=layout)  # a wrong argument fails here

    def forward(
        self, query: Float[Tensor, "*#batch n_q d_k"], key: Float[Tensor, "*#batch n_k d_k"]
    ) -> tuple[Float[Tensor, "*#batch n_q d_k"], Float[Tensor, "*#batch n_k d_k"]]:
        """``(..., n_q, d_k)`` and ``(..., n_k, d_k)`` to the same shapes."""
        expect.query_and_key(query, key)
        n_q, n_k = query.shape[-2], key.shape[-2]
        at = torch.arange(n_k - n_q, n_k, device=query.device)
        query = apply_rotary(query, at, base=self.base, layout=self.layout)
        return query, apply_rotary(key, base=self.base, layout=self.layout)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        return f"base={self.base}, layout={self.layout!r}"


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
    power = 2 ** (expect.whole_number("num_heads", num_heads).bit_length() - 1)
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
    expect.whole_number("n_query", n_query)
    n_key = n_query if n_key is None else expect.whole_number("n_key", n_key)
    return -slopes[:, None, None] * _distance(n_query, n_key, device).abs()


def _frequencies(
    width: int, base: int | float, dtype: torch.dtype, device: torch.device | None = None
) -> Float[Tensor, " pairs"]:
    """``theta_i = base ** (-2i / width)``, the angle of pair ``i`` from one position to the next."""
    base = float(expect.real_number("base", base))
    if base <= 0:
        expect.fail(ValueError, "base", "a number above 0", base)
    return base ** (torch.arange(0, width, 2, dtype=dtype, device=device) / -width)


def _distance(n_query: int, n_key: int, device: torch.device | str | None) -> Int[Tensor, "n_query n_key"]:
    """Key's position minus query's position, ``(n_query, n_key)``."""
    at = torch.arange(n_key - n_query, n_key, device=device)
    return torch.arange(n_key, device=device) - at[:, None]


def _even(name: str, width: int, expected: str = "an even number") -> None:
    """``width`` can be divided into pairs."""
    if width == 0 or width % 2:
        expect.fail(ValueError, name, expected, width, "Positions turn pairs of numbers.")


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
    expect.leading(x=x, positions=positions[..., None])
