"""Answers to the exercises of chapter 03."""

import torch
import torch.nn.functional as F
from einops import rearrange, reduce

import mha_lab
from tests.check.answers.pieces import (
    bare,
    cut,
    dealt,
    root,
)


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
