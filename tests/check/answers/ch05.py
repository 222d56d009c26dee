"""Answers to the exercises of chapter 05."""

import torch
import torch.nn.functional as F
from einops import einsum, rearrange
from torch import nn

import mha_lab
from tests.check.answers.pieces import (
    INF,
    additive,
    bare,
    changed,
    cut,
    dealt,
    joined,
    layer,
    root,
    weighing,
)


def project_loop(heads, w_o):
    batch, num_heads, n, d_v = heads.shape
    out = torch.zeros(batch, n, w_o.shape[1], dtype=heads.dtype)
    for h in range(num_heads):
        out = out + heads[:, h] @ w_o[h * d_v : (h + 1) * d_v]
    return out


OUTPUT_PROJECTION = [
    (None, project_loop),
    (None, lambda x, w: x.transpose(1, 2).reshape(len(x), x.shape[2], -1) @ w),
    (None, lambda x, w: torch.einsum("bhnd,hdm->bnm", x, w.view(x.shape[1], x.shape[3], -1))),
    (None, lambda x, w: rearrange(x, "b h n d -> b n (h d)") @ w),
    (None, lambda x, w: F.linear(mha_lab.merge_heads(x), w.mT)),
    (None, lambda x, w: torch.cat(list(x.unbind(1)), -1) @ w),
    ("merge-without-transpose", lambda x, w: x.reshape(len(x), x.shape[2], -1) @ w),
    ("merge-without-transpose", lambda x, w: F.linear(x.contiguous().view(len(x), x.shape[2], -1), w.mT)),
    ("projection-per-wrong-slice", lambda x, w: rearrange(x, "b h n d -> b n (d h)") @ w),
    (
        "projection-per-wrong-slice",
        lambda x, w: torch.einsum("bhnd,dhm->bnm", x, w.view(x.shape[3], x.shape[1], -1)),
    ),
    ("no-output-projection", lambda x, w: mha_lab.merge_heads(x)),
    ("no-output-projection", lambda x, w: x.transpose(1, 2).flatten(2)),
    ("projection-transposed", lambda x, w: joined(x) @ w.T),
    ("projection-transposed", lambda x, w: F.linear(joined(x), w)),
    (
        "not-summed-over-heads",
        lambda x, w: torch.einsum("bhnd,hdm->bhnm", x, w.view(x.shape[1], x.shape[3], -1)),
    ),
    ("not-summed-over-heads", lambda x, w: x @ w.view(x.shape[1], x.shape[3], -1)),
    ("raises", lambda x, w: x @ w),
]


def contributions_loop(heads, w_o):
    d_v = heads.shape[3]
    return torch.stack([heads[:, h] @ w_o[h * d_v : (h + 1) * d_v] for h in range(heads.shape[1])], dim=1)


def contributions_by_zeros(heads, w_o):
    out = []
    for h in range(heads.shape[1]):
        alone = torch.zeros_like(heads)
        alone[:, h] = heads[:, h]
        out.append(joined(alone) @ w_o)
    return torch.stack(out, 1)


