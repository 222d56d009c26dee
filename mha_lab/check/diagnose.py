"""From what an answer returned to the name of the mistake behind it."""

from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
from torch import Tensor

from mha_lab.check.exercise import Draw, Exercise
from mha_lab.check.sandbox import Outcome, Plain, attempt, read, try_all

TOLERANCE = {"float64": 1e-8, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-1}  # other dtypes: none


@dataclass(frozen=True)
class Finding:
    """The verdict on one answer: ``slug`` is ``None`` where it is right.

    ``example`` is ``(arguments, expected, got)`` of the smallest problem where it is wrong.
    """

    slug: str | None
    says: str = ""
    section: str = ""
    example: tuple[tuple, Any, Any] | None = None


def same(one: Any, other: Any, *, dtype: bool = True) -> bool:
    """Equal values, shapes and (if asked) dtypes, up to rounding; NaN equals NaN."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(
            same(a, b, dtype=dtype) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, Plain) and isinstance(other, Plain):
        if one.array is None or other.array is None:
            return one == other
        if one.array.shape != other.array.shape or (dtype and one.dtype != other.dtype):
            return False
        tolerance = max(TOLERANCE.get(kind, 0.0) for kind in (one.dtype, other.dtype))
        a, b = (x.array.astype(np.complex128) for x in (one, other))
        return bool(np.allclose(a, b, atol=tolerance, rtol=tolerance, equal_nan=True))
    return type(one) is type(other) and one == other


def shapes(value: Any) -> str:
    """The shape of a result in words."""
    if isinstance(value, tuple):
        return "(" + ", ".join(shapes(item) for item in value) + ")" if value else "an empty tuple"
    if isinstance(value, Plain):
        return value.dtype if value.array is None else str(tuple(value.array.shape))
    return type(value).__name__


def _shape_only(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_shape_only(item) for item in value)
    if isinstance(value, Plain):
        return value.dtype if value.array is None else value.array.shape
    return type(value)


def _match(one: Outcome, other: Outcome) -> bool:
    if one.kind != other.kind:
        return False
    return same(one.value, other.value, dtype=False) if one.kind == "returned" else one.value == other.value


def judge(exercise: Exercise, answer: Any, refused: list[Any], draw: Draw | None = None) -> Finding | None:
    """``None`` if the answer is still the stub."""
    problems = list(exercise.problems(Draw() if draw is None else draw))
    # What is expected is computed only afterwards: the process that tries the answer must not hold it.
    outcomes = try_all(exercise.apply, answer, [copies(p) for p in problems], refused)
    return verdict(exercise, problems, outcomes)


def verdict(exercise: Exercise, problems: list[tuple], outcomes: list[Outcome]) -> Finding | None:
    """The same for outcomes that were collected elsewhere."""
    first = outcomes[0]
    if first.kind == "raised" and first.value == "NotImplementedError\n":
        return None
    if exercise.bug and all(
        _match(outcome, read(attempt(exercise.apply, exercise.bug, copies(problem))))
        for outcome, problem in zip(outcomes, problems, strict=True)
    ):
        return None
    expected = [read(attempt(exercise.apply, exercise.answer, copies(p))) for p in problems]
    kept = [read(attempt(lambda *_: None, None, copies(p))).inputs for p in problems]
    wrong = [
        i for i, outcome in enumerate(outcomes) if not _right(exercise, problems[i], outcome, expected[i])
    ]
    if wrong:
        return _name(exercise, problems, outcomes, expected, wrong)
    for i, outcome in enumerate(outcomes):
        if not same(outcome.inputs, kept[i]):
            example = (problems[i], kept[i], outcome.inputs)
            says = "The result is right, but your function changes the tensors that it is given."
            return Finding("changes-its-input", says, exercise.section, example)
    return Finding(None)


def copies(arguments: tuple) -> tuple:
    """The arguments for an answer, which may change or inspect them."""
    return tuple(_copy(argument) for argument in arguments)


def _copy(argument: Any) -> Any:
    """A tensor of its own; a function without the name that would give away what it does."""
    if isinstance(argument, FunctionType):
        code = argument.__code__.replace(co_name="function", co_qualname="function")
        return FunctionType(
            code, argument.__globals__, "function", argument.__defaults__, argument.__closure__
        )
    return argument.clone() if isinstance(argument, Tensor) else argument


def _right(exercise: Exercise, arguments: tuple, outcome: Outcome, expected: Outcome) -> bool:
    if outcome.kind != "returned":
        return False
    if exercise.accepts is not None:
        return exercise.accepts(outcome.value, *arguments) is None
    return same(outcome.value, expected.value)


def _name(
    exercise: Exercise,
    problems: list[tuple],
    outcomes: list[Outcome],
    expected: list[Outcome],
    wrong: list[int],
) -> Finding:
    """The misconception that explains every wrong outcome, or what can be said without one."""
    i = wrong[0]
    got, example = outcomes[i], (problems[i], expected[i].value, outcomes[i].value)

    def finding(slug: str, says: str, section: str = exercise.section) -> Finding:
        return Finding(slug, says, section, example if got.kind == "returned" else None)

    if got.kind == "too slow":
        return finding(
            "too-slow",
            "Your function did not return in time, and was stopped. Is there a loop without an end?",
        )
    if got.kind == "died":
        return finding(
            "raises",
            "The process that ran your function died. Did it ask for too much memory, or end Python?",
        )
    for slug, mistake in exercise.mistakes.items():
        for variant in mistake.variants:
            if all(
                _match(outcomes[j], read(attempt(exercise.apply, variant, copies(problems[j]))))
                for j in wrong
            ):
                return finding(slug, mistake.says, mistake.section)
    if got.kind == "raised":
        name, _, text = got.value.partition("\n")
        if name == "Refused":
            says = "Your function calls the finished version of the very function that this exercise builds."
            return finding("wrong", says + " Write it from smaller pieces.")
        where = f" on arguments of shape {_argument_shapes(problems[i])}"
        return finding("raises", f"Your function raises {name}{where}: {text.strip() or 'no message'}")
    if got.value is None:
        return finding("returns-nothing", "Your function returns None. Is the line `return ...` missing?")
    if exercise.accepts is not None:
        slug = exercise.accepts(got.value, *problems[i])
        if slug in exercise.mistakes:
            mistake = exercise.mistakes[slug]
            return finding(slug, mistake.says, mistake.section)
        if slug == "wrong-shape":
            return finding(
                slug, f"Your function returns {shapes(got.value)}; expected was {shapes(expected[i].value)}."
            )
        return finding(slug or "wrong", "The result is not what the exercise asks for.")
    if _shape_only(got.value) != _shape_only(expected[i].value):
        says = f"Your function returns {shapes(got.value)} where {shapes(expected[i].value)} is expected."
        return finding("wrong-shape", says)
    if all(
        outcomes[j].kind == "returned" and same(outcomes[j].value, expected[j].value, dtype=False)
        for j in wrong
    ):
        wanted = _dtypes(expected[i].value)
        says = f"The values are right, but the dtype is {_dtypes(got.value)} where {wanted} is expected."
        return finding("wrong-dtype", says)
    return finding(
        "wrong", "The shape is right and the values are not, and it is none of the known mistakes."
    )


def _argument_shapes(arguments: tuple) -> str:
    return ", ".join(str(tuple(a.shape)) if hasattr(a, "shape") else _brief(a) for a in arguments)


def _brief(value: Any) -> str:
    return getattr(value, "__name__", None) or repr(value)


def _dtypes(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(_dtypes(item) for item in value)
    return value.dtype if isinstance(value, Plain) else type(value).__name__
