"""Chapter 04: softmax over the visible keys."""

import torch
from torch import Tensor

import mha_lab
from mha_course.exercises import Exercise, Mistake, _hide, deviations
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


STEP = "5 A query that sees no key"
INDEX = (
    "an index in square brackets needs a mask of the scores' own shape; `masked_fill` and `torch.where` "
    "broadcast a smaller one"
)
SAME, MENDED, ZEROED, EMPTIED, TIMES, TIMES_SOME = _hide.THEN


def _put(x, where, low):
    x[where] = low
    return x


PUT = (
    lambda w, m: _put(w, ~m.any(-1), 0),
    lambda w, m: _put(w, w.isnan(), 0),
    lambda w, m: _put(w, ~m, 0),
)


def _put_in(low):
    """Scores set by an index: those that were given, or a copy."""
    return lambda s, m: _put(s, ~m, low), lambda s, m: _put(s.clone(), ~m, low)


def _ways(hide, *then):
    return _hide.Steps(hide, then=then).ways((), ())


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
        **deviations(
            lambda weigh: weigh,
            {
                "weigh": _hide.wrong(
                    _hide.HEADINGS, "empty", "large", "low", "front", hide=_hide.HIDE, then=_hide.THEN
                )
            },
        ),
        "asks-for-the-whole-mask": Mistake(
            "Your function asks whether anything at all is visible. If a single row sees nothing, it still "
            "takes the softmax of -inf alone for this row, which is NaN.",
            STEP,
            tuple(
                lambda s, m, empty=empty: torch.softmax(_hide.filled()(s, m), -1) if m.any() else empty(s)
                for empty in (torch.zeros_like, torch.clone, lambda s: torch.softmax(s, -1))
            ),
        ),
        "nan-in-the-gradient": Mistake(
            "A row that sees nothing becomes NaN. The result no longer has this NaN, but the gradient with "
            "respect to the scores has it: `+` passes NaN on. `masked_fill` passes nothing on to a score "
            "that it filled.",
            "The gradient of an empty row",
            _ways((_hide.added,), MENDED, EMPTIED, ZEROED),
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
            _ways(
                _hide.HIDE,
                lambda w, m: w.masked_fill_(~_hide.some(m), 0),
                lambda w, m: w.masked_fill_(~m, 0),
                lambda w, m: w.masked_fill_(w.isnan(), 0),
            ),
        ),
        "indexed-with-a-smaller-mask": Mistake(
            f"{INDEX[0].upper()}{INDEX[1:]}.",
            STEP,
            _ways(_put_in(-torch.inf), MENDED, EMPTIED, ZEROED, *PUT)
            + _ways(_put_in(-1e9), EMPTIED, TIMES, ZEROED, TIMES_SOME, PUT[0], PUT[2]),
        ),
        "indexed-and-empty-row": Mistake(
            f"In your function a row that sees nothing does not become 0. And: {INDEX}.",
            STEP,
            _ways(_put_in(-torch.inf), SAME, TIMES, TIMES_SOME) + _ways(_put_in(-1e9), SAME, MENDED, PUT[1]),
        ),
        "indexed-after-softmax": Mistake(
            f"Keys are hidden after the softmax, so the visible weights no longer sum to 1. And: {INDEX}.",
            _hide.HEADINGS["late"],
            _ways((SAME,), PUT[2]),
        ),
    },
)
