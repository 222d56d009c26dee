"""Chapter 07: the layer's output without one of its heads."""

import torch

from mha_lab.check.exercise import Exercise, Mistake
from mha_lab.solutions import _parts as parts


def ablate_head(heads, w_o, head):
    """``(batch, num_heads, n, d_v)`` and ``(num_heads * d_v, d_model)`` to ``(batch, n, d_model)``."""
    kept = torch.arange(heads.shape[1]) != head
    return (heads * kept[:, None, None]).transpose(1, 2).flatten(-2) @ w_o


def _problems(draw):
    yield torch.tensor([[[[1.0], [2.0]], [[4.0], [5.0]]]]), torch.tensor([[1.0, 0.0], [0.0, 10.0]]), 0
    for last, dtype in ((False, torch.float64), (True, torch.float32), (False, torch.float64)):
        batch, d_v, d_model = draw.primes(3)
        num_heads, n = sorted(draw.primes(2, at_least=3))
        yield (
            draw.normal(batch, num_heads, n, d_v, dtype=dtype),
            draw.normal(num_heads * d_v, d_model, dtype=dtype),
            num_heads - 1 if last else draw.below(num_heads - 1),
        )


def _zeroed(x, head, dim=1):
    """The head's slice set to 0; or another axis's, where ``dim`` is wrong."""
    kept = torch.ones(x.shape[dim], dtype=x.dtype)
    kept[head] = 0
    return x * kept.view([-1 if d == dim else 1 for d in range(x.ndim)])


def _others(x, head):
    return torch.cat([x[:, :head], x[:, head + 1 :]], dim=1)


def _slice(w, x, head):
    return w.unflatten(0, (x.shape[1], -1))[head]


def _replaced(x, head, by):
    x = x.clone()
    x[:, head] = by
    return x


STEP = "7 Silence a head"
EXERCISE = Exercise(
    answer=ablate_head,
    chapter="07_why_more_heads",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes={
        "nothing-removed": Mistake(
            "Your output is the whole layer's: the head still writes.",
            STEP,
            (lambda x, w, h: parts.merge(x) @ w,),
        ),
        "only-this-head": Mistake(
            "Your function returns what this head writes: what all the others write is asked for.",
            STEP,
            (lambda x, w, h: x[:, h] @ _slice(w, x, h),),
        ),
        "other-rows": Mistake(
            "In your function the other heads have moved up, and meet rows of w_o that are not theirs.",
            STEP,
            (
                lambda x, w, h: parts.merge(_others(x, h)) @ w[: (x.shape[1] - 1) * x.shape[3]],
                lambda x, w, h: parts.merge(_others(x, h)) @ w[x.shape[3] :],
            ),
        ),
        "projection-per-wrong-slice": Mistake(
            "Your function cuts into several heads: the d_v rows of w_o of one head stand together.",
            STEP,
            (
                lambda x, w, h: (
                    parts.merge(x) @ w - parts.merge(x)[..., h :: x.shape[1]] @ w[h :: x.shape[1]]
                ),
                lambda x, w, h: parts.merge(x) @ w - x[:, h] @ w[h :: x.shape[1]],
            ),
        ),
        "merge-without-transpose": Mistake(
            "The right head is gone, but the heads were merged without swapping the axes first.",
            STEP,
            (lambda x, w, h: parts.bare_merge(_zeroed(x, h)) @ w,),
        ),
        "rescaled": Mistake(
            "The others write more than before in your function: a silent head's share goes to nobody.",
            STEP,
            (lambda x, w, h: parts.merge(_zeroed(x, h)) @ w * (x.shape[1] / (x.shape[1] - 1)),),
        ),
        "replaced-by-average": Mistake(
            "Your function puts an average in the head's place: here it should write nothing.",
            STEP,
            (
                lambda x, w, h: parts.merge(_replaced(x, h, x[:, h].mean(1, keepdim=True))) @ w,
                lambda x, w, h: parts.merge(_replaced(x, h, x.mean(1))) @ w,
                lambda x, w, h: parts.merge(_replaced(x, h, _others(x, h).mean(1))) @ w,
            ),
        ),
        "token-removed": Mistake(
            "Your function silences a token in all heads: the second axis counts heads, the third tokens.",
            STEP,
            (lambda x, w, h: parts.merge(_zeroed(x, h, dim=2)) @ w,),
        ),
    },
)
