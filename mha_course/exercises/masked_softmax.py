"""Chapter 04: softmax over the visible keys."""

import torch
from torch import Tensor

import mha_lab
from mha_course.exercises import Exercise, Mistake, _softmax
from mha_course.exercises._results import IsNaN, Many


def masked_softmax(scores, mask):
    """Weights; hidden keys exactly 0, rows with nothing visible all 0."""
    empty = ~mask.any(dim=-1, keepdim=True)
    scores = scores.masked_fill(~mask & ~empty, -torch.inf)
    return torch.softmax(scores, dim=-1).masked_fill(empty, 0.0)


def _problems(rng):
    """A problem that ends in ``True`` tests the gradient, too."""
    scores = torch.tensor([[0.5, 1.5, 2.0], [1.0, -0.5, 0.2]])
    some, empty = torch.tensor([[True, True, False], [False, True, True]]), torch.tensor([[True], [False]])
    large = torch.tensor([[1.0, 2.0, 200.0], [3.0, 1.0, -1.0]])
    last_hidden = torch.tensor([True, True, False])
    yield scores, some
    # Large scores come before empty rows: a cause that names them is shown with them.
    yield large, last_hidden
    yield torch.tensor([[120.0, 121.0, 3.0]]), last_hidden[None]  # large, and visible
    yield torch.tensor([[-1e5, -1e5 - 1, 0.5]]), last_hidden[None]  # as low as the text says
    # Hidden scores that are higher than the visible ones by 15 and by 47: they tell a number that is
    # added to hidden scores from a division after they have taken their share.
    yield torch.tensor([[1.0, 2.0, 17.0], [0.0, 1.0, 48.0]]), last_hidden
    yield scores, some.flip(-1) & empty
    yield torch.tensor([[2.0, -1.0, 0.5]]), torch.tensor([[False, False, False]])
    yield scores, some, True
    yield scores, some.flip(-1) & empty, True
    yield large, last_hidden, True
    # The number of axes in front, and the axes of the mask: x for those of full size, 1 for the others.
    for leading, kept in ((0, "xx"), (1, "1xx"), (1, "xx"), (2, "x1xx"), (2, "x11x"), (2, "x")):
        sizes = rng.primes(2 + leading)
        mask = rng.mask(
            *(size if axis == "x" else 1 for axis, size in zip(kept, sizes[-len(kept) :], strict=True))
        )
        rows = mask.view(-1, sizes[-1]) if len(kept) > 1 else mask
        rows[0], rows[-1] = False, True  # a row that sees nothing, and one that sees everything
        yield 3 * rng.normal(*sizes), mask


def _call(answer, scores, mask, gradient=False):
    """The weights, and where the gradient of the sum of their squares is NaN.

    In place of the latter: ``None`` if the backward pass fails, ``False`` if no gradient reaches the scores.
    """
    if not gradient:
        return answer(scores, mask)
    fine = torch.zeros_like(scores, dtype=torch.bool)
    try:
        weights = answer(leaf := scores.clone().requires_grad_(), mask)
    except RuntimeError as error:
        if "requires grad" not in str(error):
            raise
        return answer(scores, mask), "numpy" not in str(error) and fine  # else in place, which is named
    if not isinstance(weights, Tensor) or not weights.requires_grad:
        return weights, False
    try:
        (gradient,) = torch.autograd.grad(weights.square().sum(), leaf, allow_unused=True)
    except RuntimeError:
        return weights.detach().clone(), None
    return weights.detach(), gradient is not None and gradient.isnan()


def _filled(value=-torch.inf):
    return lambda s, m: s.masked_fill(~m, value)


def _lowered(by):
    """A negative number added to hidden scores."""
    return lambda s, m: s + ~m * by


def _logarithm(least):
    """The logarithm of the mask, made finite by a small number."""
    return lambda s, m: s + (m.float() + least).log()


def _added(s, m):
    return s + torch.zeros(m.shape).masked_fill(~m, -torch.inf)


def _some(m):
    return m.any(-1, keepdim=True)


