"""Chapter 06: one head's keys in a checkpoint that goes head by head."""

import torch

from mha_course.exercises import Exercise, deviations


def key_weights_of_head(weight, num_heads, h):
    """The rows of ``(3 * d_model, d_model)`` that compute the keys of head ``h``, ``(d_k, d_model)``."""
    d_k = weight.shape[1] // num_heads
    start = (3 * h + 1) * d_k  # query, key and value of head 0, then those of head 1
    return weight[start : start + d_k]


def _weight(rng, num_heads, d_k):
    return rng.normal(3 * num_heads * d_k, num_heads * d_k)


def _problems(rng):
    small = torch.tensor([[4.0, -1.0], [2.5, 7.0], [0.5, 6.0], [-3.0, 8.0], [9.0, 1.5], [5.0, -2.0]])
    yield small, 2, 1  # two heads of one number
    yield small, 1, 0  # one head of two numbers
    # No size is 3, the number of blocks.
    for num_heads, d_k, h in ((5, 2, 0), (2, 7, 1), (7, 5, 2), (5, 4, 4), (2, 64, 1)):
        yield _weight(rng, num_heads, d_k), num_heads, h
    yield _weight(rng, 12, 16), 12, 2 + rng.below(9)


def _own(w, heads, h):
    """Right: the rows of head ``h`` as ``(3, d_k, d_model)``."""
    return w.unflatten(0, (heads, 3, -1))[h]


def _from(first, rows=1):
    """So many times ``d_k`` rows, from row ``first(h, heads) * d_k`` on."""

    def cut(w, heads, h):
        d_k = w.shape[1] // heads
        start = first(h, heads) * d_k
        return w[start : start + rows * d_k]

    return cut


def _near(first, last):
    """The right rows, with both ends moved."""

    def cut(w, heads, h):
        d_k = w.shape[1] // heads
        start = (3 * h + 1) * d_k
        return w[start + first : start + d_k + last]

    return cut


def _columns(first):
    """The same slice, of the columns."""

    def cut(w, heads, h):
        d_k = w.shape[1] // heads
        start = first(h, heads) * d_k
        return w[:, start : start + d_k]

    return cut


def _wide(first):
    """``d_k`` from the number of rows."""

    def cut(w, heads, h):
        d_k = w.shape[0] // heads
        return w[first(h) * d_k : (first(h) + 1) * d_k]

    return cut


def _chunk(rows, unpacked):
    """The middle one of three pieces of the last axis: of two columns, ``chunk`` makes two pieces only."""
    if not unpacked:
        return rows.chunk(3, dim=-1)[1]
    _query, key, _value = rows.chunk(3, dim=-1)
    return key


def _chunked(prepare=lambda w, heads, h: w, pick=lambda key, heads, h: key):
    """The published line on ``weight`` in place of the product; with three names, or with an index."""
    return tuple(
        lambda w, heads, h, unpacked=unpacked: pick(_chunk(prepare(w, heads, h), unpacked), heads, h)
        for unpacked in (True, False)
    )


