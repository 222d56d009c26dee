"""How scores and a mask become weights, and the wrong ways: written once for all.

There are three steps: the scores of hidden keys are lowered, the softmax is taken, and rows that see no key
are set to 0. A wrong form has another step in the place of one of these.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from mha_course.exercises import Choice, Form, _softmax, known

Step = Callable[[Tensor, Tensor], Tensor]  # scores, or weights, and the mask of what may be seen


def some(mask: Tensor) -> Tensor:
    """Which queries see a key at all."""
    return mask.any(-1, keepdim=True)


def filled(low: float = -torch.inf) -> Step:
    """A number in the place of each hidden score or weight."""
    return lambda x, mask: x.masked_fill(~mask, low)


def lowered(by: float) -> Step:
    """A negative number added to hidden scores."""
    return lambda scores, mask: scores + ~mask * by


def added(scores: Tensor, mask: Tensor) -> Tensor:
    """A mask of 0 and minus infinity added."""
    return scores + torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)


def where_some_are_seen(scores: Tensor, mask: Tensor) -> Tensor:
    """Minus infinity, but not in rows that see nothing."""
    return scores.masked_fill(~mask & some(mask), -torch.inf)


def _same(x: Tensor, mask: Tensor) -> Tensor:
    return x


def _mended(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.nan_to_num()


def _emptied(weights: Tensor, mask: Tensor) -> Tensor:
    return weights.masked_fill(~some(mask), 0)


def _times(x: Tensor, mask: Tensor) -> Tensor:
    return x * mask


# What may come before the softmax and after it; the first of them are the forms that most answers have.
HIDE: tuple[Step, ...] = filled(), filled(-1e9), where_some_are_seen, added
THEN: tuple[Step, ...] = (
    _same,
    _mended,
    filled(0.0),
    _emptied,
    _times,
    lambda weights, mask: weights * some(mask),
)
LOW = -1.0, -10.0, -20.0, -50.0, -99.0, -100.0, -999.0, -1000.0, -1e4


class Steps(NamedTuple):
    """The three steps, each in all its forms; ``None``: as an exercise has them. ``also``: in other steps."""

    hide: tuple[Step, ...] | None = None
    weigh: tuple[_softmax.Weigh, ...] = (_softmax.right,)
    then: tuple[Step, ...] | None = None
    also: tuple[Step, ...] = ()

    def ways(self, hide: tuple[Step, ...], then: tuple[Step, ...]) -> tuple[Step, ...]:
        """Each form of a step with each form of the others. Without a mask, they take the softmax alone."""
        steps = product(
            hide if self.hide is None else self.hide,
            self.weigh,
            then if self.then is None else self.then,
        )
        return tuple(_way(*some) for some in steps) + tuple(_if_masked(way) for way in self.also)


def _way(hide: Step, weigh: _softmax.Weigh, then: Step) -> Step:
    def masked(scores: Tensor, mask: Tensor | None) -> Tensor:
        return weigh(scores) if mask is None else then(weigh(hide(scores, mask)), mask)

    return masked


def _if_masked(way: Step) -> Step:
    return lambda scores, mask: _softmax.right(scores) if mask is None else way(scores, mask)


def right(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Hidden keys and rows that see nothing get 0."""
    return _way(where_some_are_seen, _softmax.right, _emptied)(scores, mask)


# Ways to divide by the sum of a row, with and without care for a row that sees nothing, which is 0 / 0.
DIVIDE: tuple[Step, ...] = (
    lambda e, mask: e / e.sum(-1, keepdim=True),
    lambda e, mask: (e / e.sum(-1, keepdim=True)).nan_to_num(),
    lambda e, mask: e / e.sum(-1, keepdim=True).clamp(min=1e-9),
    lambda e, mask: e / (e.sum(-1, keepdim=True) + 1e-9),
    lambda e, mask: (e / e.sum(-1, keepdim=True)).masked_fill(~some(mask), 0),
    lambda e, mask: e / e.sum(-1, keepdim=True).masked_fill(e.sum(-1, keepdim=True) == 0, 1),
    lambda e, mask: torch.where(e.sum(-1, keepdim=True) > 0, e / e.sum(-1, keepdim=True), 0.0),
)
HIDDEN: tuple[Step, ...] = _times, filled(0.0)