HEAD_CONTRIBUTIONS = [
    (None, contributions_loop),
    (None, contributions_by_zeros),
    (None, lambda x, w: x @ w.view(x.shape[1], x.shape[3], -1)),
    (None, lambda x, w: torch.einsum("bhnd,hdm->bhnm", x, w.view(x.shape[1], x.shape[3], -1))),
    (
        None,
        lambda x, w: einsum(x, rearrange(w, "(h d) m -> h d m", h=x.shape[1]), "b h n d, h d m -> b h n m"),
    ),
    (
        "projection-per-wrong-slice",
        lambda x, w: einsum(x, rearrange(w, "(d h) m -> h d m", h=x.shape[1]), "b h n d, h d m -> b h n m"),
    ),
    (
        "projection-per-wrong-slice",
        lambda x, w: torch.stack([x[:, h] @ w[h :: x.shape[1]] for h in range(x.shape[1])], 1),
    ),
    ("projection-per-wrong-slice", lambda x, w: x @ w[: x.shape[3]]),
    ("summed-over-heads", lambda x, w: joined(x) @ w),
    ("summed-over-heads", project_loop),
    (
        "output-shared-equally",
        lambda x, w: (project_loop(x, w) / x.shape[1])[:, None].repeat(1, x.shape[1], 1, 1),
    ),
    ("output-shared-equally", lambda x, w: torch.stack([joined(x) @ w / x.shape[1]] * x.shape[1], 1)),
    ("no-output-projection", lambda x, w: x),
    ("no-output-projection", lambda x, w: x.clone()),
    ("not-swapped-back", lambda x, w: torch.einsum("bhnd,hdm->bnhm", x, w.view(x.shape[1], x.shape[3], -1))),
    ("not-swapped-back", lambda x, w: contributions_loop(x, w).transpose(1, 2)),
    ("heads-not-alone", lambda x, w: x.sum(1, keepdim=True) @ w.view(x.shape[1], x.shape[3], -1)),
    ("heads-not-alone", lambda x, w: torch.stack([sum(x.unbind(1)) @ p for p in w.chunk(x.shape[1])], 1)),
    ("raises", lambda x, w: x @ w),
]


def loop_layer(x, w_q, w_k, w_v, w_o, num_heads, mask=None):
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    d_k = x.shape[-1] // num_heads
    heads, weights = [], []
    for h in range(num_heads):
        part = slice(h * d_k, (h + 1) * d_k)
        m = None if mask is None else mask.expand(len(x), num_heads, -1, -1)[:, h]
        out, w = mha_lab.scaled_dot_product_attention(q[..., part], k[..., part], v[..., part], m)
        heads.append(out)
        weights.append(w)
    return torch.cat(heads, -1) @ w_o, torch.stack(weights, 1)


def torch_layer(x, w_q, w_k, w_v, w_o, num_heads, mask=None):
    q, k, v = (cut(x @ w, num_heads) for w in (w_q, w_k, w_v))
    eye = torch.eye(x.shape[1], dtype=x.dtype).expand(len(x), num_heads, -1, -1)
    out, weights = (F.scaled_dot_product_attention(q, k, u, mask) for u in (v, eye))
    return joined(out) @ w_o, weights


def over_keys(scores, mask):
    return torch.softmax(scores, -1)


def after(scores, mask):
    return torch.softmax(scores, -1) if mask is None else torch.softmax(scores, -1).masked_fill(~mask, 0.0)


def added(scores, mask):
    return torch.softmax(scores if mask is None else scores + mask.to(scores.dtype), -1)


def flipped(scores, mask):
    return torch.softmax(scores if mask is None else scores.masked_fill(mask, -INF), -1)


def nans(scores, mask):
    return torch.softmax(scores if mask is None else scores + additive(mask).to(scores), -1)


def uniform(scores, mask):
    return torch.softmax(scores if mask is None else torch.where(mask, scores, -1e9), -1)


def careful(scores, mask):
    return mha_lab.masked_softmax(scores, mask)


def averaged(*arguments):
    output, weights = layer(*arguments)
    return output, weights.mean(dim=1)


