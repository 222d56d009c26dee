"""Chapter 12: a grouped layer that repeats the list of heads in place of each head."""

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _scale, _softmax, deviations

STEP = "6 Break it: right shapes, wrong results"


def fix_grouped(query, key, value):
    """``(batch, num_heads, n, d_k)`` and ``(batch, num_kv_heads, n, d_k)`` twice, to what is fetched."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    weights = torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, dim=-1)
    return weights @ value


def _stub(query, key, value):
    group = query.shape[1] // key.shape[1]
    key = key.repeat(1, group, 1, 1)
    value = value.repeat(1, group, 1, 1)
    return mha_lab.scaled_dot_product_attention(query, key, value)[0]


def _problems(rng):
    def heads(*numbers):
        return torch.tensor(numbers)[None, :, None, None]

    yield heads(1.0, 2.0, 3.0, 4.0), heads(1.0, 2.0), heads(7.0, 8.0)
    for _ in range(2):
        batch, kv, n, d_k, group = rng.primes(5)
        shape = (batch, kv, n, d_k)
        yield 2 * rng.normal(batch, kv * group, n, d_k), 2 * rng.normal(*shape), 2 * rng.normal(*shape)
    batch, n, d_k, group = rng.primes(4)
    yield rng.normal(batch, group, n, d_k), rng.normal(batch, 1, n, d_k), rng.normal(batch, 1, n, d_k)
    batch, kv, n, d_k = rng.primes(4)
    yield tuple(rng.normal(batch, kv, n, d_k) for _ in range(3))


def _of(index):
    """Query head ``h`` uses head ``index(h, group, kv)``."""

    def take(x, num_heads):
        kv = x.shape[1]
        return x[:, [index(h, num_heads // kv, kv) for h in range(num_heads)]]

    return take


RIGHT, TILED = _of(lambda h, group, kv: h // group), _of(lambda h, group, kv: h % kv)
FIRST, REVERSED = _of(lambda h, group, kv: 0), _of(lambda h, group, kv: kv - 1 - h // group)


def _mean(x, num_heads):
    return x.mean(dim=1, keepdim=True)


def _build(
    keys=RIGHT,
    values=RIGHT,
    divisor=_scale.right,
    weigh=_softmax.right,
    after=lambda sizes: 1.0,
):
    def answer(query, key, value):
        heads, d_k = query.shape[1], query.shape[-1]
        key, value = keys(key, heads), values(value, heads)
        sizes = _scale.Sizes.of(query, key, heads * d_k, heads)
        return weigh(query @ key.mT / divisor(sizes)) / after(sizes) @ value

    return answer


def _both(take):
    return _build(keys=take, values=take)


SIZES = "d_model", "heads", "tokens"
KNOBS = {
    "keys": {
        "keys-still-wrong": (
            "The values are right now, but head `h` still uses the keys of head `h % num_kv_heads`.",
            STEP,
            (TILED,),
        ),
    },
    "values": {
        "values-still-wrong": (
            "The keys are right now, but head `h` still uses the values of head `h % num_kv_heads`.",
            STEP,
            (TILED,),
        ),
    },
    "divisor": _scale.wrong(STEP, *SIZES),
    "weigh": _softmax.wrong(STEP, "heads", "batch"),
}


def _reordered(query, key, value):
    """The query heads in the order of the repeated list, and the outputs left in it."""
    kv = key.shape[1]
    group = query.shape[1] // kv
    query = query.unflatten(1, (kv, group)).transpose(1, 2).flatten(1, 2)
    return _both(TILED)(query, key, value)


def _causal(query, key, value):
    key, value = RIGHT(key, query.shape[1]), RIGHT(value, query.shape[1])
    return mha_lab.scaled_dot_product_attention(query, key, value, mha_lab.causal_mask(query.shape[2]))[0]


def _along(axis, times):
    def answer(query, key, value):
        group = times(query, key)
        key, value = key.repeat_interleave(group, dim=axis), value.repeat_interleave(group, dim=axis)
        return _both(lambda x, num_heads: x)(query, key, value)

    return answer


def _then_cut(axis):
    """The numbers are repeated along another axis, and then cut into heads."""

    def take(x, num_heads):
        batch, kv, n, d = x.shape
        return x.repeat_interleave(num_heads // kv, dim=axis).reshape(batch, num_heads, n, d)

    return take


EXERCISE = Exercise(
    answer=fix_grouped,
    chapter="12_smaller_caches",
    section=STEP,
    points=1,
    problems=_problems,
    bug=_stub,
    mistakes={
        **deviations(_build, KNOBS, pairs=False),
        "scaled-after-the-softmax": Mistake(
            _scale.AFTER,
            STEP,
            tuple(_build(divisor=lambda s: 1.0, after=after) for after in _scale.afterwards(*SIZES)),
        ),
        "list-of-heads-repeated": Mistake(
            "Query head `h` still uses the keys and values of head `h % num_kv_heads`: the whole list of "
            "heads is repeated, and not each head.",
            STEP,
            (_both(TILED),),
        ),
        "queries-reordered": Mistake(
            "Your function puts the query heads into another order, which fits the repeated keys, and "
            "leaves the outputs in that order.",
            STEP,
            (_reordered,),
        ),
        "first-head-for-all": Mistake(
            "In your function all query heads use the first key and value head.",
            STEP,
            (_both(FIRST),),
        ),
        "groups-in-reverse-order": Mistake(
            "In your function the groups come in the reverse order: the first query heads use the last key "
            "and value head.",
            STEP,
            (_both(REVERSED),),
        ),
        "heads-averaged": Mistake(
            "In your function all query heads use the mean of the key and value heads.",
            STEP,
            (_both(_mean),),
        ),
        "another-axis-repeated": Mistake(
            "Your function repeats along another axis. The heads are axis 1.",
            STEP,
            tuple(_along(axis, lambda q, k: q.shape[1] // k.shape[1]) for axis in (0, 2)),
        ),
        "repeated-and-then-cut": Mistake(
            "Your function repeats along the axis of the tokens or of the width, and then cuts the numbers "
            "into heads. The shape is right, but the rows of a head are not those of its tokens.",
            STEP,
            tuple(
                _build(keys=keys, values=values)
                for keys in (RIGHT, _then_cut(2), _then_cut(3))
                for values in (RIGHT, _then_cut(2), _then_cut(3))
                if not keys is values is RIGHT
            ),
        ),
        "repeated-too-often": Mistake(
            "Your function repeats each key and value head a wrong number of times. A head is needed once "
            "for each query head of its group: `num_heads // num_kv_heads` times.",
            STEP,
            (_along(1, lambda q, k: k.shape[1]), _along(1, lambda q, k: q.shape[1])),
        ),
        "causal-mask": Mistake(
            "Your function hides later tokens with a causal mask. There is no mask in this exercise.",
            STEP,
            (_causal,),
        ),
        "weights-as-well": Mistake(
            "Your function returns (output, weights). It should return the output alone.",
            STEP,
            (
                lambda q, k, v: mha_lab.scaled_dot_product_attention(
                    q, *(RIGHT(x, q.shape[1]) for x in (k, v))
                ),
            ),
        ),
    },
)
