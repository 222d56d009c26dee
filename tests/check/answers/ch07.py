"""Answers to the exercises of chapter 07."""

import math
import statistics

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange

import mha_lab
from tests.check.answers.pieces import joined


def guessed_in_a_loop(num_lookups, candidates):
    losses = [0.0]
    for _ in range(num_lookups - 1):
        losses.append(-math.log(1 / candidates))
    return sum(losses) / len(losses)


def guessed_by_pytorch(num_lookups, candidates):
    logits = torch.zeros(num_lookups, candidates + 1, dtype=torch.float64)
    logits[0, 0] = 1000.0
    logits[1:, candidates] = -1000.0
    return F.cross_entropy(logits, torch.zeros(num_lookups, dtype=torch.long)).item()


PREDICT_GUESS_LOSS = [
    (None, guessed_in_a_loop),
    (None, guessed_by_pytorch),
    (None, lambda k, c: (1 - 1 / k) * math.log(c)),
    (None, lambda k, c: torch.tensor(c, dtype=torch.float64).log() * (k - 1) / k),
    (None, lambda k, c: math.log(c) - math.log(c) / k),
    (None, lambda k, c: float(np.log(c)) * (k - 1) / k),
    ("all-guessed", lambda k, c: math.log(c)),
    ("all-guessed", lambda k, c: -sum(math.log(1 / c) for _ in range(k)) / k),
    ("one-guessed", lambda k, c: math.log(c) / k),
    ("one-guessed", lambda k, c: -math.log(1 / c) / k),
    ("not-averaged", lambda k, c: (k - 1) * math.log(c)),
    ("not-averaged", lambda k, c: math.log(c ** (k - 1))),
    ("bits", lambda k, c: (k - 1) / k * math.log2(c)),
    ("bits", lambda k, c: (k - 1) * math.log(c, 2) / k),
    ("logarithm-of-the-mean", lambda k, c: -math.log((1 + (k - 1) / c) / k)),
    ("logarithm-of-the-mean", lambda k, c: -math.log(1 / k + (k - 1) / (k * c))),
    ("share-of-wrong-answers", lambda k, c: (k - 1) / k * (1 - 1 / c)),
    ("share-of-wrong-answers", lambda k, c: 1 - (1 + (k - 1) / c) / k),
    ("negative", lambda k, c: (k - 1) / k * math.log(1 / c)),
    ("negative", lambda k, c: -(k - 1) * math.log(c) / k),
    ("wrong-shape", lambda k, c: torch.tensor([0.0] + [math.log(c)] * (k - 1), dtype=torch.float64)),
    ("raises", lambda k, c: torch.log(c)),
    ("returns-nothing", lambda k, c: None),
    ("wrong", lambda k, c: math.log(c + 1)),
]


def without_in_a_loop(heads, w_o, head):
    output, d_v = 0, heads.shape[3]
    for h in range(heads.shape[1]):
        if h != head:
            output = output + heads[:, h] @ w_o[h * d_v : (h + 1) * d_v]
    return output


def without_its_rows(heads, w_o, head):
    d_v = heads.shape[3]
    w_o = w_o.clone()
    w_o[head * d_v : (head + 1) * d_v] = 0
    return heads.transpose(1, 2).reshape(len(heads), heads.shape[2], -1) @ w_o


def without_its_columns(heads, w_o, head):
    heads = heads.clone()
    heads[:, head] = 0
    return mha_lab.merge_heads(heads) @ w_o


def by_difference(heads, w_o, head):
    mine = heads[:, head] @ w_o.view(heads.shape[1], heads.shape[3], -1)[head]
    return rearrange(heads, "b h n d -> b n (h d)") @ w_o - mine


def in_place(heads, w_o, head):
    heads[:, head] = 0
    return joined(heads) @ w_o


def popped(heads, w_o, head):
    rest = [x for h, x in enumerate(heads.unbind(1)) if h != head]
    return torch.cat(rest, -1) @ w_o[: len(rest) * heads.shape[3]]


