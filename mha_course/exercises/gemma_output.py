"""Chapter 15: the attention of Gemma 2 with the course's own layer."""

import math

import torch

from mha_course.exercises import Exercise, deviations
from mha_lab import MultiHeadAttention, causal_mask, merge_heads, split_heads
from mha_lab.heads import repeat_kv
from mha_lab.masks import SlidingWindow, sliding_window_mask
from mha_lab.positions import Rotary, apply_rotary
from mha_lab.scores import SoftcappedScore

STEP = "4 Gemma 2: a scale, a cap and a window"


def gemma_output(x, w_q, w_k, w_v, w_o, num_heads, scalar, cap, window):
    """``(n, hidden_size)`` and the four weights, ``(out, in)`` each, to ``(n, hidden_size)``."""
    d_k = len(w_q) // num_heads
    layer = MultiHeadAttention(
        x.shape[-1], num_heads, d_k=d_k, d_v=d_k, num_kv_heads=len(w_k) // d_k, bias=False,
        transform=Rotary(layout="halves"), score=SoftcappedScore(cap), mask=SlidingWindow(window),
    )  # fmt: skip
    layer.q_proj.weight.data = w_q * math.sqrt(d_k / scalar)  # the layer divides by sqrt(d_k)
    layer.k_proj.weight.data = w_k
    layer.v_proj.weight.data = w_v
    layer.out_proj.weight.data = w_o
    return layer(x)[0].detach()


def _problems(rng):
    sizes = (3, 1, 2, 1, 2, 2), (7, 2, 3, 2, 5, 3), (6, 3, 2, 2, 7, 4), (8, 2, 2, 3, 5, 3)
    for n, kv_heads, group, half, hidden, window in sizes:
        heads, d_k = kv_heads * group, 2 * half
        w_q, w_o = 2 * rng.normal(heads * d_k, hidden), rng.normal(hidden, heads * d_k)
        w_k, w_v = (rng.normal(kv_heads * d_k, hidden) for _ in range(2))
        scalar, cap = d_k + 3 + rng.below(5), 1.5 + rng.below(3)
        yield rng.normal(n, hidden), w_q, w_k, w_v, w_o, heads, scalar, cap, window


def _build(
    scale=lambda scalar, d_k: scalar**-0.5,
    capped=lambda scores, cap: cap * torch.tanh(scores / cap),
    seen=lambda n, window: sliding_window_mask(n, window=window),
    turn=lambda x: apply_rotary(x, layout="halves"),
    share=repeat_kv,
):
    def answer(x, w_q, w_k, w_v, w_o, num_heads, scalar, cap, window):
        d_k = len(w_q) // num_heads
        q, k, v = (split_heads(x @ w.mT, len(w) // d_k) for w in (w_q, w_k, w_v))
        k, v = (share(one, num_heads // len(k)) for one in (turn(k), v))
        scores = capped(turn(q) @ k.mT * scale(scalar, d_k), cap)
        weights = torch.softmax(scores.masked_fill(~seen(len(x), window), -math.inf), dim=-1)
        return merge_heads(weights @ v) @ w_o.mT

    return answer


KNOBS = {
    "scale": {
        "scaled-by-the-width-of-a-head": (
            "Your scores are divided by the square root of `d_k`. Here it is the square root of `scalar`.",
            STEP,
            (lambda scalar, d_k: d_k**-0.5,),
        ),
        "scaled-twice": (
            "Your scores are divided by both square roots, that of `scalar` and that of `d_k`.",
            STEP,
            (lambda scalar, d_k: (scalar * d_k) ** -0.5,),
        ),
        "factor-upside-down": (
            "Your queries are multiplied by the square root of `scalar / d_k`. Turn the fraction round.",
            STEP,
            (lambda scalar, d_k: d_k**-0.5 * (scalar / d_k) ** 0.5,),
        ),
        "scale-without-the-root": (
            "Your queries are multiplied by `d_k / scalar`. The square root of it is missing.",
            STEP,
            (lambda scalar, d_k: d_k**-0.5 * d_k / scalar,),
        ),
        "divided-by-scalar": (
            "Your scores are divided by `scalar`, and not by its square root.",
            STEP,
            (lambda scalar, d_k: 1 / scalar,),
        ),
        "multiplied-by-the-root": (
            "Your scores are multiplied by the square root of `scalar`. Divide them by it.",
            STEP,
            (lambda scalar, d_k: scalar**0.5,),
        ),
        "not-scaled": ("Your scores are not divided by any number.", STEP, (lambda scalar, d_k: 1.0,)),
    },
    "capped": {
        "cap-left-out": ("Your scores have no cap.", STEP, (lambda scores, cap: scores,)),
        "cut-off": (
            "Your scores are cut off at the cap. A soft cap is `cap * tanh(scores / cap)`.",
            STEP,
            (lambda scores, cap: scores.clamp(-cap, cap),),
        ),
        "cap-of-1": (
            "Your scores lie between -1 and 1: after the tanh, the factor `cap` is missing.",
            STEP,
            (lambda scores, cap: torch.tanh(scores / cap),),
        ),
        "cap-only-outside": (
            "In your function the tanh gets the scores as they are. It gets them divided by the cap.",
            STEP,
            (lambda scores, cap: cap * torch.tanh(scores),),
        ),
    },
    "seen": {
        "window-without-the-own-key": (
            "In your function a query sees `window` keys and its own. Its own is one of the `window`.",
            STEP,
            (lambda n, window: sliding_window_mask(n, window=window + 1),),
        ),
        "window-too-small": (
            "In your function a query sees `window - 1` keys.",
            STEP,
            (lambda n, window: sliding_window_mask(n, window=window - 1),),
        ),
        "later-keys-too": (
            "Your function hides the keys that are older than the window, and no later ones.",
            STEP,
            (lambda n, window: torch.ones(n, n, dtype=torch.bool).triu(1 - window),),
        ),
        "no-window": (
            "In your function a query sees all keys up to its own.",
            STEP,
            (lambda n, window: causal_mask(n),),
        ),
        "no-mask": (
            "In your function a query sees all keys, later ones, too.",
            STEP,
            (lambda n, window: torch.ones(n, n, dtype=torch.bool),),
        ),
    },
    "turn": {
        "neighbours-are-pairs": (
            "In your function neighbouring columns are a pair. In this file, a pair is column i and column "
            "i + d_k / 2.",
            STEP,
            (apply_rotary,),
        ),
        "no-positions": ("Your queries and keys are not turned.", STEP, (lambda x: x,)),
    },
    "share": {
        "whole-list-repeated": (
            "In your function query head h uses KV head `h % num_kv_heads`. Neighbouring heads share.",
            STEP,
            (lambda x, group: x.repeat(group, 1, 1),),
        ),
    },
}


EXERCISE = Exercise(
    answer=gemma_output,
    chapter="15_read_a_model",
    section=STEP,
    points=3,
    problems=_problems,
    mistakes=deviations(_build, KNOBS, pairs=False),
)
