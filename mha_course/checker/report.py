"""The report that a learner reads, as text and as HTML."""

import html
import inspect
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_course.checker.diagnosis import Diagnosis
from mha_course.exercises import Exercise
from mha_course.exercises import _results as compare
from mha_course.exercises._results import IsNaN, Plain

MARKS = {"right": "✓", "wrong": "✗", "open": "○"}
BARS = {"right": "--jp-success-color1, #2e7d32", "wrong": "--jp-error-color1, #d32f2f"}
BAR = "border-left: 4px solid var({colour}); padding-left: 10px"
OTHER_BAR = "--jp-border-color1, #808080"
ENTRY = re.compile(r"[^\s,\[\]()]+")
MAX_LINE = 3000  # characters of what is said of an answer: an error's text may have 2000
CODE = "white-space: pre; overflow-x: auto; margin: 6px 0"

POINTS = "{number:g} point", "{number:g} points"  # one, or several
READ_NEXT = "Next: read {step}"
SOLVE_NEXT = "Next: {name}. It uses step {step}"
STEP = '"{section}" in {chapter}.ipynb'
RIGHT = "{name} is right: {points}."
NOT_RIGHT = "{name} is not right yet: 0 of {points}."
NOT_WRITTEN = "{name} is not written yet: 0 of {points}."
NOT_REPAIRED = "The bug in {name} is still there: 0 of {points}."
LIKELY_CAUSE = "Likely cause: {cause}"
UNKNOWN = "This is not the expected result, and it is none of the known mistakes."
MISTAKE = "The name of this mistake: {name}"
MORE = "{beginning} ... and {more:,} more characters"
EXPECTED, GOT = "expected:", "got:"
EXPECTED_OF, GOT_OF = "expected {name}:", "got {name}:"
NUMBERED = "result {number}"
MAYBE_NAN = "{name} (nan?)"
DIFFERENCE = "first difference at index {index}: expected {expected}, got {got}"
DIFFERENCE_IN = "first difference in {name} at index {index}: expected {expected}, got {got}"
TENSOR = "a tensor of shape {shape}"


@dataclass(frozen=True)
class Report:
    """A verdict, sentences, an example as lines of a fixed width, and what to read or to do next."""

    headline: str
    lines: tuple[str, ...] = ()
    section: str = ""
    chapter: str = ""
    state: str = ""  # one of MARKS
    example: tuple[str, ...] = ()
    following: str = ""  # the next exercise; ``section`` prepares it

    @property
    def _verdict(self) -> str:
        return f"{MARKS[self.state]} {self.headline}" if self.state else self.headline

    def _next(self, step: str, name: str) -> str:
        return (SOLVE_NEXT if name else READ_NEXT).format(name=name, step=step)

    def __str__(self) -> str:
        lines = [self._verdict, *self.lines, *(("", *self.example) if self.example else ())]
        if self.section:
            step = STEP.format(section=self.section, chapter=self.chapter)
            lines.append(self._next(step, self.following))
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """The same for a notebook; everything that comes from the answer is escaped."""
        parts = [f"<div><strong>{html.escape(self._verdict)}</strong></div>"]
        for said, _, code in (line.partition("\n") for line in self.lines):
            parts += [f"<div>{html.escape(said)}</div>", _code(code)]
        parts.append(_code("\n".join(self.example)))
        if self.section:
            step = link(self.section, self.chapter)
            parts.append(f"<div>{self._next(step, html.escape(self.following))}</div>")
        bar = BAR.format(colour=BARS.get(self.state, OTHER_BAR))
        style = f' style="{bar}"' if self.state else ""
        return f"<div{style}>{''.join(parts)}</div>"


def _code(text: str) -> str:
    return f'<pre style="{CODE}" tabindex="0">{html.escape(text)}</pre>' if text else ""


def link(section: str, chapter: str) -> str:
    """A link to a section of a chapter, as HTML."""
    target = f"{chapter}.ipynb#{section.replace(' ', '-')}"
    return f'<a href="{html.escape(target)}">{html.escape(section)}</a>'


