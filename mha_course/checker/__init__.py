"""``check(function)``: is this answer right, and if not, which mistake is it?

>>> def causal_mask(n):
...     raise NotImplementedError
>>> check(causal_mask)
○ causal_mask is not written yet: 0 of 1 point.
0.0
"""

import difflib
import inspect
from typing import Any

from mha_course.checker._progress import Progress, following, progress, record
from mha_course.checker.diagnosis import diagnose
from mha_course.checker.report import CheckResult, show
from mha_course.checker.runner import run
from mha_course.exercises import Exercise, Rng, find, names

NO_FUNCTION = (
    "check: expected a function, got {kind}. Did you mean check(split_heads), without (...) after the name?"
)
NO_EXERCISE = "check: expected the name of an exercise ({names}), got {name}."
NEAR_EXERCISE = "check: expected the name of an exercise ({names}), got {name}. Did you mean {near}?"

__all__ = ["CheckResult", "Progress", "check", "progress", "solution"]


def check(answer: Any) -> CheckResult:
    """Try ``answer`` on random problems, print a short report, and return the points.

    The exercise is found by the function's name. The function runs in a separate process, for at
    most 10 seconds of computing (see ``mha_course.checker.runner``): nothing that it does, prints or changes
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
    diagnosis = diagnose(exercise, exercise.trials(problems, outcomes))
    right = diagnosis is not None and diagnosis.name is None
    problem = record(exercise) if right else ""
    result = show(exercise, diagnosis, following(exercise) if right else None)
    if problem:
        print(problem)
    return result


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
        raise TypeError(NO_FUNCTION.format(kind=type(answer).__name__))
    if name not in names():
        raise ValueError(_unknown(name))
    return find(name)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, names(), n=1)
    says = NEAR_EXERCISE if near else NO_EXERCISE
    return says.format(names=", ".join(names()), name=name, near=next(iter(near), None))