def _divided(weigh: _softmax.Weigh, first: Step = _same, hide: tuple[Step, ...] = HIDDEN) -> tuple[Step, ...]:
    """What has been raised is hidden, and divided by its sum."""

    def way(hide: Step, divide: Step) -> Step:
        return lambda scores, mask: divide(hide(weigh(first(scores, mask)), mask), mask)

    return tuple(way(*steps) for steps in product(hide, DIVIDE))


def _inverted(step: Step) -> Step:
    return lambda x, mask: step(x, ~mask)


def _logarithm(least: float) -> Step:
    """The logarithm of the mask, made finite by a small number."""
    return lambda scores, mask: scores + (mask.float() + least).log()


def _infinite(scores: Tensor, mask: Tensor) -> Tensor:
    return scores + ~mask * -torch.inf


def _rows(weights: Tensor, mask: Tensor) -> Tensor:
    """Rows that see something are set to 0."""
    return weights.masked_fill(some(mask), 0)


def _axis_dropped(along: Callable[[Tensor], Tensor]) -> tuple[Step, ...]:
    """``any`` drops the axis of the keys."""
    return (
        lambda s, m: torch.softmax(filled()(s, m), -1).masked_fill(~along(m), 0),
        lambda s, m: torch.softmax(filled()(s, m), -1) * along(m),
        lambda s, m: s.masked_fill(~m & along(m), -torch.inf).softmax(-1).masked_fill(~along(m), 0),
        lambda s, m: s.masked_fill(~(m | ~along(m)), -torch.inf).softmax(-1).masked_fill(~along(m), 0),
        lambda s, m: torch.where(along(m), torch.softmax(filled()(s, m), -1), 0.0),
    )


