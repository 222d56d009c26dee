"""Layers of two kinds, as in Llama 4: chunks of tokens with positions, and all tokens without positions.

Source: ``modeling_llama4.py`` and ``masking_utils.py``, ``transformers`` 5.23.
"""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from mha_lab import _expect as expect
from mha_lab import causal_mask


def chunk_mask(n_query: int, n_key: int | None = None, *, chunk: int) -> Bool[Tensor, "n_query n_key"]:
    """Each query sees the keys of its own chunk, up to its own position; the last query sees the last key.

    ``mask[i, j] = j <= p and j // chunk == p // chunk`` with ``p = i + (n_key - n_query)``.

    Args:
        n_query, n_key: as in ``causal_mask``.
        chunk: how many tokens a chunk has.

    Returns:
        ``(n_query, n_key)``, boolean, ``True`` = may attend.

    Source: ``chunked_overlay`` in ``masking_utils.py``, ``transformers`` 5.23.

    >>> chunk_mask(4, chunk=2).int()
    tensor([[1, 0, 0, 0],
            [1, 1, 0, 0],
            [0, 0, 1, 0],
            [0, 0, 1, 1]], dtype=torch.int32)
    """
    expect.whole_number("chunk", chunk)
    seen = causal_mask(n_query, n_key)
    at = torch.arange(seen.shape[1])
    return seen & (at[-seen.shape[0] :, None] // chunk == at // chunk)


class TemperatureByPosition(nn.Module):
    """A transform that multiplies each query by a number that grows with its position.

    ``factor(p) = 1 + rise · log(1 + floor((p + 1) / every))``, the natural logarithm. Keys stay as they are,
    with positions 0 to ``n_k - 1``, and queries have the last ``n_q`` of these. The factor is the inverse of
    a temperature. There are no parameters.

    Args:
        every: the factor rises after each so many tokens; 8192 is the default of Llama 4's class.
        rise: how fast it rises; 0.1 is the default of Llama 4's class.

    Source: ``attn_scales`` in ``modeling_llama4.py``, ``transformers`` 5.23, for layers without positions.

    >>> query, _ = TemperatureByPosition(every=2)(torch.ones(1, 4, 1), torch.ones(1, 4, 1))
    >>> query.flatten()
    tensor([1.0000, 1.0693, 1.0693, 1.1099])
    """

    def __init__(self, *, every: int = 8192, rise: int | float = 0.1) -> None:
        super().__init__()
        self.every, self.rise = expect.whole_number("every", every), expect.real_number("rise", rise)

    def factor(self, position: Int64[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Of each position, which is counted from 0."""
        return 1 + self.rise * torch.log1p((position + 1).div(self.every, rounding_mode="floor"))

    def forward(
        self, query: Float[Tensor, "... n_q d_k"], key: Float[Tensor, "... n_k d_k"]
    ) -> tuple[Float[Tensor, "... n_q d_k"], Float[Tensor, "... n_k d_k"]]:
        """``(..., n_q, d_k)`` and ``(..., n_k, d_k)`` to the same shapes."""
        expect.same_width(query, key)
        n_q, n_k = query.shape[-2], key.shape[-2]
        position = torch.arange(n_k - n_q, n_k, device=query.device)
        return query * self.factor(position).to(query.dtype).unsqueeze(-1), key

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        return f"every={self.every}, rise={self.rise}"
