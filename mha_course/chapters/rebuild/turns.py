"""What turns queries and keys after their projections, and by what they are multiplied."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from mha_course.chapters.rebuild.columns import CLOSE, Found, NotCovered
from mha_course.chapters.rebuild.parts import Angles, Each, Times, in_pairs
from mha_lab.positions import Rotary


def positions_of(q: Found, k: Found, query: Tensor, key: Tensor) -> tuple[list[nn.Module], dict[str, Any]]:
    """What turns queries and keys after their projections, and the norms after that."""
    if q.everywhere and k.everywhere:
        return [], {"positions": None}
    after = [] if q.before is None else [Each(q.before, k.before)]
    if (q.before is None) != (k.before is None):
        raise NotCovered("other positions")
    if after:
        query, key = (_unnormed(f, x) for f, x in ((q, query), (k, key)))
        if any((one.factors != 1).any() for one in (q, k)):
            after.append(Each(*(Times(_by_head(one)) for one in (q, k))))
            q.factors, k.factors = torch.ones_like(q.factors), torch.ones_like(k.factors)
    else:
        lengths = [_lengths(one.plain(), x) for one, x in ((q, query), (k, key))]
        if any((x - 1).abs().max() > 1e-5 for x in lengths):
            query, key = query / lengths[0], key / lengths[1]
            after = [Each(*map(Times, lengths))]
            if all(
                (one.plain() - x).abs().max() < CLOSE * x.abs().max() for one, x in ((q, query), (k, key))
            ):
                return after, {"positions": None, "temperature": True}
    found = _angles(q.plain(), query, normed=q.before is not None)
    if found is None and not after:
        factors = [_by_head(one) for one in (q, k)]
        q.factors, k.factors = torch.ones_like(q.factors), torch.ones_like(k.factors)
        query, key = query / factors[0], key / factors[1]
        after = [Each(*map(Times, factors))]
        found = _angles(q.plain(), query, normed=False)
    if found is None:
        raise NotCovered("other positions")
    normed = q.before is not None
    order, layout, angles = found
    other = _angles_in(k.plain(), key, order, layout, normed, 2 * angles.shape[1])
    if other is None:
        raise NotCovered("other positions")
    width = q.width
    if not torch.equal(order, torch.arange(width)):
        if after:
            raise NotCovered("other positions")
        for one in (q, k):
            one.take((torch.arange(one.heads)[:, None] * width + order).flatten(), one.heads)
    pairs = angles.shape[1]
    told = {
        "temperature": bool(after) and q.before is None,
        "layout": layout,
        "share": round(2 * pairs / width, 3),
    }
    frequencies = _frequencies(angles, other)
    if frequencies is not None:
        return [Rotary(frequencies=frequencies, layout=layout), *after], told | {
            "positions": "rotary", "base": _base(frequencies)
        }  # fmt: skip
    each = Each(Angles(angles, layout), Angles(other, layout))
    return [each, *after], told | {"positions": "rotary, given angles"}


def times_of(found: Found, x: Tensor) -> float:
    """By what all that a projection or a norm gives is multiplied, if that is one number; else 1."""
    made = found.bank.columns[..., found.index].unflatten(-1, (found.heads, -1)).transpose(1, 2)
    ratio = found.factors.abs() if found.before is not None else x.norm(dim=-1) / made.norm(dim=-1)
    return ratio.mean().item() if (ratio / ratio.mean() - 1).abs().max() < 1e-4 else 1.0


def _by_head(found: Found) -> Tensor:
    """The factors, ``(heads, 1, width)``, or ``(1, 1, width)`` if all heads have the same."""
    factors = found.factors.unflatten(0, (found.heads, 1, -1))
    return factors[:1] if (factors == factors[:1]).all() else factors


def _lengths(plain: Tensor, x: Tensor) -> Tensor:
    """By what each token is multiplied, ``(n, 1)``; 1 if that differs between heads."""
    ratio = x.norm(dim=-1) / plain.norm(dim=-1)
    mean = ratio.mean((0, 1))
    return mean[:, None] if (ratio / mean - 1).abs().max() < 1e-4 else torch.ones(len(mean), 1)


def _unnormed(found: Found, x: Tensor) -> Tensor:
    """What a norm was given, but for its length: the gain and the bias taken back."""
    gain, bias = found.before.weight, getattr(found.before, "bias", None)
    return (x / found.factors.unflatten(0, (found.heads, 1, -1)) - (0 if bias is None else bias)) / gain


def _angles(plain: Tensor, turned: Tensor, normed: bool) -> tuple[Tensor, str, Tensor] | None:
    """In which order the numbers are pairs, in which layout, and each token's angles."""
    width = plain.shape[-1]
    dims = torch.arange(width)
    for size in range(width - width % 2, 0, -2):
        for start in {0, width - size}:
            order = torch.cat([dims[start : start + size], dims[:start], dims[start + size :]])
            for layout in ("halves", "pairs"):
                angles = _angles_in(plain, turned, order, layout, normed, size)
                if angles is not None and layout == "pairs":  # those that do not turn do not count
                    turning = (angles.abs().amax(0) > 1e-6).nonzero()[:, 0].tolist() or [0]
                    first, last = turning[0], turning[-1] + 1
                    order = torch.cat([order[2 * first : 2 * last], order[: 2 * first], order[2 * last :]])
                    return order, layout, angles[:, first:last]
                if angles is not None:
                    return order, layout, angles
    return _any_pairs(plain, turned, normed)


