"""Chapter 07: the layer's output without one of its heads."""

import math

import numpy as np
import torch

from mha_course.exercises import Exercise, Mistake, _heads, deviations
from mha_course.exercises._results import as_array


def ablate_head(heads, w_o, head):
    """``(batch, num_heads, n, d_v)`` and ``(num_heads * d_v, d_model)`` to ``(batch, n, d_model)``."""
    kept = torch.arange(heads.shape[1]) != head
    return (heads * kept[:, None, None]).transpose(1, 2).flatten(-2) @ w_o


def _problems(rng):
    """The last are as wide as in a real layer: a multiple of the number of heads. ``n`` and ``d_v`` are not
    1: a merge would then be a view, and writing to it would change ``heads``."""
    yield (
        torch.tensor([[[[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]], [[4.0, -3.0], [2.0, 5.0], [-2.0, 1.0]]]]),
        torch.tensor([[2.0, 1.0, -1.0], [-1.0, 4.0, 3.0], [3.0, 2.0, 6.0], [1.0, -5.0, 2.0]]),
        1,
    )
    yield (
        torch.tensor([[[[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]], [[4.0, -5.0, 7.0], [6.0, 1.0, -2.0]]]]),
        torch.tensor([[1.0, 3.0], [2.0, 5.0], [-3.0, 2.0], [2.0, -1.0], [4.0, 10.0], [-2.0, 6.0]]),
        0,
    )
    yield (
        torch.tensor([[[[1.0, 2.0], [5.0, 3.0]], [[4.0, -3.0], [2.0, 6.0]], [[-2.0, 5.0], [1.0, -4.0]]]]),
        torch.tensor(
            [
                [2.0, 1.0, 3.0],
                [-1.0, 4.0, 2.0],
                [3.0, 2.0, -2.0],
                [1.0, -5.0, 4.0],
                [6.0, 3.0, 1.0],
                [-4.0, 7.0, 5.0],
            ]
        ),
        1,
    )
    for which in (0, 1, 2):
        batch, n, *widths = rng.primes(4)
        num_heads = 4 + 2 * rng.below(2)
        d_v, share = sorted(widths)
        head = (0, num_heads - 1, 1 + rng.below(num_heads - 2))[which]
        yield rng.normal(batch, num_heads, n, d_v), rng.normal(num_heads * d_v, num_heads * share), head
    # More samples than heads, and a head that is no index of a token or a column: an index of a wrong axis is
    # out of range here, on every draw.
    yield rng.normal(5, 3, 2, 2), rng.normal(6, 9), 2


def _put(value, *where):
    """``x[where] = value`` on a copy; a function in ``where`` is called with ``head``."""

    def removed(x, w, head):
        x = x.clone()
        x[tuple(place(head) if callable(place) else place for place in where)] = value(x, head)
        return x, w

    return removed


ALL = slice(None)
_zero = _put(lambda x, h: 0, ALL, lambda h: h)


def _kept(condition):
    """Keeps the heads that ``condition`` chooses by their numbers, ``head`` and how many there are."""

    def removed(x, w, head):
        h = torch.arange(x.shape[1])
        return x * condition(h, head, len(h))[:, None, None], w

    return removed


def _rows(chosen):
    """Sets rows or columns of ``w_o`` to 0, and no head."""

    def removed(x, w, head):
        w = w.clone()
        w[chosen(x, w, head)] = 0
        return x, w

    return removed


def _own(x, w, head):
    return w.unflatten(0, (x.shape[1], -1))


def _mix(x):
    return _heads.split(_heads.bare_merge(x), x.shape[1])


def _remove_then_mix(remove, x, w, head):
    x, w = remove(x, w, head)
    return _mix(x), w


def _build(
    remove=_zero,
    mixed=lambda remove, x, w, head: remove(x, w, head),
    rows=_own,
    gather=lambda written, head: written.sum(1),
):
    def answer(x, w, head):
        kept, cut = mixed(remove, x, w, head)
        return gather(kept @ rows(kept, cut, head), head)

    return answer


