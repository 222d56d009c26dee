"""mha_lab: multi-head attention in small, finished pieces that the chapters build and then import.

All masks follow one convention: boolean, ``True`` = may attend, broadcastable to
``(batch, heads, query, key)``. Importing this package imports torch and nothing heavier; matplotlib is
imported when ``mha_lab.plot`` is first used. The course that is made of these pieces is ``mha_course``.

A public function checks its arguments before it computes anything. It raises ``TypeError`` for a wrong type
or dtype, and ``ValueError`` for a shape, size, number or device that does not fit; its docstring says more
only if it can raise for another reason, or if it checks nothing.
"""

from importlib import import_module
from types import ModuleType

from mha_lab import _moved, attention, cache, heads, masks, multihead, positions, scores, toy
from mha_lab.attention import masked_softmax, scaled_dot_product_attention, scaled_dot_product_scores
from mha_lab.heads import merge_heads, split_heads
from mha_lab.masks import (
    causal_mask,
    mask_from_additive,
    mask_from_blocked,
    mask_to_additive,
    mask_to_blocked,
    padding_mask,
)
from mha_lab.multihead import MultiHeadAttention, SingleHeadAttention
from mha_lab.scores import AdditiveScore, RelativePositionBias

__version__ = "1.0.0"

__all__ = [
    "AdditiveScore",
    "MultiHeadAttention",
    "RelativePositionBias",
    "SingleHeadAttention",
    "causal_mask",
    "mask_from_additive",
    "mask_from_blocked",
    "mask_to_additive",
    "mask_to_blocked",
    "masked_softmax",
    "merge_heads",
    "padding_mask",
    "plot",
    "scaled_dot_product_attention",
    "scaled_dot_product_scores",
    "split_heads",
    "toy",
]


def _own(module: ModuleType) -> list[str]:
    """The names that a module defines, without those that it imports: ``dir`` and TAB show these only."""
    items = vars(module).items()
    return [n for n, x in items if n[0] != "_" and getattr(x, "__module__", "") == module.__name__]


for _module in (attention, cache, heads, masks, multihead, positions, scores, toy):
    _module.__all__ = getattr(_module, "__all__", None) or _own(_module)
    _module.__dir__ = _module.__all__.copy


def __dir__() -> list[str]:
    return [*__all__, "attention", "cache", "heads", "masks", "multihead", "positions", "scores"]


def __getattr__(name: str) -> ModuleType:
    if name in ("plot", *_moved.PLACES):
        return import_module(f"mha_lab.{name}")
    raise AttributeError(f"module 'mha_lab' has no attribute {name!r}")
