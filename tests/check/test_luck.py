"""Luck earns nothing: a test that tries too little never passes, and one that tries enough always does."""

import statistics

import pytest
import torch

from mha_course.exercises import Rng, find
from tests.check.corpus import diagnosis_of

pytestmark = [pytest.mark.slow, pytest.mark.unchecked]  # wrong answers pass wrong arguments


def changing_each(inputs, tokens=lambda n: range(1, n)):
    """A test that changes ``tokens`` one after the other, in each of ``inputs(n, d_model)``."""

    def leaks_future(attention, n, d_model):
        for x in inputs(n, d_model):
            before = attention(x)
            for j in tokens(n):
                changed = x.clone()
                changed[j] += torch.randn(d_model)
                if (attention(changed)[:j] - before[:j]).abs().max() > 1e-5:
                    return True
        return False

    return leaks_future


def random_inputs(number):
    return lambda n, d_model: (torch.randn(n, d_model) for _ in range(number))


def fixed_input(n, d_model):
    yield torch.linspace(-1, 2, n * d_model).view(n, d_model)


LUCKY = {
    "one random input": changing_each(random_inputs(1)),
    "one fixed input": changing_each(fixed_input),
    "the last token only": changing_each(random_inputs(4), lambda n: [n - 1]),
}
ENOUGH = changing_each(random_inputs(20))


def passes(test, seed):
    """By the verdicts alone, without a look at how many inputs were tried."""
    return all(test(*problem) == problem[0].leaks for problem in find("leaks_future").problems(Rng(seed)))


def test_no_lucky_test_passes_in_any_of_1000_draws_and_one_that_tries_twenty_inputs_always_does():
    assert [name for name, test in LUCKY.items() if any(passes(test, seed) for seed in range(1000))] == []
    assert all(passes(ENOUGH, seed) for seed in range(20))


def halves(seed):
    """The attentions that leak for half of all inputs, two by two."""
    found = [problem for problem in find("leaks_future").problems(Rng(seed)) if "half" in problem[0].does]
    return sorted(found, key=lambda problem: problem[0].pair)


def test_one_input_finds_each_of_24_leaks_as_a_coin_falls():
    """So that it finds all of them with a probability of 2 to the power of -24."""
    once = LUCKY["one random input"]
    counts = [sum(once(*problem) for problem in halves(seed)) for seed in range(120)]
    assert len(halves(0)) == 24
    assert statistics.mean(counts) == pytest.approx(12, abs=0.5)  # of 24 coins: 12, and
    assert statistics.variance(counts) == pytest.approx(6, abs=2)  # 6 only if no two fall alike


def test_of_two_partners_one_leaks_where_the_other_does_not():
    for seed in range(5):
        for one, other in zip(*[iter(halves(seed))] * 2, strict=True):
            for _ in range(10):
                x = torch.randn(one[1:])
                same = changing_each(lambda n, d_model, x=x: [x])
                assert same(*one) != same(*other)


@pytest.mark.parametrize("inputs", [1, 5, 10])
def test_fewer_inputs_than_are_asked_for_are_counted(inputs):
    test = changing_each(random_inputs(inputs))
    assert {diagnosis_of("leaks_future", test, seed).name for seed in range(4)} == {"too-few-inputs"}


def test_what_a_test_did_is_written_in_words_and_no_result_is_taken_for_it():
    exercise = find("leaks_future")
    written = "a test saying False after 2 calls with 1 sentence, row 3 changed"
    assert exercise.shows((False, 2, 1, (3,), (), 0)) == written
    odd = (False,) * 6, (False, 2, 1, (2.5,), (), 0), (False, 2, 1, (), (3,), 0), (False, 2, 1, (), (), 9)
    for result in odd:
        assert exercise.shows(result) is None
        assert exercise.accepts(result, None, 5, 3)[0] == "wrong-dtype"
