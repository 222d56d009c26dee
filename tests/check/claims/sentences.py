"""The sentences of ``check.observe``, read back from the report and asked of the numbers in it."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from mha_course.checker.diagnosis import Diagnosis
from mha_course.checker.runner import Plain
from mha_course.exercises import Exercise
from mha_course.exercises import _results as compare


def denied(exercise: Exercise, diagnosis: Diagnosis, fresh: Callable[[], list[tuple[bool, Any]]]) -> str:
    """What of ``diagnosis.seen`` is not so of its example; an empty string if all is.

    ``fresh()`` has for each problem of another draw whether the answer is right, and its result.
    """
    if diagnosis.example is None or exercise.accepts is not None or not diagnosis.seen:
        return ""
    _, expected, got = diagnosis.example
    pairs, part = compare.parts(expected, got), (expected, got)
    labels = list(exercise.results)
    for sentence in re.split(r"(?<=[.;]) (?=[A-Z])", diagnosis.seen):
        words = f"{sentence[:-1]} ".lower()
        places = [(words.rfind(f"your {label} "), i) for i, label in enumerate(labels)]
        place, i = max(places, default=(-1, 0))
        if place >= 0 and pairs and isinstance(expected, tuple):
            part = pairs[i]  # this sentence, and those after it, are about that one
        asked = [(pattern, holds, map(_array, part)) for pattern, holds in OF_NUMBERS]
        asked += [(pattern, holds, (fresh,)) for pattern, holds in OF_ALL_PROBLEMS]
        asked += [(pattern, holds, (labels, pairs)) for pattern, holds in OF_SEVERAL]
        asked += [(pattern, holds, (expected, got)) for pattern, holds in OF_WHOLE_RESULTS]
        asked += [(pattern, holds, part) for pattern, holds in OF_KINDS]
        for pattern, holds, values in asked:
            if found := re.search(pattern, sentence):
                try:
                    true = holds(found, *values)
                except (AttributeError, TypeError, ValueError) as error:
                    return f"cannot be asked of this result ({error}): {sentence}"
                if not true:
                    return f"not so: {sentence}"
                break
        else:
            return f"no predicate for: {sentence}"
    return ""


def _array(value: Any) -> Any:
    if isinstance(value, Plain):
        return value.array
    if isinstance(value, tuple):
        items = [_array(item) for item in value]
        if len({np.shape(item) for item in items}) == 1 and all(item is not None for item in items):
            return np.array(items)
        return tuple(items)
    return np.asarray(value) if isinstance(value, bool | int | float) else value


def _sums(found: re.Match, one: np.ndarray, other: np.ndarray) -> bool:
    told = [float(s) for s in re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?|nan|inf", found.group(1))]
    sums = other.sum(-1).flatten()
    return bool(told) and all(
        np.isclose(sums, number, rtol=6e-3, atol=6e-3, equal_nan=True).any() for number in told
    )


def _rows(found: re.Match, one: np.ndarray, other: np.ndarray) -> bool:
    sums, wanted = other.sum(-1), one.sum(-1)
    off = ~np.isclose(sums, wanted, atol=1e-3)
    told = float(found.group(3)), float(found.group(4))
    return (int(off.sum()), off.size) == (int(found.group(1)), int(found.group(2))) and all(
        np.allclose(values[off], number, rtol=6e-3, atol=6e-3, equal_nan=True)
        for values, number in zip((sums, wanted), told, strict=True)
    )


def _close(one: Any, other: Any) -> bool:
    if one is None or other is None or np.shape(one) != np.shape(other):
        return False
    return bool(np.allclose(one, other, rtol=5e-3, atol=5e-3))


def _places(found: re.Match, one: np.ndarray, other: np.ndarray) -> bool:
    told = re.findall(r"(True|False) at (\d+) place", found.group(0))
    return all(int(n) == ((other == (word == "True")) & (one != other)).sum() for word, n in told)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text))


def _some_are_right(found: re.Match, labels: list[str], pairs: list[tuple[Any, Any]]) -> bool:
    names = labels or [f"result {i}" for i in range(len(pairs))]
    right = [_close(_array(one), _array(other)) for one, other in pairs]
    told = [" and ".join(n for n, yes in zip(names, right, strict=True) if yes == side) for side in (1, 0)]
    return told == list(found.groups())


def _kinds(found: re.Match, expected: Any, got: Any) -> bool:
    """What it is; what is expected. Several results have semicolons between them, too."""
    pieces = found.group(1).split("; ")
    halves = [("; ".join(pieces[:i]), "; ".join(pieces[i:])) for i in range(1, len(pieces))]
    return any(_is_kind(one, got) and _is_kind(other, expected) for one, other in halves)


def _is_kind(words: str, value: Any) -> bool:
    """Is this value what these words call it?"""
    array = _array(value)
    if several := re.match(r"(\d+) results: (.*)", words):
        return isinstance(value, tuple) and len(value) == int(several.group(1))
    if shaped := re.search(r"shape (\(.*?\))$", words):
        return getattr(array, "shape", None) == _shape(shaped.group(1))
    if single := re.search(r"single (?:number|value) (\S+)$", words):
        told = {"True": True, "False": False}.get(single.group(1), single.group(1))
        return getattr(array, "shape", None) == () and bool(
            np.isclose(array, float(told), rtol=1e-3, equal_nan=True)
        )
    if words in ("None", "an empty tuple"):
        return value is None if words == "None" else value == ()
    return isinstance(value, Plain) and array is None


def _only_the_first(found: re.Match, fresh: Callable[[], list[tuple[bool, Any]]]) -> bool:
    """Among fresh problems, one more may be of the size that the answer is right for."""
    (first, _), *others = fresh()
    return first and len(others) == int(found.group(1)) and not all(right for right, _ in others)


def _all_the_same(found: re.Match, fresh: Callable[[], list[tuple[bool, Any]]]) -> bool:
    values = [value for _, value in fresh()]
    return len(values) == int(found.group(1)) and all(compare.same(values[0], value) for value in values)


OF_NUMBERS = [
    (r"is (\S+) times the expected number", lambda f, a, b: _close(b, a * float(f.group(1)))),
    (r"times the expected one", lambda f, a, b: _close(b, a * float(_number(f.string)))),
    (r"is (larger|smaller) by", lambda f, a, b: _close(b - a, np.full(a.shape, _by(f)))),
    (r"columns of .* sum to 1, and the rows do not: (.*)\.", lambda f, a, b: _sums(f, a, b) and _ones(b, -2)),
    (
        r"(rows|numbers) of .* sum to 1, as they should",
        lambda f, a, b: _ones(b, -1) and not np.allclose(a, b, atol=1e-4),
    ),
    (r"(\d+) of (\d+) rows of .* sums? to (\S+); (?:they|it) should sum to (\S+)\.", _rows),
    (
        r"rows of .* sum to (.*), and not to (.*)\.",
        lambda f, a, b: _sums(f, a, b) and _sums(re.match(r"(.*)", f.group(2)), b, a),
    ),
    (r" sums? to (.*)\.", _sums),
    (
        r"(\d+) of (\d+) numbers",
        lambda f, a, b: _right(a, b) == int(f.group(1)) and a.size == int(f.group(2)),
    ),
    (r" (?:is|are) 0\.", lambda f, a, b: not b.any()),
    (r"(?:is|are) 0 everywhere", lambda f, a, b: bool(np.allclose(b, 0, atol=1e-4))),
    (r"is NaN at (\d+) of", lambda f, a, b: b.dtype == bool and b.sum() == int(f.group(1))),
    (r"NaN at (\d+) of", lambda f, a, b: np.isnan(b).sum() == int(f.group(1))),
    (r"infinity at (\d+) of", lambda f, a, b: (~np.isfinite(b) & np.isfinite(a)).sum() == int(f.group(1))),
    (r"at every place", lambda f, a, b: bool((a != b).all())),
    (r"(True|False) at \d+ place.*", _places),
    (
        r"expected numbers, but in the wrong places",
        lambda f, a, b: _close(np.sort(a, None), np.sort(b, None)),
    ),
    (
        r"ha(?:s|ve) shape (\(.*?\)); (\(.*?\)) is",
        lambda f, a, b: (b.shape, a.shape) == tuple(map(_shape, f.groups())),
    ),
    (r"further `permute(\(.*?\))`", lambda f, a, b: _close(a, b.transpose(_shape(f.group(1))))),
    (
        r"(?:has|have) (numbers|booleans); (numbers|booleans)",
        lambda f, a, b: (a.dtype == bool) != (b.dtype == bool),
    ),
    (r"There is no gradient", lambda f, a, b: b.ndim == 0 and not b),
    (r"right only to the accuracy", lambda f, a, b: bool(np.allclose(a, b, atol=2e-2, rtol=2e-2))),
    (r"but your function changes", lambda f, a, b: not np.array_equal(a, b, equal_nan=True)),
]
OF_WHOLE_RESULTS = [
    (r"^Your function returns (.*) (?:is|are) expected\.$", _kinds),
    (r"^Your function returns (.*)\.$", lambda f, a, b: _is_kind(f.group(1), b)),
    (r"^One is expected: (.*)\.$", lambda f, a, b: _is_kind(f.group(1), a)),
]
OF_SEVERAL = [(r"^Your (.*) (?:is|are) right; your (.*) (?:is|are) not", _some_are_right)]
OF_KINDS = [(r"^Your .*? (?:is|are) (.*) (?:is|are) expected\.$", _kinds)]
OF_ALL_PROBLEMS = [
    (r"right for the first problem, and wrong for the other (\d+)", _only_the_first),
    (r"returns the same for all (\d+) problems", _all_the_same),
]


def _number(text: str) -> str:
    return re.search(r"is (-?[\d.e+-]+) times", text).group(1)


def _by(found: re.Match) -> float:
    size = float(re.search(r"by ([\d.e+-]+)\.", found.string).group(1))
    return size if found.group(1) == "larger" else -size


def _ones(array: np.ndarray, axis: int) -> bool:
    return bool(np.allclose(array.sum(axis), 1, atol=2e-3))


def _right(one: np.ndarray, other: np.ndarray) -> int:
    return int(np.isclose(other.astype(float), one.astype(float), atol=1e-4, rtol=1e-4, equal_nan=True).sum())
