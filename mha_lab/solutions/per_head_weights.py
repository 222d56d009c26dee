"""Chapter 03: the weights of every head."""

import math

import torch

from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions import _parts as parts


def per_head_weights(query, key, num_heads):
    """``(batch, n_q, d_model)``, ``(batch, n_k, d_model)`` to ``(batch, num_heads, n_q, n_k)``."""
    query, key = (x.unflatten(-1, (num_heads, -1)).transpose(1, 2) for x in (query, key))
    return torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, dim=-1)


def _problems(draw):
    yield (
        torch.tensor([[[1.0, 0.0, 0.0, 2.0]]]),
        torch.tensor([[[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]]]),
        2,
    )
    for dtype in (torch.float64, torch.float32, torch.float64):
        batch, n_q, n_k, num_heads, d_k = draw.primes(5)
        width = num_heads * d_k
        yield (
            draw.normal(batch, n_q, width, dtype=dtype),
            draw.normal(batch, n_k, width, dtype=dtype),
            num_heads,
        )


def _weights(query, key, heads, cut=parts.split, scale=None, dim=-1):
    q, k = cut(query, heads), cut(key, heads)
    return torch.softmax(q @ k.mT / (math.sqrt(q.shape[-1]) if scale is None else scale), dim=dim)


ROOT = "6 A loop over heads equals one wide projection and a split"
EXERCISE = Exercise(
    answer=per_head_weights,
    chapter="03_splitting_heads",
    section=ROOT,
    points=2,
    problems=_problems,
    mistakes={
        "view-without-transpose": Mistake(
            "Your heads are those of a bare view: tokens were cut across heads.",
            "3 The bare view",
            (lambda q, k, h: _weights(q, k, h, parts.bare_view),),
        ),
        "heads-interleaved": Mistake(
            "Your heads take the columns in turn: (d_k, heads) stands where (heads, d_k) belongs.",
            "5 Four ways to write it",
            (lambda q, k, h: _weights(q, k, h, parts.interleaved),),
        ),
        "not-scaled": Mistake(
            "Your scores are not divided by sqrt(d_k).", ROOT, (lambda q, k, h: _weights(q, k, h, scale=1.0),)
        ),
        "scaled-by-d_k": Mistake(
            "Your scores are divided by d_k, and not by its square root.",
            ROOT,
            (lambda q, k, h: _weights(q, k, h, scale=q.shape[-1] // h),),
        ),
        "scaled-by-d_model": Mistake(
            "Your scores are divided by the root of d_model; a head is only d_k = d_model / num_heads wide.",
            ROOT,
            (lambda q, k, h: _weights(q, k, h, scale=math.sqrt(q.shape[-1])),),
        ),
        "softmax-over-queries": Mistake(
            "Your columns sum to 1, and not your rows: the softmax runs over the queries.",
            ROOT,
            (lambda q, k, h: _weights(q, k, h, dim=-2),),
        ),
        "softmax-over-heads": Mistake(
            "Your softmax runs over the heads, so the heads compete with each other.",
            ROOT,
            (lambda q, k, h: _weights(q, k, h, dim=1),),
        ),
        "weights-averaged-over-heads": Mistake(
            "Your function returns the mean over the heads; each head has weights of its own.",
            ROOT,
            (
                lambda q, k, h: _weights(q, k, h).mean(1),
                lambda q, k, h: _weights(q, k, h).mean(1, keepdim=True),
            ),
        ),
        "key-not-transposed": Mistake(
            "Your function multiplies query and key without turning the rows of key into columns.",
            ROOT,
            (
                lambda q, k, h: torch.softmax(
                    parts.split(q, h) @ parts.split(k, h) / math.sqrt(q.shape[-1] // h), -1
                ),
            ),
        ),
    },
)
