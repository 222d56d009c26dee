"""The same attention in one buffer, for calls without a gradient: it takes less memory and less time.

``mha_lab.attention`` has the formula. Here the weights overwrite the scores. Without a mask, a few heads
are computed at a time, while their scores are still in the processor's cache.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mha_lab import _expect as expect
from mha_lab.masks import _hidden_score

BLOCK = 2**20  # scores that are computed together: 4 MB in float32, about the size of a core's caches


def applies(query: Tensor, key: Tensor, value: Tensor, repeats: int = 1) -> bool:
    """Whether no gradient, function transform, exporter or autocast needs the steps in between.

    With ``repeats`` above 1, each key and value head will be repeated, and all have the same leading axes.
    """
    return not (
        (torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value)))
        or expect.in_transform()
        or expect.forward_mode()
        or expect.autocast(query)
        or (repeats == 1 and not query.shape[:-2] == key.shape[:-2] == value.shape[:-2])
    )


def attend(
    query: Float[Tensor, "*batch n_q d_k"],
    key: Float[Tensor, "*batch n_k d_k"],
    value: Float[Tensor, "*batch n_k d_v"],
    mask: Bool[Tensor, "..."] | None,
    scale: int | float,
) -> tuple[Float[Tensor, "*batch n_q d_v"], Float[Tensor, "*batch n_q n_k"]]:
    """``(output, weights)`` as ``scaled_dot_product_attention`` returns them."""
    q, k, v = (x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:]) for x in (query, key, value))
    scores = q.new_empty(len(q), q.shape[1], k.shape[1])
    output = q.new_empty(len(q), q.shape[1], v.shape[2])
    in_cache = mask is None and query.device.type == "cpu"
    step = max(1, BLOCK // (q.shape[1] * k.shape[1]) if in_cache else len(q))
    for start in range(0, len(q), step):
        part = slice(start, start + step)
        block = scores[part]
        torch.baddbmm(block, q[part], k[part].mT, beta=0, alpha=scale, out=block)
        if mask is None:
            torch.softmax(block, dim=-1, out=block)
        else:
            block = block.view(*query.shape[:-1], k.shape[1])
            hidden, empty = _hidden_score(mask, block.dtype)
            torch.where(mask, block, hidden, out=block)
            torch.softmax(block, dim=-1, out=block).masked_fill_(empty, 0.0)
        torch.bmm(scores[part], v[part], out=output[part])
    return output.view(*query.shape[:-1], v.shape[2]), scores.view(*query.shape[:-1], k.shape[1])