# What may follow the softmax.
AFTER = (
    lambda w, m: w,
    lambda w, m: w.nan_to_num(),
    lambda w, m: w.masked_fill(~_some(m), 0),
    lambda w, m: w * m,
    lambda w, m: w.masked_fill(~m, 0),
    lambda w, m: w * _some(m),
)
HIDING = _filled(), _added, _filled(-1e9), lambda s, m: s.masked_fill(~m & _some(m), -torch.inf)


def _of(*hiding, after=AFTER, dim=-1):
    """Each way to hide, with each step that may follow; ``dim`` may depend on how many axes there are."""
    axis = dim if callable(dim) else lambda s: dim
    return tuple(
        lambda s, m, hide=hide, then=then: then(torch.softmax(hide(s, m), axis(s)), m)
        for hide in hiding
        for then in after
    )


def _put(s, m, low):
    s[~m] = low
    return s


def _put_rows(w, rows):
    w[rows] = 0
    return w


PUT = (
    lambda w, m: _put_rows(w, ~m.any(-1)),
    lambda w, m: _put_rows(w, w.isnan()),
    lambda w, m: _put_rows(w, ~m),
)


def _indexed(ways):
    """Scores are set by an index, to the first of ``ways``; one of the others follows."""
    low, *ends = ways
    return tuple(
        lambda s, m, start=start, end=end: end(torch.softmax(_put(start(s), m, low), -1), m)
        for start in (lambda s: s, lambda s: s.clone())
        for end in ends
    )


def _exp(finish, hide=lambda e, m: e * m, shift=lambda s: 0, first=lambda s, m: s):
    def answer(s, m):
        s = first(s, m)
        return finish(hide(torch.exp(s - shift(s)), m), m)

    return answer


LOW = -1.0, -10.0, -20.0, -50.0, -99.0, -100.0, -999.0, -1000.0, -1e4


# Ways to divide, with and without care for an empty row, which is 0 / 0.
DIVISIONS = (
    lambda e, m: e / e.sum(-1, keepdim=True),
    lambda e, m: (e / e.sum(-1, keepdim=True)).nan_to_num(),
    lambda e, m: e / e.sum(-1, keepdim=True).clamp(min=1e-9),
    lambda e, m: e / (e.sum(-1, keepdim=True) + 1e-9),
    lambda e, m: (e / e.sum(-1, keepdim=True)).masked_fill(~_some(m), 0),
    lambda e, m: e / e.sum(-1, keepdim=True).masked_fill(e.sum(-1, keepdim=True) == 0, 1),
    lambda e, m: torch.where(e.sum(-1, keepdim=True) > 0, e / e.sum(-1, keepdim=True), 0.0),
)
HIDES = lambda e, m: e * m, lambda e, m: e.masked_fill(~m, 0)


def _first_axis(s):
    return 0 if s.ndim in (0, 1, 3) else 1


