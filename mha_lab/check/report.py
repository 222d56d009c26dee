"""What a learner reads: the same report as text and as HTML."""

import html
import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_lab.check.diagnose import Finding, shapes
from mha_lab.check.exercise import Exercise
from mha_lab.check.sandbox import Plain

MOST_SHOWN = 24  # numbers of one tensor


@dataclass(frozen=True)
class Report:
    """Lines of text, and a link to the section that explains."""

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
        """The same for a notebook; all that came from the answer is escaped."""
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


def make(exercise: Exercise, finding: Finding | None) -> Report:
    """The report on one answer; ``finding`` is ``None`` for a stub."""
    if finding is None:
        state = "the bug is still there" if exercise.bug else "not attempted yet"
        return Report(f"{exercise.name}: {state}, 0 of {points(exercise.points)}")
    if finding.slug is None:
        return Report(f"{exercise.name}: right, {points(exercise.points)}")
    lines = [finding.says, *(_example(exercise, *finding.example) if finding.example else [])]
    headline = f"{exercise.name}: {finding.slug}, 0 of {points(exercise.points)}"
    return Report(headline, tuple(lines), finding.section, exercise.chapter)


def _example(exercise: Exercise, arguments: tuple, expected: Any, got: Any) -> list[str]:
    """The smallest problem where the answer differs, and the first place where it does."""
    names = inspect.signature(exercise.answer).parameters
    if not names:  # then what is expected is the answer itself
        return ["", f"  got: {_show(got)}"]
    lines = ["", "The smallest example where it differs:"]
    lines += [f"  {name} = {_show(value)}" for name, value in zip(names, arguments, strict=False)]
    lines += [f"  expected: {_show(expected)}", f"  got:      {_show(got)}"]
    place = _first_difference(expected, got)
    return [*lines, f"  {place}"] if place else lines


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(_show(item) for item in value) + ")"
    if isinstance(value, Plain):
        array = value.array
        if array is None:
            return value.dtype
    elif hasattr(value, "detach"):
        array = value.detach().numpy()
    else:
        return getattr(value, "__name__", None) or repr(value)
    if array.size > MOST_SHOWN:
        return f"a tensor of shape {tuple(array.shape)}"
    text = np.array2string(array, precision=3, suppress_small=True, separator=", ")
    return " ".join(text.split())


def _first_difference(expected: Any, got: Any) -> str:
    if isinstance(expected, tuple) and isinstance(got, tuple) and len(expected) == len(got):
        for number, (one, other) in enumerate(zip(expected, got, strict=True)):
            if place := _first_difference(one, other):
                return f"in result {number}: {place}"
        return ""
    if (
        not (isinstance(expected, Plain) and isinstance(got, Plain))
        or expected.array is None
        or got.array is None
    ):
        return ""
    if expected.array.shape != got.array.shape:
        return f"shapes: expected {shapes(expected)}, got {shapes(got)}"
    one, other = expected.array.astype(np.float64), got.array.astype(np.float64)
    apart = ~np.isclose(one, other, atol=1e-4, rtol=1e-4, equal_nan=True)
    if not apart.any():
        return ""
    index = tuple(int(i) for i in np.argwhere(apart)[0])
    return f"first at index {index}: expected {one[index]:.4g}, got {other[index]:.4g}"