def a_token_less(heads, w_o, head):
    heads = heads.clone()
    heads[:, :, head] = 0
    return joined(heads) @ w_o


def dealt_rows(heads, w_o, head):
    w_o = w_o.clone()
    w_o[head :: heads.shape[1]] = 0
    return joined(heads) @ w_o


def with_an_average(heads, w_o, head):
    heads = heads.clone()
    heads[:, head] = heads.mean(1)
    return joined(heads) @ w_o


def with_its_mean(heads, w_o, head):
    heads = heads.clone()
    heads[:, head] = heads[:, head].mean(dim=1, keepdim=True)
    return joined(heads) @ w_o


def unmerged(heads, w_o, head):
    kept = heads.clone()
    kept[:, head] = 0
    return kept.reshape(len(heads), heads.shape[2], -1) @ w_o


ABLATE_HEAD = [
    (None, without_in_a_loop),
    (None, without_its_rows),
    (None, without_its_columns),
    (None, by_difference),
    (
        None,
        lambda x, w, h: torch.einsum(
            "bhnd,hdm,h->bnm",
            x,
            w.view(x.shape[1], x.shape[3], -1),
            1 - torch.eye(x.shape[1], dtype=x.dtype)[h],
        ),
    ),
    ("nothing-removed", lambda x, w, h: joined(x) @ w),
    ("nothing-removed", lambda x, w, h: without_in_a_loop(x, w, x.shape[1])),
    ("only-this-head", lambda x, w, h: x[:, h] @ w[h * x.shape[3] : (h + 1) * x.shape[3]]),
    ("only-this-head", lambda x, w, h: joined(x) @ w - by_difference(x, w, h)),
    ("other-rows", popped),
    ("other-rows", lambda x, w, h: joined(torch.cat([x[:, :h], x[:, h + 1 :]], 1)) @ w[x.shape[3] :]),
    ("projection-per-wrong-slice", dealt_rows),
    ("projection-per-wrong-slice", lambda x, w, h: joined(x) @ w - x[:, h] @ w[h :: x.shape[1]]),
    ("merge-without-transpose", unmerged),
    (
        "merge-without-transpose",
        lambda x, w, h: (x * (torch.arange(x.shape[1]) != h)[:, None, None]).view(len(x), x.shape[2], -1) @ w,
    ),
    ("rescaled", lambda x, w, h: without_in_a_loop(x, w, h) * x.shape[1] / (x.shape[1] - 1)),
    ("rescaled", lambda x, w, h: without_its_rows(x, w, h) / (1 - 1 / x.shape[1])),
    ("replaced-by-average", with_an_average),
    ("replaced-by-average", with_its_mean),
    ("token-removed", a_token_less),
    (
        "token-removed",
        lambda x, w, h: joined(x * (torch.arange(x.shape[2]) != h)[:, None]) @ w,
    ),
    ("changes-its-input", in_place),
    ("wrong-shape", lambda x, w, h: without_in_a_loop(x, w, h)[:, None]),
    ("raises", lambda x, w, h: x[:, h] @ w),
    ("returns-nothing", lambda x, w, h: None),
    ("wrong", lambda x, w, h: -without_in_a_loop(x, w, h)),
]


def interval_by_statistics(one, two, t):
    gaps = [statistics.fmean((b - a).tolist()) for a, b in zip(one, two, strict=True)]
    mean, half = statistics.fmean(gaps), t * statistics.stdev(gaps) / math.sqrt(len(gaps))
    return torch.tensor([mean - half, mean + half], dtype=one.dtype)


def interval_in_a_loop(one, two, t):
    gaps, n = two.mean(-1) - one.mean(-1), one.shape[0]
    mean = sum(gaps) / n
    variance = sum((gap - mean) ** 2 for gap in gaps) / (n - 1)
    half = t * (variance / n).sqrt()
    return torch.stack((mean - half, mean + half))


