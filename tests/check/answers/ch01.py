"""Answers to the exercises of chapter 01."""

import math

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, reduce
from torch import nn

import mha_lab
from tests.check.answers.pieces import (
    root,
)


def scores_loop(query, key):
    *lead, n_q, d_k = query.shape
    q, k = query.reshape(-1, n_q, d_k), key.reshape(-1, key.shape[-2], d_k)
    out = torch.empty(len(q), n_q, key.shape[-2], dtype=query.dtype)
    for b in range(len(q)):
        for i in range(n_q):
            for j in range(key.shape[-2]):
                out[b, i, j] = (q[b, i] * k[b, j]).sum() / d_k**0.5
    return out.reshape(*lead, n_q, -1)


def scores_in_place(query, key):
    query /= root(query)
    return query @ key.mT


SCALED_SCORES = [
    (None, scores_loop),
    (None, lambda q, k: q @ k.transpose(-2, -1) / root(q)),
    (None, lambda q, k: torch.einsum("...id,...jd->...ij", q, k) * q.size(-1) ** -0.5),
    (None, lambda q, k: einsum(q, k, "... i d, ... j d -> ... i j") / q.shape[-1] ** 0.5),
    (None, lambda q, k: torch.matmul(q / root(k), k.mT)),
    (None, lambda q, k: (q[..., :, None, :] * k[..., None, :, :]).sum(-1) / root(q)),
    ("not-scaled", lambda q, k: q @ k.mT),
    ("not-scaled", lambda q, k: torch.einsum("...id,...jd->...ij", q, k)),
    ("scaled-by-d_k", lambda q, k: q @ k.mT / q.shape[-1]),
    ("scaled-by-d_k", lambda q, k: (q / k.shape[-1]) @ k.transpose(-1, -2)),
    ("multiplied-by-sqrt", lambda q, k: q @ k.mT * root(q)),
    ("multiplied-by-sqrt", lambda q, k: (q * k.shape[-1] ** 0.5) @ k.mT),
    ("scaled-by-length", lambda q, k: q @ k.mT / math.sqrt(k.shape[-2])),
    ("scaled-by-length", lambda q, k: q @ k.mT / math.sqrt(q.shape[-2])),
    ("key-not-transposed", lambda q, k: q @ k / root(q)),
    ("key-not-transposed", lambda q, k: torch.matmul(q, k) / q.shape[-1] ** 0.5),
    ("queries-and-keys-swapped", lambda q, k: k @ q.mT / root(q)),
    ("queries-and-keys-swapped", lambda q, k: (q @ k.mT / root(q)).mT),
    ("wrong-shape", lambda q, k: (q @ k.mT / root(q))[..., None]),
    ("wrong-dtype", lambda q, k: (q @ k.mT / root(q)).half()),
    ("wrong-dtype", lambda q, k: q.double() @ k.double().mT / root(q)),
    ("changes-its-input", scores_in_place),
    ("returns-nothing", lambda q, k: print(q @ k.mT / root(q))),
    ("raises", lambda q, k: q @ k.mT / math.sqrt(d_k)),
    ("wrong", lambda q, k: q @ k.mT / root(q) + 1),
    ("wrong", mha_lab.scaled_dot_product_scores),
]


def softmax_loop(scores):
    out = torch.empty_like(scores)
    flat, result = scores.reshape(-1, scores.shape[-1]), out.view(-1, scores.shape[-1])
    for i, row in enumerate(flat):
        e = [math.exp(s - max(row.tolist())) for s in row.tolist()]
        for j, number in enumerate(e):
            result[i, j] = number / sum(e)
    return out


ATTENTION_WEIGHTS = [
    (None, softmax_loop),
    (None, lambda s: torch.softmax(s, dim=-1)),
    (None, lambda s: F.softmax(s, -1)),
    (None, lambda s: nn.Softmax(dim=-1)(s)),
    (None, lambda s: torch.exp(s - torch.logsumexp(s, dim=-1, keepdim=True))),
    (None, lambda s: torch.exp(torch.log_softmax(s, -1))),
    (None, lambda s: rearrange(torch.softmax(rearrange(s, "... q k -> ... k q"), -2), "... k q -> ... q k")),
    ("softmax-over-queries", lambda s: torch.softmax(s, dim=-2)),
    ("softmax-over-queries", lambda s: F.softmax(s.mT, dim=-1).mT),
    ("softmax-over-heads", lambda s: torch.softmax(s, dim=0)),
    ("softmax-over-heads", lambda s: F.softmax(s, dim=0)),
    ("unstable-softmax", lambda s: torch.exp(s) / torch.exp(s).sum(dim=-1, keepdim=True)),
    ("unstable-softmax", lambda s: s.exp() / reduce(s.exp(), "... k -> ... 1", "sum")),
    ("not-normalised", lambda s: torch.exp(s)),
    ("not-normalised", lambda s: (s - s.amax(-1, keepdim=True)).exp()),
    ("not-normalised", lambda s: s / s.sum(dim=-1, keepdim=True)),
    ("not-normalised", lambda s: torch.softmax(s.flatten(), 0).view_as(s)),
    ("log-softmax", lambda s: torch.log_softmax(s, -1)),
    ("log-softmax", lambda s: torch.log(torch.softmax(s.double(), -1)).to(s.dtype)),
    ("changes-its-input", lambda s: s.sub_(s.amax(-1, keepdim=True)).exp() / s.exp().sum(-1, keepdim=True)),
    ("wrong-shape", lambda s: torch.softmax(s, -1).sum(-1)),
    ("raises", lambda s: torch.softmax(s)),
    ("wrong", lambda s: torch.sigmoid(s)),
    ("wrong", mha_lab.masked_softmax),
]


