"""Chapter 06: a fused projection cut in the order of another project."""

import torch

from mha_lab.check.exercise import Exercise, Mistake


def mend_fused(x, w_qkv, num_heads):
    """``(batch, n, d_model)`` and ``(d_model, 3 * d_model)`` to query, key, value, each split into heads."""
    batch, n, d_model = x.shape
    both = (x @ w_qkv).view(batch, n, 3, num_heads, d_model // num_heads)
    query, key, value = both.permute(2, 0, 3, 1, 4)
    return query, key, value


def _cut(x, w_qkv, sizes, permute, order=(0, 1, 2)):
    """Unflatten the last axis, bring the axis of three to the front, and take it apart."""
    parts = (x @ w_qkv).unflatten(-1, sizes).permute(permute)
    return tuple(parts[i] for i in order)


def _in_heads(x, w_qkv, num_heads):
    """The bug: each head's columns hold its query, key and value."""
    return _cut(x, w_qkv, (num_heads, 3, -1), (3, 0, 2, 1, 4))


def _bare(x, w_qkv, num_heads):
    batch, n = x.shape[:2]
    return tuple(t.reshape(batch, num_heads, n, -1) for t in (x @ w_qkv).chunk(3, dim=-1))


def _problems(draw):
    yield torch.eye(4)[None, :2], torch.arange(48.0).view(4, 12), 2
    for dtype in (torch.float32, torch.float64, torch.float64):
        batch, n, num_heads, d_k = draw.primes(4)
        d_model = num_heads * d_k
        yield (
            draw.normal(batch, n, d_model, dtype=dtype),
            draw.normal(d_model, 3 * d_model, dtype=dtype),
            num_heads,
        )


STEP = "1 One matrix for three projections"
ORDERS = ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
EXERCISE = Exercise(
    answer=mend_fused,
    chapter="06_five_ways",
    section=STEP,
    points=2,
    problems=_problems,
    bug=_in_heads,
    mistakes={
        "heads-interleaved": Mistake(
            "You deal the columns of a block out to the heads in turn: a head's d_k columns stand together.",
            STEP,
            (lambda x, w, h: _cut(x, w, (3, -1, h), (2, 0, 4, 1, 3)),),
        ),
        "blocks-interleaved": Mistake(
            "You take every third column for the queries: the three blocks stand side by side.",
            STEP,
            (lambda x, w, h: _cut(x, w, (h, -1, 3), (4, 0, 2, 1, 3)),),
        ),
        "view-without-transpose": Mistake(
            "The three blocks are right; the heads are cut by a bare view, which cuts tokens apart.",
            "8 Break it: a clinic",
            (_bare,),
        ),
        "not-transposed": Mistake(
            "The columns are right; the result is (batch, n, num_heads, d_k), heads not in front of tokens.",
            STEP,
            (lambda x, w, h: _cut(x, w, (3, h, -1), (2, 0, 1, 3, 4)),),
        ),
        "wrong-order": Mistake(
            "The three results are right, and come in another order than query, key, value.",
            STEP,
            tuple(
                lambda x, w, h, order=order: _cut(x, w, (3, h, -1), (2, 0, 3, 1, 4), order)
                for order in ORDERS
            ),
        ),
    },
)