STEP, FUTURE, LATE = "5 A query that sees no key", "1 Hide the future", "2 Before or after the softmax?"
INDEX = (
    "an index in square brackets needs a mask of the scores' own shape; `masked_fill` and `torch.where` "
    "broadcast a smaller one"
)
EXERCISE = Exercise(
    answer=masked_softmax,
    chapter="04_masking",
    section=STEP,
    points=2,
    problems=_problems,
    same_as=(mha_lab.masked_softmax,),
    results=(Many("weights"), IsNaN("gradient")),
    call=_call,
    mistakes={
        "nan-for-empty-row": Mistake(
            "In a row that sees nothing, your function takes the softmax of -inf alone, which is NaN.",
            STEP,
            (
                *_of(_filled(), _added, after=AFTER[:1]),
                lambda s, m: torch.softmax(_filled()(s, m), -1) * m,
            ),
        ),
        "asks-for-the-whole-mask": Mistake(
            "Your function asks whether anything at all is visible. If a single row sees nothing, it still "
            "takes the softmax of -inf alone for this row, which is NaN.",
            STEP,
            tuple(
                lambda s, m, empty=empty: torch.softmax(_filled()(s, m), -1) if m.any() else empty(s)
                for empty in (torch.zeros_like, torch.clone, lambda s: torch.softmax(s, -1))
            ),
        ),
        "nan-in-the-gradient": Mistake(
            "A row that sees nothing becomes NaN. The result no longer has this NaN, but the gradient with "
            "respect to the scores has it: `+` passes NaN on. `masked_fill` passes nothing on to a score "
            "that it filled.",
            "The gradient of an empty row",
            _of(_added, after=(AFTER[1], AFTER[2], AFTER[4])),
        ),
        "no-gradient": Mistake(
            "No gradient reaches the scores, so a model cannot learn through your function. PyTorch does not "
            "record steps after `detach` or `.data`, inside `no_grad`, or with NumPy or lists.",
            STEP,
            (lambda s, m: masked_softmax(s.detach(), m),),
        ),
        "overwritten-in-place": Mistake(
            "The result of the softmax is overwritten in place, but the backward pass still needs it: no "
            "gradient can be computed. `masked_fill` and `torch.where` make a new tensor.",
            STEP,
            _of(
                *HIDING,
                after=(
                    lambda w, m: w.masked_fill_(~_some(m), 0),
                    lambda w, m: w.masked_fill_(~m, 0),
                    lambda w, m: w.masked_fill_(w.isnan(), 0),
                ),
            ),
        ),
        "empty-row-not-zeroed": Mistake(
            "Your function does not hide the keys of a row that sees nothing, and does not set that row to "
            "0: it is weighted as if nothing were hidden.",
            STEP,
            _of(HIDING[3], after=AFTER[:2]),
        ),
        "uniform-for-empty-row": Mistake(
            "A large negative number hides nothing in a row in which every key has it: all its keys get the "
            "same weight.",
            STEP,
            _of(
                *map(_filled, (-1e6, -1e9, -1e30, torch.finfo().min)),
                *map(_lowered, (-1e9, -1e20, -1e30)),
                after=AFTER[:1],
            ),
        ),
        "fill-not-low-enough": Mistake(
            "What a hidden score becomes, 0 or a negative number that is put in its place or added to it, is"
            " not low enough: beside lower visible scores, it takes part in the softmax, or in the maximum "
            "that is subtracted. -inf is always low enough.",
            STEP,
            _of(
                *map(_filled, LOW),
                *map(_lowered, (-10.0, -50.0, -1000.0, -1e4, -1e5)),
            )
            + _of(*map(_logarithm, (1e-45, 1e-10, 1e-9)), after=AFTER[:1])
            + tuple(
                _exp(divide, hide, lambda s: s.amax(-1, keepdim=True), lambda s, m: s * m)
                for divide in DIVISIONS
                for hide in HIDES
            )
            + tuple(
                lambda s, m, divide=divide, hide=hide: divide(hide(torch.softmax(s * m, -1), m), m)
                for divide in DIVISIONS
                for hide in HIDES
            ),
        ),
        "mask-inverted": Mistake(
            "Your function hides the keys that may be seen: True means may attend.",
            "The inverted mask",
            (
                *(lambda s, m, right=right: right(s, ~m) for right in _of(*HIDING)),
                *_of(*(lambda s, m, hide=hide: hide(s, ~m) for hide in HIDING[:3])),
                lambda s, m: torch.softmax(s, -1) * ~m,
            ),
        ),
        "masked-after-softmax": Mistake(
            "Keys are hidden after the softmax, so the visible weights no longer sum to 1.",
            LATE,
            (
                lambda s, m: torch.softmax(s, -1) * m,
                lambda s, m: (torch.softmax(s, -1) * m).masked_fill(~_some(m), 0),
            ),
        ),
        "filled-after-softmax": Mistake(
            _softmax.LATE,
            LATE,
            tuple(lambda s, m, fill=fill: fill(torch.softmax(s, -1), m) for fill in _softmax.FILLED),
        ),
        "hidden-scores-take-part": Mistake(
            "Hidden scores take part in the softmax, or in the maximum that is subtracted, before they are "
            "hidden: beside a large hidden score, the visible weights become 0, or NaN (0 / 0).",
            LATE,
            tuple(
                lambda s, m, divide=divide, hide=hide: divide(hide(torch.softmax(s, -1), m), m)
                for divide in DIVISIONS
                for hide in HIDES
            )
            + tuple(
                _exp(divide, hide, lambda s: s.amax(-1, keepdim=True))
                for divide in DIVISIONS
                for hide in HIDES
            ),
        ),
        "exp-overflows": Mistake(
            "Your function takes exp of the scores as they are: above about 88 the result is infinite in "
            "float32. torch.softmax avoids that; give it scores in which the hidden ones are -inf.",
            LATE,
            tuple(_exp(divide, hide) for divide in DIVISIONS for hide in HIDES)
            + tuple(_exp(divide, hide, first=lambda s, m: s * m) for divide in DIVISIONS for hide in HIDES)
            + tuple(
                lambda s, m, divide=divide: divide(torch.exp(_filled()(s, m)), m) for divide in DIVISIONS
            ),
        ),
        "scores-multiplied": Mistake(
            "Hidden scores become 0, not -inf: exp(0) is 1, so a hidden key takes part in the softmax.",
            FUTURE,
            _of(lambda s, m: s * m),
        ),
        "mask-added-as-bool": Mistake(
            "The boolean mask is added to the scores: True counts as 1, so hidden keys take part in the "
            "softmax.",
            "4 Three conventions",
            _of(lambda s, m: s + m),
        ),
        "inverted-mask-added-as-bool": Mistake(
            "The inverted mask, ~mask, is added to the scores: True counts as 1, so hidden keys take part "
            "in the softmax.",
            "4 Three conventions",
            _of(lambda s, m: s + ~m),
        ),
        "bool-subtracted": Mistake(
            "Booleans cannot be subtracted: `~mask` inverts them, and `mask.float()` turns them into "
            "numbers.",
            "4 Three conventions",
            (lambda s, m: 1 - m, lambda s, m: s - m),
        ),
        "zero-times-infinity": Mistake(
            "A visible key gets 0 times infinity, which is NaN, or the number that you replace NaN by: put "
            "-inf in with `masked_fill` or `torch.where`.",
            "4 Three conventions",
            _of(lambda s, m: s + ~m * -torch.inf, after=(AFTER[0], AFTER[1], AFTER[2], AFTER[3])),
        ),
        "large-number-added": Mistake(
            "A large negative number is added to every score of a row that sees nothing. That hardly "
            "changes the differences between them, so the row is weighted as if nothing were hidden.",
            STEP,
            _of(_lowered(-1e6), after=AFTER[:1]),
        ),
        "indexed-with-a-smaller-mask": Mistake(
            f"{INDEX[0].upper()}{INDEX[1:]}.",
            STEP,
            _indexed((-torch.inf, AFTER[1], AFTER[2], AFTER[4], *PUT))
            + _indexed((-1e9, *AFTER[2:], PUT[0], PUT[2])),
        ),
        "indexed-and-empty-row": Mistake(
            f"In your function a row that sees nothing does not become 0. And: {INDEX}.",
            STEP,
            _indexed((-torch.inf, AFTER[0], AFTER[3], AFTER[5]))
            + _indexed((-1e9, AFTER[0], AFTER[1], PUT[1])),
        ),
        "indexed-after-softmax": Mistake(
            f"Keys are hidden after the softmax, so the visible weights no longer sum to 1. And: {INDEX}.",
            LATE,
            (lambda s, m: _put_rows(torch.softmax(s, -1), ~m),),
        ),
        "mask-ignored": Mistake(
            "In your function the mask hides no key.",
            FUTURE,
            (
                *_of(lambda s, m: s, after=(AFTER[0], AFTER[2])),
                lambda s, m: torch.exp(s) / torch.exp(s).sum(-1, keepdim=True),
            ),
        ),
        "softmax-over-queries": Mistake(
            "The softmax runs over the queries, the second to last axis; it should run over the keys.",
            FUTURE,
            _of(*HIDING, dim=-2),
        ),
        "softmax-over-an-axis-from-the-front": Mistake(
            "The softmax runs over an axis counted from the front, or `dim` is left out; the keys are "
            "always the last axis, dim=-1.",
            FUTURE,
            _of(*HIDING, dim=0) + _of(*HIDING, dim=1) + _of(*HIDING, dim=_first_axis),
        ),
        "softmax-over-everything": Mistake(
            "The softmax runs over all scores together; the weights of each row should sum to 1.",
            FUTURE,
            tuple(
                lambda s, m, hide=hide, then=then: then(
                    torch.softmax(hide(s, m).flatten(), 0).view(s.shape), m
                )
                for hide in HIDING
                for then in AFTER
            ),
        ),
        "not-normalised": Mistake(
            "The exponentials are not divided by their sum over the visible keys of the row.",
            FUTURE,
            (lambda s, m: torch.exp(s) * m, lambda s, m: torch.exp(_filled()(s, m))),
        ),
        "plus-infinity": Mistake(
            "A hidden score becomes +inf, not -inf.",
            FUTURE,
            _of(_filled(torch.inf), lambda s, m: s.masked_fill(~m & _some(m), torch.inf)),
        ),
        "arguments-of-masked-fill": Mistake(
            "`masked_fill` takes first the mask, and then the value: `masked_fill(~mask, value)`.",
            FUTURE,
            (lambda s, m: s.masked_fill(-torch.inf, ~m), lambda s, m: s.masked_fill(~m)),
        ),
        "scores-returned": Mistake(
            "Scores are returned, with the hidden ones replaced: the softmax is missing.",
            FUTURE,
            (*HIDING, lambda s, m: s * m, lambda s, m: s.masked_fill(~m, 0)),
        ),
        "visible-rows-emptied": Mistake(
            "A row becomes 0 as soon as one of its keys is hidden; only a row in which all keys are hidden "
            "should be 0.",
            STEP,
            _of(*HIDING, after=(lambda w, m: w * m.all(-1, keepdim=True),)),
        ),
        "full-rows-emptied": Mistake(
            "The rows that see something are set to 0, not those that see nothing: is a `~` missing?",
            STEP,
            (
                *_of(*HIDING, after=(lambda w, m: w.masked_fill(_some(m), 0), lambda w, m: w * ~_some(m))),
                lambda s, m: torch.softmax(s.masked_fill(~m & ~_some(m), -torch.inf), -1).masked_fill(
                    _some(m), 0
                ),
            ),
        ),
        "empty-columns": Mistake(
            "`any` does not run over the keys: use any(dim=-1), which tells which queries see some key.",
            STEP,
            tuple(
                lambda s, m, dim=dim, hide=hide: torch.softmax(
                    s.masked_fill(~m & (m.any(dim, keepdim=True) | hide), -torch.inf), -1
                ).masked_fill(~m.any(dim, keepdim=True), 0)
                for dim in (-2, 0, 1)
                for hide in (False, True)
            ),
        ),
        "axis-dropped": Mistake(
            "A sum, a maximum or `any` over the keys drops their axis, so the result lines up with the "
            "wrong axis: `keepdim=True` keeps it with size 1.",
            STEP,
            (
                lambda s, m: torch.softmax(_filled()(s, m), -1).masked_fill(~m.any(-1), 0),
                lambda s, m: torch.softmax(_filled()(s, m), -1) * m.any(-1),
                lambda s, m: s.masked_fill(~m & m.any(-1), -torch.inf).softmax(-1).masked_fill(~m.any(-1), 0),
                lambda s, m: (
                    s.masked_fill(~(m | ~m.any(-1)), -torch.inf).softmax(-1).masked_fill(~m.any(-1), 0)
                ),
                lambda s, m: torch.exp(s) * m / (torch.exp(s) * m).sum(-1),
                lambda s, m: torch.where(m.any(-1), torch.softmax(_filled()(s, m), -1), 0.0),
            ),
        ),
    },
)