def _others(x, head):
    return torch.cat([x[:, :head], x[:, head + 1 :]], dim=1)


def _but(w, start, length):
    return torch.cat([w[:start], w[start + length :]])


def _slices(x, length, head):
    return slice(head * length, (head + 1) * length)


def _whole(x, w):
    return _heads.merge(x) @ w


STEP = "7 Silence a head"
REMOVED = {
    "nothing-removed": (
        "Your function leaves nothing out: this head writes too.",
        (lambda x, w, h: (x, w),),
    ),
    "only-this-head": (
        "Your function keeps this head and leaves out the others; it should be the other way round.",
        (_kept(lambda h, head, n: h == head),),
    ),
    "token-removed": (
        "You leave out a token, in all heads: axis 1 of heads counts the heads, axis 2 the tokens.",
        (
            _put(lambda x, h: 0, ALL, ALL, lambda h: h),
            _put(lambda x, h: 0, ..., lambda h: h, ALL),
        ),
    ),
    "sample-removed": (
        "You leave out a sample of the batch, with all its heads: axis 0 of heads counts the samples, axis "
        "1 the heads.",
        (_put(lambda x, h: 0, lambda h: h),),
    ),
    "column-removed": (
        "You leave out one column in every head: axis 1 of heads counts the heads, the last one the columns.",
        (_put(lambda x, h: 0, ..., lambda h: h),),
    ),
    "heads-behind-removed-too": (
        "In your function the heads after this one are missing too. Does a loop end at this head?",
        (_kept(lambda h, head, n: h < head),),
    ),
    "heads-before-removed-too": (
        "In your function the heads before this one are missing too.",
        (_kept(lambda h, head, n: h > head),),
    ),
    "head-before-removed": (
        "Your function leaves out the head with index head - 1: heads are counted from 0, as indices are.",
        (_put(lambda x, h: 0, ALL, lambda h: h - 1),),
    ),
    "head-behind-removed": (
        "Your function leaves out the head with index head + 1: heads are counted from 0, as indices are.",
        (_put(lambda x, h: 0, ALL, lambda h: h + 1),),
    ),
    "first-head-removed": (
        "Your function leaves out head 0, whatever `head` is.",
        (_kept(lambda h, head, n: h != 0),),
    ),
    "last-head-removed": (
        "Your function leaves out the last head, whatever `head` is.",
        (_kept(lambda h, head, n: h != n - 1),),
    ),
    "one-other-head-only": (
        "Your output contains only one of the other heads. Does a loop return in its first iteration, or "
        "does each iteration overwrite the one before?",
        (
            _kept(lambda h, head, n: h == int(head == 0)),
            _kept(lambda h, head, n: h == n - 1 - int(head == n - 1)),
        ),
    ),
    "replaced-by-average": (
        "Your function puts an average in place of the head: the head should contribute nothing.",
        (
            _put(lambda x, h: x[:, h].mean(1, keepdim=True), ALL, lambda h: h),
            _put(lambda x, h: x[:, h].mean((0, 1)), ALL, lambda h: h),
            _put(lambda x, h: x.mean(1), ALL, lambda h: h),
            _put(lambda x, h: _others(x, h).mean(1), ALL, lambda h: h),
            _put(lambda x, h: x.mean(), ALL, lambda h: h),
            _put(lambda x, h: x[:, h].mean(), ALL, lambda h: h),
        ),
    ),
    "rows-from-head-on": (
        "The rows of w_o that you leave out begin at row `head`; those of this head begin at head * d_v.",
        (_rows(lambda x, w, h: slice(h, h + x.shape[3])),),
    ),
    "one-row-removed": (
        "You leave out one row of w_o; a head has d_v of them.",
        (_rows(lambda x, w, h: h), _rows(lambda x, w, h: h * x.shape[3])),
    ),
    "rows-of-all-heads": (
        "You leave out every num_heads-th row of w_o, some from each head: a head has d_v neighbouring rows.",
        (_rows(lambda x, w, h: slice(h, None, x.shape[1])),),
    ),
    "rows-of-another-width": (
        "The rows of w_o that you leave out are a slice whose size is not d_v, the last axis of heads.",
        (
            _rows(lambda x, w, h: _slices(x, w.shape[1] // x.shape[1], h)),
            _rows(lambda x, w, h: _slices(x, x.shape[2], h)),
            _rows(lambda x, w, h: _slices(x, x.shape[1], h)),
        ),
    ),
    "columns-of-w_o": (
        "You set columns of w_o to 0, and with them columns of the output, to which all heads write. In w_o "
        "a head owns rows.",
        (
            _rows(lambda x, w, h: (ALL, _slices(x, x.shape[3], h))),
            _rows(lambda x, w, h: (ALL, _slices(x, w.shape[1] // x.shape[1], h))),
            _rows(lambda x, w, h: (ALL, slice(h, h + x.shape[3]))),
            _rows(lambda x, w, h: (ALL, slice(h, None, x.shape[1]))),
            _rows(lambda x, w, h: (ALL, h)),
        ),
    ),
}
MIXED = {
    "merge-without-transpose": (
        "Your heads are merged without swapping tokens and heads first, so the numbers of several tokens "
        "are in one row (chapter 03, step 4).",
        (_remove_then_mix, lambda remove, x, w, h: remove(_mix(x), w, h)),
    ),
}
ROWS = {
    "heads-take-turns": (
        "Your function gives the rows of w_o to the heads one by one. The first d_v rows belong to head 0, "
        "the next d_v to head 1, and so on.",
        (lambda x, w, head: w.unflatten(0, (-1, x.shape[1])).transpose(0, 1),),
    ),
    "overlapping-slices": (
        "In your function head h is multiplied by the rows h to h + d_v of w_o, so heads share rows; its "
        "own rows begin at h * d_v.",
        (lambda x, w, head: torch.stack([w[h : h + x.shape[3]] for h in range(x.shape[1])]),),
    ),
    "first-rows-for-all": (
        "In your function all heads are multiplied by the first d_v rows of w_o; each head has its own rows.",
        (lambda x, w, head: w[: x.shape[3]],),
    ),
    "rows-of-this-head-for-all": (
        "In your function the other heads are multiplied by the rows of w_o that belong to this head. Does "
        "the loop use `head` instead of its own index?",
        (lambda x, w, head: _own(x, w, head)[head],),
    ),
}
GATHERED = {
    "heads-averaged": (
        "Your function divides the sum by the number of heads, or by that of the other heads; the output is "
        "the sum itself.",
        (lambda written, h: written.mean(1), lambda written, h: written.sum(1) / (written.shape[1] - 1)),
    ),
    "rescaled": (
        "Your function compensates for the missing head: it multiplies what the others write by num_heads / "
        "(num_heads - 1).",
        (lambda written, h: written.sum(1) * written.shape[1] / (written.shape[1] - 1),),
    ),
    "not-summed-over-heads": (
        "Your function returns one contribution for each head; the output is their sum.",
        (lambda written, h: written, lambda written, h: written.transpose(0, 1)),
    ),
}
KNOBS = {
    knob: {name: (says, STEP, pieces) for name, (says, pieces) in choices.items()}
    for knob, choices in {"remove": REMOVED, "mixed": MIXED, "rows": ROWS, "gather": GATHERED}.items()
}


def _explains(problems, results):
    """How often each head counts in the outputs, if they are such a sum."""
    told = None
    for (x, w, head), result in zip(problems, results, strict=True):
        array = as_array(result)
        written = (x @ _own(x, w, head)).double().numpy()  # (batch, num_heads, n, d_model)
        if array is None or array.shape != written[:, 0].shape or not np.isfinite(array).all():
            return None
        columns, target = written.swapaxes(0, 1).reshape(len(written[0]), -1).T, array.astype(float).ravel()
        counts = np.linalg.lstsq(columns, target, rcond=None)[0]
        if not np.allclose(columns @ counts, target, atol=1e-3, rtol=1e-3):
            return None
        wanted = (np.arange(len(counts)) != head).astype(float)
        wrong = np.flatnonzero(abs(counts - wanted) > 1e-2)
        if told is None and len(wrong):
            i = wrong[0]
            told = (
                f"For {len(counts)} heads and head = {head}, what head {i} writes counts "
                f"{round(counts[i], 3) + 0.0:.3g} times in your output; it should count "
                f"{'once' if wanted[i] else 'not at all'}."
            )
    return told and ("heads-count-otherwise", told)


FIRST = {name: (says, STEP, pieces[:1]) for name, (says, pieces) in REMOVED.items()}
ALONE = {  # also with the head dropped, and its rows: then nothing else can be left out in its place
    name: (
        says,
        STEP,
        (*pieces, lambda remove, x, w, h: (_mix(_others(x, h)), _but(w, h * x.shape[3], x.shape[3]))),
    )
    for name, (says, pieces) in MIXED.items()
}
MISTAKES = {
    **deviations(_build, KNOBS | {"remove": FIRST}),  # two at once in their most usual form only
    **deviations(_build, KNOBS | {"mixed": ALONE}, pairs=False),
    "other-heads-not-summed": Mistake(
        "Your function returns one contribution for each of the other heads; the output is their sum.",
        STEP,
        (_build(gather=_others), _build(gather=lambda written, h: _others(written, h).transpose(0, 1))),
    ),
    "minus-infinity": Mistake(
        "Your function replaces the head by -inf. -inf removes a score before a softmax; 0 removes a term "
        "from a sum.",
        STEP,
        (_build(_put(lambda x, h: -math.inf, ALL, lambda h: h)),),
    ),
    "sample-dropped": Mistake(
        "You drop something from axis 0 of heads, which counts the samples; axis 1 counts the heads.",
        STEP,
        (lambda x, w, h: _whole(_but(x, h, 1), w),),
    ),
    "loop-ends-at-this-head": Mistake(
        "Your loop adds only the heads before this one; the heads after it are missing.",
        STEP,
        (lambda x, w, h: sum(x[:, i] @ _own(x, w, h)[i] for i in range(h)),),
    ),
    "rows-of-others-too": Mistake(
        "Besides this head you leave out rows or columns of w_o that the other heads need.",
        STEP,
        tuple(
            _build(lambda x, w, h, cut=cut: (_zero(x, w, h)[0], cut(x, w, h)[1]))
            for name in ("rows-from-head-on", "rows-of-all-heads", "columns-of-w_o")
            for cut in REMOVED[name][1]
        ),
    ),
    "mask-on-another-axis": Mistake(
        "Your mask has one number for each head, but does not line up with the axis of the heads: for the "
        "second axis of four, it needs two `None` after it.",
        STEP,
        tuple(
            lambda x, w, h, place=place: _whole(x * (torch.arange(x.shape[1]) != h)[place], w)
            for place in (ALL, (ALL, None), (ALL, None, None, None))
        ),
    ),
    "this-head-for-all": Mistake(
        "In your function this head is multiplied by the rows of w_o that belong to the others. Does the "
        "loop use `head` instead of its own index?",
        STEP,
        (lambda x, w, h: x[:, h] @ (_own(x, w, h).sum(0) - _own(x, w, h)[h]),),
    ),
    "other-rows": Mistake(
        "You leave out the right head, but the wrong rows of w_o, so some heads are multiplied by the rows "
        "of another head.",
        STEP,
        tuple(
            lambda x, w, h, start=start: _heads.merge(_others(x, h)) @ _but(w, start(x, h), x.shape[3])
            for start in (lambda x, h: (x.shape[1] - 1) * x.shape[3], lambda x, h: 0, lambda x, h: h)
        ),
    ),
    "rows-of-w_o-left": Mistake(
        "You leave out the head, but w_o keeps all its rows: it has d_v more rows than the merged heads "
        "have columns.",
        STEP,
        (lambda x, w, h: _heads.merge(_others(x, h)) @ w,),
    ),
    "columns-of-heads-left": Mistake(
        "You leave out rows of w_o but keep all heads, so the two no longer fit: leave the head out as well.",
        STEP,
        (lambda x, w, h: _heads.merge(x) @ _but(w, h * x.shape[3], x.shape[3]),),
    ),
    "other-rows-subtracted": Mistake(
        "From the whole output you subtract this head times rows of w_o that are not its own.",
        STEP,
        (
            lambda x, w, h: _whole(x, w) - x[:, h] @ w[h :: x.shape[1]],
            lambda x, w, h: _whole(x, w) - x[:, h] @ w[h : h + x.shape[3]],
            lambda x, w, h: _whole(x, w) - x[:, h] @ w[: x.shape[3]],
        ),
    ),
    "share-of-the-whole": Mistake(
        "Your function returns a fixed part of the whole output, but the heads do not all write the same "
        "amount.",
        STEP,
        (
            lambda x, w, h: _whole(x, w) / 2,
            lambda x, w, h: _whole(x, w) * (x.shape[1] - 1) / x.shape[1],
        ),
    ),
    "no-output-projection": Mistake(
        "Your function does not use w_o: the output is the result of the projection.",
        STEP,
        tuple(
            lambda x, w, h, merge=merge, drop=drop: merge(drop(x, w, h)[0])
            for merge in (_heads.merge, _heads.bare_merge, lambda x: x, lambda x: x.sum(1))
            for drop in (_zero, lambda x, w, h: (_others(x, h), w))
        ),
    ),
    "projection-transposed": Mistake(
        "Your function multiplies by the transpose of w_o, as nn.Linear does with its weight.",
        STEP,
        tuple(
            lambda x, w, h, merge=merge: merge(_zero(x, w, h)[0]) @ w.mT
            for merge in (_heads.merge, _heads.bare_merge)
        ),
    ),
    "all-rows-of-w_o": Mistake(
        "Your function multiplies heads of d_v columns by all num_heads * d_v rows of w_o: merge the heads "
        "first, or give each its own rows. (If your code slices `w_o[:, ...]`, it cuts columns, and keeps "
        "all rows.)",
        STEP,
        (
            lambda x, w, h: _zero(x, w, h)[0] @ w,
            lambda x, w, h: _zero(x, w, h)[0].transpose(1, 2) @ w,
            lambda x, w, h: _others(x, h) @ w,
            lambda x, w, h: _zero(x, w, h)[0].sum(1) @ w,
            *(
                lambda x, w, h, one=one, cut=cut: x[:, one(h)] @ cut(x, w, one(h))
                for one in (lambda h: h, lambda h: int(h == 0))
                for cut in (lambda x, w, i: w, lambda x, w, i: w[:, _slices(x, x.shape[3], i)])
            ),
        ),
    ),
    "batch-taken-for-heads": Mistake(
        "Your function uses sample i of the batch, `heads[i]`, as head i: the second axis counts the heads.",
        STEP,
        tuple(
            lambda x, w, h, axis=axis: sum(
                x[i] @ w[_slices(x, x.shape[3], i)] for i in range(x.shape[axis]) if i != h
            )
            for axis in (0, 1)
        ),
    ),
}


EXERCISE = Exercise(
    answer=ablate_head,
    chapter="07_why_more_heads",
    section=STEP,
    points=1,
    problems=_problems,
    explains=_explains,
    mistakes=MISTAKES,
)