MULTI_HEAD_ATTENTION = [
    (None, loop_layer),
    (None, layer),
    (None, torch_layer),
    (None, weighing(careful)),
    (None, weighing(careful, cut=mha_lab.split_heads, joined=mha_lab.merge_heads)),
    ("nan-for-empty-row", weighing(nans)),
    (
        "nan-for-empty-row",
        weighing(lambda s, m: torch.softmax(s if m is None else s.masked_fill(~m, -INF), -1)),
    ),
    ("uniform-for-empty-row", weighing(uniform)),
    ("uniform-for-empty-row", changed(fill=-1e9)),
    ("mask-ignored", weighing(over_keys)),
    ("mask-ignored", lambda x, q, k, v, o, h, mask=None: layer(x, q, k, v, o, h)),
    ("mask-inverted", weighing(flipped)),
    (
        "mask-inverted",
        lambda x, q, k, v, o, h, mask=None: layer(x, q, k, v, o, h, None if mask is None else ~mask),
    ),
    ("mask-after-softmax", weighing(after)),
    ("mask-after-softmax", weighing(lambda s, m: s.softmax(-1) if m is None else s.softmax(-1) * m)),
    ("mask-added-as-bool", weighing(added)),
    ("mask-added-as-bool", weighing(lambda s, m: s.softmax(-1) if m is None else (s + m).softmax(-1))),
    ("softmax-over-queries", changed(dim=-2)),
    ("softmax-over-queries", changed(dim=2, fill=-1e9)),
    ("softmax-over-heads", changed(dim=1)),
    ("softmax-over-heads", changed(dim=-3, fill=-1e9)),
    ("view-without-transpose", changed(cut=bare)),
    ("view-without-transpose", weighing(careful, cut=bare)),
    ("heads-interleaved", changed(cut=dealt)),
    ("heads-interleaved", weighing(careful, cut=dealt)),
    ("merge-without-transpose", changed(joined=lambda x: x.reshape(len(x), x.shape[2], -1))),
    (
        "merge-without-transpose",
        weighing(careful, joined=lambda x: x.contiguous().view(len(x), x.shape[2], -1)),
    ),
    ("not-scaled", changed(scale=lambda q, x: 1.0)),
    ("not-scaled", changed(scale=lambda q, x: q.shape[-1] ** 0, fill=-1e9)),
    ("scaled-by-d_k", changed(scale=lambda q, x: q.shape[-1])),
    ("scaled-by-d_k", changed(scale=lambda q, x: root(q) ** 2, fill=-1e9)),
    ("scaled-by-d_model", changed(scale=lambda q, x: root(x))),
    ("scaled-by-d_model", changed(scale=lambda q, x: x.shape[-1] ** 0.5, fill=-1e9)),
    ("shared-projection", lambda x, q, k, v, o, h, mask=None: layer(x, q, q, q, o, h, mask)),
    ("shared-projection", lambda x, q, k, v, o, h, mask=None: loop_layer(x, q, q, v, o, h, mask)),
    ("values-used-as-keys", lambda x, q, k, v, o, h, mask=None: layer(x, q, v, v, o, h, mask)),
    ("values-used-as-keys", lambda x, q, k, v, o, h, mask=None: torch_layer(x, q, v, k, o, h, mask)),
    (
        "no-output-projection",
        lambda x, q, k, v, o, h, mask=None: layer(x, q, k, v, torch.eye(len(o)).to(o), h, mask),
    ),
    (
        "no-output-projection",
        lambda x, q, k, v, o, h, mask=None: loop_layer(x, q, k, v, torch.eye(len(o)).to(o), h, mask),
    ),
    ("weights-averaged-over-heads", averaged),
    ("weights-averaged-over-heads", lambda *a: (loop_layer(*a)[0], loop_layer(*a)[1].sum(1) / a[5])),
    ("output-only", lambda *a: layer(*a)[0]),
    ("output-only", lambda *a: loop_layer(*a)[0]),
    ("raises", lambda x, q, k, v, o, h, mask=None: layer(x, q, k, v, o, h, mask[0])),
    (
        "wrong",
        lambda x, q, k, v, o, h, mask=None: mha_lab.MultiHeadAttention(x.shape[-1], h).to(x.dtype)(
            x, mask=mask
        ),
    ),
]


def counted_parameters(d_model, num_heads, bias):
    layer = nn.MultiheadAttention(d_model, num_heads, bias=bias)
    return sum(parameter.numel() for parameter in layer.parameters())


