"""Observations about a result, one sentence each. Each sentence is computed from the result itself."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np

from mha_course.checker import _sentences as say
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
        return say.RETURNS[_several(expected)].format(got=kind(got), expected=kind(expected))
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
        both = say.RIGHT_AND_WRONG[_plural(*right)][_plural(*others)]
        return say.joined(both.format(right=" and ".join(right), wrong=" and ".join(others)), found)
    return found


def _nan(name: str, expected: Any, got: Any) -> str:
    if got is False:
        return say.MISSING.format(name=name)
    one, other = as_array(expected), as_array(got)
    if one is None or other is None or one.shape != other.shape or one.any():
        return _sentence(name, expected, got)
    return say.IS_NAN.format(name=name, places=int(other.sum()), size=other.size)


def _plural(*names: str) -> bool:
    return len(names) > 1 or isinstance(names[0], Many)


def _several(expected: Any) -> bool:
    return isinstance(expected, tuple) and len(expected) > 1 and shape(expected) is None


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
    if one.size == 1 and ratio(one, other):
        return "off-by-a-factor"
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


def times(expected: Any, got: Any) -> str:
    """By what a single number was multiplied, to four digits; an empty string if that is not simple."""
    one, other = as_array(expected), as_array(got)
    single = one is not None and other is not None and one.size == other.size == 1
    return f"{found:.4g}" if single and (found := ratio(one, other)) else ""


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


def _sentence(name: str, expected: Any, got: Any) -> str:
    if isinstance(name, IsThere) and (there := as_array(got)) is not None and not there.any():
        return say.MISSING.format(name=name)
    one, other, plural = as_array(expected), as_array(got), _plural(name)
    if one is None or other is None:
        if one is other:
            return ""
        kinds = {"got": kind(got), "expected": kind(expected)}
        if isinstance(got, tuple) and not isinstance(expected, tuple):
            return say.RETURNS_SEVERAL.format(**kinds)
        return say.OTHER_KIND[plural][_several(expected)].format(name=name, **kinds)
    if one.ndim == 0 and isinstance(got, tuple):
        return say.RETURNS[_several(expected)].format(got=kind(got), expected=kind(expected))
    if one.shape != other.shape:
        axes = _turned(one, other)
        says = say.OTHER_SHAPE_TURNED if axes else say.OTHER_SHAPE
        return says[plural].format(name=name, got=other.shape, expected=one.shape, axes=axes)
    if (one.dtype == bool) != (other.dtype == bool):
        return (say.NO_BOOLEANS if one.dtype == bool else say.NO_NUMBERS)[plural].format(name=name)
    if one.dtype == bool:
        return _masks(name, one, other)
    finite = np.isfinite(other.astype(float)) | ~np.isfinite(one.astype(float))
    if not finite.all():
        nan = int(np.isnan(other.astype(float)).sum())
        says, places = (say.HAS_NAN, nan) if nan else (say.HAS_INFINITY, int((~finite).sum()))
        return says[plural].format(name=name, places=places, size=other.size)
    return _numbers(name, one, other)


def _numbers(name: str, one: np.ndarray, other: np.ndarray) -> str:
    if not apart(one, other).any():
        return ""
    if not other.any():
        return (say.IS_ZERO_EVERYWHERE if other.size > 1 else say.IS_ZERO)[_plural(name)].format(name=name)
    if one.size > 1 and (times := factor(one, other)) is not None:
        return say.MULTIPLIED.format(name=name, times=times)
    least = 2 if one.dtype.kind in "iu" else 1  # two whole numbers are often shifted alike by chance
    if one.size > least and np.ptp(other.astype(float) - one) < TOLERANCE:
        by = float((other.astype(float) - one).flat[0])
        return (say.LARGER if by > 0 else say.SMALLER).format(name=name, by=abs(by))
    if one.size > 2 and one.ndim == 1 and _reordered(one, other):
        return say.REORDERED[_plural(name)].format(name=name)
    if _is_weights(one):
        return _weights(name, one, other)
    if one.ndim > 1 and (axes := _turned(one, other)):
        return say.TURNED.format(name=name, axes=axes)
    if one.size > 2 and _reordered(one, other):
        return say.REORDERED[_plural(name)].format(name=name)
    right = int((~apart(one, other)).sum())
    if one.size == 1 or not right:
        return ""
    return say.NUMBERS_RIGHT[right > 1].format(count=right, size=one.size, name=name)


def _weights(name: str, one: np.ndarray, other: np.ndarray) -> str:
    if _sums_to_one(other, -2) and not _sums_to_one(other, -1):
        return say.COLUMNS_SUM_TO_1.format(name=name, sums=_sums(other))
    off = ~np.isclose(one.sum(-1), other.sum(-1), atol=1e-3)
    if off.any():
        if one.ndim == 1:
            return say.NUMBERS_SUM_TO.format(name=name, sums=_sums(other))
        found, wanted = (_each(array[off]) for array in (other, one))
        if found and wanted and off.size > 1:
            count = int(off.sum())
            places = {"count": count, "rows": off.size, "sum": found, "expected": wanted}
            return say.SOME_ROWS_SUM_TO[count > 1].format(name=name, **places)
        says = say.ALL_ROWS_DIFFER if off.all() else say.SOME_ROWS_DIFFER
        return says.format(name=name, sums=_sums(other[off]), expected=_sums(one[off]))
    if _sums_to_one(other, -1):
        return (say.ROWS_SUM_TO_1 if one.ndim > 1 else say.NUMBERS_SUM_TO_1).format(name=name)
    return ""


def _masks(name: str, one: np.ndarray, other: np.ndarray) -> str:
    plural = _plural(name)
    if one.size > 1 and (one != other).all():
        return say.MASK_INVERTED[plural].format(name=name)
    counts = (say.TRUE_AT, int((other & ~one).sum())), (say.FALSE_AT, int((one & ~other).sum()))
    places = [says[count > 1].format(count=count) for says, count in counts if count]
    return say.MASK_WRONG[plural].format(name=name, places=" and ".join(places)) if places else ""


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
