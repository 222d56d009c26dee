"""Answers to the exercises of chapter 10."""

import torch
import torch.nn.functional as F
from einops import rearrange

import mha_lab
from tests.check.answers.pieces import INF


def loss_in_a_loop(logits, tokens):
    total, count = 0.0, 0
    for b in range(tokens.shape[0]):
        for i in range(tokens.shape[1] - 1):
            log_p = torch.log_softmax(logits[b, i], dim=0)
            total, count = total - log_p[tokens[b, i + 1]], count + 1
    return total / count


def loss_by_one_hot(logits, tokens):
    wanted = F.one_hot(tokens[:, 1:], logits.shape[-1]).to(logits.dtype)
    return -(wanted * torch.log_softmax(logits[:, :-1], -1)).sum(-1).mean()


def judged(logits, tokens, **options):
    """Cross-entropy of logits and tokens that line up already."""
    return F.cross_entropy(rearrange(logits, "b n v -> (b n) v"), tokens.flatten(), **options)


NEXT_TOKEN_LOSS = [
    (None, loss_in_a_loop),
    (None, loss_by_one_hot),
    (None, lambda x, t: F.cross_entropy(x[:, :-1].transpose(1, 2), t[:, 1:])),
    (None, lambda x, t: F.nll_loss(x[:, :-1].log_softmax(-1).flatten(0, 1), t[:, 1:].flatten())),
    (None, lambda x, t: (x.logsumexp(-1)[:, :-1] - x[:, :-1].gather(-1, t[:, 1:, None])[..., 0]).mean()),
    (None, lambda x, t: judged(x, F.pad(t[:, 1:], (0, 1), value=-100))),
    ("not-shifted", lambda x, t: judged(x, t)),
    ("not-shifted", lambda x, t: F.cross_entropy(x.transpose(1, 2), t)),
    ("not-shifted", lambda x, t: judged(x[:, :-1], t[:, :-1])),
    ("shifted-backwards", lambda x, t: judged(x[:, 1:], t[:, :-1])),
    ("shifted-backwards", lambda x, t: F.cross_entropy(x.mT, torch.roll(t, 1, 1))),
    ("rolled-around", lambda x, t: judged(x, torch.roll(t, -1, 1))),
    ("rolled-around", lambda x, t: judged(x, torch.cat([t[:, 1:], t[:, :1]], 1))),
    ("summed", lambda x, t: judged(x[:, :-1], t[:, 1:], reduction="sum")),
    ("summed", lambda x, t: judged(x[:, :-1], t[:, 1:], reduction="sum") / len(t)),
    ("divided-by-n", lambda x, t: judged(x[:, :-1], t[:, 1:], reduction="sum") / t.numel()),
    ("divided-by-n", lambda x, t: loss_in_a_loop(x, t) * (t.shape[1] - 1) / t.shape[1]),
    ("sign-missing", lambda x, t: -judged(x[:, :-1], t[:, 1:])),
    ("sign-missing", lambda x, t: x.log_softmax(-1)[:, :-1].gather(-1, t[:, 1:, None]).mean()),
    ("softmax-twice", lambda x, t: judged(torch.softmax(x, -1)[:, :-1], t[:, 1:])),
    ("softmax-twice", lambda x, t: F.cross_entropy(x.softmax(-1)[:, :-1].mT, t[:, 1:])),
    ("softmax-over-positions", lambda x, t: -x.log_softmax(1)[:, :-1].gather(2, t[:, 1:, None]).mean()),
    ("softmax-over-positions", lambda x, t: F.nll_loss(x[:, :-1].log_softmax(1).mT, t[:, 1:])),
    ("no-softmax", lambda x, t: F.nll_loss(x[:, :-1].flatten(0, 1), t[:, 1:].flatten())),
    ("no-softmax", lambda x, t: -(F.one_hot(t[:, 1:], x.shape[-1]) * x[:, :-1]).sum(-1).mean()),
    ("not-averaged", lambda x, t: judged(x[:, :-1], t[:, 1:], reduction="none")),
    ("not-averaged", lambda x, t: F.cross_entropy(x[:, :-1].mT, t[:, 1:], reduction="none")),
    ("unstable-softmax", lambda x, t: -x.softmax(-1)[:, :-1].gather(-1, t[:, 1:, None]).log().mean()),
    (
        "unstable-softmax",
        lambda x, t: (
            -(x.exp() / x.exp().sum(-1, keepdim=True))[:, :-1].gather(-1, t[:, 1:, None]).log().mean()
        ),
    ),
    ("raises", lambda x, t: F.cross_entropy(x[:, :-1], t[:, 1:, None, None])),
    ("returns-nothing", lambda x, t: None),
    ("wrong", lambda x, t: judged(x[:, :-1], t[:, 1:]).exp()),
]


