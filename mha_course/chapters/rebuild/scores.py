"""From products to scores: the scale, the cap, the bias, and the mask."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mha_course.chapters.rebuild.columns import CLOSE, NotCovered, View
from mha_course.chapters.rebuild.parts import BiasedScore
from mha_lab.masks import causal_mask
from mha_lab.scores import AlibiScore, RelativePositionBias


def soft_cap_of(module: nn.Module, scores: Tensor, product: Tensor, seen: Tensor) -> float | None:
    """The cap of the scores, if an attribute of the layer or its configuration is one and fits."""
    for owner in (module, getattr(module, "config", None)):
        for name, value in vars(owner).items() if owner is not None else ():
            if ("softcap" in name or "logit_cap" in name) and isinstance(value, int | float) and value:
                raw = scores[..., : product.shape[-1]]
                inner = value * torch.atanh(raw / value)
                if (
                    inner[seen].isfinite().all()
                    and not _fits(product, raw, seen)
                    and _fits(product, inner, seen)
                ):
                    return float(value)
    return None


def _fits(product: Tensor, scores: Tensor, seen: Tensor) -> bool:
    try:
        return bool(affine(product, scores, seen))
    except NotCovered:
        return False


def affine(product: Tensor, scores: Tensor, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """``scores = factor · product + bias + shift``.

    The factor is ``(heads, 1 or n_q)``, the bias ``(heads, n_q, n_k)``, the shift ``(batch, heads, n_q)``.
    """
    same = (seen == seen[:1]).all()
    s, x = (torch.where(seen, one.double(), 0.0) for one in (product, scores))
    count, often = seen.sum(-1, keepdim=True).clamp(min=1), seen.sum(0).clamp(min=1)
    if torch.where(seen, s - s.sum(0) / often, 0.0).abs().max() < 1e-3 * s.abs().max():
        raise NotCovered("the same in each call")
    for centred in (False, True) if same else (False,):
        ds, dx = (torch.where(seen, one - one.sum(0) / often, 0.0) for one in (s, x))
        if centred:
            ds, dx = (torch.where(seen, one - one.sum(-1, keepdim=True) / count, 0.0) for one in (ds, dx))
        top, below = (ds * dx).sum((0, 3)), (ds * ds).sum((0, 3))
        factor = top / below.clamp(min=1e-12)
        whole = top.sum(1, keepdim=True) / below.sum(1, keepdim=True).clamp(min=1e-12)
        for one in (whole.mean(0, keepdim=True).expand_as(whole), whole, factor):
            left = (dx - one[None, :, :, None] * ds).abs().max()
            if left < CLOSE * dx.abs().max().clamp(min=1e-3):
                bias = torch.where(seen, x - one[None, :, :, None] * s, 0.0)
                shift = bias.sum(-1) / count[..., 0] if centred else torch.zeros(bias.shape[:3])
                bias = torch.where(seen, bias - shift[..., None], 0.0).sum(0) / often
                if bias.abs().max() < CLOSE * x.abs().max():
                    bias = torch.zeros_like(bias)
                return one.float(), bias.float(), shift.float()
    raise NotCovered("other scores")


def score_of(bias: Tensor, seen: Tensor) -> tuple[nn.Module | None, str | None]:
    """A score with this bias: the plainest kind that fits where it is seen."""
    if not bias.any():
        return None, None
    heads, n_q, n_k = bias.shape

    def fits(score: nn.Module) -> bool:
        zero = torch.zeros(1, heads, 1, 1)
        made = score(zero.expand(1, heads, n_q, 1), zero.expand(1, heads, n_k, 1))[0]
        left = torch.where(seen, made - bias, 0.0)
        left = left - left.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1)
        return bool(torch.where(seen, left, 0.0).abs().max() < 1e-4)

    if n_q <= n_k and fits(alibi := AlibiScore(heads)):
        return alibi, "ALiBi"
    relative = RelativePositionBias(heads, max(n_q, n_k))
    for distance in range(1 - n_q, n_k):
        one, sees = (torch.diagonal(x, distance, -2, -1) for x in (bias, seen))
        at = (
            min(max(distance - (n_k - n_q), -relative.max_distance), relative.max_distance)
            + relative.max_distance
        )
        relative.bias.data[:, at] = (one * sees).sum(-1) / sees.sum(-1).clamp(min=1)
    if fits(relative):
        return relative, "relative"
    return BiasedScore(bias), "table"


def mask_kind(views: Sequence[View], seen: Tensor) -> tuple[str, Any, dict[str, bool]]:
    """A name for what queries see, the window, chunk or pattern, and which inputs say what is hidden."""
    given = dict(views[0].masks())
    by_input = [name for name, x in given.items() if (seen[: len(x)] == x).all()]
    if not (seen == seen[:1, :1]).all() and not by_input:
        raise NotCovered("sparse index")
    pattern = seen.any(0).any(0) if by_input else seen[0, 0]
    n_q, n_k = pattern.shape
    first = seen[: views[0].batch]
    given = {
        name: not (first <= x).all() if (first <= x).all() or (first <= ~x).all() else None
        for name, x in given.items()
    }
    kind, size = "own", pattern
    if pattern.all():
        kind, size = "full", None
    elif n_q <= n_k and torch.equal(pattern, causal_mask(n_q, n_k)):
        kind, size = "causal", None
    elif n_q <= n_k:
        sizes = ((kind, size) for size in range(1, n_k) for kind in ("window", "chunk", "both sides"))
        kind, size = next(
            (one for one in sizes if torch.equal(pattern, _mask_of(*one, n_q, n_k))), (kind, size)
        )
    return kind, size, given


def _mask_of(kind: str, size: Any, n_q: int, n_k: int) -> Tensor:
    if kind == "full":
        return torch.ones(n_q, n_k, dtype=torch.bool)
    if kind == "own":
        return size
    if kind == "causal":
        return causal_mask(n_q, n_k)
    if kind == "window":
        return causal_mask(n_q, n_k) & ~causal_mask(n_q, n_k).tril(n_k - n_q - size)
    at, to = torch.arange(n_k - n_q, n_k)[:, None], torch.arange(n_k)
    if kind == "chunk":
        return causal_mask(n_q, n_k) & (at // size == to // size)
    return (at - to).abs() < size


def mask_in(kind: tuple[str, Any, dict[str, bool]], view: View) -> Tensor:
    """What queries see in this call: by the layer's own rule, and by the masks among its inputs."""
    mask = _mask_of(*kind[:2], view.n_q, view.n_k).expand(view.batch, 1, view.n_q, view.n_k)
    for name, x in view.masks():
        hides = kind[2].get(name, False)
        mask = mask if hides is None else mask & (~x if hides else x)
    return mask


def scale_name(factor: Tensor, d_k: int) -> str:
    """The scale in words."""
    if factor.shape[1] > 1 and (factor - factor[:, :1]).abs().max() > 1e-4:
        return "by token"
    if (factor - factor[:1]).abs().max() > 1e-4:
        return "by head"
    value = factor[0, 0].item()
    return "1/sqrt(d_k)" if abs(value * math.sqrt(d_k) - 1) < 1e-4 else f"{value:.4g}"
