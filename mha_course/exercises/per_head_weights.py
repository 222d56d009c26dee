"""Chapter 03: the weights of every head."""

import math

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _scale, _softmax, deviations
from mha_course.exercises import _parts as parts


def per_head_weights(query, key, num_heads):
    """``(batch, n_q, d_model)``, ``(batch, n_k, d_model)`` to ``(batch, num_heads, n_q, n_k)``."""
    query, key = (x.unflatten(-1, (num_heads, -1)).transpose(1, 2) for x in (query, key))
    return torch.softmax(query @ key.mT / query.shape[-1] ** 0.5, dim=-1)


def _problems(rng):
    query, key = (
        [[2.0, 1.0, -1.0, 0.5, 1.0, 3.0]],
        [[1.0, -0.5, 2.0, 1.5, 0.5, 1.0], [0.5, 2.0, -1.0, 3.0, 1.0, 0.0]],
    )
    yield torch.tensor([query]), torch.tensor([key]), 3
    yield rng.normal(1, 3, 8), rng.normal(1, 2, 8), 2
    for _ in range(3):
        batch, n_q, n_k, num_heads, d_k = rng.primes(5)
        width = num_heads * d_k
        yield rng.normal(batch, n_q, width), rng.normal(batch, n_k, width), num_heads
    # A weight of 0.0003 in head 0.
    yield torch.tensor([[[8.2, 1.0]]]), torch.tensor([[[1.0, 1.0], [0.0, 2.0]]]), 2


def _product(q, k):
    return q @ k.mT


def _build(
    cut=parts.split,
    product=_product,
    divisor=_scale.right,
    weigh=_softmax.right,
    result=lambda w: w,
    after=lambda sizes: 1.0,
):
    def answer(query, key, num_heads):
        q, k = cut(query, num_heads), cut(key, num_heads)
        sizes = _scale.Sizes.of(q, k, query.shape[-1], num_heads)
        return result(weigh(product(q, k) / divisor(sizes)) / after(sizes))

    return answer


def _overlapping(x, heads):
    d_k = x.shape[-1] // heads
    return torch.stack([x[..., h : h + d_k] for h in range(heads)], 1)


VIEW, BARE, STACK = "2 What view does", "3 The bare view", "5 Four ways to write it"
ROOT = "6 A loop over heads equals one wide projection and a split"
SIZES = "d_model", "heads", "lengths"
KNOBS = {
    "cut": {
        "view-without-transpose": (
            "Your heads come from a bare view: several pieces of one token land in the same head.",
            BARE,
            (parts.bare_view,),
        ),
        "heads-interleaved": (
            "Your heads take the columns in turn: head h gets columns h, h + num_heads and so on. It should "
            "get d_k neighbouring columns.",
            VIEW,
            (parts.interleaved,),
        ),
        "heads-overlap": (
            "Your heads begin at columns 0, 1, 2 and so on, and overlap; head h should begin at column h * "
            "d_k.",
            BARE,
            (_overlapping,),
        ),
        "pieces-of-num_heads": (
            "Your rows are cut into d_k pieces of num_heads columns; cut them into num_heads pieces of d_k.",
            VIEW,
            (lambda x, h: x.unflatten(-1, (-1, h)).transpose(1, 2),),
        ),
    },
    "product": {
        "queries-and-keys-swapped": (
            "Your scores have keys as rows and queries as columns.",
            ROOT,
            (lambda q, k: k @ q.mT,),
        ),
        "one-tensor-for-both": (
            "Your function uses one of query and key twice, and does not use the other.",
            ROOT,
            (lambda q, k: q @ q.mT, lambda q, k: k @ k.mT),
        ),
    },
    "divisor": _scale.wrong(ROOT, *SIZES),
    "weigh": _softmax.wrong(ROOT, "heads"),
    "result": {
        "weights-averaged-over-heads": (
            "Your function returns the mean or the sum over the heads; each head has its own weights.",
            ROOT,
            (lambda w: w.mean(1), lambda w: w.mean(1, keepdim=True), lambda w: w.sum(1)),
        ),
        "heads-in-front-of-the-batch": (
            "Your heads come before the batch; the result should be (batch, num_heads, n_q, n_k).",
            STACK,
            (lambda w: w.transpose(0, 1),),
        ),
        "heads-not-axis-1": (
            "Your heads are axis 2 or 3 of the result; they should come between batch and n_q, as axis 1.",
            STACK,
            (lambda w: w.movedim(1, 2), lambda w: w.movedim(1, 3)),
        ),
        "result-transposed": (
            "The last two axes of your result are swapped: (batch, num_heads, n_k, n_q).",
            ROOT,
            (lambda w: w.mT,),
        ),
    },
}
ALONE = {  # these raise, or hide what else is wrong: they are not tried in pairs
    "cut": {
        "not-transposed": (
            "Heads and tokens are not swapped after the cut, so the product pairs heads with heads, within "
            "one token.",
            BARE,
            (lambda x, h: x.unflatten(-1, (h, -1)),),
        ),
    },
    "product": {
        "key-not-transposed": (
            "Your function multiplies query and key without turning the rows of key into columns.",
            ROOT,
            (lambda q, k: q @ k,),
        ),
        "wrong-axes-of-key-swapped": (
            "Your function swaps other axes of key, not the last two: `transpose(-2, -1)` or `.mT` swaps "
            "those.",
            ROOT,
            tuple(
                lambda q, k, axes=axes: q @ k.transpose(*axes)
                for axes in ((1, 2), (0, 1), (0, 2), (0, 3), (1, 3))
            ),
        ),
        "summed-over-tokens": (
            "Your product sums over the tokens, and pairs columns with columns.",
            ROOT,
            (lambda q, k: q.mT @ k,),
        ),
    },
    "result": {
        "one-head-only": (
            "Your function returns the weights of one head. Does the loop return in its first iteration, or "
            "keep only its last?",
            ROOT,
            (lambda w: w[:, 0], lambda w: w[:, -1], lambda w: w[:, :1], lambda w: w[:, -1:]),
        ),
        "one-head-in-all": (
            "All heads of your result are the same one. Is one tensor filled again and again, and stored "
            "each time?",
            ROOT,
            (lambda w: w[:, -1:].expand_as(w), lambda w: w[:, :1].expand_as(w)),
        ),
        "heads-in-the-batch": (
            "Your heads are still joined with the batch, in one axis: (batch * num_heads, n_q, n_k). Give "
            "them an axis of their own.",
            STACK,
            (lambda w: w.flatten(0, 1),),
        ),
        "joined-not-stacked": (
            "The weights of your heads are joined along an existing axis, as `cat` does; they need a new "
            "axis, which `stack` makes.",
            STACK,
            tuple(lambda w, axis=axis: torch.cat(w.unbind(1), axis) for axis in range(3)),
        ),
    },
}


