"""Chapter 03: the weights of every head."""

import math

import torch

import mha_lab
from mha_course.exercises import Exercise, Mistake, _heads, _scale, _scores, _softmax, deviations


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


def _build(
    cut=_heads.split,
    product=_scores.right,
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


VIEW, BARE, STACK = "2 What view does", "3 The bare view", "5 Four ways to write it"
ROOT = "6 A loop over heads equals one wide projection and a split"
SIZES = "d_model", "heads", "lengths"
KNOBS = {
    "cut": _heads.wrong({"": BARE, "view": VIEW}, "product"),
    "product": _scores.wrong(ROOT, "heads"),
    "divisor": _scale.wrong(ROOT, *SIZES),
    "weigh": _softmax.wrong(ROOT, "heads", "batch"),
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
ALONE = {
    *_scores.ALONE, "not-transposed", "one-head-only", "one-head-in-all", "heads-in-the-batch",
    "joined-not-stacked",
}  # fmt: skip


def _fetched(*results):
    """What the attention of a whole layer returns: the heads' outputs for ``0``, the weights for ``1``."""

    def answer(query, key, heads):
        weights = per_head_weights(query, key, heads)
        output = weights @ _heads.split(key, heads)
        found = [(output, weights, _heads.merge(output))[i] for i in results]
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
        **deviations(_build, KNOBS, alone=ALONE),
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
                    _heads.split(q, h) @ turn(k, h) / math.sqrt(q.shape[-1] // h), -1
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
                lambda q, k, h: torch.softmax(_heads.split(q, h) @ k.mT / math.sqrt(q.shape[-1] // h), -1),
                lambda q, k, h: torch.softmax(q @ _heads.split(k, h).mT / math.sqrt(q.shape[-1] // h), -1),
            ),
        ),
        "scaled-after-the-softmax": Mistake(
            _scale.AFTER,
            ROOT,
            tuple(_build(divisor=lambda s: 1.0, after=after) for after in _scale.afterwards(*SIZES)),
        ),
    },
)
