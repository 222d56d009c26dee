"""Answers to every exercise as people write them: right in several styles, and wrong in known ways.

A row is ``(slug, function)``; the slug of a right answer is ``None``. To add an exercise, add its row
here and its module in ``mha_lab/solutions``.
"""

import math
from types import FunctionType

import torch
import torch.nn.functional as F
from einops import einsum, rearrange, reduce
from torch import nn

import mha_lab
from mha_lab import explore, toy

INF = float("inf")


def root(x):
    return math.sqrt(x.shape[-1])


# Pieces that several answers share


def cut(x, h):
    return rearrange(x, "b n (h d) -> b h n d", h=h)


def bare(x, h):
    b, n, d = x.shape
    return x.reshape(b, h, n, d // h)


def dealt(x, h):
    return rearrange(x, "b n (d h) -> b h n d", h=h)


def joined(x):
    return rearrange(x, "b h n d -> b n (h d)")


def layer(x, w_q, w_k, w_v, w_o, h, mask=None, *, cut=cut, joined=joined, scale=None, fill=-INF, dim=-1):
    """A whole layer in einsum, careful about empty rows only if ``fill`` is ``-inf``."""
    q, k, v = (cut(x @ w, h) for w in (w_q, w_k, w_v))
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / (scale(q, x) if scale else root(q))
    if mask is not None:
        scores = scores.masked_fill(~mask, fill)
    weights = scores.softmax(dim)
    if fill == -INF:
        weights = torch.nan_to_num(weights)
    return joined(torch.einsum("bhij,bhjd->bhid", weights, v)) @ w_o, weights


def changed(**changes):
    return lambda x, q, k, v, o, h, mask=None: layer(x, q, k, v, o, h, mask, **changes)


def plain_layer(x, w_q, w_k, w_v, w_o, h, mask, weigh, **pieces):
    """The same in matrix products, with the softmax of the caller."""
    q, k, v = (pieces.get("cut", cut)(x @ w, h) for w in (w_q, w_k, w_v))
    weights = weigh(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, mask)
    return pieces.get("joined", joined)(weights @ v) @ w_o, weights


def weighing(weigh, **pieces):
    return lambda x, q, k, v, o, h, mask=None: plain_layer(x, q, k, v, o, h, mask, weigh, **pieces)


def additive(mask, fill=-INF):
    return torch.zeros(mask.shape).masked_fill(~mask, fill)


# 00


def weighted_average_loop(weights, values):
    total = torch.zeros_like(values[0])
    for w, v in zip(weights, values, strict=True):
        total = total + w * v
    return total


WEIGHTED_AVERAGE = [
    (None, weighted_average_loop),
    (None, lambda w, v: w @ v),
    (None, lambda w, v: torch.einsum("k,kd->d", w, v)),
    (None, lambda w, v: einsum(w, v, "k, k d -> d")),
    (None, lambda w, v: torch.sum(w[:, None] * v, dim=0)),
    (None, lambda w, v: F.linear(v.mT, w)),
    ("not-weighted", lambda w, v: v.mean(dim=0)),
    ("not-weighted", lambda w, v: sum(v) / len(v)),
    ("not-summed", lambda w, v: w[:, None] * v),
    ("not-summed", lambda w, v: torch.stack([a * b for a, b in zip(w, v, strict=True)])),
    ("divided-again", lambda w, v: (w[:, None] * v).mean(dim=0)),
    ("divided-again", lambda w, v: (w @ v) / w.numel()),
    ("weights-on-columns", lambda w, v: v @ w),
    ("weights-on-columns", lambda w, v: torch.sum(v * w, dim=-1)),
    ("raises", lambda w, v: w.item() * v),
    ("returns-nothing", lambda w, v: None),
    ("wrong-shape", lambda w, v: (w @ v)[None]),
]

# 01


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

# 02


def with_key(scale):
    return lambda keys, index: scale * keys[index]


def aimed(keys, index):
    target = torch.zeros(len(keys), dtype=keys.dtype)
    target[index] = 40 * root(keys)
    return torch.linalg.pinv(keys) @ target


QUERY_FOR_KEY = [
    (None, aimed),
    (None, with_key(1e4)),
    (None, lambda keys, i: 100 * keys[i] / (keys[i] ** 2).sum() * keys.shape[1]),
    (None, lambda keys, i: F.normalize(keys[i], dim=0) * 1000 / keys[i].norm()),
    (
        None,
        lambda keys, i: torch.einsum("k,kd->d", F.one_hot(torch.tensor(i), len(keys)).to(keys) * 1e4, keys),
    ),
    ("too-flat", with_key(1)),
    ("too-flat", lambda keys, i: keys[i] / keys[i].norm()),
    ("wrong-key", lambda keys, i: torch.zeros(keys.shape[1])),
    ("wrong-key", lambda keys, i: -1e4 * keys[i]),
    ("wrong-key", lambda keys, i: 1e4 * keys[(i + 1) % len(keys)]),
    ("wrong-shape", lambda keys, i: 1e4 * keys[i : i + 1]),
    ("wrong-shape", lambda keys, i: torch.tensor(i)),
    ("returns-nothing", lambda keys, i: None),
]


def parted(keys, i, j, length=1e4):
    return length * (keys[i] / (keys[i] @ keys[i]) + keys[j] / (keys[j] @ keys[j]))


def solved(keys, i, j):
    wanted = torch.zeros(len(keys), dtype=keys.dtype)
    wanted[[i, j]] = 60 * root(keys)
    return torch.linalg.lstsq(keys, wanted[:, None], driver="gelsd").solution[:, 0]


def dragged(x, y):
    """A picture whose query somebody moved."""
    by_hand = explore.query(toy.plane_keys(), toy.plane_values())
    by_hand.query = torch.tensor([x, y])
    return by_hand


QUERY_BY_HAND = [
    (None, lambda: dragged(1.6, -3.7).query),
    (None, lambda: dragged(2.2, -5.1).query),
    (None, lambda: torch.tensor([1, -2.3])),
    (None, lambda: 0.5 * torch.tensor([3.0, -7.0], dtype=torch.float64)),
    (None, lambda: torch.linalg.solve(toy.plane_keys()[[0, 2]], torch.tensor([6.0, 6.0]))),
    ("too-flat", lambda: torch.zeros(2)),
    ("too-flat", lambda: dragged(0.2, -0.5).query),
    ("wrong-key", lambda: dragged(0.0, 3.0).query),  # 20, from key 1
    ("wrong-key", lambda: dragged(2.0, 2.0).query),  # the two others
    ("wrong-key", lambda: dragged(-1.5, 3.5).query),  # the opposite direction
    ("wrong-key", lambda: dragged(0.3, 0.1).query),  # where the picture begins
    ("unequal-weights", lambda: dragged(3.0, -3.0).query),
    ("unequal-weights", lambda: dragged(-2.0, -2.0).query),
    ("wrong-shape", lambda: dragged(1.6, -3.7).weights),
    ("wrong-shape", lambda: dragged(1.6, -3.7).query[None]),
    ("wrong-shape", lambda: dragged(1.6, -3.7).query.tolist()),
    ("returns-nothing", lambda: None),
]
QUERY_AVERAGING = [
    (None, lambda keys, i, j: parted(keys.double(), i, j, 200.0)),
    (None, solved),
    (None, lambda keys, i, j: 60 * root(keys) * torch.linalg.pinv(keys)[:, [i, j]].sum(1)),
    (None, lambda keys, i, j: 60 * root(keys) * sum(keys[m] / keys[m].norm() ** 2 for m in (i, j))),
    ("unequal-weights", lambda keys, i, j: 1e4 * (keys[i] + keys[j])),
    ("unequal-weights", lambda keys, i, j: 1e4 * (F.normalize(keys[i], dim=0) + F.normalize(keys[j], dim=0))),
    ("unequal-weights", lambda keys, i, j: 1e4 * keys[i]),
    ("too-flat", lambda keys, i, j: parted(keys, i, j, 1.0)),
    ("too-flat", lambda keys, i, j: keys[i] / keys[i].norm() ** 2 + keys[j] / keys[j].norm() ** 2),
    ("wrong-key", lambda keys, i, j: torch.zeros(keys.shape[1])),
    ("wrong-key", lambda keys, i, j: -parted(keys, i, j)),
    ("wrong-shape", lambda keys, i, j: torch.stack([keys[i], keys[j]])),
]


def lookup_loop(query, keys, values, temperature):
    scores = [float(query @ key) / temperature for key in keys]
    raised = [math.exp(s - max(scores)) for s in scores]
    return sum(r / sum(raised) * v for r, v in zip(raised, values, strict=True))


SOFT_LOOKUP = [
    (None, lookup_loop),
    (None, lambda q, k, v, t: torch.softmax(k @ q / t, 0) @ v),
    (None, lambda q, k, v, t: torch.einsum("k,kd->d", (torch.einsum("d,kd->k", q, k) / t).softmax(0), v)),
    (None, lambda q, k, v, t: F.scaled_dot_product_attention(q[None], k, v, scale=1 / t)[0]),
    (None, lambda q, k, v, t: mha_lab.scaled_dot_product_attention(q[None], k, v, scale=1 / t)[0][0]),
    (None, lambda q, k, v, t: einsum((einsum(q, k, "d, k d -> k") / t).softmax(0), v, "k, k d -> d")),
    ("temperature-ignored", lambda q, k, v, t: (k @ q).softmax(0) @ v),
    ("temperature-ignored", lambda q, k, v, t: F.scaled_dot_product_attention(q[None], k, v)[0]),
    ("temperature-inverted", lambda q, k, v, t: (k @ q * t).softmax(0) @ v),
    ("temperature-inverted", lambda q, k, v, t: F.scaled_dot_product_attention(q[None], k, v, scale=t)[0]),
    ("scaled-as-well", lambda q, k, v, t: (k @ q / t / len(q) ** 0.5).softmax(0) @ v),
    ("scaled-as-well", lambda q, k, v, t: F.scaled_dot_product_attention(q[None] / t, k, v)[0]),
    ("temperature-after-softmax", lambda q, k, v, t: (k @ q).softmax(0) / t @ v),
    ("temperature-after-softmax", lambda q, k, v, t: (k @ q).softmax(0) @ (v / t)),
    ("unstable-softmax", lambda q, k, v, t: ((k @ q / t).exp() / (k @ q / t).exp().sum()) @ v),
    ("unstable-softmax", lambda q, k, v, t: ((k @ q / t).exp() / sum((k @ q / t).exp())) @ v),
    ("not-normalised", lambda q, k, v, t: torch.exp(k @ q / t) @ v),
    ("not-normalised", lambda q, k, v, t: (k @ (q / t)) @ v),
    ("hard-lookup", lambda q, k, v, t: v[torch.argmax(k @ q)]),
    ("hard-lookup", lambda q, k, v, t: (k @ q / 1e-9).softmax(0) @ v),
    ("wrong-shape", lambda q, k, v, t: ((k @ q / t).softmax(0) @ v)[None]),
]

# 03


def split_loop(x, num_heads):
    d_k = x.shape[2] // num_heads
    return torch.stack([x[:, :, h * d_k : (h + 1) * d_k] for h in range(num_heads)], dim=1)


SPLIT_HEADS = [
    (None, split_loop),
    (None, lambda x, h: x.reshape(x.shape[0], x.shape[1], h, -1).transpose(1, 2)),
    (None, lambda x, h: x.unflatten(-1, (h, x.shape[-1] // h)).permute(0, 2, 1, 3)),
    (None, lambda x, h: rearrange(x, "b n (h d) -> b h n d", h=h)),
    (None, lambda x, h: torch.stack(x.chunk(h, dim=-1), dim=1)),
    (None, lambda x, h: torch.einsum("bnhd->bhnd", x.reshape(*x.shape[:2], h, -1))),
    (None, lambda x, h: x.reshape(*x.shape[:2], h, -1).swapaxes(1, 2).contiguous()),
    ("view-without-transpose", lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1)),
    ("view-without-transpose", lambda x, h: x.contiguous().view(len(x), h, x.size(1), x.size(2) // h)),
    ("heads-interleaved", lambda x, h: rearrange(x, "b n (d h) -> b h n d", h=h)),
    ("heads-interleaved", lambda x, h: x.reshape(*x.shape[:2], -1, h).permute(0, 3, 1, 2)),
    ("not-transposed", lambda x, h: x.reshape(*x.shape[:2], h, -1)),
    ("not-transposed", lambda x, h: rearrange(x, "b n (h d) -> b n h d", h=h)),
    ("wrong-axes-swapped", lambda x, h: x.reshape(*x.shape[:2], h, -1).transpose(2, 3)),
    ("wrong-axes-swapped", lambda x, h: rearrange(x, "b n (h d) -> b d h n", h=h)),
    ("raises", lambda x, h: x.view(h, -1, 0)),
    ("raises", lambda x, h: x.reshape(x.shape[0], x.shape[1], h, x.shape[2] / h).transpose(1, 2)),
    ("returns-nothing", lambda x, h: None),
    ("wrong-dtype", lambda x, h: cut(x.float(), h)),
    ("wrong", lambda x, h: mha_lab.split_heads(x, h)),
]

MERGE_HEADS = [
    (None, lambda x: torch.cat([x[:, h] for h in range(x.shape[1])], dim=-1)),
    (None, lambda x: x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)),
    (None, lambda x: x.permute(0, 2, 1, 3).contiguous().view(x.size(0), x.size(2), x.size(1) * x.size(3))),
    (None, lambda x: rearrange(x, "b h n d -> b n (h d)")),
    (None, lambda x: x.transpose(1, 2).flatten(2)),
    (None, lambda x: torch.einsum("bhnd->bnhd", x).flatten(-2)),
    ("merge-without-transpose", lambda x: x.reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])),
    ("merge-without-transpose", lambda x: x.contiguous().view(x.shape[0], x.shape[2], -1)),
    (
        "view-after-transpose",
        lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], x.shape[1] * x.shape[3]),
    ),
    (
        "view-after-transpose",
        lambda x: x.permute(0, 2, 1, 3).view(x.shape[0], x.shape[2], x.shape[1] * x.shape[3]),
    ),
    ("heads-interleaved", lambda x: rearrange(x, "b h n d -> b n (d h)")),
    ("heads-interleaved", lambda x: x.permute(0, 2, 3, 1).flatten(2)),
    ("wrong-shape", lambda x: x.transpose(1, 2)),
    ("wrong-shape", lambda x: x.sum(1)),
    ("wrong", lambda x: mha_lab.merge_heads(x)),
]


