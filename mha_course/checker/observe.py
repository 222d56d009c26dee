"""Observations about a result, one sentence each. Each sentence is computed from the result itself."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np

from mha_course.exercises._results import (
    TOLERANCE,
    IsNaN,
    IsThere,
    Many,
    apart,
    as_array,
    close,
    kind,
    parts,
    same,
    shape,
)


def seen(expected: Any, got: Any, labels: tuple[str, ...] = ()) -> str:
    """How ``got`` differs from ``expected``, if it can be said simply; else an empty string."""
    pairs = parts(expected, got)
    if pairs is None or got is None:
        return f"Your function returns {kind(got)}; {_wanted(expected)} expected."
    if len(pairs) == 1 and not isinstance(expected, tuple):
        return _sentence("result", *pairs[0])
    names = labels or tuple(f"result {i}" for i in range(len(pairs)))
    wrong = [i for i, (one, other) in enumerate(pairs) if not same(one, other)]
    # The report names a wrong shape first, then wrong weights, because other results are computed from these.
    wrong.sort(key=lambda i: (shape(pairs[i][0]) == shape(pairs[i][1]), not _are_weights(pairs[i][0])))
    right = [names[i] for i in range(len(pairs)) if i not in wrong]
    sentences = [(_nan if isinstance(names[i], IsNaN) else _sentence)(names[i], *pairs[i]) for i in wrong]
    found = next(filter(None, sentences), "")
    if right and wrong:
        others = [names[i] for i in sorted(wrong)]
        return f"Your {_are(right, 'right')}; your {_are(others, 'not')}. {found}".strip()
    return found


def _nan(name: str, expected: Any, got: Any) -> str:
    if got is False:
        return f"There is no {name}."
    one, other = as_array(expected), as_array(got)
    if one is None or other is None or one.shape != other.shape or one.any():
        return _sentence(name, expected, got)
    return f"Your {name} is NaN at {int(other.sum())} of {other.size} places."


def _are(names: list[str], what: str) -> str:
    plural = len(names) > 1 or isinstance(names[0], Many)
    return f"{' and '.join(names)} {'are' if plural else 'is'} {what}"


def _wanted(expected: Any) -> str:
    several = isinstance(expected, tuple) and len(expected) > 1 and shape(expected) is None
    return kind(expected) + (" are" if several else " is")


def relation(expected: Any, got: Any) -> str | None:
    """The name of a simple relation of the whole result to the expected one, if there is one."""
    pairs = parts(expected, got)
    if pairs is None or len(pairs) != 1:
        return None
    one, other = as_array(pairs[0][0]), as_array(pairs[0][1])
    if one is None or other is None or one.size == 0 or other.size == 0:
        return None
    if one.shape != other.shape:
        return "axes-swapped" if _swapped(one, other) else None
    if (one.dtype == bool) != (other.dtype == bool):
        return None
    if one.dtype == bool:
        return "mask-inverted" if bool((one != other).all()) and one.size > 1 else None
    if not np.isfinite(other[np.isfinite(one.astype(float))].astype(float)).all():
        return "not-finite"
    if close(one, -other) and _any(one):
        return "wrong-sign"
    if not other.any() and _any(one):
        return "all-zero"
    if one.size > 1 and factor(one, other) is not None:
        return "off-by-a-factor"
    if one.size == 1 and (times := ratio(one, other)):
        return f"off-by-a-factor {times:.4g}"
    if one.ndim > 1 and _swapped(one, other):
        return "axes-swapped"
    if one.size > 2 and _reordered(one, other):
        return "right-numbers-elsewhere"
    if one.ndim > 1 and _is_weights(one):
        if _sums_to_one(other, -2) and not _sums_to_one(other, -1):
            return "columns-sum-to-1"
        if not _sums_to_one(other, -1, also_zero=True):
            return "rows-do-not-sum-to-1"
    return None


def dropped(pairs: Sequence[tuple[Any, Any]]) -> float | None:
    """By what all numbers that are not 0 were multiplied, if dropout has made these of the right ones."""
    kept, zeros = [], 0
    for one, other in pairs:
        if one is None or other is None or one.shape != other.shape or one.dtype.kind != "f":
            return None
        there = (abs(one) > 1e-3) & (other != 0)
        kept.append(other[there] / one[there])
        zeros += int(((abs(one) > 1e-3) & (other == 0)).sum())
    times = np.concatenate([array.ravel() for array in kept]) if kept else np.zeros(0)
    if zeros == 0 or times.size < 2 or not np.isfinite(times).all():
        return None
    return float(times[0]) if np.ptp(times) < 1e-3 and times[0] > 1.001 else None


def row_added(pairs: Sequence[tuple[Any, Any]]) -> bool:
    """The same row was added to all rows of a result, and some results have several rows."""
    several = False
    for one, other in pairs:
        if one is None or other is None or one.shape != other.shape or one.ndim < 2 or one.dtype.kind != "f":
            return False
        more = (other.astype(float) - one).reshape(-1, one.shape[-1])
        if not np.isfinite(more).all() or np.ptp(more, axis=0).max() > TOLERANCE:
            return False
        several |= len(more) > 1
    return several


def alike(one: np.ndarray, other: Any) -> bool:
    """One shape, and equal up to rounding."""
    return other is not None and one.shape == other.shape and close(one, other)


SAYS = {
    "axes-swapped": "Your numbers are the expected ones with axes in another order.",
    "mask-inverted": "Your mask is True where False is expected, and False where True is expected.",
    "not-finite": "Your result has NaN or infinity.",
    "wrong-sign": "Your numbers have the wrong sign.",
    "all-zero": "Your result is 0 everywhere.",
    "off-by-a-factor": "All your numbers are off by one common factor.",
    "right-numbers-elsewhere": "Your result has the expected numbers, but in the wrong places.",
    "columns-sum-to-1": "Your columns sum to 1, and your rows do not.",
    "rows-do-not-sum-to-1": "Your rows do not sum to 1.",
}


def _sentence(label: str, expected: Any, got: Any) -> str:
    if isinstance(label, IsThere) and (there := as_array(got)) is not None and not there.any():
        return f"There is no {label}."
    name = f"Your {label}"
    text = _said(name, expected, got)
    if isinstance(label, Many):
        for one, many in (("has", "have"), ("is", "are"), ("sums", "sum")):
            text = text.replace(f"{name} {one} ", f"{name} {many} ", 1)
    return text


def _said(name: str, expected: Any, got: Any) -> str:
    one, other = as_array(expected), as_array(got)
    if one is None or other is None:
        if one is other:
            return ""
        if isinstance(got, tuple) and not isinstance(expected, tuple):
            return f"Your function returns {kind(got)}. One is expected: {kind(expected)}."
        return f"{name} is {kind(got)}; {_wanted(expected)} expected."
    if one.ndim == 0 and isinstance(got, tuple):
        return f"Your function returns {kind(got)}; {_wanted(expected)} expected."
    if one.shape != other.shape:
        text = f"{name} has shape {other.shape}; {one.shape} is expected."
        axes = _turned(one, other)
        return f"{text} After a further `permute{axes}` it would be right." if axes else text
    if (one.dtype == bool) != (other.dtype == bool):
        wanted, found = ("booleans", "numbers") if one.dtype == bool else ("numbers", "booleans")
        return f"{name} has {found}; {wanted} are expected."
    if one.dtype == bool:
        return _masks(name, one, other)
    finite = np.isfinite(other.astype(float)) | ~np.isfinite(one.astype(float))
    if not finite.all():
        nan = int(np.isnan(other.astype(float)).sum())
        what = f"NaN at {nan}" if nan else f"infinity at {int((~finite).sum())}"
        return f"{name} has {what} of {other.size} places."
    return _numbers(name, one, other)


def _numbers(name: str, one: np.ndarray, other: np.ndarray) -> str:
    if not apart(one, other).any():
        return ""
    if not other.any():
        return f"{name} is 0 everywhere." if other.size > 1 else f"{name} is 0."
    if one.size > 1 and (times := factor(one, other)) is not None:
        return f"Every number of {_lower(name)} is {times:.3g} times the expected one."
    least = 2 if one.dtype.kind in "iu" else 1  # two whole numbers are often shifted alike by chance
    if one.size > least and np.ptp(other.astype(float) - one) < TOLERANCE:
        by = float((other.astype(float) - one).flat[0])
        return f"Every number of {_lower(name)} is {'larger' if by > 0 else 'smaller'} by {abs(by):.3g}."
    if one.size > 2 and one.ndim == 1 and _reordered(one, other):
        return f"{name} has the expected numbers, but in the wrong places."
    if _is_weights(one):
        if _sums_to_one(other, -2) and not _sums_to_one(other, -1):
            return f"The columns of {_lower(name)} sum to 1, and the rows do not: {_sums(other)}."
        if (off := ~np.isclose(one.sum(-1), other.sum(-1), atol=1e-3)).any():
            if one.ndim == 1:
                return f"The numbers of {_lower(name)} sum to {_sums(other)}."
            found, wanted = (_each(array[off]) for array in (other, one))
            if found and wanted and off.size > 1:
                verb, they = ("sums", "it") if off.sum() == 1 else ("sum", "they")
                some = f"{off.sum()} of {off.size} rows of {_lower(name)}"
                return f"{some} {verb} to {found}; {they} should sum to {wanted}."
            some = "The" if off.all() else "Some"
            return f"{some} rows of {_lower(name)} sum to {_sums(other[off])}, and not to {_sums(one[off])}."
        if _sums_to_one(other, -1):
            rows = "rows" if one.ndim > 1 else "numbers"
            return f"The {rows} of {_lower(name)} sum to 1, as they should, but the numbers are wrong."
        return ""
    if one.ndim == 1 and _is_weights(one) and not close(one.sum(-1), other.sum(-1)):
        return f"{name} sums to {_sums(other)}."
    if one.ndim > 1 and (axes := _turned(one, other)):
        return f"{name} would be right after a further `permute{axes}`."
    if one.size > 2 and _reordered(one, other):
        return f"{name} has the expected numbers, but in the wrong places."
    if one.size == 1:
        return ""
    right = int((~apart(one, other)).sum())
    verb = "is" if right == 1 else "are"
    return f"{right} of {one.size} numbers of {_lower(name)} {verb} right." if right else ""


def _masks(name: str, one: np.ndarray, other: np.ndarray) -> str:
    if one.size > 1 and (one != other).all():
        return f"{name} is True where False is expected, and False where True is expected, at every place."
    counts = [(int((other & ~one).sum()), "True", "False"), (int((one & ~other).sum()), "False", "True")]
    says = [
        f"{found} at {n} place{'s' * (n != 1)} where {wanted} is expected" for n, found, wanted in counts if n
    ]
    return f"{name} is {' and '.join(says)}." if says else ""


def factor(one: np.ndarray, other: np.ndarray) -> float | None:
    """The number by which ``one`` was multiplied, if it is the same everywhere, and not 1."""
    one, other = one.astype(float), other.astype(float)
    there = np.abs(one) > 1e-3
    if there.sum() < 2 or (np.abs(other[~there]) > 1e-2).any():
        return None
    ratios = other[there] / one[there]
    times = float(np.median(ratios))
    if abs(times - 1) < 1e-3 or abs(times) < 1e-6 or not np.allclose(ratios, times, rtol=1e-3):
        return None
    return times if np.allclose(other, times * one, rtol=1e-3, atol=1e-5) else None


def _are_weights(value: Any) -> bool:
    array = as_array(value)
    return array is not None and _is_weights(array)


def ratio(one: np.ndarray, other: np.ndarray) -> float | None:
    """The factor of a single number, if it or its inverse is a whole number."""
    a, b = float(one.flat[0]), float(other.flat[0])
    if not a or not b or not np.isfinite(b):
        return None
    times = max(a / b, b / a, key=abs)
    return b / a if abs(times) < 100 and abs(times - round(times)) < 1e-4 and round(times) != 1 else None


def _is_weights(array: np.ndarray) -> bool:
    return (
        array.ndim > 0
        and array.shape[-1] > 1
        and array.dtype.kind == "f"
        and bool((array >= 0).all())
        and _sums_to_one(array, -1, also_zero=True)
        and _any(array)
    )


def _sums_to_one(array: np.ndarray, axis: int, *, also_zero: bool = False) -> bool:
    if array.ndim < -axis:
        return False
    sums = array.astype(float).sum(axis)
    return bool((np.isclose(sums, 1, atol=1e-3) | (also_zero & np.isclose(sums, 0, atol=1e-6))).all())


def _sums(array: np.ndarray) -> str:
    sums = [f"{s:.3g}" for s in array.astype(float).sum(-1).flatten()]
    if len(sums) == 1:
        return sums[0]
    return f"{', '.join(sums[:3])} and so on" if len(sums) > 3 else f"{', '.join(sums[:-1])} and {sums[-1]}"


def _each(array: np.ndarray) -> str:
    """What every row sums to, if all sum to the same."""
    sums = {f"{s:.3g}" for s in array.astype(float).sum(-1).flatten()}
    return sums.pop() if len(sums) == 1 else ""


def _turned(one: np.ndarray, other: np.ndarray) -> tuple[int, ...] | None:
    """``_swapped``, if the sizes leave no doubt which axis is which."""
    return _swapped(one, other) if len(set(one.shape)) == one.ndim else None


def _swapped(one: np.ndarray, other: np.ndarray) -> tuple[int, ...] | None:
    """The order of ``other``'s axes that makes it ``one``."""
    if one.ndim != other.ndim or not 2 <= one.ndim <= 4 or one.size < 2:
        return None
    for axes in permutations(range(one.ndim)):
        turned = other.transpose(axes)
        if axes != tuple(range(one.ndim)) and turned.shape == one.shape and close(one, turned):
            return axes
    return None


def _reordered(one: np.ndarray, other: np.ndarray) -> bool:
    a, b = np.sort(one.astype(float), None), np.sort(other.astype(float), None)
    return len(np.unique(a.round(4))) > 1 and bool(np.allclose(a, b, atol=TOLERANCE, rtol=TOLERANCE))


def _any(array: np.ndarray) -> bool:
    return bool((np.abs(array.astype(float)) > TOLERANCE).any())


def _lower(name: str) -> str:
    return name[0].lower() + name[1:]
