"""Right answers earn everything, wrong ones nothing, and the mistake is called by its name."""

import re
from functools import partial

import pytest
import torch

import mha_lab
from mha_lab.check import check, diagnose, sandbox
from mha_lab.check.diagnose import judge
from mha_lab.check.exercise import Draw, find, names
from mha_lab.check.report import points
from tests.check.answers import named, table
from tests.notebooks.chapters import NAMES, ROOT, code_cells, markdown, read
from tools import draws
from tools.matrix import text
from tools.notebooks import exercise_of

TABLE = table()
RIGHT = [(name, answer) for name, rows in TABLE.items() for slug, answer in rows if slug is None]
WRONG = [(name, slug, answer) for name, rows in TABLE.items() for slug, answer in rows if slug is not None]
# Slugs that `check` gives to any exercise by itself.
GENERAL = {
    "raises",
    "too-slow",
    "changes-its-input",
    "returns-nothing",
    "wrong-shape",
    "wrong-dtype",
    "wrong",
}


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Whether an answer is right does not depend on how busy the machine is."""
    monkeypatch.setattr(sandbox, "SECONDS", 60.0)


@pytest.fixture
def one_draw(monkeypatch):
    """The same problems in every run; how much hangs on the draw is what ``make draws`` tries."""
    monkeypatch.setattr(diagnose, "Draw", partial(Draw, 0))


def test_every_exercise_has_rows_and_every_row_an_exercise():
    assert set(TABLE) == set(names())


@pytest.mark.parametrize("name", names())
def test_at_least_four_right_styles_and_two_ways_to_make_each_mistake(name):
    slugs = [slug for slug, _ in TABLE[name]]
    assert slugs.count(None) >= 4
    for slug in find(name).mistakes:
        assert slugs.count(slug) >= 2 or slug in GENERAL, slug


@pytest.mark.parametrize(("name", "answer"), RIGHT, ids=[f"{n}-{i}" for i, (n, _) in enumerate(RIGHT)])
def test_a_right_answer_earns_everything(one_draw, name, answer):
    score = check(answer)
    assert score.passed, score.message
    assert score == score.points == score.possible == find(name).points
    assert score.diagnosis is None


@pytest.mark.parametrize(
    ("name", "slug", "answer"), WRONG, ids=[f"{n}-{s}-{i}" for i, (n, s, _) in enumerate(WRONG)]
)
def test_a_wrong_answer_earns_nothing_and_is_named(one_draw, name, slug, answer):
    score = check(answer)
    assert (score, score.passed, score.attempted) == (0, False, True)
    assert score.diagnosis == slug, score.message
    assert score.message.startswith(f"{name}: {slug}, 0 of ")


@pytest.mark.parametrize("name", names())
def test_the_solution_is_right_on_many_draws(name):
    exercise = find(name)
    for seed in range(20):
        answer = named(exercise.answer, name)
        finding = judge(exercise, answer, [], Draw(seed))
        assert finding is not None
        assert finding.slug is None, finding


def test_the_draws_tool_says_what_was_taken_for_what(monkeypatch):
    right, wrong = dict(RIGHT)["causal_mask"], next(a for n, _, a in WRONG if n == "causal_mask")
    slug = next(s for n, s, _ in WRONG if n == "causal_mask")
    rows = [(None, right), (slug, wrong), ("too-slow", wrong), ("mask-ignored", right)]
    monkeypatch.setattr(draws, "table", lambda: {"causal_mask": rows})
    assert draws.surprises("causal_mask", 3) == {("mask-ignored", None): 3}


def untouched(name):
    """The report on a stub."""
    state = "the bug is still there" if name.startswith("mend_") else "not attempted yet"
    return f"{name}: {state}, 0 of {points(find(name).points)}"


@pytest.mark.parametrize("name", names())
def test_a_stub_is_not_attempted(name):
    def stub(*arguments):
        raise NotImplementedError

    score = check(named(stub, name))
    assert (score, score.attempted, score.passed, score.diagnosis) == (0, False, False, None)
    assert score.message == untouched(name)


@pytest.mark.parametrize("name", names())
def test_the_stub_of_the_chapter_is_no_attempt_either(name):
    """Also where the stub is a function with a bug, which is left as it was."""
    cells = code_cells(read(find(name).chapter))
    stub = cells[[exercise_of(cell) for cell in cells].index(name) - 1].source
    namespace = {"torch": torch, "mha_lab": mha_lab}
    exec(stub, namespace)
    score = check(namespace[name])
    assert (score, score.attempted, score.diagnosis) == (0, False, None)
    assert score.message == untouched(name)


@pytest.mark.parametrize("chapter", NAMES[1:6])
def test_each_core_chapter_lets_predict_and_mend(chapter):
    kinds = {name.split("_")[0] for name in names() if find(name).chapter == chapter}
    assert {"predict", "mend"} <= kinds


@pytest.mark.parametrize("chapter", NAMES[6:])
def test_each_later_chapter_has_two_to_four_exercises(chapter):
    assert 2 <= sum(find(name).chapter == chapter for name in names()) <= 4


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
    assert all(text.endswith(".") or text.endswith("?") for text in says)
    assert all(re.fullmatch(r"[a-z_-]+", slug) for slug in find(name).mistakes)


def test_no_order_of_problems_can_be_learned_by_heart():
    """`leaks_future` has only two possible results, so an answer might count its calls."""
    calls = []

    def leaks_future(attention, n, d_model):
        calls.append(attention)
        return len(calls) in (2, 6, 7, 8, 9, 10, 14, 15, 16, 17, 18)  # right, were the order fixed

    assert [check(leaks_future).passed for _ in range(5)] == [False] * 5


def test_the_published_matrix_is_this_one():
    """Every row above is asserted, so the table of a run without a failure is known beforehand."""
    ideal = {name: [(slug, slug, slug is None) for slug, _ in rows] for name, rows in TABLE.items()}
    page = (ROOT / "docs" / "check-matrix.md").read_text(encoding="utf-8")
    assert text(ideal) in page
