"""Every exercise is whole: its solution, its stub in the chapter, its sections, its problems."""

import re

import pytest
import torch

import mha_lab
from mha_lab.check import check, trace
from mha_lab.check.diagnosis import Diagnosis
from mha_lab.check.report import points
from mha_lab.exercises import Rng, find, names
from tests.check import stability
from tests.check.corpus import diagnosis_of, named, tries
from tests.notebooks.chapters import NAMES, code_cells, markdown, read
from tools.notebooks import exercise_of

pytestmark = pytest.mark.unchecked  # wrong answers pass wrong arguments


@pytest.mark.parametrize("name", names())
def test_the_solution_is_right_on_many_draws(name):
    for seed in range(20):
        diagnosis = diagnosis_of(name, named(find(name).answer, name), seed, refused=[])
        assert diagnosis is not None
        assert diagnosis.name is None, diagnosis


@pytest.mark.parametrize("name", names())
def test_problems_are_drawn_in_single_precision(name):
    """Where a learner writes `torch.zeros(...)`, the dtype fits."""
    for problem in find(name).problems(Rng(0)):
        assert torch.float64 not in {a.dtype for a in problem if isinstance(a, torch.Tensor)}


def untouched(name):
    """The report on a stub."""
    state = "the bug is still there" if find(name).bug else "not attempted yet"
    return f"{name}: {state}, 0 of {points(find(name).points)}"


@pytest.mark.parametrize("name", names())
def test_a_stub_is_not_attempted(name):
    def stub(*arguments):
        raise NotImplementedError

    score = check(named(stub, name))
    assert (score, score.attempted, score.passed, score.diagnosis) == (0, False, False, None)
    assert score.message == untouched(name)


def stub_of(name):
    """The function that the chapter gives."""
    cells = code_cells(read(find(name).chapter))
    space = {"torch": torch, "mha_lab": mha_lab}
    exec(cells[[exercise_of(cell) for cell in cells].index(name) - 1].source, space)
    return space[name]


@pytest.mark.parametrize("name", names())
def test_the_stub_of_the_chapter_is_no_attempt_either(name):
    """Also where the stub is a function with a bug, which is left as it was."""
    score = check(stub_of(name))
    assert (score, score.attempted, score.diagnosis) == (0, False, None)
    assert score.message == untouched(name)
    if find(name).bug:
        assert trace.fingerprint(stub_of(name)) == trace.fingerprint(find(name).bug)


def test_a_bug_that_was_touched_and_is_still_there_is_an_attempt():
    def fix_scale(x, w_q, w_k):
        query, key = x @ w_q, x @ w_k
        return query @ key.mT / x.shape[-1] ** 0.5

    score = check(fix_scale)
    assert score.attempted
    assert score.diagnosis == "scaled-by-d_model"


@pytest.mark.parametrize("chapter", NAMES[1:6])
def test_each_core_chapter_lets_predict_and_fix(chapter):
    kinds = {name.split("_")[0] for name in names() if find(name).chapter == chapter}
    assert {"predict", "fix"} <= kinds


@pytest.mark.parametrize("name", names())
def test_every_section_named_is_a_heading_of_the_chapter(name):
    exercise = find(name)
    headings = re.findall(r"^#+ (.+)$", markdown(read(exercise.chapter)), re.MULTILINE)
    for section in {exercise.section, *(mistake.section for mistake in exercise.mistakes.values())}:
        assert section in headings


@pytest.mark.parametrize("name", names())
def test_no_two_mistakes_of_an_exercise_say_the_same(name):
    says = [mistake.says for mistake in find(name).mistakes.values()]
    assert len(set(says)) == len(says)


def test_no_order_of_problems_can_be_learned_by_heart():
    """`leaks_future` has only two possible results, so an answer might count its calls."""
    order = [[p[0].__name__ for p in find("leaks_future").problems(Rng(seed))] for seed in range(8)]
    assert len({tuple(names) for names in order}) == len(order)


def test_the_draws_tool_says_what_was_taken_for_what(monkeypatch):
    one = next(one for one in tries() if not one.right)
    found = (Diagnosis(name) for name in ("a", "b", "b"))
    monkeypatch.setattr(type(one), "diagnosis", lambda self, seed: next(found))
    assert stability.names(one, 3) == {"a": 1, "b": 2}