def _fetched(*results):
    """What the attention of a whole layer returns: the heads' outputs for ``0``, the weights for ``1``."""

    def answer(query, key, heads):
        weights = per_head_weights(query, key, heads)
        output = weights @ parts.split(key, heads)
        found = [(output, weights, parts.merge(output))[i] for i in results]
        return found[0] if len(found) == 1 else tuple(found)

    return answer


def _whole(shape, *scales):
    """The weights of one wide head."""

    def of(scale):
        return lambda q, k, h: shape(torch.softmax(q @ k.mT / scale(q.shape[-1], h), -1), h)

    return tuple(map(of, scales))


ROOTS = (lambda d, h: math.sqrt(d), lambda d, h: math.sqrt(d / h), lambda d, h: 1.0)


def _one_length(query, key, heads, *, name="reshape", width=None):
    batch, n, d_model = query.shape
    sizes = batch, n, heads, d_model // heads if width is None else width
    q, k = (getattr(x, name)(sizes).transpose(1, 2) for x in (query, key))
    return torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)


EXERCISE = Exercise(
    answer=per_head_weights,
    chapter="03_splitting_heads",
    section=ROOT,
    points=2,
    problems=_problems,
    mistakes={
        **deviations(_build, KNOBS),
        **deviations(_build, ALONE, pairs=False),
        "not-split": Mistake(
            "Your function does not split: all of d_model goes into one dot product, scaled or not.",
            ROOT,
            _whole(lambda w, h: w, *ROOTS)
            + _whole(lambda w, h: w[:, None], *ROOTS)
            + _whole(lambda w, h: w[:, None].expand(-1, h, -1, -1), *ROOTS),
        ),
        "weights-cut-into-heads": Mistake(
            "Your function makes one set of weights from all columns, and cuts the weights into heads. Cut "
            "query and key instead, before the product.",
            ROOT,
            _whole(mha_lab.split_heads, *ROOTS),
        ),
        "returns-more-than-the-weights": Mistake(
            "Your function returns the output of the attention too; it should return the weights alone.",
            ROOT,
            (_fetched(0, 1), _fetched(2, 1), _fetched(1, 0), _fetched(1, 2)),
        ),
        "output-returned": Mistake(
            "Your function returns the output of the attention; it should return the weights.",
            ROOT,
            (_fetched(0), _fetched(2)),
        ),
        "one-length-for-both": Mistake(
            "Your function uses the number of queries as the number of keys too; key has n_k tokens.",
            ROOT,
            (
                _one_length,
                lambda q, k, h: _one_length(q, k, h, name="view"),
                lambda q, k, h: _one_length(q, k, h, width=-1),
            ),
        ),
        "key-viewed-as-turned": Mistake(
            "Your function views key in the transposed shape (batch, num_heads, d_k, n_k): that mixes "
            "tokens and columns. Split it like query, and then swap the last two axes.",
            BARE,
            tuple(
                lambda q, k, h, turn=turn: torch.softmax(
                    parts.split(q, h) @ turn(k, h) / math.sqrt(q.shape[-1] // h), -1
                )
                for turn in (
                    lambda k, h: k.reshape(len(k), h, -1, k.shape[1]),
                    lambda k, h: k.reshape(len(k), -1, h, k.shape[1]).transpose(1, 2),
                )
            ),
        ),
        "key-not-split": Mistake(
            "Your function splits only one of query and key.",
            ROOT,
            (
                lambda q, k, h: torch.softmax(parts.split(q, h) @ k.mT / math.sqrt(q.shape[-1] // h), -1),
                lambda q, k, h: torch.softmax(q @ parts.split(k, h).mT / math.sqrt(q.shape[-1] // h), -1),
            ),
        ),
        "scaled-after-the-softmax": Mistake(
            _scale.AFTER,
            ROOT,
            tuple(_build(divisor=lambda s: 1.0, after=after) for after in _scale.afterwards(*SIZES)),
        ),
    },
)
