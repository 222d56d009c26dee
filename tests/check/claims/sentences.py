"""The sentences of ``check.observe``, read back from the report and asked of the numbers in it."""

import re
from typing import Any

import numpy as np

from mha_lab.check.diagnosis import Diagnosis
from mha_lab.check.observe import NAN
from mha_lab.check.runner import Plain
from mha_lab.exercises import Exercise


def denied(exercise: Exercise, diagnosis: Diagnosis) -> str:
    """What of ``diagnosis.seen`` is not so of its example; an empty string if all is."""
    if diagnosis.example is None or exercise.accepts is not None or not diagnosis.seen:
        return ""
    _, expected, got = diagnosis.example
    one, other = _array(expected), _array(got)
    for sentence in re.split(r"(?<=[.;]) (?=[A-Z])", diagnosis.seen):
        words = f"{sentence[:-1]} ".lower()
        labels = [label.removesuffix(NAN) for label in exercise.results]
        places = [(words.rfind(f"your {label} "), i) for i, label in enumerate(labels)]
        place, i = max(places, default=(-1, 0))
        if place >= 0 and isinstance(
            expected, tuple
        ):  # this sentence, and those after it, are about that one
            one, other = _array(expected[i]), _array(got[i])
        for pattern, holds in SENTENCES:
            if found := re.search(pattern, sentence):
                try:
                    true = holds(found, one, other)
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
    return np.shape(one) == np.shape(other) and bool(np.allclose(one, other, rtol=5e-3, atol=5e-3))


def _places(found: re.Match, one: np.ndarray, other: np.ndarray) -> bool:
    told = re.findall(r"(True|False) at (\d+) place", found.group(0))
    return all(int(n) == ((other == (word == "True")) & (one != other)).sum() for word, n in told)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", text))


SENTENCES = [
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
    (r" is 0\.", lambda f, a, b: not b.any()),
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
    (r"right for the first problem", lambda f, a, b: True),  # counted by the judge over all problems
    (r"returns the same for all", lambda f, a, b: True),
    (r"right only to the accuracy", lambda f, a, b: bool(np.allclose(a, b, atol=2e-2, rtol=2e-2))),
    (r"(is|are) right; your", lambda f, a, b: True),
    (r"^Your function (returns|raises|calls|did not)|process that ran", lambda f, a, b: True),
    (r"^One is expected: ", lambda f, a, b: True),
    (r"but your function changes", lambda f, a, b: True),
    (r" (is|are) .*; .* (is|are) expected", lambda f, a, b: True),
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
