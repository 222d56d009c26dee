"""Answers to the exercises of chapter 00."""

import torch
import torch.nn.functional as F
from einops import einsum


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
