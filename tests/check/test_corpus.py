"""First tries of readers: right answers earn everything, wrong ones nothing, and what is said is true."""

import re
from functools import cache

import pytest

from mha_lab.check import runner
from mha_lab.exercises import find
from tests.check.claims import CLAIMS, false_of, untrue
from tests.check.corpus import tries
from tests.check.matrix import PAGE, published, rows, text

# Wrong answers pass wrong arguments, and warn.
pytestmark = [pytest.mark.unchecked, pytest.mark.filterwarnings("ignore")]

judged = cache(lambda one, seed=0: one.diagnosis(seed))
TRIES = tries()
SLOW = [pytest.mark.slow]  # all but the first class of readers take a few minutes
CASES = [pytest.param(x, marks=[] if re.fullmatch(r"\d\d(_\w+)?_a", x.file) else SLOW) for x in TRIES]


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Whether an answer is right does not depend on how busy the machine is."""
    monkeypatch.setattr(runner, "SECONDS", 60.0)


@pytest.mark.parametrize("one", CASES, ids=str)
def test_a_first_try_is_judged_as_it_deserves_and_told_nothing_untrue(one):
    diagnosis = judged(one)
    assert (diagnosis is not None and diagnosis.name is None) == one.right, diagnosis
    if diagnosis is None:
        assert find(one.exercise).bug  # what it was given, with other names
    elif not one.right:
        assert untrue(one.exercise, diagnosis, one.function()) == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_verdict_does_not_hang_on_the_draw(seed):
    for one in TRIES:
        diagnosis = judged(one, seed)
        assert (diagnosis is not None and diagnosis.name is None) == one.right, one


@pytest.mark.parametrize("name", sorted({exercise for exercise, _ in CLAIMS}))
def test_every_known_mistake_has_a_predicate_of_its_own(name):
    # Thousands of radians differ in single precision: its variant is asked instead.
    single_precision = {"without-the-minus"} if name == "rotate_pairs" else set()
    single = {mistake for mistake, about in find(name).mistakes.items() if about.variants and not about.of}
    assert {mistake for exercise, mistake in CLAIMS if exercise == name} | single_precision >= single


@pytest.mark.slow
def test_the_published_table_is_this_one():
    judged_all = [(one, judged(one)) for one in TRIES]
    assert published() == rows(judged_all, false_of(judged_all)), "run make matrix"
    assert PAGE.read_text(encoding="utf-8").endswith(f"{text(published())}\n")