def present(shown: Any) -> None:
    """As HTML in a notebook, as text in a terminal."""
    try:
        from IPython import get_ipython
    except ImportError:
        shell = None
    else:
        shell = get_ipython()
    if shell is not None and hasattr(shell, "kernel"):
        from IPython.display import display

        display(shown)
    else:
        print(shown)


def points(number: int | float) -> str:
    """``1 point``, ``2 points``."""
    return POINTS[number != 1].format(number=number)


class CheckResult(float):
    """The points earned, as a number; everything else, as attributes.

    ``points`` and ``possible``; ``passed`` and ``attempted``; ``diagnosis``, the name of the mistake
    (``"wrong"`` if it is none of the known ones, ``None`` if right or not attempted); ``message``, the
    text that the learner read.
    """

    points: float
    possible: float
    passed: bool
    attempted: bool
    diagnosis: str | None
    message: str

    def __new__(cls, exercise: Exercise, diagnosis: Diagnosis | None, message: str) -> "CheckResult":
        passed = diagnosis is not None and diagnosis.name is None
        result = super().__new__(cls, exercise.points if passed else 0)
        result.points, result.possible = float(result), float(exercise.points)
        result.passed, result.attempted = passed, diagnosis is not None
        result.diagnosis = diagnosis.name if diagnosis else None
        result.message = message
        return result

    def _repr_html_(self) -> str:
        """Nothing that is seen: the report above says the points, and a notebook shows no bare number."""
        return f"<span hidden>{self:g} of {points(self.possible)}</span>"


def show(exercise: Exercise, diagnosis: Diagnosis | None, after: Exercise | None = None) -> CheckResult:
    """Show the report on one answer; ``after`` is the exercise that comes next, if this one is right."""
    report = make(exercise, diagnosis, after)
    present(report)
    return CheckResult(exercise, diagnosis, str(report))


def make(exercise: Exercise, diagnosis: Diagnosis | None, after: Exercise | None = None) -> Report:
    """The report on one answer; ``diagnosis`` is ``None`` for a stub."""
    places = {"name": exercise.name, "points": points(exercise.points)}
    if diagnosis is None:
        return Report((NOT_REPAIRED if exercise.bug else NOT_WRITTEN).format(**places), state="open")
    if diagnosis.name is None:
        step = {"following": after.name, "section": after.section, "chapter": after.chapter} if after else {}
        remark = (diagnosis.note,) if diagnosis.note else ()
        return Report(RIGHT.format(**places), remark, state="right", **step)
    lines = [diagnosis.seen] if diagnosis.seen else []
    if diagnosis.cause:
        cause = diagnosis.cause.strip()
        lines.append(LIKELY_CAUSE.format(cause=cause) if diagnosis.seen else cause)
    if diagnosis.note:
        lines.append(diagnosis.note)
    if not lines:
        lines.append(UNKNOWN)
    if diagnosis.name in exercise.mistakes:
        lines.append(MISTAKE.format(name=diagnosis.name))
    example = _example(exercise, *diagnosis.example) if diagnosis.example else []
    said, example = (tuple(map(_short, some)) for some in (lines, example))
    return Report(NOT_RIGHT.format(**places), said, diagnosis.section, exercise.chapter, "wrong", example)


def _short(line: str) -> str:
    """Whatever an answer has returned, nobody reads more of it."""
    more = len(line) - MAX_LINE
    return line if more <= 0 else MORE.format(beginning=line[:MAX_LINE], more=more)


