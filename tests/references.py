"""Attention as loops over single numbers: slow, and short enough to be checked by eye."""

import math

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mha_course.chapters.modern import ModernAttention
from mha_lab import MultiHeadAttention
from mha_lab.masks import SlidingWindow


def layer_with(*sizes: int, window: int | None = None, **options: object) -> MultiHeadAttention:
    """The layer, or its subclass if there are to be sinks or a gate."""
    options |= {} if window is None else {"mask": SlidingWindow(window)}
    kind = ModernAttention if {"sinks", "gate"} & options.keys() else MultiHeadAttention
    return kind(*sizes, **options)


def chunks(n_query: int, n_key: int, *, device: torch.device | None = None) -> Tensor:
    """A mask for the layer: a query sees its own chunk of 4 tokens, those after it included."""
    keys = torch.arange(n_key, device=device) // 4
    return keys[n_key - n_query :, None] == keys


def looped_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """``(output, weights)`` in Python floats, one sample and one head after the other."""
    if query.ndim > 2:
        mask = mask if mask is None else mask.expand(*query.shape[:-1], key.shape[-2])
        masks = [None] * len(query) if mask is None else mask
        found = [looped_attention(*one, scale) for one in zip(query, key, value, masks, strict=True)]
        return tuple(map(torch.stack, zip(*found, strict=True)))
    query, key, value = query.detach(), key.detach(), value.detach()
    n_q, n_k, d_k, d_v = len(query), len(key), query.shape[1], value.shape[1]
    scale = 1 / math.sqrt(d_k) if scale is None else scale
    output, weights = torch.zeros(n_q, d_v).double(), torch.zeros(n_q, n_k).double()
    for i in range(n_q):
        visible = [j for j in range(n_k) if mask is None or bool(mask[i, j])]
        scores = {j: scale * sum(float(query[i, c]) * float(key[j, c]) for c in range(d_k)) for j in visible}
        highest = max(scores.values(), default=0.0)
        total = sum(math.exp(score - highest) for score in scores.values())
        for j in visible:
            weights[i, j] = math.exp(scores[j] - highest) / total
            for c in range(d_v):
                output[i, c] += weights[i, j] * float(value[j, c])
    return output, weights


BATCH, HEADS, N_Q, N_K, D_K, D_V = 2, 3, 5, 7, 11, 13


def problem(dtype: torch.dtype = torch.float64, requires_grad: bool = False) -> list[Tensor]:
    """Random query, key and value, whose axes all have different sizes."""
    sizes = (N_Q, D_K), (N_K, D_K), (N_K, D_V)
    return [torch.randn(BATCH, HEADS, *size, dtype=dtype, requires_grad=requires_grad) for size in sizes]


def mask_of_kind(
    kind: str, batch: int = BATCH, heads: int = HEADS, n_q: int = N_Q, n_k: int = N_K
) -> Tensor | None:
    """One mask of each kind that can be broadcast to ``(batch, heads, n_q, n_k)``, by plain loops.

    Every query sees at least the first key.
    """
    lengths = [1 + (3 * b + 1) % n_k for b in range(batch)]
    if kind == "none":
        return None
    if kind == "all":
        return torch.ones((), dtype=torch.bool)
    if kind == "keys":
        return torch.tensor([j % 3 == 0 for j in range(n_k)])
    if kind == "causal":
        return torch.tensor([[j <= i + max(n_k - n_q, 0) for j in range(n_k)] for i in range(n_q)])
    if kind == "padding":
        return torch.tensor([[[[j < length for j in range(n_k)]]] for length in lengths])
    if kind == "both":
        return mask_of_kind("causal", 1, 1, n_q, n_k) & mask_of_kind("padding", batch, 1, 1, n_k)
    if kind == "each sample and head":
        b, h, i, j = torch.meshgrid(*map(torch.arange, (batch, heads, n_q, n_k)), indexing="ij")
        return (j == 0) | ((2 * b + 3 * h + i * j) % 5 < 3)
    raise ValueError(kind)


class Shapes(TorchDispatchMode):
    """Records the shape of every tensor that an operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Size] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        results = function(*args, **(kwargs or {}))
        self.seen += [x.shape for x in tree_leaves(results) if isinstance(x, Tensor)]
        return results

    def weights(self, n_q: int, n_k: int) -> list[torch.Size]:
        """Those with a number for each query and key, and for several heads."""
        return [shape for shape in self.seen if shape[-2:] == (n_q, n_k) and math.prod(shape[:-2]) > 1]


MASKS = ("none", "all", "keys", "causal", "padding", "both", "each sample and head")
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def assert_close(actual: Tensor | None, expected: Tensor | None, tolerance: float) -> None:
    """Equal to a share of the largest entry, or of 1 if all are smaller; NaN is never equal.

    A sum is rounded by a share of its largest term, and each processor adds in another order.
    """
    finite = torch.zeros(1) if expected is None else expected.detach()[expected.isfinite()].double().abs()
    largest = max([1.0, *finite.flatten().tolist()])
    torch.testing.assert_close(actual, expected, atol=tolerance * largest, rtol=0)