def score_in_a_loop(weights):
    n = weights.shape[-1]
    return sum(weights[..., i, i - 1] for i in range(1, n)) / (n - 1)


def score_by_mask(weights):
    n = weights.shape[-1]
    line = torch.eye(n, dtype=weights.dtype).roll(-1, dims=1).tril(-1)
    return torch.einsum("...ij,ij->...", weights, line) / (n - 1)


def score_by_index(weights):
    i = torch.arange(1, weights.shape[-1])
    return weights[..., i, i - 1].mean(-1)


def diagonal(weights, offset):
    return torch.diagonal(weights, offset, -2, -1)


PREVIOUS_TOKEN_SCORE = [
    (None, score_in_a_loop),
    (None, score_by_mask),
    (None, score_by_index),
    (None, lambda w: diagonal(w, -1).mean(-1)),
    (None, lambda w: w[..., 1:, :-1].diagonal(dim1=-2, dim2=-1).mean(-1)),
    ("next-token", lambda w: diagonal(w, 1).mean(-1)),
    ("next-token", lambda w: score_in_a_loop(w.transpose(-2, -1))),
    ("own-token", lambda w: diagonal(w, 0).mean(-1)),
    ("own-token", lambda w: torch.einsum("...ii->...", w) / w.shape[-1]),
    ("two-back", lambda w: diagonal(w, -2).mean(-1)),
    ("two-back", lambda w: diagonal(w, -2).sum(-1) / (w.shape[-1] - 1)),
    ("first-row-counted", lambda w: diagonal(w, -1).sum(-1) / w.shape[-1]),
    ("first-row-counted", lambda w: F.pad(diagonal(w, -1), (1, 0)).mean(-1)),
    ("rolled-around", lambda w: diagonal(w.roll(1, dims=-1), 0).mean(-1)),
    ("rolled-around", lambda w: w[..., range(w.shape[-1]), range(-1, w.shape[-1] - 1)].mean(-1)),
    ("summed", lambda w: diagonal(w, -1).sum(-1)),
    ("summed", lambda w: score_by_mask(w) * (w.shape[-1] - 1)),
    ("averaged-over-heads", lambda w: diagonal(w, -1).mean()),
    ("averaged-over-heads", lambda w: score_by_index(w).mean()),
    ("not-averaged", lambda w: diagonal(w, -1)),
    ("not-averaged", lambda w: torch.stack([w[..., i, i - 1] for i in range(1, w.shape[-1])], -1)),
    ("argmax", lambda w: (w.argmax(-1)[..., 1:] == torch.arange(w.shape[-1] - 1)).to(w.dtype).mean(-1)),
    (
        "argmax",
        lambda w: (diagonal(w, -1) == w.amax(-1)[..., 1:]).sum(-1).to(w.dtype) / (w.shape[-1] - 1),
    ),
    ("raises", lambda w: w[:, :, :, :, -1]),
    ("returns-nothing", lambda w: None),
    ("wrong", lambda w: 1 - diagonal(w, -1).mean(-1)),
    ("wrong", lambda w: mha_lab.language_model.previous_token_score(w)),
]