def _example(exercise: Exercise, arguments: tuple, expected: Any, got: Any) -> list[str]:
    """The smallest problem for which the answer differs, and the place of the difference."""
    names = inspect.signature(exercise.answer).parameters
    lines = ["For example:"] if names else []
    lines += [f"  {name} = {_show(value)}" for name, value in zip(names, arguments, strict=False)]
    if exercise.accepts is not None:  # many results are right, so none is shown as expected
        if isinstance(got, tuple) and len(got) == len(exercise.results):
            return [
                *lines,
                *(f"  {name}: {_show(one)}" for name, one in zip(exercise.results, got, strict=True)),
            ]
        words = exercise.shows(got) if exercise.shows else None
        return [*lines, f"  got: {words or _show(got)}"]
    pairs = compare.parts(expected, got)
    if pairs is None:
        return [*lines, f"  expected: {compare.kind(expected)}", f"  got:      {compare.kind(got)}"]
    labels = exercise.results if len(pairs) == len(exercise.results) else [""] * len(pairs)
    for number, (label, (one, other)) in enumerate(zip(labels, pairs, strict=True)):
        if compare.same(one, other):
            continue
        label = label or (NUMBERED.format(number=number) if len(pairs) > 1 else "")
        asks = isinstance(label, IsNaN)
        lines += _difference(MAYBE_NAN.format(name=label) if asks else label, one, other)
    return lines


def _difference(name: str, expected: Any, got: Any) -> list[str]:
    if isinstance(expected, Plain) and (array := compare.as_array(got)) is not None:
        got = Plain(str(array.dtype), array)
    heads = (EXPECTED_OF, GOT_OF) if name else (EXPECTED, GOT)
    head, below = (says.format(name=name) for says in heads)
    for precision in (3, 6, 9):
        one, other = _show(expected, precision), _show(got, precision)
        if one != other:
            one, other, marks = _aligned(one, other, _apart(expected, got))
            wide = len(head)
            lines = [f"  {head} {one}", f"  {below:{wide}} {other}"]
            lines += [f"  {'':{wide}} {marks}"] if marks else []
            return [*lines, *_place(name, expected, got)]
    return _place(name, expected, got) or [f"  {head} {compare.kind(expected)}, {GOT} {compare.kind(got)}"]


def _apart(expected: Any, got: Any) -> np.ndarray | None:
    """Which entries differ; ``None`` for results that are not two arrays of one shape."""
    one, other = compare.as_array(expected), compare.as_array(got)
    return None if one is None or other is None or one.shape != other.shape else compare.apart(one, other)


def _aligned(one: str, other: str, apart: np.ndarray | None) -> tuple[str, str, str]:
    """Two written arrays, entry below entry, and a line that marks the entries that differ."""
    texts = [re.sub(r"\s", "", text).replace(",", ", ") for text in (one, other)]
    entries = [ENTRY.findall(text) for text in texts]
    if apart is None or apart.size < 2 or [len(each) for each in entries] != [apart.size] * 2:
        return one, other, ""
    width = max(len(entry) for each in entries for entry in each)
    one, other = (ENTRY.sub(lambda entry: entry[0].rjust(width), text) for text in texts)
    wrong = iter(apart.flat)
    marks = ENTRY.sub(lambda _: ("^" if next(wrong) else " ") * width, texts[0])
    return one, other, "" if apart.all() else re.sub(r"[^\^]", " ", marks).rstrip()


def _place(name: str, expected: Any, got: Any) -> list[str]:
    """The first place where two large tensors of one shape differ."""
    one, apart = compare.as_array(expected), _apart(expected, got)
    if apart is None or apart.size <= 8 or not apart.any():
        return []
    index = tuple(int(i) for i in np.argwhere(apart)[0])
    shown = [
        f"{array[index]}" if array.dtype == bool else f"{array[index]:.6g}"
        for array in (one, compare.as_array(got))
    ]
    says = DIFFERENCE_IN if name else DIFFERENCE
    return [f"  {says.format(name=name, index=index, expected=shown[0], got=shown[1])}"]


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
        return TENSOR.format(shape=tuple(array.shape))
    largest = np.abs(array[np.isfinite(array)]).max(initial=0) if array.dtype.kind == "f" else 0
    if 1e-4 < largest < 0.1:  # small numbers get as many digits
        precision += math.ceil(-math.log10(largest))
    text = np.array2string(array, precision=precision, suppress_small=True, separator=", ")
    return " ".join(text.split())
