"""First tries at the exercises, typed by readers who had only the chapter, and what each deserves.

``tries/NN_x.txt`` holds what one class of readers typed at chapter ``NN``, verbatim. Each block begins with
``# %% exercise | right`` or ``# %% exercise | wrong: why``. The verdicts were given by somebody who
had not seen the diagnoses. ``NN_more_a.txt`` holds answers that a review of ``check`` found accepted or
without a name, and right ones that resemble them. ``NN_library_p.txt`` holds ways to compute from the code of
PyTorch, Transformers and Keras, whose file and line a comment names; some have a change that makes
them wrong.

A block runs among the names that its chapter's notebook has.
"""

import ast
import builtins
import contextlib
import io
import linecache
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from mha_course.checker.diagnosis import Diagnosis, diagnose
from mha_course.checker.runner import in_this_process, read
from mha_course.exercises import Exercise, Rng, copies, find
from tests.notebooks.chapters import NAMES, code_cells
from tests.notebooks.chapters import read as chapter

FOLDER = Path(__file__).parent / "tries"
with warnings.catch_warnings(action="ignore"):  # readers typed the names of an earlier release
    for old in ("chapters", "explore"):
        import_module(f"mha_lab.{old}")
# Of these, only what a cell defines, not what it computes.
TRAINS = "06", "07", "08", "09", "10", "13", "14", "16"


@dataclass(frozen=True)
class Try:
    file: str
    number: int
    exercise: str
    right: bool
    why: str
    source: str

    def __str__(self) -> str:
        return f"{self.file}-{self.number}-{self.exercise}"

    def function(self) -> Callable[..., Any]:
        """What the reader's cell defines."""
        name = f"<{self}>"
        linecache.cache[name] = (len(self.source), None, self.source.splitlines(keepends=True), name)
        space = dict(notebook(self.file[:2]))
        exec(compile(self.source, name, "exec"), space)
        return space[self.exercise]

    def diagnosis(self, seed: int = 0) -> Diagnosis | None:
        """What ``check`` says of it on this draw of problems, without a process of its own."""
        return diagnosis_of(self.exercise, self.function(), seed)


def diagnosis_of(
    name: str | Exercise, answer: Callable[..., Any], seed: int = 0, refused: list[Any] | None = None
) -> Diagnosis | None:
    """``check``'s verdict on one draw; 20 times as fast as ``check``."""
    exercise = find(name) if isinstance(name, str) else name
    problems = list(exercise.problems(Rng(seed)))
    refused = exercise.refused if refused is None else refused
    messages = in_this_process(exercise.apply, answer, [copies(p) for p in problems], refused)
    return diagnose(exercise, exercise.trials(problems, [read(message) for message in messages]))


def agrees(exercise: Exercise, answer: Callable[..., Any], problem: tuple) -> bool:
    """The answer is right on this problem."""
    return all(map(exercise.is_right, exercise.trials([problem], [exercise.compute(answer, problem)])))


def named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function under the exercise's name, as a learner would define it."""
    f = function
    if isinstance(f, FunctionType) and not f.__module__.startswith(("mha_lab", "mha_course")):
        answer = FunctionType(f.__code__, f.__globals__, name, f.__defaults__, f.__closure__)
        answer.__kwdefaults__ = f.__kwdefaults__
    else:
        answer = lambda *arguments: f(*arguments)  # noqa: E731  it gets its name below
        answer.__name__ = name
    return answer


def tries(chapter: str = "") -> list[Try]:
    """All blocks, or those of chapter ``"03"``."""
    found = []
    for path in sorted(FOLDER.glob(f"{chapter}*.txt")):
        for number, block in enumerate(path.read_text(encoding="utf-8").split("# %% ")[1:]):
            header, _, source = block.partition("\n")
            exercise, _, said = header.partition(" | ")
            word, _, why = said.partition(": ")
            if word not in ("right", "wrong"):
                raise ValueError(f"{path.name}, block {number}: no verdict in {header!r}")
            code = source.rstrip() + "\n"
            found.append(Try(path.stem, number, exercise.strip(), word == "right", why, code))
    return found


@cache
def notebook(number: str) -> dict[str, Any]:
    """The names of a chapter after *Run All*, as far as they cost nothing: no pictures, no training."""
    space: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    space |= {"torch": torch, "math": math, "F": torch.nn.functional, "np": np}  # what the readers were told
    if number == "08":
        with FlopCounterMode(display=False):  # its first use takes seconds; the chapter has used it before
            torch.ones(1, 1) @ torch.ones(1, 1)
    name = next(name for name in NAMES if name.startswith(number))
    for cell in code_cells(chapter(name)):
        lines = [line for line in cell.source.splitlines() if not line.lstrip().startswith(("%", "!"))]
        with contextlib.suppress(SyntaxError):
            for statement in ast.parse("\n".join(lines)).body:
                if _is_cheap(statement, number):
                    with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                        exec(compile(ast.Module([statement], []), f"<chapter {number}>", "exec"), space)
    return space


def _is_cheap(statement: ast.stmt, number: str) -> bool:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return True
    if any(word in ast.unparse(statement) for word in ("plt.", "plot.", "explore.")):
        return False
    if not isinstance(statement, ast.Assign):
        return isinstance(statement, ast.For) and number not in TRAINS
    return number not in TRAINS or not any(isinstance(node, ast.Call) for node in ast.walk(statement.value))
