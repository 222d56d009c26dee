"""Every exercise is whole: its solution, its stub in the chapter, its sections, its problems."""

import re

import pytest
import torch

import mha_lab
from mha_course.checker import check, trace
from mha_course.checker.report import points
from mha_course.exercises import Rng, find, names
from tests.check.corpus import diagnosis_of, named
from tests.notebooks.chapters import code_cells, markdown, read
from tools.notebooks import exercise_of

# Wrong answers pass wrong arguments.
pytestmark = [pytest.mark.unchecked, pytest.mark.parametrize("name", names())]


def test_the_solution_is_right_on_many_draws(name):
    for seed in range(20):
        diagnosis = diagnosis_of(name, named(find(name).answer, name), seed, refused=[])
        assert diagnosis is not None
        assert diagnosis.name is None, diagnosis


def test_problems_are_drawn_in_single_precision(name):
    """Where a learner writes `torch.zeros(...)`, the dtype fits."""
    for problem in find(name).problems(Rng(0)):
        assert torch.float64 not in {a.dtype for a in problem if isinstance(a, torch.Tensor)}


def unwritten(*arguments):
    raise NotImplementedError


def test_a_stub_is_no_attempt(name):
    """Also where the chapter's stub is a function with a bug, which is left as it was."""
    exercise, space = find(name), {"torch": torch, "mha_lab": mha_lab}
    cells = code_cells(read(exercise.chapter))
    exec(cells[[exercise_of(cell) for cell in cells].index(name) - 1].source, space)
    said = f"The bug in {name} is still there" if exercise.bug else f"{name} is not written yet"
    for function in (named(unwritten, name), space[name]):
        score = check(function)
        assert (score, score.attempted, score.passed, score.diagnosis) == (0, False, False, None)
        assert score.message == f"○ {said}: 0 of {points(exercise.points)}."
    assert not exercise.bug or trace.fingerprint(space[name]) == trace.fingerprint(exercise.bug)


def test_each_mistake_says_something_else_and_leads_to_a_heading(name):
    exercise, mistakes = find(name), find(name).mistakes.values()
    assert len({mistake.says for mistake in mistakes}) == len(mistakes)
    headings = re.findall(r"^#+ (.+)$", markdown(read(exercise.chapter)), re.MULTILINE)
    assert {exercise.section, *(mistake.section for mistake in mistakes)} <= set(headings)
