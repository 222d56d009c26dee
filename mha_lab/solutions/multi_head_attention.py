"""Chapter 05: the whole layer, from tensors only."""

import math

import torch

from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions import _parts as parts


def multi_head_attention(x, w_q, w_k, w_v, w_o, num_heads, mask=None):
    """``(batch, n, d_model)`` and four ``(d_model, d_model)`` to ``(output, weights)``."""
    query, key, value = ((x @ w).unflatten(-1, (num_heads, -1)).transpose(1, 2) for w in (w_q, w_k, w_v))
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if mask is None:
        weights = torch.softmax(scores, dim=-1)
    else:
        empty = ~mask.any(dim=-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(~mask & ~empty, -torch.inf), dim=-1).masked_fill(
            empty, 0.0
        )
    return (weights @ value).transpose(1, 2).flatten(-2) @ w_o, weights


def _problems(draw):
    x = torch.tensor([[[1.0, 0.0, 0.0, 1.0], [0.0, 2.0, 1.0, 0.0]]])
    yield x, 2 * torch.eye(4), torch.eye(4), torch.eye(4).flip(0), torch.eye(4).roll(1, 0), 2
    for dtype, masked in (
        (torch.float64, "no"),
        (torch.float64, "some"),
        (torch.float32, "some"),
        (torch.float64, "empty"),
    ):
        batch, n, num_heads, d_k = draw.primes(4)
        width = num_heads * d_k
        matrices = [draw.normal(width, width, dtype=dtype) / width**0.5 for _ in range(4)]
        x = 2 * draw.normal(batch, n, width, dtype=dtype)
        if masked == "no":
            yield x, *matrices, num_heads
            continue
        mask = draw.mask(batch, 1, n, n) | torch.eye(n, dtype=torch.bool)
        if masked == "empty":
            mask[0, 0, 1] = False
        yield x, *matrices, num_heads, mask


def _layer(
    x,
    w_q,
    w_k,
    w_v,
    w_o,
    heads,
    mask=None,
    *,
    cut=parts.split,
    join=parts.merge,
    weigh=parts.softmax,
    scale=None,
):
    q, k, v = (cut(x @ w, heads) for w in (w_q, w_k, w_v))
    scores = q @ k.mT / (math.sqrt(q.shape[-1]) if scale is None else scale(q.shape[-1], x.shape[-1]))
    weights = weigh(scores, mask)
    return join(weights @ v) @ w_o, weights


def _variant(**changes):
    return lambda *arguments: _layer(*arguments, **changes)


def _combined(**changes):
    """One mistake in the layer as it would be written without and with care for empty rows."""
    return tuple(
        _variant(weigh=weigh, **changes) for weigh in (parts.softmax, parts.nan_rows, parts.uniform_rows)
    )


def _shared(which):
    def layer(x, w_q, w_k, w_v, w_o, heads, mask=None):
        chosen = [(w_q, w_k, w_v)[i] for i in which]
        return _layer(x, *chosen, w_o, heads, mask)

    return layer


