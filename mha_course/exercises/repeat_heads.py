"""Chapter 12: keys or values of a few heads, repeated for groups of query heads."""

import torch

from mha_course.exercises import Exercise, Mistake
from mha_lab.heads import repeat_kv

STEP = "2 One key for several query heads"


def repeat_heads(x, num_heads):
    """``(batch, num_kv_heads, n, d_k)`` to ``(batch, num_heads, n, d_k)``; neighbours share a head."""
    kv_head = torch.arange(num_heads) // (num_heads // x.shape[1])
    return x[:, kv_head]


def _problems(rng):
    yield torch.tensor([[[[7.0]], [[8.0]]]]), 4
    yield torch.tensor([[[[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]]]]), 6
    for _ in range(2):
        batch, heads, n, d_k, group = rng.primes(5)
        yield rng.normal(batch, heads, n, d_k), heads * group
    batch, n, d_k, group = rng.primes(4)
    yield rng.normal(batch, 1, n, d_k), group
    batch, heads, n, d_k = rng.primes(4)
    yield rng.normal(batch, heads, n, d_k), heads


def _at(index):
    """Head ``h`` of the result is the head ``index(h, group, kv)`` of ``x``."""

    def answer(x, num_heads):
        kv = x.shape[1]
        return torch.stack([x[:, index(h, num_heads // kv, kv)] for h in range(num_heads)], dim=1)

    return answer


def _group(x, num_heads):
    return num_heads // x.shape[1]


def _along(axis, times=_group):
    return lambda x, num_heads: x.repeat_interleave(times(x, num_heads), dim=axis)


def _then_cut(axis):
    def answer(x, num_heads):
        batch, _, n, d_k = x.shape
        return _along(axis)(x, num_heads).reshape(batch, num_heads, n, d_k)

    return answer


EXERCISE = Exercise(
    answer=repeat_heads,
    chapter="12_smaller_caches",
    section=STEP,
    points=1,
    problems=_problems,
    same_as=(repeat_kv,),
    mistakes={
        "whole-list-repeated": Mistake(
            "Your function repeats the whole list of heads: 7, 8, 7, 8. Head `h` of the result is head "
            "`h % num_kv_heads`. Neighbouring heads should share: 7, 7, 8, 8.",
            STEP,
            (_at(lambda h, group, kv: h % kv),),
        ),
        "divided-by-the-number-of-heads": Mistake(
            "In your function head `h` of the result is head `h // num_kv_heads` of `x`. Divide by the size "
            "of a group, `num_heads // num_kv_heads`.",
            STEP,
            (
                _at(lambda h, group, kv: h // kv),
                lambda x, num_heads: x[:, torch.arange(num_heads) // x.shape[1]],
            ),
        ),
        "groups-in-reverse-order": Mistake(
            "In your function the groups come in the reverse order: the first query heads get the last head "
            "of `x`.",
            STEP,
            (_at(lambda h, group, kv: kv - 1 - h // group),),
        ),
        "first-head-for-all": Mistake(
            "In your function all query heads get the first head of `x`.",
            STEP,
            (_at(lambda h, group, kv: 0),),
        ),
        "averaged": Mistake(
            "In your function all query heads get the mean over the heads of `x`.",
            STEP,
            (lambda x, num_heads: x.mean(dim=1, keepdim=True).repeat(1, num_heads, 1, 1),),
        ),
        "repeated-num_heads-times": Mistake(
            "Your function repeats each head of `x` `num_heads` times. Then there are "
            "`num_kv_heads * num_heads` heads, and `num_heads` are needed in all.",
            STEP,
            (_along(1, lambda x, num_heads: num_heads), lambda x, num_heads: x.repeat(1, num_heads, 1, 1)),
        ),
        "repeated-num_kv_heads-times": Mistake(
            "Your function repeats each head of `x` `num_kv_heads` times. Repeat it once for each query head "
            "of its group: `num_heads // num_kv_heads` times.",
            STEP,
            (_along(1, lambda x, num_heads: x.shape[1]),),
        ),
        "always-repeated-twice": Mistake(
            "Your function always repeats each head of `x` twice. How many query heads share a head depends "
            "on `num_heads`.",
            STEP,
            (_along(1, lambda x, num_heads: 2),),
        ),
        "not-repeated": Mistake(
            "Your function returns `x` as it came.",
            STEP,
            (lambda x, num_heads: x,),
        ),
        "another-axis-repeated": Mistake(
            "Your function repeats along another axis: the heads are axis 1 of `x`, "
            "(batch, num_kv_heads, n, d_k).",
            STEP,
            (
                _along(0),
                _along(2),
                _along(3),
                lambda x, num_heads: x.repeat(_group(x, num_heads), 1, 1, 1),
                lambda x, num_heads: x.repeat(1, 1, _group(x, num_heads), 1),
                lambda x, num_heads: x.repeat(1, 1, 1, _group(x, num_heads)),
            ),
        ),
        "repeated-and-then-cut": Mistake(
            "Your function repeats along the axis of the tokens or of the width, and then cuts the numbers "
            "into heads. The shape is right, but the rows of a head are not those of its tokens.",
            STEP,
            (_then_cut(2), _then_cut(3)),
        ),
        "everything-flattened": Mistake(
            "Your function repeats single numbers and loses the axes: without `dim`, `repeat_interleave` "
            "makes the tensor flat.",
            STEP,
            (_along(None),),
        ),
        "axis-not-joined": Mistake(
            "Your result has one axis too many: the heads of a group have an axis of their own. Join it with "
            "the axis of the heads.",
            STEP,
            (
                lambda x, num_heads: x.unsqueeze(2).expand(-1, -1, _group(x, num_heads), -1, -1),
                lambda x, num_heads: x.unsqueeze(1).expand(-1, _group(x, num_heads), -1, -1, -1),
            ),
        ),
        "heads-in-front": Mistake(
            "In your result the heads are axis 0, and the batch is axis 1: `stack` puts a new axis first "
            "unless it gets `dim`.",
            STEP,
            (lambda x, num_heads: repeat_heads(x, num_heads).transpose(0, 1),),
        ),
    },
)
