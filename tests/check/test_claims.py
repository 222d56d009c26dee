"""The predicates of the claims: true of what their own mistake returns, and not of what others return."""

import warnings

import pytest

from mha_course.exercises import Rng, find
from tests.check.claims import CLAIMS, SEED, numbers

pytestmark = pytest.mark.unchecked
MADE = sorted(key for key in CLAIMS if find(key[0]).mistakes[key[1]].variants)


def claimed(name, mistake, claim):
    """Whether the predicate is true of each wrong result of the variants of a mistake, on one draw."""
    exercise = find(name)
    problems = list(exercise.problems(Rng(SEED)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # wrong variants divide by 0
        for variant in exercise.mistakes[mistake].variants:
            outcomes = [exercise.compute(variant, problem) for problem in problems]
            for trial in exercise.trials(problems, outcomes):
                if trial.outcome.kind == "returned" and not exercise.is_right(trial):
                    yield bool(claim(trial.problem, numbers(trial.expected), numbers(trial.got)))


@pytest.mark.parametrize(("name", "mistake"), MADE)
def test_a_predicate_is_true_of_its_own_mistake_and_not_of_all_others(name, mistake):
    claim = CLAIMS[name, mistake]
    own = list(claimed(name, mistake, claim))
    assert own
    assert all(own)
    others = (m for m, about in find(name).mistakes.items() if m != mistake and about.variants)
    assert any(not said for other in others for said in claimed(name, other, claim))
