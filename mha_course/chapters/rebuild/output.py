"""From the heads to the output: sinks as a factor, the gate, a norm, the last linear map."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mha_course.chapters.rebuild.columns import CLOSE, Bank, Found, NotCovered, View, copied


def output_of(
    views: Sequence[View], bank: Bank, context: Tensor
) -> tuple[nn.Linear, int | None, nn.Module | None, nn.Module | None, int | None]:
    """The output's map, its number among the parts, the gate, a norm before it; and where to compare."""
    n = context.shape[2]
    merged = context.transpose(1, 2).flatten(2)
    width, gate, norm = merged.shape[-1], None, None
    for number, parts in enumerate(zip(*(view.call.parts for view in views), strict=True)):
        given, made = ([v.tokens(p[i], n) for v, p in zip(views, parts, strict=True)] for i in (1, 2))
        if any(x is None or x.shape[-1] != width for x in given) or any(x is None for x in made):
            continue
        given, made = torch.cat(given), torch.cat(made)
        order = None
        if torch.allclose(given, merged, atol=1e-6, rtol=1e-5):
            order = torch.arange(width)
        elif isinstance(parts[0][0], nn.Linear):
            gate = _gate(bank, given, merged)
            order = torch.arange(width) if gate is not None else _permuted(given, merged)
            if gate is not None and norm is not None:
                raise NotCovered("other output")  # our gate comes before a norm, not after it
        if order is None:
            continue
        groups = width // parts[0][1].shape[-1]
        part = copied(parts[0][0], given.unflatten(-1, (groups, -1)), made)
        if part is None:
            continue
        if not isinstance(part, nn.Linear):
            merged, norm = (
                made,
                part if groups == 1 else nn.Sequential(nn.Unflatten(-1, (groups, -1)), part, nn.Flatten(-2)),
            )
            continue
        linear = nn.Linear(width, part.out_features, bias=part.bias is not None)
        linear.weight.data = torch.zeros_like(part.weight).index_copy(1, order, part.weight)
        linear.bias = part.bias
        outputs = [v.tokens(v.call.output, n) for v in views]
        same = all(
            x is not None and x.shape == y.shape
            for x, y in zip(outputs, made.split(views[0].batch), strict=True)
        )
        same = same and torch.allclose(torch.cat(outputs), made, atol=1e-6)
        return linear, number, gate, norm, None if same else number
    outputs = [v.tokens(v.call.output, n) for v in views]
    if all(x is not None for x in outputs) and torch.cat(outputs).shape == merged.shape:
        outputs = torch.cat(outputs)
        order = (
            torch.arange(width) if torch.allclose(outputs, merged, atol=1e-6) else _permuted(outputs, merged)
        )
        if order is not None:
            same = nn.Linear(width, width, bias=False)
            same.weight.data = torch.eye(width)[order]
            return same, None, None, norm, None
    raise NotCovered("other output")


def head_factors(views: Sequence[View], context: Tensor) -> Tensor | None:
    """By what each head of each token is multiplied before the last linear map, ``(batch, heads, n)``."""
    n, width = context.shape[2], context.shape[1] * context.shape[3]
    for parts in zip(*(view.call.parts for view in views), strict=True):
        given = [v.tokens(p[1], n) for v, p in zip(views, parts, strict=True)]
        if isinstance(parts[0][0], nn.Linear) and all(x is not None and x.shape[-1] == width for x in given):
            ratio = torch.cat(given).unflatten(-1, (context.shape[1], -1)).transpose(1, 2) / context
            mean = ratio.median(dim=-1, keepdim=True).values
            fits = ((ratio - mean) * context).abs().max() < CLOSE * context.abs().max()
            if fits and ((mean > 0) & (mean < 1)).all() and (mean - 1).abs().min() > 1e-5:
                return mean[..., 0]
    return None


def _permuted(given: Tensor, merged: Tensor) -> Tensor | None:
    """Which column of ``merged`` each column of ``given`` is."""
    one = Bank.__new__(Bank)
    one.columns = merged
    found = one.find(given)
    if (
        found is None
        or not found[2]
        or (found[1] - 1).abs().max() > 1e-5
        or len(set(found[0].tolist())) < len(found[0])
    ):
        return None
    return found[0]


def _gate(bank: Bank, given: Tensor, merged: Tensor) -> nn.Module | None:
    """The projection whose sigmoid multiplies the heads."""
    ratio = (given.double() / merged.double()).clamp(1e-9, 1 - 1e-9)
    if not torch.allclose(ratio.float() * merged, given, atol=1e-5):
        return None
    a, b = torch.logit(ratio).flatten(0, 1), bank.columns.flatten(0, 1).double()
    at, to = a - a.mean(0), b - b.mean(0)
    best, index = ((at / at.norm(dim=0)).mT @ (to / to.norm(dim=0).clamp(min=1e-12))).max(dim=1)
    if (best < 1 - 1e-4).any() or ((at.norm(dim=0) / to.norm(dim=0)[index]) - 1).abs().max() > 1e-2:
        return None
    gate = Found.__new__(Found)
    gate.bank, gate.index, gate.factors, gate.before = bank, index, torch.ones(len(index)), None
    made, offset = gate.build()[2], (a.mean(0) - b.mean(0)[index]).float()
    if offset.abs().max() < 1e-3:
        return made
    if not isinstance(made, nn.Linear):
        raise NotCovered("other output")
    made.bias = nn.Parameter(offset if made.bias is None else made.bias.data + offset)
    return made
