"""Solutions changed by machine: none that differs is accepted, and nothing untrue is said of any."""

import pytest

from mha_lab.check import compare, sandbox
from mha_lab.check.diagnose import copies
from mha_lab.check.exercise import Draw, find, names
from mha_lab.check.sandbox import compute
from tests.check.claims import untrue
from tests.check.corpus import judge
from tests.check.mutants import mutants

pytestmark = pytest.mark.unchecked  # wrong answers pass wrong arguments

FRESH = range(1000, 1012)  # draws that the judge has not seen


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A mutant that loops is stopped soon."""
    monkeypatch.setattr(sandbox, "SECONDS", 2.0)


def agrees(exercise, mutant, problem):
    """The mutant is right on this problem."""
    got = compute(exercise.apply, mutant, copies(problem))
    if got.kind == "raised":
        return False
    if exercise.accepts is not None:
        return exercise.accepts(got.value, *problem) is None
    return compare.same(compute(exercise.apply, exercise.answer, copies(problem)).value, got.value)


@pytest.mark.filterwarnings("ignore")  # a mutant may take the mean of nothing
@pytest.mark.parametrize("name", names())
def test_no_mutant_that_differs_is_accepted_and_none_is_told_something_untrue(name):
    exercise = find(name)
    accepted, false, count = [], [], 0
    for source, mutant in mutants(name):
        count += 1
        finding = judge(name, mutant)
        if finding is None:
            continue
        if finding.slug is None:
            for seed in FRESH:
                if not all(agrees(exercise, mutant, problem) for problem in exercise.problems(Draw(seed))):
                    accepted.append(source)
                    break
        elif reason := untrue(name, finding, mutant):
            false.append(f"{finding.slug}: {reason}\n{finding.seen}\n{finding.cause}\n{source}")
    assert count >= 4
    assert not accepted, "\n\n".join(accepted)
    assert not false, "\n\n".join(false)
