"""Is what ``check`` says of an answer true? Asked again of its own results, on problems of another draw.

Most sentences say what a variant of the mistake computes: then a variant must compute the same again. A
sentence that states a property of the result has a predicate, and so has each mistake without a variant, in
an answer by hand: ``CLAIMS`` of each chapter's module holds, for an exercise and the name of a mistake,
``(problem, expected, got) -> bool`` on one problem where the answer is wrong. Whoever wrote it had read the
sentence, not the code behind it. ``expected`` and ``got`` are arrays of NumPy, or tuples of them.
"""

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from mha_course.checker.diagnosis import Diagnosis, alike
from mha_course.exercises import Exercise, Rng, find
from mha_course.exercises import _results as compare
from mha_course.exercises._results import Trial
from tests.check.claims.sentences import denied

SEED = 2000
CLAIMS: dict[tuple[str, str], Callable[..., bool]] = {}
for path in sorted(Path(__file__).parent.glob("ch*.py")):
    CLAIMS |= import_module(f"{__name__}.{path.stem}").CLAIMS


def unclaimed(exercise: Exercise) -> list[str]:
    """The known mistakes without a variant that have no predicate yet."""
    by_hand = [name for name, about in exercise.mistakes.items() if not about.variants]
    return [name for name in by_hand if (exercise.name, name) not in CLAIMS]


def untrue(name: str, diagnosis: Diagnosis, answer: Callable[..., Any]) -> str:
    """What is not so in the report on this answer; an empty string if all is."""
    exercise = find(name)

    def fresh() -> list[Trial]:
        problems = list(exercise.problems(Rng(SEED)))
        return exercise.trials(problems, [exercise.compute(answer, problem) for problem in problems])

    if reason := denied(exercise, diagnosis, lambda: [(exercise.is_right(t), t.got) for t in fresh()]):
        return reason
    if diagnosis.name not in exercise.mistakes:
        return ""
    mistake = exercise.mistakes[diagnosis.name]
    claim = CLAIMS.get((name, diagnosis.name))
    for trial in (t for t in fresh() if not exercise.is_right(t)):
        # An error has no result: then a variant must do the same, too.
        if claim is None or trial.outcome.kind == "raised":
            variants = (exercise.compute(variant, trial.problem) for variant in mistake.variants)
            if not any(alike(trial.outcome, outcome) for outcome in variants):
                return f"{diagnosis.name}: no variant does this on a fresh problem"
        elif not claim(trial.problem, numbers(trial.expected), numbers(trial.got)):
            return f"{diagnosis.name}: the claim does not hold on a fresh problem"
    return ""


def false_of(judged: list[tuple[Any, Diagnosis | None]]) -> Counter:
    """How often something untrue was said, by exercise."""
    found = Counter()
    for one, diagnosis in judged:
        if diagnosis is not None and diagnosis.name is not None:
            found[one.exercise] += bool(untrue(one.exercise, diagnosis, one.function()))
    return found


def numbers(value: Any) -> Any:
    """Arrays in place of what the judge works with."""
    if isinstance(value, tuple) and compare.as_array(value) is None:
        return tuple(numbers(item) for item in value)
    array = compare.as_array(value)
    return value if array is None else array
