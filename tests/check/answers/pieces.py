"""Pieces that the answers to several chapters share."""

import math

import torch
from einops import rearrange

INF = float("inf")


def root(x):
    return math.sqrt(x.shape[-1])


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