def one_head(x, w_q, w_k, w_v, scale=None, dim=-1):
    q, k, v = (torch.einsum("...nm,md->...nd", x, w) for w in (w_q, w_k, w_v))
    weights = torch.softmax(torch.einsum("...id,...jd->...ij", q, k) * (scale or q.shape[-1] ** -0.5), dim)
    return torch.einsum("...ij,...jd->...id", weights, v), weights


def one_head_loop(x, w_q, w_k, w_v):
    outputs, all_weights = [], []
    for sample in x.reshape(-1, *x.shape[-2:]):
        q, k, v = sample @ w_q, sample @ w_k, sample @ w_v
        rows = torch.stack([torch.softmax(torch.stack([a @ b for b in k]) / len(q[0]) ** 0.5, 0) for a in q])
        all_weights.append(rows)
        outputs.append(torch.stack([sum(w * u for w, u in zip(row, v, strict=True)) for row in rows]))
    lead = x.shape[:-2]
    return tuple(torch.stack(t).reshape(*lead, *t[0].shape) for t in (outputs, all_weights))


def one_head_fused(x, w_q, w_k, w_v):
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    eye = torch.eye(k.shape[-2], dtype=x.dtype).expand(*k.shape[:-1], k.shape[-2])
    return F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, eye)


def one_head_not_turned(x, w_q, w_k, w_v):
    scores = torch.matmul(x @ w_q, x @ w_k) * w_q.shape[-1] ** -0.5
    weights = F.softmax(scores, dim=-1)
    return weights @ (x @ w_v), weights


SINGLE_HEAD_ATTENTION = [
    (None, one_head_loop),
    (None, one_head),
    (None, one_head_fused),
    (None, lambda x, q, k, v: mha_lab.scaled_dot_product_attention(x @ q, x @ k, x @ v)),
    (None, lambda x, q, k, v: (lambda w: (w @ (x @ v), w))(((x @ q) @ (x @ k).mT / root(q)).softmax(-1))),
    ("not-scaled", lambda x, q, k, v: one_head(x, q, k, v, scale=1.0)),
    ("not-scaled", lambda x, q, k, v: (lambda w: (w @ x @ v, w))((x @ q @ k.mT @ x.mT).softmax(-1))),
    ("scaled-by-d_k", lambda x, q, k, v: one_head(x, q, k, v, scale=1 / q.shape[-1])),
    (
        "scaled-by-d_k",
        lambda x, q, k, v: (lambda w: (w @ x @ v, w))((x @ q @ (x @ k).mT / k.size(1)).softmax(-1)),
    ),
    ("scaled-by-d_model", lambda x, q, k, v: one_head(x, q, k, v, scale=x.shape[-1] ** -0.5)),
    (
        "scaled-by-d_model",
        lambda x, q, k, v: (lambda w: (w @ x @ v, w))((x @ q @ (x @ k).mT / root(x)).softmax(-1)),
    ),
    ("softmax-over-queries", lambda x, q, k, v: one_head(x, q, k, v, dim=-2)),
    (
        "softmax-over-queries",
        lambda x, q, k, v: (lambda w: (w @ x @ v, w))((x @ k @ (x @ q).mT / root(q)).softmax(-1).mT),
    ),
    ("shared-projection", lambda x, q, k, v: one_head(x, q, q, q)),
    ("shared-projection", lambda x, q, k, v: one_head(x, q, q, v)),
    ("shared-projection", lambda x, q, k, v: (lambda w: (w @ (x @ k), w))(one_head(x, q, k, v)[1])),
    (
        "values-used-as-keys",
        lambda x, q, k, v: (lambda w: (w @ (x @ v), w))((x @ q @ (x @ v).mT / root(q)).softmax(-1)),
    ),
    ("values-used-as-keys", lambda x, q, k, v: torch.matmul(x @ q, (x @ v).transpose(-1, -2))),
    ("no-value-projection", lambda x, q, k, v: (one_head(x, q, k, v)[1] @ x, one_head(x, q, k, v)[1])),
    ("no-value-projection", lambda x, q, k, v: mha_lab.scaled_dot_product_attention(x @ q, x @ k, x)),
    (
        "key-not-transposed",
        lambda x, q, k, v: (lambda w: (w @ (x @ v), w))(((x @ q) @ (x @ k) / root(q)).softmax(-1)),
    ),
    ("key-not-transposed", one_head_not_turned),
    ("output-only", lambda x, q, k, v: one_head(x, q, k, v)[0]),
    ("output-only", lambda x, q, k, v: F.scaled_dot_product_attention(x @ q, x @ k, x @ v)),
    ("outputs-swapped", lambda x, q, k, v: one_head(x, q, k, v)[::-1]),
    ("outputs-swapped", lambda x, q, k, v: tuple(reversed(one_head_fused(x, q, k, v)))),
    ("returns-nothing", lambda x, q, k, v: None),
    ("raises", lambda x, q, k, v: one_head(x, q, k, v, scale="sqrt")),
]