FORMS: dict[str, Form] = {
    "nan-for-empty-row": Form(
        "empty",
        "In a row that sees nothing, your function takes the softmax of -inf alone, which is NaN.",
        Steps((filled(), added), then=(_same, _times)),
        about="empty",
    ),
    "empty-row-not-zeroed": Form(
        "empty",
        "Your function does not hide the keys of a row that sees nothing, and does not set that row to 0: "
        "it is weighted as if nothing were hidden.",
        Steps((where_some_are_seen,), then=(_same, _mended)),
        about="empty",
    ),
    "uniform-for-empty-row": Form(
        "empty",
        "A large negative number hides nothing in a row in which every key has it: all its keys get the same "
        "weight.",
        Steps(
            (
                *map(filled, (-1e6, -1e9, -1e30, torch.finfo().min)),
                *map(lowered, (-1e9, -1e20, -1e30)),
            ),
            then=(_same,),
        ),
        about="empty",
    ),
    "fill-not-low-enough": Form(
        "low",
        "What a hidden score becomes, 0 or a negative number that is put in its place or added to it, is "
        "not low enough: beside lower visible scores, it takes part in the softmax, or in the maximum that "
        "is subtracted. -inf is always low enough.",
        Steps(
            (*map(filled, LOW), *map(lowered, (-10.0, -50.0, -1000.0, -1e4, -1e5))),
            also=(
                *Steps(tuple(map(_logarithm, (1e-45, 1e-10, 1e-9))), then=(_same,)).ways((), ()),
                *_divided(_softmax.shifted, _times),
                *_divided(_softmax.right, _times),
            ),
        ),
        about="empty",
    ),
    "mask-inverted": Form(
        "",
        "Your function hides the keys that may be seen: True means may attend.",
        Steps(
            tuple(map(_inverted, (filled(), filled(-1e9), added))),
            then=THEN[:4],
            also=(
                *map(_inverted, Steps().ways(HIDE, THEN)),
                lambda scores, mask: torch.softmax(scores, -1) * ~mask,
            ),
        ),
        about="inverted",
    ),
    "masked-after-softmax": Form(
        "",
        "Keys are hidden after the softmax, so the visible weights no longer sum to 1.",
        Steps((_same,), then=(_times,)),
        about="late",
    ),
    "filled-after-softmax": Form(
        "",
        "In your function, hidden keys get minus infinity or a large negative number in the place of a "
        "weight, after the softmax. Put it into the scores, before the softmax.",
        Steps((_same,), then=tuple(map(filled, (-torch.inf, -1e9, -1e4, -1e20)))),
        about="late",
    ),
    "hidden-scores-take-part": Form(
        "large",
        "Hidden scores take part in the softmax, or in the maximum that is subtracted, before they are "
        "hidden: beside a large hidden score, the visible weights become 0, or NaN (0 / 0).",
        Steps((), also=(*_divided(_softmax.right), *_divided(_softmax.shifted))),
        about="late",
    ),
    "exp-overflows": Form(
        "large",
        "Your function takes exp of the scores as they are: above about 88 the result is infinite in "
        "float32. torch.softmax avoids that; give it scores in which the hidden ones are -inf.",
        Steps(
            (),
            also=(
                *_divided(torch.exp),
                *_divided(torch.exp, _times),
                *_divided(torch.exp, filled(), (_same,)),
            ),
        ),
        about="late",
    ),
    "hidden-scores-zero": Form(
        "",
        "Hidden scores become 0, not -inf: exp(0) is 1, so a hidden key takes part in the softmax.",
        Steps((_times,)),
    ),
    "hidden-scores-large": Form(
        "",
        "A hidden score becomes large and positive, or +inf. It should be -inf.",
        Steps(
            (filled(torch.inf), lambda scores, mask: scores.masked_fill(~mask & some(mask), torch.inf)),
            also=(lambda scores, mask: torch.softmax(filled(1e9)(scores, mask), -1),),
        ),
    ),
    "mask-added-as-bool": Form(
        "",
        "The boolean mask is added to the scores: True counts as 1, so hidden keys take part in the softmax.",
        Steps((lambda scores, mask: scores + mask,)),
        about="conventions",
    ),
    "inverted-mask-added-as-bool": Form(
        "",
        "The inverted mask, ~mask, is added to the scores: True counts as 1, so hidden keys take part in the "
        "softmax.",
        Steps((lambda scores, mask: scores + ~mask,)),
        about="conventions",
    ),
    "bool-subtracted": Form(
        "",
        "Booleans cannot be subtracted: `~mask` inverts them, and `mask.float()` turns them into numbers.",
        Steps((lambda scores, mask: 1 - mask, lambda scores, mask: scores - mask), then=(_same,)),
        about="conventions",
    ),
    "zero-times-infinity": Form(
        "",
        "A visible key gets 0 times infinity, which is NaN, or the number that you replace NaN by: put -inf"
        " in with `masked_fill` or `torch.where`.",
        Steps((_infinite,), then=(_same, _mended, _emptied, _times)),
        about="conventions",
    ),
    "large-number-added": Form(
        "empty",
        "A large negative number is added to every score of a row that sees nothing. That hardly changes the "
        "differences between them, so the row is weighted as if nothing were hidden.",
        Steps((lowered(-1e6),), then=(_same,)),
        about="empty",
    ),
    "mask-ignored": Form(
        "",
        "In your function the mask hides no key.",
        Steps((_same,), then=(_same, _emptied)),
    ),
    "arguments-of-masked-fill": Form(
        "",
        "`masked_fill` takes first the mask, and then the value: `masked_fill(~mask, value)`.",
        Steps(
            (lambda s, m: s.masked_fill(-torch.inf, ~m), lambda s, m: s.masked_fill(~m)),
            then=(_same,),
        ),
    ),
    "no-softmax": Form(
        "",
        "Your function uses the scores as weights, with the hidden ones replaced: there is no softmax.",
        Steps((*HIDE, _times), (lambda scores: scores,)),
    ),
    "not-divided": Form(
        "",
        "The exponentials are not divided by their sum over the visible keys of the row.",
        Steps(
            weigh=(torch.exp, _softmax.shifted),
            also=(lambda scores, mask: torch.exp(scores) * mask,),
        ),
    ),
    "visible-rows-emptied": Form(
        "empty",
        "A row becomes 0 as soon as one of its keys is hidden; only a row in which all keys are hidden "
        "should be 0.",
        Steps(then=(lambda weights, mask: weights * mask.all(-1, keepdim=True),)),
        about="empty",
    ),
    "full-rows-emptied": Form(
        "empty",
        "The rows that see something are set to 0, not those that see nothing: is a `~` missing?",
        Steps(
            (*HIDE, lambda scores, mask: scores.masked_fill(~mask & ~some(mask), -torch.inf)),
            then=(_rows, lambda weights, mask: weights * ~some(mask)),
        ),
        about="empty",
    ),
    "empty-columns": Form(
        "empty",
        "`any` does not run over the keys: use any(dim=-1), which tells which queries see some key.",
        Steps(
            (),
            also=tuple(
                lambda s, m, dim=dim, hide=hide: torch.softmax(
                    s.masked_fill(~m & (m.any(dim, keepdim=True) | hide), -torch.inf), -1
                ).masked_fill(~m.any(dim, keepdim=True), 0)
                for dim in (-2, 0, 1)
                for hide in (False, True)
            ),
        ),
        about="empty",
    ),
    "axis-dropped": Form(
        "empty",
        "A sum, a maximum or `any` over the keys drops their axis, so the result lines up with the wrong "
        "axis: `keepdim=True` keeps it with size 1.",
        Steps(
            (),
            also=(
                *_axis_dropped(lambda mask: mask.any(-1)),
                lambda s, m: torch.exp(s) * m / (torch.exp(s) * m).sum(-1),
            ),
        ),
        about="empty",
    ),
}


