"""Answers to the exercises of chapter 02."""

import math

import torch
import torch.nn.functional as F
from einops import einsum

import mha_lab
from mha_lab import explore, toy
from tests.check.answers.pieces import (
    root,
)


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
