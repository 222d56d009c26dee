"""Answers to the exercises of chapter 04."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

import mha_lab
from tests.check.answers.pieces import (
    INF,
    additive,
)


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