def _any_pairs(plain: Tensor, turned: Tensor, normed: bool) -> tuple[Tensor, str, Tensor] | None:
    """Pairs of any two numbers: the sum of their squares stays."""
    change = (turned.double() ** 2 - plain.double() ** 2).flatten(0, 2)
    size = change.norm(dim=0)
    moving = (size > 1e-4 * size.max()).nonzero()[:, 0].tolist()
    unit = change / size.clamp(min=1e-12)
    likeness = unit.mT @ unit
    firsts, seconds = [], []
    while moving:
        a = moving.pop(0)
        b = min(moving, key=lambda d: likeness[a, d].item(), default=None)
        if b is None or likeness[a, b] > -0.999:
            return None
        moving.remove(b)
        firsts.append(a)
        seconds.append(b)
    order = torch.tensor(
        [*firsts, *seconds, *(d for d in range(plain.shape[-1]) if d not in (*firsts, *seconds))]
    )
    angles = _angles_in(plain, turned, order, "halves", normed, 2 * len(firsts)) if firsts else None
    return None if angles is None else (order, "halves", angles)


def _angles_in(
    plain: Tensor, turned: Tensor, order: Tensor, layout: str, normed: bool, size: int
) -> Tensor | None:
    """Each token's angles, ``(n, pairs)``, if the numbers are turned in this order and layout."""
    a, b = plain[..., order], turned[..., order]
    if normed:
        a, b = (x / x.norm(dim=-1, keepdim=True) for x in (a, b))
    close = CLOSE * b.abs().max()
    if ((a[..., size:] - b[..., size:]).abs() > close).any():
        return None
    x, y = (torch.view_as_complex(in_pairs(one[..., :size].double(), layout).contiguous()) for one in (a, b))
    turn = (y * x.conj()).sum((0, 1))
    angles = turn.angle()
    if ((x * torch.polar(torch.ones_like(angles), angles) - y).abs() > close).any():
        return None
    return angles.float()


def _frequencies(*angles: Tensor) -> Tensor | None:
    """The angle from each position to the next, if the tokens are at 0, 1, 2, ..."""
    found = []
    for one in angles:
        if len(one) < 2:
            return None
        at, speed = torch.arange(len(one)).double(), one[1].double()
        for m in range(1, len(one)):
            whole = torch.round((m * speed - one[m]) / (2 * math.pi))
            speed = speed + ((one[m] + 2 * math.pi * whole) / m - speed) * m / (m + 1)
        wrong = at[:, None] * speed - one
        if (wrong - 2 * math.pi * torch.round(wrong / (2 * math.pi))).abs().max() > 1e-4:
            return None
        found.append(speed)
    if any((found[0] - other).abs().max() > 1e-5 for other in found):
        return None
    return torch.stack(found).mean(0).float()


def _base(frequencies: Tensor) -> float | None:
    """``b``, if the frequencies are ``b ** (-i / pairs)``, in three figures, since they were measured."""
    pairs = len(frequencies)
    speed = frequencies.abs().double()
    if pairs < 2 or (speed[0] - 1).abs() > 1e-4:
        return None
    base = float(speed[1] ** -pairs)
    same = (speed - base ** (-torch.arange(pairs) / pairs)).abs().max() < 1e-4
    return float(f"{base:.3g}") if same else None