MASKS = {
    "nan-for-empty-row": (
        "A query that may attend to nothing gets NaN, and zeros are asked for.",
        (parts.nan_rows,),
    ),
    "uniform-for-empty-row": (
        "A query that may attend to nothing gets the same weight for every key, and zeros are asked for.",
        (parts.uniform_rows,),
    ),
    "mask-ignored": ("Your function does not use the mask.", (lambda s, m: torch.softmax(s, -1),)),
    "mask-inverted": (
        "Your function hides the keys that may be seen: True means may attend.",
        (parts.inverted, parts.nan_inverted, lambda s, m: parts.uniform_rows(s, None if m is None else ~m)),
    ),
    "mask-after-softmax": (
        "Your function hides keys after the softmax, when they have taken their share already.",
        (parts.masked_after,),
    ),
    "mask-added-as-bool": (
        "Your function adds the boolean mask to the scores: True counts as 1 and hides nothing.",
        (parts.mask_added,),
    ),
    "softmax-over-queries": (
        "Your columns of weights sum to 1, and not your rows: the softmax runs over the queries.",
        (
            lambda s, m: torch.softmax(s if m is None else s.masked_fill(~m, -math.inf), -2),
            lambda s, m: torch.softmax(s if m is None else s.masked_fill(~m, -1e9), -2),
            lambda s, m: torch.softmax(s if m is None else s.masked_fill(~m, -math.inf), -2).nan_to_num(),
        ),
    ),
    "softmax-over-heads": (
        "Your softmax runs over the heads, so the heads compete with each other.",
        (
            lambda s, m: torch.softmax(s if m is None else s.masked_fill(~m, -math.inf), 1),
            lambda s, m: torch.softmax(s if m is None else s.masked_fill(~m, -math.inf), 1).nan_to_num(),
            lambda s, m: torch.softmax(s if m is None else s.masked_fill(~m, -1e9), 1),
        ),
    ),
}
WHOLE = "5 The whole layer"
EXERCISE = Exercise(
    answer=multi_head_attention,
    chapter="05_output_projection",
    section=WHOLE,
    points=3,
    problems=_problems,
    same_as=("MultiHeadAttention.forward",),
    mistakes={
        **{
            slug: Mistake(says, WHOLE, tuple(_variant(weigh=weigh) for weigh in variants))
            for slug, (says, variants) in MASKS.items()
        },
        "view-without-transpose": Mistake(
            "Your heads are those of a bare view: tokens were cut across heads.",
            WHOLE,
            _combined(cut=parts.bare_view) + _combined(cut=parts.bare_view, join=parts.bare_merge),
        ),
        "heads-interleaved": Mistake(
            "Your heads take the columns in turn: (d_k, heads) stands where (heads, d_k) belongs.",
            WHOLE,
            _combined(cut=parts.interleaved) + _combined(cut=parts.interleaved, join=parts.merge_interleaved),
        ),
        "merge-without-transpose": Mistake(
            "Your heads were merged without swapping the axes first, so tokens are mixed.",
            "1 Concatenate",
            _combined(join=parts.bare_merge),
        ),
        "not-scaled": Mistake(
            "Your scores are not divided by sqrt(d_k).", WHOLE, _combined(scale=lambda d_k, d_model: 1.0)
        ),
        "scaled-by-d_k": Mistake(
            "Your scores are divided by d_k, and not by its square root.",
            WHOLE,
            _combined(scale=lambda d_k, d_model: d_k),
        ),
        "scaled-by-d_model": Mistake(
            "Your scores are divided by the root of d_model; a head is only d_k = d_model / num_heads wide.",
            WHOLE,
            _combined(scale=lambda d_k, d_model: math.sqrt(d_model)),
        ),
        "shared-projection": Mistake(
            "Your function uses one matrix where queries, keys and values each have their own.",
            WHOLE,
            (_shared((0, 0, 0)), _shared((0, 0, 2)), _shared((1, 1, 2)), _shared((0, 1, 1))),
        ),
        "values-used-as-keys": Mistake(
            "Your function mixes up keys and values.", WHOLE, (_shared((0, 2, 2)), _shared((0, 2, 1)))
        ),
        "no-output-projection": Mistake(
            "Your output is the concatenated heads: w_o is not used.",
            "2 What is lost without the projection",
            (lambda x, q, k, v, o, h, m=None: _layer(x, q, k, v, torch.eye(len(o), dtype=o.dtype), h, m),),
        ),
        "weights-averaged-over-heads": Mistake(
            "Your weights are the mean over the heads; each head has weights of its own.",
            WHOLE,
            (
                lambda *a: (_layer(*a)[0], _layer(*a)[1].mean(1)),
                lambda *a: (_layer(*a)[0], _layer(*a)[1].mean(1, keepdim=True)),
            ),
        ),
        "output-only": Mistake(
            "Your function returns the output alone; (output, weights) is asked for.",
            WHOLE,
            (lambda *a: _layer(*a)[0],),
        ),
    },
)
