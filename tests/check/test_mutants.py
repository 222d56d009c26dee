"""Solutions changed by machine: none that differs is accepted, and nothing untrue is said of any."""

import pytest

from mha_course.checker.runner import SECONDS
from mha_course.exercises import Rng, find, names
from tests.check.claims import untrue
from tests.check.corpus import agrees, diagnosis_of
from tests.check.mutants import mutants

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]  # wrong answers pass wrong arguments

FRESH = range(1000, 1012)  # sets of problems that `check` has not used


@pytest.mark.filterwarnings("ignore")  # a mutant may take the mean of nothing
@pytest.mark.parametrize("name", names())
def test_no_mutant_that_differs_is_accepted_and_none_is_told_something_untrue(name):
    exercise, changed = find(name), list(mutants(name))
    assert len(changed) >= 4
    accepted, false, slow = [], [], []
    for source, mutant in changed:
        diagnosis = diagnosis_of(name, mutant)
        if diagnosis is None:
            continue
        if diagnosis.name is None:
            fresh = [problem for seed in FRESH for problem in exercise.problems(Rng(seed))]
            if not all(agrees(exercise, mutant, problem) for problem in fresh):
                accepted.append(source)
        elif diagnosis.name == "too-slow":  # so it was not judged; none takes longer than half a second
            slow.append(source)
        elif reason := untrue(name, diagnosis, mutant):
            false.append(f"{diagnosis.name}: {reason}\n{diagnosis.seen}\n{diagnosis.cause}\n{source}")
    assert not accepted, "\n\n".join(accepted)
    assert not false, "\n\n".join(false)
    assert not slow, f"too slow, {SECONDS:g} seconds of computing time:\n\n" + "\n\n".join(slow)