def counted_in_a_loop(num_layers, num_heads, n, d_model):
    total = 0
    for _ in range(num_layers):
        for _ in range(num_heads):
            for _ in ("key", "value"):
                total += n * (d_model // num_heads)
    return total


def counted_in_tensors(num_layers, num_heads, n, d_model):
    return torch.zeros(num_layers, 2, num_heads, n, d_model // num_heads).numel()


PREDICT_CACHE = [
    (None, counted_in_a_loop),
    (None, counted_in_tensors),
    (None, lambda layers, h, n, d: 2 * layers * n * d),
    (None, lambda layers, h, n, d: layers * n * (d + d)),
    (None, lambda layers, h, n, d: layers * h * n * (d // h) * 2),
    ("counted-per-head", lambda layers, h, n, d: layers * h * n * d * 2),
    ("counted-per-head", lambda layers, h, n, d: h * layers * n * d),
    ("keys-only", lambda layers, h, n, d: layers * n * d),
    ("keys-only", lambda layers, h, n, d: counted_in_a_loop(layers, h, n, d) // 2),
    ("queries-kept", lambda layers, h, n, d: 3 * layers * n * d),
    ("queries-kept", lambda layers, h, n, d: layers * h * n * (d // h) * 3),
    ("one-layer", lambda layers, h, n, d: 2 * n * d),
    ("one-layer", lambda layers, h, n, d: counted_in_tensors(1, h, n, d)),
    ("one-head", lambda layers, h, n, d: 2 * layers * n * (d // h)),
    ("one-head", lambda layers, h, n, d: counted_in_tensors(layers, 1, n, d // h)),
    ("weights-kept", lambda layers, h, n, d: layers * h * n**2),
    ("weights-kept", lambda layers, h, n, d: torch.zeros(layers, h, n, n).numel()),
    ("one-token", lambda layers, h, n, d: 2 * layers * d),
    ("one-token", lambda layers, h, n, d: counted_in_a_loop(layers, h, 1, d)),
    ("wrong-shape", lambda layers, h, n, d: (layers * n * d, layers * n * d)),
    ("raises", lambda layers, h, n, d: n + "keys"),
    ("returns-nothing", lambda layers, h, n, d: None),
    ("wrong", lambda layers, h, n, d: layers + h + n + d),
]


def joined_attention(query, key, value, old_key, old_value, mask):
    key, value = torch.cat([old_key, key], 2), torch.cat([old_value, value], 2)
    return mha_lab.scaled_dot_product_attention(query, key, value, mask)[0]


def corner(query, old_key, shift=0):
    n_old, n_new = old_key.shape[2], query.shape[2]
    return torch.ones(n_new, n_old + n_new).tril(n_old + shift).bool()


def one_by_one(query, key, value, old_key, old_value):
    out = []
    for i in range(query.shape[2]):
        keys = torch.cat([old_key, key[:, :, : i + 1]], 2)
        values = torch.cat([old_value, value[:, :, : i + 1]], 2)
        out.append(mha_lab.scaled_dot_product_attention(query[:, :, i : i + 1], keys, values)[0])
    return torch.cat(out, 2)


def by_positions(query, key, value, old_key, old_value):
    n_old, n_new = old_key.shape[2], query.shape[2]
    at = torch.arange(n_old, n_old + n_new)[:, None]
    return joined_attention(query, key, value, old_key, old_value, torch.arange(n_old + n_new) <= at)


def by_einsum(query, key, value, old_key, old_value):
    key, value = torch.cat((old_key, key), 2), torch.cat((old_value, value), 2)
    scores = torch.einsum("bhid,bhjd->bhij", query, key) / query.shape[-1] ** 0.5
    scores = scores.masked_fill(~corner(query, old_key), -INF)
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), value)


MEND_CACHE = [
    (None, one_by_one),
    (None, by_positions),
    (None, by_einsum),
    (None, lambda q, k, v, ok, ov: joined_attention(q, k, v, ok, ov, corner(q, ok))),
    (
        None,
        lambda q, k, v, ok, ov: joined_attention(
            q, k, v, ok, ov, mha_lab.causal_mask(q.shape[2], q.shape[2] + ok.shape[2])
        ),
    ),
    (
        None,
        lambda q, k, v, ok, ov: F.scaled_dot_product_attention(
            q, torch.cat([ok, k], 2), torch.cat([ov, v], 2), corner(q, ok)
        ),
    ),
    ("mask-ignored", lambda q, k, v, ok, ov: joined_attention(q, k, v, ok, ov, None)),
    (
        "mask-ignored",
        lambda q, k, v, ok, ov: F.scaled_dot_product_attention(
            q, torch.cat([ok, k], 2), torch.cat([ov, v], 2)
        ),
    ),
    ("hides-own-key", lambda q, k, v, ok, ov: joined_attention(q, k, v, ok, ov, corner(q, ok, -1))),
    (
        "hides-own-key",
        lambda q, k, v, ok, ov: joined_attention(
            q, k, v, ok, ov, torch.ones(q.shape[2], q.shape[2] + ok.shape[2]).tril(ok.shape[2] - 1) > 0
        ),
    ),
    ("sees-the-future", lambda q, k, v, ok, ov: joined_attention(q, k, v, ok, ov, corner(q, ok, 1))),
    (
        "sees-the-future",
        lambda q, k, v, ok, ov: joined_attention(
            q, k, v, ok, ov, torch.ones(q.shape[2], q.shape[2] + ok.shape[2]).tril(ok.shape[2] + 1) > 0
        ),
    ),
    (
        "shifted-by-new",
        lambda q, k, v, ok, ov: joined_attention(q, k, v, ok, ov, corner(q, ok, q.shape[2] - ok.shape[2])),
    ),
    (
        "shifted-by-new",
        lambda q, k, v, ok, ov: joined_attention(
            q, k, v, ok, ov, torch.ones(q.shape[2], q.shape[2] + ok.shape[2]).tril(k.shape[2]).bool()
        ),
    ),
    ("cache-ignored", lambda q, k, v, ok, ov: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
    ("cache-ignored", lambda q, k, v, ok, ov: mha_lab.scaled_dot_product_attention(q, k, v)[0]),
    ("new-ignored", lambda q, k, v, ok, ov: F.scaled_dot_product_attention(q, ok, ov)),
    ("new-ignored", lambda q, k, v, ok, ov: mha_lab.scaled_dot_product_attention(q, ok, ov)[0]),
    ("order-swapped", lambda q, k, v, ok, ov: joined_attention(q, ok, ov, k, v, corner(q, ok))),
    (
        "order-swapped",
        lambda q, k, v, ok, ov: F.scaled_dot_product_attention(
            q, torch.cat([k, ok], 2), torch.cat([v, ov], 2), corner(q, ok)
        ),
    ),
    ("mask-inverted", lambda q, k, v, ok, ov: joined_attention(q, k, v, ok, ov, ~corner(q, ok))),
    (
        "mask-inverted",
        lambda q, k, v, ok, ov: joined_attention(
            q,
            k,
            v,
            ok,
            ov,
            mha_lab.mask_to_blocked(mha_lab.causal_mask(q.shape[2], q.shape[2] + ok.shape[2])),
        ),
    ),
    (
        "keys-and-values-apart",
        lambda q, k, v, ok, ov: F.scaled_dot_product_attention(
            q, torch.cat([ok, k], 2), torch.cat([v, ov], 2), corner(q, ok)
        ),
    ),
    (
        "keys-and-values-apart",
        lambda q, k, v, ok, ov: F.scaled_dot_product_attention(
            q, torch.cat([k, ok], 2), torch.cat([ov, v], 2), corner(q, ok)
        ),
    ),
    ("raises", lambda q, k, v, ok, ov: joined_attention(q, k, v, ok, ov, torch.ones(3, 3) > 0)),
    ("returns-nothing", lambda q, k, v, ok, ov: None),
    ("wrong", lambda q, k, v, ok, ov: 2 * one_by_one(q, k, v, ok, ov)),
]
