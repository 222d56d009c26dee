"""The attention of any published layer as ``MultiHeadAttention``, found by watching it run.

``rebuild`` reads from some calls where queries, keys and values come from. The layer that it returns holds
copies of the weights of projections and norms, and computes from the inputs alone. Frequencies or angles,
biases of scores, sinks, and factors by token are measured in the calls: they do not depend on the text.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from mha_course._expect import instance
from mha_course.chapters.modern import ModernAttention
from mha_course.chapters.observe import Call
from mha_course.chapters.rebuild.columns import CLOSE, Bank, Found, NotCovered, View
from mha_course.chapters.rebuild.output import head_factors, output_of
from mha_course.chapters.rebuild.parts import Each, Times
from mha_course.chapters.rebuild.scores import affine, mask_in, mask_kind, scale_name, score_of, soft_cap_of
from mha_course.chapters.rebuild.turns import positions_of, times_of
from mha_lab import _expect as expect
from mha_lab.scores import SoftcappedScore, TransformSequence


@dataclass
class Rebuilt:
    """A layer, the names of what its original gets that it reads, and what it has."""

    layer: ModernAttention
    sources: tuple[tuple[str, ...], ...]
    mask: tuple[str, Any, dict[str, bool]]
    out: int | None
    features: dict[str, Any] = field(default_factory=dict)

    @torch.no_grad()
    def difference(self, call: Call) -> tuple[float, float]:
        """The largest difference from the original's output in ``call``, and the largest number there."""
        view = View(call)
        query, key, value = (
            view.source(names, n)
            for names, n in zip(self.sources, (view.n_q, view.n_k, view.n_k), strict=True)
        )
        mask = mask_in(self.mask, view)
        ours, _ = self.layer(query, key, value, mask=mask)
        theirs = view.tokens(call.output if self.out is None else call.parts[self.out][2], view.n_q)
        if theirs is None or theirs.shape != ours.shape:
            raise NotCovered("other output")
        sees = mask.any(-1).any(1)[..., None].expand(len(ours), view.n_q, 1)
        return ((ours - theirs) * sees).abs().max().item(), (theirs * sees).abs().max().item()