HEADINGS = {  # of chapter 04, which explain what a form is about
    "": "1 Hide the future",
    "empty": "5 A query that sees no key",
    "late": "2 Before or after the softmax?",
    "conventions": "4 Three conventions",
    "inverted": "The inverted mask",
}
CHAPTER_04 = {  # the same, for exercises of other chapters
    "empty": "chapter 04, step 5",
    "late": "chapter 04, step 2",
    "conventions": "chapter 04, step 4",
    "inverted": "chapter 04, step 4",
}


def wrong(
    section: str | Mapping[str, str],
    *there: str,
    hide: tuple[Step, ...] = HIDE[:2],
    then: tuple[Step, ...] = THEN[:3],
    but: Container[str] = (),
    see: Mapping[str, str] | None = None,
) -> dict[str, Choice]:
    """The wrong ways from scores and a mask to weights, as one knob of ``deviations``.

    ``there``: ``empty``, if rows may see nothing; ``large``, if hidden scores may be large; ``low``, if
    visible scores may be as low as what is put in for hidden ones; and what ``_softmax.wrong`` asks for.
    ``hide`` and ``then``: the forms of a right step in which a wrong one beside it is tried.
    """

    found = {
        name: (says, where, steps.ways(hide, then))
        for name, (says, where, steps) in known(FORMS, section, there, see=see).items()
    }
    for name, (says, where, forms) in _softmax.wrong(section, *there).items():
        found.setdefault(name, (says, where, _each(forms, hide, then[:4])))
    return {name: choice for name, choice in found.items() if name not in but}


def _each(
    forms: Sequence[_softmax.Weigh] | Mapping[str, Sequence[_softmax.Weigh]],
    hide: tuple[Step, ...],
    then: tuple[Step, ...],
) -> tuple[Step, ...] | dict[str, tuple[Step, ...]]:
    """Each of these softmaxes between the other two steps, or those of each cause."""
    if isinstance(forms, Mapping):
        return {cause: _each(some, hide, then) for cause, some in forms.items()}
    return Steps(weigh=tuple(forms)).ways(hide, then)