def counted_in_a_loop(d_model, num_heads, bias):
    total = 0
    for _ in ("query", "key", "value"):
        for _ in range(num_heads):
            total += d_model * (d_model // num_heads) + bias * (d_model // num_heads)
    return total + d_model * d_model + bias * d_model


PREDICT_PARAMETERS = [
    (None, counted_parameters),
    (None, counted_in_a_loop),
    (None, lambda d, h, bias: 4 * d**2 + 4 * d * bias),
    (None, lambda d, h, bias: 4 * (d + 1) * d if bias else 4 * d * d),
    (
        None,
        lambda d, h, bias: sum(p.numel() for p in mha_lab.MultiHeadAttention(d, h, bias=bias).parameters()),
    ),
    (
        None,
        lambda d, h, bias: sum(p.numel() for _ in range(4) for p in nn.Linear(d, d, bias=bias).parameters()),
    ),
    ("counted-per-head", lambda d, h, bias: h * 4 * (d * d + (d if bias else 0))),
    ("counted-per-head", lambda d, h, bias: h * 3 * (d * d + bias * d) + d * d + bias * d),
    ("no-output-projection", lambda d, h, bias: 3 * d * d + (3 * d if bias else 0)),
    ("no-output-projection", lambda d, h, bias: 3 * (d + bias) * d),
    ("bias-ignored", lambda d, h, bias: 4 * d**2),
    ("bias-ignored", lambda d, h, bias: counted_parameters(d, h, False)),
    ("one-bias", lambda d, h, bias: 4 * d * d + (d if bias else 0)),
    ("one-bias", lambda d, h, bias: 4 * d * d + bias * 3 * d),
    ("head-width", lambda d, h, bias: 4 * (d * (d // h) + bias * (d // h))),
    ("head-width", lambda d, h, bias: 3 * (d * (d // h) + bias * (d // h)) + d * d + bias * d),
    ("wrong-shape", lambda d, h, bias: (4 * d * d, bias * 4 * d)),
    ("raises", lambda d, h, bias: d + "heads"),
    ("returns-nothing", lambda d, h, bias: None),
    ("wrong", lambda d, h, bias: d * h),
]


def written(heads, w_o, bias):
    return torch.einsum("bhnd,hdm->bnm", heads, w_o.view(heads.shape[1], -1, w_o.shape[1])) + bias


def written_in_a_loop(heads, w_o, bias):
    output, d_v = 0, heads.shape[-1]
    for h in range(heads.shape[1]):
        output = output + heads[:, h] @ w_o[h * d_v : (h + 1) * d_v]
    return output + bias


MEND_BIAS = [
    (None, written_in_a_loop),
    (None, written),
    (None, lambda x, w, b: joined(x) @ w + b),
    (None, lambda x, w, b: F.linear(x.transpose(1, 2).flatten(2), w.mT, b)),
    (None, lambda x, w, b: mha_lab.merge_heads(x) @ w + b),
    (
        None,
        lambda x, w, b: sum(x[:, h] @ part + b / x.shape[1] for h, part in enumerate(w.chunk(x.shape[1]))),
    ),
    ("bias-ignored", lambda x, w, b: joined(x) @ w),
    ("bias-ignored", lambda x, w, b: written(x, w, 0)),
    ("bias-divided", lambda x, w, b: joined(x) @ w + b / x.shape[1]),
    ("bias-divided", lambda x, w, b: written(x, w, b / x.size(1))),
    ("merge-without-transpose", lambda x, w, b: x.reshape(len(x), x.shape[2], -1) @ w + b),
    ("merge-without-transpose", lambda x, w, b: F.linear(x.reshape(len(x), x.size(2), -1), w.mT, b)),
    (
        "projection-per-wrong-slice",
        lambda x, w, b: sum(head @ w[i :: x.shape[1]] for i, head in enumerate(x.unbind(1))) + b,
    ),
    ("projection-per-wrong-slice", lambda x, w, b: rearrange(x, "b h n d -> b n (d h)") @ w + b),
    ("heads-averaged", lambda x, w, b: joined(x) @ w / x.shape[1] + b),
    ("heads-averaged", lambda x, w, b: written(x, w / x.shape[1], b)),
    ("wrong-shape", lambda x, w, b: x @ w.view(x.shape[1], -1, w.shape[1]) + b),
    ("raises", lambda x, w, b: x @ w + b),
    ("returns-nothing", lambda x, w, b: None),
    ("wrong", lambda x, w, b: joined(x) @ w - b),
]