PREDICT_ZERO_QUERY = [
    (None, lambda v: torch.stack([sum(column) / len(column) for column in v.unbind(1)])),
    (None, lambda v: v.mean(dim=0)),
    (None, lambda v: torch.softmax(torch.zeros(len(v), dtype=v.dtype), 0) @ v),
    (None, lambda v: reduce(v, "k d -> d", "mean")),
    (None, lambda v: torch.einsum("kd->d", v) / v.shape[0]),
    (None, lambda v: F.scaled_dot_product_attention(torch.zeros_like(v[:1]), torch.ones_like(v), v)[0]),
    ("zero-weights", lambda v: torch.zeros_like(v[0])),
    ("zero-weights", lambda v: torch.zeros(len(v), dtype=v.dtype) @ v),
    ("not-normalised", lambda v: v.sum(dim=0)),
    ("not-normalised", lambda v: torch.exp(torch.zeros(len(v), dtype=v.dtype)) @ v),
    ("one-value", lambda v: v[0]),
    ("one-value", lambda v: v.max(dim=0).values),
    ("weights-on-columns", lambda v: v.mean(dim=1)),
    ("weights-on-columns", lambda v: v.sum(-1) / v.shape[-1]),
    ("wrong-shape", lambda v: v.mean()),
    ("wrong-shape", lambda v: v.mean(dim=0, keepdim=True)),
    ("raises", lambda v: v.mean(dim=2)),
    ("returns-nothing", lambda v: None),
]


def scaled_by(divisor):
    return lambda x, w_q, w_k: torch.einsum("...id,...jd->...ij", x @ w_q, x @ w_k) / divisor(x, w_q)


def mended_loop(x, w_q, w_k):
    q, k = torch.matmul(x, w_q), torch.matmul(x, w_k)
    rows = [torch.stack([(q[..., i, :] * k[..., j, :]).sum(-1) for j in range(k.shape[-2])], -1)
            for i in range(q.shape[-2])]  # fmt: skip
    return torch.stack(rows, -2) * w_k.shape[-1] ** -0.5


MEND_SCALE = [
    (None, mended_loop),
    (None, scaled_by(lambda x, w: math.sqrt(w.shape[-1]))),
    (None, lambda x, q, k: (x @ q) @ (x @ k).mT / root(x @ q)),
    (None, lambda x, q, k: einsum(x @ q / root(q), x @ k, "... i d, ... j d -> ... i j")),
    (None, lambda x, q, k: mha_lab.scaled_dot_product_scores(x @ q, x @ k)),
    (None, lambda x, q, k: F.linear(x, q.mT) @ F.linear(x, k.mT).transpose(-1, -2) / q.size(1) ** 0.5),
    ("not-scaled", scaled_by(lambda x, w: 1.0)),
    ("not-scaled", lambda x, q, k: (x @ q) @ (x @ k).mT),
    ("scaled-by-d_k", scaled_by(lambda x, w: w.shape[1])),
    ("scaled-by-d_k", lambda x, q, k: (x @ q) @ (x @ k).mT / (x @ k).shape[-1]),
    ("scaled-by-length", scaled_by(lambda x, w: x.shape[-2] ** 0.5)),
    ("scaled-by-length", lambda x, q, k: (x @ q) @ (x @ k).mT / math.sqrt((x @ q).shape[-2])),
    ("scaled-by-d_model", scaled_by(lambda x, w: len(w))),
    ("scaled-by-d_model", lambda x, q, k: (x @ q) @ (x @ k).mT / x.shape[-1]),
    ("shared-projection", lambda x, q, k: (x @ q) @ (x @ q).mT / root(q)),
    ("shared-projection", lambda x, q, k: scaled_by(lambda x, w: root(w))(x, q, q)),
    ("raises", lambda x, q, k: (x @ q) @ (x @ k) / root(q)),
    ("wrong", lambda x, q, k: (x @ k) @ (x @ q).mT / root(q)),
]