@torch.no_grad()
def rebuild(calls: Sequence[Call]) -> Rebuilt:
    """A layer of this package that computes what the module of ``calls`` does.

    Args:
        calls: what ``observed`` saw of one module that got random inputs of one shape, at least twice.

    Raises:
        TypeError: ``calls`` has something else than calls.
        ValueError: they are fewer than two, or of several modules.
        NotCovered: the module does something else than our layer can; the message says what.
    """
    for call in calls:
        instance("calls", call, Call)
    if len(calls) < 2 or len({id(call.module) for call in calls}) > 1:
        got = f"{len(calls)} of {len({id(call.module) for call in calls})} modules"
        hint = "Does the module compute attention itself?"
        expect.fail(ValueError, "calls", "two calls or more of one module", got, hint)
    views = [View(call) for call in calls]
    query, key, value, scores, weights, context = (
        torch.cat([getattr(v, name) for v in views]) for name in View.PARTS
    )
    heads, d_k, d_v, n_q, n_k = query.shape[1], query.shape[-1], value.shape[-1], query.shape[2], key.shape[2]
    bank_q = Bank(views, n_q)
    bank_k = bank_q if n_q == n_k else Bank(views, n_k)
    v = Found(bank_k, value, "value")
    q, k = Found(bank_q, query, "query"), Found(bank_k, key, "key")
    if not v.everywhere:
        raise NotCovered("more than a projection")
    times = times_of(q, query) * times_of(k, key)
    transforms, positions = positions_of(q, k, query, key)
    kv_heads = _share(heads, k, v)
    seen = weights[..., :n_k] > 1e-30  # some masks add -100
    cap = soft_cap_of(calls[0].module, scores, query @ key.mT, seen)
    raw = scores[..., :n_k]
    factor, bias, shift = affine(query @ key.mT, raw if cap is None else cap * torch.atanh(raw / cap), seen)
    score, kind = (None, None) if cap is None else (SoftcappedScore(cap), None)
    if cap is None:
        score, kind = score_of(bias, seen.any(0))
    sinks = None
    if scores.shape[-1] > n_k:
        sinks = (scores[..., -1] - shift).mean((0, 2))
        if ((scores[..., -1] - shift) - sinks[:, None]).abs().max() > 1e-4:
            raise NotCovered("other sinks")
    if (ratio := head_factors(views, context)) is not None:  # sinks, as a factor after the softmax
        total = raw.masked_fill(~seen, -math.inf).logsumexp(-1) - shift.mean()
        found = (total - torch.logit(ratio)).transpose(0, 1).flatten(1).median(dim=1).values
        if (torch.sigmoid(total - found[:, None]) - ratio).abs().max() < CLOSE:
            context, sinks = context * ratio[..., None], found
    scale = factor * math.sqrt(d_k)
    if scale.shape[1] > 1 or q.before is not None:
        transforms.append(Each(Times(scale[..., None]), nn.Identity()))
    else:
        q.factors = q.factors * scale.expand(heads, 1).reshape(-1).repeat_interleave(d_k)
    out, number, gate, norm, at = output_of(views, bank_q, context)
    (
        (names_q, width_q, q_proj, used_q),
        (names_k, width_k, k_proj, used_k),
        (names_v, width_v, v_proj, used_v),
    ) = (one.build() for one in (q, k, v))
    layer = ModernAttention(
        out.out_features, heads, d_k=d_k, d_v=d_v, num_kv_heads=kv_heads, qdim=width_q, kdim=width_k,
        vdim=width_v, sinks=sinks is not None, score=score,
        transform=TransformSequence(*transforms) if transforms else None,
    ).eval()  # fmt: skip
    layer.q_proj, layer.k_proj, layer.v_proj = q_proj, k_proj, v_proj
    layer.out_proj = out if norm is None else nn.Sequential(norm, out)
    layer.gate_proj = gate
    if sinks is not None:
        layer.sinks.data = sinks
    mask = mask_kind(views, seen)
    norms = [part for part in used_q if not isinstance(part, nn.Linear)]
    linear = [[id(part) for part in used if isinstance(part, nn.Linear)] for used in (used_q, used_k, used_v)]
    features = positions | {
        "heads": heads, "kv_heads": kv_heads, "d_k": d_k, "d_v": d_v, "mask": mask[0],
        "sinks": sinks is not None,
        "window": mask[1] if mask[0] in ("window", "chunk") else None,
        "cap": cap, "gate": gate is not None, "bias": kind, "scale": scale_name(factor * times, d_k),
        "norm": type(q.before or (norms or [None])[-1]).__name__.replace("NoneType", ""),
        "packed": bool(linear[0]) and linear[0][-1:] == linear[2][-1:],
        "latent": len(linear[1]) > 1, "cross": names_q != names_k and n_q != n_k,
        "linear_bias": getattr(q_proj, "bias", None) is not None,
        "output": "none" if number is None else "norm, linear" if norm else "linear",
    }  # fmt: skip
    return Rebuilt(layer, (names_q, names_k, names_v), mask, at, features)


def _share(heads: int, k: Found, v: Found) -> int:
    """How many heads keys and values have; then only these are left."""
    keys, values = k.keys(), v.keys()
    groups = len(set(zip(keys, values, strict=True)))
    step = heads // groups if heads % groups == 0 else 1
    both = list(zip(keys, values, strict=True))
    if any(both[h] != both[h // step * step] for h in range(heads)):
        step = 1
    for one in (k, v):
        chosen = torch.arange(0, heads, step)[:, None] * one.width + torch.arange(one.width)
        one.take(chosen.flatten(), heads // step)
    return heads // step