def _as_product(w, heads, h):
    return w.view(-1, heads, len(w) // heads)


def _rows_of(key, heads, h):
    d_k = len(key) // 3 // heads
    return key[h * d_k : (h + 1) * d_k]


def _build(cut=lambda w, heads, h: _own(w, heads, h)[1], turn=lambda rows: rows):
    return lambda weight, num_heads, h: turn(cut(weight, num_heads, h))


STEP = "1 One matrix for three projections"
CUTS = {
    "three-blocks": (
        "Your function looks for the keys of all heads in one block, as in version (a). This checkpoint goes "
        "head by head.",
        STEP,
        (_from(lambda h, heads: heads + h),),
    ),
    "queries-of-three-blocks": (
        "Your rows are h * d_k to (h + 1) * d_k - 1. In version (a) these are the queries of head h, and "
        "this checkpoint goes head by head.",
        STEP,
        (_from(lambda h, heads: h),),
    ),
    "values-of-three-blocks": (
        "Your function looks in the last third of the rows. In version (a) the values of all heads are "
        "there, and this checkpoint goes head by head.",
        STEP,
        (_from(lambda h, heads: 2 * heads + h),),
    ),
    "rows-of-the-query": (
        "Your rows belong to the query of head h; its keys come after them.",
        STEP,
        (lambda w, heads, h: _own(w, heads, h)[0],),
    ),
    "rows-of-the-value": (
        "Your rows belong to the value of head h; its keys come before them.",
        STEP,
        (lambda w, heads, h: _own(w, heads, h)[2],),
    ),
    "rows-in-turn": (
        "Your function takes every third row of head h, as if a row for the query, one for the key and one "
        "for the value took turns. The d_k rows of the keys follow one another.",
        STEP,
        (
            lambda w, heads, h: w.unflatten(0, (heads, -1, 3))[h, :, 1],
            lambda w, heads, h: w.unflatten(0, (heads, -1, 3))[h, :, 0],
            lambda w, heads, h: w.unflatten(0, (heads, -1, 3))[h, :, 2],
        ),
    ),
    "heads-in-turn": (
        "Your rows lie apart, as if the heads took turns. The d_k rows of the keys of one head follow one "
        "another.",
        STEP,
        (
            lambda w, heads, h: w.unflatten(0, (3, -1, heads))[1, :, h],
            lambda w, heads, h: w.unflatten(0, (-1, heads, 3))[:, h, 1],
            lambda w, heads, h: w.unflatten(0, (-1, 3, heads))[:, 1, h],
        ),
    ),
    "a-head-has-three-parts": (
        "Your rows begin at (h + 1) * d_k. From one head to the next there are 3 * d_k rows: for its query, "
        "its key and its value.",
        STEP,
        (_from(lambda h, heads: h + 1),),
    ),
    "both-orders-at-once": (
        "Your rows begin at d_model + 3 * h * d_k. The step from head to head is that of this checkpoint, "
        "and the first row is that of version (a).",
        STEP,
        (_from(lambda h, heads: heads + 3 * h),),
    ),
    "another-head": (
        "Your rows belong to the keys of the head before or after head h; the first head is head 0.",
        STEP,
        (
            lambda w, heads, h: _own(w, heads, h - 1)[1],
            lambda w, heads, h: _own(w, heads, h + 1)[1],
            _from(lambda h, heads: 3 * h - 2),
            _from(lambda h, heads: 3 * h + 4),
        ),
    ),
    "always-head-0": (
        "Your function returns the rows of head 0 for every h.",
        STEP,
        (lambda w, heads, h: _own(w, heads, 0)[1],),
    ),
    "one-row-off": (
        "Your rows begin or end one row too early or too late. The last row of a slice stands before its "
        "`stop`.",
        STEP,
        (_near(1, 1), _near(-1, -1), _near(0, -1), _near(0, 1), _near(1, 0), _near(-1, 0)),
    ),
    "all-three-of-the-head": (
        "Your function returns all 3 * d_k rows of head h: for its query, its key and its value.",
        STEP,
        (_own, lambda w, heads, h: _own(w, heads, h).flatten(0, 1)),
    ),
    "two-of-three": (
        "Your function returns 2 * d_k rows of head h: the keys have only d_k.",
        STEP,
        (
            _from(lambda h, heads: 3 * h + 1, 2),
            _from(lambda h, heads: 3 * h, 2),
        ),
    ),
    "keys-of-all-heads": (
        "Your function returns the keys' rows of all heads; `h` asks for one of them.",
        STEP,
        (
            lambda w, heads, h: w.unflatten(0, (heads, 3, -1))[:, 1],
            lambda w, heads, h: w.unflatten(0, (heads, 3, -1))[:, 1].flatten(0, 1),
        ),
    ),
    "columns": (
        "Your function cuts the columns of `weight`. nn.Linear stores (out, in), so the numbers that come "
        "out belong to the rows.",
        STEP,
        (
            _columns(lambda h, heads: 3 * h + 1),
            _columns(lambda h, heads: heads + h),
            _columns(lambda h, heads: h),
            _columns(lambda h, heads: h + 1),
        ),
    ),
    "cut-like-the-product": (
        "Your function cuts `weight` as the code cuts the product, along the last axis. But nn.Linear stores "
        "(out, in): a column of the product belongs to a row of `weight`.",
        STEP,
        (
            *_chunked(),
            *_chunked(pick=_rows_of),
            *_chunked(pick=lambda key, heads, h: key.chunk(heads)[h]),
            *_chunked(lambda w, heads, h: w.view(heads, 3, -1, w.shape[1])[h, 1]),
            *_chunked(_as_product, lambda key, heads, h: key[:, h]),
            *_chunked(_as_product, lambda key, heads, h: key[:, h].mT),
        ),
    ),
    "transpose-cut": (
        "Your function cuts the transpose of `weight`, whose rows belong to the numbers of x.",
        STEP,
        (
            lambda w, heads, h: w.mT.reshape(heads, 3, -1, w.shape[1])[h, 1],
            lambda w, heads, h: w.mT.reshape(3, heads, -1, w.shape[1])[1, h],
        ),
    ),
    "always-64-numbers": (
        "Your d_k is always 64, as in Pythia. Compute it from the shape of `weight` and from `num_heads`.",
        STEP,
        (lambda w, heads, h: w[(3 * h + 1) * 64 : (3 * h + 2) * 64],),
    ),
    "d_k-from-the-rows": (
        "Your d_k is the number of rows divided by num_heads. There are 3 * d_model rows, so it is three "
        "times too large.",
        STEP,
        (_wide(lambda h: 3 * h + 1), _wide(lambda h: h + 1)),
    ),
}
TURNS = {
    "transposed": (
        "Your function returns the transpose, (d_model, d_k). The rows of `weight` should stay rows.",
        STEP,
        (lambda rows: rows.mT,),
    ),
}
EXERCISE = Exercise(
    answer=key_weights_of_head,
    chapter="06_five_ways",
    section=STEP,
    points=2,
    problems=_problems,
    mistakes=deviations(_build, {"cut": CUTS, "turn": TURNS}),
)