def head_weights(q, k, h, cut=cut, scale=None, dim=-1):
    q, k = cut(q, h), cut(k, h)
    return torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k) / (scale or root(q)), dim)


def head_weights_loop(query, key, num_heads):
    d_k = query.shape[-1] // num_heads
    parts = [slice(h * d_k, (h + 1) * d_k) for h in range(num_heads)]
    each = [torch.softmax(query[..., p] @ key[..., p].mT / d_k**0.5, -1) for p in parts]
    return torch.stack(each, dim=1)


def head_weights_in_matrices(q, k, h, cut=cut, scale=None, dim=-1):
    q, k = cut(q, h), cut(k, h)
    return F.softmax((q @ k.transpose(2, 3)) * (1 / scale if scale else q.shape[-1] ** -0.5), dim=dim)


PER_HEAD_WEIGHTS = [
    (None, head_weights_loop),
    (None, head_weights),
    (None, lambda q, k, h: mha_lab.masked_softmax(mha_lab.scaled_dot_product_scores(cut(q, h), cut(k, h)))),
    (
        None,
        lambda q, k, h: (
            mha_lab.split_heads(q, h) @ mha_lab.split_heads(k, h).mT / (q.shape[2] // h) ** 0.5
        ).softmax(-1),
    ),
    (
        None,
        lambda q, k, h: F.scaled_dot_product_attention(
            cut(q, h), cut(k, h), torch.eye(k.shape[1]).to(k).expand(len(k), h, -1, -1)
        ),
    ),
    ("view-without-transpose", lambda q, k, h: head_weights(q, k, h, bare)),
    ("view-without-transpose", lambda q, k, h: head_weights_in_matrices(q, k, h, bare)),
    ("heads-interleaved", lambda q, k, h: head_weights(q, k, h, dealt)),
    ("heads-interleaved", lambda q, k, h: head_weights_in_matrices(q, k, h, dealt)),
    ("not-scaled", lambda q, k, h: head_weights(q, k, h, scale=1.0)),
    ("not-scaled", lambda q, k, h: torch.softmax(cut(q, h) @ cut(k, h).mT, -1)),
    ("scaled-by-d_k", lambda q, k, h: head_weights(q, k, h, scale=q.shape[-1] / h)),
    ("scaled-by-d_k", lambda q, k, h: torch.softmax(cut(q, h) @ cut(k, h).mT / (k.shape[-1] // h), -1)),
    ("scaled-by-d_model", lambda q, k, h: head_weights(q, k, h, scale=root(q))),
    ("scaled-by-d_model", lambda q, k, h: torch.softmax(cut(q, h) @ cut(k, h).mT / k.shape[-1] ** 0.5, -1)),
    ("softmax-over-queries", lambda q, k, h: head_weights(q, k, h, dim=-2)),
    ("softmax-over-queries", lambda q, k, h: head_weights_in_matrices(q, k, h, dim=2)),
    ("softmax-over-heads", lambda q, k, h: head_weights(q, k, h, dim=1)),
    ("softmax-over-heads", lambda q, k, h: head_weights_in_matrices(q, k, h, dim=-3)),
    ("weights-averaged-over-heads", lambda q, k, h: head_weights(q, k, h).mean(dim=1)),
    (
        "weights-averaged-over-heads",
        lambda q, k, h: reduce(head_weights(q, k, h), "b h i j -> b i j", "mean"),
    ),
    (
        "key-not-transposed",
        lambda q, k, h: torch.softmax(cut(q, h) @ cut(k, h) / (q.shape[-1] // h) ** 0.5, -1),
    ),
    (
        "key-not-transposed",
        lambda q, k, h: F.softmax(split_loop(q, h) @ split_loop(k, h) / root(cut(q, h)), 3),
    ),
    ("raises", lambda q, k, h: torch.softmax(q.split(h) @ k.mT, -1)),
]

# 04


def causal_loop(n):
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i in range(n):
        mask[i, : i + 1] = True
    return mask


CAUSAL_MASK = [
    (None, causal_loop),
    (None, lambda n: torch.tril(torch.ones(n, n, dtype=torch.bool))),
    (None, lambda n: ~torch.ones(n, n).triu(1).bool()),
    (None, lambda n: torch.arange(n)[:, None] >= torch.arange(n)[None, :]),
    (None, lambda n: rearrange(torch.arange(n), "n -> n 1") >= rearrange(torch.arange(n), "n -> 1 n")),
    (None, lambda n: nn.Transformer.generate_square_subsequent_mask(n) == 0),
    ("mask-inverted", lambda n: torch.ones(n, n).triu(1).bool()),
    ("mask-inverted", lambda n: torch.arange(n)[:, None] < torch.arange(n)),
    ("sees-the-future", lambda n: torch.triu(torch.ones(n, n, dtype=torch.bool))),
    ("sees-the-future", lambda n: torch.arange(n)[:, None] <= torch.arange(n)),
    ("sees-the-future", lambda n: torch.ones(n, n).bool()),
    ("hides-diagonal", lambda n: torch.ones(n, n).tril(-1).bool()),
    ("hides-diagonal", lambda n: torch.arange(n)[:, None] > torch.arange(n)),
    ("wrong-dtype", lambda n: torch.tril(torch.ones(n, n))),
    ("wrong-dtype", lambda n: torch.ones(n, n, dtype=torch.long).tril()),
    ("additive-mask", nn.Transformer.generate_square_subsequent_mask),
    ("additive-mask", lambda n: torch.full((n, n), -INF).triu(1)),
    ("wrong-shape", lambda n: torch.ones(1, n, n).tril().bool()),
    ("raises", lambda n: torch.tril(n)),
    ("wrong", lambda n: mha_lab.causal_mask(n)),
]


def padding_loop(lengths, max_length):
    mask = torch.zeros(len(lengths), 1, 1, max_length, dtype=torch.bool)
    for b, length in enumerate(lengths):
        mask[b, :, :, :length] = True
    return mask


PADDING_MASK = [
    (None, padding_loop),
    (None, lambda n, m: (torch.arange(m) < n[:, None])[:, None, None, :]),
    (None, lambda n, m: torch.arange(m).expand(len(n), 1, 1, m) < n.view(-1, 1, 1, 1)),
    (None, lambda n, m: rearrange(torch.arange(m)[None] < n[:, None], "b k -> b 1 1 k")),
    (None, lambda n, m: ~(torch.arange(m) >= n[:, None])[:, None, None]),
    (None, lambda n, m: torch.arange(m).lt(n.unsqueeze(1)).unsqueeze(1).unsqueeze(1)),
    ("mask-inverted", lambda n, m: (torch.arange(m) >= n[:, None])[:, None, None, :]),
    ("mask-inverted", lambda n, m: ~padding_loop(n, m)),
    ("padding-off-by-one", lambda n, m: (torch.arange(m) <= n[:, None])[:, None, None, :]),
    ("padding-off-by-one", lambda n, m: padding_loop((n + 1).clamp(max=m), m)),
    ("masks-queries-not-keys", lambda n, m: (torch.arange(m) < n[:, None])[:, None, :, None]),
    ("masks-queries-not-keys", lambda n, m: padding_loop(n, m).mT),
    ("wrong-shape", lambda n, m: torch.arange(m) < n[:, None]),
    ("wrong-shape", lambda n, m: padding_loop(n, m)[:, 0]),
    ("wrong-dtype", lambda n, m: padding_loop(n, m).float()),
    ("wrong-dtype", lambda n, m: padding_loop(n, m).int()),
    ("raises", lambda n, m: torch.arange(m) < n),
    ("wrong", lambda n, m: mha_lab.padding_mask(n, m)),
]


def masked_loop(scores, mask):
    mask = mask.expand(scores.shape)
    rows = []
    for s, m in zip(scores.reshape(-1, scores.shape[-1]), mask.reshape(-1, scores.shape[-1]), strict=True):
        row = torch.zeros_like(s)
        if m.any():
            row = row.masked_scatter(m, torch.softmax(s[m], 0))
        rows.append(row)
    return torch.stack(rows).reshape(scores.shape)


MASKED_SOFTMAX = [
    (None, masked_loop),
    (None, lambda s, m: torch.softmax(s.masked_fill(~m, torch.finfo(s.dtype).min), -1).masked_fill(~m, 0)),
    (None, lambda s, m: torch.where(m, torch.softmax(torch.where(m, s, -1e30), -1), 0.0)),
    (None, lambda s, m: torch.nan_to_num(torch.softmax(s.masked_fill(~m, -INF), -1))),
    (None, lambda s, m: F.softmax(s.masked_fill(~m, -1e9), dim=-1) * m),
    (
        None,
        lambda s, m: (lambda e: e / e.sum(-1, keepdim=True).clamp_min(1e-30))(
            torch.exp(s.masked_fill(~m, -INF) - s.masked_fill(~m, -1e30).amax(-1, keepdim=True)) * m
        ),
    ),
    ("nan-for-empty-row", lambda s, m: torch.softmax(s.masked_fill(~m, -INF), -1)),
    ("nan-for-empty-row", lambda s, m: F.softmax(s + additive(m).to(s), dim=-1)),
    ("nan-for-empty-row", lambda s, m: torch.nan_to_num(torch.softmax(s + additive(m).to(s), -1))),
    ("uniform-for-empty-row", lambda s, m: torch.softmax(s.masked_fill(~m, -1e9), -1)),
    ("uniform-for-empty-row", lambda s, m: F.softmax(torch.where(m, s, -1e9), -1)),
    ("mask-inverted", lambda s, m: torch.softmax(s.masked_fill(m, -INF), -1)),
    ("mask-inverted", lambda s, m: torch.softmax(s.masked_fill(m, -1e9), -1)),
    ("mask-inverted", lambda s, m: masked_loop(s, ~m)),
    ("mask-after-softmax", lambda s, m: torch.softmax(s, -1) * m),
    ("mask-after-softmax", lambda s, m: torch.softmax(s, -1).masked_fill(~m, 0)),
    ("mask-added-as-bool", lambda s, m: torch.softmax(s + m, -1)),
    ("mask-added-as-bool", lambda s, m: torch.softmax(s + m.to(s.dtype), -1)),
    ("multiplied-scores", lambda s, m: torch.softmax(s * m, -1)),
    ("multiplied-scores", lambda s, m: torch.softmax(s.masked_fill(~m, 0), -1)),
    ("mask-ignored", lambda s, m: torch.softmax(s, dim=-1)),
    ("mask-ignored", lambda s, m: s.exp() / s.exp().sum(-1, keepdim=True)),
    ("softmax-over-queries", lambda s, m: torch.softmax(s.masked_fill(~m, -INF), -2)),
    ("softmax-over-queries", lambda s, m: F.softmax(s.masked_fill(~m, -1e9), dim=-2)),
    ("not-normalised", lambda s, m: s.exp() * m),
    ("not-normalised", lambda s, m: torch.exp(s.masked_fill(~m, -INF))),
    ("returns-nothing", lambda s, m: None),
    ("raises", lambda s, m: torch.softmax(s.masked_fill_(~m, -INF), -1)),
    ("wrong", mha_lab.masked_softmax),
]


def by_gradient(attention, n, d_model):
    for _ in range(20):
        jacobian = torch.autograd.functional.jacobian(attention, torch.randn(n, d_model, dtype=torch.float64))
        if (jacobian.abs().sum((1, 3)).triu(1) > 0).any():
            return True
    return False


def by_func(attention, n, d_model):
    influence = sum(
        torch.func.jacrev(attention)(torch.randn(n, d_model)).abs().sum((1, 3)) for _ in range(20)
    )
    return bool(influence.triu(1).any())


def by_prefix(attention, n, d_model):
    for _ in range(30):
        x = torch.randn(n, d_model, dtype=torch.float64)
        for i in range(1, n):
            y = torch.cat([x[:i], torch.randn(n - i, d_model, dtype=torch.float64)])
            if not torch.allclose(attention(x)[:i], attention(y)[:i]):
                return True
    return False


def by_nan(attention, n, d_model):
    for _ in range(30):
        x = torch.randn(n, d_model)
        for j in range(1, n):
            y = x.clone()
            y[j:] = y[j:] + 10 * torch.randn(n - j, d_model)
            if (attention(x)[:j] - attention(y)[:j]).abs().max() > 1e-4:
                return torch.tensor(True)
    return torch.tensor(False)


def only_the_next(attention, n, d_model):
    x = torch.randn(n, d_model)
    y = x.clone()
    y[1] += 1
    return not torch.allclose(attention(x)[0], attention(y)[0])


LEAKS_FUTURE = [
    (None, by_gradient),
    (None, by_func),
    (None, by_prefix),
    (None, by_nan),
    ("misses-a-leak", lambda attention, n, d_model: False),
    ("misses-a-leak", only_the_next),
    ("false-alarm", lambda attention, n, d_model: attention.__name__ not in ("causal", "past_sum")),
    ("false-alarm", lambda attention, n, d_model: True),
    (
        "false-alarm",
        lambda attention, n, d_model: bool(
            torch.func.jacrev(attention)(torch.randn(n, d_model)).abs().sum((1, 3)).triu(0).any()
        ),
    ),
    ("wrong-dtype", lambda attention, n, d_model: torch.randn(n, n)),
    ("wrong-dtype", lambda attention, n, d_model: "no"),
    ("returns-nothing", lambda attention, n, d_model: None),
    ("raises", lambda attention, n, d_model: attention(torch.randn(d_model))[n]),
]

# 05


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


# 01: predict and mend

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


# 02: predict and mend


def longer_loop(weights):
    e = [w.item() ** 2 for w in weights]
    return torch.tensor([number / sum(e) for number in e], dtype=weights.dtype)


PREDICT_LONGER_QUERY = [
    (None, longer_loop),
    (None, lambda w: w**2 / (w**2).sum()),
    (None, lambda w: torch.softmax(2 * w.log(), dim=0)),
    (None, lambda w: w * w / (w @ w)),
    (None, lambda w: w.square() / einsum(w, w, "k, k ->")),
    (None, lambda w: F.normalize(w * w, p=1, dim=0)),
    ("unchanged-weights", lambda w: w),
    ("unchanged-weights", lambda w: 2 * w / (2 * w).sum()),
    ("not-normalised", lambda w: w**2),
    ("not-normalised", lambda w: w * 2),
    ("softmax-of-weights", lambda w: torch.softmax(2 * w, 0)),
    ("softmax-of-weights", lambda w: w.exp() / w.exp().sum()),
    ("flatter", lambda w: torch.softmax(w.log() / 2, 0)),
    ("flatter", lambda w: w**0.5 / (w**0.5).sum()),
    ("wrong-shape", lambda w: (w**2 / (w**2).sum())[None]),
    ("raises", lambda w: torch.softmax(2 * w)),
    ("wrong", lambda w: w**3 / (w**3).sum()),
]


def mended_lookup_loop(query, keys, values):
    rows = []
    for q in query:
        e = [torch.exp(q @ k / len(q) ** 0.5) for k in keys]
        rows.append(sum(w * v for w, v in zip(e, values, strict=True)) / sum(e))
    return torch.stack(rows)


def looked_up(query, keys, values, scale=None, dim=-1):
    scores = torch.einsum("id,jd->ij", query, keys) / (scale or root(query))
    return torch.einsum("ij,jd->id", torch.softmax(scores, dim), values)


MEND_LOOKUP = [
    (None, mended_lookup_loop),
    (None, looked_up),
    (None, lambda q, k, v: torch.softmax(q @ k.mT / root(k), -1) @ v),
    (None, lambda q, k, v: einsum(F.softmax(q @ k.T * root(q) ** -1, 1), v, "i j, j d -> i d")),
    (None, F.scaled_dot_product_attention),
    (None, lambda q, k, v: mha_lab.scaled_dot_product_attention(q, k, v)[0]),
    ("values-used-as-keys", lambda q, k, v: looked_up(q, v, k)),
    ("values-used-as-keys", lambda q, k, v: F.scaled_dot_product_attention(q, v, k)),
    ("keys-fetched", lambda q, k, v: looked_up(q, k, k)),
    ("keys-fetched", lambda q, k, v: F.scaled_dot_product_attention(q, k, k)),
    ("not-scaled", lambda q, k, v: looked_up(q, k, v, scale=1.0)),
    ("not-scaled", lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v),
    ("softmax-over-queries", lambda q, k, v: looked_up(q, k, v, dim=0)),
    ("softmax-over-queries", lambda q, k, v: F.softmax(k @ q.mT / root(q), 1).mT @ v),
    ("raises", lambda q, k, v: torch.softmax(q.mT @ k, -1) @ v),
    ("wrong", lambda q, k, v: q),
]


# 03: predict and mend


def place_found(token, column, n, num_heads, d_k):
    x = torch.zeros(1, n, num_heads * d_k)
    x[0, token, column] = 1
    return tuple(mha_lab.split_heads(x, num_heads)[0].nonzero()[0].tolist())


def place_counted(token, column, n, num_heads, d_k):
    head = 0
    while column >= d_k:
        head, column = head + 1, column - d_k
    return head, token, column


def place_of_bare_view(token, column, n, num_heads, d_k):
    x = torch.arange(n * num_heads * d_k).view(num_heads, n, d_k)
    return tuple((x == token * num_heads * d_k + column).nonzero()[0].tolist())


PREDICT_PLACE = [
    (None, place_found),
    (None, place_counted),
    (None, lambda t, c, n, h, d: (c // d, t, c % d)),
    (None, lambda t, c, n, h, d: (divmod(c, d)[0], t, divmod(c, d)[1])),
    (None, lambda t, c, n, h, d: [int(c / d), t, c - d * int(c / d)]),
    (
        None,
        lambda t, c, n, h, d: tuple(
            rearrange(torch.arange(h * d), "(h d) -> h d", h=h).eq(c).nonzero()[0].tolist()[i]
            if i != 9
            else t
            for i in (0, 9, 1)
        ),
    ),
    ("view-without-transpose", place_of_bare_view),
    (
        "view-without-transpose",
        lambda t, c, n, h, d: ((t * h * d + c) // d // n, (t * h * d + c) // d % n, c % d),
    ),
    ("heads-interleaved", lambda t, c, n, h, d: (c % h, t, c // h)),
    ("heads-interleaved", lambda t, c, n, h, d: (divmod(c, h)[1], t, divmod(c, h)[0])),
    ("not-transposed", lambda t, c, n, h, d: (t, c // d, c % d)),
    ("not-transposed", lambda t, c, n, h, d: (t, *divmod(c, d))),
    ("divided-by-heads", lambda t, c, n, h, d: (c // h, t, c % h)),
    ("divided-by-heads", lambda t, c, n, h, d: (divmod(c, h)[0], t, divmod(c, h)[1])),
    ("column-not-counted-anew", lambda t, c, n, h, d: (c // d, t, c)),
    ("column-not-counted-anew", lambda t, c, n, h, d: (divmod(c, d)[0], t, c)),
    ("wrong-shape", lambda t, c, n, h, d: (c // d, c % d)),
    ("wrong-shape", lambda t, c, n, h, d: c // d),
    ("raises", lambda t, c, n, h, d: (c // 0, t, c % d)),
    ("returns-nothing", lambda t, c, n, h, d: None),
    ("wrong", lambda t, c, n, h, d: (h, t, d)),
]

MEND_SPLIT = [
    (None, split_loop),
    (None, lambda x, h: x.reshape(*x.shape[:2], h, -1).permute(0, 2, 1, 3)),
    (None, lambda x, h: x.unflatten(-1, (h, -1)).transpose(1, 2)),
    (None, lambda x, h: rearrange(x, "b n (h d) -> b h n d", h=h)),
    (None, lambda x, h: torch.einsum("bnhd->bhnd", x.unflatten(2, (h, x.shape[2] // h)))),
    (None, lambda x, h: torch.stack(x.split(x.shape[-1] // h, -1), 1)),
    ("view-without-transpose", lambda x, h: x.reshape(len(x), h, x.shape[1], -1)),
    ("view-without-transpose", bare),
    ("not-transposed", lambda x, h: x.unflatten(-1, (h, -1))),
    ("not-transposed", lambda x, h: rearrange(x, "b n (h d) -> b n h d", h=h)),
    ("wrong-axes-swapped", lambda x, h: x.reshape(*x.shape[:2], h, -1).permute(0, 3, 1, 2)),
    ("wrong-axes-swapped", lambda x, h: x.unflatten(-1, (h, -1)).transpose(-1, 1)),
    ("wrong-axes-swapped", lambda x, h: rearrange(x, "b n (h d) -> b h d n", h=h)),
    ("raises", lambda x, h: x.reshape(*x.shape[:2], h, h).permute(0, 2, 1, 3)),
    ("wrong", lambda x, h: mha_lab.split_heads(x, h)),
    ("wrong", lambda x, h: cut(x, h).flip(1)),
]


# 04: predict and mend


def equal_loop(n):
    rows = torch.zeros(n, n)
    for i in range(n):
        for j in range(i + 1):
            rows[i, j] = 1 / (i + 1)
    return rows


def real_tokens(lengths, n):
    return rearrange(torch.arange(n), "n -> 1 n") < rearrange(lengths, "b -> b 1")


def mended_padding_loop(scores, lengths):
    rows = torch.zeros_like(scores)
    for b, length in enumerate(lengths.tolist()):
        rows[b, :, :length] = torch.softmax(scores[b, :, :length], -1)
    return rows


PREDICT_EQUAL_SCORES = [
    (None, equal_loop),
    (None, lambda n: torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]),
    (None, lambda n: mha_lab.masked_softmax(torch.zeros(n, n), mha_lab.causal_mask(n))),
    (None, lambda n: torch.softmax(torch.zeros(n, n).masked_fill(torch.ones(n, n).triu(1).bool(), -INF), -1)),
    (None, lambda n: F.normalize(torch.tril(torch.ones(n, n)), p=1.0, dim=-1)),
    (None, lambda n: torch.einsum("ij,i->ij", torch.ones(n, n).tril(), 1 / (torch.arange(n) + 1.0))),
    ("mask-after-softmax", lambda n: torch.full((n, n), 1 / n).tril()),
    ("mask-after-softmax", lambda n: torch.softmax(torch.zeros(n, n), -1) * mha_lab.causal_mask(n)),
    ("mask-ignored", lambda n: torch.full((n, n), 1 / n)),
    ("mask-ignored", lambda n: torch.softmax(torch.ones(n, n), -1)),
    ("sees-the-future", lambda n: F.normalize(torch.ones(n, n).triu(), p=1.0, dim=-1)),
    ("sees-the-future", lambda n: torch.ones(n, n).triu() / torch.arange(n, 0, -1)[:, None]),
    ("softmax-over-queries", lambda n: F.normalize(torch.ones(n, n).tril(), p=1.0, dim=0)),
    ("softmax-over-queries", lambda n: torch.ones(n, n).tril() / torch.arange(n, 0, -1)),
    ("not-normalised", lambda n: torch.tril(torch.ones(n, n))),
    ("not-normalised", lambda n: mha_lab.causal_mask(n).float()),
    ("wrong-shape", lambda n: 1 / torch.arange(1.0, n + 1)),
    ("raises", lambda n: torch.ones(n, n).tril() / range(n)),
    ("returns-nothing", lambda n: None),
    ("wrong", lambda n: torch.eye(n)),
]

MEND_PADDING = [
    (None, mended_padding_loop),
    (None, lambda s, n: mha_lab.masked_softmax(s, real_tokens(n, s.shape[-1])[:, None, :])),
    (None, lambda s, n: torch.softmax(s.masked_fill(~real_tokens(n, s.shape[-1])[:, None], -INF), -1)),
    (None, lambda s, n: torch.softmax(torch.where(real_tokens(n, s.size(2)).unsqueeze(1), s, -INF), dim=2)),
    (None, lambda s, n: torch.softmax(s + additive(real_tokens(n, s.shape[-1]))[:, None].to(s), -1)),
    (None, lambda s, n: mha_lab.masked_softmax(s, mha_lab.padding_mask(n, s.shape[-1])[:, 0])),
    (
        "masks-queries-too",
        lambda s, n: mha_lab.masked_softmax(
            s, real_tokens(n, s.shape[-1])[:, None, :] & real_tokens(n, s.shape[-1])[:, :, None]
        ),
    ),
    ("masks-queries-too", lambda s, n: mended_padding_loop(s, n) * real_tokens(n, s.shape[-1])[:, :, None]),
    (
        "masks-queries-not-keys",
        lambda s, n: torch.softmax(s.masked_fill(~real_tokens(n, s.shape[-1])[:, :, None], -INF), -1),
    ),
    (
        "masks-queries-not-keys",
        lambda s, n: torch.where(real_tokens(n, s.shape[-1])[:, :, None], s, -INF).softmax(-1),
    ),
    ("mask-inverted", lambda s, n: mha_lab.masked_softmax(s, ~real_tokens(n, s.shape[-1])[:, None, :])),
    (
        "mask-inverted",
        lambda s, n: torch.softmax(s.masked_fill(real_tokens(n, s.shape[-1])[:, None], -INF), -1),
    ),
    ("mask-after-softmax", lambda s, n: torch.softmax(s, -1) * real_tokens(n, s.shape[-1])[:, None, :]),
    ("mask-after-softmax", lambda s, n: s.softmax(-1).masked_fill(~real_tokens(n, s.shape[-1])[:, None], 0)),
    ("mask-ignored", lambda s, n: torch.softmax(s, -1)),
    ("mask-ignored", lambda s, n: mha_lab.masked_softmax(s, torch.ones_like(s).bool())),
    (
        "padding-off-by-one",
        lambda s, n: mha_lab.masked_softmax(s, real_tokens(n + 1, s.shape[-1])[:, None, :]),
    ),
    (
        "padding-off-by-one",
        lambda s, n: mha_lab.masked_softmax(s, (torch.arange(s.shape[-1]) <= n[:, None])[:, None]),
    ),
    ("raises", lambda s, n: mha_lab.masked_softmax(s, real_tokens(n, s.shape[-1] + 1)[:, None])),
    ("returns-nothing", lambda s, n: None),
]


# 05: predict and mend


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


def table():
    """``{exercise: [(slug, function)]}``; every function has the exercise's name."""
    found = {}
    for name, rows in globals().items():
        if name.isupper() and isinstance(rows, list):
            found[name.lower()] = [(slug, named(function, name.lower())) for slug, function in rows]
    return found


def named(function, name):
    """The function as a learner would define it: under the exercise's name."""
    if isinstance(function, FunctionType) and not function.__module__.startswith("mha_lab"):
        copy = FunctionType(
            function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
        )
        copy.__kwdefaults__ = function.__kwdefaults__
        return copy

    def answer(*arguments):
        return function(*arguments)

    answer.__name__ = name
    return answer
