"""``check(function)``: is this answer right, and if not, which mistake is it?

>>> def causal_mask(n):
...     raise NotImplementedError
>>> check(causal_mask)
○ causal_mask is not written yet: 0 of 1 point.
0.0
"""

import difflib
import inspect
from dataclasses import replace
from typing import Any

from mha_lab.check._progress import Progress, following, progress, record
from mha_lab.check.diagnosis import Diagnosis, diagnose
from mha_lab.check.report import make, points, present
from mha_lab.check.runner import run
from mha_lab.exercises import Exercise, Rng, find, names

__all__ = ["CheckResult", "Progress", "check", "progress", "solution"]


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


def check(answer: Any) -> CheckResult:
    """Try ``answer`` on random problems, print a short report, and return the points.

    The exercise is found by the function's name. The function runs in a separate process, for at
    most 10 seconds of computing (see ``mha_lab.check.runner``): nothing that it does, prints or changes
    reaches the notebook, and an error that it raises is shown in the report. A stub that raises
    ``NotImplementedError`` earns 0 points. That an answer is right is kept for ``progress()``.

    Args:
        answer: the function itself: ``check(split_heads)``.

    Returns:
        a ``CheckResult``, which is a ``float``.

    Raises:
        TypeError: ``answer`` is not a function.
        ValueError: there is no exercise of this name.
    """
    exercise = _find(answer)
    problems = list(exercise.problems(Rng()))
    outcomes = run(exercise, answer, problems)
    diagnosis = diagnose(exercise, problems, outcomes)
    report, problem = make(exercise, diagnosis), ""
    if report.state == "right":
        problem, after = record(exercise), following(exercise)
        if after:
            report = replace(report, following=after.name, section=after.section, chapter=after.chapter)
    present(report)
    if problem:
        print(problem)
    return CheckResult(exercise, diagnosis, str(report))


def solution(name: str) -> None:
    """Print the source of an exercise's solution: ``solution("split_heads")``.

    Raises:
        ValueError: there is no exercise of this name.
    """
    if name not in names():
        raise ValueError(_unknown(name))
    print(inspect.getsource(find(name).answer).rstrip())


def _find(answer: Any) -> Exercise:
    name = getattr(answer, "__name__", None)
    if not callable(answer) or not isinstance(name, str):
        message = f"check: expected a function, got {type(answer).__name__}."
        raise TypeError(message + " Did you mean check(split_heads), without (...) after the name?")
    if name not in names():
        raise ValueError(_unknown(name))
    return find(name)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"check: expected the name of an exercise ({', '.join(names())}), got {name}.{hint}"
