"""First tries of readers: right answers earn everything, wrong ones nothing, and what is said is true."""

import re
from functools import cache

import pytest

from mha_lab.check import check, runner
from mha_lab.exercises import find, names
from tests.check.claims import CLAIMS, false_of, untrue
from tests.check.corpus import tries
from tests.check.matrix import PAGE, published, rows, text, unnamed

# Wrong answers pass wrong arguments, and warn.
pytestmark = [pytest.mark.unchecked, pytest.mark.filterwarnings("ignore")]

TRIES = tries()
judged = cache(lambda one, seed=0: one.diagnosis(seed))
MAX_UNNAMED = 0.08
FIRST_CLASS = re.compile(r"\d\d(_\w+)?_a")  # of readers; the other classes take a few minutes


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Whether an answer is right does not depend on how busy the machine is."""
    monkeypatch.setattr(runner, "SECONDS", 60.0)


@pytest.mark.parametrize("name", names())
def test_an_exercise_was_tried_twelve_times_by_two_readers(name):
    files = [one.file for one in TRIES if one.exercise == name]
    said = f"tests/check/tries has {len(files)} first tries of {name}, in {len(set(files))} files: write more"
    assert len(files) >= 12, said
    assert len(set(files)) >= 2, said


@pytest.mark.parametrize(
    "one",
    [pytest.param(one, marks=() if FIRST_CLASS.fullmatch(one.file) else pytest.mark.slow) for one in TRIES],
    ids=str,
)
def test_a_first_try_is_judged_as_it_deserves_and_told_nothing_untrue(one):
    diagnosis = judged(one)
    if diagnosis is None:  # what it was given, with other names
        assert find(one.exercise).bug
        assert not one.right
        return
    assert (diagnosis.name is None) == one.right, diagnosis
    if not one.right:
        assert untrue(one.exercise, diagnosis, one.function()) == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_verdict_does_not_hang_on_the_draw(seed):
    for one in TRIES:
        diagnosis = judged(one, seed)
        assert (diagnosis is not None and diagnosis.name is None) == one.right, one


@pytest.mark.slow
def test_few_wrong_tries_stay_without_a_name():
    wrong = [(one, judged(one)) for one in TRIES if not one.right]
    without = [str(one) for one, diagnosis in wrong if diagnosis is not None and unnamed(diagnosis)]
    assert len(without) <= MAX_UNNAMED * len(wrong), without


@pytest.mark.parametrize("name", sorted({exercise for exercise, _ in CLAIMS}))
def test_every_known_mistake_has_a_predicate_of_its_own(name):
    # Thousands of radians differ in single precision: its variant is asked instead.
    single_precision = {"without-the-minus"} if name == "rotate_pairs" else set()
    mistakes = find(name).mistakes.items()
    single = {mistake for mistake, about in mistakes if about.variants and not about.of}
    assert {mistake for exercise, mistake in CLAIMS if exercise == name} | single_precision >= single


@pytest.mark.slow
def test_the_same_comes_out_of_check_itself():
    """The tests above judge in this process; ``check`` does in a child."""
    for one in TRIES[::12]:
        assert check(one.function()).passed == one.right


@pytest.mark.slow
def test_the_published_table_is_this_one():
    judged_all = [(one, judged(one)) for one in TRIES]
    assert published() == rows(judged_all, false_of(judged_all)), "run make matrix"
    assert PAGE.read_text(encoding="utf-8").endswith(f"{text(published())}\n")


@pytest.mark.parametrize("name", names())
def test_what_is_said_reads_as_a_sentence(name):
    for mistake_name, mistake in find(name).mistakes.items():
        assert re.fullmatch(r"[A-Za-z0-9_/-]+", mistake_name)
        assert mistake.says[-1] in ".?)"
