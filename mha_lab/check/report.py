"""The report that a learner reads, as text and as HTML."""

import html
import inspect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_lab.check.diagnosis import Diagnosis
from mha_lab.check.runner import Plain
from mha_lab.exercises import Exercise
from mha_lab.exercises import _results as compare


@dataclass(frozen=True)
class Report:
    """Lines of text, and a link to the section that explains the mistake."""

    headline: str
    lines: tuple[str, ...] = ()
    section: str = ""
    chapter: str = ""

    def __str__(self) -> str:
        lines = [self.headline, *self.lines]
        if self.section:
            lines.append(f'Read "{self.section}" in {self.chapter}.ipynb')
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same for a notebook; everything that comes from the answer is escaped."""
        parts = [f"<strong>{html.escape(self.headline)}</strong>"]
        if self.lines:
            parts.append(f"<pre>{html.escape(chr(10).join(self.lines))}</pre>")
        if self.section:
            target = f"{self.chapter}.ipynb#{self.section.replace(' ', '-')}"
            parts.append(f'Read <a href="{html.escape(target)}">{html.escape(self.section)}</a>')
        return "<div>" + "<br>".join(parts) + "</div>"


def points(number: int | float) -> str:
    """``1 point``, ``2 points``."""
    return f"{number:g} point" + ("" if number == 1 else "s")


def make(exercise: Exercise, diagnosis: Diagnosis | None) -> Report:
    """The report on one answer; ``diagnosis`` is ``None`` for a stub."""
    if diagnosis is None:
        state = "the bug is still there" if exercise.bug else "not attempted yet"
        return Report(f"{exercise.name}: {state}, 0 of {points(exercise.points)}")
    if diagnosis.name is None:
        return Report(f"{exercise.name}: right, {points(exercise.points)}")
    lines = [diagnosis.seen] if diagnosis.seen else []
    if diagnosis.cause:
        lines.append(
            f"Likely cause: {diagnosis.cause.strip()}" if diagnosis.seen else diagnosis.cause.strip()
        )
    if diagnosis.note:
        lines.append(diagnosis.note)
    if not lines:
        lines.append("This is not the expected result, and it is none of the known mistakes.")
    if diagnosis.example:
        lines += _example(exercise, *diagnosis.example)
    headline = f"{exercise.name}: {diagnosis.name}, 0 of {points(exercise.points)}"
    return Report(headline, tuple(lines), diagnosis.section, exercise.chapter)


def _example(exercise: Exercise, arguments: tuple, expected: Any, got: Any) -> list[str]:
    """The smallest problem for which the answer differs, and the place of the difference."""
    names = inspect.signature(exercise.answer).parameters
    lines = ["", "For example:"] if names else [""]
    lines += [f"  {name} = {_show(value)}" for name, value in zip(names, arguments, strict=False)]
    if exercise.accepts is not None:  # what was seen says it: there is no single expected result
        return [*lines, f"  got: {_show(got)}"]
    pairs = compare.parts(expected, got)
    if pairs is None:
        return [*lines, f"  expected: {compare.kind(expected)}", f"  got:      {compare.kind(got)}"]
    labels = exercise.results if len(pairs) == len(exercise.results) else [""] * len(pairs)
    for number, (label, (one, other)) in enumerate(zip(labels, pairs, strict=True)):
        if compare.same(one, other):
            continue
        name = f" {label}" if label else f" result {number}" if len(pairs) > 1 else ""
        lines += _difference(name, one, other)
    return lines


def _difference(name: str, expected: Any, got: Any) -> list[str]:
    if isinstance(expected, Plain) and (array := compare.as_array(got)) is not None:
        got = Plain(str(array.dtype), array)
    for precision in (3, 6, 9):
        one, other = _show(expected, precision), _show(got, precision)
        if one != other:
            return [f"  expected{name}: {one}", f"  got{name}:{' ' * 6}{other}", *_place(name, expected, got)]
    return _place(name, expected, got) or [
        f"  expected{name}: {compare.kind(expected)}, got: {compare.kind(got)}"
    ]


def _place(name: str, expected: Any, got: Any) -> list[str]:
    """The first place where two large tensors of one shape differ."""
    one, other = compare.as_array(expected), compare.as_array(got)
    if one is None or other is None or one.shape != other.shape or one.size <= 8:
        return []
    places = np.argwhere(compare.apart(one, other))
    if not len(places):
        return []
    index = tuple(int(i) for i in places[0])
    shown = [
        f"{number}" if number.dtype == bool else f"{number:.6g}" for number in (one[index], other[index])
    ]
    where = f" in{name}" if name else ""
    return [f"  first difference{where} at index {index}: expected {shown[0]}, got {shown[1]}"]


def _show(value: Any, precision: int = 3) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_show(item, precision) for item in value) + ")"
    if isinstance(value, Plain):
        array = value.array
        if array is None:
            return value.dtype
    elif hasattr(value, "detach"):
        array = value.detach().numpy()
    elif isinstance(value, float):
        return f"{value:.{precision + 3}g}"
    else:
        return getattr(value, "__name__", None) or repr(value)
    if array.size > compare.MAX_SHOWN:
        return f"a tensor of shape {tuple(array.shape)}"
    largest = np.abs(array[np.isfinite(array)]).max(initial=0) if array.dtype.kind == "f" else 0
    if 1e-4 < largest < 0.1:  # small numbers get as many digits
        precision += math.ceil(-math.log10(largest))
    text = np.array2string(array, precision=precision, suppress_small=True, separator=", ")
    return " ".join(text.split())
