"""Chapter 06: a packed projection cut in the order of another project."""

from itertools import permutations, product

import torch

from mha_course.exercises import Exercise, Mistake, deviations


def fix_packed(x, w_qkv, num_heads):
    """``(batch, n, d_model)`` and ``(d_model, 3 * d_model)`` to query, key, value, each split into heads."""
    batch, n, d_model = x.shape
    pieces = (x @ w_qkv).view(batch, n, 3, num_heads, d_model // num_heads)
    query, key, value = pieces.permute(2, 0, 3, 1, 4)
    return query, key, value


def _stub(x, w_qkv, num_heads):
    batch, n, d_model = x.shape
    pieces = (x @ w_qkv).view(batch, n, num_heads, 3, d_model // num_heads)
    query, key, value = pieces.permute(3, 0, 2, 1, 4)
    return query, key, value


def _problems(rng):
    x = torch.tensor([[[0.5, -2.0], [0.5, 3.0], [0.5, 4.0], [2.0, 3.0]]])
    yield x, torch.tensor([[0.5, -2.0, 5.0, 1.0, 2.0, 1.5], [-4.0, -2.0, 0.5, 4.0, -0.5, 3.0]]), 2
    # No size is 3, the number of blocks. Each axis has length 2 once: Python's error for three names then
    # tells along which axis the tensor was unpacked.
    for batch, n, num_heads, d_k in ((2, 7, 4, 5), (4, 5, 7, 2), (4, 7, 2, 5), (4, 2, 5, 7)):
        d_model = num_heads * d_k
        yield rng.normal(batch, n, d_model), rng.normal(d_model, 3 * d_model), num_heads


def _named(parts):
    """Three names, and no more."""
    query, key, value = parts
    return query, key, value


def _cut(y, h, d, sizes):
    """The last axis as three, in the order of ``sizes``: ``3``, ``h`` for the heads, ``d`` for the rest."""
    return y.unflatten(-1, [{"3": 3, "h": h, "d": d}[size] for size in sizes])


def _build(
    project=lambda x, w: x @ w,
    blocks=lambda y, h, d: _cut(y, h, d, "3hd").permute(2, 0, 1, 3, 4),
    heads=lambda t: t.transpose(2, 3),
    order=(0, 1, 2),
):
    """``blocks`` gives ``(3, batch, n, h, d)``, ``heads`` takes it to ``(3, batch, h, n, d)``."""

    def answer(x, w_qkv, num_heads):
        y = project(x, w_qkv)
        result = heads(blocks(y, num_heads, x.shape[-1] // num_heads))
        return tuple(result[i] for i in order)

    return answer


def _all(x, w, h, sizes):
    """The product with its last axis cut: ``(batch, n, ...)``."""
    return _cut(x @ w, h, x.shape[-1] // h, sizes)


def _along(axis):
    """Three names for the parts along an axis that is not the one of the blocks."""

    def answer(sizes):
        place = sizes.index(axis) + 2 if axis in sizes else int(axis)
        return lambda x, w, h: _named(_all(x, w, h, sizes).movedim(place, 0))

    return tuple(answer(sizes) for sizes in ("3hd", "h3d", "hd3"))


def _moved(x, w, h, sizes):
    """The columns of the matrix in another order, and then read as if they were in the old one."""
    d = x.shape[-1] // h
    y = x @ _cut(w, h, d, sizes).transpose(1, 2).flatten(1)
    return tuple(_cut(y, h, d, sizes).movedim(sizes.index("3") + 2, 0).transpose(2, 3))


STEP = "1 One matrix for three projections"
VIEW = "view and reshape cut the numbers as they lie in memory; permute or transpose moves an axis."
BLOCKS = {
    "head-by-head": (
        "Your function still reads the columns head by head: query, key and value of head 0, then those of "
        "head 1. That is the bug.",
        STEP,
        (lambda y, h, d: _cut(y, h, d, "h3d").permute(3, 0, 1, 2, 4),),
    ),
    "heads-interleaved": (
        "Within each block, your function gives the columns to the heads in turn; the d_k columns of a head "
        "are side by side.",
        STEP,
        (lambda y, h, d: _cut(y, h, d, "3dh").permute(2, 0, 1, 4, 3),),
    ),
    "blocks-interleaved": (
        "Your function takes every third column for the queries; the three blocks are side by side.",
        STEP,
        (
            lambda y, h, d: _cut(y, h, d, "hd3").permute(4, 0, 1, 2, 3),
            lambda y, h, d: _cut(y, h, d, "dh3").permute(4, 0, 1, 3, 2),
        ),
    ),
    "three-put-in-front-by-view": (
        f"Your function puts the axis of length 3 before the tokens without a permute. {VIEW}",
        STEP,
        (
            lambda y, h, d: y.reshape(3, *y.shape[:2], h, d),
            lambda y, h, d: y.reshape(len(y), 3, y.shape[1], h, d).transpose(0, 1),
            lambda y, h, d: y.reshape(3, len(y), h, y.shape[1], d).transpose(2, 3),
            lambda y, h, d: y.reshape(len(y), 3, h, y.shape[1], d).permute(1, 0, 3, 2, 4),
            lambda y, h, d: y.reshape(len(y), h, 3, y.shape[1], d).permute(2, 0, 3, 1, 4),
        ),
    ),
    "heads-put-in-front-by-view": (
        f"Your function puts the axis of the heads before the tokens without a transpose, before it takes "
        f"the blocks apart. {VIEW}",
        STEP,
        (
            lambda y, h, d: y.reshape(len(y), h, y.shape[1], 3, d).permute(3, 0, 2, 1, 4),
            lambda y, h, d: y.reshape(len(y), h, y.shape[1], d, 3).permute(4, 0, 2, 1, 3),
        ),
    ),
}
HEADS = {
    "view-without-transpose": (
        f"Each block gets the shape (batch, num_heads, n, d_k) without a transpose. {VIEW}",
        STEP,
        (lambda t: t.reshape(3, t.shape[1], t.shape[3], t.shape[2], -1),),
    ),
    "transposed-before-the-cut": (
        f"Each block is first transposed to (batch, d_model, n), and then cut into heads. {VIEW}",
        STEP,
        (lambda t: t.flatten(3).mT.reshape(3, t.shape[1], t.shape[3], t.shape[2], -1),),
    ),
    "not-transposed": (
        "Your results are (batch, n, num_heads, d_k): the heads are not yet before the tokens.",
        STEP,
        (lambda t: t,),
    ),
    "not-split": (
        "Your results are (batch, n, d_model), not split into heads.",
        STEP,
        (lambda t: t.flatten(3),),
    ),
}
TURNED = {
    "axes-in-another-order": (
        "The axes of your results come in another order than (batch, num_heads, n, d_k).",
        STEP,
        tuple(
            lambda t, axes=axes: t.permute(0, *axes)
            for axes in ((1, 3, 4, 2), (3, 1, 2, 4), (2, 1, 3, 4), (2, 3, 1, 4), (3, 2, 1, 4), (1, 2, 4, 3))
        ),
    ),
}
ORDERS = {
    "wrong-order": (
        "The three results are there, but not in the order query, key, value.",
        STEP,
        [order for order in permutations(range(3)) if order != (0, 1, 2)],
    ),
}
TWICE = {
    "one-result-twice": (
        "The same result is returned more than once, so not all three are there.",
        STEP,
        [order for order in product(range(3), repeat=3) if len(set(order)) < 3],
    ),
}
PROJECTS = {
    "matrix-cut-by-view": (
        "Your function cuts w_qkv into three with view or reshape: the first third of its numbers in memory "
        "becomes w_q. The blocks are groups of columns.",
        STEP,
        (lambda x, w: torch.cat([x @ m for m in w.reshape(3, len(w), -1)], -1),),
    ),
}
FRONT = (0, 1, 2, 3, 4), (3, 0, 2, 1, 4), (2, 0, 3, 1, 4), (0, 2, 3, 1, 4), (0, 3, 2, 1, 4), (0, 3, 1, 2, 4)
EXERCISE = Exercise(
    answer=fix_packed,
    chapter="06_five_ways",
    section=STEP,
    points=2,
    problems=_problems,
    bug=_stub,
    results=("query", "key", "value"),
    mistakes={
        **deviations(_build, {"project": PROJECTS, "heads": TURNED, "order": TWICE}, pairs=False),
        **deviations(_build, {"blocks": BLOCKS, "heads": HEADS, "order": ORDERS}),
        "taken-apart-along-the-heads": Mistake(
            "Your function unpacks the tensor into three names along the axis of the heads. The axis of "
            "length 3 must come first: if its place in the view changes, the numbers in permute change too.",
            STEP,
            _along("h"),
        ),
        "taken-apart-along-another-axis": Mistake(
            "Your function unpacks the tensor into three names along its first axis, which is not the one "
            "of length 3.",
            STEP,
            _along("d") + _along("0") + _along("1"),
        ),
        "three-not-in-front": Mistake(
            "All numbers are there, but the axis of length 3 is not the first axis of the returned tensor, "
            "so the first result is not the query.",
            STEP,
            tuple(
                lambda x, w, h, axes=axes, sizes=sizes: _all(x, w, h, sizes).permute(axes)
                for axes in FRONT
                for sizes in ("3hd", "h3d")
                if axes[0] < 2 or sizes[axes[0] - 2] != "3"
            ),
        ),
        "view-that-cannot-be": Mistake(
            "view only cuts the numbers as they lie in memory, but here they lie in another order. You can "
            "cut the last axis alone; to move another axis, use transpose or permute.",
            STEP,
            (lambda x, w, h: (x @ w).chunk(3, -1)[0].view(len(x), h, x.shape[1], -1),),
        ),
        "cut-along-the-batch": Mistake(
            "Your function cuts along the first axis, the batch; the columns are the last axis.",
            STEP,
            (lambda x, w, h: _named((x @ w).chunk(3)), lambda x, w, h: _named((x @ w).split(x.shape[-1]))),
        ),
        "rows-of-the-matrix-cut": Mistake(
            "Your function cuts w_qkv along its rows; the blocks of queries, keys and values are columns.",
            STEP,
            (
                lambda x, w, h: [x @ m for m in w.chunk(3)],
                lambda x, w, h: [x @ m for m in _named(w.chunk(3))],
            ),
        ),
        "query-scaled": Mistake(
            "Your function divides the query by a root; here it should only cut the query out. The scores "
            "are divided later.",
            STEP,
            tuple(
                lambda x, w, h, width=width: (lambda q, k, v: (q / width(x, h) ** 0.5, k, v))(
                    *_build()(x, w, h)
                )
                for width in (lambda x, h: x.shape[-1] // h, lambda x, h: x.shape[-1])
            ),
        ),
        "columns-moved-and-read-otherwise": Mistake(
            "Your function puts the columns of w_qkv in another order, and then reads them as if they were "
            "in yet another order.",
            STEP,
            (lambda x, w, h: _moved(x, w, h, "3hd"), lambda x, w, h: _moved(x, w, h, "h3d")),
        ),
        "too-many-parts": Mistake(
            "Your three names get d_model pieces: split(3) makes pieces of 3 columns each. chunk(3) makes 3 "
            "pieces.",
            STEP,
            (lambda x, w, h: _named((x @ w).split(3, -1)), lambda x, w, h: _named(w.split(3, 1))),
        ),
    },
)