def interval_by_numpy(one, two, t):
    gaps = two.numpy().mean(1) - one.numpy().mean(1)
    half = t * gaps.std(ddof=1) / np.sqrt(len(gaps))
    return torch.tensor([gaps.mean() - half, gaps.mean() + half]).to(one.dtype)


def around(gap, half):
    return gap.mean() + torch.tensor([-1.0, 1.0], dtype=gap.dtype) * half


def gaps(one, two):
    return two.mean(1) - one.mean(1)


MEND_INTERVAL = [
    (None, interval_by_statistics),
    (None, interval_in_a_loop),
    (None, interval_by_numpy),
    (None, lambda a, b, t: around(gaps(a, b), t * gaps(a, b).std() * len(a) ** -0.5)),
    (None, lambda a, b, t: around((b - a).mean(1), t * ((b - a).mean(1).var() / len(a)).sqrt())),
    ("counts-problems", lambda a, b, t: around(gaps(a, b), t * gaps(a, b).std() / math.sqrt(a.numel()))),
    ("counts-problems", lambda a, b, t: around(gaps(a, b), t * gaps(a, b).std() / a.size(1) ** 0.5)),
    ("spread-of-problems", lambda a, b, t: around(b - a, t * (b - a).std() / len(a) ** 0.5)),
    ("spread-of-problems", lambda a, b, t: around(gaps(a, b), t * (b - a).flatten().std() / len(b) ** 0.5)),
    (
        "averaged-over-seeds",
        lambda a, b, t: around((b - a).mean(0), t * (b - a).mean(0).std() / a.shape[1] ** 0.5),
    ),
    ("averaged-over-seeds", lambda a, b, t: interval_in_a_loop(a.mT, b.mT, t)),
    ("no-root", lambda a, b, t: around(gaps(a, b), t * gaps(a, b).std())),
    ("no-root", lambda a, b, t: around((b - a).mean(-1), t * (b - a).mean(-1).var().sqrt())),
    ("divides-by-n", lambda a, b, t: around(gaps(a, b), t * gaps(a, b).std() / len(a))),
    ("divides-by-n", lambda a, b, t: around((b - a).mean(1), t / a.shape[0] * (b - a).mean(1).std())),
    ("biased-spread", lambda a, b, t: around(gaps(a, b), t * gaps(a, b).std(correction=0) / len(a) ** 0.5)),
    (
        "biased-spread",
        lambda a, b, t: around(gaps(a, b), t * float(gaps(a, b).numpy().std()) / len(a) ** 0.5),
    ),
    (
        "unpaired",
        lambda a, b, t: around(gaps(a, b), t * ((a.mean(1).var() + b.mean(1).var()) / len(a)).sqrt()),
    ),
    (
        "unpaired",
        lambda a, b, t: around(
            gaps(a, b), t * torch.hypot(a.mean(1).std() / len(a) ** 0.5, b.mean(1).std() / len(b) ** 0.5)
        ),
    ),
    ("gap-inverted", lambda a, b, t: interval_in_a_loop(b, a, t)),
    ("gap-inverted", lambda a, b, t: around((a - b).mean(1), t * (a - b).mean(1).std() / len(a) ** 0.5)),
    ("normal-quantile", lambda a, b, t: interval_in_a_loop(a, b, 1.96)),
    ("normal-quantile", lambda a, b, t: around(gaps(a, b), 1.96 * gaps(a, b).std() / len(a) ** 0.5)),
    ("wrong-shape", lambda a, b, t: interval_in_a_loop(a, b, t)[None]),
    ("wrong-dtype", lambda a, b, t: interval_in_a_loop(a, b, t).half()),
    ("raises", lambda a, b, t: around(gaps(a, b), t / a)),
    ("returns-nothing", lambda a, b, t: None),
    ("wrong", lambda a, b, t: interval_in_a_loop(a, b, t) + 1),
]
