"""How a width becomes heads, and heads a width again, and the wrong forms of both: written once for all."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mha_course.exercises import Choice, Form, known


def split(x: Tensor, heads: int) -> Tensor:
    """Right: each head gets its columns."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def bare_view(x: Tensor, heads: int) -> Tensor:
    """Wrong: several pieces of one token land in the same head."""
    return x.reshape(*x.shape[:-2], heads, x.shape[-2], x.shape[-1] // heads)


def interleaved(x: Tensor, heads: int) -> Tensor:
    """Wrong: columns given to the heads in turn."""
    return x.unflatten(-1, (-1, heads)).movedim(-1, -3)


def behind(x: Tensor, heads: int) -> Tensor:
    """Wrong: the heads stay after the tokens."""
    return x.unflatten(-1, (heads, -1))


def merge(x: Tensor) -> Tensor:
    """Right: heads side by side."""
    return x.transpose(-3, -2).flatten(-2)


def bare_merge(x: Tensor) -> Tensor:
    """Wrong: the same shape without swapping the axes first."""
    return x.reshape(*x.shape[:-3], x.shape[-2], -1)


def merge_interleaved(x: Tensor) -> Tensor:
    """Wrong: columns of the heads in turn."""
    return x.movedim(-3, -1).flatten(-2)


def overlapping(x: Tensor, heads: int) -> Tensor:
    """Wrong: head ``h`` begins at column ``h``."""
    return torch.stack([x[..., h : h + x.shape[-1] // heads] for h in range(heads)], -3)


SPLIT = {
    "view-without-transpose": Form(
        "",
        "Your heads come from a bare view: several pieces of one token land in the same head.",
        (bare_view,),
        "bare",
    ),
    "heads-interleaved": Form(
        "",
        "Your heads take the columns in turn: head h gets columns h, h + num_heads and so on. It should get"
        " d_k neighbouring columns.",
        (interleaved,),
        "view",
    ),
    "heads-overlap": Form(
        "",
        "Your heads begin at columns 0, 1, 2 and so on, and overlap; head h should begin at column h * d_k.",
        (overlapping,),
        "bare",
    ),
    "pieces-of-num_heads": Form(
        "",
        "Your rows are cut into d_k pieces of num_heads columns; cut them into num_heads pieces of d_k.",
        (lambda x, heads: x.unflatten(-1, (-1, heads)).transpose(-3, -2),),
        "view",
    ),
    "not-transposed": Form(
        "product",
        "Heads and tokens are not swapped after the cut, so the product pairs heads with heads, within one "
        "token.",
        (behind,),
        "bare",
    ),
}
MERGE = {
    "merge-without-transpose": Form(
        "",
        "Your heads are merged without swapping tokens and heads first, so the numbers of several tokens "
        "are in one row (chapter 03, step 4).",
        (bare_merge,),
    ),
    "merged-in-turn": Form(
        "",
        "Your heads are merged column by column in turn; the columns of one head should be side by side.",
        (merge_interleaved,),
    ),
}


CHAPTER_03 = {"bare": "chapter 03, step 3", "view": 'chapter 03, "What view does"'}  # for later chapters


def wrong(
    section: str | Mapping[str, str], *there: str, see: Mapping[str, str] | None = None
) -> dict[str, Choice]:
    """The wrong cuts, as one knob of ``deviations``; ``there``: ``product``, if one of the heads follows."""
    return known(SPLIT, section, there, see=see)
